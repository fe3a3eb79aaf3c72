#pragma once

#include <array>
#include <cmath>
#include <cstdint>

namespace zerocc {

/// Philox 4x32-10: counter-based random numbers (Salmon et al., "Parallel random numbers: as easy as 1, 2,
/// 3", SC'11). The same key and counter give the same four words on every machine.
inline std::array<uint32_t, 4> philox(std::array<uint32_t, 4> c, std::array<uint32_t, 2> k) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t(0xD2511F53u) * c[0], p1 = uint64_t(0xCD9E8D57u) * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k[0], static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k[1], static_cast<uint32_t>(p0)};
    k[0] += 0x9E3779B9u;
    k[1] += 0xBB67AE85u;
  }
  return c;
}

/// Which elements a dropout keeps: by seed, step, micro-batch, the node's id and the element's number alone,
/// so never by rank or by how a step is split. An element is dropped with probability `rate`, to within
/// 2^-32.
class DropoutMask {
public:
  DropoutMask(const int64_t *random, double rate, int64_t id)
      : key_{static_cast<uint32_t>(random[0]), static_cast<uint32_t>(random[0] >> 32) ^ 0x64726f70u},
        step_(static_cast<uint32_t>(random[1])), microBatch_(static_cast<uint32_t>(random[2])),
        id_(static_cast<uint32_t>(id)), threshold_(static_cast<uint64_t>(std::ceil(rate * 0x1p32))) {}

  /// Elements [4 block, 4 block + 4).
  std::array<bool, 4> keeps(int64_t block) const {
    const std::array<uint32_t, 4> words =
        philox({static_cast<uint32_t>(block), id_, step_, microBatch_}, key_);
    return {words[0] >= threshold_, words[1] >= threshold_, words[2] >= threshold_, words[3] >= threshold_};
  }

private:
  std::array<uint32_t, 2> key_;
  uint32_t step_, microBatch_, id_;
  uint64_t threshold_;
};

} // namespace zerocc
