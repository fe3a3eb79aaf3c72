#pragma once

#include <cstdint>

namespace zerocc {

/// c[m, n] (contiguous) = a b, for operands of any strides: a[i, l] lies at i * aRow + l * aColumn, b[l, j]
/// at l * bRow + j * bColumn.
using SmallMatMul = void (*)(int64_t m, int64_t n, int64_t k, const float *a, int64_t aRow, int64_t aColumn,
                             const float *b, int64_t bRow, int64_t bColumn, float *c);

/// The product without a library, or null where the library is faster. Depends on shapes alone.
SmallMatMul findSmallMatMul(int64_t m, int64_t n, int64_t k);

} // namespace zerocc
