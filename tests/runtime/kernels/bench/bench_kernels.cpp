// Kernels against plain loops, in turns in the same run. `ratio` is the best plain time over the best kernel
// time.
//
//   ninja bench_kernels && bin/bench_kernels

#include "runtime/kernels/kernel.h"
#include "runtime/plan/scalars.h"
#include "tests/runtime/kernels/bench/baseline.h"

#include <benchmark/benchmark.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>

namespace zerocc {
namespace {

struct Array {
  std::vector<char> bytes;
  TensorView view;
  float *floats() { return static_cast<float *>(view.data); }
};

Array array(DType dtype, std::vector<int64_t> dims) {
  Array out;
  out.view.dtype = dtype;
  out.view.rank = static_cast<int>(dims.size());
  int64_t n = 1;
  for (int i = out.view.rank - 1; i >= 0; --i) {
    out.view.dims[i] = dims[i];
    out.view.strides[i] = n;
    n *= dims[i];
  }
  out.bytes.resize(static_cast<size_t>(n * byteSize(dtype)));
  out.view.data = out.bytes.data();
  std::mt19937 random(1);
  std::uniform_real_distribution<float> draw(-2, 2);
  if (dtype == DType::f32)
    for (int64_t i = 0; i < n; ++i)
      out.floats()[i] = draw(random);
  return out;
}

KernelCall prepared(OpKind op, Attributes attributes, std::vector<TensorView> inputs,
                    std::vector<TensorView> results, const BucketLayout *bucket = nullptr) {
  KernelCall call;
  call.op = op;
  call.attributes = std::move(attributes);
  call.inputs = std::move(inputs);
  call.results = std::move(results);
  call.bucket = bucket;
  static std::vector<double> workspace(1 << 21); // 16 MiB, more than compile plans for any of these
  call.workspace = workspace.data();
  call.workspaceBytes = static_cast<int64_t>(workspace.size() * sizeof(double));
  if (Status status = cpuKernel(op).prepare(call); !status) {
    std::fputs(status.error().text().c_str(), stderr);
    std::exit(1);
  }
  return call;
}

double secondsOf(const std::function<void()> &work) {
  auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// `amount` of `unit` per call, e.g. 2 m n k and "GFLOP/s" or bytes touched and "GB/s".
void compare(benchmark::State &state, const KernelCall &call, const std::function<void()> &plain,
             double amount, const char *unit) {
  double best = 1e9, bestPlain = 1e9;
  call.run(call);
  for (auto _ : state) {
    double seconds = secondsOf([&] { call.run(call); });
    state.SetIterationTime(seconds);
    best = std::min(best, seconds);
    if (plain)
      bestPlain = std::min(bestPlain, secondsOf(plain));
  }
  state.counters["best_us"] = best * 1e6;
  state.counters[unit] = amount / best * 1e-9;
  if (plain) {
    state.counters["plain_us"] = bestPlain * 1e6;
    state.counters["ratio"] = bestPlain / best;
  }
}

/// batch, m, n, k, b transposed
void matmul(benchmark::State &state) {
  int64_t batch = state.range(0), m = state.range(1), n = state.range(2), k = state.range(3);
  bool transposed = state.range(4);
  Array a = array(DType::f32, {batch, m, k}), c = array(DType::f32, {batch, m, n});
  Array b = transposed ? array(DType::f32, {batch, n, k}) : array(DType::f32, {batch, k, n});
  KernelCall call = prepared(OpKind::MatMul, {{"trans_b", int64_t(transposed)}}, {a.view, b.view}, {c.view});
  auto plain = [&] {
    for (int64_t i = 0; i < batch; ++i)
      (transposed ? baseline::matmulTransposed : baseline::matmul)(
          m, n, k, a.floats() + i * m * k, b.floats() + i * k * n, c.floats() + i * m * n);
  };
  compare(state, call, plain, 2.0 * static_cast<double>(batch * m * n * k), "GFLOP/s");
}
BENCHMARK(matmul)
    ->UseManualTime()
    ->MinTime(0.2)
    ->ArgNames({"batch", "m", "n", "k", "tb"})
    ->Args({1, 256, 2304, 768, 0}) // GPT-2 block, 256 tokens: qkv, projection, mlp up, mlp down
    ->Args({1, 256, 768, 768, 0})
    ->Args({1, 256, 3072, 768, 0})
    ->Args({1, 256, 768, 3072, 0})
    ->Args({12, 128, 128, 64, 1}) // attention: q k^T, p v
    ->Args({12, 128, 64, 128, 0})
    ->Args({48, 32, 32, 16, 1})
    ->Args({48, 32, 16, 32, 0});

void softmax(benchmark::State &state) {
  int64_t rows = state.range(0), width = state.range(1);
  Array x = array(DType::f32, {rows, width}), y = array(DType::f32, {rows, width});
  compare(
      state, prepared(OpKind::Softmax, {}, {x.view}, {y.view}),
      [&] { baseline::softmax(rows, width, x.floats(), y.floats()); },
      8.0 * static_cast<double>(rows * width), "GB/s");
}
BENCHMARK(softmax)->UseManualTime()->MinTime(0.1)->Args({1536, 32})->Args({1536, 128})->Args({256, 1024});

void layerNorm(benchmark::State &state) {
  int64_t rows = state.range(0), width = state.range(1);
  Array x = array(DType::f32, {rows, width}), y = array(DType::f32, {rows, width});
  Array scale = array(DType::f32, {width}), bias = array(DType::f32, {width}),
        mean = array(DType::f32, {rows}), rstd = array(DType::f32, {rows});
  compare(
      state, prepared(OpKind::LayerNorm, {}, {x.view, scale.view, bias.view}, {y.view, mean.view, rstd.view}),
      [&] { baseline::layerNorm(rows, width, x.floats(), scale.floats(), bias.floats(), y.floats()); },
      8.0 * static_cast<double>(rows * width), "GB/s");
}
BENCHMARK(layerNorm)->UseManualTime()->MinTime(0.1)->Args({1024, 128})->Args({256, 768});

void layerNormGrad(benchmark::State &state) {
  int64_t rows = state.range(0), width = state.range(1);
  Array x = array(DType::f32, {rows, width}), dy = array(DType::f32, {rows, width}),
        dx = array(DType::f32, {rows, width});
  Array scale = array(DType::f32, {width}), mean = array(DType::f32, {rows}),
        rstd = array(DType::f32, {rows});
  compare(state,
          prepared(OpKind::LayerNormGrad, {}, {x.view, scale.view, mean.view, rstd.view, dy.view}, {dx.view}),
          {}, 12.0 * static_cast<double>(rows * width), "GB/s");
}
BENCHMARK(layerNormGrad)->UseManualTime()->MinTime(0.1)->Args({1024, 128})->Args({256, 768});

void layerNormParameterGrad(benchmark::State &state) {
  int64_t rows = state.range(0), width = state.range(1);
  Array x = array(DType::f32, {rows, width}), dy = array(DType::f32, {rows, width});
  Array mean = array(DType::f32, {rows}), rstd = array(DType::f32, {rows}),
        dscale = array(DType::f32, {width}), dbias = array(DType::f32, {width});
  compare(state,
          prepared(OpKind::LayerNormParameterGrad, {}, {x.view, mean.view, rstd.view, dy.view},
                   {dscale.view, dbias.view}),
          {}, 8.0 * static_cast<double>(rows * width), "GB/s");
}
BENCHMARK(layerNormParameterGrad)->UseManualTime()->MinTime(0.1)->Args({1024, 128})->Args({256, 768});

void geluTanh(benchmark::State &state) {
  int64_t n = state.range(0);
  Array x = array(DType::f32, {n}), y = array(DType::f32, {n});
  compare(
      state, prepared(OpKind::Gelu, {{"approximate", std::string("tanh")}}, {x.view}, {y.view}),
      [&] { baseline::gelu(n, x.floats(), y.floats()); }, 8.0 * static_cast<double>(n), "GB/s");
}
BENCHMARK(geluTanh)->UseManualTime()->MinTime(0.1)->Arg(256 * 3072);

void biasAdd(benchmark::State &state) {
  int64_t rows = state.range(0), width = state.range(1);
  Array x = array(DType::f32, {rows, width}), y = array(DType::f32, {rows, width}),
        bias = array(DType::f32, {width});
  TensorView spread = x.view;
  spread.data = bias.view.data;
  spread.strides[0] = 0;
  compare(
      state, prepared(OpKind::Add, {}, {x.view, spread}, {y.view}),
      [&] { baseline::biasAdd(rows, width, x.floats(), bias.floats(), y.floats()); },
      8.0 * static_cast<double>(rows * width), "GB/s");
}
BENCHMARK(biasAdd)->UseManualTime()->MinTime(0.1)->Args({256, 3072})->Args({4096, 32})->Args({32768, 4});

void biasGradient(benchmark::State &state) {
  int64_t rows = state.range(0), width = state.range(1);
  Array x = array(DType::f32, {rows, width}), y = array(DType::f32, {width});
  compare(
      state, prepared(OpKind::ReduceSum, {{"axes", std::vector<int64_t>{0}}}, {x.view}, {y.view}),
      [&] { baseline::sumRows(rows, width, x.floats(), y.floats()); },
      4.0 * static_cast<double>(rows * width), "GB/s");
}
BENCHMARK(biasGradient)->UseManualTime()->MinTime(0.1)->Args({1024, 128})->Args({256, 3072});

void transpose(benchmark::State &state) {
  int64_t rows = state.range(0), columns = state.range(1);
  Array x = array(DType::f32, {rows, columns}), y = array(DType::f32, {columns, rows});
  TensorView turned = x.view;
  std::swap(turned.dims[0], turned.dims[1]);
  std::swap(turned.strides[0], turned.strides[1]);
  compare(
      state, prepared(OpKind::Copy, {}, {turned}, {y.view}),
      [&] { baseline::transpose(rows, columns, x.floats(), y.floats()); },
      8.0 * static_cast<double>(rows * columns), "GB/s");
}
BENCHMARK(transpose)->UseManualTime()->MinTime(0.1)->Args({128, 64})->Args({768, 768})->Args({768, 3072});

/// [batch, tokens, heads, width] -> [batch, heads, tokens, width]
void splitHeads(benchmark::State &state) {
  int64_t batch = 8, tokens = state.range(0), heads = state.range(1), width = state.range(2);
  Array x = array(DType::f32, {batch, tokens, heads, width}),
        y = array(DType::f32, {batch, heads, tokens, width});
  TensorView turned = x.view;
  std::swap(turned.dims[1], turned.dims[2]);
  std::swap(turned.strides[1], turned.strides[2]);
  compare(state, prepared(OpKind::Copy, {}, {turned}, {y.view}), {},
          8.0 * static_cast<double>(batch * tokens * heads * width), "GB/s");
}
BENCHMARK(splitHeads)->UseManualTime()->MinTime(0.1)->Args({128, 12, 64})->Args({64, 4, 16});

void crossEntropy(benchmark::State &state) {
  int64_t rows = state.range(0), width = state.range(1);
  Array x = array(DType::f32, {rows, width}), labels = array(DType::i64, {rows}),
        loss = array(DType::f64, {}), count = array(DType::f64, {}), lse = array(DType::f32, {rows});
  compare(
      state, prepared(OpKind::CrossEntropy, {}, {x.view, labels.view}, {loss.view, count.view, lse.view}),
      [&] {
        benchmark::DoNotOptimize(
            baseline::crossEntropy(rows, width, x.floats(), static_cast<const int64_t *>(labels.view.data)));
      },
      4.0 * static_cast<double>(rows * width), "GB/s");
}
BENCHMARK(crossEntropy)->UseManualTime()->MinTime(0.1)->Args({1024, 256})->Args({16, 50257});

using Ints = std::vector<int64_t>;

/// n, c, h = w, o, k, stride, groups
baseline::ConvSizes sizesOf(const benchmark::State &state) {
  return {state.range(0), state.range(1), state.range(2), state.range(2),
          state.range(3), state.range(4), state.range(5), state.range(6)};
}

void convOp(benchmark::State &state, OpKind op) {
  const baseline::ConvSizes s = sizesOf(state);
  const int64_t pad = (s.k - 1) / 2;
  Array x = array(DType::f32, {s.n, s.c, s.h, s.w}), w = array(DType::f32, {s.o, s.c / s.groups, s.k, s.k}),
        y = array(DType::f32, {s.n, s.o, s.y(s.h), s.y(s.w)});
  Attributes attributes{{"strides", Ints{s.stride, s.stride}},
                        {"low", Ints{pad, pad}},
                        {"high", Ints{pad, pad}},
                        {"dilations", Ints{1, 1}},
                        {"groups", s.groups}};
  const double flops =
      2.0 * static_cast<double>(s.n * s.o * s.y(s.h) * s.y(s.w) * (s.c / s.groups) * s.k * s.k);
  const bool isForward = op == OpKind::Conv, isData = op == OpKind::ConvDataGrad;
  const TensorView &result = (isForward ? y : isData ? x : w).view;
  if (!isForward)
    attributes.set("shape", Ints(result.dims, result.dims + 4));
  KernelCall call =
      prepared(op, attributes, {(isData ? y : x).view, (isForward || isData ? w : y).view}, {result});
  compare(
      state, call,
      [&] {
        (isForward ? baseline::conv
         : isData  ? baseline::convDataGrad
                   : baseline::convWeightGrad)(s, (isData ? y : x).floats(),
                                              (isForward || isData ? w : y).floats(),
                                              (isForward ? y
                                               : isData  ? x
                                                         : w)
                                                  .floats());
      },
      flops, "GFLOP/s");
}
void conv(benchmark::State &state) { convOp(state, OpKind::Conv); }
void convDataGrad(benchmark::State &state) { convOp(state, OpKind::ConvDataGrad); }
void convWeightGrad(benchmark::State &state) { convOp(state, OpKind::ConvWeightGrad); }

void convSizes(benchmark::internal::Benchmark *b) {
  b->UseManualTime()->MinTime(0.1)->ArgNames({"n", "c", "hw", "o", "k", "stride", "groups"});
  b->Args({2, 3, 224, 64, 7, 2, 1}) // ResNet-50: the first, 3 x 3 and 1 x 1
      ->Args({2, 64, 56, 64, 3, 1, 1})
      ->Args({8, 256, 14, 256, 3, 1, 1})
      ->Args({2, 256, 56, 64, 1, 1, 1})
      ->Args({2, 96, 56, 96, 3, 1, 96})  // MobileNet
      ->Args({2, 112, 28, 112, 1, 1, 4}) // ShuffleNet
      ->Args({32, 16, 8, 32, 3, 1, 1});
}
BENCHMARK(conv)->Apply(convSizes);
BENCHMARK(convDataGrad)->Apply(convSizes);
BENCHMARK(convWeightGrad)->Apply(convSizes);

void poolOp(benchmark::State &state, OpKind op) {
  const baseline::ConvSizes s = sizesOf(state);
  const int64_t pad = (s.k - 1) / 2;
  Array x = array(DType::f32, {s.n, s.c, s.h, s.w}), y = array(DType::f32, {s.n, s.c, s.y(s.h), s.y(s.w)}),
        dx = array(DType::f32, {s.n, s.c, s.h, s.w});
  Attributes attributes{{"strides", Ints{s.stride, s.stride}},
                        {"low", Ints{pad, pad}},
                        {"high", Ints{pad, pad}},
                        {"dilations", Ints{1, 1}},
                        {"kernel", Ints{s.k, s.k}}};
  std::function<void()> plain;
  if (op == OpKind::MaxPool || op == OpKind::SumPool)
    plain = [&] {
      (op == OpKind::MaxPool ? baseline::maxPool : baseline::sumPool)(s, x.floats(), y.floats());
    };
  KernelCall call = plain                       ? prepared(op, attributes, {x.view}, {y.view})
                    : op == OpKind::MaxPoolGrad ? prepared(op, attributes, {x.view, y.view}, {dx.view})
                                                : prepared(op, attributes, {y.view}, {dx.view});
  compare(state, call, plain, 4.0 * static_cast<double>(x.bytes.size() / 4 + y.bytes.size() / 4), "GB/s");
}
void maxPool(benchmark::State &state) { poolOp(state, OpKind::MaxPool); }
void maxPoolGrad(benchmark::State &state) { poolOp(state, OpKind::MaxPoolGrad); }
void sumPool(benchmark::State &state) { poolOp(state, OpKind::SumPool); }
void sumPoolGrad(benchmark::State &state) { poolOp(state, OpKind::SumPoolGrad); }
void poolSizes(benchmark::internal::Benchmark *b) {
  b->UseManualTime()->MinTime(0.1)->ArgNames({"n", "c", "hw", "o", "k", "stride", "groups"});
  b->Args({2, 64, 112, 64, 3, 2, 1})->Args({2, 64, 56, 64, 2, 2, 1})->Args({2, 192, 28, 192, 3, 1, 1});
}
BENCHMARK(maxPool)->Apply(poolSizes);
BENCHMARK(maxPoolGrad)->Apply(poolSizes);
BENCHMARK(sumPool)->Apply(poolSizes);
BENCHMARK(sumPoolGrad)->Apply(poolSizes);

void adamw(benchmark::State &state) {
  int64_t n = state.range(0);
  Array p = array(DType::f32, {n}), g = array(DType::f32, {n}), m = array(DType::f32, {n}),
        v = array(DType::f32, {n}), scalars = array(DType::f64, {kScalars});
  for (int64_t i = 0; i < n; ++i)
    v.floats()[i] *= v.floats()[i];
  auto *s = static_cast<double *>(scalars.view.data);
  s[kScalarLr] = 1e-3;
  s[kScalarBeta1] = 0.9;
  s[kScalarBeta2] = 0.95;
  s[kScalarEps] = 1e-8;
  s[kScalarFactor] = s[kScalarGroups + 1] = 1;
  s[kScalarCorrection1] = s[kScalarCorrection2] = 0.5;
  BucketLayout bucket;
  bucket.paddedElements = n;
  bucket.ranges = {{0, n, 0, 0}};
  compare(
      state,
      prepared(OpKind::AdamW, {}, {p.view, g.view, m.view, v.view, scalars.view}, {p.view, m.view, v.view},
               &bucket),
      [&] { baseline::adamw(n, p.floats(), g.floats(), m.floats(), v.floats()); },
      28.0 * static_cast<double>(n), "GB/s");
}
BENCHMARK(adamw)->UseManualTime()->MinTime(0.1)->Arg(1 << 16)->Arg(1 << 22);

void normPartial(benchmark::State &state) {
  int64_t n = state.range(0);
  Array g = array(DType::f32, {n}), y = array(DType::f64, {2});
  BucketLayout bucket;
  bucket.paddedElements = n;
  bucket.ranges = {{0, n, 0, 0}};
  compare(state, prepared(OpKind::NormPartial, {}, {g.view}, {y.view}, &bucket), {},
          4.0 * static_cast<double>(n), "GB/s");
}
BENCHMARK(normPartial)->UseManualTime()->MinTime(0.1)->Arg(1 << 16)->Arg(1 << 22);

} // namespace
} // namespace zerocc

BENCHMARK_MAIN();
