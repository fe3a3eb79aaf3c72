#include "runtime/data/array.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>

namespace zerocc {
namespace {

template <typename T> T converted(ElementType from, const void *source, DType to) {
  T value;
  EXPECT_EQ(convert(from, source, 1, to, &value), -1);
  return value;
}

TEST(Convert, EveryHalfGoesToF32AndBack) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    uint16_t half = static_cast<uint16_t>(bits);
    float value = converted<float>(ElementType::f16, &half, DType::f32);
    uint16_t back = converted<uint16_t>(ElementType::f32, &value, DType::f16);
    if (std::isnan(value))
      EXPECT_EQ(back & 0x7c00, 0x7c00);
    else
      ASSERT_EQ(back, half) << value;
  }
}

TEST(Convert, HalfRoundsToNearestTiesToEven) {
  auto half = [](float value) { return converted<uint16_t>(ElementType::f32, &value, DType::f16); };
  EXPECT_EQ(half(1.0f), 0x3c00);
  EXPECT_EQ(half(1.0f + 0x1p-11f), 0x3c00);            // halfway, to even
  EXPECT_EQ(half(1.0f + 3 * 0x1p-11f), 0x3c02);        // halfway, to even
  EXPECT_EQ(half(1.0f + 0x1p-11f + 0x1p-20f), 0x3c01); // just above
  EXPECT_EQ(half(65504.0f), 0x7bff);                   // the largest
  EXPECT_EQ(half(65519.9f), 0x7bff);
  EXPECT_EQ(half(65520.0f), 0x7c00);
  EXPECT_EQ(half(0x1p-24f), 1); // the smallest
  EXPECT_EQ(half(0x1p-25f), 0); // halfway to it, to even
  EXPECT_EQ(half(0x1.8p-24f), 2);
  EXPECT_EQ(half(-INFINITY), 0xfc00);
}

TEST(Convert, Bf16RoundsToNearestTiesToEven) {
  auto bf16 = [](float value) { return converted<uint16_t>(ElementType::f32, &value, DType::bf16); };
  EXPECT_EQ(bf16(1.0f), 0x3f80);
  EXPECT_EQ(bf16(1.0f + 0x1p-8f), 0x3f80);
  EXPECT_EQ(bf16(1.0f + 3 * 0x1p-8f), 0x3f82);
  EXPECT_EQ(bf16(std::nanf("")) & 0x7f80, 0x7f80);
  uint16_t bits = 0xc040;
  EXPECT_EQ(converted<float>(ElementType::bf16, &bits, DType::f32), -3.0f);
}

TEST(Convert, IntegersAreWidenedAndChecked) {
  const uint16_t source[] = {0, 65535, 7};
  int64_t wide[3];
  EXPECT_EQ(convert(ElementType::u16, source, 3, DType::i64, wide), -1);
  EXPECT_EQ(wide[1], 65535);
  uint8_t narrow[3];
  EXPECT_EQ(convert(ElementType::u16, source, 3, DType::u8, narrow), 1);

  const int64_t labels[] = {3, -100, 10};
  IntegerRange range{0, 9, -100};
  EXPECT_EQ(convert(ElementType::i64, labels, 3, DType::i64, wide, range), 2);
  EXPECT_EQ(convert(ElementType::i64, labels, 2, DType::i32, wide, range), -1);
  // what is ignored must still fit
  EXPECT_EQ(convert(ElementType::i64, labels, 2, DType::u8, narrow, range), 1);

  const uint64_t huge[] = {~uint64_t(0)};
  EXPECT_EQ(convert(ElementType::u64, huge, 1, DType::i64, wide), 0);
  EXPECT_EQ(convert(ElementType::u64, huge, 1, DType::i64, wide, {-5, 5, -1}), 0);
}

TEST(Convert, BooleansAreTheIntegersZeroAndOne) {
  const uint8_t source[] = {0, 1, 255};
  uint8_t target[3];
  EXPECT_EQ(convert(ElementType::boolean, source, 3, DType::boolean, target), -1);
  EXPECT_EQ(target[2], 1);
  EXPECT_EQ(convert(ElementType::u8, source, 3, DType::boolean, target), 2);
  EXPECT_FALSE(isConvertible(ElementType::boolean, DType::f32));
  EXPECT_FALSE(isConvertible(ElementType::f64, DType::i64));
}

TEST(Convert, ReadsAtAnyAlignment) {
  alignas(8) char bytes[9 + 8];
  double value = 2.5;
  std::memcpy(bytes + 3, &value, 8);
  EXPECT_EQ(converted<float>(ElementType::f64, bytes + 3, DType::f32), 2.5f);
}

TEST(CountElements, RefusesWhatDoesNotFit) {
  EXPECT_EQ(countElements({}), 1);
  EXPECT_EQ(countElements({3, 0, 5}), 0);
  EXPECT_EQ(countElements({-1}), std::nullopt);
  EXPECT_EQ(countElements({int64_t(1) << 40, int64_t(1) << 40}), std::nullopt);
  EXPECT_EQ(countElements({int64_t(1) << 40, 0, int64_t(1) << 40}), std::nullopt);
  EXPECT_EQ(countElements({int64_t(1) << 61}), std::nullopt); // bytes would not fit
}

} // namespace
} // namespace zerocc
