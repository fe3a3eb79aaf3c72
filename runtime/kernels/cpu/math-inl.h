// Functions of f32 vectors, right for every input (infinities, NaN, zeros), compiled once per target. A
// lane's result depends on that lane alone, so it does not matter where a range is cut.

#if defined(ZEROCC_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ZEROCC_MATH_INL_H_
#undef ZEROCC_MATH_INL_H_
#else
#define ZEROCC_MATH_INL_H_
#endif

#include "hwy/highway.h"

#include "hwy/contrib/math/math-inl.h"

#include <cstdint>
#include <cstring>
#include <limits>

HWY_BEFORE_NAMESPACE();
namespace zerocc {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using VF = hn::Vec<F32>;
constexpr int64_t kFloats = hn::MaxLanes(F32());

/// y[i] = f(x…[i]) for i in [0, n) of `kInputs` arrays. The tail goes through the same vector code, in padded
/// lanes.
template <int kInputs, typename F>
HWY_INLINE void mapFloats(float *y, const float *const (&x)[kInputs], int64_t n, F f) {
  const F32 d;
  int64_t i = 0;
  for (; i + kFloats <= n; i += kFloats) {
    if constexpr (kInputs == 1)
      hn::StoreU(f(d, hn::LoadU(d, x[0] + i)), d, y + i);
    else if constexpr (kInputs == 2)
      hn::StoreU(f(d, hn::LoadU(d, x[0] + i), hn::LoadU(d, x[1] + i)), d, y + i);
    else
      hn::StoreU(f(d, hn::LoadU(d, x[0] + i), hn::LoadU(d, x[1] + i), hn::LoadU(d, x[2] + i)), d, y + i);
  }
  if (i == n)
    return;
  const size_t tailBytes = static_cast<size_t>(n - i) * sizeof(float);
  HWY_ALIGN float lanes[kInputs][kFloats] = {};
  HWY_ALIGN float out[kFloats];
  for (int k = 0; k < kInputs; ++k)
    std::memcpy(lanes[k], x[k] + i, tailBytes);
  if constexpr (kInputs == 1)
    hn::Store(f(d, hn::Load(d, lanes[0])), d, out);
  else if constexpr (kInputs == 2)
    hn::Store(f(d, hn::Load(d, lanes[0]), hn::Load(d, lanes[1])), d, out);
  else
    hn::Store(f(d, hn::Load(d, lanes[0]), hn::Load(d, lanes[1]), hn::Load(d, lanes[2])), d, out);
  std::memcpy(y + i, out, tailBytes);
}

/// e^x. Highway's is right within [-104, 104] and gives 0 below.
HWY_INLINE VF exponential(F32 d, VF x) {
  const VF top = hn::Set(d, 104.0f); // e^104 is beyond the greatest float
  VF y = hn::Exp(d, hn::IfThenElse(hn::Gt(x, top), top, x));
  return hn::IfThenElse(hn::IsNaN(x), x, y);
}

/// ln x. Highway's is right for positive finite numbers.
HWY_INLINE VF logarithm(F32 d, VF x) {
  const VF infinity = hn::Set(d, std::numeric_limits<float>::infinity());
  const VF nan = hn::Set(d, std::numeric_limits<float>::quiet_NaN());
  const VF zero = hn::Zero(d);
  VF y = hn::Log(d, x);
  y = hn::IfThenElse(hn::Lt(x, infinity), y, x); // +inf and NaN stay
  y = hn::IfThenElse(hn::Eq(x, zero), hn::Neg(infinity), y);
  return hn::IfThenElse(hn::Lt(x, zero), nan, y);
}

HWY_INLINE VF hyperbolicTangent(F32 d, VF x) {
  const VF limit = hn::Set(d, 20.0f);
  VF y = hn::Tanh(d, hn::IfThenElse(hn::Gt(hn::Abs(x), limit), hn::CopySign(limit, x), x));
  return hn::IfThenElse(hn::IsNaN(x), x, y);
}

/// 1 / (1 + e^-x)
HWY_INLINE VF sigmoid(F32 d, VF x) {
  const VF one = hn::Set(d, 1.0f);
  return hn::Div(one, hn::Add(one, exponential(d, hn::Neg(x))));
}

/// erf t and 1 - erf t for |x|. Near 0: a polynomial in x²; beyond kErfSplit: 1 - erf t = e^r(t), r a
/// polynomial, so that the tail keeps its relative precision. (The polynomials are Norbert Juffa's.)
struct ErrorFunctionParts {
  VF nearZero;   // erf x, where |x| <= kErfSplit
  VF complement; // 1 - erf |x|, elsewhere
  hn::Mask<F32> isNear;
};

HWY_INLINE ErrorFunctionParts errorFunctionParts(F32 d, VF x) {
  const VF t = hn::Abs(x);
  const VF s = hn::Mul(x, x);
  VF p = hn::Set(d, -5.96761703e-4f);
  p = hn::MulAdd(p, s, hn::Set(d, 4.99119423e-3f));
  p = hn::MulAdd(p, s, hn::Set(d, -2.67681349e-2f));
  p = hn::MulAdd(p, s, hn::Set(d, 1.12819925e-1f));
  p = hn::MulAdd(p, s, hn::Set(d, -3.76125336e-1f));
  p = hn::MulAdd(p, s, hn::Set(d, 1.28379166e-1f));
  VF r = hn::MulAdd(hn::Set(d, -1.72853470e-5f), t, hn::Set(d, 3.83197126e-4f));
  const VF u = hn::MulAdd(hn::Set(d, -3.88396438e-3f), t, hn::Set(d, 2.42546219e-2f));
  r = hn::MulAdd(r, s, u);
  r = hn::MulAdd(r, t, hn::Set(d, -1.06777877e-1f));
  r = hn::MulAdd(r, t, hn::Set(d, -6.34846687e-1f));
  r = hn::MulAdd(r, t, hn::Set(d, -1.28717512e-1f));
  r = hn::MulAdd(r, t, hn::Neg(t));
  const VF split = hn::Set(d, 0.927734375f);
  return {hn::MulAdd(p, x, x), exponential(d, r), hn::Le(t, split)};
}

/// erf x, absolute error below 1e-7.
HWY_INLINE VF errorFunction(F32 d, VF x) {
  const ErrorFunctionParts parts = errorFunctionParts(d, x);
  const VF tail = hn::CopySign(hn::Sub(hn::Set(d, 1.0f), parts.complement), x);
  return hn::IfThenElse(parts.isNear, parts.nearZero, tail);
}

/// Φ(x) = (1 + erf(x / √2)) / 2
HWY_INLINE VF normalCumulative(F32 d, VF x) {
  const VF half = hn::Set(d, 0.5f);
  const ErrorFunctionParts parts = errorFunctionParts(d, hn::Mul(x, hn::Set(d, 0.70710678118654752f)));
  const VF complement = hn::Mul(half, parts.complement);
  const VF tail = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), complement, hn::Sub(hn::Set(d, 1.0f), complement));
  return hn::IfThenElse(parts.isNear, hn::MulAdd(half, parts.nearZero, half), tail);
}

/// x Φ(x)
HWY_INLINE VF gelu(F32 d, VF x) { return hn::Mul(x, normalCumulative(d, x)); }

/// dy (Φ(x) + x φ(x))
HWY_INLINE VF geluGradient(F32 d, VF x, VF dy) {
  const VF density = hn::Mul(exponential(d, hn::Mul(hn::Mul(x, x), hn::Set(d, -0.5f))),
                             hn::Set(d, 0.39894228040143268f)); // 1 / √(2π)
  return hn::Mul(dy, hn::MulAdd(x, density, normalCumulative(d, x)));
}

// The tanh form, 0.5 x (1 + tanh u) with u = √(2/π) (x + 0.044715 x³), is x sigmoid(2u): one exponential, and
// the negative tail keeps its relative precision.
constexpr float kGeluCubic = 0.044715f;
constexpr float kGeluTwiceScale = 1.59576912160573072f; // 2 √(2/π)

/// 1 + e^-2u
HWY_INLINE VF geluTanhDenominator(F32 d, VF x) {
  const VF inner = hn::MulAdd(hn::Mul(hn::Mul(x, x), x), hn::Set(d, kGeluCubic), x);
  return hn::Add(hn::Set(d, 1.0f), exponential(d, hn::Mul(inner, hn::Set(d, -kGeluTwiceScale))));
}

/// x sigmoid(2u)
HWY_INLINE VF geluTanh(F32 d, VF x) { return hn::Div(x, geluTanhDenominator(d, x)); }

/// dy (s + x s (1 - s) 2u'), s = sigmoid(2u)
HWY_INLINE VF geluTanhGradient(F32 d, VF x, VF dy) {
  const VF one = hn::Set(d, 1.0f);
  const VF s = hn::Div(one, geluTanhDenominator(d, x));
  // Beyond 20 the slope s (1 - s) is 0 and x² must not become infinite.
  const VF limit = hn::Set(d, 20.0f);
  const VF c = hn::IfThenElse(hn::Gt(hn::Abs(x), limit), hn::CopySign(limit, x), x);
  const VF inner = hn::MulAdd(hn::Mul(c, c), hn::Set(d, 3 * kGeluCubic), one);
  const VF bent =
      hn::Mul(hn::Mul(hn::Mul(s, hn::Sub(one, s)), hn::Mul(c, inner)), hn::Set(d, kGeluTwiceScale));
  return hn::Mul(dy, hn::Add(s, bent));
}

} // namespace HWY_NAMESPACE
} // namespace zerocc
HWY_AFTER_NAMESPACE();

#endif // ZEROCC_MATH_INL_H_
