// One broken plan per rule of the verifier, made from sound ones by hand. mutation_test.cpp breaks them by
// dice.

#include "compiler/ops/op_kind.h"
#include "compiler/support/dtype.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/verify.h"
#include "tests/plan/oracle.h"
#include "tests/plan/text_plans.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <limits>

namespace zerocc {
namespace {

/// The plan without value numbers, which would name most damage before the rule under test does.
plan::Plan unnumbered(plan::Plan plan) {
  for (plan::Segment &segment : *plan.mutable_segments())
    for (plan::Instruction &instruction : *segment.mutable_instructions()) {
      for (plan::Operand &operand : *instruction.mutable_inputs())
        operand.clear_value();
      for (plan::Operand &operand : *instruction.mutable_results())
        operand.clear_value();
    }
  return plan;
}

constexpr const char *kStage3 = "stage=3 shard=2 bucket-bytes=4KiB persistence-bytes=70";

/// Stage 3 on two ranks: sharded buckets that are fetched and released; small ones whole, gathered in place.
const plan::Plan &stage3() {
  static const plan::Plan plan = unnumbered(planOfText(modelText(2, 16, 32), splitSettings(kStage3)));
  return plan;
}

/// Stage 2, three micro-steps: parts are reduced and summed.
const plan::Plan &stage2() {
  static const plan::Plan plan = unnumbered(planOfText(
      modelText(2, 16, 32), splitSettings("stage=2 shard=2 grad-accumulation=3 bucket-bytes=4KiB")));
  return plan;
}

/// Stage 1, two micro-steps, two replicas: whole sums, reduced at the end, then all-reduced.
const plan::Plan &stage1() {
  static const plan::Plan plan = unnumbered(
      planOfText(modelText(2, 16, 32),
                 splitSettings("stage=1 shard=2 replicate=2 grad-accumulation=2 bucket-bytes=4KiB")));
  return plan;
}

plan::Segment &segment(plan::Plan &plan, const std::string &name) {
  for (plan::Segment &segment : *plan.mutable_segments())
    if (segment.name() == name)
      return segment;
  ADD_FAILURE() << "there is no segment " << name;
  return *plan.mutable_segments(0);
}

/// Position of the n-th instruction of that op.
int find(plan::Plan &plan, const std::string &in, OpKind op, int n = 0) {
  plan::Segment &of = segment(plan, in);
  for (int i = 0; i < of.instructions_size(); ++i)
    if (of.instructions(i).op() == static_cast<uint32_t>(op) && n-- == 0)
      return i;
  ADD_FAILURE() << "there is no such " << opText(op) << " in " << in;
  return 0;
}
plan::Instruction &at(plan::Plan &plan, const std::string &in, OpKind op, int n = 0) {
  return *segment(plan, in).mutable_instructions(find(plan, in, op, n));
}

/// Takes an instruction out; nobody waits for its event any more.
plan::Instruction take(plan::Plan &plan, const std::string &in, OpKind op, int n = 0) {
  int i = find(plan, in, op, n);
  plan::Segment &of = segment(plan, in);
  plan::Instruction taken = of.instructions(i);
  of.mutable_instructions()->DeleteSubrange(i, 1);
  for (plan::Instruction &instruction : *of.mutable_instructions()) {
    auto *waits = instruction.mutable_wait();
    waits->erase(std::remove(waits->begin(), waits->end(), taken.record()), waits->end());
  }
  taken.set_record(0);
  taken.clear_wait();
  return taken;
}

std::string allFindings(const plan::Plan &plan) {
  std::string all;
  for (const Diagnostic &finding : verifyPlan(plan))
    all += finding.message + "\n";
  return all.empty() ? "nothing" : all;
}

#define EXPECT_FINDS(plan, part)                                                                             \
  EXPECT_NE(allFindings(plan).find(part), std::string::npos) << allFindings(plan)

TEST(Verify, FindsNothingInSoundPlans) {
  for (const plan::Plan *plan : {&stage3(), &stage2(), &stage1()}) {
    EXPECT_EQ(allFindings(*plan), "nothing");
  }
}

TEST(Verify, FindsNothingInPlansOfManyMeshes) {
  for (const char *stage : {"0", "1", "2", "3"})
    for (const char *shard : {"1", "2", "3"})
      for (const char *steps : {"1", "2", "5"})
        for (const char *more :
             {"reduce=boundary replicate=2", "reduce=micro-step optimizer=sgd prefetch-distance=0",
              "keep=1 momentum-buffer=0 optimizer=sgd prefetch-distance=3 persistence-bytes=100"}) {
          std::string settings = std::string("stage=") + stage + " shard=" + shard +
                                 " grad-accumulation=" + steps + " bucket-bytes=4KiB " + more;
          EXPECT_EQ(allFindings(planOfText(modelText(2, 16, 32), splitSettings(settings))), "nothing")
              << settings;
        }
}

// --- form

TEST(VerifyForm, OfTheHeader) {
  plan::Plan plan;
  EXPECT_FINDS(plan, "plan has version 0, expected ");
  plan = stage3();
  plan.mutable_mesh()->set_shard(0);
  EXPECT_FINDS(plan, "mesh is 0 x 1 ranks");
  plan = stage3();
  plan.mutable_mesh()->set_shard(std::numeric_limits<uint64_t>::max());
  EXPECT_FINDS(plan, "each axis must have 1 to");
  plan = stage3();
  plan.set_micro_steps(0);
  EXPECT_FINDS(plan, "plan has 0 micro-steps");
  plan = stage3();
  plan.mutable_regions()->RemoveLast();
  EXPECT_FINDS(plan, "plan has 3 regions, expected 4");
  plan = stage3();
  plan.mutable_regions(1)->set_name("heap");
  EXPECT_FINDS(plan, "region 1 is named \"heap\", expected \"carried\"");
  plan = stage3();
  plan.mutable_regions(2)->set_bytes(std::numeric_limits<uint64_t>::max());
  EXPECT_FINDS(plan, "more than 2^60");
}

TEST(VerifyForm, OfParameters) {
  plan::Plan plan = stage3();
  plan.mutable_parameters(0)->set_name(plan.parameters(1).name());
  EXPECT_FINDS(plan, "is listed twice");
  plan = stage3();
  plan.mutable_parameters(0)->set_dtype(77);
  EXPECT_FINDS(plan, "has dtype 77, which is not a float");
  plan = stage3();
  plan.mutable_parameters(0)->set_bucket(999);
  EXPECT_FINDS(plan, "is in bucket 999");
  plan = stage3();
  plan.mutable_parameters(0)->set_dims(0, std::numeric_limits<int64_t>::max());
  EXPECT_FINDS(plan, "has a shape out of range");
  plan = stage3();
  plan.mutable_parameters(0)->set_group(9);
  EXPECT_FINDS(plan, "is in group 9, there are 2");
}

TEST(VerifyForm, OfBuckets) {
  plan::Plan plan = stage3();
  plan.mutable_buckets(0)->set_parameters("half");
  EXPECT_FINDS(plan, "has parameters \"half\"");
  plan = stage3();
  plan.mutable_buckets(0)->set_padded_elements(plan.buckets(0).padded_elements() + 32);
  EXPECT_FINDS(plan, "padded elements, expected a multiple of 64");
  plan = stage3();
  plan.mutable_buckets(0)->mutable_ranges(0)->set_end(plan.buckets(0).ranges(0).end() + 1);
  EXPECT_FINDS(plan, "has another size than the parameter");
  plan = stage3();
  plan.mutable_buckets(0)->mutable_ranges(0)->set_end(std::numeric_limits<uint64_t>::max());
  EXPECT_FINDS(plan, "does not lie in the");
  plan = stage3();
  plan.mutable_buckets(0)->mutable_ranges(0)->set_parameter(1000);
  EXPECT_FINDS(plan, "has a range of parameter 1000");
  plan = stage3();
  plan.mutable_buckets(0)->mutable_ranges()->RemoveLast();
  EXPECT_FINDS(plan, "has 0 ranges in buckets, expected 1");
  plan = stage3();
  plan.mutable_buckets(0)->set_elements(1);
  EXPECT_FINDS(plan, "says 1 elements, its ranges have");
  plan = stage3();
  plan.mutable_buckets(0)->set_trainable(false);
  EXPECT_FINDS(plan, "mixes trainable and frozen");
  plan = stage3();
  plan.mutable_parameters(plan.buckets(0).ranges(0).parameter())->set_bucket_offset(32);
  EXPECT_FINDS(plan, "is not where the parameter says it is");
  plan = stage3();
  for (plan::Bucket &bucket : *plan.mutable_buckets())
    if (bucket.ranges_size() > 1) {
      bucket.mutable_ranges(1)->set_begin(bucket.ranges(0).end() - 1);
      break;
    }
  EXPECT_FINDS(plan, "overlaps the one before it");
}

TEST(VerifyForm, OfStorages) {
  plan::Plan plan = stage3();
  plan.mutable_storages(1)->set_offset(plan.storages(0).offset());
  EXPECT_FINDS(plan, " overlaps storage ");
  plan = stage3();
  plan.mutable_storages(0)->set_offset(std::numeric_limits<uint64_t>::max() - 63);
  EXPECT_FINDS(plan, "does not lie in region persistent");
  plan = stage3();
  plan.mutable_storages(0)->set_elements(std::numeric_limits<uint64_t>::max() / 2);
  EXPECT_FINDS(plan, "does not lie in region persistent");
  plan = stage3();
  plan.mutable_storages(0)->set_region(2);
  EXPECT_FINDS(plan, "is in region 2, expected persistent or carried");
  plan = stage3();
  plan.mutable_storages(0)->set_bucket(50);
  EXPECT_FINDS(plan, "is of bucket 50");
  plan = stage3();
  plan.mutable_storages(0)->set_sharded(!plan.storages(0).sharded());
  EXPECT_FINDS(plan, " elements, expected ");
  plan = stage3();
  plan.mutable_storages()->DeleteSubrange(0, 1);
  EXPECT_FINDS(plan, "has 0 parameter storages, expected 1");
  plan = stage3();
  plan.mutable_storages(0)->set_offset(plan.storages(0).offset() + 4);
  EXPECT_FINDS(plan, "expected a multiple of 64");
}

TEST(VerifyForm, OfInstructions) {
  plan::Plan plan = stage3();
  segment(plan, "only").mutable_instructions(3)->set_op(10000);
  EXPECT_FINDS(plan, "op 10000 does not exist");
  plan = stage3();
  at(plan, "only", OpKind::Gelu).set_op(static_cast<uint32_t>(OpKind::Reshape));
  EXPECT_FINDS(plan, "is a view, which has no place in a plan");
  plan = stage3();
  at(plan, "only", OpKind::MatMul).mutable_inputs()->RemoveLast();
  EXPECT_FINDS(plan, "has 1 operands, expected 2 to 2");
  plan = stage3();
  at(plan, "only", OpKind::MatMul).clear_results();
  EXPECT_FINDS(plan, "has 0 results, expected 1");
  plan = stage3();
  at(plan, "only", OpKind::MatMul).set_stream(3);
  EXPECT_FINDS(plan, "is on stream 3, there are 3");
  plan = stage3();
  at(plan, "only", OpKind::MatMul).set_bucket(-2);
  EXPECT_FINDS(plan, "names bucket -2");
  plan = stage3();
  at(plan, "only", OpKind::MatMul).add_wait(99);
  EXPECT_FINDS(plan, "waits for event 99, which no instruction before it records");
  plan = stage3();
  uint32_t event = at(plan, "only", OpKind::FetchWait, 1).wait(0);
  segment(plan, "only").mutable_instructions(0)->add_wait(event);
  EXPECT_FINDS(plan, "which no instruction before it records");
  plan = stage3();
  at(plan, "only", OpKind::MatMul).set_record(event);
  EXPECT_FINDS(plan, "a second time");
  plan = stage3();
  segment(plan, "only").set_events(1000000);
  EXPECT_FINDS(plan, "events, more than instructions");
}

TEST(VerifyForm, OfOperands) {
  auto broken = [](auto change) {
    plan::Plan plan = stage3();
    change(*at(plan, "only", OpKind::MatMul).mutable_inputs(0));
    return plan;
  };
  EXPECT_FINDS(broken([](plan::Operand &o) { o.set_region(4); }), "operand 0 is in region 4, there are 4");
  EXPECT_FINDS(broken([](plan::Operand &o) { o.set_dtype(99); }), "operand 0 has dtype 99");
  EXPECT_FINDS(broken([](plan::Operand &o) { o.set_offset(~uint64_t(0)); }), "does not lie in region arena");
  EXPECT_FINDS(broken([](plan::Operand &o) { o.set_offset(uint64_t(1) << 59); }),
               "does not lie in region arena");
  EXPECT_FINDS(broken([](plan::Operand &o) { o.set_offset(o.offset() + 1); }), "expected a multiple of 4");
  EXPECT_FINDS(broken([](plan::Operand &o) { o.set_dims(0, int64_t(1) << 62); }), "has a shape out of range");
  EXPECT_FINDS(broken([](plan::Operand &o) { o.set_dims(0, -1); }), "has a shape out of range");
  EXPECT_FINDS(broken([](plan::Operand &o) {
                 o.clear_strides();
                 o.add_strides(std::numeric_limits<int64_t>::min());
                 o.add_strides(1);
               }),
               "does not lie in region arena");
  EXPECT_FINDS(broken([](plan::Operand &o) { o.add_strides(1); }), "dims and ");
  EXPECT_FINDS(broken([](plan::Operand &o) { o.set_rank_stride(64); }), "bytes per rank, but has");
  EXPECT_FINDS(broken([](plan::Operand &o) { o.set_rank_stride(~uint64_t(0)); }),
               "does not lie in region arena");
  plan::Plan plan = stage3();
  plan::Operand &result = *at(plan, "only", OpKind::MatMul).mutable_results(0);
  result.clear_strides();
  result.add_strides(1);
  result.add_strides(result.dims(0));
  EXPECT_FINDS(plan, "result 0 is not contiguous");
}

TEST(VerifyForm, OfWorkspaces) {
  plan::Plan plan = stage3();
  plan::Instruction &instruction = at(plan, "only", OpKind::MatMul);
  instruction.set_workspace_offset(~uint64_t(63));
  instruction.set_workspace_bytes(128);
  EXPECT_FINDS(plan, "which does not lie in the arena");
  instruction.set_workspace_offset(instruction.results(0).offset());
  EXPECT_FINDS(plan, "workspace overlaps result 0");
}

TEST(VerifyForm, KeepsOperandsInsideOneStorage) {
  plan::Plan plan = stage3();
  plan::Operand &gradient = *at(plan, "update", OpKind::AdamW).mutable_inputs(1);
  gradient.set_offset(gradient.offset() + 64);
  EXPECT_FINDS(plan, "which are not inside one storage, constant or input");
}

TEST(VerifyForm, OfSegments) {
  plan::Plan plan = stage3();
  segment(plan, "only").set_name("sometimes");
  EXPECT_FINDS(plan, "there is no segment \"sometimes\" in a step");
  EXPECT_FINDS(plan, "segment only is missing");
  plan = stage3();
  *plan.add_segments() = segment(plan, "eval");
  EXPECT_FINDS(plan, "segment eval is listed twice");
  plan = stage3();
  segment(plan, "only").mutable_bucket_states()->RemoveLast();
  EXPECT_FINDS(plan, "0 times, expected once");
  plan = stage3();
  segment(plan, "only").mutable_bucket_states(0)->set_entry("lost");
  EXPECT_FINDS(plan, "has entry state \"lost\"");
}

TEST(VerifyForm, OfTables) {
  plan::Plan plan = stage3();
  plan::Constant *constant = plan.add_constants();
  constant->set_name("table");
  constant->set_dtype(static_cast<uint32_t>(DType::u8));
  constant->add_dims(1 << 24);
  constant->set_inline_data(std::string((1 << 24) - 1, 0));
  EXPECT_FINDS(plan, "constant \"table\" has 16777215 bytes of data, expected 16777216, at most 16777216");
  constant->set_dims(0, (1 << 24) + 1);
  constant->set_inline_data(std::string((1 << 24) + 1, 0));
  EXPECT_FINDS(plan, "constant \"table\" has 16777217 bytes of data, expected 16777217, at most 16777216");
}

TEST(VerifyForm, OfFacts) {
  plan::Plan plan = stage3();
  plan.mutable_facts()->set_optimizer("magic");
  EXPECT_FINDS(plan, "optimizer is \"magic\"");
  plan = stage3();
  plan.mutable_facts()->set_static_count(0);
  EXPECT_FINDS(plan, "static label count is 0.000000, expected a positive number");
  plan = stage3();
  plan.mutable_facts()->set_static_count(plan.facts().static_count() * 2);
  EXPECT_FINDS(plan, "backward starts with 0.125000, the static label count says 0.062500");
  plan = stage3();
  (*plan.mutable_facts()->mutable_peak_kinds())["unused"] += 1;
  EXPECT_FINDS(plan, "memory by kind adds up to");
  plan = stage3();
  plan.mutable_regions(2)->set_bytes(plan.regions(2).bytes() + 64);
  (*plan.mutable_facts()->mutable_peak_kinds())["unused"] += 64;
  EXPECT_FINDS(plan, "but nothing uses more than");
}

TEST(VerifyForm, OfCommunicators) {
  plan::Plan plan = stage3();
  at(plan, "only", OpKind::ReduceStart).set_stream(1);
  EXPECT_FINDS(plan, "is on stream 1, which is not the one of its communicator");
  plan = stage3();
  at(plan, "only", OpKind::FetchStart).set_stream(0);
  EXPECT_FINDS(plan, "is on stream 0, which is not the one of its communicator");
}

// --- bytes

TEST(VerifyBytes, AreWrittenBeforeTheyAreRead) {
  plan::Plan plan = stage3();
  take(plan, "only", OpKind::Gelu);
  EXPECT_FINDS(plan, "which were not written");
}

TEST(VerifyBytes, AreNotReadOnceReleased) {
  plan::Plan plan = stage3();
  plan::Instruction release = take(plan, "only", OpKind::Release);
  // In front of the first reader of what it releases: behind the wait.
  plan::Segment &of = segment(plan, "only");
  for (int i = 0; i < of.instructions_size(); ++i)
    if (of.instructions(i).op() == static_cast<uint32_t>(OpKind::FetchWait) &&
        of.instructions(i).results(0).offset() == release.inputs(0).offset()) {
      *of.add_instructions() = release;
      for (int k = of.instructions_size() - 1; k > i + 1; --k)
        of.mutable_instructions()->SwapElements(k, k - 1);
      break;
    }
  EXPECT_FINDS(plan, "which were released");
}

TEST(VerifyBytes, AreNotReadInFlight) {
  plan::Plan plan = stage3();
  take(plan, "only", OpKind::FetchWait);
  EXPECT_FINDS(plan, "has started and nobody has waited for");
  EXPECT_FINDS(plan, "is never waited for");
}

TEST(VerifyBytes, BelongToOneValue) {
  plan::Plan plan = stage3();
  plan::Operand &operand = *at(plan, "only", OpKind::Gelu).mutable_inputs(0);
  operand.set_offset(operand.offset() + (operand.offset() >= 64 ? -64 : 64));
  EXPECT_FINDS(plan, "operand 0 reads bytes [");
}

TEST(VerifyBytes, AreReadAsTheyWereWritten) {
  plan::Plan plan = stage3();
  at(plan, "only", OpKind::Gelu).mutable_inputs(0)->set_dtype(static_cast<uint32_t>(DType::i32));
  EXPECT_FINDS(plan, "operand 0 is i32, but instruction ");
}

TEST(VerifyBytes, HoldTheValueThatIsNamed) {
  plan::Plan plan = planOfText(modelText(2, 16, 32), splitSettings(kStage3));
  plan::Operand &operand = *at(plan, "only", OpKind::Gelu).mutable_inputs(0);
  operand.set_value(operand.value() + 1);
  EXPECT_FINDS(plan, ", but its bytes hold value ");
}

TEST(VerifyBytes, AreReadBySomebody) {
  plan::Plan plan = stage3();
  *segment(plan, "only").add_instructions() = [&] {
    plan::Instruction again = at(plan, "only", OpKind::Gelu);
    again.set_record(0);
    again.clear_wait();
    again.set_op(static_cast<uint32_t>(OpKind::Iota));
    again.clear_inputs();
    return again;
  }();
  EXPECT_FINDS(plan, "has no result that anybody reads");
}

TEST(VerifyBytes, OfResultsDoNotLieOnOperands) {
  plan::Plan plan = stage3();
  plan::Instruction &gelu = at(plan, "only", OpKind::Gelu);
  gelu.mutable_results(0)->set_offset(gelu.inputs(0).offset());
  EXPECT_FINDS(plan, "result 0 overlaps operand 0");
}

TEST(VerifyBytes, OfInPlaceResultsLieOnTheirOperand) {
  plan::Plan plan = stage2();
  at(plan, "last", OpKind::Accumulate).mutable_inputs()->SwapElements(0, 1);
  EXPECT_FINDS(plan, "result 0 must lie on operand 0, which it overwrites");
}

TEST(VerifyBytes, OfInputsAndConstantsAreNotWritten) {
  plan::Plan plan = stage3();
  plan::Instruction write;
  write.set_op(static_cast<uint32_t>(OpKind::Iota));
  write.set_bucket(-1);
  plan::Operand &result = *write.add_results();
  result.set_region(3);
  result.set_offset(plan.inputs(0).offset());
  result.set_dtype(plan.inputs(0).dtype());
  *result.mutable_dims() = plan.inputs(0).dims();
  *segment(plan, "eval").add_instructions() = write;
  EXPECT_FINDS(plan, "writes to an input");
  plan::Operand &constant = *segment(plan, "eval").mutable_instructions()->rbegin()->mutable_results(0);
  constant.set_region(0);
  constant.set_offset(plan.constants(0).offset());
  constant.set_dtype(plan.constants(0).dtype());
  *constant.mutable_dims() = plan.constants(0).dims();
  EXPECT_FINDS(plan, "writes to a constant");
}

// --- order

TEST(VerifyOrder, EveryWaitIsNeeded) {
  for (const plan::Plan *sound : {&stage3(), &stage2(), &stage1()})
    for (int s = 0; s < sound->segments_size(); ++s)
      for (int i = 0; i < sound->segments(s).instructions_size(); ++i)
        for (int k = 0; k < sound->segments(s).instructions(i).wait_size(); ++k) {
          plan::Plan plan = *sound;
          auto *waits = plan.mutable_segments(s)->mutable_instructions(i)->mutable_wait();
          waits->erase(waits->begin() + k);
          EXPECT_FINDS(plan, "without waiting for instruction ");
        }
}

TEST(VerifyOrder, WaitsReachThroughThirdStreams) {
  // gather writes, reduce joins it, compute joins reduce: compute is behind gather.
  plan::Plan plan = stage3();
  EXPECT_EQ(findRace(plan), "");
  plan::Instruction &wait = at(plan, "only", OpKind::FetchWait);
  wait.clear_wait();
  EXPECT_NE(findRace(plan), "");
  EXPECT_FINDS(plan, "reads bytes [");
}

// --- collectives

TEST(VerifyCollectives, JoinSomethingThatWasStarted) {
  plan::Plan plan = stage3();
  take(plan, "only", OpKind::FetchStart);
  EXPECT_FINDS(plan, "waits for bytes that no collective before it is writing");
}

TEST(VerifyCollectives, AreReleasedOnce) {
  plan::Plan plan = stage3();
  plan::Instruction release = take(plan, "only", OpKind::Release);
  EXPECT_FINDS(plan, "parameters");
  plan = stage3();
  *segment(plan, "only").add_instructions() = release;
  EXPECT_FINDS(plan, "releases bytes that hold no fetched parameters");
}

TEST(VerifyCollectives, HaveTheSizeOfTheirBucket) {
  plan::Plan plan = stage3();
  plan::Operand &result = *at(plan, "only", OpKind::FetchStart).mutable_results(0);
  result.set_dims(0, result.dims(0) / 2);
  EXPECT_FINDS(plan, "gathers into ");
  plan = stage3();
  plan::Operand &part = *at(plan, "only", OpKind::ReduceStart).mutable_results(0);
  part.set_dims(0, part.dims(0) / 2);
  EXPECT_FINDS(plan, "reduces ");
  plan = stage3();
  plan::Operand &row = *at(plan, "update", OpKind::ExchangeStart).mutable_results(0);
  row.set_dims(0, 1);
  EXPECT_FINDS(plan, "exchanges into ");
}

// --- training

TEST(VerifyTraining, ReadsNoShardAsIfItWereWhole) {
  plan::Plan plan = stage3();
  // A compute node that takes the sharded storage of a bucket instead of the fetched bytes.
  const plan::Operand part = at(plan, "only", OpKind::FetchStart).inputs(0);
  plan::Instruction &gelu = at(plan, "only", OpKind::Gelu);
  gelu.mutable_inputs(0)->set_region(part.region());
  gelu.mutable_inputs(0)->set_offset(part.offset());
  gelu.mutable_inputs(0)->clear_dims();
  gelu.mutable_inputs(0)->add_dims(8);
  EXPECT_FINDS(plan, "operand 0 is the rank's own part, read as if it were whole");
}

TEST(VerifyTraining, ReadsParametersOneByOne) {
  plan::Plan plan = stage3();
  for (plan::Instruction &instruction : *segment(plan, "only").mutable_instructions())
    if (instruction.op() == static_cast<uint32_t>(OpKind::LayerNorm)) {
      plan::Operand &scale = *instruction.mutable_inputs(1);
      scale.set_offset(scale.offset() + 4);
      break;
    }
  EXPECT_FINDS(plan, "does not lie inside one parameter of bucket ");
}

TEST(VerifyTraining, ChainsTheStatesOfWholeParameters) {
  auto flip = [](const char *name, bool isEntry) {
    plan::Plan plan = stage1();
    plan::BucketState &state = *segment(plan, name).mutable_bucket_states(0);
    std::string &field = isEntry ? *state.mutable_entry() : *state.mutable_exit();
    field = field == "whole" ? "owner" : "whole";
    return plan;
  };
  EXPECT_FINDS(flip("first", true), "but the segment before leaves the owner's part only");
  EXPECT_FINDS(flip("first", false), "but the segment before leaves the owner's part only");
  EXPECT_FINDS(flip("update", false),
               "is to leave parameters of bucket b0 whole, but leaves the owner's part only");
  EXPECT_FINDS(flip("last", true), "read as if it were whole");
  plan::Plan plan = stage3();
  for (plan::BucketState &state : *segment(plan, "only").mutable_bucket_states())
    if (plan.buckets(static_cast<int>(state.bucket())).parameters() == "refetched")
      state.set_entry("whole");
  EXPECT_FINDS(plan, "is sharded, but stated to be whole");
}

TEST(VerifyTraining, GathersWholeParametersBeforeTheyAreRead) {
  plan::Plan plan = stage1();
  take(plan, "first", OpKind::FetchStart);
  take(plan, "first", OpKind::FetchWait);
  EXPECT_FINDS(plan, "operand ");
}

TEST(VerifyTraining, ReducesEachGradientOnce) {
  plan::Plan plan = stage2();
  plan::Instruction start = take(plan, "middle", OpKind::ReduceStart);
  EXPECT_FINDS(plan, "reduces gradients of bucket b0 0 times, expected 1");
  plan = stage1();
  int i = find(plan, "last", OpKind::ReduceStart);
  start = segment(plan, "last").instructions(i);
  start.set_record(0);
  *segment(plan, "last").add_instructions() = start;
  EXPECT_FINDS(plan, "2 times, expected 1");
  plan = stage1();
  start = take(plan, "last", OpKind::ReduceStart);
  *segment(plan, "first").add_instructions() = start;
  EXPECT_FINDS(plan, "segment first reduces gradients of bucket b0 1 times, expected 0");
}

TEST(VerifyTraining, ReducesOverTheReplicasOnce) {
  plan::Plan plan = stage1();
  plan::Instruction start = take(plan, "last", OpKind::AllReduceStart);
  EXPECT_FINDS(plan, "that is not reduced over all ranks");
  plan = stage1();
  plan::Segment &last = segment(plan, "last");
  int i = find(plan, "last", OpKind::AllReduceStart);
  *last.add_instructions() = start;
  for (int k = last.instructions_size() - 1; k > i + 1; --k)
    last.mutable_instructions()->SwapElements(k, k - 1);
  EXPECT_FINDS(plan, "a second time");
}

TEST(VerifyTraining, SumsEveryMicroStep) {
  plan::Plan plan = stage1();
  for (plan::Instruction &instruction : *segment(plan, "last").mutable_instructions())
    if (instruction.op() == static_cast<uint32_t>(OpKind::Accumulate) && instruction.bucket() == 0) {
      // Reduces the last micro-step's buffer instead of the sum.
      plan::Operand buffer = instruction.inputs(1);
      plan::Plan without = plan;
      take(without, "last", OpKind::Accumulate, 0);
      EXPECT_FINDS(without, "without all micro-steps");
      break;
    }
}

TEST(VerifyTraining, OverwritesNoSum) {
  plan::Plan plan = stage1();
  plan::Instruction loss;
  for (const plan::Instruction &instruction : segment(plan, "first").instructions())
    if (instruction.op() == static_cast<uint32_t>(OpKind::Concat) && instruction.results(0).region() == 1)
      loss = instruction;
  // The last micro-step stores its loss over the first one's.
  for (plan::Instruction &instruction : *segment(plan, "last").mutable_instructions())
    if (instruction.op() == static_cast<uint32_t>(OpKind::Concat))
      *instruction.mutable_results(0) = loss.results(0);
  EXPECT_FINDS(plan, "overwrites a sum that ");
}

TEST(VerifyTraining, ClearsThePadding) {
  plan::Plan plan = stage2();
  take(plan, "middle", OpKind::ClearPadding);
  EXPECT_FINDS(plan, "that was not cleared");
}

TEST(VerifyTraining, UpdatesEachBucketOnceFromItsStorages) {
  plan::Plan plan = stage3();
  plan::Instruction update = take(plan, "update", OpKind::AdamW);
  EXPECT_FINDS(plan, "0 times, expected 1");
  plan = stage3();
  update = at(plan, "update", OpKind::AdamW);
  update.set_record(0);
  *segment(plan, "update").add_instructions() = update;
  EXPECT_FINDS(plan, "2 times, expected 1");
  plan = stage3();
  at(plan, "update", OpKind::AdamW).mutable_inputs()->SwapElements(2, 3);
  EXPECT_FINDS(plan, "operand 2 is not storage b");
  plan = stage3();
  plan.mutable_facts()->set_optimizer("sgd");
  EXPECT_FINDS(plan, "storages, expected");
  plan = stage3();
  plan.mutable_facts()->set_optimizer("adam"); // keeps the same states, computes another update
  EXPECT_FINDS(plan, "is not the optimizer of the plan, adam");
  plan = stage3();
  plan.mutable_facts()->set_optimizer("newton");
  EXPECT_FINDS(plan, "optimizer is \"newton\", expected one of adamw, ");
}

TEST(VerifyTraining, KnowsAllOptimizers) {
  for (const char *optimizer : {"adamw", "adam", "onnx_adam", "sgd", "lion", "rmsprop", "adagrad"}) {
    plan::Plan plan =
        planOfText(modelText(2, 16, 32),
                   splitSettings(std::string("stage=2 shard=2 bucket-bytes=4KiB optimizer=") + optimizer));
    EXPECT_EQ(allFindings(plan), "nothing") << optimizer;
    EXPECT_EQ(plan.facts().optimizer(), optimizer);
    plan::Instruction &update =
        *std::find_if(segment(plan, "update").mutable_instructions()->begin(),
                      segment(plan, "update").mutable_instructions()->end(),
                      [](const auto &i) { return isOptimizer(static_cast<OpKind>(i.op())); });
    plan::Attribute &kind = *update.add_attributes();
    kind.set_name("kind");
    kind.set_text("newton");
    if (update.attributes_size() == 1) { // else the kind before it counts
      EXPECT_FINDS(plan, "is not the optimizer of the plan");
    }
  }
}

TEST(VerifyTraining, ComputesTheScalarsFirst) {
  plan::Plan plan = stage3();
  plan::Instruction scalars = take(plan, "update", OpKind::StepScalars);
  EXPECT_FINDS(plan, "segment update computes the scalar block 0 times, expected 1");
  EXPECT_FINDS(plan, "reads the scalar block of the step before");
}

TEST(VerifyTraining, TakesTheNormOfReducedGradients) {
  plan::Plan plan = stage3();
  take(plan, "update", OpKind::NormPartial);
  EXPECT_FINDS(plan, "takes the gradient norm of bucket b");
}

TEST(VerifyTraining, KeepsBucketsApart) {
  plan::Plan plan = stage3();
  plan::Instruction &update = at(plan, "update", OpKind::AdamW);
  update.set_bucket(update.bucket() + 1);
  EXPECT_FINDS(plan, ", but is given storage ");
}

// --- inference plans

plan::Plan inference() {
  return unnumbered(planOfText(modelText(2, 16, 32), splitSettings(std::string("inference ") + kStage3)));
}
plan::Storage &output(plan::Plan &plan) {
  for (plan::Storage &storage : *plan.mutable_storages())
    if (storage.kind() == plan::Storage::OUTPUT)
      return storage;
  ADD_FAILURE() << "there is no output";
  return *plan.mutable_storages(0);
}

TEST(VerifyInference, AcceptsIt) {
  plan::Plan plan = inference();
  EXPECT_EQ(allFindings(plan), "nothing");
  EXPECT_EQ(output(plan).name(), "output:logits");
}

TEST(VerifyInference, StandsAlone) {
  plan::Plan plan = inference();
  segment(plan, "infer").set_name("eval");
  EXPECT_FINDS(plan, "outputs without a segment infer");
  plan = inference();
  plan.add_segments()->set_name("eval");
  EXPECT_FINDS(plan, "segment infer stands beside segment eval: a plan infers or trains");
  plan = inference();
  plan.set_micro_steps(2);
  EXPECT_FINDS(plan, "an inference plan has one micro-step and nothing trainable");
}

TEST(VerifyInference, HasOutputs) {
  plan::Plan plan = inference();
  output(plan).set_kind(plan::Storage::OTHER);
  EXPECT_FINDS(plan, "segment infer has no output");
  plan = inference();
  output(plan).set_name("logits");
  EXPECT_FINDS(plan, "is an output: its name must be output:NAME, and no other's");
  plan = inference();
  output(plan).add_dims(2);
  EXPECT_FINDS(plan, "elements, its dims say otherwise");
  plan = inference();
  output(plan).set_sharded(true);
  EXPECT_FINDS(plan, "it must be whole, in region carried, and of no bucket");
}

TEST(VerifyInference, WritesItsOutputs) {
  plan::Plan plan = inference();
  const uint64_t offset = output(plan).offset();
  plan::Segment &infer = segment(plan, "infer");
  for (int i = 0; i < infer.instructions_size(); ++i)
    if (infer.instructions(i).results_size() > 0 && infer.instructions(i).results(0).region() == 1 &&
        infer.instructions(i).results(0).offset() == offset) {
      infer.mutable_instructions()->DeleteSubrange(i, 1);
      break;
    }
  EXPECT_FINDS(plan, "leaves storage output:logits undefined");
}

// --- speed

TEST(VerifySpeed, IsNearlyLinear) {
  plan::Plan plan =
      planOfText(modelText(60, 16, 32),
                 splitSettings("stage=3 shard=4 grad-accumulation=3 bucket-bytes=8KiB persistence-bytes=0"));
  int64_t instructions = 0;
  for (const plan::Segment &segment : plan.segments())
    instructions += segment.instructions_size();
  auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(allFindings(plan), "nothing");
  double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  EXPECT_LT(seconds, static_cast<double>(instructions) * 1e-4) << "3e-6 s each on one idle core";
}

} // namespace
} // namespace zerocc
