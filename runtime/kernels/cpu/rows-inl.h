// What row kernels (softmax, layer norm, cross entropy) and norms are made of, compiled once per target.
//
// Sums of f32 terms are taken in f64, in an order that depends on the index alone: term i goes to partial sum
// i mod kLanes, the partial sums are added pairwise at the end. Every target has the same kLanes.

#if defined(ZEROCC_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ZEROCC_ROWS_INL_H_
#undef ZEROCC_ROWS_INL_H_
#else
#define ZEROCC_ROWS_INL_H_
#endif

#include "hwy/highway.h"

#include "runtime/kernels/cpu/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zerocc {
namespace HWY_NAMESPACE {

using F64 = hn::CappedTag<double, 16>;
using VD = hn::Vec<F64>;
constexpr int64_t kLanes = 16;
constexpr int64_t kDoubles = hn::MaxLanes(F64());
constexpr int64_t kDoubleVectors = kLanes / kDoubles;

/// Doubles from floats at any address.
HWY_INLINE VD widen(const float *from) {
  return hn::PromoteTo(F64(), hn::LoadU(hn::Rebind<float, F64>(), from));
}

struct RowSum {
  VD lanes[kDoubleVectors];

  HWY_INLINE RowSum() {
    for (VD &lane : lanes)
      lane = hn::Zero(F64());
  }

  /// Adds f(d, x…[i]) for i in [0, n). All calls but the last must have n a multiple of kLanes.
  template <int kInputs, typename F> HWY_INLINE void add(const float *const (&x)[kInputs], int64_t n, F f) {
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes)
      for (int64_t k = 0; k < kDoubleVectors; ++k)
        lanes[k] = hn::Add(lanes[k], term(x, i + k * kDoubles, f));
    if (i == n)
      return;
    HWY_ALIGN float padded[kInputs][kLanes] = {};
    const float *tail[kInputs];
    for (int input = 0; input < kInputs; ++input) {
      std::memcpy(padded[input], x[input] + i, static_cast<size_t>(n - i) * sizeof(float));
      tail[input] = padded[input];
    }
    for (int64_t k = 0; k < kDoubleVectors && i + k * kDoubles < n; ++k) {
      const auto left = static_cast<size_t>(HWY_MIN(n - i - k * kDoubles, kDoubles));
      lanes[k] = hn::Add(lanes[k], hn::IfThenElseZero(hn::FirstN(F64(), left), term(tail, k * kDoubles, f)));
    }
  }

  HWY_INLINE double total() const {
    HWY_ALIGN double sums[kLanes];
    for (int64_t k = 0; k < kDoubleVectors; ++k)
      hn::Store(lanes[k], F64(), sums + k * kDoubles);
    for (int64_t half = kLanes / 2; half > 0; half /= 2)
      for (int64_t i = 0; i < half; ++i)
        sums[i] += sums[i + half];
    return sums[0];
  }

private:
  template <int kInputs, typename F>
  static HWY_INLINE VD term(const float *const (&x)[kInputs], int64_t i, F f) {
    if constexpr (kInputs == 1)
      return f(F64(), widen(x[0] + i));
    else if constexpr (kInputs == 2)
      return f(F64(), widen(x[0] + i), widen(x[1] + i));
    else
      return f(F64(), widen(x[0] + i), widen(x[1] + i), widen(x[2] + i));
  }
};

/// The terms that are summed most.
struct Itself {
  HWY_INLINE VD operator()(F64, VD x) const { return x; }
};
struct Product {
  HWY_INLINE VD operator()(F64, VD x, VD y) const { return hn::Mul(x, y); }
};

HWY_INLINE double sumOfRow(const float *x, int64_t n) {
  RowSum sum;
  const float *const inputs[1] = {x};
  sum.add(inputs, n, Itself());
  return sum.total();
}
HWY_INLINE double dotOfRows(const float *x, const float *y, int64_t n) {
  RowSum sum;
  const float *const inputs[2] = {x, y};
  sum.add(inputs, n, Product());
  return sum.total();
}

/// The greatest of a row, not counting NaN; -inf of none.
HWY_INLINE float greatestOfRow(const float *x, int64_t n) {
  const F32 d;
  const VF least = hn::Set(d, -std::numeric_limits<float>::infinity());
  VF best[4] = {least, least, least, least};
  int64_t i = 0;
  for (; i + 4 * kFloats <= n; i += 4 * kFloats)
    for (int64_t k = 0; k < 4; ++k) {
      const VF v = hn::LoadU(d, x + i + k * kFloats);
      best[k] = hn::IfThenElse(hn::Gt(v, best[k]), v, best[k]);
    }
  for (; i + kFloats <= n; i += kFloats) {
    const VF v = hn::LoadU(d, x + i);
    best[0] = hn::IfThenElse(hn::Gt(v, best[0]), v, best[0]);
  }
  best[0] = hn::Max(hn::Max(best[0], best[1]), hn::Max(best[2], best[3]));
  HWY_ALIGN float lanes[kFloats];
  hn::Store(best[0], d, lanes);
  float greatest = lanes[0];
  for (int64_t lane = 1; lane < kFloats; ++lane)
    greatest = lanes[lane] > greatest ? lanes[lane] : greatest;
  for (; i < n; ++i)
    greatest = x[i] > greatest ? x[i] : greatest;
  return greatest;
}

/// e^(x - shift)
struct ShiftedExp {
  float shift;
  HWY_INLINE VF operator()(F32 d, VF x) const { return exponential(d, hn::Sub(x, hn::Set(d, shift))); }
};

constexpr int64_t kRowTile = 512; // elements kept in the first-level cache between two passes

/// Σ e^(x - shift); the exponentials go to `y` unless it is null.
HWY_INLINE double sumOfExponentials(float *y, const float *x, float shift, int64_t n) {
  HWY_ALIGN float tile[kRowTile];
  RowSum sum;
  for (int64_t begin = 0; begin < n; begin += kRowTile) {
    const int64_t length = HWY_MIN(kRowTile, n - begin);
    float *out = y ? y + begin : tile;
    const float *const from[1] = {x + begin};
    mapFloats(out, from, length, ShiftedExp{shift});
    const float *const terms[1] = {out};
    sum.add(terms, length, Itself());
  }
  return sum.total();
}

} // namespace HWY_NAMESPACE
} // namespace zerocc
HWY_AFTER_NAMESPACE();

#endif // ZEROCC_ROWS_INL_H_
