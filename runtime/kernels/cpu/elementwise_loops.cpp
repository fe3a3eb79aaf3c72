// The loops of the elementwise ops, one per op and dtype, compiled once per target. Arithmetic, comparisons
// and square roots are plain loops for the compiler's vectoriser: IEEE rounds them the same in every lane.
// Functions without an exact rounding go through math-inl.h or, where they are rare, through the C library
// element by element.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/kernels/cpu/elementwise_loops.cpp"
#include "hwy/foreach_target.h"

#include "hwy/highway.h"

#include "runtime/kernels/cpu/elementwise.h"
#include "runtime/kernels/cpu/math-inl.h"
#include "runtime/kernels/cpu/targets.h"

#include <cmath>
#include <type_traits>

HWY_BEFORE_NAMESPACE();
namespace zerocc {
namespace HWY_NAMESPACE {
namespace {

// --- how an op becomes a loop

/// y = f(x) element by element.
template <typename T, typename R, typename F> void mapOne(void *y, const void *const *x, int64_t n) {
  auto *out = static_cast<R *>(y);
  auto *a = static_cast<const T *>(x[0]);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i)
    out[i] = F()(a[i]);
}

template <typename T, typename R, typename F> void mapTwo(void *y, const void *const *x, int64_t n) {
  auto *out = static_cast<R *>(y);
  auto *a = static_cast<const T *>(x[0]), *b = static_cast<const T *>(x[1]);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i)
    out[i] = F()(a[i], b[i]);
}

template <typename T> void mapSelect(void *y, const void *const *x, int64_t n) {
  auto *out = static_cast<T *>(y);
  auto *condition = static_cast<const uint8_t *>(x[0]);
  auto *a = static_cast<const T *>(x[1]), *b = static_cast<const T *>(x[2]);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i)
    out[i] = condition[i] ? a[i] : b[i];
}

/// y = f(x) with f on f32 vectors.
template <typename F> void mapVector(void *y, const void *const *x, int64_t n) {
  const float *const inputs[1] = {static_cast<const float *>(x[0])};
  mapFloats(static_cast<float *>(y), inputs, n, F());
}
template <typename F> void mapVectors(void *y, const void *const *x, int64_t n) {
  const float *const inputs[2] = {static_cast<const float *>(x[0]), static_cast<const float *>(x[1])};
  mapFloats(static_cast<float *>(y), inputs, n, F());
}

// --- what the ops do. Integers wrap, through unsigned arithmetic.

template <typename T> using Unsigned = std::make_unsigned_t<T>;
template <typename T> T wrap(uint64_t v) { return static_cast<T>(static_cast<Unsigned<T>>(v)); }
template <typename T> bool isNegative(T x) {
  if constexpr (std::is_signed_v<T>)
    return x < 0;
  else
    return false;
}
/// The one divisor, but 0, that a signed number may not have: its quotient can be out of range.
template <typename T> bool isMinusOne(T x) { return isNegative(x) && x == T(-1); }

struct Neg {
  template <typename T> T operator()(T x) const {
    if constexpr (std::is_integral_v<T>)
      return wrap<T>(uint64_t(0) - static_cast<uint64_t>(x));
    else
      return -x;
  }
};
struct Abs {
  template <typename T> T operator()(T x) const {
    if constexpr (std::is_integral_v<T>)
      return isNegative(x) ? Neg()(x) : x;
    else
      return std::fabs(x);
  }
};
struct Sign {
  template <typename T> T operator()(T x) const {
    return x != x ? x : static_cast<T>((x > 0) - isNegative(x));
  }
};
struct Relu {
  template <typename T> T operator()(T x) const { return isNegative(x) ? T(0) : x; }
};
struct Floor {
  template <typename T> T operator()(T x) const { return std::floor(x); }
};
struct Sqrt {
  template <typename T> T operator()(T x) const { return std::sqrt(x); }
};
struct Sin {
  template <typename T> T operator()(T x) const { return std::sin(x); }
};
struct Cos {
  template <typename T> T operator()(T x) const { return std::cos(x); }
};
struct Tanh {
  double operator()(double x) const { return std::tanh(x); }
};
struct Erf {
  double operator()(double x) const { return std::erf(x); }
};
struct Sigmoid {
  double operator()(double x) const { return 1 / (1 + std::exp(-x)); }
};
struct Pow {
  double operator()(double a, double b) const { return std::pow(a, b); }
};
struct Exp {
  double operator()(double x) const { return std::exp(x); }
};
struct Log {
  double operator()(double x) const { return std::log(x); }
};
struct Round {
  template <typename T> T operator()(T x) const { return std::nearbyint(x); }
};
/// Functions of the C library, element by element.
#define ZEROCC_FUNCTION(Name, name)                                                                          \
  struct Name {                                                                                              \
    template <typename T> T operator()(T x) const { return std::name(x); }                                   \
  };
ZEROCC_FUNCTION(Tan, tan)
ZEROCC_FUNCTION(Asin, asin)
ZEROCC_FUNCTION(Acos, acos)
ZEROCC_FUNCTION(Atan, atan)
ZEROCC_FUNCTION(Sinh, sinh)
ZEROCC_FUNCTION(Cosh, cosh)
ZEROCC_FUNCTION(Asinh, asinh)
ZEROCC_FUNCTION(Acosh, acosh)
ZEROCC_FUNCTION(Atanh, atanh)
#undef ZEROCC_FUNCTION
struct Not {
  uint8_t operator()(uint8_t x) const { return x == 0; }
};
struct IsNan {
  template <typename T> uint8_t operator()(T x) const { return x != x; }
};

struct Add {
  template <typename T> T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>)
      return wrap<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
    else
      return a + b;
  }
};
struct Sub {
  template <typename T> T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>)
      return wrap<T>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
    else
      return a - b;
  }
};
struct Mul {
  template <typename T> T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>)
      return wrap<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
    else
      return a * b;
  }
};
/// Truncates. A zero divisor gives 0: the plain interpreter refuses it, a kernel must not trap.
struct Div {
  template <typename T> T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>)
      return b == 0 ? T(0) : isMinusOne(b) ? Neg()(a) : static_cast<T>(a / b);
    else
      return a / b;
  }
};
/// Integers: the sign of b. Floats: fmod, the sign of a.
struct Mod {
  template <typename T> T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {
      T rest = b == 0 || isMinusOne(b) ? T(0) : static_cast<T>(a % b);
      return rest != 0 && isNegative(rest) != isNegative(b) ? static_cast<T>(rest + b) : rest;
    } else {
      return std::fmod(a, b);
    }
  }
};
/// NaN if one is.
struct Max {
  template <typename T> T operator()(T a, T b) const { return a != a || a > b ? a : b; }
};
struct Min {
  template <typename T> T operator()(T a, T b) const { return a != a || a < b ? a : b; }
};
struct And {
  uint8_t operator()(uint8_t a, uint8_t b) const { return a != 0 && b != 0; }
};
struct Or {
  uint8_t operator()(uint8_t a, uint8_t b) const { return (a | b) != 0; }
};
struct BitAnd {
  template <typename T> T operator()(T a, T b) const { return static_cast<T>(a & b); }
};
struct BitOr {
  template <typename T> T operator()(T a, T b) const { return static_cast<T>(a | b); }
};
struct BitXor {
  template <typename T> T operator()(T a, T b) const { return static_cast<T>(a ^ b); }
};
template <typename T> bool isBeyond(T b) {
  return isNegative(b) || static_cast<uint64_t>(b) >= sizeof(T) * 8;
}
struct ShiftLeft {
  template <typename T> T operator()(T a, T b) const {
    return isBeyond(b) ? T(0) : wrap<T>(static_cast<uint64_t>(a) << b);
  }
};
struct ShiftRight {
  template <typename T> T operator()(T a, T b) const {
    return static_cast<T>(isBeyond(b) ? (isNegative(a) ? T(-1) : T(0)) : a >> b);
  }
};
struct Equal {
  template <typename T> uint8_t operator()(T a, T b) const { return a == b; }
};
struct NotEqual {
  template <typename T> uint8_t operator()(T a, T b) const { return a != b; }
};
struct Less {
  template <typename T> uint8_t operator()(T a, T b) const { return a < b; }
};
struct LessEqual {
  template <typename T> uint8_t operator()(T a, T b) const { return a <= b; }
};
struct Greater {
  template <typename T> uint8_t operator()(T a, T b) const { return a > b; }
};
struct GreaterEqual {
  template <typename T> uint8_t operator()(T a, T b) const { return a >= b; }
};

/// a^b by squaring; for b < 0 the truncated 1 / a^-b.
struct IntegerPow {
  template <typename T> T operator()(T a, T b) const {
    if (isNegative(b))
      return a == 1 ? T(1) : isMinusOne(a) ? (b & 1 ? T(-1) : T(1)) : T(0);
    T power = 1;
    for (; b > 0; b = static_cast<T>(b >> 1), a = Mul()(a, a))
      if (b & 1)
        power = Mul()(power, a);
    return power;
  }
};

struct VectorExp {
  HWY_INLINE VF operator()(F32 d, VF x) const { return exponential(d, x); }
};
struct VectorLog {
  HWY_INLINE VF operator()(F32 d, VF x) const { return logarithm(d, x); }
};
struct VectorTanh {
  HWY_INLINE VF operator()(F32 d, VF x) const { return hyperbolicTangent(d, x); }
};
struct VectorSigmoid {
  HWY_INLINE VF operator()(F32 d, VF x) const { return sigmoid(d, x); }
};
struct VectorErf {
  HWY_INLINE VF operator()(F32 d, VF x) const { return errorFunction(d, x); }
};
struct VectorGelu {
  HWY_INLINE VF operator()(F32 d, VF x) const { return gelu(d, x); }
};
struct VectorGeluTanh {
  HWY_INLINE VF operator()(F32 d, VF x) const { return geluTanh(d, x); }
};
struct VectorGeluGradient {
  HWY_INLINE VF operator()(F32 d, VF x, VF dy) const { return geluGradient(d, x, dy); }
};
struct VectorGeluTanhGradient {
  HWY_INLINE VF operator()(F32 d, VF x, VF dy) const { return geluTanhGradient(d, x, dy); }
};

// --- powers

/// The powers that have a formula of their own. pow and sqrt differ at -0 and -inf only.
struct Square {
  float operator()(float x) const { return x * x; }
};
struct Cube {
  float operator()(float x) const { return x * x * x; }
};
struct Root {
  float operator()(float x) const {
    return x == -std::numeric_limits<float>::infinity() ? -x : std::sqrt(x + 0.0f);
  }
};
struct InverseRoot {
  float operator()(float x) const { return 1.0f / Root()(x); }
};
struct Inverse {
  float operator()(float x) const { return 1.0f / x; }
};

float powerOf(float x, float exponent) {
  return exponent == 2       ? Square()(x)
         : exponent == 3     ? Cube()(x)
         : exponent == 0.5f  ? Root()(x)
         : exponent == -0.5f ? InverseRoot()(x)
         : exponent == -1    ? Inverse()(x)
                             : std::pow(x, exponent);
}

/// One exponent for a whole piece is the common case; the element's formula is the same either way.
void powerLoop(void *y, const void *const *x, int64_t n) {
  auto *out = static_cast<float *>(y);
  auto *base = static_cast<const float *>(x[0]), *exponents = static_cast<const float *>(x[1]);
  bool same = n > 0;
  for (int64_t i = 1; i < n; ++i)
    same &= exponents[i] == exponents[0];
  float exponent = same ? exponents[0] : 0;
  if (exponent == 2)
    mapOne<float, float, Square>(y, x, n);
  else if (exponent == 3)
    mapOne<float, float, Cube>(y, x, n);
  else if (exponent == 0.5f)
    mapOne<float, float, Root>(y, x, n);
  else if (exponent == -0.5f)
    mapOne<float, float, InverseRoot>(y, x, n);
  else if (exponent == -1)
    mapOne<float, float, Inverse>(y, x, n);
  else
    for (int64_t i = 0; i < n; ++i)
      out[i] = powerOf(base[i], exponents[i]);
}

// --- the table

template <typename T> FlatLoop anyNumberLoop(OpKind op, int variant) {
  switch (op) {
  case OpKind::Neg:
    return mapOne<T, T, Neg>;
  case OpKind::Abs:
    return mapOne<T, T, Abs>;
  case OpKind::Sign:
    return mapOne<T, T, Sign>;
  case OpKind::Relu:
    return mapOne<T, T, Relu>;
  case OpKind::IsNan:
    return mapOne<T, uint8_t, IsNan>;
  case OpKind::Add:
    return mapTwo<T, T, Add>;
  case OpKind::Sub:
    return mapTwo<T, T, Sub>;
  case OpKind::Mul:
    return mapTwo<T, T, Mul>;
  case OpKind::Div:
    return mapTwo<T, T, Div>;
  case OpKind::Mod:
    return mapTwo<T, T, Mod>;
  case OpKind::Max:
    return mapTwo<T, T, Max>;
  case OpKind::Min:
    return mapTwo<T, T, Min>;
  case OpKind::Compare: {
    constexpr FlatLoop kinds[] = {mapTwo<T, uint8_t, Equal>,   mapTwo<T, uint8_t, NotEqual>,
                                  mapTwo<T, uint8_t, Less>,    mapTwo<T, uint8_t, LessEqual>,
                                  mapTwo<T, uint8_t, Greater>, mapTwo<T, uint8_t, GreaterEqual>};
    return variant >= 0 ? kinds[variant] : nullptr;
  }
  default:
    return nullptr;
  }
}

template <typename T> FlatLoop libraryLoop(OpKind op) {
  switch (op) {
  case OpKind::Round:
    return mapOne<T, T, Round>;
  case OpKind::Tan:
    return mapOne<T, T, Tan>;
  case OpKind::Asin:
    return mapOne<T, T, Asin>;
  case OpKind::Acos:
    return mapOne<T, T, Acos>;
  case OpKind::Atan:
    return mapOne<T, T, Atan>;
  case OpKind::Sinh:
    return mapOne<T, T, Sinh>;
  case OpKind::Cosh:
    return mapOne<T, T, Cosh>;
  case OpKind::Asinh:
    return mapOne<T, T, Asinh>;
  case OpKind::Acosh:
    return mapOne<T, T, Acosh>;
  case OpKind::Atanh:
    return mapOne<T, T, Atanh>;
  default:
    return nullptr;
  }
}

FlatLoop f32Loop(OpKind op, int variant) {
  if (FlatLoop loop = libraryLoop<float>(op))
    return loop;
  switch (op) {
  case OpKind::Exp:
    return mapVector<VectorExp>;
  case OpKind::Log:
    return mapVector<VectorLog>;
  case OpKind::Sqrt:
    return mapOne<float, float, Sqrt>;
  case OpKind::Tanh:
    return mapVector<VectorTanh>;
  case OpKind::Sigmoid:
    return mapVector<VectorSigmoid>;
  case OpKind::Erf:
    return mapVector<VectorErf>;
  case OpKind::Sin:
    return mapOne<float, float, Sin>;
  case OpKind::Cos:
    return mapOne<float, float, Cos>;
  case OpKind::Floor:
    return mapOne<float, float, Floor>;
  case OpKind::Gelu:
    return variant ? mapVector<VectorGeluTanh> : mapVector<VectorGelu>;
  case OpKind::GeluGrad:
    return variant ? mapVectors<VectorGeluTanhGradient> : mapVectors<VectorGeluGradient>;
  case OpKind::Pow:
    return powerLoop;
  default:
    return anyNumberLoop<float>(op, variant);
  }
}

FlatLoop f64Loop(OpKind op, int variant) {
  if (FlatLoop loop = libraryLoop<double>(op))
    return loop;
  switch (op) {
  case OpKind::Exp:
    return mapOne<double, double, Exp>;
  case OpKind::Log:
    return mapOne<double, double, Log>;
  case OpKind::Sqrt:
    return mapOne<double, double, Sqrt>;
  case OpKind::Floor:
    return mapOne<double, double, Floor>;
  case OpKind::Sin:
    return mapOne<double, double, Sin>;
  case OpKind::Cos:
    return mapOne<double, double, Cos>;
  case OpKind::Tanh:
    return mapOne<double, double, Tanh>;
  case OpKind::Erf:
    return mapOne<double, double, Erf>;
  case OpKind::Sigmoid:
    return mapOne<double, double, Sigmoid>;
  case OpKind::Pow:
    return mapTwo<double, double, Pow>;
  default:
    return anyNumberLoop<double>(op, variant);
  }
}

template <typename T> FlatLoop integerLoop(OpKind op, int variant) {
  switch (op) {
  case OpKind::Pow:
    return mapTwo<T, T, IntegerPow>;
  case OpKind::BitAnd:
    return mapTwo<T, T, BitAnd>;
  case OpKind::BitOr:
    return mapTwo<T, T, BitOr>;
  case OpKind::BitXor:
    return mapTwo<T, T, BitXor>;
  case OpKind::ShiftLeft:
    return mapTwo<T, T, ShiftLeft>;
  case OpKind::ShiftRight:
    return mapTwo<T, T, ShiftRight>;
  default:
    return anyNumberLoop<T>(op, variant);
  }
}

FlatLoop booleanLoop(OpKind op, int variant) {
  switch (op) {
  case OpKind::Not:
    return mapOne<uint8_t, uint8_t, Not>;
  case OpKind::And:
    return mapTwo<uint8_t, uint8_t, And>;
  case OpKind::Or:
    return mapTwo<uint8_t, uint8_t, Or>;
  case OpKind::IsNan:
  case OpKind::Compare:
  case OpKind::Max:
  case OpKind::Min:
    return anyNumberLoop<uint8_t>(op, variant);
  default:
    return nullptr;
  }
}

FlatLoop selectLoop(DType dtype) {
  switch (byteSize(dtype)) {
  case 1:
    return mapSelect<uint8_t>;
  case 2:
    return mapSelect<uint16_t>;
  case 4:
    return mapSelect<uint32_t>;
  default:
    return mapSelect<uint64_t>;
  }
}

FlatLoop flatLoop(OpKind op, DType dtype, int variant) {
  if (op == OpKind::Select)
    return selectLoop(dtype);
  switch (dtype) {
  case DType::f32:
    return f32Loop(op, variant);
  case DType::f64:
    return f64Loop(op, variant);
  case DType::i64:
    return integerLoop<int64_t>(op, variant);
  case DType::i32:
    return integerLoop<int32_t>(op, variant);
  case DType::boolean:
    return booleanLoop(op, variant);
  default:
    return nullptr;
  }
}

#if HWY_TARGET == HWY_STATIC_TARGET
/// Integers that models compute little with: compiled once.
FlatLoop rareIntegerLoop(OpKind op, DType dtype, int variant) {
  switch (dtype) {
  case DType::i8:
    return integerLoop<int8_t>(op, variant);
  case DType::i16:
    return integerLoop<int16_t>(op, variant);
  case DType::u8:
    return integerLoop<uint8_t>(op, variant);
  case DType::u16:
    return integerLoop<uint16_t>(op, variant);
  case DType::u32:
    return integerLoop<uint32_t>(op, variant);
  case DType::u64:
    return integerLoop<uint64_t>(op, variant);
  default:
    return nullptr;
  }
}
#endif

} // namespace
} // namespace HWY_NAMESPACE
} // namespace zerocc
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zerocc {
HWY_EXPORT(flatLoop);

FlatLoop findFlatLoop(OpKind op, DType dtype, LoopVariant variant) {
  chooseTarget();
  if (FlatLoop loop = HWY_DYNAMIC_DISPATCH(flatLoop)(op, dtype, variant))
    return loop;
  return HWY_STATIC_DISPATCH(rareIntegerLoop)(op, dtype, variant);
}
} // namespace zerocc
#endif
