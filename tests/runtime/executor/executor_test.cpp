#include "runtime/executor/executor.h"

#include "tests/runtime/executor/hand_plan.h"

#include <gtest/gtest.h>

#include <array>

namespace zerocc {
namespace {

/// One rank alone.
class OneRank {
public:
  explicit OneRank(const plan::Plan &plan, const ExecutorOptions &options = {}) : device(makeCpuDevice()) {
    for (auto &group : groups)
      group = makeThreadCommunicators({device.get()});
    made = Executor::create(plan, 0, *device,
                            {groups[0][0].get(), groups[1][0].get(), groups[2][0].get(), groups[3][0].get()},
                            options);
  }
  Executor *operator->() { return made->get(); }
  std::string error() const { return made ? "" : made.error().text(); }

  std::unique_ptr<Device> device;
  std::array<std::vector<std::unique_ptr<Communicator>>, 4> groups;
  Expected<std::unique_ptr<Executor>> made = Error("not made");
};

/// y = x w + b, then y2 = reversed y + 0.5, in two segments.
HandPlan affinePlan() {
  HandPlan hand(1, 1, 128, 16, 64, 24);
  hand.input("x", 0, {2, 3});
  hand.storage("w", kPersistentRegion, 0, 6);
  hand.storage("b", kPersistentRegion, 24, 2);
  hand.storage("y2", kPersistentRegion, 32, 4);
  hand.segment("only");
  // w is stored transposed, [2, 3]; b is a row for both rows
  hand.add(OpKind::Transpose, {in(kPersistentRegion, 0, {2, 3})}, {in(kPersistentRegion, 0, {3, 2}, {1, 3})});
  hand.add(OpKind::MatMul, {in(kInputsRegion, 0, {2, 3}), in(kPersistentRegion, 0, {3, 2}, {1, 3})},
           {in(kArenaRegion, 0, {2, 2})});
  hand.add(OpKind::Add, {in(kArenaRegion, 0, {2, 2}), in(kPersistentRegion, 24, {2, 2}, {0, 1})},
           {in(kCarriedRegion, 0, {2, 2})});
  hand.segment("update");
  plan::Instruction &pad =
      hand.add(OpKind::Pad, {in(kCarriedRegion, 0, {4})}, {in(kPersistentRegion, 32, {4})});
  pad.set_workspace_offset(48);
  pad.set_workspace_bytes(16);
  plan::Attribute *value = pad.add_attributes();
  value->set_name("value");
  value->set_real(0.5);
  return hand;
}

constexpr std::array<float, 6> kX = {1, 2, 3, 4, 5, 6}, kW = {1, 0, 1, 0, 1, 0};
constexpr std::array<float, 2> kB = {100, 200};

void fillAffine(Executor &executor) {
  ASSERT_TRUE(executor.copyIn("x", kX.data(), 24));
  ASSERT_TRUE(executor.writeStorage("w", kW.data(), 24));
  ASSERT_TRUE(executor.writeStorage("b", kB.data(), 8));
}

TEST(Executor, RunsSegmentsOverStridedOperandsAndWorkspace) {
  for (bool checkMemory : {false, true}) {
    const HandPlan hand = affinePlan();
    OneRank rank(hand.plan, {.checkMemory = checkMemory});
    ASSERT_EQ(rank.error(), "");
    fillAffine(**rank.made);
    for (int step = 0; step < 3; ++step) {
      ASSERT_TRUE(rank->runSegment("only"));
      ASSERT_TRUE(rank->runSegment("update"));
      std::array<float, 4> y2;
      ASSERT_TRUE(rank->readStorage("y2", y2.data(), 16));
      EXPECT_EQ(y2, (std::array<float, 4>{205.5, 110.5, 202.5, 104.5}));
    }
    EXPECT_EQ(rank.device->mappedBytes(), 128 + 16 + 64 + 24);
  }
}

TEST(Executor, SegmentsCanBeQueuedOneBehindTheOther) {
  const HandPlan hand = affinePlan();
  OneRank rank(hand.plan);
  ASSERT_EQ(rank.error(), "");
  fillAffine(**rank.made);
  for (int step = 0; step < 100; ++step) {
    ASSERT_TRUE(rank->queueSegment("only"));
    ASSERT_TRUE(rank->queueSegment("update"));
  }
  ASSERT_TRUE(rank->join());
  std::array<float, 4> y2;
  ASSERT_TRUE(rank->readStorage("y2", y2.data(), 16));
  EXPECT_EQ(y2[0], 205.5f);
}

TEST(Executor, ProfileTimesFollowTheOrderOfTheStream) {
  const HandPlan hand = affinePlan();
  OneRank rank(hand.plan, {.profile = true});
  ASSERT_EQ(rank.error(), "");
  fillAffine(**rank.made);
  ASSERT_TRUE(rank->runSegment("only"));
  const auto times = rank->times("only");
  ASSERT_EQ(times.size(), 3u);
  EXPECT_EQ(times[0].startNanos, 0); // a view does no work
  EXPECT_GT(times[1].startNanos, 0);
  EXPECT_LE(times[1].startNanos, times[1].endNanos);
  EXPECT_LE(times[1].endNanos, times[2].startNanos);
  EXPECT_EQ(times[2].startNanos > 0, rank->times("update")[0].startNanos == 0); // has not run yet
  OneRank unmeasured(hand.plan);
  EXPECT_TRUE(unmeasured->times("only").empty());
}

TEST(Executor, NamesWhatThePlanDoesNotHave) {
  const HandPlan hand = affinePlan();
  OneRank rank(hand.plan);
  EXPECT_EQ(rank->runSegment("last").error().text(), "error: the plan has no segment \"last\"\n");
  EXPECT_TRUE(rank->hasSegment("only"));
  EXPECT_FALSE(rank->hasSegment("last"));
  EXPECT_EQ(rank->copyIn("z", nullptr, 4).error().text(), "error: the plan has no input \"z\"\n");
  EXPECT_EQ(rank->copyIn("x", kX.data(), 20).error().text(), "error: input \"x\" has 24 B, not 20\n");
  EXPECT_EQ(rank->readStorage("m", nullptr, 4).error().text(), "error: the plan has no storage \"m\"\n");
  EXPECT_FALSE(rank->storage("m").has_value());
  EXPECT_EQ(rank->input("x")->dims[1], 3);
}

// --- plans that are refused

/// The error of a plan with one instruction, made of two 4-element operands in the arena.
std::string errorOf(const std::function<void(HandPlan &, plan::Instruction &)> &spoil) {
  HandPlan hand(1, 1, 0, 0, 64, 0);
  hand.segment("only");
  plan::Instruction &copy = hand.add(OpKind::Copy, {in(kArenaRegion, 0, {4})}, {in(kArenaRegion, 16, {4})});
  spoil(hand, copy);
  return OneRank(hand.plan).error();
}

TEST(Executor, RefusesOperandsThatLeaveTheirRegion) {
  const std::string leaves =
      "error: segment only, instruction 0 (copy): operand leaves region arena of 64 B: it is at "
      "byte ";
  auto offset = [](uint64_t bytes) {
    return errorOf([&](HandPlan &, plan::Instruction &copy) { copy.mutable_results(0)->set_offset(bytes); });
  };
  EXPECT_EQ(offset(48), "");
  EXPECT_EQ(offset(49), leaves + "49\n");
  EXPECT_EQ(offset(~uint64_t{0}), leaves + "18446744073709551615\n");
  auto stride = [](int64_t elements) {
    return errorOf(
        [&](HandPlan &, plan::Instruction &copy) { copy.mutable_inputs(0)->add_strides(elements); });
  };
  EXPECT_EQ(stride(5), "");
  EXPECT_EQ(stride(6), leaves + "0\n");
  EXPECT_EQ(stride(-1), leaves + "0\n");
  EXPECT_EQ(stride(INT64_MAX),
            "error: segment only, instruction 0 (copy): operand of more than 2^62 elements\n");
  EXPECT_EQ(errorOf([](HandPlan &, plan::Instruction &copy) { copy.mutable_inputs(0)->set_region(9); }),
            "error: segment only, instruction 0 (copy): region 9 does not exist, the plan has 4\n");
  EXPECT_EQ(errorOf([](HandPlan &, plan::Instruction &copy) { copy.mutable_inputs(0)->set_dims(0, -1); }),
            "error: segment only, instruction 0 (copy): dim 0 of an operand is -1\n");
  EXPECT_EQ(errorOf([](HandPlan &, plan::Instruction &copy) {
              copy.set_workspace_offset(32);
              copy.set_workspace_bytes(33);
            }),
            "error: segment only, instruction 0 (copy): workspace: operand leaves region arena of 64 B: it "
            "is at byte "
            "32\n");
}

TEST(Executor, RefusesEventsThatNobodyRecordsBefore) {
  EXPECT_EQ(errorOf([](HandPlan &hand, plan::Instruction &copy) {
              hand.plan.mutable_segments(0)->set_events(2);
              copy.set_record(1);
              copy.add_wait(2);
            }),
            "error: segment only, instruction 0 (copy): waits for event 2, which no instruction before it "
            "records\n");
  EXPECT_EQ(errorOf([](HandPlan &, plan::Instruction &copy) { copy.set_record(3); }),
            "error: segment only, instruction 0 (copy): records event 3, the segment has 0\n");
}

TEST(Executor, RefusesCollectivesWhosePartsDoNotFit) {
  HandPlan hand(1, 1, 0, 0, 64, 0);
  hand.segment("only");
  hand.add(OpKind::FetchStart, {in(kArenaRegion, 0, {3})}, {in(kArenaRegion, 16, {4})}, kGatherStream)
      .set_location("/h.0/w");
  EXPECT_EQ(OneRank(hand.plan).error(),
            "error: segment only, instruction 0 (fetch.start, /h.0/w): part of 3 elements "
            "does not fit whole of 4\n");
}

TEST(Executor, RefusesCommunicatorsOfAnotherMesh) {
  HandPlan hand(2, 1, 0, 0, 64, 0);
  EXPECT_EQ(OneRank(hand.plan).error(),
            "error: communicator \"gather\" is place 0 of 1, the plan wants place 0 of 2\n");
}

TEST(Executor, SaysWhichKernelCannotBePrepared) {
  EXPECT_EQ(
      errorOf([](HandPlan &, plan::Instruction &copy) { copy.set_op(static_cast<uint32_t>(OpKind::Erf)); }),
      "error: segment only, instruction 0 (erf): this test has no such kernel\n");
  EXPECT_EQ(errorOf([](HandPlan &, plan::Instruction &copy) { copy.set_op(9999); }),
            "error: segment only, instruction 0 (op 9999): op 9999 does not exist\n");
}

} // namespace
} // namespace zerocc
