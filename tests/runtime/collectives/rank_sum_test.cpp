#include "runtime/collectives/rank_sum.h"

#include "runtime/collectives/half.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace zerocc {
namespace {

TEST(RankSum, AddsInRankOrder) {
  // 1e8 + 1 is 1e8 in f32: only this order gives 1.
  const float a = 1e8f, b = -1e8f, c = 1.0f;
  const void *forward[] = {&a, &b, &c}, *other[] = {&a, &c, &b};
  float sum = 0;
  sumInRankOrder(&sum, forward, 3, 1, DType::f32);
  EXPECT_EQ(sum, 1.0f);
  sumInRankOrder(&sum, other, 3, 1, DType::f32);
  EXPECT_EQ(sum, 0.0f);
}

TEST(RankSum, RoundsOnceToTheWireDType) {
  // In bf16 each step would round 256 + 1 back to 256.
  const uint16_t large = toBf16(256), one = toBf16(1);
  const void *from[] = {&large, &one, &one};
  uint16_t sum = 0;
  sumInRankOrder(&sum, from, 3, 1, DType::bf16);
  EXPECT_EQ(fromBf16(sum), 258.0f);
}

TEST(RankSum, CuttingTheRangeAnywhereGivesTheSameBits) {
  constexpr int kRanks = 3;
  constexpr int64_t kCount = 5000;
  std::vector<std::vector<float>> sources(kRanks, std::vector<float>(kCount));
  for (int r = 0; r < kRanks; ++r)
    for (int64_t i = 0; i < kCount; ++i)
      sources[r][i] =
          std::sin(static_cast<float>(i * 3 + r)) * std::ldexp(1.0f, static_cast<int>(i * 7 % 40) - 20);
  auto sumRange = [&](float *to, int64_t begin, int64_t end) {
    const void *from[] = {&sources[0][begin], &sources[1][begin], &sources[2][begin]};
    sumInRankOrder(to + begin, from, kRanks, end - begin, DType::f32);
  };
  std::vector<float> whole(kCount), cut(kCount);
  sumRange(whole.data(), 0, kCount);
  for (int64_t begin = 0, length = 1; begin < kCount; begin += length, length = length * 3 % 1021)
    sumRange(cut.data(), begin, std::min(begin + length, kCount));
  EXPECT_EQ(whole, cut);
}

TEST(Half, F16GoesThereAndBackForEveryPattern) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = fromF16(static_cast<uint16_t>(bits));
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(fromF16(toF16(value)))) << bits;
    } else {
      ASSERT_EQ(toF16(value), bits);
    }
  }
  EXPECT_EQ(fromF16(0x3c00), 1.0f);
  EXPECT_EQ(fromF16(0x0001), 0x1p-24f);
  EXPECT_EQ(fromF16(0x7bff), 65504.0f);
  EXPECT_TRUE(std::isinf(fromF16(0x7c00)));
}

TEST(Half, F16RoundsToNearestEven) {
  EXPECT_EQ(toF16(2049.0f), toF16(2048.0f)); // half way between 2048 and 2050: the even one
  EXPECT_EQ(toF16(2051.0f), toF16(2052.0f));
  EXPECT_EQ(toF16(65519.0f), 0x7bff);
  EXPECT_EQ(toF16(65520.0f), 0x7c00);
  EXPECT_EQ(toF16(1e9f), 0x7c00);
  EXPECT_EQ(toF16(0x1p-25f), 0); // half of the smallest
  EXPECT_EQ(toF16(0x1.8p-25f), 1);
  EXPECT_EQ(toF16(-0.0f), 0x8000);
}

TEST(Half, Bf16RoundsToNearestEvenAndKeepsNan) {
  EXPECT_EQ(fromBf16(toBf16(257.0f)), 256.0f);
  EXPECT_EQ(fromBf16(toBf16(259.0f)), 260.0f);
  EXPECT_EQ(toBf16(std::numeric_limits<float>::max()), 0x7f80); // to infinity
  EXPECT_TRUE(std::isnan(fromBf16(toBf16(std::bit_cast<float>(0x7f800001)))));
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = fromBf16(static_cast<uint16_t>(bits));
    if (!std::isnan(value)) {
      ASSERT_EQ(toBf16(value), bits);
    }
  }
}

} // namespace
} // namespace zerocc
