#pragma once

#include <cstdint>

namespace zerocc {

/// The finalizer of SplitMix64: every bit of the result depends on every bit of `x`.
uint64_t mixBits(uint64_t x);

/// A pseudo-random order of `count` samples that needs no list of them: a Feistel network permutes the
/// smallest 4^h >= count numbers, and a result beyond the count is permuted again until it is inside (at most
/// 4, on average below 4 rounds trips; it ends since a permutation walks in cycles and the start lies
/// inside). The order depends on seed, epoch and count alone.
class Shuffle {
public:
  Shuffle(uint64_t seed, uint64_t epoch, uint64_t count);
  uint64_t operator()(uint64_t index) const;

private:
  static constexpr int kRounds = 6;
  uint64_t keys_[kRounds];
  uint64_t count_;
  int halfBits_ = 0;
};

} // namespace zerocc
