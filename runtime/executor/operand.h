#pragma once

#include "compiler/support/attributes.h"
#include "compiler/support/dtype.h"
#include "compiler/support/expected.h"

#include "runtime/plan/plan.pb.h"

namespace zerocc {

/// Bytes [begin, end) of a region.
struct ByteRange {
  int64_t begin = 0, end = 0;
  int64_t bytes() const { return end - begin; }
  bool empty() const { return begin >= end; }
};

/// The numbers of Plan.regions.
enum PlanRegion : uint32_t { kPersistentRegion = 0, kCarriedRegion = 1, kArenaRegion = 2, kInputsRegion = 3 };

/// The numbers of Instruction.stream.
enum PlanStream : uint32_t { kComputeStream = 0, kGatherStream = 1, kReduceStream = 2, kMaxStreams = 8 };

/// The bytes that an operand touches on the rank with this index on the shard axis, from its lowest element
/// to its highest. Refuses an operand that is not a tensor or leaves its region.
Expected<ByteRange> operandBytes(const plan::Plan &plan, const plan::Operand &operand, int64_t shardIndex);

int64_t operandElements(const plan::Operand &operand);
bool isRowMajor(const plan::Operand &operand);

Attributes attributesOf(const plan::Instruction &instruction);

/// `instruction 17 (reduce.start #b1, /h.3/attn/MatMul)`
std::string instructionText(const plan::Plan &plan, const plan::Segment &segment, int index);

} // namespace zerocc
