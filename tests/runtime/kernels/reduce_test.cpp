#include "tests/runtime/kernels/kernel_case.h"

#include <cmath>

namespace zerocc {
namespace {

// Columns are summed four rows at a time in f32, then in f64.
constexpr Tolerance kRounding = {3e-6, 1e-7};

std::vector<int64_t> randomAxes(Random &random, const Dims &dims, bool skipEmpty) {
  std::vector<int64_t> axes;
  for (size_t i = 0; i < dims.size(); ++i)
    if (random() % 2 && !(skipEmpty && dims[i] == 0))
      axes.push_back(static_cast<int64_t>(i));
  return axes;
}

TEST(Reduce, AnyAxesAndStrides) {
  forEachTarget([] {
    Random random(30);
    for (DType dtype : {DType::f32, DType::f64, DType::i64, DType::i32})
      for (int round = 0; round < 60; ++round) {
        Dims dims = randomDims(random, 5);
        Tensor x = randomTensor(random, dtype, dims, round % 2 ? kAnyhow : kContiguous);
        expectAsInterpreted(OpKind::ReduceSum, {{"axes", randomAxes(random, dims, false)}}, {&x}, kRounding);
        expectAsInterpreted(OpKind::ReduceMax, {{"axes", randomAxes(random, dims, true)}}, {&x}, kExact);
      }
  });
}

TEST(Reduce, TheGradientOfABiasSumsRows) {
  Random random(31);
  for (int64_t columns : {1, 15, 512, 513, 1100}) {
    Tensor x = randomTensor(random, DType::f32, {67, columns});
    expectAsInterpreted(OpKind::ReduceSum, {{"axes", std::vector<int64_t>{0}}}, {&x}, kRounding);
  }
}

TEST(Reduce, MaxKeepsNan) {
  std::vector<float> values(40, 1.0f);
  values[23] = std::nanf("");
  Tensor x = tensorOf(DType::f32, {2, 20}, values);
  for (int64_t axis : {0, 1})
    expectAsInterpreted(OpKind::ReduceMax, {{"axes", std::vector<int64_t>{axis}}}, {&x}, kExact);
}

TEST(Reduce, IntegerSumsWrap) {
  Tensor x = tensorOf<int32_t>(DType::i32, {3}, {INT32_MAX, 2, 5});
  expectAsInterpreted(OpKind::ReduceSum, {{"axes", std::vector<int64_t>{0}}}, {&x}, kExact);
}

} // namespace
} // namespace zerocc
