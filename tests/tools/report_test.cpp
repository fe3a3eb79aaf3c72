#include "runtime/plan/report.h"

#include "runtime/collectives/communicator.h"
#include "tests/tools/hand_made_plan.h"
#include "tools/command_inspect.h"
#include "tools/command_inspect_schedule.h"
#include "tools/table.h"

#include "llvm/Support/JSON.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

namespace zerocc {
namespace {

using Region = HandMadePlan::Region;
using Made = HandMadePlan;

// --- traffic

// What a segment of the given stage moves for bucket `b`, without compute.
void fetch(Made &made, plan::Segment *segment, int b) {
  Made::add(segment, OpKind::FetchStart, {Made::operand(Made::kPersistent, 0, {made.part(b)})},
            {Made::operand(Made::kArena, 0, {made.padded(b)})}, "", b, Made::kGather);
}
void reduce(Made &made, plan::Segment *segment, int b) {
  Made::add(segment, OpKind::ReduceStart, {Made::operand(Made::kArena, 0, {made.padded(b)})},
            {Made::operand(Made::kCarried, 0, {made.part(b)})}, "gradient", b, Made::kReduce);
}
void exchange(Made &made, plan::Segment *segment, int64_t scalars) {
  int64_t ranks = static_cast<int64_t>(made.plan.mesh().shard() * made.plan.mesh().replicate());
  Made::add(segment, OpKind::ExchangeStart, {Made::operand(Made::kArena, 0, {scalars}, DType::f64)},
            {Made::operand(Made::kArena, 0, {ranks, scalars}, DType::f64)}, "update", -1, Made::kReduce);
}

TEST(Traffic, CountsARefetchedBucketTwiceAndItsGradientsOnce) {
  Made made(4);
  int b = made.bucket({{"w", {1000}}}, "refetched", "micro-step", "sharded"); // padded to 1024
  plan::Segment *only = made.segment("only");
  fetch(made, only, b);
  fetch(made, only, b);
  reduce(made, only, b);
  exchange(made, made.segment("update"), 4);
  TrafficReport report = reportTraffic(made.plan);
  EXPECT_EQ(report.step.allGather, 2 * 3 * 256 * 4);
  EXPECT_EQ(report.step.reduceScatter, 3 * 256 * 4);
  EXPECT_EQ(report.step.allReduce, 0);
  EXPECT_EQ(report.step.exchange, 3 * 4 * 8);
  EXPECT_EQ(report.step.total(), 3 * 3 * 256 * 4 + 96);
  EXPECT_EQ(report.minimum.allGather, 2 * 1000 * 4 * 3 / 4);
  EXPECT_EQ(report.minimum.reduceScatter, 1000 * 4 * 3 / 4);
  EXPECT_EQ(report.minimum.total(), 9000 + 96);
  EXPECT_EQ(report.padding(), 9 * 256 * 4 - 9000);
  EXPECT_EQ(report.buckets[b].step.total(), 9 * 256 * 4);
  EXPECT_EQ(report.buckets[b].minimum.total(), 9000);
}

TEST(Traffic, RunsFirstAndLastOnceAndMiddleForTheOthers) {
  Made made(2, 1, 5);
  int b = made.bucket({{"w", {64}}}, "kept", "micro-step", "sharded");
  for (const char *name : {"first", "middle", "last"}) {
    plan::Segment *segment = made.segment(name);
    fetch(made, segment, b);
    reduce(made, segment, b);
  }
  fetch(made, made.segment("eval"), b);
  TrafficReport report = reportTraffic(made.plan);
  EXPECT_EQ(report.step.allGather, 5 * 32 * 4);
  EXPECT_EQ(report.step.reduceScatter, 5 * 32 * 4);
  EXPECT_EQ(report.minimum.total(), report.step.total());
  EXPECT_EQ(report.eval.total(), 32 * 4);
  ASSERT_EQ(report.segments.size(), 4u);
  EXPECT_EQ(report.segments[1].runs, 3);
  EXPECT_EQ(report.segments[3].runs, 0);
}

TEST(Traffic, CountsTheGatheringOfAReducedGradientAsAllGather) {
  Made made(2);
  int b = made.bucket({{"w", {64}}}, "whole", "boundary", "whole");
  plan::Segment *only = made.segment("only");
  reduce(made, only, b);
  Made::add(only, OpKind::AllGatherStart, {Made::operand(Made::kCarried, 0, {64})},
            {Made::operand(Made::kCarried, 0, {64})}, "gradient", b, Made::kReduce);
  TrafficReport report = reportTraffic(made.plan);
  EXPECT_EQ(report.step.allGather, 32 * 4);
  EXPECT_EQ(report.step.reduceScatter, 32 * 4);
  EXPECT_EQ(report.padding(), 0);
}

TEST(Traffic, CountsTheReplicateAxisAsAllReduceOfThePart) {
  Made made(2, 2);
  int b = made.bucket({{"w", {128}}}, "whole", "boundary", "sharded");
  plan::Segment *only = made.segment("only");
  fetch(made, only, b);
  reduce(made, only, b);
  plan::Operand part = Made::operand(Made::kCarried, 0, {64});
  Made::add(only, OpKind::AllReduceStart, {part}, {part}, "gradient", b, Made::kReduce);
  exchange(made, made.segment("update"), 4);
  TrafficReport report = reportTraffic(made.plan);
  EXPECT_EQ(report.step.allReduce, 2 * 64 / 2 * 4);
  EXPECT_EQ(report.step.exchange, 3 * 4 * 8);
  EXPECT_EQ(report.step.allReduceWithScalars(), 256 + 96);
  EXPECT_EQ(report.padding(), 0);
}

// Bytes per element, elements 128, 2 ranks, 3 micro-steps: f = 1/2, so that one pass of the bucket is 256 B.
struct LeastCase {
  const char *parameters, *gradients, *states;
  bool trainable;
  int64_t passes;
};

TEST(Traffic, MinimumFollowsTheFields) {
  for (const LeastCase &c : std::vector<LeastCase>{{"whole", "boundary", "whole", true, 2},
                                                   {"whole", "boundary", "sharded", true, 2},
                                                   {"whole", "micro-step", "sharded", true, 1 + 3},
                                                   {"kept", "micro-step", "sharded", true, 3 + 3},
                                                   {"refetched", "micro-step", "sharded", true, 6 + 3},
                                                   {"refetched", "boundary", "sharded", true, 6 + 1},
                                                   {"whole", "boundary", "whole", false, 0},
                                                   {"kept", "boundary", "sharded", false, 3},
                                                   {"refetched", "boundary", "sharded", false, 6}}) {
    Made made(2, 1, 3);
    int b = made.bucket({{"w", {128}}}, c.parameters, c.gradients, c.states, c.trainable);
    fetch(made, made.segment("first"), b);
    EXPECT_EQ(reportTraffic(made.plan).minimum.total(), c.passes * 256)
        << c.parameters << " " << c.gradients << " " << c.states << " trainable=" << c.trainable;
  }
}

TEST(Traffic, MinimumIsNothingForABucketThatNothingReads) {
  Made made(2);
  made.bucket({{"unused", {128}}}, "refetched", "boundary", "sharded", false);
  made.segment("only");
  EXPECT_EQ(reportTraffic(made.plan).minimum.total(), 0);
}

TEST(Traffic, MinimumIsRoundedUpOnce) {
  Made made(3);
  int a = made.bucket({{"a", {1}}}, "kept", "micro-step", "sharded", false);
  int b = made.bucket({{"b", {1}}}, "kept", "micro-step", "sharded", false);
  plan::Segment *only = made.segment("only");
  fetch(made, only, a);
  fetch(made, only, b);
  EXPECT_EQ(reportTraffic(made.plan).minimum.allGather, 6); // 2 * 8/3
}

TEST(Traffic, EqualsWhatCommunicatorsCount) {
  constexpr int kRanks = 3;
  std::vector<std::unique_ptr<Device>> devices;
  std::vector<Device *> pointers;
  std::vector<StreamId> streams;
  for (int r = 0; r < kRanks; ++r) {
    devices.push_back(makeCpuDevice());
    pointers.push_back(devices.back().get());
    streams.push_back(devices.back()->createStream("r" + std::to_string(r)));
  }
  auto communicators = makeThreadCommunicators(pointers);
  std::vector<std::vector<double>> memory(kRanks, std::vector<double>(1024));
  for (int64_t count : {1, 2, 3, 7, 96}) {
    Communicator::Received before = communicators[0]->received();
    for (int r = 0; r < kRanks; ++r) {
      communicators[r]->allReduce(memory[r].data(), count, DType::f32, streams[r]);
      communicators[r]->allGather(memory[r].data(), memory[r].data() + 512, count, DType::f64, streams[r]);
      communicators[r]->reduceScatter(memory[r].data(), memory[r].data() + 512, count, DType::f32,
                                      streams[r]);
    }
    for (int r = 0; r < kRanks; ++r)
      devices[r]->synchronize(streams[r]);
    Communicator::Received after = communicators[0]->received();

    plan::Segment segment;
    plan::Operand buffer = Made::operand(Made::kArena, 0, {count});
    ReceivedBytes sum, gathered, scattered;
    sum =
        receivedBytes(Made(1, kRanks).plan, *Made::add(&segment, OpKind::AllReduceStart, {buffer}, {buffer}));
    gathered = receivedBytes(Made(kRanks).plan,
                             *Made::add(&segment, OpKind::ExchangeStart,
                                        {Made::operand(Made::kArena, 0, {count}, DType::f64)},
                                        {Made::operand(Made::kArena, 0, {kRanks, count}, DType::f64)}));
    scattered = receivedBytes(Made(kRanks).plan,
                              *Made::add(&segment, OpKind::ReduceStart,
                                         {Made::operand(Made::kArena, 0, {kRanks * count})}, {buffer}));
    EXPECT_EQ(sum.allReduce, after.allReduce - before.allReduce) << count;
    EXPECT_EQ(gathered.exchange, after.allGather - before.allGather) << count;
    EXPECT_EQ(scattered.reduceScatter, after.reduceScatter - before.reduceScatter) << count;
  }
}

TEST(Traffic, SaturatesWhenSizesAreAbsurd) {
  Made made(1 << 20, 1 << 20, UINT32_MAX);
  int b = made.bucket({{"w", {int64_t(1) << 56}}}, "refetched", "micro-step", "sharded");
  for (const char *name : {"first", "middle", "last"}) {
    fetch(made, made.segment(name), b);
    reduce(made, made.plan.mutable_segments(made.plan.segments_size() - 1), b);
  }
  TrafficReport report = reportTraffic(made.plan);
  EXPECT_EQ(report.step.total(), INT64_MAX);
  EXPECT_EQ(report.minimum.total(), INT64_MAX);
}

// --- memory

Made memoryPlan(DType dtype, const char *parameters, const char *gradients, const char *states, int moments) {
  Made made(4);
  int b = made.bucket({{"w", {1000}}}, parameters, gradients, states, true, dtype);
  if (moments > 0)
    made.storage("b0.m", plan::Storage::MOMENT1, b, true, Made::kPersistent, 0);
  if (moments > 1)
    made.storage("b0.v", plan::Storage::MOMENT2, b, true, Made::kPersistent, 4096);
  for (int r = 0; r < 4; ++r)
    made.plan.mutable_regions(r)->set_bytes(1000 * static_cast<uint64_t>(r + 1));
  auto &kinds = *made.plan.mutable_facts()->mutable_peak_kinds();
  kinds["parameters"] = 700;
  kinds["activations"] = 2500;
  kinds["inputs"] = 4000;
  kinds["unused"] = 2800;
  made.plan.mutable_facts()->set_peak_at("/h.1/MatMul");
  made.plan.mutable_facts()->set_arena_lower_bound(2900);
  return made;
}

TEST(Memory, KindsAddUpToThePeak) {
  MemoryReport report = reportMemory(memoryPlan(DType::f32, "whole", "boundary", "whole", 2).plan);
  EXPECT_EQ(report.peak, 10000);
  EXPECT_EQ(report.peakAt, "/h.1/MatMul");
  int64_t sum = 0;
  std::string names;
  for (const MemoryKind &kind : report.kinds) {
    sum += kind.bytes;
    names += kind.name + " ";
  }
  EXPECT_EQ(sum, report.peak);
  EXPECT_EQ(names,
            "parameters gradients optimizer fetched activations workspace inputs constants buffers unused ");
  EXPECT_EQ(report.kinds.back().bytes, 2800);
  EXPECT_EQ(report.arena, 3000);
  EXPECT_EQ(report.arenaWaste(), 100);
}

TEST(Memory, TextbookDividesWhatIsSharded) {
  auto textbook = [](const Made &made) {
    MemoryReport report = reportMemory(made.plan);
    return std::vector<int64_t>{*report.kinds[0].textbook, *report.kinds[1].textbook,
                                *report.kinds[2].textbook, report.textbook};
  };
  using Sizes = std::vector<int64_t>;
  EXPECT_EQ(textbook(memoryPlan(DType::f32, "whole", "boundary", "whole", 2)),
            (Sizes{4000, 4000, 8000, 16000}));
  EXPECT_EQ(textbook(memoryPlan(DType::f32, "whole", "boundary", "sharded", 2)),
            (Sizes{4000, 4000, 2000, 10000}));
  EXPECT_EQ(textbook(memoryPlan(DType::f32, "whole", "micro-step", "sharded", 2)),
            (Sizes{4000, 1000, 2000, 7000}));
  EXPECT_EQ(textbook(memoryPlan(DType::f32, "refetched", "micro-step", "sharded", 2)),
            (Sizes{1000, 1000, 2000, 4000}));
  EXPECT_EQ(textbook(memoryPlan(DType::f32, "kept", "micro-step", "sharded", 1)),
            (Sizes{1000, 1000, 1000, 3000}));
  EXPECT_EQ(textbook(memoryPlan(DType::f32, "whole", "boundary", "whole", 0)), (Sizes{4000, 4000, 0, 8000}));
  // 16 bits: 2 + 2 + 12 bytes a parameter, of which 4 are the master weights
  EXPECT_EQ(textbook(memoryPlan(DType::bf16, "whole", "boundary", "whole", 2)),
            (Sizes{2000, 2000, 12000, 16000}));
}

// --- what is alive

std::string describe(const std::vector<ArenaValue> &values) {
  std::string text;
  for (const ArenaValue &value : values) {
    constexpr const char *kinds[] = {"activation", "fetched", "gradient", "workspace"};
    text += std::string(kinds[static_cast<int>(value.kind)]) + " " + std::to_string(value.first) + "-" +
            std::to_string(value.last) + " @" + std::to_string(value.offset) + "+" +
            std::to_string(value.bytes) + (value.bucket < 0 ? "" : " #" + std::to_string(value.bucket)) +
            "\n";
  }
  return text;
}

plan::Operand arena(uint64_t offset, std::vector<int64_t> dims) {
  return Made::operand(Made::kArena, offset, dims);
}

TEST(ArenaValues, LiveFromTheirWriterToTheirLastReader) {
  Made made(1);
  plan::Segment *only = made.segment("only");
  plan::Operand x = Made::operand(Made::kInputs, 0, {16});
  Made::add(only, OpKind::Exp, {x}, {arena(0, {16})});
  Made::add(only, OpKind::Exp, {arena(0, {16})}, {arena(64, {16})});
  Made::add(only, OpKind::Exp, {arena(64, {16})}, {arena(0, {16})})
      ->set_workspace_bytes(10); // the first is dead
  Made::add(only, OpKind::Accumulate, {arena(0, {16}), arena(64, {16})}, {arena(0, {16})}); // in place
  EXPECT_EQ(describe(arenaValues(made.plan, *only)), "activation 0-1 @0+64\n"
                                                     "activation 1-3 @64+64\n"
                                                     "workspace 2-2 @0+10\n"
                                                     "activation 2-3 @0+64\n");
}

TEST(ArenaValues, GradientsOfABucketAreOneValueUntilTheReductionIsJoined) {
  Made made(2);
  int b = made.bucket({{"w", {48}}, {"v", {32}}}, "whole", "boundary", "sharded"); // 0…48, 64…96 of 128
  plan::Segment *only = made.segment("only");
  plan::Operand x = Made::operand(Made::kInputs, 0, {16});
  Made::add(only, OpKind::Exp, {x}, {arena(200, {8})}); // lies in the gap of the bucket, long dead
  Made::add(only, OpKind::Exp, {x}, {arena(256, {32})});
  Made::add(only, OpKind::Exp, {x}, {arena(0, {48})});
  Made::add(only, OpKind::ClearPadding, {arena(0, {128})}, {arena(0, {128})}, "gradient", b);
  plan::Operand part = Made::operand(Made::kCarried, 0, {64});
  Made::add(only, OpKind::ReduceStart, {arena(0, {128})}, {part}, "gradient", b, Made::kReduce);
  Made::add(only, OpKind::Exp, {x}, {arena(512, {8})});
  Made::add(only, OpKind::ReduceWait, {part}, {part}, "gradient", b);
  EXPECT_EQ(describe(arenaValues(made.plan, *only)), "activation 0-0 @200+32\n"
                                                     "gradient 1-6 @0+512 #0\n"
                                                     "activation 5-5 @512+32\n");
}

TEST(ArenaValues, FullestInstantIsTheNodeThatThePlanNames) {
  Made made(1);
  plan::Segment *only = made.segment("only");
  plan::Operand x = Made::operand(Made::kInputs, 0, {16});
  Made::add(only, OpKind::Exp, {x}, {arena(0, {16})}, "/a");
  Made::add(only, OpKind::Exp, {arena(0, {16})}, {arena(64, {32})}, "/b");
  Made::add(only, OpKind::Exp, {arena(64, {32})}, {arena(192, {16})}, "/c");
  FullestInstant fullest = findFullestInstant(made.plan);
  EXPECT_EQ(fullest.instruction, 1); // as full as the next
  EXPECT_EQ(fullest.bytes, 192);
  EXPECT_EQ(describe(fullest.alive), "activation 1-2 @64+128\nactivation 0-1 @0+64\n");
  made.plan.mutable_facts()->set_peak_at("/c");
  EXPECT_EQ(findFullestInstant(made.plan).instruction, 2);
  EXPECT_EQ(findFullestInstant(Made(1).plan).instruction, -1);
}

// --- names

TEST(Names, LayersEndAtTheFirstNumber) {
  EXPECT_EQ(layerOfName("transformer.h.3.attn.c_attn.weight"), "transformer.h.3");
  EXPECT_EQ(layerOfName("/transformer/h.11/mlp/Gelu_2"), "/transformer/h.11");
  EXPECT_EQ(layerOfName("wte.weight"), "");
  EXPECT_EQ(layerOfName("conv2d.weight"), "");
  EXPECT_EQ(layerOfName("layers.0"), "layers.0");
  EXPECT_EQ(layerOfName(""), "");
}

TEST(Names, BucketsAreNamedByWhatTheyHold) {
  Made made(1);
  int one = made.bucket({{"h.0.w", {32}}}, "whole", "boundary", "whole");
  int layer = made.bucket({{"h.1.w", {32}}, {"h.1.b", {32}}}, "whole", "boundary", "whole");
  int most = made.bucket({{"h.1.a", {32}}, {"h.1.c", {32}}, {"h.1.d", {32}}, {"h.1.e", {32}}}, "whole",
                         "boundary", "whole");
  int several =
      made.bucket({{"ln_f.w", {32}}, {"h.3.b", {32}}, {"h.2.b", {32}}}, "whole", "boundary", "whole");
  EXPECT_EQ(bucketLabel(made.plan, one), "h.0.w");
  EXPECT_EQ(bucketLabel(made.plan, layer), "h.1 (b, w)");
  EXPECT_EQ(bucketLabel(made.plan, most), "h.1 (4 tensors)");
  EXPECT_EQ(bucketLabel(made.plan, several), "h.2 … ln_f.w");
}

// --- a small plan as people see it: two layers at stage 3 on two ranks

plan::Plan twoLayers() {
  Made made(2);
  plan::Plan &plan = made.plan;
  int second = made.bucket({{"h.1.w", {8, 8}}}, "kept", "micro-step", "sharded");
  int first = made.bucket({{"h.0.w", {8, 8}}, {"h.0.b", {8}}}, "refetched", "micro-step", "sharded", false);
  int head = made.bucket({{"head.b", {8}}}, "whole", "micro-step", "sharded");
  made.storage("b0.param", plan::Storage::PARAMETER, second, true, Made::kPersistent, 0);
  made.storage("b1.param", plan::Storage::PARAMETER, first, true, Made::kPersistent, 128);
  made.storage("b2.param", plan::Storage::PARAMETER, head, false, Made::kPersistent, 384);
  made.storage("b0.grad", plan::Storage::GRADIENT, second, true, Made::kCarried, 0);
  made.storage("b2.grad", plan::Storage::GRADIENT, head, true, Made::kCarried, 128);
  plan::Input *input = plan.add_inputs();
  input->set_name("ids");
  input->set_role("tokens");
  input->set_dtype(static_cast<uint32_t>(DType::i64));
  input->add_dims(2);
  input->add_dims(16);
  plan.set_micro_batch(2);
  plan.set_numerics_key("mesh=2x1");
  plan.mutable_provenance()->set_model_file("two.onnx");
  plan.mutable_provenance()->add_notes("kept \"head.b\" tied");
  plan::Facts *facts = plan.mutable_facts();
  facts->set_optimizer("sgd");
  facts->set_loss("cross-entropy:logits");
  facts->set_precision("f32");
  facts->set_stage(3);
  facts->set_nodes(12);
  facts->set_peak_at("/h.1/MatMul");
  (*facts->mutable_peak_kinds())["parameters"] = 640;
  (*facts->mutable_peak_kinds())["fetched"] = 768;
  facts->set_arena_lower_bound(1500);
  plan.mutable_defaults()->set_lr(0.1);
  for (auto [region, bytes] : {std::pair(0, 1024), std::pair(1, 256), std::pair(2, 2048)})
    plan.mutable_regions(region)->set_bytes(static_cast<uint64_t>(bytes));

  plan::Segment *only = made.segment("only");
  for (auto [bucket, exit] :
       {std::pair(second, "owner"), std::pair(first, "owner"), std::pair(head, "whole")}) {
    plan::BucketState *state = only->add_bucket_states();
    state->set_bucket(static_cast<uint32_t>(bucket));
    state->set_entry("owner");
    state->set_exit(exit);
  }
  plan::Operand part0 = Made::operand(Made::kPersistent, 0, {32}),
                part1 = Made::operand(Made::kPersistent, 128, {64});
  plan::Operand headWhole = Made::operand(Made::kPersistent, 384, {64});
  plan::Operand whole0 = arena(512, {64}), whole1 = arena(0, {128}), again1 = arena(1024, {128});
  plan::Operand w0 = arena(0, {8, 8}), w1 = arena(512, {8, 8}), x = Made::operand(Made::kInputs, 0, {2, 8});
  plan::Operand y0 = arena(768, {2, 8}), y1 = arena(832, {2, 8}), grad = arena(1536, {64});
  auto *fetch1 = Made::add(only, OpKind::FetchStart, {part1}, {whole1}, "/h.0/MatMul", first, Made::kGather);
  auto *wait1 = Made::add(only, OpKind::FetchWait, {whole1}, {whole1}, "/h.0/MatMul", first);
  Made::after(only, wait1, fetch1);
  auto *fetch0 = Made::add(only, OpKind::FetchStart, {part0}, {whole0}, "/h.1/MatMul", second, Made::kGather);
  Made::add(only, OpKind::MatMul, {x, w0}, {y0}, "/h.0/MatMul");
  Made::add(only, OpKind::Add, {y0, arena(256, {8})}, {y0}, "/h.0/Add");
  auto *wait0 = Made::add(only, OpKind::FetchWait, {whole0}, {whole0}, "/h.1/MatMul", second);
  Made::after(only, wait0, fetch0);
  auto *refetch1 =
      Made::add(only, OpKind::FetchStart, {part1}, {again1}, "/h.0/MatMul~", first, Made::kGather);
  Made::add(only, OpKind::Release, {whole1}, {}, "/h.0/Add", first);
  auto *fetchHead =
      Made::add(only, OpKind::FetchStart, {headWhole}, {headWhole}, "/head/Add", head, Made::kGather);
  Made::add(only, OpKind::MatMul, {y0, w1}, {y1}, "/h.1/MatMul");
  auto *waitHead = Made::add(only, OpKind::FetchWait, {headWhole}, {headWhole}, "/head/Add", head);
  Made::after(only, waitHead, fetchHead);
  Made::add(only, OpKind::Add, {y1, Made::operand(Made::kPersistent, 384, {8})}, {y1}, "/head/Add");
  auto *headGradient = Made::add(only, OpKind::ReduceSum, {y1}, {arena(1792, {8})}, "/head/Add~");
  plan::Operand headPart = Made::operand(Made::kCarried, 128, {32});
  auto *reduceHead =
      Made::add(only, OpKind::ReduceStart, {arena(1792, {64})}, {headPart}, "gradient", head, Made::kReduce);
  Made::after(only, reduceHead, headGradient);
  auto *gradient = Made::add(only, OpKind::MatMul, {y0, y1}, {arena(1536, {8, 8})}, "/h.1/MatMul~");
  auto *reduce0 = Made::add(only, OpKind::ReduceStart, {grad}, {Made::operand(Made::kCarried, 0, {32})},
                            "gradient", second, Made::kReduce);
  Made::after(only, reduce0, gradient);
  Made::add(only, OpKind::Release, {whole0}, {}, "/h.1/MatMul~", second);
  auto *waitAgain = Made::add(only, OpKind::FetchWait, {again1}, {again1}, "/h.0/MatMul~", first);
  Made::after(only, waitAgain, refetch1);
  Made::add(only, OpKind::MatMul, {y1, arena(1024, {8, 8})}, {y0}, "/h.0/MatMul~");
  Made::add(only, OpKind::Release, {again1}, {}, "/h.0/MatMul~", first);
  auto *headReduced = Made::add(only, OpKind::ReduceWait, {headPart}, {headPart}, "gradient", head);
  Made::after(only, headReduced, reduceHead);
  auto *reduced = Made::add(only, OpKind::ReduceWait, {Made::operand(Made::kCarried, 0, {32})},
                            {Made::operand(Made::kCarried, 0, {32})}, "gradient", second);
  Made::after(only, reduced, reduce0);

  plan::Segment *update = made.segment("update");
  plan::BucketState *state = update->add_bucket_states();
  state->set_bucket(static_cast<uint32_t>(head));
  state->set_entry("whole");
  state->set_exit("owner");
  exchange(made, update, 4);
  Made::add(update, OpKind::Sgd, {Made::operand(Made::kPersistent, 384, {32})}, {}, "update", head);
  made.segment("eval");
  return plan;
}

void expectGolden(const std::string &text, const std::string &file) {
  std::string path = std::string(ZEROCC_SOURCE_DIR) + "/tests/tools/" + file;
  if (std::getenv("UPDATE_GOLDEN")) {
    std::ofstream(path) << text;
    return;
  }
  std::ifstream stream(path);
  std::stringstream expected;
  expected << stream.rdbuf();
  EXPECT_EQ(text, expected.str()) << "UPDATE_GOLDEN=1 rewrites " << path;
}

TEST(Inspect, ScheduleFollowsEachBucketFromFetchToRelease) {
  expectGolden(scheduleText(twoLayers()), "schedule.golden");
}
TEST(Inspect, SummaryOfTwoLayers) { expectGolden(planSummary(twoLayers()), "summary.golden"); }
TEST(Inspect, JsonOfTwoLayers) { expectGolden(planJson(twoLayers()), "json.golden"); }

TEST(Inspect, ScheduleIsNarrowEnough) {
  plan::Plan plan = twoLayers();
  std::string longName(300, 'n');
  for (plan::Instruction &instruction : *plan.mutable_segments(0)->mutable_instructions())
    instruction.set_location("/h.0/" + longName + instruction.location());
  for (plan::Parameter &parameter : *plan.mutable_parameters())
    parameter.set_name(longName + parameter.name());
  std::istringstream lines(scheduleText(plan));
  for (std::string line; std::getline(lines, line);)
    EXPECT_LE(textWidth(line), 120) << line;
}

TEST(Inspect, ScheduleOfOneSegmentCanBeLimited) {
  std::string text = scheduleText(twoLayers(), {"only", 2});
  EXPECT_NE(text.find("segment only: 22 instructions"), std::string::npos);
  EXPECT_NE(text.find("… 20 more\n"), std::string::npos);
  EXPECT_EQ(text.find("segment update"), std::string::npos);
  EXPECT_EQ(text.find("not shown"), std::string::npos);
}

TEST(Inspect, JsonHasTheFieldsOfTheInterface) {
  auto parsed = llvm::json::parse(planJson(twoLayers()));
  ASSERT_TRUE(static_cast<bool>(parsed));
  const llvm::json::Object &object = *parsed->getAsObject();
  EXPECT_EQ(*object.getInteger("schema"), 1);
  EXPECT_EQ(*object.getInteger("ranks"), 2);
  EXPECT_EQ(*object.getInteger("stage"), 3);
  EXPECT_EQ(*object.getObject("model")->getInteger("parameters"), 64 + 72 + 8);
  const llvm::json::Object &memory = *object.getObject("memory");
  int64_t sum = 0;
  for (const char *kind : {"parameters", "gradients", "optimizer", "fetched", "activations", "workspace",
                           "inputs", "constants", "buffers", "unused"})
    sum += *memory.getInteger(kind);
  EXPECT_EQ(*memory.getInteger("peak"), sum);
  const llvm::json::Object &traffic = *object.getObject("traffic");
  EXPECT_EQ(*traffic.getInteger("total"), *traffic.getInteger("all_gather") +
                                              *traffic.getInteger("reduce_scatter") +
                                              *traffic.getInteger("all_reduce"));
  EXPECT_EQ(*traffic.getInteger("total"), *traffic.getInteger("minimum") + *traffic.getInteger("padding"));
  EXPECT_EQ(object.getArray("buckets")->size(), 3u);
}

TEST(Inspect, JsonHoldsAnyNameAndIsAlwaysTheSame) {
  plan::Plan plan = twoLayers();
  plan.mutable_parameters(0)->set_name("\x01\"wé");
  EXPECT_TRUE(static_cast<bool>(llvm::json::parse(planJson(plan))));
  EXPECT_EQ(planJson(plan), planJson(plan));
}

TEST(Inspect, TraceShowsWhatOverlaps) {
  auto parsed = llvm::json::parse(scheduleTrace(twoLayers()));
  ASSERT_TRUE(static_cast<bool>(parsed));
  const llvm::json::Array &events = *parsed->getAsObject()->getArray("traceEvents");
  std::map<std::string, int64_t> starts;
  int64_t shown = 0;
  for (const llvm::json::Value &event : events)
    if (*event.getAsObject()->getString("ph") == "X") {
      ++shown;
      starts.insert({event.getAsObject()->getString("name")->str(), *event.getAsObject()->getInteger("ts")});
    }
  EXPECT_EQ(shown, 22 - 9 + 2); // waits and releases take no time
  EXPECT_EQ(starts["fetch.start #b1"], 0);
  EXPECT_EQ(starts["fetch.start #b0"], 1); // while the first product runs
  EXPECT_EQ(starts["matmul"], 1);
}

// --- tables

TEST(Tables, AlignCellsOfAnyWidth) {
  Table table({{"name", Align::left, 8}, {"size", Align::right}});
  table.add({"ä…", "1"});
  table.add({"a very long name", "1000"});
  table.addRule();
  table.add({"sum"});
  EXPECT_EQ(table.text(), "  name      size\n"
                          "  --------  ----\n"
                          "  ä…           1\n"
                          "  …ng name  1000\n"
                          "  --------  ----\n"
                          "  sum\n");
}

TEST(Tables, ShowControlCharactersAsBytes) {
  EXPECT_EQ(printable("a\x1b[31m\n\xff\xe2\x80\xae漢"), "a\\x1b[31m\\x0a\\xff\\xe2\\x80\\xae漢");
  EXPECT_EQ(textWidth("漢"), 2);
  EXPECT_EQ(fit("漢漢漢", 4), "…漢 ");
}

TEST(Tables, QuoteCsv) {
  Table table({{"name"}, {"bytes"}});
  table.add({"a,\"b\"", "1"});
  table.addRule();
  table.add({"c"});
  EXPECT_EQ(table.csv(), "name,bytes\n\"a,\"\"b\"\"\",1\nc,\n");
}

TEST(Tables, FormatSizes) {
  EXPECT_EQ(formatCount(0), "0");
  EXPECT_EQ(formatCount(-1234567), "-1,234,567");
  EXPECT_EQ(formatBytes(1023), "1023 B");
  EXPECT_EQ(formatBytes(1024), "1.00 KiB");
  EXPECT_EQ(formatBytes(1226834), "1.17 MiB");
  EXPECT_EQ(formatBytes((int64_t(1) << 30) - 1), "1.00 GiB");
  EXPECT_EQ(formatBytes(int64_t(100) << 30), "100 GiB");
  EXPECT_EQ(formatBytesExactly(2048), "2.00 KiB (2,048 B)");
  EXPECT_EQ(formatBytesExactly(12), "12 B");
  EXPECT_EQ(formatRate(12.34e9), "12.3 GB/s");
  EXPECT_EQ(formatDuration(1500000), "1.50 ms");
  EXPECT_EQ(formatDuration(850), "850 ns");
  EXPECT_EQ(formatShare(1, 8), "12.5 %");
  EXPECT_EQ(formatShare(1, 0), "-");
}

} // namespace
} // namespace zerocc
