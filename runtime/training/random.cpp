#include "runtime/training/random.h"

#include <cmath>

namespace zerocc {

std::array<uint32_t, 4> philox(std::array<uint32_t, 4> c, std::array<uint32_t, 2> k) {
  for (int round = 0; round < 10; ++round) {
    uint64_t p0 = uint64_t(0xD2511F53u) * c[0], p1 = uint64_t(0xCD9E8D57u) * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k[0], static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k[1], static_cast<uint32_t>(p0)};
    k[0] += 0x9E3779B9u;
    k[1] += 0xBB67AE85u;
  }
  return c;
}

double standardNormal(uint64_t seed, uint32_t stream, uint64_t element) {
  uint64_t block = element / 2;
  auto words = philox({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), stream, 0x696e6974u},
                      {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  // Two words a uniform of 53 bits, in (0, 1] for the logarithm.
  auto uniform = [](uint32_t high, uint32_t low) {
    return (static_cast<double>((uint64_t(high) << 32 | low) >> 11) + 1.0) * 0x1p-53;
  };
  double radius = std::sqrt(-2.0 * std::log(uniform(words[0], words[1])));
  double angle = 6.283185307179586 * uniform(words[2], words[3]);
  return radius * (element % 2 ? std::sin(angle) : std::cos(angle));
}

} // namespace zerocc
