#include "runtime/collectives/half.h"
#include "tests/runtime/kernels/kernel_case.h"

#include <cmath>
#include <thread>

namespace zerocc {
namespace {

/// A matrix operand of dims batch + [rows, columns], stored transposed when `transposed` (the view shows it
/// as is).
Tensor matrix(Random &random, Dims batch, int64_t rows, int64_t columns, bool transposed, bool shared) {
  Dims dims = batch;
  dims.push_back(transposed ? columns : rows);
  dims.push_back(transposed ? rows : columns);
  Tensor out = randomTensor(random, DType::f32, dims, kContiguous, -1, 1);
  if (transposed) {
    std::swap(out.view.dims[out.view.rank - 1], out.view.dims[out.view.rank - 2]);
    std::swap(out.view.strides[out.view.rank - 1], out.view.strides[out.view.rank - 2]);
  }
  if (shared)
    for (size_t i = 0; i < batch.size(); ++i)
      out.view.strides[i] = 0;
  return out;
}

void expectProduct(Random &random, Dims batch, int64_t m, int64_t n, int64_t k) {
  bool transA = random() % 2, transB = random() % 2;
  Tensor a = matrix(random, batch, transA ? k : m, transA ? m : k, random() % 2, random() % 4 == 0);
  Tensor b = matrix(random, batch, transB ? n : k, transB ? k : n, random() % 2, random() % 2);
  SCOPED_TRACE(testing::Message() << "m " << m << " n " << n << " k " << k << " trans " << transA << transB);
  double depth = static_cast<double>(k);
  expectAsInterpreted(OpKind::MatMul, {{"trans_a", int64_t(transA)}, {"trans_b", int64_t(transB)}}, {&a, &b},
                      {1e-7 * depth + 1e-30, 1e-6});
}

TEST(MatMul, SmallAndLargeInEveryArrangement) {
  forEachTarget([] {
    Random random(40);
    constexpr int64_t sizes[] = {0, 1, 2, 3, 7, 16, 17, 32, 48, 70, 130};
    for (int round = 0; round < 150; ++round) {
      auto draw = [&] { return sizes[random() % std::size(sizes)]; };
      Dims batch;
      for (uint64_t i = random() % 3; i > 0; --i)
        batch.push_back(1 + static_cast<int64_t>(random() % 3));
      expectProduct(random, batch, draw(), draw(), draw());
    }
  });
}

/// A product of 16-bit operands, in every arrangement, is that of the same values in f32, rounded once. Values are small
/// integers, so that every order of summation gives the exact sum and bits must agree.
void expectF32RoundedOnce(DType dtype, uint16_t (*rounded)(float)) {
  Random random(43);
  constexpr int64_t sizes[] = {1, 2, 7, 33, 130, 300};
  for (int round = 0; round < 60; ++round) {
    auto draw = [&] { return sizes[random() % std::size(sizes)]; };
    Dims batch;
    if (random() % 2)
      batch.push_back(1 + static_cast<int64_t>(random() % 3));
    const int64_t m = draw(), n = draw(), k = draw();
    const bool transA = random() % 2, transB = random() % 2;
    Tensor wideA = matrix(random, batch, transA ? k : m, transA ? m : k, random() % 2, random() % 4 == 0);
    Tensor wideB = matrix(random, batch, transB ? n : k, transB ? k : n, random() % 2, random() % 2);
    auto narrowed = [&](Tensor &wide) {
      Tensor narrow;
      narrow.storage.resize(wide.storage.size() / 2);
      auto *from = wide.data<float>();
      auto *to = reinterpret_cast<uint16_t *>(narrow.storage.data());
      for (size_t i = 0; i < wide.storage.size() / 4; ++i) {
        from[i] = std::round(from[i] * 9);
        to[i] = rounded(from[i]);
      }
      narrow.view = wide.view;
      narrow.view.dtype = dtype;
      narrow.view.data = narrow.storage.data();
      return narrow;
    };
    Tensor a = narrowed(wideA), b = narrowed(wideB);
    SCOPED_TRACE(testing::Message() << "m " << m << " n " << n << " k " << k << " trans " << transA << transB);
    Attributes attributes{{"trans_a", int64_t(transA)}, {"trans_b", int64_t(transB)}};
    Dims dims = batch;
    dims.append({m, n});
    Tensor wide = std::move(runKernel(OpKind::MatMul, attributes, {&wideA, &wideB}, {{DType::f32, dims}})[0]);
    Tensor narrow = std::move(runKernel(OpKind::MatMul, attributes, {&a, &b}, {{dtype, dims}})[0]);
    const auto *expected = wide.data<float>();
    const auto *got = narrow.data<uint16_t>();
    for (int64_t i = 0; i < narrow.view.elements(); ++i)
      ASSERT_EQ(got[i], rounded(expected[i])) << i << ": " << expected[i];
  }
}

TEST(MatMul, Bf16IsF32RoundedOnce) { expectF32RoundedOnce(DType::bf16, toBf16); }
TEST(MatMul, F16IsF32RoundedOnce) { expectF32RoundedOnce(DType::f16, toF16); }

TEST(MatMul, DeepAndFlatProducts) {
  Random random(41);
  expectProduct(random, {}, 3, 5, 1000);
  expectProduct(random, {}, 1, 700, 300);
  expectProduct(random, {}, 700, 1, 300);
  expectProduct(random, {}, 300, 300, 1);
  expectProduct(random, {12}, 32, 32, 16);
  expectProduct(random, {2, 3}, 65, 33, 257);
}

TEST(MatMul, ABatchThatSharesTheRightOperandIsOneProduct) {
  Random random(42);
  for (int64_t m : {1, 5, 32}) {
    Tensor a = matrix(random, {6}, m, 48, false, false), b = matrix(random, {6}, 48, 64, false, true);
    expectAsInterpreted(OpKind::MatMul, {}, {&a, &b}, {1e-5, 1e-6});
    // the same, with rows further apart than they are long
    Tensor wide = matrix(random, {6}, m, 96, false, false);
    wide.view.dims[2] = 48;
    expectAsInterpreted(OpKind::MatMul, {}, {&wide, &b}, {1e-5, 1e-6});
  }
}

TEST(MatMul, NothingToSumIsZero) {
  Random random(43);
  Tensor a = matrix(random, {2}, 3, 0, false, false), b = matrix(random, {2}, 0, 4, false, false);
  expectAsInterpreted(OpKind::MatMul, {}, {&a, &b}, kExact);
}

TEST(MatMul, RanksAtOnceGiveTheBitsOfOne) {
  Random random(44);
  for (int64_t size : {8, 64, 300}) { // narrow, small, library
    Tensor a = matrix(random, {}, size, size, false, false), b = matrix(random, {}, size, size, true, false);
    auto product = [&] {
      return std::move(runKernel(OpKind::MatMul, {}, {&a, &b}, {{DType::f32, {size, size}}})[0].storage);
    };
    std::vector<char> alone = product();
    std::vector<std::vector<char>> together(4);
    std::vector<std::thread> ranks;
    for (std::vector<char> &result : together)
      ranks.emplace_back([&] { result = product(); });
    for (std::thread &rank : ranks)
      rank.join();
    for (const std::vector<char> &result : together)
      EXPECT_EQ(result, alone) << size;
  }
}

} // namespace
} // namespace zerocc
