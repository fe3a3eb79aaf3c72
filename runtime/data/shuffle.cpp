#include "runtime/data/shuffle.h"

#include <cassert>

namespace zerocc {

uint64_t mixBits(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

Shuffle::Shuffle(uint64_t seed, uint64_t epoch, uint64_t count) : count_(count) {
  uint64_t state = mixBits(seed + 0x9e3779b97f4a7c15) ^ mixBits(epoch + 0xd1b54a32d192ed03);
  for (uint64_t &key : keys_)
    key = mixBits(state += 0x9e3779b97f4a7c15);
  while (halfBits_ < 32 && count > uint64_t(1) << (2 * halfBits_))
    ++halfBits_;
  assert(halfBits_ < 32 && "more samples than a file can hold");
}

uint64_t Shuffle::operator()(uint64_t index) const {
  const uint64_t mask = (uint64_t(1) << halfBits_) - 1;
  do {
    uint64_t left = index >> halfBits_, right = index & mask;
    for (uint64_t key : keys_) {
      uint64_t next = left ^ (mixBits(right + key) & mask);
      left = right;
      right = next;
    }
    index = left << halfBits_ | right;
  } while (index >= count_);
  return index;
}

} // namespace zerocc
