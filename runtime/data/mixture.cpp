#include "runtime/data/mixture.h"

#include "runtime/data/shuffle.h"

#include <cassert>

namespace zerocc {

Mixture::Mixture(std::vector<int64_t> weights, uint64_t seed) : weights_(std::move(weights)), seed_(seed) {
  assert(!weights_.empty() && "a mixture of nothing");
  begins_ = {0};
  for (int64_t weight : weights_) {
    assert(weight > 0 && weight <= (int64_t(1) << 62) - begins_.back());
    begins_.push_back(begins_.back() + weight);
  }
}

Mixture::Choice Mixture::operator()(int64_t sample) const {
  int64_t begin = 0, end = static_cast<int64_t>(weights_.size()), index = sample;
  for (uint64_t node = 1; end - begin > 1;) {
    const int64_t middle = begin + (end - begin) / 2;
    const auto left = static_cast<unsigned __int128>(weightOf(begin, middle)), all = left + weightOf(middle, end);
    const uint64_t phase = mixBits(seed_ + 0x9e3779b97f4a7c15 * node) % static_cast<uint64_t>(all);
    const auto before = static_cast<int64_t>((left * index + phase) / all);
    const auto behind = static_cast<int64_t>((left * (index + 1) + phase) / all);
    const bool isLeft = behind > before;
    index = isLeft ? before : index - before;
    (isLeft ? end : begin) = middle;
    node = 2 * node + (isLeft ? 0 : 1);
  }
  return {begin, index};
}

} // namespace zerocc
