#pragma once

#include "compiler/support/expected.h"

#include <cstdint>
#include <vector>

namespace zerocc {

/// Which source a sample of a mixture comes from: a pure function of seed and sample number, without a list.
///
/// The sources are the leaves of a balanced binary tree. A node with weights a and b on its sides gives its samples
/// 0 … i - 1 so that floor((i a + phase) / (a + b)) of them go left, where the phase is drawn from the seed: after any
/// number of samples each side has its exact share, rounded up or down. Going down the tree for a sample gives its source
/// and how many samples that source has given before, in O(log sources).
///
/// So a source's share is exact within one sample per level of the tree, over any stretch, and the order is as even as it
/// can be: equal weights alternate.
class Mixture {
public:
  Mixture() = default; // one source
  /// `weights` are positive and their sum is below 2^62.
  Mixture(std::vector<int64_t> weights, uint64_t seed);

  struct Choice {
    int64_t source = 0;
    int64_t index = 0; // among the samples of that source
  };
  Choice operator()(int64_t sample) const;

  const std::vector<int64_t> &weights() const { return weights_; }

private:
  int64_t weightOf(int64_t begin, int64_t end) const { return begins_[end] - begins_[begin]; }

  std::vector<int64_t> weights_ = {1};
  std::vector<int64_t> begins_ = {0, 1}; // sums of the weights before
  uint64_t seed_ = 0;
};

} // namespace zerocc
