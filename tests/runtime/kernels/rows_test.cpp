#include "tests/runtime/kernels/kernel_case.h"

#include <cmath>

namespace zerocc {
namespace {

constexpr int64_t kWidths[] = {1, 2, 7, 16, 17, 64, 100, 511, 512, 513, 1100};

/// [2, 5, width] with rows possibly further apart than they are long.
Tensor randomRows(Random &random, int64_t width, double low = -3, double high = 3) {
  int64_t gap = random() % 2 ? 3 : 0;
  Tensor out = randomTensor(random, DType::f32, {2, 5, width + gap}, kContiguous, low, high);
  out.view.dims[2] = width;
  return out;
}

TEST(Softmax, IsAsInterpreted) {
  forEachTarget([] {
    Random random(50);
    for (int64_t width : kWidths) {
      Tensor x = randomRows(random, width, -20, 20), y = randomRows(random, width, -6, 0),
             dy = randomRows(random, width);
      expectAsInterpreted(OpKind::Softmax, {}, {&x}, {1e-30, 4e-6}); // x - max is rounded: 40 * 6e-8
      expectAsInterpreted(OpKind::LogSoftmax, {}, {&x}, {1e-5, 1e-6});
      expectAsInterpreted(OpKind::SoftmaxGrad, {}, {&y, &dy}, {1e-4, 1e-6});
      expectAsInterpreted(OpKind::LogSoftmaxGrad, {}, {&y, &dy}, {1e-4, 1e-6});
    }
  });
}

TEST(Softmax, RowsOfMinusInfinity) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  std::vector<float> values = {-kInf, -kInf, -kInf, 1, -kInf, 2, -kInf, std::nanf(""), -kInf, kInf, 0, 1};
  Tensor x = tensorOf(DType::f32, {4, 3}, values);
  for (int64_t safe : {0, 1})
    expectAsInterpreted(OpKind::Softmax, {{"safe", safe}}, {&x}, {1e-30, 1e-6});
}

TEST(LayerNorm, IsAsInterpreted) {
  forEachTarget([] {
    Random random(51);
    for (int64_t width : kWidths) {
      Attributes attributes = {{"eps", 1e-3}};
      Tensor x = randomRows(random, width), dy = randomRows(random, width);
      Tensor scale = randomTensor(random, DType::f32, {width}),
             bias = randomTensor(random, DType::f32, {width});
      expectAsInterpreted(OpKind::LayerNorm, attributes, {&x, &scale, &bias},
                          {2e-5, 2e-6}); // mean * rstd * 6e-8
      expectAsInterpreted(OpKind::LayerNorm, attributes, {&x, &scale}, {2e-5, 2e-6});
      Tensor mean = randomTensor(random, DType::f32, {2, 5}, kContiguous, -0.5, 0.5);
      Tensor rstd = randomTensor(random, DType::f32, {2, 5}, kContiguous, 0.5, 2);
      expectAsInterpreted(OpKind::LayerNormGrad, {}, {&x, &scale, &mean, &rstd, &dy}, {2e-5, 2e-6});
      expectAsInterpreted(OpKind::LayerNormParameterGrad, {}, {&x, &mean, &rstd, &dy}, {2e-5, 2e-6});
    }
  });
}

TEST(LayerNorm, KeepsItsPrecisionFarFromZero) {
  Random random(52);
  Tensor x = randomTensor(random, DType::f32, {3, 300}, kContiguous, 999, 1001);
  Tensor scale = tensorOf(DType::f32, {300}, std::vector<float>(300, 1.0f));
  expectAsInterpreted(OpKind::LayerNorm, {}, {&x, &scale},
                      {1e-3, 0}); // the mean is rounded to f32: 6e-5 / 0.58
}

Tensor labelsOf(std::vector<int64_t> labels) {
  auto n = static_cast<int64_t>(labels.size());
  return tensorOf(DType::i64, {n}, labels);
}

TEST(CrossEntropy, IsAsInterpreted) {
  forEachTarget([] {
    Random random(53);
    for (int64_t width : kWidths)
      for (double smoothing : {0.0, 0.1}) {
        Tensor x = randomTensor(random, DType::f32, {6, width}, kContiguous, -10, 10);
        std::vector<int64_t> labels = {0, -7, width - 1, width / 2, -7, 0};
        Tensor label = labelsOf(labels), lse = randomTensor(random, DType::f32, {6}, kContiguous, 5, 10);
        Tensor seed = tensorOf<float>(DType::f32, {}, {0.25f});
        Attributes attributes = {{"ignore_index", int64_t(-7)}, {"label_smoothing", smoothing}};
        expectAsInterpreted(OpKind::CrossEntropy, attributes, {&x, &label}, {1e-6, 1e-6});
        expectAsInterpreted(OpKind::CrossEntropyGrad, attributes, {&x, &label, &lse, &seed}, {1e-7, 2e-6});
        Tensor narrow = poisoned(DType::i32, {6});
        std::copy(labels.begin(), labels.end(), narrow.data<int32_t>());
        expectAsInterpreted(OpKind::CrossEntropy, attributes, {&x, &narrow}, {1e-6, 1e-6});
      }
  });
}

TEST(CrossEntropy, ALabelOutsideMakesTheLossNan) {
  Random random(54);
  Tensor x = randomTensor(random, DType::f32, {2, 5}), label = labelsOf({1, 5});
  std::vector<Tensor> y = runKernel(OpKind::CrossEntropy, {}, {&x, &label},
                                    {{DType::f64, {}}, {DType::f64, {}}, {DType::f32, {2}}});
  EXPECT_TRUE(std::isnan(*y[0].data<double>()));
}

} // namespace
} // namespace zerocc
