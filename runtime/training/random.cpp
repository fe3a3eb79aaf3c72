#include "runtime/training/random.h"

#include <cmath>

namespace zerocc {

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
