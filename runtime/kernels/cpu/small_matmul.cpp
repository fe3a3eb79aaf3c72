// Products too small for a library: a panel of b, kPanel columns wide and at most kDepth deep, is packed on
// the stack; kRows rows of c at a time are held in registers while it is walked. c[i, j] sums over l
// ascending, in f32, fused; sums deeper than kDepth are joined in c.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/kernels/cpu/small_matmul.cpp"
#include "hwy/foreach_target.h"

#include "hwy/highway.h"

#include "runtime/kernels/cpu/small_matmul.h"
#include "runtime/kernels/cpu/targets.h"

#include <algorithm>
#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace zerocc {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using Tag = hn::ScalableTag<float>;
using Vector = hn::Vec<Tag>;
constexpr int64_t kVector = hn::MaxLanes(Tag());
constexpr int64_t kVectors = 2;
constexpr int64_t kPanel = kVectors * kVector;
constexpr int64_t kDepth = 256;
constexpr int64_t kRows = 6;

/// Packs b[l, j] for l < depth, j < width into rows of kPanel, zeros behind `width`.
void packPanel(float *panel, const float *b, int64_t bRow, int64_t bColumn, int64_t depth, int64_t width) {
  for (int64_t l = 0; l < depth; ++l) {
    float *to = panel + l * kPanel;
    const float *from = b + l * bRow;
    if (bColumn == 1 && width == kPanel)
      std::memcpy(to, from, kPanel * sizeof(float));
    else
      for (int64_t j = 0; j < kPanel; ++j)
        to[j] = j < width ? from[j * bColumn] : 0.0f;
  }
}

/// c[0 .. rowCount, 0 .. width) (+)= a panel.
template <int64_t rowCount>
HWY_INLINE void multiplyPanel(int64_t depth, const float *a, int64_t aRow, int64_t aColumn,
                              const float *panel, float *c, int64_t n, int64_t width, bool isFirst) {
  const Tag d;
  Vector sums[rowCount][kVectors];
  for (auto &row : sums)
    for (Vector &v : row)
      v = hn::Zero(d);
  for (int64_t l = 0; l < depth; ++l) {
    Vector right[kVectors];
    for (int64_t v = 0; v < kVectors; ++v)
      right[v] = hn::Load(d, panel + l * kPanel + v * kVector);
    for (int64_t i = 0; i < rowCount; ++i) {
      const Vector left = hn::Set(d, a[i * aRow + l * aColumn]);
      for (int64_t v = 0; v < kVectors; ++v)
        sums[i][v] = hn::MulAdd(left, right[v], sums[i][v]);
    }
  }
  for (int64_t i = 0; i < rowCount; ++i) {
    float *to = c + i * n;
    HWY_ALIGN float line[kPanel] = {};
    float *out = width == kPanel ? to : line;
    if (!isFirst && width != kPanel)
      std::memcpy(line, to, static_cast<size_t>(width) * sizeof(float));
    for (int64_t v = 0; v < kVectors; ++v) {
      const Vector before = isFirst ? hn::Zero(d) : hn::LoadU(d, out + v * kVector);
      hn::StoreU(isFirst ? sums[i][v] : hn::Add(before, sums[i][v]), d, out + v * kVector);
    }
    if (width != kPanel)
      std::memcpy(to, line, static_cast<size_t>(width) * sizeof(float));
  }
}

void multiplySmall(int64_t m, int64_t n, int64_t k, const float *a, int64_t aRow, int64_t aColumn,
                   const float *b, int64_t bRow, int64_t bColumn, float *c) {
  HWY_ALIGN float panel[kDepth * kPanel];
  for (int64_t j = 0; j < n; j += kPanel) {
    int64_t width = std::min(kPanel, n - j);
    for (int64_t l = 0; l < k; l += kDepth) {
      int64_t depth = std::min(kDepth, k - l);
      packPanel(panel, b + l * bRow + j * bColumn, bRow, bColumn, depth, width);
      const float *left = a + l * aColumn;
      int64_t i = 0;
      for (; i + kRows <= m; i += kRows)
        multiplyPanel<kRows>(depth, left + i * aRow, aRow, aColumn, panel, c + i * n + j, n, width, l == 0);
      for (; i + 2 <= m; i += 2)
        multiplyPanel<2>(depth, left + i * aRow, aRow, aColumn, panel, c + i * n + j, n, width, l == 0);
      if (i < m)
        multiplyPanel<1>(depth, left + i * aRow, aRow, aColumn, panel, c + i * n + j, n, width, l == 0);
    }
  }
}

} // namespace
} // namespace HWY_NAMESPACE
} // namespace zerocc
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zerocc {
HWY_EXPORT(multiplySmall);

SmallMatMul findSmallMatMul(int64_t m, int64_t n, int64_t k) {
  constexpr int64_t kSmall = 32 * 32 * 32;
  if (m > kSmall || n > kSmall || k > kSmall || m * n > kSmall || m * n * k > kSmall)
    return nullptr;
  chooseTarget();
  return HWY_DYNAMIC_DISPATCH(multiplySmall);
}
} // namespace zerocc
#endif
