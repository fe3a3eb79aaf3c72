#pragma once

#include "compiler/support/philox.h"

#include <cstdint>

namespace zerocc {

/// Element `element` of the standard normal stream `stream` under `seed` (Box-Muller over two Philox words). Depends on
/// nothing else, so that a rank can fill its own part alone.
double standardNormal(uint64_t seed, uint32_t stream, uint64_t element);

} // namespace zerocc
