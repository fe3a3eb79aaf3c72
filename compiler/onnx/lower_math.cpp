// Lowerings of elementwise ops. ONNX's broadcasting becomes explicit; what core ops lack is composed of them.

#include "compiler/onnx/lowerings.h"

#include <cmath>
#include <limits>

namespace zerocc {

template <OpKind op> Values lowerUnary(NodeLowering &n) { return {n.unary(op, n.in(0))}; }

#define ZEROCC_UNARY(name, kind)                                                                             \
  Values name(NodeLowering &n) { return lowerUnary<OpKind::kind>(n); }
ZEROCC_UNARY(lowerNeg, Neg)
ZEROCC_UNARY(lowerAbs, Abs)
ZEROCC_UNARY(lowerSign, Sign)
ZEROCC_UNARY(lowerExp, Exp)
ZEROCC_UNARY(lowerLog, Log)
ZEROCC_UNARY(lowerSqrt, Sqrt)
ZEROCC_UNARY(lowerTanh, Tanh)
ZEROCC_UNARY(lowerSigmoid, Sigmoid)
ZEROCC_UNARY(lowerErf, Erf)
ZEROCC_UNARY(lowerSin, Sin)
ZEROCC_UNARY(lowerCos, Cos)
ZEROCC_UNARY(lowerRelu, Relu)
ZEROCC_UNARY(lowerFloor, Floor)
ZEROCC_UNARY(lowerNot, Not)
#undef ZEROCC_UNARY

// ceil x = -⌊-x⌋
Values lowerCeil(NodeLowering &n) {
  Value *flipped = n.unary(OpKind::Neg, n.in(0));
  return {n.unary(OpKind::Neg, n.unary(OpKind::Floor, flipped))};
}

Values lowerReciprocal(NodeLowering &n) {
  Value *x = n.in(0);
  return {x ? n.div(n.scalar(x->type.dtype, 1), x) : nullptr};
}

/// No integer is NaN.
Values lowerIsNan(NodeLowering &n) { return {n.unary(OpKind::IsNan, n.in(0))}; }

/// Opsets 1 to 6 spell broadcasting with attributes: `broadcast` = 1 aligns b's first axis with axis `axis`
/// of a.
static Value *alignOldBroadcast(NodeLowering &n, Value *a, Value *b) {
  if (n.version >= 7 || !a || !b || !n.hasAttribute("axis") || a->type.rank() == b->type.rank())
    return b;
  std::optional<int64_t> axis = n.normalAxis(n.intAttribute("axis", 0), a->type.rank());
  if (!axis)
    return nullptr;
  Dims dims = b->type.dims;
  for (int64_t rank = *axis + b->type.rank(); rank < a->type.rank(); ++rank)
    dims.push_back(1);
  return n.reshape(b, dims);
}

template <OpKind op> Values lowerBinary(NodeLowering &n) {
  Value *a = n.in(0), *b = n.in(1);
  return {n.binary(op, a, alignOldBroadcast(n, a, b))};
}

Values lowerAdd(NodeLowering &n) { return lowerBinary<OpKind::Add>(n); }
Values lowerSub(NodeLowering &n) { return lowerBinary<OpKind::Sub>(n); }
Values lowerMul(NodeLowering &n) { return lowerBinary<OpKind::Mul>(n); }
Values lowerDiv(NodeLowering &n) { return lowerBinary<OpKind::Div>(n); }

/// The exponent may have another dtype than the base, whose dtype the result has.
Values lowerPow(NodeLowering &n) {
  Value *base = n.in(0), *exponent = n.in(1);
  if (!base || !exponent)
    return {nullptr};
  if (!isFloat(base->type.dtype) && isFloat(exponent->type.dtype)) {
    Value *realBase = n.cast(base, DType::f64);
    return {n.cast(n.binary(OpKind::Pow, realBase, n.cast(exponent, DType::f64)), base->type.dtype)};
  }
  return {n.binary(OpKind::Pow, base, alignOldBroadcast(n, base, n.cast(exponent, base->type.dtype)))};
}

/// fmod = 1: the sign of the dividend; else that of the divisor, integers only.
Values lowerMod(NodeLowering &n) {
  Value *a = n.in(0), *b = n.in(1);
  if (!a || !b)
    return {nullptr};
  bool truncates = n.intAttribute("fmod", 0);
  if (isFloat(a->type.dtype) && !truncates)
    return {n.fail("Mod of floats needs fmod = 1")};
  Value *remainder = n.binary(OpKind::Mod, a, b);
  if (isFloat(a->type.dtype) || !truncates)
    return {remainder};
  return {n.sub(a, n.mul(n.div(a, b), b))};
}

template <OpKind op> Values lowerVariadic(NodeLowering &n) {
  Value *result = n.in(0);
  for (int i = 1; i < n.operandCount(); ++i)
    result = n.binary(op, result, n.in(i));
  return {result};
}

Values lowerSum(NodeLowering &n) { return lowerVariadic<OpKind::Add>(n); }
Values lowerMax(NodeLowering &n) { return lowerVariadic<OpKind::Max>(n); }
Values lowerMin(NodeLowering &n) { return lowerVariadic<OpKind::Min>(n); }
Values lowerMean(NodeLowering &n) { return {n.div(lowerSum(n)[0], static_cast<double>(n.operandCount()))}; }

/// Comparisons instead of max and min: at the bounds the gradient is that of x, as PyTorch has it.
Value *clip(NodeLowering &n, Value *x, Value *low, Value *high) {
  if (low)
    x = n.select(n.compare(x, low, "lt"), low, x);
  if (high)
    x = n.select(n.compare(x, high, "gt"), high, x);
  return x;
}

Values lowerClip(NodeLowering &n) {
  Value *x = n.in(0);
  if (!x)
    return {nullptr};
  Value *low = nullptr, *high = nullptr;
  if (n.version >= 11) {
    low = n.has(1) ? n.in(1) : nullptr;
    high = n.has(2) ? n.in(2) : nullptr;
  } else {
    if (n.hasAttribute("min"))
      low = n.scalar(x->type.dtype, n.floatAttribute("min", 0));
    if (n.hasAttribute("max"))
      high = n.scalar(x->type.dtype, n.floatAttribute("max", 0));
  }
  return {clip(n, x, low, high)};
}

// --- logic and comparison

/// And / Or with a constant operand that decides, or says nothing, needs no node: exporters and-in masks of
/// ones.
static Values lowerLogic(NodeLowering &n, OpKind op) {
  Value *operands[] = {n.in(0), n.in(1)};
  if (!n.broadcastTogether(operands))
    return {nullptr};
  for (int i : {0, 1})
    if (std::optional<double> constant = n.uniformNumber(operands[i])) {
      bool decides = (*constant != 0) == (op == OpKind::Or);
      return {decides ? operands[i] : operands[1 - i]};
    }
  return {n.emit(op, operands)};
}

Values lowerAnd(NodeLowering &n) { return lowerLogic(n, OpKind::And); }
Values lowerOr(NodeLowering &n) { return lowerLogic(n, OpKind::Or); }
Values lowerXor(NodeLowering &n) { return {n.compare(n.in(0), n.in(1), "ne")}; }
Values lowerEqual(NodeLowering &n) { return {n.compare(n.in(0), n.in(1), "eq")}; }
Values lowerLess(NodeLowering &n) { return {n.compare(n.in(0), n.in(1), "lt")}; }
Values lowerLessOrEqual(NodeLowering &n) { return {n.compare(n.in(0), n.in(1), "le")}; }
Values lowerGreater(NodeLowering &n) { return {n.compare(n.in(0), n.in(1), "gt")}; }
Values lowerGreaterOrEqual(NodeLowering &n) { return {n.compare(n.in(0), n.in(1), "ge")}; }

/// Where(IsNaN(p), 0, p) behind p = Softmax(x): exporters guard rows that are masked entirely. The guard is
/// the softmax's own business, or its gradient would be NaN.
static Value *safeSoftmax(NodeLowering &n, Value *condition, Value *a, Value *b) {
  if (!condition || !a || !b || condition->isGlobal() || condition->definition->op != OpKind::IsNan ||
      condition->definition->input(0) != b || b->isGlobal())
    return nullptr;
  const Node &softmax = *b->definition;
  if (softmax.op != OpKind::Softmax || n.uniformNumber(a) != 0.0)
    return nullptr;
  return n.emit(OpKind::Softmax, {softmax.input(0)}, {{"safe", int64_t(1)}});
}

Values lowerWhere(NodeLowering &n) {
  Value *condition = n.in(0), *a = n.in(1), *b = n.in(2);
  if (Value *safe = safeSoftmax(n, condition, a, b))
    return {safe};
  Value *operands[] = {condition, a, b};
  if (!n.broadcastTogether(operands))
    return {nullptr};
  if (std::optional<double> decided = n.uniformNumber(operands[0]))
    return {*decided != 0 ? operands[1] : operands[2]};
  return {n.emit(OpKind::Select, operands)};
}

Values lowerCast(NodeLowering &n) {
  int64_t to = n.intAttribute("to", 0);
  std::optional<DType> dtype = dtypeFromOnnx(static_cast<int32_t>(to));
  if (!dtype)
    return {n.fail("casts to " + onnxTypeName(static_cast<int32_t>(to)) + " are not supported")};
  return {n.cast(n.in(0), *dtype)};
}

Values lowerCastLike(NodeLowering &n) {
  Value *like = n.in(1);
  return {like ? n.cast(n.in(0), like->type.dtype) : nullptr};
}

// --- activations

Values lowerGelu(NodeLowering &n) {
  std::string approximate = n.stringAttribute("approximate", "none");
  if (approximate != "none" && approximate != "tanh")
    return {n.fail("approximate is \"" + approximate + "\", known are \"none\" and \"tanh\"")};
  return {n.emit(OpKind::Gelu, {n.in(0)}, {{"approximate", approximate}})};
}

/// x where x > 0 (or >= 0), else `negative`.
static Value *whereNegative(NodeLowering &n, Value *x, Value *negative) {
  return x ? n.select(n.compare(x, n.scalar(x->type.dtype, 0), "lt"), negative, x) : nullptr;
}

Values lowerLeakyRelu(NodeLowering &n) {
  Value *x = n.in(0);
  return {whereNegative(n, x, n.mul(x, n.floatAttribute("alpha", 0.01)))};
}

/// Before version 7 the slopes are one, or one per channel (axis 1).
Values lowerPRelu(NodeLowering &n) {
  Value *x = n.in(0), *slope = n.in(1);
  if (!x || !slope)
    return {nullptr};
  if (n.version < 7) {
    Dims dims(x->type.rank(), 1);
    if (slope->type.elements() != 1) {
      if (x->type.rank() < 2 || slope->type.dims != Dims{x->type.dims[1]})
        return {n.fail("slopes " + print(slope->type) + " do not fit the channels of " + print(x->type))};
      dims[1] = x->type.dims[1];
    }
    slope = n.reshape(slope, dims);
  }
  return {whereNegative(n, x, n.mul(x, slope))};
}

/// scale (e^min(x, 0) - 1): the minimum keeps e^x finite where it is not used, or its gradient would be NaN.
static Value *expMinusOne(NodeLowering &n, Value *x, double divisor, double scale) {
  Value *bounded = n.binary(OpKind::Min, x, 0.0);
  if (divisor != 1)
    bounded = n.div(bounded, divisor);
  return n.mul(n.add(n.unary(OpKind::Exp, bounded), -1.0), scale);
}

Values lowerElu(NodeLowering &n) {
  Value *x = n.in(0);
  return {whereNegative(n, x, expMinusOne(n, x, 1, n.floatAttribute("alpha", 1)))};
}

Values lowerCelu(NodeLowering &n) {
  Value *x = n.in(0);
  double alpha = n.floatAttribute("alpha", 1);
  return {whereNegative(n, x, expMinusOne(n, x, alpha, alpha))};
}

Values lowerSelu(NodeLowering &n) {
  Value *x = n.in(0);
  double alpha = n.floatAttribute("alpha", 1.67326319217681884765625);
  return {n.mul(whereNegative(n, x, expMinusOne(n, x, 1, alpha)),
                n.floatAttribute("gamma", 1.05070102214813232421875))};
}

// ln(1 + e^x) = max(x, 0) + ln(1 + e^-|x|). At 0 max passes on half a gradient, which is right here; relu passes none.
static Value *softplus(NodeLowering &n, Value *x) {
  Value *small = n.unary(OpKind::Exp, n.unary(OpKind::Neg, n.unary(OpKind::Abs, x)));
  Value *positive = n.binary(OpKind::Max, x, 0.0);
  return n.add(positive, n.unary(OpKind::Log, n.add(small, 1.0)));
}

Values lowerSoftplus(NodeLowering &n) { return {softplus(n, n.in(0))}; }

Values lowerMish(NodeLowering &n) {
  Value *x = n.in(0);
  return {n.mul(x, n.unary(OpKind::Tanh, softplus(n, x)))};
}

Values lowerSoftsign(NodeLowering &n) {
  Value *x = n.in(0);
  return {n.div(x, n.add(n.unary(OpKind::Abs, x), 1.0))};
}

static Value *hardSigmoid(NodeLowering &n, Value *x, double alpha, double beta) {
  Value *line = n.add(n.mul(x, alpha), beta);
  return line ? clip(n, line, n.scalar(line->type.dtype, 0), n.scalar(line->type.dtype, 1)) : nullptr;
}

Values lowerHardSigmoid(NodeLowering &n) {
  return {hardSigmoid(n, n.in(0), n.floatAttribute("alpha", 0.2), n.floatAttribute("beta", 0.5))};
}

Values lowerHardSwish(NodeLowering &n) {
  Value *x = n.in(0);
  return {n.mul(x, hardSigmoid(n, x, 1.0 / 6, 0.5))};
}

Values lowerSwish(NodeLowering &n) {
  Value *x = n.in(0);
  double alpha = n.floatAttribute("alpha", 1);
  return {n.mul(x, n.unary(OpKind::Sigmoid, alpha == 1 ? x : n.mul(x, alpha)))};
}

} // namespace zerocc
