#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace zerocc {

/// Bytes that are needed from time `lower` up to, not including, time `upper`.
struct PackBuffer {
  int64_t lower = 0, upper = 0;
  int64_t size = 0;
  int64_t alignment = 64;
};

struct Packing {
  std::vector<int64_t> offsets; // one per buffer, in their order
  int64_t peak = 0;             // end of the highest buffer
  int64_t lowerBound = 0;       // most bytes alive at one time: no packing can be smaller
  std::string order;            // which greedy order won, "size/lowest"
};

/// quick: the three orders that win most often. full: all of them.
enum class PackEffort : uint8_t { quick, full };

/// Gives every buffer an offset so that buffers alive at the same time share no byte. Sizes count rounded up
/// to the alignment. Tries greedy orders and keeps the smallest result; stops at the first that reaches the
/// lower bound. Deterministic. Buffers of no bytes or no lifetime lie at offset 0.
Packing pack(const std::vector<PackBuffer> &buffers, PackEffort effort = PackEffort::full);

} // namespace zerocc
