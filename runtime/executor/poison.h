#pragma once

#include "runtime/executor/operand.h"

#include <vector>

namespace zerocc {

/// Where the bytes of the arena become undefined in one segment, as commands to overwrite them
/// (--check-memory). The whole arena is poisoned when the segment begins; these are the ranges that die on
/// the way.
///
/// Bytes die after the last access of a life: from a write that does not read them to the last access before
/// the next such write, or to their release. They are poisoned right after that access when the plan's own
/// order puts all other accesses of that life before it, else right before the next write; either way nothing
/// but an access the plan does not order can meet the poison.
struct PoisonSchedule {
  struct At {
    std::vector<ByteRange> before, after; // the instruction's own work, on its stream; ascending
  };
  std::vector<At> instructions;
};
Expected<PoisonSchedule> schedulePoison(const plan::Plan &plan, const plan::Segment &segment,
                                        int64_t shardIndex);

/// What every byte is overwritten with: NaN in all float formats, -1 or out of range as an integer.
constexpr int kPoisonByte = 0xff;

/// The bytes outside the arena that are undefined when `segment` begins: in whole parameter storages of
/// buckets that enter it in state `owner`, the parts of the other ranks.
struct UndefinedAtEntry {
  uint32_t region;
  ByteRange range;
};
std::vector<UndefinedAtEntry> undefinedAtEntry(const plan::Plan &plan, const plan::Segment &segment,
                                               int64_t shardIndex);

} // namespace zerocc
