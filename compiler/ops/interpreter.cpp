// The plain interpreter: what each core op means. One function per op family, one formula per op; floats are
// doubles, integers and booleans exact 64-bit lanes. It is written to be read and trusted: kernels,
// gradients, passes and the constant folder are checked against (or use) it.
//
// Integers wrap to their dtype. NaN propagates through max, min, relu and the reductions.

#include "compiler/ops/interpreter_call.h"

#include "llvm/ADT/StringRef.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace zerocc {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// ---------------------------------------------------------------------------------------------------------------
// Views and movement

/// The operand read through strides: out[i] = in[offset + Σ i_k strides_k].
HostTensor readStrided(const Call &call, llvm::ArrayRef<int64_t> strides, int64_t offset = 0) {
  HostTensor out = call.result();
  withLane(out.type.dtype, [&](auto lane) {
    using T = decltype(lane);
    const std::vector<T> &from = lanes<T>(call.in(0));
    std::vector<T> &to = lanes<T>(out);
    walk(out.type.dims, strides, offset, [&](int64_t i, int64_t at) { to[i] = from[at]; });
  });
  return out;
}

// reshape, copy     y = the same elements in row-major order
HostTensor evaluateReshape(const Call &call) {
  HostTensor out = call.in(0);
  out.type = call.resultType();
  return out;
}

// transpose         y[i_0, …] = x[j], j[perm_k] = i_k
HostTensor evaluateTranspose(const Call &call) {
  Dims strides = rowMajorStrides(call.in(0).type.dims), permuted;
  for (int64_t axis : call.attributes().getInts("perm"))
    permuted.push_back(strides[axis]);
  return readStrided(call, permuted);
}

// broadcast         y[…, i] = x[…, i or 0 where x's dim is 1], dims aligned right
HostTensor evaluateBroadcast(const Call &call) {
  const Dims &from = call.in(0).type.dims;
  const Dims &to = call.resultType().dims;
  Dims strides = rowMajorStrides(from);
  Dims spread(to.size(), 0);
  size_t missing = to.size() - from.size();
  for (size_t i = 0; i < from.size(); ++i)
    spread[missing + i] = from[i] == 1 ? 0 : strides[i];
  return readStrided(call, spread);
}

// slice             y[i] = x[start + i * step]
HostTensor evaluateSlice(const Call &call) {
  std::vector<int64_t> starts = call.attributes().getInts("starts"),
                       steps = call.attributes().getInts("steps");
  Dims strides = rowMajorStrides(call.in(0).type.dims);
  int64_t offset = 0;
  for (size_t i = 0; i < strides.size(); ++i) {
    offset += starts[i] * strides[i];
    if (!steps.empty())
      strides[i] *= steps[i];
  }
  return readStrided(call, strides, offset);
}

// concat            y = x_0, x_1, … one behind the other along `axis`
HostTensor evaluateConcat(const Call &call) {
  HostTensor out = call.result();
  int64_t axis = call.attributes().getInt("axis");
  Dims strides = rowMajorStrides(out.type.dims);
  int64_t offset = 0;
  for (const HostTensor *in : call.inputs) {
    withLane(out.type.dtype, [&](auto lane) {
      using T = decltype(lane);
      const std::vector<T> &from = lanes<T>(*in);
      std::vector<T> &to = lanes<T>(out);
      walk(in->type.dims, strides, offset, [&](int64_t i, int64_t at) { to[at] = from[i]; });
    });
    offset += in->type.dims[axis] * strides[axis];
  }
  return out;
}

// pad               y = value, and x from index `low` on
HostTensor evaluatePad(const Call &call) {
  HostTensor out = call.result();
  std::vector<int64_t> low = call.attributes().getInts("low");
  double value = call.attributes().getFloat("value");
  Dims strides = rowMajorStrides(out.type.dims);
  int64_t offset = 0;
  for (size_t i = 0; i < strides.size(); ++i)
    offset += low[i] * strides[i];
  withLane(out.type.dtype, [&](auto lane) {
    using T = decltype(lane);
    const std::vector<T> &from = lanes<T>(call.in(0));
    std::vector<T> &to = lanes<T>(out);
    std::fill(to.begin(), to.end(), static_cast<T>(value));
    walk(call.in(0).type.dims, strides, offset, [&](int64_t i, int64_t at) { to[at] = from[i]; });
  });
  return out;
}

/// Truncates; NaN is 0, what lies outside the dtype's range becomes its nearest end.
int64_t realToInteger(double v, DType dtype) {
  if (std::isnan(v))
    return 0;
  int bits = static_cast<int>(byteSize(dtype)) * 8;
  if (isUnsigned(dtype)) {
    const double above = std::ldexp(1.0, bits); // the first value above the range
    return static_cast<int64_t>(v >= above ? ~uint64_t(0) >> (64 - bits)
                                           : static_cast<uint64_t>(std::max(v, 0.0)));
  }
  double limit = std::ldexp(1.0, bits - 1); // the first value above the range
  if (v >= limit)
    return static_cast<int64_t>((uint64_t(1) << (bits - 1)) - 1);
  if (v <= -limit)
    return -static_cast<int64_t>((uint64_t(1) << (bits - 1)) - 1) - 1;
  return static_cast<int64_t>(v);
}

// cast              real -> integer truncates and clamps, integer -> integer wraps, anything -> bool is x !=
// 0
HostTensor evaluateCast(const Call &call) {
  const HostTensor &in = call.in(0);
  HostTensor out = call.result();
  bool fromReal = isFloat(in.type.dtype);
  DType to = out.type.dtype;
  if (isFloat(to))
    for (size_t i = 0; i < out.reals.size(); ++i)
      out.reals[i] = in.at(i);
  else if (!fromReal)
    out.integers = in.integers;
  else
    for (size_t i = 0; i < out.integers.size(); ++i)
      out.integers[i] = to == DType::boolean ? in.reals[i] != 0 : realToInteger(in.reals[i], to);
  return out;
}

// iota              y[i] = i
HostTensor evaluateIota(const Call &call) {
  HostTensor out = call.result();
  withLane(out.type.dtype, [&](auto lane) {
    using T = decltype(lane);
    for (size_t i = 0; i < lanes<T>(out).size(); ++i)
      lanes<T>(out)[i] = static_cast<T>(i);
  });
  return out;
}

/// The indices made non-negative (negative ones count from the end of `size`).
Expected<std::vector<int64_t>> resolveIndices(const HostTensor &indices, int64_t size) {
  std::vector<int64_t> out = indices.integers;
  for (int64_t &index : out) {
    if (index < -size || index >= size)
      return Error("index " + std::to_string(index) + " is outside [" + std::to_string(-size) + ", " +
                   std::to_string(size) + ")");
    index += index < 0 ? size : 0;
  }
  return out;
}

/// Data as [outer, size, inner], updates (or gathered values) as [outer, indices, inner].
struct GatherExtents {
  int64_t outer, size, inner;
  GatherExtents(llvm::ArrayRef<int64_t> dataDims, int64_t axis)
      : outer(product(dataDims.take_front(axis))), size(dataDims[axis]),
        inner(product(dataDims.drop_front(axis + 1))) {}
};

// gather            y[o, i, …] = data[o, indices[i], …]
Expected<HostTensor> evaluateGather(const Call &call) {
  HostTensor out = call.result();
  GatherExtents extents(call.in(0).type.dims, call.attributes().getInt("axis"));
  ZEROCC_ASSIGN(std::vector<int64_t> indices, resolveIndices(call.in(1), extents.size));
  withLane(out.type.dtype, [&](auto lane) {
    using T = decltype(lane);
    auto to = lanes<T>(out).begin();
    for (int64_t o = 0; o < extents.outer; ++o)
      for (int64_t index : indices) {
        auto from = lanes<T>(call.in(0)).begin() + (o * extents.size + index) * extents.inner;
        to = std::copy(from, from + extents.inner, to);
      }
  });
  return out;
}

// scatter_add       y = 0;  y[o, indices[i], …] += updates[o, i, …]  for i ascending
Expected<HostTensor> evaluateScatterAdd(const Call &call) {
  HostTensor out = call.result();
  GatherExtents extents(out.type.dims, call.attributes().getInt("axis"));
  ZEROCC_ASSIGN(std::vector<int64_t> indices, resolveIndices(call.in(0), extents.size));
  withLane(out.type.dtype, [&](auto lane) {
    using T = decltype(lane);
    auto from = lanes<T>(call.in(1)).begin();
    for (int64_t o = 0; o < extents.outer; ++o)
      for (int64_t index : indices) {
        auto to = lanes<T>(out).begin() + (o * extents.size + index) * extents.inner;
        for (int64_t i = 0; i < extents.inner; ++i, ++to, ++from)
          *to = plus(*to, *from);
      }
  });
  return out;
}

// ---------------------------------------------------------------------------------------------------------------
// Elementwise

constexpr double kSqrtHalf = M_SQRT1_2;
constexpr double kInverseSqrtTwoPi = 0.5 * M_2_SQRTPI * M_SQRT1_2; // 1 / √(2π)
constexpr double kGeluTanhScale = M_2_SQRTPI * M_SQRT1_2;          // √(2/π)
constexpr double kGeluTanhCubic = 0.044715;

bool isTanhGelu(const Node &node) { return node.attributes.getString("approximate", "none") == "tanh"; }

double gelu(double x, bool tanhForm) {
  if (tanhForm)
    return 0.5 * x * (1 + std::tanh(kGeluTanhScale * (x + kGeluTanhCubic * x * x * x)));
  return 0.5 * x * (1 + std::erf(x * kSqrtHalf));
}

double geluDerivative(double x, bool tanhForm) {
  if (tanhForm) {
    double t = std::tanh(kGeluTanhScale * (x + kGeluTanhCubic * x * x * x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * kGeluTanhScale * (1 + 3 * kGeluTanhCubic * x * x);
  }
  return 0.5 * (1 + std::erf(x * kSqrtHalf)) + x * kInverseSqrtTwoPi * std::exp(-0.5 * x * x);
}

template <typename T, typename R, typename F> HostTensor mapUnary(const Call &call, F f) {
  HostTensor out = call.result();
  const std::vector<T> &x = lanes<T>(call.in(0));
  std::vector<R> &y = lanes<R>(out);
  for (size_t i = 0; i < y.size(); ++i)
    y[i] = f(x[i]);
  return out;
}

Expected<HostTensor> evaluateRealUnary(const Call &call) {
  auto map = [&](auto f) { return mapUnary<double, double>(call, f); };
  switch (call.node.op) {
  case OpKind::Neg: // -x
    return map([](double x) { return -x; });
  case OpKind::Abs: // |x|
    return map([](double x) { return std::fabs(x); });
  case OpKind::Sign: // -1, 0, 1
    return map([](double x) { return std::isnan(x) ? x : static_cast<double>((x > 0) - (x < 0)); });
  case OpKind::Exp: // e^x
    return map([](double x) { return std::exp(x); });
  case OpKind::Log: // ln x
    return map([](double x) { return std::log(x); });
  case OpKind::Sqrt: // √x
    return map([](double x) { return std::sqrt(x); });
  case OpKind::Tanh: // tanh x
    return map([](double x) { return std::tanh(x); });
  case OpKind::Sigmoid: // 1 / (1 + e^-x)
    return map([](double x) { return 1 / (1 + std::exp(-x)); });
  case OpKind::Erf: // 2/√π ∫_0^x e^-t² dt
    return map([](double x) { return std::erf(x); });
  case OpKind::Sin: // sin x
    return map([](double x) { return std::sin(x); });
  case OpKind::Cos: // cos x
    return map([](double x) { return std::cos(x); });
  case OpKind::Relu: // max(x, 0)
    return map([](double x) { return x < 0 ? 0 : x; });
  case OpKind::Floor: // ⌊x⌋
    return map([](double x) { return std::floor(x); });
  case OpKind::Gelu: // x Φ(x), or its tanh form 0.5 x (1 + tanh(√(2/π) (x + 0.044715 x³)))
    return map([tanhForm = isTanhGelu(call.node)](double x) { return gelu(x, tanhForm); });
  case OpKind::Round: // the nearest integer, ties to even
    return map([](double x) { return std::nearbyint(x); });
  case OpKind::Tan: // tan x
    return map([](double x) { return std::tan(x); });
  case OpKind::Asin: // arcsin x
    return map([](double x) { return std::asin(x); });
  case OpKind::Acos: // arccos x
    return map([](double x) { return std::acos(x); });
  case OpKind::Atan: // arctan x
    return map([](double x) { return std::atan(x); });
  case OpKind::Sinh: // sinh x
    return map([](double x) { return std::sinh(x); });
  case OpKind::Cosh: // cosh x
    return map([](double x) { return std::cosh(x); });
  case OpKind::Asinh: // arsinh x
    return map([](double x) { return std::asinh(x); });
  case OpKind::Acosh: // arcosh x
    return map([](double x) { return std::acosh(x); });
  case OpKind::Atanh: // artanh x
    return map([](double x) { return std::atanh(x); });
  case OpKind::IsNan: // x ≠ x
    return mapUnary<double, int64_t>(call, [](double x) { return std::isnan(x); });
  default:
    return Error("no meaning for real operands");
  }
}

Expected<HostTensor> evaluateIntegerUnary(const Call &call) {
  auto map = [&](auto f) { return mapUnary<int64_t, int64_t>(call, f); };
  auto isNegative = [isSigned = call.in(0).type.dtype != DType::u64](int64_t x) { return isSigned && x < 0; };
  switch (call.node.op) {
  case OpKind::Neg: // -x
    return map([](int64_t x) { return minus(0, x); });
  case OpKind::Abs: // |x|
    return map([=](int64_t x) { return isNegative(x) ? minus(0, x) : x; });
  case OpKind::Sign: // -1, 0, 1
    return map([=](int64_t x) { return int64_t(isNegative(x) ? -1 : x != 0); });
  case OpKind::Relu: // max(x, 0)
    return map([=](int64_t x) { return isNegative(x) ? 0 : x; });
  case OpKind::Not: // ¬x
    return map([](int64_t x) { return int64_t(x == 0); });
  case OpKind::IsNan: // no integer is NaN
    return map([](int64_t) { return int64_t(0); });
  default:
    return Error("no meaning for integer operands");
  }
}

template <typename T, typename R, typename F> HostTensor mapBinary(const Call &call, F f) {
  HostTensor out = call.result();
  const std::vector<T> &a = lanes<T>(call.in(0)), &b = lanes<T>(call.in(1));
  std::vector<R> &y = lanes<R>(out);
  for (size_t i = 0; i < y.size(); ++i)
    y[i] = f(a[i], b[i]);
  return out;
}

Expected<HostTensor> evaluateRealBinary(const Call &call) {
  auto map = [&](auto f) { return mapBinary<double, double>(call, f); };
  switch (call.node.op) {
  case OpKind::Add: // a + b
  case OpKind::Accumulate:
    return map([](double a, double b) { return a + b; });
  case OpKind::Sub: // a - b
    return map([](double a, double b) { return a - b; });
  case OpKind::Mul: // a b
    return map([](double a, double b) { return a * b; });
  case OpKind::Div: // a / b
    return map([](double a, double b) { return a / b; });
  case OpKind::Mod: // a - b trunc(a / b): the sign of a
    return map([](double a, double b) { return std::fmod(a, b); });
  case OpKind::Pow: // a^b
    return map([](double a, double b) { return std::pow(a, b); });
  case OpKind::Max: // the greater, NaN if one is
    return map([](double a, double b) { return std::isnan(a) || a > b ? a : b; });
  case OpKind::Min: // the lesser, NaN if one is
    return map([](double a, double b) { return std::isnan(a) || a < b ? a : b; });
  case OpKind::GeluGrad: // dx = dy gelu'(x)
    return map(
        [tanhForm = isTanhGelu(call.node)](double x, double dy) { return dy * geluDerivative(x, tanhForm); });
  default:
    return Error("no meaning for real operands");
  }
}

/// a^b for b ≥ 0 by squaring, wrapping.
int64_t integerPower(int64_t a, int64_t b) {
  int64_t power = 1;
  for (; b > 0; b >>= 1, a = times(a, a))
    if (b & 1)
      power = times(power, a);
  return power;
}

bool anyZero(llvm::ArrayRef<int64_t> values) { return llvm::is_contained(values, 0); }

/// The ops to which the sign of the highest bit matters, on lanes that hold u64.
std::optional<HostTensor> evaluateUnsigned64(const Call &call) {
  using U = uint64_t;
  auto map = [&](auto f) {
    return mapBinary<int64_t, int64_t>(call, [f](int64_t a, int64_t b) {
      return static_cast<int64_t>(f(static_cast<U>(a), static_cast<U>(b)));
    });
  };
  switch (call.node.op) {
  case OpKind::Div:
    return map([](U a, U b) { return a / b; });
  case OpKind::Mod:
    return map([](U a, U b) { return a % b; });
  case OpKind::Max:
    return map([](U a, U b) { return std::max(a, b); });
  case OpKind::Min:
    return map([](U a, U b) { return std::min(a, b); });
  default:
    return std::nullopt;
  }
}

Expected<HostTensor> evaluateIntegerBinary(const Call &call) {
  auto map = [&](auto f) { return mapBinary<int64_t, int64_t>(call, f); };
  const bool divides = call.node.op == OpKind::Div || call.node.op == OpKind::Mod;
  if (call.in(0).type.dtype == DType::u64 && !(divides && anyZero(call.in(1).integers)))
    if (std::optional<HostTensor> result = evaluateUnsigned64(call))
      return std::move(*result);
  switch (call.node.op) {
  case OpKind::Add: // a + b
  case OpKind::Accumulate:
    return map([](int64_t a, int64_t b) { return plus(a, b); });
  case OpKind::Sub: // a - b
    return map(minus);
  case OpKind::Mul: // a b
    return map([](int64_t a, int64_t b) { return times(a, b); });
  case OpKind::Div: // a / b, truncated
    if (anyZero(call.in(1).integers))
      return Error("integer division by zero");
    return map([](int64_t a, int64_t b) { return b == -1 ? minus(0, a) : a / b; });
  case OpKind::Mod: // a - b ⌊a / b⌋: the sign of b
    if (anyZero(call.in(1).integers))
      return Error("integer modulo by zero");
    return map([](int64_t a, int64_t b) {
      int64_t remainder = b == -1 ? 0 : a % b;
      return remainder != 0 && (remainder < 0) != (b < 0) ? remainder + b : remainder;
    });
  case OpKind::Pow: // a^b; for b < 0 the truncated 1 / a^-b
    for (size_t i = 0; i < call.in(1).integers.size(); ++i)
      if (call.in(0).integers[i] == 0 && call.in(1).integers[i] < 0)
        return Error("zero to the power of " + std::to_string(call.in(1).integers[i]));
    return map([](int64_t a, int64_t b) {
      if (b >= 0)
        return integerPower(a, b);
      return a == 1 ? 1 : a == -1 ? (b & 1 ? int64_t(-1) : int64_t(1)) : 0;
    });
  case OpKind::Max: // the greater
    return map([](int64_t a, int64_t b) { return std::max(a, b); });
  case OpKind::Min: // the lesser
    return map([](int64_t a, int64_t b) { return std::min(a, b); });
  case OpKind::And: // a ∧ b
    return map([](int64_t a, int64_t b) { return int64_t(a && b); });
  case OpKind::Or: // a ∨ b
    return map([](int64_t a, int64_t b) { return int64_t(a || b); });
  case OpKind::BitAnd: // bit by bit
    return map([](int64_t a, int64_t b) { return a & b; });
  case OpKind::BitOr:
    return map([](int64_t a, int64_t b) { return a | b; });
  case OpKind::BitXor:
    return map([](int64_t a, int64_t b) { return a ^ b; });
  case OpKind::ShiftLeft: // a 2^b, the bits that fall out lost; 0 when b is not within the bits of the dtype
    return map([bits = byteSize(call.in(0).type.dtype) * 8](int64_t a, int64_t b) {
      return b < 0 || b >= bits ? 0 : static_cast<int64_t>(static_cast<uint64_t>(a) << b);
    });
  case OpKind::ShiftRight: // ⌊a / 2^b⌋; beyond the bits of the dtype what is left of the sign
    return map([dtype = call.in(0).type.dtype](int64_t a, int64_t b) {
      const bool beyond = b < 0 || b >= byteSize(dtype) * 8;
      if (dtype == DType::u64)
        return beyond ? 0 : static_cast<int64_t>(static_cast<uint64_t>(a) >> b);
      return beyond ? (a < 0 ? int64_t(-1) : int64_t(0)) : a >> b;
    });
  default:
    return Error("no meaning for integer operands");
  }
}

// compare           a = b, a ≠ b, a < b, …; with NaN only ≠ is true
Expected<HostTensor> evaluateCompare(const Call &call) {
  std::string kind = call.attributes().getString("kind");
  if (call.in(0).type.dtype == DType::u64 && kind != "eq" && kind != "ne")
    return mapBinary<int64_t, int64_t>(call, [kind](int64_t x, int64_t y) {
      const auto a = static_cast<uint64_t>(x), b = static_cast<uint64_t>(y);
      return int64_t(kind == "lt" ? a < b : kind == "le" ? a <= b : kind == "gt" ? a > b : a >= b);
    });
  return withLane(call.in(0).type.dtype, [&](auto lane) -> Expected<HostTensor> {
    using T = decltype(lane);
    auto map = [&](auto f) { return mapBinary<T, int64_t>(call, f); };
    if (kind == "eq")
      return map([](T a, T b) { return a == b; });
    if (kind == "ne")
      return map([](T a, T b) { return a != b; });
    if (kind == "lt")
      return map([](T a, T b) { return a < b; });
    if (kind == "le")
      return map([](T a, T b) { return a <= b; });
    if (kind == "gt")
      return map([](T a, T b) { return a > b; });
    if (kind == "ge")
      return map([](T a, T b) { return a >= b; });
    return Error("unknown comparison \"" + kind + "\"");
  });
}

// select            condition ? a : b
HostTensor evaluateSelect(const Call &call) {
  HostTensor out = call.result();
  withLane(out.type.dtype, [&](auto lane) {
    using T = decltype(lane);
    const std::vector<T> &a = lanes<T>(call.in(1)), &b = lanes<T>(call.in(2));
    for (size_t i = 0; i < a.size(); ++i)
      lanes<T>(out)[i] = call.in(0).integers[i] ? a[i] : b[i];
  });
  return out;
}

// ---------------------------------------------------------------------------------------------------------------
// Reductions and products

// reduce_sum        y = Σ over the axes;  reduce_max: the greatest, -inf (or the least integer) of none
HostTensor evaluateReduce(const Call &call) {
  HostTensor out = call.result();
  const Dims &dims = call.in(0).type.dims;
  std::vector<int64_t> axes = call.attributes().getInts("axes");
  Dims kept = rowMajorStrides(out.type.dims), strides(dims.size(), 0);
  for (size_t axis = 0, next = 0; axis < dims.size(); ++axis)
    if (!llvm::is_contained(axes, static_cast<int64_t>(axis)))
      strides[axis] = kept[next++];
  bool isMax = call.node.op == OpKind::ReduceMax;
  withLane(out.type.dtype, [&](auto lane) {
    using T = decltype(lane);
    const std::vector<T> &x = lanes<T>(call.in(0));
    std::vector<T> &y = lanes<T>(out);
    if (isMax) {
      T least = isFloat(out.type.dtype) ? static_cast<T>(-kInfinity)
                                        : static_cast<T>(realToInteger(-kInfinity, out.type.dtype));
      std::fill(y.begin(), y.end(), least);
      walk(dims, strides, 0, [&](int64_t i, int64_t at) {
        if (x[i] > y[at] || x[i] != x[i])
          y[at] = x[i];
      });
    } else {
      walk(dims, strides, 0, [&](int64_t i, int64_t at) { y[at] = plus(y[at], x[i]); });
    }
  });
  return out;
}

/// Matrix `index` of a batch as row-major [rows, columns], its last two dims swapped first when `swap`.
template <typename T>
std::vector<T> matrixOf(const HostTensor &tensor, int64_t index, int64_t rows, int64_t columns, bool swap) {
  const T *from = lanes<T>(tensor).data() + index * rows * columns;
  if (!swap)
    return std::vector<T>(from, from + rows * columns);
  std::vector<T> out(rows * columns);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c)
      out[r * columns + c] = from[c * rows + r];
  return out;
}

// matmul            y[m, n] = Σ_k a[m, k] b[k, n], k ascending
HostTensor evaluateMatMul(const Call &call) {
  HostTensor out = call.result();
  bool transA = call.attributes().getInt("trans_a"), transB = call.attributes().getInt("trans_b");
  const Dims &a = call.in(0).type.dims;
  int64_t m = *(out.type.dims.end() - 2), n = out.type.dims.back();
  int64_t k = transA ? *(a.end() - 2) : a.back();
  int64_t batches = product(llvm::ArrayRef<int64_t>(a).drop_back(2));
  withLane(out.type.dtype, [&](auto lane) {
    using T = decltype(lane);
    for (int64_t batch = 0; batch < batches; ++batch) {
      std::vector<T> left = matrixOf<T>(call.in(0), batch, m, k, transA);
      std::vector<T> right = matrixOf<T>(call.in(1), batch, k, n, transB);
      T *to = lanes<T>(out).data() + batch * m * n;
      for (int64_t row = 0; row < m; ++row)
        for (int64_t inner = 0; inner < k; ++inner) {
          T factor = left[row * k + inner];
          const T *from = right.data() + inner * n;
          for (int64_t column = 0; column < n; ++column)
            to[row * n + column] = plus(to[row * n + column], times(factor, from[column]));
        }
    }
  });
  return out;
}

// ---------------------------------------------------------------------------------------------------------------
// Softmax, layer norm, cross entropy

struct RowSum {
  double max = -kInfinity; // NaN when the row has one
  double logSum = 0;       // ln Σ e^x
};

RowSum logSumOfRow(llvm::ArrayRef<double> row) {
  RowSum out;
  for (double x : row)
    if (x > out.max || std::isnan(x))
      out.max = x;
  double sum = 0;
  for (double x : row)
    sum += std::exp(x - out.max);
  out.logSum = out.max + std::log(sum);
  return out;
}

llvm::ArrayRef<double> rowOf(const HostTensor &tensor, int64_t row, int64_t width) {
  return llvm::ArrayRef<double>(tensor.reals).slice(row * width, width);
}

// softmax           y_i = e^(x_i - max) / Σ_j e^(x_j - max); a row whose max is -inf: zeros when safe, else
// NaN
HostTensor evaluateSoftmax(const Call &call) {
  HostTensor out = call.result();
  Rows rows(out.type);
  bool safe = call.attributes().getInt("safe");
  for (int64_t r = 0; r < rows.count; ++r) {
    llvm::ArrayRef<double> x = rowOf(call.in(0), r, rows.width);
    double max = logSumOfRow(x).max, sum = 0;
    if (safe && max == -kInfinity)
      continue;
    double *y = out.reals.data() + r * rows.width;
    for (int64_t i = 0; i < rows.width; ++i)
      sum += y[i] = std::exp(x[i] - max);
    for (int64_t i = 0; i < rows.width; ++i)
      y[i] /= sum;
  }
  return out;
}

// log_softmax       y_i = x_i - ln Σ_j e^x_j
HostTensor evaluateLogSoftmax(const Call &call) {
  HostTensor out = call.result();
  Rows rows(out.type);
  for (int64_t r = 0; r < rows.count; ++r) {
    llvm::ArrayRef<double> x = rowOf(call.in(0), r, rows.width);
    RowSum sum = logSumOfRow(x);
    for (int64_t i = 0; i < rows.width; ++i)
      out.reals[r * rows.width + i] = (x[i] - sum.max) - (sum.logSum - sum.max);
  }
  return out;
}

// softmax_grad      dx = y (dy - Σ y dy)
HostTensor evaluateSoftmaxGrad(const Call &call) {
  HostTensor out = call.result();
  Rows rows(out.type);
  for (int64_t r = 0; r < rows.count; ++r) {
    llvm::ArrayRef<double> y = rowOf(call.in(0), r, rows.width), dy = rowOf(call.in(1), r, rows.width);
    double dot = 0;
    for (int64_t i = 0; i < rows.width; ++i)
      dot += y[i] * dy[i];
    for (int64_t i = 0; i < rows.width; ++i)
      out.reals[r * rows.width + i] = y[i] * (dy[i] - dot);
  }
  return out;
}

// log_softmax_grad  dx = dy - e^y Σ dy
HostTensor evaluateLogSoftmaxGrad(const Call &call) {
  HostTensor out = call.result();
  Rows rows(out.type);
  for (int64_t r = 0; r < rows.count; ++r) {
    llvm::ArrayRef<double> y = rowOf(call.in(0), r, rows.width), dy = rowOf(call.in(1), r, rows.width);
    double sum = 0;
    for (double d : dy)
      sum += d;
    for (int64_t i = 0; i < rows.width; ++i)
      out.reals[r * rows.width + i] = dy[i] - std::exp(y[i]) * sum;
  }
  return out;
}

// layer_norm        mean = Σ x / D;  rstd = 1 / √(Σ (x - mean)² / D + eps);  y = (x - mean) rstd scale + bias
HostTensors evaluateLayerNorm(const Call &call) {
  HostTensor y = call.result(0), mean = call.result(1), rstd = call.result(2);
  Rows rows(y.type);
  double eps = call.attributes().getFloat("eps", 1e-5);
  for (int64_t r = 0; r < rows.count; ++r) {
    llvm::ArrayRef<double> x = rowOf(call.in(0), r, rows.width);
    double sum = 0, squares = 0;
    for (double v : x)
      sum += v;
    mean.reals[r] = sum / static_cast<double>(rows.width);
    for (double v : x)
      squares += (v - mean.reals[r]) * (v - mean.reals[r]);
    rstd.reals[r] = 1 / std::sqrt(squares / static_cast<double>(rows.width) + eps);
    for (int64_t i = 0; i < rows.width; ++i)
      y.reals[r * rows.width + i] = (x[i] - mean.reals[r]) * rstd.reals[r] * call.in(1).reals[i] +
                                    (call.inputs.size() > 2 ? call.in(2).reals[i] : 0);
  }
  HostTensors out = single(std::move(y));
  out.push_back(std::move(mean));
  out.push_back(std::move(rstd));
  return out;
}

// layer_norm_grad   x̂ = (x - mean) rstd;  g = dy scale;  dx = rstd (g - Σ g / D - x̂ Σ g x̂ / D)
HostTensor evaluateLayerNormGrad(const Call &call) {
  HostTensor out = call.result();
  Rows rows(out.type);
  const std::vector<double> &scale = call.in(1).reals;
  std::vector<double> normal(rows.width), g(rows.width);
  for (int64_t r = 0; r < rows.count; ++r) {
    llvm::ArrayRef<double> x = rowOf(call.in(0), r, rows.width), dy = rowOf(call.in(4), r, rows.width);
    double mean = call.in(2).reals[r], rstd = call.in(3).reals[r], sum = 0, dot = 0;
    for (int64_t i = 0; i < rows.width; ++i) {
      normal[i] = (x[i] - mean) * rstd;
      g[i] = dy[i] * scale[i];
      sum += g[i];
      dot += g[i] * normal[i];
    }
    double width = static_cast<double>(rows.width);
    for (int64_t i = 0; i < rows.width; ++i)
      out.reals[r * rows.width + i] = rstd * (g[i] - sum / width - normal[i] * (dot / width));
  }
  return out;
}

// layer_norm_parameter_grad   dscale = Σ_rows dy x̂;  dbias = Σ_rows dy
HostTensors evaluateLayerNormParameterGrad(const Call &call) {
  HostTensor scale = call.result(0), bias = call.result(1);
  Rows rows(call.in(0).type);
  for (int64_t r = 0; r < rows.count; ++r) {
    llvm::ArrayRef<double> x = rowOf(call.in(0), r, rows.width), dy = rowOf(call.in(3), r, rows.width);
    for (int64_t i = 0; i < rows.width; ++i) {
      scale.reals[i] += dy[i] * ((x[i] - call.in(1).reals[r]) * call.in(2).reals[r]);
      bias.reals[i] += dy[i];
    }
  }
  HostTensors out = single(std::move(scale));
  out.push_back(std::move(bias));
  return out;
}

/// What the cross-entropy ops know of their labels.
struct Labels {
  int64_t ignoreIndex;
  double smoothing;
  explicit Labels(const Attributes &attributes)
      : ignoreIndex(attributes.getInt("ignore_index", -100)),
        smoothing(attributes.getFloat("label_smoothing", 0)) {}
};

Status checkLabels(const HostTensor &labels, int64_t ignoreIndex, int64_t classes) {
  for (int64_t label : labels.integers)
    if (label != ignoreIndex && (label < 0 || label >= classes))
      return Error("label " + std::to_string(label) + " is outside [0, " + std::to_string(classes) +
                   ") and is not the ignored " + std::to_string(ignoreIndex));
  return success();
}

// cross_entropy     lse_r = ln Σ_c e^x_rc  (0 for ignored rows);  count = valid rows
//                   loss = Σ_valid (1 - e) (lse_r - x_r,label) + e/C Σ_c (lse_r - x_rc)
Expected<HostTensors> evaluateCrossEntropy(const Call &call) {
  Labels labels(call.attributes());
  HostTensor loss = call.result(0), count = call.result(1), lse = call.result(2);
  Rows rows(call.in(0).type);
  ZEROCC_TRY(checkLabels(call.in(1), labels.ignoreIndex, rows.width));
  for (int64_t r = 0; r < rows.count; ++r) {
    int64_t label = call.in(1).integers[r];
    if (label == labels.ignoreIndex)
      continue;
    llvm::ArrayRef<double> x = rowOf(call.in(0), r, rows.width);
    lse.reals[r] = logSumOfRow(x).logSum;
    double row = (1 - labels.smoothing) * (lse.reals[r] - x[label]);
    if (labels.smoothing != 0)
      for (double v : x)
        row += labels.smoothing / static_cast<double>(rows.width) * (lse.reals[r] - v);
    loss.reals[0] += row;
    count.reals[0] += 1;
  }
  HostTensors out = single(std::move(loss));
  out.push_back(std::move(count));
  out.push_back(std::move(lse));
  return out;
}

// cross_entropy_grad   dx_rc = seed (e^(x_rc - lse_r) - (1 - e) [c = label_r] - e/C);  0 for ignored rows
Expected<HostTensor> evaluateCrossEntropyGrad(const Call &call) {
  Labels labels(call.attributes());
  HostTensor out = call.result();
  Rows rows(out.type);
  ZEROCC_TRY(checkLabels(call.in(1), labels.ignoreIndex, rows.width));
  double seed = call.in(3).reals[0];
  for (int64_t r = 0; r < rows.count; ++r) {
    int64_t label = call.in(1).integers[r];
    if (label == labels.ignoreIndex)
      continue;
    llvm::ArrayRef<double> x = rowOf(call.in(0), r, rows.width);
    for (int64_t c = 0; c < rows.width; ++c) {
      double target =
          (c == label ? 1 - labels.smoothing : 0) + labels.smoothing / static_cast<double>(rows.width);
      out.reals[r * rows.width + c] = seed * (std::exp(x[c] - call.in(2).reals[r]) - target);
    }
  }
  return out;
}

// ---------------------------------------------------------------------------------------------------------------

Expected<HostTensor> evaluateSingle(const Call &call) {
  bool real = !call.inputs.empty() && isFloat(call.in(0).type.dtype);
  switch (call.node.op) {
  case OpKind::Reshape:
  case OpKind::Copy:
    return evaluateReshape(call);
  case OpKind::Transpose:
    return evaluateTranspose(call);
  case OpKind::Broadcast:
    return evaluateBroadcast(call);
  case OpKind::Slice:
    return evaluateSlice(call);
  case OpKind::Concat:
    return evaluateConcat(call);
  case OpKind::Pad:
    return evaluatePad(call);
  case OpKind::Cast:
    return evaluateCast(call);
  case OpKind::Iota:
    return evaluateIota(call);
  case OpKind::Gather:
    return evaluateGather(call);
  case OpKind::ScatterAdd:
    return evaluateScatterAdd(call);
  case OpKind::Neg:
  case OpKind::Abs:
  case OpKind::Sign:
  case OpKind::Exp:
  case OpKind::Log:
  case OpKind::Sqrt:
  case OpKind::Tanh:
  case OpKind::Sigmoid:
  case OpKind::Erf:
  case OpKind::Sin:
  case OpKind::Cos:
  case OpKind::Relu:
  case OpKind::Floor:
  case OpKind::Gelu:
  case OpKind::Round:
  case OpKind::Tan:
  case OpKind::Asin:
  case OpKind::Acos:
  case OpKind::Atan:
  case OpKind::Sinh:
  case OpKind::Cosh:
  case OpKind::Asinh:
  case OpKind::Acosh:
  case OpKind::Atanh:
  case OpKind::Not:
  case OpKind::IsNan:
    return real ? evaluateRealUnary(call) : evaluateIntegerUnary(call);
  case OpKind::Add:
  case OpKind::Accumulate:
  case OpKind::Sub:
  case OpKind::Mul:
  case OpKind::Div:
  case OpKind::Mod:
  case OpKind::Pow:
  case OpKind::Max:
  case OpKind::Min:
  case OpKind::And:
  case OpKind::Or:
  case OpKind::BitAnd:
  case OpKind::BitOr:
  case OpKind::BitXor:
  case OpKind::ShiftLeft:
  case OpKind::ShiftRight:
  case OpKind::GeluGrad:
    return real ? evaluateRealBinary(call) : evaluateIntegerBinary(call);
  case OpKind::Compare:
    return evaluateCompare(call);
  case OpKind::Select:
    return evaluateSelect(call);
  case OpKind::ReduceSum:
  case OpKind::ReduceMax:
    return evaluateReduce(call);
  case OpKind::MatMul:
    return evaluateMatMul(call);
  case OpKind::Softmax:
    return evaluateSoftmax(call);
  case OpKind::SoftmaxGrad:
    return evaluateSoftmaxGrad(call);
  case OpKind::LogSoftmax:
    return evaluateLogSoftmax(call);
  case OpKind::LogSoftmaxGrad:
    return evaluateLogSoftmaxGrad(call);
  case OpKind::LayerNormGrad:
    return evaluateLayerNormGrad(call);
  case OpKind::CrossEntropyGrad:
    return evaluateCrossEntropyGrad(call);
  default:
    return Error("the plain interpreter evaluates pure compute only, not buffers, collectives and updates");
  }
}

Expected<HostTensors> evaluate(const Call &call) {
  switch (call.node.op) {
  case OpKind::LayerNorm:
    return evaluateLayerNorm(call);
  case OpKind::LayerNormParameterGrad:
    return evaluateLayerNormParameterGrad(call);
  case OpKind::CrossEntropy:
    return evaluateCrossEntropy(call);
  case OpKind::ArgMax:
  case OpKind::TopK:
  case OpKind::CumSum:
  case OpKind::CumProd:
  case OpKind::CumProdGrad:
  case OpKind::Scatter:
    return evaluateIndexOp(call);
  case OpKind::Conv:
  case OpKind::ConvDataGrad:
  case OpKind::ConvWeightGrad:
  case OpKind::MaxPool:
  case OpKind::MaxPoolIndex:
  case OpKind::MaxPoolGrad:
  case OpKind::SumPool:
  case OpKind::SumPoolGrad:
    return evaluateWindowOp(call);
  case OpKind::Dropout:
  case OpKind::KeepMask:
    return evaluateRandomOp(call);
  default:
    ZEROCC_ASSIGN(HostTensor only, evaluateSingle(call));
    return single(std::move(only));
  }
}

std::string describe(const Node &node) {
  return "node \"" + node.location + "\" (" + std::string(opText(node.op)) + ")";
}

} // namespace

Expected<std::vector<HostTensor>> interpretNode(const Node &node, llvm::ArrayRef<const HostTensor *> inputs,
                                                const InterpretOptions &options) {
  Expected<HostTensors> results = evaluate({node, inputs});
  if (!results)
    return results.error().in(describe(node));
  for (HostTensor &result : *results) {
    for (int64_t &v : result.integers)
      v = wrapToDType(v, result.type.dtype);
    if (options.roundToDType)
      for (double &v : result.reals)
        v = roundToDType(v, result.type.dtype);
  }
  return results;
}

Expected<std::vector<HostTensor>> interpret(const Module &module, const Graph &graph,
                                            const llvm::DenseMap<const Value *, HostTensor> &bindings,
                                            const InterpretOptions &options) {
  llvm::DenseMap<const Value *, std::shared_ptr<const HostTensor>> values;
  auto valueOf = [&](const Value *value) -> Expected<const HostTensor *> {
    if (auto known = values.find(value); known != values.end())
      return known->second.get();
    if (auto bound = bindings.find(value); bound != bindings.end()) {
      if (!(bound->second.type == value->type))
        return Error("@" + value->name + " is " + print(value->type) + " but is bound to " +
                     print(bound->second.type));
      return &bound->second;
    }
    const Constant *constant = module.constantOf(value);
    if (!constant || constant->source.kind != DataSource::Kind::inlineBytes)
      return Error("no value is bound to @" + value->name);
    auto made = std::make_shared<HostTensor>(HostTensor::fromBytes(value->type, constant->source.bytes));
    return values.try_emplace(value, std::move(made)).first->second.get();
  };

  // Values are let go after their last reader, so that big graphs fit.
  llvm::DenseMap<const Value *, const Node *> lastReader;
  for (const Node *node : graph.nodes)
    for (const Value *input : node->inputs)
      lastReader[input] = node;
  for (const auto &[name, value] : graph.results)
    lastReader[value] = nullptr;

  for (const Node *node : graph.nodes) {
    llvm::SmallVector<const HostTensor *, 4> inputs;
    for (const Value *input : node->inputs) {
      ZEROCC_ASSIGN(const HostTensor *tensor, valueOf(input));
      inputs.push_back(tensor);
    }
    ZEROCC_ASSIGN(HostTensors results, interpretNode(*node, inputs, options));
    for (size_t i = 0; i < results.size(); ++i)
      values[node->results[i]] = std::make_shared<HostTensor>(std::move(results[i]));
    for (const Value *input : node->inputs)
      if (lastReader.lookup(input) == node)
        values.erase(input);
  }

  HostTensors out;
  for (const auto &[name, value] : graph.results) {
    ZEROCC_ASSIGN(const HostTensor *tensor, valueOf(value));
    out.push_back(*tensor);
  }
  return out;
}

} // namespace zerocc
