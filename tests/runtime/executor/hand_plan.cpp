#include "tests/runtime/executor/hand_plan.h"

namespace zerocc {

HandPlan::HandPlan(int shard, int replicate, int64_t persistent, int64_t carried, int64_t arena,
                   int64_t inputs) {
  plan.mutable_mesh()->set_shard(shard);
  plan.mutable_mesh()->set_replicate(replicate);
  const std::pair<const char *, int64_t> regions[] = {
      {"persistent", persistent}, {"carried", carried}, {"arena", arena}, {"inputs", inputs}};
  for (auto [name, bytes] : regions) {
    plan::RegionSize *region = plan.add_regions();
    region->set_name(name);
    region->set_bytes(bytes);
  }
}

void HandPlan::input(const std::string &name, int64_t offset, std::vector<int64_t> dims) {
  plan::Input *input = plan.add_inputs();
  input->set_name(name);
  input->set_offset(offset);
  input->mutable_dims()->Add(dims.begin(), dims.end());
}

void HandPlan::storage(const std::string &name, PlanRegion region, int64_t offset, int64_t elements,
                       DType dtype) {
  plan::Storage *storage = plan.add_storages();
  storage->set_name(name);
  storage->set_region(region);
  storage->set_offset(offset);
  storage->set_elements(elements);
  storage->set_dtype(static_cast<uint32_t>(dtype));
  storage->set_bucket(-1);
}

void HandPlan::segment(const std::string &name) { plan.add_segments()->set_name(name); }

plan::Instruction &HandPlan::add(OpKind op, std::vector<plan::Operand> inputs,
                                 std::vector<plan::Operand> results, PlanStream stream, Sync sync) {
  plan::Segment *segment = plan.mutable_segments(plan.segments_size() - 1);
  plan::Instruction *instruction = segment->add_instructions();
  instruction->set_op(static_cast<uint32_t>(op));
  instruction->set_stream(stream);
  instruction->set_bucket(-1);
  for (const plan::Operand &operand : inputs)
    *instruction->add_inputs() = operand;
  for (const plan::Operand &operand : results)
    *instruction->add_results() = operand;
  instruction->mutable_wait()->Add(sync.wait.begin(), sync.wait.end());
  instruction->set_record(sync.record);
  segment->set_events(std::max(segment->events(), sync.record));
  return *instruction;
}

plan::Operand in(PlanRegion region, int64_t offset, std::vector<int64_t> dims, std::vector<int64_t> strides) {
  plan::Operand operand;
  operand.set_region(region);
  operand.set_offset(offset);
  operand.mutable_dims()->Add(dims.begin(), dims.end());
  operand.mutable_strides()->Add(strides.begin(), strides.end());
  return operand;
}

plan::Operand ownPart(PlanRegion region, int64_t offset, int64_t elements) {
  plan::Operand operand = in(region, offset, {elements});
  operand.set_rank_stride(elements * 4);
  return operand;
}

HandPlan fetchReducePlan(int shard, int replicate, int64_t elements) {
  const int64_t whole = elements * 4, part = elements / shard, ranks = shard * replicate;
  // arena: [0, whole) bucket 0, then bucket 1's gradient; [whole, 2 whole) bucket 0's gradient; then bucket 1
  HandPlan hand(shard, replicate, 2 * part * 4 + ranks * 8, 0, 3 * whole + 8, whole);
  plan::Bucket *bucket = hand.plan.add_buckets();
  bucket->set_name("b0");
  bucket->set_elements(elements - 3);
  bucket->set_padded_elements(elements);
  plan::Range *range = bucket->add_ranges();
  range->set_begin(0);
  range->set_end(elements - 3);
  hand.input("x", 0, {elements});
  hand.storage("shard0", kPersistentRegion, 0, part);
  hand.storage("shard1", kPersistentRegion, part * 4, part);
  hand.storage("norm", kPersistentRegion, 2 * part * 4, ranks, DType::f64);

  const plan::Operand x = in(kInputsRegion, 0, {elements});
  const plan::Operand shard0 = in(kPersistentRegion, 0, {part}),
                      shard1 = in(kPersistentRegion, part * 4, {part});
  const plan::Operand whole0 = in(kArenaRegion, 0, {elements}),
                      gradient0 = in(kArenaRegion, whole, {elements});
  const plan::Operand whole1 = in(kArenaRegion, 2 * whole, {elements}), gradient1 = whole0;
  const plan::Operand own0 = ownPart(kArenaRegion, whole, part), own1 = ownPart(kArenaRegion, 0, part);
  plan::Operand partial = in(kArenaRegion, 3 * whole, {1}),
                norms = in(kPersistentRegion, 2 * part * 4, {ranks});
  partial.set_dtype(static_cast<uint32_t>(DType::f64));
  norms.set_dtype(static_cast<uint32_t>(DType::f64));

  hand.segment("step");
  hand.add(OpKind::FetchStart, {shard0}, {whole0}, kGatherStream, {.record = 1}).set_location("first");
  hand.add(OpKind::FetchStart, {shard1}, {whole1}, kGatherStream, {.record = 2});
  hand.add(OpKind::FetchWait, {whole0}, {whole0}, kComputeStream, {.wait = {1}});
  hand.add(OpKind::Mul, {whole0, x}, {gradient0}, kComputeStream, {.record = 3});
  hand.add(OpKind::Release, {whole0}, {});
  hand.add(OpKind::ReduceStart, {gradient0}, {own0}, kReduceStream, {.wait = {3}}).set_location("reduce0");
  hand.add(OpKind::AllReduceStart, {own0}, {own0}, kReduceStream, {.record = 4});
  hand.add(OpKind::FetchWait, {whole1}, {whole1}, kComputeStream, {.wait = {2}});
  hand.add(OpKind::Mul, {whole1, x}, {gradient1}, kComputeStream, {.record = 5});
  hand.add(OpKind::Release, {whole1}, {});
  hand.add(OpKind::ReduceStart, {gradient1}, {own1}, kReduceStream, {.wait = {5}});
  hand.add(OpKind::AllReduceStart, {own1}, {own1}, kReduceStream, {.record = 6});
  hand.add(OpKind::ReduceWait, {own0}, {own0}, kComputeStream, {.wait = {4}});
  hand.add(OpKind::NormPartial, {own0}, {partial}).set_bucket(0);
  hand.add(OpKind::ExchangeStart, {partial}, {norms});
  hand.add(OpKind::Accumulate, {shard0, own0}, {shard0});
  hand.add(OpKind::ReduceWait, {own1}, {own1}, kComputeStream, {.wait = {6}});
  hand.add(OpKind::Accumulate, {shard1, own1}, {shard1});
  return hand;
}

float parameterOf(int bucket, int64_t i) { return static_cast<float>((i * 3 + bucket * 7) % 11 - 5); }
float xOf(int rank, int64_t i) { return static_cast<float>((i + rank * 2) % 5 - 2); }

std::vector<float> fetchReduceTruth(int shard, int replicate, int64_t elements, int bucket, int steps) {
  std::vector<float> parameters(elements);
  for (int64_t i = 0; i < elements; ++i) {
    parameters[i] = parameterOf(bucket, i);
    for (int step = 0; step < steps; ++step) {
      float gradient = 0;
      for (int rank = 0; rank < shard * replicate; ++rank)
        gradient += parameters[i] * xOf(rank, i);
      parameters[i] += gradient;
    }
  }
  return parameters;
}

Status fillFetchReduce(RankGroup &group, int64_t elements) {
  return group.forEachRank([&](Executor &executor) -> Status {
    std::vector<float> x(elements);
    for (int64_t i = 0; i < elements; ++i)
      x[i] = xOf(executor.rank(), i);
    ZEROCC_TRY(executor.copyIn("x", x.data(), elements * 4));
    for (int bucket : {0, 1}) {
      const std::string name = "shard" + std::to_string(bucket);
      std::vector<float> shard(executor.storage(name)->elements());
      for (size_t i = 0; i < shard.size(); ++i)
        shard[i] = parameterOf(bucket, executor.shardIndex() * static_cast<int64_t>(shard.size()) + i);
      ZEROCC_TRY(executor.writeStorage(name, shard.data(), shard.size() * 4));
    }
    return success();
  });
}

std::vector<float> readFetchReduce(RankGroup &group, int64_t elements, int bucket) {
  std::vector<float> whole(elements);
  const std::string name = "shard" + std::to_string(bucket);
  const int64_t part = group.executor(0).storage(name)->elements();
  for (int rank = 0; rank < elements / part; ++rank)
    (void)group.executor(rank).readStorage(name, &whole[rank * part], part * 4);
  return whole;
}

} // namespace zerocc
