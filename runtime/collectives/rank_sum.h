#pragma once

#include "compiler/support/dtype.h"

namespace zerocc {

/// to[i] = from[0][i] + from[1][i] + …, in rank order, in f32 (f64 and integers: in their own type), rounded
/// once. Each element is summed by itself, so cutting the range anywhere gives the same bits. `to` may be one
/// of the sources.
void sumInRankOrder(void *to, const void *const *from, int ranks, int64_t count, DType dtype);

} // namespace zerocc
