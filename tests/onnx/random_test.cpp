// Random ops: right distributions, and numbers that hang on seed, step, micro-batch and node alone.

#include "tests/onnx/build_model.h"
#include "tests/onnx/evaluate.h"

#include <algorithm>
#include <cmath>

namespace zerocc {
namespace {

constexpr int64_t kDraws = 20000;

struct Moments {
  double mean = 0, variance = 0, fourth = 0, least = 0, greatest = 0;

  explicit Moments(const std::vector<double> &values) {
    const auto count = static_cast<double>(values.size());
    for (double v : values)
      mean += v / count;
    for (double v : values) {
      variance += (v - mean) * (v - mean) / count;
      fourth += std::pow(v - mean, 4) / count;
    }
    auto [low, high] = std::minmax_element(values.begin(), values.end());
    least = *low;
    greatest = *high;
  }
};

std::vector<HostTensor> draw(const std::string &body, std::vector<int64_t> random) {
  ScratchFolder folder;
  auto module = importOnnx(folder.write(modelFromText(body, 22)), {});
  if (!module) {
    ADD_FAILURE() << module.error().text();
    return {};
  }
  auto values =
      evaluateModel(**module, nullptr, {{"random", HostTensor::integer({DType::i64, {3}}, random)}});
  if (!values) {
    ADD_FAILURE() << values.error().text();
    return {};
  }
  return *values;
}

TEST(OnnxRandom, HasTheDistributionsAskedFor) {
  std::vector<HostTensor> y = draw("g () => (float[20000] u, float[20000] z, float[20000] b) {\n"
                                   "u = RandomUniform <shape = [20000], low = -1.0, high = 3.0> ()\n"
                                   "z = RandomNormal <shape = [20000], mean = 2.0, scale = 0.5> ()\n"
                                   "s = Constant <value_ints = [20000]> ()\n"
                                   "n = ConstantOfShape <value = float[1] {0.3}> (s)\n"
                                   "b = Bernoulli (n)\n}",
                                   {42, 3, 5});
  ASSERT_EQ(y.size(), 3u);
  // Five standard errors of each estimate.
  const double error = 5 / std::sqrt(static_cast<double>(kDraws));
  Moments u(y[0].reals), z(y[1].reals), b(y[2].reals);
  EXPECT_NEAR(u.mean, 1, error * std::sqrt(16.0 / 12));
  EXPECT_NEAR(u.variance, 16.0 / 12, error * 2);
  EXPECT_GE(u.least, -1);
  EXPECT_LT(u.greatest, 3);
  EXPECT_LT(u.least, -0.99);
  EXPECT_GT(u.greatest, 2.99);
  EXPECT_NEAR(z.mean, 2, error * 0.5);
  EXPECT_NEAR(z.variance, 0.25, error * 0.25 * std::sqrt(2.0));
  EXPECT_NEAR(z.fourth / (z.variance * z.variance), 3, error * std::sqrt(96.0));
  EXPECT_NEAR(b.mean, 0.3, error * 0.46);
  for (double v : y[2].reals)
    EXPECT_TRUE(v == 0 || v == 1);
}

TEST(OnnxRandom, HangsOnSeedStepMicroBatchAndNodeAlone) {
  const std::string body = "g () => (float[64] a, float[64] b) {\n"
                           "a = RandomNormal <shape = [64]> ()\nb = RandomNormal <shape = [64]> ()\n}";
  const std::vector<HostTensor> first = draw(body, {1, 2, 3});
  ASSERT_EQ(first.size(), 2u);
  EXPECT_NE(first[0].reals, first[1].reals);
  EXPECT_EQ(first[0].reals, draw(body, {1, 2, 3})[0].reals);
  for (std::vector<int64_t> other : {std::vector<int64_t>{2, 2, 3}, {1, 3, 3}, {1, 2, 4}})
    EXPECT_NE(first[0].reals, draw(body, other)[0].reals);
}

} // namespace
} // namespace zerocc
