#pragma once

#include "compiler/ops/op_kind.h"
#include "runtime/executor/rank_group.h"

#include <vector>

namespace zerocc {

/// Events of an instruction.
struct Sync {
  std::vector<uint32_t> wait = {};
  uint32_t record = 0;
};

/// Plans written by hand, a line per instruction.
class HandPlan {
public:
  /// Region sizes in bytes.
  HandPlan(int shard, int replicate, int64_t persistent, int64_t carried, int64_t arena, int64_t inputs);

  void input(const std::string &name, int64_t offset, std::vector<int64_t> dims);
  void storage(const std::string &name, PlanRegion region, int64_t offset, int64_t elements,
               DType dtype = DType::f32);
  void segment(const std::string &name);

  /// Appends to the last segment.
  plan::Instruction &add(OpKind op, std::vector<plan::Operand> inputs, std::vector<plan::Operand> results,
                         PlanStream stream = kComputeStream, Sync sync = {});

  plan::Plan plan;
};

/// An f32 operand at a byte offset.
plan::Operand in(PlanRegion region, int64_t offset, std::vector<int64_t> dims,
                 std::vector<int64_t> strides = {});
/// That of this rank, when those of all ranks lie one behind the other: rank r's is r * bytes further.
plan::Operand ownPart(PlanRegion region, int64_t offset, int64_t elements);

/// A step as ZeRO stage 3 takes it: two buckets of `elements` each are fetched into arena bytes, the second
/// one into bytes that the first one's gradient leaves; gradients are reduced in place, and added to the
/// shards. Storages: shard0, shard1, norm (world exchange of norm partials, f64). Input: x[elements].
/// gradient of bucket b = parameters of b * x.
HandPlan fetchReducePlan(int shard, int replicate, int64_t elements);

/// What the shards are after `steps` of it, computed in the plainest way. x of rank r is xOf(r, i).
std::vector<float> fetchReduceTruth(int shard, int replicate, int64_t elements, int bucket, int steps);
float parameterOf(int bucket, int64_t i);
float xOf(int rank, int64_t i);

/// Fills shards and x on every rank.
Status fillFetchReduce(RankGroup &group, int64_t elements);
/// The whole parameters of a bucket, put together from the first replica's shards.
std::vector<float> readFetchReduce(RankGroup &group, int64_t elements, int bucket);

} // namespace zerocc
