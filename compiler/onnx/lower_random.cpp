// Lowerings of random numbers. All of them are made of fair bits by counter (keep_mask): of the plan's seed,
// the step, the micro-batch, the node's name and the element, so that they do not depend on ranks. A seed in
// the model is not used.

#include "compiler/onnx/lowerings.h"

#include <cmath>

namespace zerocc {
namespace {

constexpr int kBits = 24; // of an f32's significand

/// Numbers k 2^-24 in [0, 1), f32. Streams of one node are independent of each other.
Value *uniform(NodeLowering &n, const Dims &dims, int64_t stream) {
  Value *sum = nullptr;
  for (int bit = 1; bit <= kBits; ++bit) {
    const Attributes attributes{{"rate", 0.5},
                                {"id", n.randomId(stream * kBits + bit)},
                                {"shape", std::vector<int64_t>(dims.begin(), dims.end())}};
    Value *isOne = n.emit(OpKind::KeepMask, {n.random()}, attributes);
    Value *part = n.mul(n.cast(isOne, DType::f32), std::ldexp(1.0, -bit));
    sum = sum ? n.add(sum, part) : part;
  }
  return sum;
}

/// What is asked for by attribute, or by an operand to be like.
std::optional<TensorType> resultType(NodeLowering &n) {
  TensorType type{DType::f32, {}};
  if (n.operandCount() > 0) {
    Value *like = n.in(0);
    if (!like)
      return std::nullopt;
    type = like->type;
  } else {
    for (int64_t dim : n.intsAttribute("shape")) {
      if (dim < 0) {
        n.fail("its shape has a dim of " + std::to_string(dim));
        return std::nullopt;
      }
      type.dims.push_back(dim);
    }
  }
  if (n.hasAttribute("dtype")) {
    const auto asked = static_cast<int32_t>(n.intAttribute("dtype", 1));
    std::optional<DType> dtype = dtypeFromOnnx(asked);
    if (!dtype) {
      n.fail("random numbers of " + onnxTypeName(asked) + " are not supported");
      return std::nullopt;
    }
    type.dtype = *dtype;
  }
  return type;
}

std::optional<TensorType> floatResultType(NodeLowering &n) {
  std::optional<TensorType> type = resultType(n);
  if (type && !isFloat(type->dtype)) {
    n.fail("random numbers of " + std::string(dtypeName(type->dtype)) + " are not supported");
    return std::nullopt;
  }
  return type;
}

} // namespace

Values lowerRandomUniform(NodeLowering &n) {
  std::optional<TensorType> type = floatResultType(n);
  if (!type)
    return {nullptr};
  const double low = n.floatAttribute("low", 0), high = n.floatAttribute("high", 1);
  Value *y = uniform(n, type->dims, 0);
  if (high - low != 1)
    y = n.mul(y, high - low);
  if (low != 0)
    y = n.add(y, low);
  return {n.cast(y, type->dtype)};
}

// z = √(-2 ln(1 - u)) cos 2πv (Box and Muller); 1 - u is never 0
Values lowerRandomNormal(NodeLowering &n) {
  std::optional<TensorType> type = floatResultType(n);
  if (!type)
    return {nullptr};
  const double mean = n.floatAttribute("mean", 0), scale = n.floatAttribute("scale", 1);
  Value *u = uniform(n, type->dims, 0), *v = uniform(n, type->dims, 1);
  Value *logarithm = n.unary(OpKind::Log, n.add(n.unary(OpKind::Neg, u), 1.0));
  Value *radius = n.unary(OpKind::Sqrt, n.mul(logarithm, -2.0));
  Value *z = n.mul(radius, n.unary(OpKind::Cos, n.mul(v, 2 * M_PI)));
  if (scale != 1)
    z = n.mul(z, scale);
  if (mean != 0)
    z = n.add(z, mean);
  return {n.cast(z, type->dtype)};
}

/// 1 with the probability that the operand gives for each element.
Values lowerBernoulli(NodeLowering &n) {
  std::optional<TensorType> type = resultType(n);
  Value *probability = n.in(0);
  if (!type || !probability)
    return {nullptr};
  Value *isOne = n.compare(uniform(n, type->dims, 0), n.cast(probability, DType::f32), "lt");
  return {n.cast(isOne, type->dtype)};
}

} // namespace zerocc
