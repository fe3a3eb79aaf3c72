#pragma once

#include <array>
#include <cstdint>

namespace zerocc {

/// Philox 4x32-10: counter-based random numbers (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
/// SC'11). The same key and counter give the same four words on every machine.
std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

/// Element `element` of the standard normal stream `stream` under `seed` (Box-Muller over two Philox words). Depends on
/// nothing else, so that a rank can fill its own part alone.
double standardNormal(uint64_t seed, uint32_t stream, uint64_t element);

} // namespace zerocc
