#include "runtime/executor/rank_group.h"

#include "tests/runtime/executor/hand_plan.h"
#include "tests/runtime/executor/malloc_hook.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <vector>

namespace zerocc {
namespace {

constexpr int64_t kElements = 192;

std::unique_ptr<RankGroup> makeGroup(const HandPlan &hand, const RankGroupOptions &options = {}) {
  auto group = RankGroup::create(hand.plan, options);
  if (!group) {
    ADD_FAILURE() << group.error().text();
    return nullptr;
  }
  return std::move(*group);
}

struct Mesh {
  int shard, replicate;
};

TEST(RankGroup, TrainsOnEveryMeshWithAndWithoutDelaysAndPoison) {
  for (Mesh mesh : {Mesh{1, 1}, Mesh{2, 1}, Mesh{3, 1}, Mesh{1, 2}, Mesh{2, 2}})
    for (bool checkMemory : {false, true})
      for (int delay : {0, 300}) {
        const HandPlan hand = fetchReducePlan(mesh.shard, mesh.replicate, kElements);
        RankGroupOptions options;
        options.device.maxDelayMicros = delay;
        options.executor.checkMemory = checkMemory;
        auto group = makeGroup(hand, options);
        ASSERT_TRUE(group);
        ASSERT_TRUE(fillFetchReduce(*group, kElements));
        for (int step = 1; step <= 3; ++step) {
          ASSERT_TRUE(group->runSegment("step"));
          for (int bucket : {0, 1})
            ASSERT_EQ(readFetchReduce(*group, kElements, bucket),
                      fetchReduceTruth(mesh.shard, mesh.replicate, kElements, bucket, step))
                << mesh.shard << " x " << mesh.replicate << " step " << step << " delay " << delay;
        }
      }
}

TEST(RankGroup, BucketKernelsSeeTheirOwnPartAndAllNormsReachEveryRank) {
  const HandPlan hand = fetchReducePlan(2, 2, kElements);
  auto group = makeGroup(hand);
  ASSERT_TRUE(group);
  ASSERT_TRUE(fillFetchReduce(*group, kElements));
  ASSERT_TRUE(group->runSegment("step"));
  double expected[2] = {0, 0};
  for (int64_t i = 0; i < kElements - 3; ++i) // the last three are padding
    for (int rank = 0; rank < 4; ++rank)
      expected[i / (kElements / 2)] += parameterOf(0, i) * xOf(rank, i);
  for (int rank = 0; rank < 4; ++rank) {
    double norms[4];
    ASSERT_TRUE(group->executor(rank).readStorage("norm", norms, sizeof norms));
    for (int of = 0; of < 4; ++of)
      EXPECT_EQ(norms[of], expected[of % 2]);
  }
}

TEST(RankGroup, CountsBytesByKindAndMemoryExactly) {
  const HandPlan hand = fetchReducePlan(2, 2, kElements);
  auto group = makeGroup(hand);
  ASSERT_TRUE(group);
  ASSERT_TRUE(group->runSegment("step"));
  const int64_t whole = kElements * 4, part = whole / 2;
  const Traffic one = group->executor(3).traffic();
  EXPECT_EQ(one.allGather, 2 * part);
  EXPECT_EQ(one.reduceScatter, 2 * part);
  EXPECT_EQ(one.allReduce, 2 * part); // twice half of the part, for each bucket
  EXPECT_EQ(one.exchange, 3 * 8);
  EXPECT_EQ(group->traffic().total(), 4 * one.total());
  const int64_t bytes = (2 * part + 4 * 8) + (3 * whole + 8) + whole;
  EXPECT_EQ(group->device(0).mappedBytes(), bytes);
  EXPECT_EQ(group->mappedBytes(), 4 * bytes);
}

TEST(RankGroup, GathersAndReducesInPlaceThroughTheWholeBuffer) {
  // As stage 1: the buffer lies in persistent memory, only the owner's part is defined when the segment
  // begins.
  for (bool partAsOperand : {false, true})
    for (bool checkMemory : {false, true}) {
      HandPlan hand(3, 1, 96 * 4, 0, 0, 0);
      hand.storage("buffer", kPersistentRegion, 0, 96);
      hand.plan.mutable_storages(0)->set_kind(plan::Storage::PARAMETER);
      hand.plan.mutable_storages(0)->set_bucket(0);
      hand.plan.add_buckets()->set_padded_elements(96);
      hand.segment("step");
      plan::BucketState *state = hand.plan.mutable_segments(0)->add_bucket_states();
      state->set_entry("owner");
      state->set_exit("owner");
      const plan::Operand whole = in(kPersistentRegion, 0, {96}), own = ownPart(kPersistentRegion, 0, 32);
      hand.add(OpKind::AllGatherStart, {partAsOperand ? own : whole}, {whole}, kReduceStream, {.record = 1});
      hand.add(OpKind::Add, {whole, whole}, {whole}, kComputeStream, {.wait = {1}, .record = 2});
      hand.add(OpKind::ReduceStart, {whole}, {partAsOperand ? own : whole}, kReduceStream, {.wait = {2}});
      auto group = makeGroup(hand, {.executor = {.checkMemory = checkMemory}});
      ASSERT_TRUE(group);
      for (int rank = 0; rank < 3; ++rank)
        for (int i = 0; i < 32; ++i)
          static_cast<float *>(group->executor(rank).storage("buffer")->data)[rank * 32 + i] =
              static_cast<float>(rank + i);
      for (int step = 1; step <= 2; ++step) {
        ASSERT_TRUE(group->runSegment("step"));
        for (int rank = 0; rank < 3; ++rank)
          for (int i = 0; i < 32; ++i)
            ASSERT_EQ(static_cast<float *>(group->executor(rank).storage("buffer")->data)[rank * 32 + i],
                      static_cast<float>((rank + i) * (step == 1 ? 6 : 36)));
      }
    }
}

TEST(RankGroup, NothingIsAllocatedFromTheSecondStepOn) {
  if (!allocationCounterWorks())
    GTEST_SKIP() << "the sanitizer's own allocator is in use";
  const HandPlan hand = fetchReducePlan(2, 1, kElements);
  auto group = makeGroup(hand, {.executor = {.checkMemory = true, .profile = true}});
  ASSERT_TRUE(group);
  ASSERT_TRUE(fillFetchReduce(*group, kElements));
  ASSERT_TRUE(group->runSegment("step"));
  startCountingAllocations();
  for (int step = 0; step < 10; ++step)
    (void)group->runSegment("step");
  const AllocationCounts counts = stopCountingAllocations();
  EXPECT_EQ(counts.ours + counts.libraries, 0) << counts.text;
}

TEST(MallocHook, SeesOurAllocations) {
  if (!allocationCounterWorks())
    GTEST_SKIP() << "the sanitizer's own allocator is in use";
  startCountingAllocations();
  const std::vector<int> numbers(1000);
  void *volatile memory = std::malloc(8192);
  std::free(memory);
  const AllocationCounts counts = stopCountingAllocations();
  EXPECT_EQ(counts.ours, 2) << counts.text;
  EXPECT_EQ(counts.ourBytes, 4000 + 8192);
  EXPECT_EQ(counts.libraries, 0);
  EXPECT_EQ(counts.largest, 8192);
}

// --- failures

TEST(RankGroup, ARankThatDoesNotComeIsNamedWithThePlaceWhereTheOthersStand) {
  const HandPlan hand = fetchReducePlan(2, 1, kElements);
  auto group = makeGroup(hand, {.timeoutSeconds = 1});
  ASSERT_TRUE(group);
  const auto start = std::chrono::steady_clock::now();
  const Status status = group->forEachRank([](Executor &executor) -> Status {
    ZEROCC_TRY(executor.runSegment("step"));
    return executor.rank() == 1 ? success() : executor.runSegment("step");
  });
  // One time-out, not one for each group that the rank is missing in.
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(2500));
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().text(),
            "error: rank 0, segment step, instruction 0 (fetch.start, first): rank 1 did not "
            "arrive at all-gather of 96 f32 within 1 s\n");
  EXPECT_FALSE(group->runSegment("step")); // and stays so
}

TEST(RankGroup, ARankThatFailsStopsTheOthers) {
  const HandPlan hand = fetchReducePlan(2, 2, kElements);
  auto group = makeGroup(hand);
  ASSERT_TRUE(group);
  std::atomic<int> stopped{0};
  const Status status = group->forEachRank([&](Executor &executor) -> Status {
    if (executor.rank() == 2)
      return Error("rank 2: data file ends at byte 12");
    Status own = executor.runSegment("step");
    if (!own && own.error().text().find("rank 2 stopped: rank 2: data file") != std::string::npos)
      ++stopped;
    return own;
  });
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().text(), "error: rank 2: data file ends at byte 12\n"); // not what followed from it
  EXPECT_EQ(stopped, 3);
}

TEST(RankGroup, ARankThatHangsIsTold) {
  const HandPlan hand = fetchReducePlan(2, 1, kElements);
  std::atomic<bool> goOn{false};
  std::string told;
  RankGroupOptions options{.timeoutSeconds = 1};
  options.onHang = [&](const Error &error) {
    told = error.text();
    goOn = true; // instead of ending the process
    goOn.notify_all();
  };
  auto group = makeGroup(hand, options);
  ASSERT_TRUE(group);
  const Status status = group->forEachRank([&](Executor &executor) -> Status {
    if (executor.rank() == 0)
      return executor.runSegment("step");
    goOn.wait(false);
    return success();
  });
  ASSERT_FALSE(status);
  EXPECT_EQ(told, status.error().text());
  EXPECT_NE(told.find("rank 1 did not arrive"), std::string::npos) << told;
}

TEST(RankGroup, FailuresOfSeveralRanksAreReportedOnce) {
  HandPlan hand(2, 1, 0, 0, 64, 0);
  hand.segment("only");
  hand.add(OpKind::Erf, {in(kArenaRegion, 0, {4})}, {in(kArenaRegion, 0, {4})});
  auto group = RankGroup::create(hand.plan);
  ASSERT_FALSE(group);
  EXPECT_EQ(group.error().text(), "error: segment only, instruction 0 (erf): this test has no such kernel\n");
}

TEST(RankGroup, ExceptionsOfLibrariesBecomeErrors) {
  const HandPlan hand = fetchReducePlan(1, 1, kElements);
  auto group = makeGroup(hand);
  ASSERT_TRUE(group);
  const Status status = group->forEachRank([](Executor &) -> Status { throw std::bad_alloc(); });
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().text(), "error: rank 0: std::bad_alloc\n");
}

TEST(RankGroup, RefusesAMeshThatIsNoMesh) {
  const HandPlan hand(0, 1, 0, 0, 0, 0);
  auto group = RankGroup::create(hand.plan);
  ASSERT_FALSE(group);
  EXPECT_EQ(group.error().text(),
            "error: mesh shard=0, replicate=1 cannot run as threads of one process, of which "
            "there may be 1024\n");
}

} // namespace
} // namespace zerocc
