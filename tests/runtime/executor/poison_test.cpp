#include "runtime/executor/poison.h"

#include "tests/runtime/executor/hand_plan.h"

#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

namespace zerocc {
namespace {

/// `1 after [0,16) [32,48)`, a line per instruction that poisons anything.
std::string scheduleOf(const HandPlan &hand, int64_t shardIndex = 0) {
  auto schedule = schedulePoison(hand.plan, hand.plan.segments(0), shardIndex);
  if (!schedule)
    return schedule.error().text();
  std::ostringstream text;
  auto print = [&](size_t i, const char *when, const std::vector<ByteRange> &ranges) {
    if (ranges.empty())
      return;
    text << i << " " << when;
    for (const ByteRange &range : ranges)
      text << " [" << range.begin << "," << range.end << ")";
    text << "\n";
  };
  for (size_t i = 0; i < schedule->instructions.size(); ++i) {
    print(i, "before", schedule->instructions[i].before);
    print(i, "after", schedule->instructions[i].after);
  }
  return text.str();
}

plan::Operand arena(int64_t offset, int64_t elements) { return in(kArenaRegion, offset, {elements}); }
plan::Operand kept(int64_t elements) { return in(kPersistentRegion, 0, {elements}); }

HandPlan empty() {
  HandPlan hand(1, 1, 64, 0, 256, 0);
  hand.segment("only");
  return hand;
}

TEST(Poison, BytesDieAfterTheirLastAccess) {
  HandPlan hand = empty();
  hand.add(OpKind::Copy, {kept(8)}, {arena(0, 8)});
  hand.add(OpKind::Copy, {arena(0, 8)}, {arena(32, 8)});
  hand.add(OpKind::Copy, {arena(16, 4)}, {kept(4)}); // the second half lives longer
  hand.add(OpKind::Copy, {arena(32, 8)}, {kept(8)});
  EXPECT_EQ(scheduleOf(hand), "1 after [0,16)\n2 after [16,32)\n3 after [32,64)\n");
}

TEST(Poison, AWriteThatDoesNotReadBeginsANewLife) {
  HandPlan hand = empty();
  hand.add(OpKind::Copy, {kept(8)}, {arena(0, 8)});
  hand.add(OpKind::Copy, {arena(0, 8)}, {kept(8)});
  hand.add(OpKind::Copy, {kept(8)}, {arena(0, 8)});
  hand.add(OpKind::Accumulate, {arena(0, 8), kept(8)}, {arena(0, 8)}); // goes on with the same life
  hand.add(OpKind::Copy, {arena(0, 8)}, {kept(8)});
  EXPECT_EQ(scheduleOf(hand), "1 after [0,32)\n4 after [0,32)\n");
}

TEST(Poison, ReadersOnOtherStreamsDelayItToTheNextWrite) {
  HandPlan hand = empty();
  hand.add(OpKind::Copy, {kept(8)}, {arena(0, 8)}, kComputeStream, {.record = 1});
  hand.add(OpKind::Copy, {arena(0, 8)}, {kept(8)}, kReduceStream, {.wait = {1}, .record = 2});
  hand.add(OpKind::Copy, {arena(0, 8)}, {kept(8)}); // last in the list, but not behind the other reader
  hand.add(OpKind::Copy, {kept(8)}, {arena(0, 4)}, kComputeStream, {.wait = {2}});
  EXPECT_EQ(scheduleOf(hand), "3 before [0,16)\n3 after [0,16)\n");
}

TEST(Poison, LeavesBytesAloneWhoseReadersAreNeverJoined) {
  HandPlan hand = empty();
  hand.add(OpKind::Copy, {kept(8)}, {arena(0, 8)}, kComputeStream, {.record = 1});
  hand.add(OpKind::Copy, {arena(0, 8)}, {kept(8)}, kReduceStream, {.wait = {1}});
  hand.add(OpKind::Copy, {arena(0, 8)}, {kept(8)});
  EXPECT_EQ(scheduleOf(hand), "");
}

TEST(Poison, ReleasedBytesAreDeadEvenIfSomeoneReadsThem) {
  HandPlan hand = empty();
  hand.add(OpKind::FetchStart, {kept(8)}, {arena(0, 8)}, kGatherStream, {.record = 1});
  hand.add(OpKind::FetchWait, {arena(0, 8)}, {arena(0, 8)}, kComputeStream, {.wait = {1}});
  hand.add(OpKind::Copy, {arena(0, 8)}, {kept(8)});
  hand.add(OpKind::Release, {arena(0, 8)}, {});
  hand.add(OpKind::Copy, {arena(0, 4)}, {kept(4)});
  EXPECT_EQ(scheduleOf(hand), "2 after [0,32)\n4 after [0,16)\n");
}

TEST(Poison, BytesBetweenStridedElementsKeepTheirLife) {
  HandPlan hand = empty();
  hand.add(OpKind::Copy, {kept(8)}, {arena(0, 8)});
  hand.add(OpKind::Copy, {kept(4)}, {in(kArenaRegion, 0, {4}, {2})});
  hand.add(OpKind::Copy, {arena(0, 8)}, {kept(8)});
  EXPECT_EQ(scheduleOf(hand), "2 after [0,32)\n");
}

TEST(Poison, WorkspaceDiesWithItsInstruction) {
  HandPlan hand = empty();
  plan::Instruction &pad = hand.add(OpKind::Pad, {kept(4)}, {kept(4)});
  pad.set_workspace_offset(64);
  pad.set_workspace_bytes(16);
  EXPECT_EQ(scheduleOf(hand), "0 after [64,80)\n");
}

TEST(Poison, EachRankKeepsItsOwnPartOfAReducedBuffer) {
  HandPlan hand(2, 1, 64, 0, 256, 0);
  hand.segment("only");
  hand.add(OpKind::Copy, {kept(8)}, {arena(0, 8)}, kComputeStream, {.record = 1});
  hand.add(OpKind::ReduceStart, {arena(0, 8)}, {ownPart(kArenaRegion, 0, 4)}, kReduceStream,
           {.wait = {1}, .record = 2});
  hand.add(OpKind::ReduceWait, {arena(0, 8)}, {arena(0, 8)}, kComputeStream, {.wait = {2}});
  hand.add(OpKind::Copy, {ownPart(kArenaRegion, 0, 4)}, {kept(4)});
  EXPECT_EQ(scheduleOf(hand, 0), "1 after [16,32)\n3 after [0,16)\n");
  EXPECT_EQ(scheduleOf(hand, 1), "1 after [0,16)\n3 after [16,32)\n");
}

TEST(Poison, InStateOwnerTheOtherRanksPartsAreUndefined) {
  HandPlan hand(4, 1, 64, 0, 0, 0);
  hand.storage("parameters", kPersistentRegion, 0, 16);
  hand.storage("moments", kPersistentRegion, 0, 16);
  hand.plan.mutable_storages(0)->set_kind(plan::Storage::PARAMETER);
  hand.plan.mutable_storages(0)->set_bucket(2);
  hand.segment("only");
  plan::BucketState *state = hand.plan.mutable_segments(0)->add_bucket_states();
  state->set_bucket(2);
  state->set_entry("whole");
  EXPECT_TRUE(undefinedAtEntry(hand.plan, hand.plan.segments(0), 1).empty());
  state->set_entry("owner");
  const auto undefined = undefinedAtEntry(hand.plan, hand.plan.segments(0), 1);
  ASSERT_EQ(undefined.size(), 2u);
  EXPECT_EQ(undefined[0].range.begin, 0);
  EXPECT_EQ(undefined[0].range.end, 16);
  EXPECT_EQ(undefined[1].range.begin, 32);
  EXPECT_EQ(undefined[1].range.end, 64);
}

// --- what it finds

/// Runs the plan's segment twice on one rank and returns the first element of storage "y".
float resultOf(const HandPlan &hand, bool checkMemory) {
  auto group = RankGroup::create(hand.plan, {.executor = {.checkMemory = checkMemory}});
  EXPECT_TRUE(group);
  const float one[4] = {1, 1, 1, 1};
  EXPECT_TRUE((*group)->executor(0).writeStorage("x", one, 16));
  EXPECT_TRUE((*group)->runSegment("only"));
  EXPECT_TRUE((*group)->runSegment("only"));
  float y[4];
  EXPECT_TRUE((*group)->executor(0).readStorage("y", y, 16));
  return y[0];
}

HandPlan copyingPlan() {
  HandPlan hand(1, 1, 32, 0, 64, 0);
  hand.storage("x", kPersistentRegion, 0, 4);
  hand.storage("y", kPersistentRegion, 16, 4);
  hand.segment("only");
  return hand;
}

TEST(Poison, FindsAReadOfBytesThatTheSegmentHasNotWritten) {
  HandPlan hand = copyingPlan();
  hand.add(OpKind::Copy, {arena(0, 4)}, {in(kPersistentRegion, 16, {4})}); // left by the segment before
  hand.add(OpKind::Copy, {kept(4)}, {arena(0, 4)});
  EXPECT_EQ(resultOf(hand, false), 1.0f); // goes unnoticed
  EXPECT_TRUE(std::isnan(resultOf(hand, true)));
}

TEST(Poison, FindsAReadBehindTheRelease) {
  HandPlan hand = copyingPlan();
  hand.add(OpKind::FetchStart, {kept(4)}, {arena(0, 4)}, kGatherStream, {.record = 1});
  hand.add(OpKind::FetchWait, {arena(0, 4)}, {arena(0, 4)}, kComputeStream, {.wait = {1}});
  hand.add(OpKind::Release, {arena(0, 4)}, {});
  hand.add(OpKind::Copy, {arena(0, 4)}, {in(kPersistentRegion, 16, {4})});
  EXPECT_EQ(resultOf(hand, false), 1.0f);
  EXPECT_TRUE(std::isnan(resultOf(hand, true)));
}

} // namespace
} // namespace zerocc
