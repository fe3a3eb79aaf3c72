#include "runtime/training/random.h"

#include <gtest/gtest.h>

namespace zerocc {
namespace {

// Known answers of Philox 4x32-10 from the Random123 distribution.
TEST(Philox, GivesTheKnownAnswers) {
  using Words = std::array<uint32_t, 4>;
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}), (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(StandardNormal, HasMeanZeroAndVarianceOne) {
  constexpr int kCount = 200000;
  double sum = 0, squares = 0;
  for (int i = 0; i < kCount; ++i) {
    double value = standardNormal(42, 3, i);
    sum += value;
    squares += value * value;
  }
  EXPECT_NEAR(sum / kCount, 0.0, 0.01);
  EXPECT_NEAR(squares / kCount, 1.0, 0.02);
}

TEST(StandardNormal, DependsOnSeedStreamAndElementOnly) {
  EXPECT_EQ(standardNormal(1, 2, 3), standardNormal(1, 2, 3));
  EXPECT_NE(standardNormal(1, 2, 3), standardNormal(2, 2, 3));
  EXPECT_NE(standardNormal(1, 2, 3), standardNormal(1, 3, 3));
  EXPECT_NE(standardNormal(1, 2, 3), standardNormal(1, 2, 4));
}

} // namespace
} // namespace zerocc
