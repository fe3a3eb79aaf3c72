// Convolution, pooling, index ops and dropout beside the plain interpreter.

#include "tests/runtime/kernels/kernel_case.h"

#include "compiler/ops/ops.h"
#include "runtime/kernels/cpu/one_dnn.h"

#include <filesystem>
#include <thread>

namespace zerocc {
namespace {

using Ints = std::vector<int64_t>;

struct Window {
  Dims x, w;
  Ints strides, low, high, dilations;
  int64_t groups;

  Attributes attributes() const {
    return {{"strides", strides}, {"low", low}, {"high", high}, {"dilations", dilations}, {"groups", groups}};
  }
  Attributes pool() const {
    return {{"strides", strides},
            {"low", low},
            {"high", high},
            {"dilations", dilations},
            {"kernel", Ints(w.begin() + 2, w.end())}};
  }
};

std::vector<Window> windows() {
  std::vector<Window> out = {
      {{2, 3, 7}, {4, 3, 3}, {1}, {1}, {1}, {1}, 1},
      {{1, 2, 6, 5}, {3, 2, 2, 3}, {2, 1}, {1, 0}, {0, 2}, {1, 1}, 1},
      {{2, 16, 9, 9}, {32, 16, 3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, 1},
      {{2, 3, 32, 32}, {8, 3, 7, 7}, {2, 2}, {3, 3}, {3, 3}, {1, 1}, 1},
      {{1, 2, 7, 7}, {2, 2, 3, 2}, {1, 2}, {2, 1}, {2, 1}, {2, 3}, 1},
      {{1, 4, 5, 4}, {6, 2, 2, 2}, {1, 1}, {0, 0}, {0, 0}, {1, 1}, 2},
      {{2, 16, 8, 8}, {16, 1, 3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, 16},
      {{1, 8, 4, 4}, {16, 8, 1, 1}, {1, 1}, {0, 0}, {0, 0}, {1, 1}, 1},
      {{1, 2, 4, 3, 4}, {2, 2, 2, 2, 2}, {1, 1, 2}, {0, 1, 0}, {0, 0, 1}, {1, 1, 1}, 1},
      {{1, 1, 8}, {1, 1, 3}, {4}, {0}, {0}, {1}, 1},
      {{3, 4, 128, 128}, {4, 4, 3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, 1}, // an image at a time
      {{2, 32, 5, 5}, {32, 16, 3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, 2},
      {{2, 16, 7, 7}, {24, 16, 1, 1}, {2, 2}, {0, 0}, {0, 0}, {1, 1}, 1},
      {{2, 20, 9}, {20, 1, 4}, {1}, {3}, {0}, {1}, 20},
      {{1, 1, 1, 1}, {1, 1, 1, 1}, {1, 1}, {0, 0}, {0, 0}, {1, 1}, 1}};
  return out;
}

Attributes withShape(Attributes attributes, const Dims &dims) {
  attributes.set("shape", Ints(dims.begin(), dims.end()));
  return attributes;
}

Dims resultOf(OpKind op, llvm::ArrayRef<TensorType> types, const Attributes &attributes) {
  Expected<ResultTypes> results = inferTypes({op, types, attributes});
  EXPECT_TRUE(bool(results));
  return (*results)[0].dims;
}

TEST(Conv, IsAsInterpretedWithItsGradients) {
  Random random(71);
  for (const Window &window : windows()) {
    SCOPED_TRACE(print(TensorType{DType::f32, window.x}) + " * " + print(TensorType{DType::f32, window.w}));
    Tensor x = randomTensor(random, DType::f32, window.x), w = randomTensor(random, DType::f32, window.w);
    Tensor dy =
        randomTensor(random, DType::f32, resultOf(OpKind::Conv, {x.type(), w.type()}, window.attributes()));
    expectAsInterpreted(OpKind::Conv, window.attributes(), {&x, &w}, {3e-4, 1e-5});
    expectAsInterpreted(OpKind::ConvDataGrad, withShape(window.attributes(), window.x), {&dy, &w},
                        {3e-4, 1e-5});
    const double sums = static_cast<double>(dy.type().elements() / window.w[0]); // of so many products each
    expectAsInterpreted(OpKind::ConvWeightGrad, withShape(window.attributes(), window.w), {&x, &dy},
                        {1e-3 + 1e-7 * sums, 1e-5});
  }
}

/// Images with `channels` channels of size², to `outputs` channels.
Window square(int64_t images, int64_t channels, int64_t size, int64_t outputs, int64_t kernel, int64_t stride,
              int64_t groups, int64_t dilation = 1) {
  const int64_t pad = kernel / 2 * dilation;
  return {{images, channels, size, size},
          {outputs, channels / groups, kernel, kernel},
          {stride, stride},
          {pad, pad},
          {pad, pad},
          {dilation, dilation},
          groups};
}

// The workspace that the compiler grants is enough for loops that are not oneDNN's slow reference.
TEST(Conv, NeedsNoReferenceLoops) {
  for (const Window &window :
       {square(2, 3, 64, 64, 7, 2, 1), square(8, 64, 28, 64, 3, 1, 1), square(3, 256, 14, 256, 3, 1, 1),
        square(2, 64, 28, 128, 3, 2, 1), square(2, 256, 14, 64, 1, 1, 1), square(2, 256, 14, 512, 1, 2, 1),
        square(2, 32, 28, 32, 3, 1, 32), square(2, 96, 28, 96, 5, 2, 96), square(1, 112, 14, 112, 1, 1, 4),
        square(2, 64, 14, 64, 3, 1, 4), square(2, 12, 14, 24, 3, 1, 4), square(2, 64, 28, 64, 3, 1, 1, 2),
        square(2, 1, 28, 6, 5, 1, 1), square(2, 32, 28, 3, 3, 1, 1), square(1, 3, 32, 16, 16, 16, 1),
        square(1, 512, 28, 1024, 1, 2, 1), square(2, 576, 2, 576, 5, 1, 576)}) {
    SCOPED_TRACE(print(TensorType{DType::f32, window.x}) + " * " + print(TensorType{DType::f32, window.w}));
    Tensor x = poisoned(DType::f32, window.x), w = poisoned(DType::f32, window.w);
    Tensor y = poisoned(DType::f32, resultOf(OpKind::Conv, {x.type(), w.type()}, window.attributes()));
    struct {
      OpKind op;
      Attributes attributes;
      std::vector<const Tensor *> inputs, results;
    } calls[] = {{OpKind::Conv, window.attributes(), {&x, &w}, {&y}},
                 {OpKind::ConvDataGrad, withShape(window.attributes(), window.x), {&y, &w}, {&x}},
                 {OpKind::ConvWeightGrad, withShape(window.attributes(), window.w), {&x, &y}, {&w}}};
    for (const auto &[op, attributes, inputs, results] : calls) {
      Expected<KernelCall> call = prepareCall(op, attributes, inputs, results);
      ASSERT_TRUE(call) << call.error().text();
      for (const auto &step : static_cast<const OneDnnSteps *>(call->state.get())->steps) {
        if (!step.primitive)
          continue;
        const char *name = "";
        dnnl_primitive_desc_query(step.primitive.get_primitive_desc(), dnnl_query_impl_info_str, 0, &name);
        EXPECT_EQ(std::string(name).find("ref"), std::string::npos) << opText(op) << ": " << name;
      }
    }
  }
}

int64_t threadsOfThisProcess() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"),
                       std::filesystem::directory_iterator());
}

// Ranks are threads: each computes by itself, without helpers, and all get the same bits.
TEST(Conv, RunsOnTheCallingThreadAlone) {
  const Window window = square(4, 32, 20, 32, 3, 1, 1);
  Random random(76);
  Tensor x = randomTensor(random, DType::f32, window.x), w = randomTensor(random, DType::f32, window.w);
  const TensorType y{DType::f32, resultOf(OpKind::Conv, {x.type(), w.type()}, window.attributes())};
  Tensor dy = randomTensor(random, DType::f32, y.dims);
  const Attributes data = withShape(window.attributes(), window.x),
                   weights = withShape(window.attributes(), window.w);
  struct Rank {
    Tensor y, dx, dw;
    std::vector<double> workspace[3];
    std::vector<KernelCall> calls;
  };
  auto prepare = [&](Rank &rank) {
    rank.y = poisoned(DType::f32, y.dims);
    rank.dx = poisoned(DType::f32, window.x);
    rank.dw = poisoned(DType::f32, window.w);
    int i = 0;
    for (Expected<KernelCall> call : {prepareCall(OpKind::Conv, window.attributes(), {&x, &w}, {&rank.y}),
                                      prepareCall(OpKind::ConvDataGrad, data, {&dy, &w}, {&rank.dx}),
                                      prepareCall(OpKind::ConvWeightGrad, weights, {&x, &dy}, {&rank.dw})}) {
      ASSERT_TRUE(call) << call.error().text();
      rank.workspace[i].resize(static_cast<size_t>(call->workspaceBytes) / sizeof(double) + 1);
      call->workspace = rank.workspace[i++].data();
      ASSERT_TRUE(cpuKernel(call->op).prepare(*call)); // with a workspace of its own
      rank.calls.push_back(std::move(*call));
    }
  };
  auto run = [](const Rank &rank) {
    for (const KernelCall &call : rank.calls)
      call.run(call);
  };
  auto bits = [](const Rank &rank) {
    std::vector<float> out;
    for (const Tensor *tensor : {&rank.y, &rank.dx, &rank.dw})
      out.insert(out.end(), tensor->data<float>(), tensor->data<float>() + tensor->type().elements());
    return out;
  };
  Rank alone;
  prepare(alone);
  run(alone);
  constexpr int kRanks = 4;
  const int64_t before = threadsOfThisProcess();
  Rank ranks[kRanks];
  std::vector<int64_t> during(kRanks);
  for (Rank &rank : ranks)
    prepare(rank);
  std::vector<std::thread> threads;
  for (int i = 0; i < kRanks; ++i)
    threads.emplace_back([&, i] {
      for (int repeat = 0; repeat < 20; ++repeat)
        run(ranks[i]);
      during[i] = threadsOfThisProcess();
    });
  for (std::thread &thread : threads)
    thread.join();
  for (int i = 0; i < kRanks; ++i) {
    EXPECT_TRUE(bits(ranks[i]) == bits(alone));
    EXPECT_LE(during[i], before + kRanks);
  }
}

TEST(Pool, IsAsInterpretedWithItsGradients) {
  Random random(72);
  for (const Window &window : windows())
    for (DType dtype : {DType::f32, DType::f64, DType::i8, DType::u8, DType::i64}) {
      SCOPED_TRACE(print(TensorType{dtype, window.x}));
      Tensor x = randomTensor(random, dtype, window.x, kContiguous, dtype == DType::u8 ? 0 : -3, 3);
      const Attributes pool = window.pool();
      Tensor dy = randomTensor(random, dtype, resultOf(OpKind::SumPool, {x.type()}, pool), kContiguous, 0, 3);
      const Tolerance tolerance = isFloat(dtype) ? Tolerance{1e-5, 1e-6} : kExact;
      expectAsInterpreted(OpKind::MaxPool, pool, {&x}, kExact);
      expectAsInterpreted(OpKind::MaxPoolIndex, pool, {&x}, kExact);
      expectAsInterpreted(OpKind::MaxPoolGrad, pool, {&x, &dy}, tolerance);
      expectAsInterpreted(OpKind::SumPool, pool, {&x}, tolerance);
      expectAsInterpreted(OpKind::SumPoolGrad, withShape(pool, window.x), {&dy}, tolerance);
    }
}

TEST(Pool, NanWinsAndTheFirstOfEquals) {
  const float nan = std::nanf("");
  Tensor x = tensorOf<float>(DType::f32, {1, 1, 6}, {1, 1, nan, 3, 3, 2});
  Attributes pool{
      {"strides", Ints{1}}, {"low", Ints{1}}, {"high", Ints{1}}, {"dilations", Ints{1}}, {"kernel", Ints{2}}};
  Tensor dy = randomTensor(*std::make_unique<Random>(3), DType::f32, {1, 1, 7});
  expectAsInterpreted(OpKind::MaxPool, pool, {&x}, kExact);
  expectAsInterpreted(OpKind::MaxPoolIndex, pool, {&x}, kExact);
  expectAsInterpreted(OpKind::MaxPoolGrad, pool, {&x, &dy}, kExact);
}

TEST(LastAxis, IsAsInterpreted) {
  Random random(73);
  for (DType dtype : {DType::f32, DType::f64, DType::i64, DType::i32, DType::u8})
    for (int64_t width : {1, 2, 7, 64})
      for (int64_t flag : {0, 1}) {
        Tensor x = randomTensor(random, dtype, {3, 2, width}, kContiguous, dtype == DType::u8 ? 0 : -2, 2);
        Tensor dy = randomTensor(random, dtype, {3, 2, width}, kContiguous, 0, 2);
        const Tolerance tolerance = isFloat(dtype) ? Tolerance{1e-5, 1e-5} : kExact;
        expectAsInterpreted(OpKind::ArgMax, {{"smallest", flag}, {"last", int64_t(width % 2)}}, {&x}, kExact);
        expectAsInterpreted(OpKind::TopK, {{"smallest", flag}, {"k", (width + 1) / 2}}, {&x}, kExact);
        for (int64_t reverse : {0, 1}) {
          Attributes attributes{{"exclusive", flag}, {"reverse", reverse}};
          expectAsInterpreted(OpKind::CumSum, attributes, {&x}, tolerance);
          expectAsInterpreted(OpKind::CumProd, attributes, {&x}, tolerance);
          expectAsInterpreted(OpKind::CumProdGrad, attributes, {&x, &dy}, {1e-4, 1e-5});
        }
      }
}

TEST(Scatter, IsAsInterpreted) {
  Random random(74);
  for (DType dtype : {DType::f32, DType::i64, DType::i32})
    for (DType index : {DType::i64, DType::i32})
      for (const char *reduction : {"none", "mul", "max", "min"}) {
        Tensor data = randomTensor(random, dtype, {5, 3}), updates = randomTensor(random, dtype, {9, 3});
        Tensor indices = randomTensor(random, index, {9}, kContiguous, -5, 4);
        expectAsInterpreted(OpKind::Scatter, {{"reduction", std::string(reduction)}},
                            {&data, &indices, &updates}, {1e-5, 1e-5});
      }
}

TEST(Dropout, IsAsInterpretedAndDropsItsShare) {
  Random random(75);
  Tensor counters = tensorOf<int64_t>(DType::i64, {3}, {42, 7, 3});
  for (double rate : {0.0, 0.1, 0.5}) {
    Attributes attributes{{"rate", rate}, {"id", int64_t(11)}};
    Tensor x = randomTensor(random, DType::f32, {100, 101}, kContiguous, 1, 2);
    expectAsInterpreted(OpKind::Dropout, attributes, {&x, &counters}, {0, 1e-6});
    std::vector<Tensor> y = runKernel(OpKind::Dropout, attributes, {&x, &counters}, {x.type()});
    int64_t dropped = 0;
    for (int64_t i = 0; i < 10100; ++i)
      dropped += y[0].data<float>()[i] == 0;
    EXPECT_NEAR(dropped, rate * 10100,
                4 * std::sqrt(10100 * rate * (1 - rate)) + 1e-9); // four standard deviations
    attributes.set("shape", Ints{100, 101});
    expectAsInterpreted(OpKind::KeepMask, attributes, {&counters}, kExact);
  }
}

TEST(Dropout, EveryCounterMatters) {
  Tensor x = tensorOf<float>(DType::f32, {64}, std::vector<float>(64, 1.0f));
  std::vector<std::vector<float>> seen;
  for (std::vector<int64_t> counters : std::vector<std::vector<int64_t>>{
           {1, 0, 0}, {2, 0, 0}, {int64_t(1) << 40, 0, 0}, {1, 1, 0}, {1, 0, 1}})
    for (int64_t id : {0, 1}) {
      Tensor random = tensorOf(DType::i64, {3}, counters);
      std::vector<Tensor> y =
          runKernel(OpKind::Dropout, {{"rate", 0.5}, {"id", id}}, {&x, &random}, {x.type()});
      std::vector<float> mask(y[0].data<float>(), y[0].data<float>() + 64);
      EXPECT_EQ(std::count(seen.begin(), seen.end(), mask), 0);
      seen.push_back(mask);
    }
}

} // namespace
} // namespace zerocc
