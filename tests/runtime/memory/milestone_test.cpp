#include "runtime/memory/milestone.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

namespace zerocc {
namespace {

TEST(Milestone, ComparesByDistanceSoThatItMayWrap) {
  Milestone milestone;
  EXPECT_TRUE(milestone.hasReached(0));
  EXPECT_TRUE(milestone.hasReached(static_cast<uint32_t>(-5)));
  EXPECT_FALSE(milestone.hasReached(1));
  milestone.advance(0x7fffffff);
  milestone.advance(0x7fffffff);
  EXPECT_TRUE(milestone.hasReached(0xfffffffe));
  EXPECT_FALSE(milestone.hasReached(3));
  milestone.advance(5);
  EXPECT_TRUE(milestone.hasReached(3));
}

TEST(Milestone, GivesUpAfterTheTimeout) {
  Milestone milestone;
  const auto start = std::chrono::steady_clock::now();
  EXPECT_FALSE(milestone.await(1, 20'000));
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(20));
  milestone.advance();
  EXPECT_TRUE(milestone.await(1, 0));
}

TEST(Milestone, WakesEverySleeperAndShowsWhatWasWrittenBefore) {
  constexpr int kRounds = 2000;
  Milestone turn, answers;
  int written = 0; // not atomic: ordered by the milestones
  std::vector<std::thread> sleepers;
  for (int i = 0; i < 3; ++i)
    sleepers.emplace_back([&] {
      for (int round = 1; round <= kRounds; ++round) {
        turn.await(round);
        EXPECT_EQ(written, round);
        answers.advance();
      }
    });
  for (int round = 1; round <= kRounds; ++round) {
    written = round;
    turn.advance();
    answers.await(3 * round);
  }
  for (std::thread &sleeper : sleepers)
    sleeper.join();
}

} // namespace
} // namespace zerocc
