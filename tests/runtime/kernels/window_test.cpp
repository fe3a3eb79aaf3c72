// Convolution, pooling, index ops and dropout beside the plain interpreter.

#include "tests/runtime/kernels/kernel_case.h"

#include "compiler/ops/ops.h"

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
    expectAsInterpreted(OpKind::ConvWeightGrad, withShape(window.attributes(), window.w), {&x, &dy},
                        {1e-3, 1e-5});
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
