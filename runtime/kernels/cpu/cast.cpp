// cast: real -> integer truncates and clamps, NaN is 0; integer -> integer wraps; anything -> bool is x != 0;
// wide real -> narrow real rounds to nearest even, once.

#include "runtime/collectives/half.h"
#include "runtime/kernels/cpu/elementwise.h"
#include "runtime/kernels/cpu/prepare.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

namespace zerocc {
namespace {

/// A float of 16 bits: `kMantissaBits` behind the leading one, `kExponentBits` of exponent.
template <int kExponentBits, int kMantissaBits> struct Half {
  uint16_t bits = 0;

  double value() const {
    int exponent = (bits >> kMantissaBits) & kExponentMask;
    int mantissa = bits & ((1 << kMantissaBits) - 1);
    double magnitude;
    if (exponent == kExponentMask)
      magnitude =
          mantissa ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity();
    else if (exponent == 0)
      magnitude = std::ldexp(mantissa, kMinExponent - kMantissaBits);
    else
      magnitude = std::ldexp(mantissa + (1 << kMantissaBits), exponent - kBias - kMantissaBits);
    return bits >> 15 ? -magnitude : magnitude;
  }

  static Half from(double v) {
    auto sign = static_cast<uint16_t>(std::signbit(v) ? 0x8000 : 0);
    auto infinity = static_cast<uint16_t>(kExponentMask << kMantissaBits);
    if (std::isnan(v))
      return {static_cast<uint16_t>(sign | infinity | (1 << (kMantissaBits - 1)))};
    v = std::fabs(v);
    if (v == 0 || std::isinf(v))
      return {static_cast<uint16_t>(sign | (v == 0 ? 0 : infinity))};
    // The value in units of its last place: up to 2^(kMantissaBits + 1) when rounding carries, which the sum
    // below turns into the next exponent (or infinity) by itself.
    int exponent = std::max(std::ilogb(v), kMinExponent);
    if (exponent > kBias)
      return {static_cast<uint16_t>(sign | infinity)};
    auto units = static_cast<uint32_t>(std::nearbyint(std::ldexp(v, kMantissaBits - exponent)));
    return {static_cast<uint16_t>(sign | (((exponent - kMinExponent) << kMantissaBits) + units))};
  }

private:
  static constexpr int kExponentMask = (1 << kExponentBits) - 1;
  static constexpr int kBias = kExponentMask / 2;
  static constexpr int kMinExponent = 1 - kBias;
};
using F16 = Half<5, 10>;
using Bf16 = Half<8, 7>;
struct Boolean {
  uint8_t bits;
};

template <typename T> constexpr bool kIsHalf = std::is_same_v<T, F16> || std::is_same_v<T, Bf16>;
template <typename T> constexpr bool kIsReal = std::is_floating_point_v<T> || kIsHalf<T>;

template <typename To> To truncated(double v) {
  constexpr auto low = std::numeric_limits<To>::min(), high = std::numeric_limits<To>::max();
  if (v != v)
    return 0;
  double above = std::ldexp(1.0, std::numeric_limits<To>::digits); // the first value beyond the range
  return v >= above ? high : v <= static_cast<double>(low) ? low : static_cast<To>(v);
}

template <typename From> auto wide(From x) {
  if constexpr (kIsHalf<From>)
    return x.value();
  else if constexpr (std::is_same_v<From, Boolean>)
    return static_cast<int64_t>(x.bits != 0);
  else
    return x;
}

template <typename To, typename From> To convert(From narrow) {
  auto x = wide(narrow);
  if constexpr (std::is_same_v<To, Boolean>)
    return {static_cast<uint8_t>(x != 0)};
  else if constexpr (kIsHalf<To>)
    return To::from(static_cast<double>(x));
  else if constexpr (kIsReal<From> && !kIsReal<To>)
    return truncated<To>(static_cast<double>(x));
  else
    return static_cast<To>(x);
}

template <typename From, typename To> void castLoop(void *y, const void *const *x, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    static_cast<To *>(y)[i] = convert<To>(static_cast<const From *>(x[0])[i]);
}

void castF32ToBf16(void *y, const void *const *x, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    static_cast<uint16_t *>(y)[i] = toBf16(static_cast<const float *>(x[0])[i]);
}

void castBf16ToF32(void *y, const void *const *x, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    static_cast<float *>(y)[i] = fromBf16(static_cast<const uint16_t *>(x[0])[i]);
}

void castF32ToF16(void *y, const void *const *x, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    static_cast<uint16_t *>(y)[i] = toF16(static_cast<const float *>(x[0])[i]);
}

void castF16ToF32(void *y, const void *const *x, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    static_cast<float *>(y)[i] = fromF16(static_cast<const uint16_t *>(x[0])[i]);
}

/// body(T()) for the element type of `dtype`.
template <typename F> FlatLoop withElement(DType dtype, F body) {
  switch (dtype) {
  case DType::f32:
    return body(float());
  case DType::f64:
    return body(double());
  case DType::f16:
    return body(F16());
  case DType::bf16:
    return body(Bf16());
  case DType::i64:
    return body(int64_t());
  case DType::i32:
    return body(int32_t());
  case DType::i8:
    return body(int8_t());
  case DType::u8:
    return body(uint8_t());
  case DType::i16:
    return body(int16_t());
  case DType::u16:
    return body(uint16_t());
  case DType::u32:
    return body(uint32_t());
  case DType::u64:
    return body(uint64_t());
  case DType::boolean:
    return body(Boolean());
  }
  return nullptr;
}

FlatLoop castLoopOf(DType from, DType to) {
  if (from == DType::f32 && to == DType::bf16)
    return castF32ToBf16;
  if (from == DType::bf16 && to == DType::f32)
    return castBf16ToF32;
  if (from == DType::f32 && to == DType::f16)
    return castF32ToF16;
  if (from == DType::f16 && to == DType::f32)
    return castF16ToF32;
  return withElement(from, [&](auto source) {
    return withElement(to,
                       [](auto target) -> FlatLoop { return castLoop<decltype(source), decltype(target)>; });
  });
}

Status prepareCast(KernelCall &call) {
  ZEROCC_TRY(expectCounts(call, 1, 1));
  return prepareElementwise(call, castLoopOf(call.inputs[0].dtype, call.results[0].dtype));
}

} // namespace

extern const CpuKernel castKernels = {prepareCast};

} // namespace zerocc
