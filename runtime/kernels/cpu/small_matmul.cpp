// Products too small for a library: a panel of b, up to two vectors wide and at most kDepth deep, is packed
// on the stack (or read where it lies); as many rows of c as registers can hold at a time are summed while it
// is walked. c[i, j] sums over l ascending, in f32, fused; sums deeper than kDepth are joined in c.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/kernels/cpu/small_matmul.cpp"
#include "hwy/foreach_target.h"

#include "hwy/highway.h"

#include "runtime/kernels/cpu/small_matmul.h"
#include "runtime/kernels/cpu/targets.h"

#include <algorithm>
#include <cstring>
#include <utility>

HWY_BEFORE_NAMESPACE();
namespace zerocc {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using Tag = hn::ScalableTag<float>;
using Vector = hn::Vec<Tag>;
constexpr int64_t kVector = hn::MaxLanes(Tag());
constexpr int64_t kMaxVectors = 2;
constexpr int64_t kDepth = 256;
/// Rows whose sums, with two vectors each, fill the registers: 16 with AVX2, 32 with AVX-512.
constexpr int64_t kRows = kVector == 16 ? 12 : 6;
constexpr int64_t kFewRows = 32; // with no more rows than these, packing costs more than it saves
constexpr int64_t kNearFloats =
    8192; // what spans no more than the first-level cache is near enough as it lies

/// A panel of b: row l begins at data + l * stride and can be read to the end of its last vector.
struct Panel {
  const float *data;
  int64_t stride;
};

/// Packs b[l, j] for l < depth, j < width into rows of `padded`, zeros behind `width`.
void packPanel(float *to, int64_t padded, const float *b, int64_t bRow, int64_t bColumn, int64_t depth,
               int64_t width) {
  for (int64_t l = 0; l < depth; ++l, to += padded, b += bRow) {
    if (bColumn == 1 && width == 2 * kVector)
      std::memcpy(to, b, 2 * kVector * sizeof(float));
    else
      for (int64_t j = 0; j < width; ++j)
        to[j] = b[j * bColumn];
    for (int64_t j = width; j < padded; ++j)
      to[j] = 0.0f;
  }
}

/// c[0 .. rows, 0 .. width) = or += a panel, with `vectors` vectors a row.
template <int64_t rows, int64_t vectors>
void multiplyBlock(int64_t depth, const float *a, int64_t aRow, int64_t aColumn, Panel panel, float *c,
                   int64_t n, int64_t width, bool isFirst) {
  const Tag d;
  Vector sums[rows][vectors];
  for (auto &row : sums)
    for (Vector &v : row)
      v = hn::Zero(d);
  for (int64_t l = 0; l < depth; ++l) {
    Vector right[vectors];
    for (int64_t v = 0; v < vectors; ++v)
      right[v] = hn::LoadU(d, panel.data + l * panel.stride + v * kVector);
    for (int64_t i = 0; i < rows; ++i) {
      const Vector left = hn::Set(d, a[i * aRow + l * aColumn]);
      for (int64_t v = 0; v < vectors; ++v)
        sums[i][v] = hn::MulAdd(left, right[v], sums[i][v]);
    }
  }
  constexpr int64_t kPadded = vectors * kVector;
  for (int64_t i = 0; i < rows; ++i) {
    float *to = c + i * n;
    HWY_ALIGN float line[kPadded];
    float *out = width == kPadded ? to : line;
    if (!isFirst) {
      if (width != kPadded)
        std::memcpy(line, to, static_cast<size_t>(width) * sizeof(float));
      for (int64_t v = 0; v < vectors; ++v)
        sums[i][v] = hn::Add(hn::LoadU(d, out + v * kVector), sums[i][v]);
    }
    for (int64_t v = 0; v < vectors; ++v)
      hn::StoreU(sums[i][v], d, out + v * kVector);
    if (width != kPadded)
      std::memcpy(to, line, static_cast<size_t>(width) * sizeof(float));
  }
}

using Block = void (*)(int64_t, const float *, int64_t, int64_t, Panel, float *, int64_t, int64_t, bool);
template <int64_t vectors, int64_t... rows>
Block blockOf(int64_t count, std::integer_sequence<int64_t, rows...>) {
  static constexpr Block blocks[] = {multiplyBlock<rows + 1, vectors>...};
  return blocks[count - 1];
}

/// All rows of c against one panel.
template <int64_t vectors>
void multiplyPanel(int64_t m, int64_t depth, const float *a, int64_t aRow, int64_t aColumn, Panel panel,
                   float *c, int64_t n, int64_t width, bool isFirst) {
  // Rows in blocks of nearly equal height: 16 = 8 + 8, not 12 + 4.
  int64_t blocks = (m + kRows - 1) / kRows;
  for (int64_t i = 0, block = 0; block < blocks; ++block) {
    int64_t rows = (m - i + blocks - block - 1) / (blocks - block);
    blockOf<vectors>(rows, std::make_integer_sequence<int64_t, kRows>())(depth, a + i * aRow, aRow, aColumn,
                                                                         panel, c + i * n, n, width, isFirst);
    i += rows;
  }
}

void multiplySmall(int64_t m, int64_t n, int64_t k, const float *a, int64_t aRow, int64_t aColumn,
                   const float *b, int64_t bRow, int64_t bColumn, float *c) {
  HWY_ALIGN float packed[kDepth * kMaxVectors * kVector];
  for (int64_t j = 0; j < n; j += kMaxVectors * kVector) {
    int64_t width = std::min(kMaxVectors * kVector, n - j);
    int64_t padded = width > kVector ? 2 * kVector : kVector;
    for (int64_t l = 0; l < k; l += kDepth) {
      int64_t depth = std::min(kDepth, k - l);
      Panel panel = {b + l * bRow + j, bRow};
      bool isNear = m <= kFewRows || depth * bRow <= kNearFloats;
      if (bColumn != 1 || width != padded || !isNear) {
        packPanel(packed, padded, b + l * bRow + j * bColumn, bRow, bColumn, depth, width);
        panel = {packed, padded};
      }
      auto multiply = padded == kVector ? multiplyPanel<1> : multiplyPanel<2>;
      multiply(m, depth, a + l * aColumn, aRow, aColumn, panel, c + j, n, width, l == 0);
    }
  }
}

/// Measured against OpenBLAS: it is ahead with fewer columns than a vector, and where blocking for the
/// second-level cache begins to pay.
SmallMatMul smallMatMul(int64_t m, int64_t n, int64_t k) {
  constexpr int64_t kLargest = int64_t(1) << 24; // multiplications
  bool isNarrow = kVector == 1 || n < kVector || m < 4;
  bool isLarge = k > 2 * kDepth || m > kLargest || n > kLargest || m * n > kLargest || m * n * k > kLargest;
  return isNarrow || isLarge ? nullptr : multiplySmall;
}

} // namespace
} // namespace HWY_NAMESPACE
} // namespace zerocc
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zerocc {
HWY_EXPORT(smallMatMul);

SmallMatMul findSmallMatMul(int64_t m, int64_t n, int64_t k) {
  chooseTarget();
  return HWY_DYNAMIC_DISPATCH(smallMatMul)(m, n, k);
}
} // namespace zerocc
#endif
