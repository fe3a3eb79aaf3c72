// Lowerings of products, normalizations and losses.

#include "compiler/onnx/lowerings.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <numeric>
#include <set>

namespace zerocc {

Values lowerMatMul(NodeLowering &n) {
  Value *a = n.in(0), *b = n.in(1);
  return {n.matmul(a, b)};
}

// alpha a' b' + beta c
Values lowerGemm(NodeLowering &n) {
  Value *a = n.in(0), *b = n.in(1);
  if (!a || !b)
    return {nullptr};
  if (a->type.rank() != 2 || b->type.rank() != 2)
    return {n.fail("operands must be matrices: " + print(a->type) + " and " + print(b->type))};
  if (n.intAttribute("transA", 0))
    a = n.transpose(a, {1, 0});
  if (n.intAttribute("transB", 0))
    b = n.transpose(b, {1, 0});
  Value *product = n.matmul(a, b);
  double alpha = n.floatAttribute("alpha", 1), beta = n.floatAttribute("beta", 1);
  if (alpha != 1)
    product = n.mul(product, alpha);
  if (!n.has(2) || beta == 0 || !product)
    return {product};
  Value *c = n.in(2);
  std::optional<Dims> dims = broadcastShape(product->type.dims, c->type.dims);
  if (!dims || *dims != product->type.dims)
    return {n.fail("addend " + print(c->type) + " does not broadcast to " + print(product->type))};
  return {n.add(product, beta == 1 ? c : n.mul(c, beta))};
}

// --- softmax

/// Opset 13 works along one axis; before, the dims from `axis` on count as one.
static Values lowerSoftmaxLike(NodeLowering &n, OpKind op) {
  Value *x = n.in(0);
  if (!x)
    return {nullptr};
  bool flattens = n.version < 13;
  std::optional<int64_t> axis = n.normalAxis(n.intAttribute("axis", flattens ? 1 : -1), x->type.rank());
  if (!axis)
    return {nullptr};
  bool isLast = *axis == x->type.rank() - 1;
  if (flattens && !isLast)
    return {n.reshape(n.unary(op, flattenTo2D(n, x, *axis)), x->type.dims)};
  if (isLast)
    return {n.unary(op, x)};
  Value *last = n.unary(op, n.moveLast(x, *axis));
  return {moveBack(n, last, *axis)};
}

Values lowerSoftmax(NodeLowering &n) { return lowerSoftmaxLike(n, OpKind::Softmax); }
Values lowerLogSoftmax(NodeLowering &n) { return lowerSoftmaxLike(n, OpKind::LogSoftmax); }

// --- normalization

namespace {

/// A tensor normalized over its dims from `axis` on: those as one last dim.
struct Normalized {
  Value *x = nullptr;    // outer dims, inner
  Dims dims, statistics; // of the operand; of mean and deviation, which keep dims of 1
  int64_t inner = 1;
  Dims innerDims;
};

std::optional<Normalized> normalizedOperand(NodeLowering &n) {
  Value *x = n.in(0);
  if (!x)
    return std::nullopt;
  std::optional<int64_t> axis = n.normalAxis(n.intAttribute("axis", -1), x->type.rank());
  if (!axis)
    return std::nullopt;
  Normalized out;
  out.dims = x->type.dims;
  Dims rows(out.dims.begin(), out.dims.begin() + *axis);
  out.innerDims = Dims(out.dims.begin() + *axis, out.dims.end());
  out.statistics = rows;
  for (int64_t dim : out.innerDims) {
    out.inner *= dim;
    out.statistics.push_back(1);
  }
  rows.push_back(out.inner);
  out.x = n.reshape(x, rows);
  return out;
}

/// Scale or bias as one vector over the normalized dims.
Value *channelVector(NodeLowering &n, Value *vector, const Normalized &normalized) {
  if (!vector)
    return nullptr;
  if (vector->type.elements() != normalized.inner)
    vector = n.broadcast(vector, normalized.innerDims);
  return n.reshape(vector, {normalized.inner});
}

} // namespace

Values lowerLayerNormalization(NodeLowering &n) {
  std::optional<Normalized> normalized = normalizedOperand(n);
  if (!normalized)
    return {nullptr};
  Values operands{normalized->x, channelVector(n, n.in(1), *normalized)};
  if (n.has(2))
    operands.push_back(channelVector(n, n.in(2), *normalized));
  Node *norm = n.make(OpKind::LayerNorm, operands, {{"eps", n.floatAttribute("epsilon", 1e-5f)}});
  if (!norm)
    return {nullptr};
  Values results{n.reshape(norm->result(0), normalized->dims)};
  for (int i : {1, 2})
    if (n.wantsOutput(i))
      results.push_back(n.reshape(norm->result(i), normalized->statistics));
    else
      results.push_back(nullptr);
  return results;
}

// x / √(mean x² + eps) scale
Values lowerRmsNormalization(NodeLowering &n) {
  std::optional<Normalized> normalized = normalizedOperand(n);
  if (!normalized)
    return {nullptr};
  Value *x = normalized->x, *scale = channelVector(n, n.in(1), *normalized);
  if (!x)
    return {nullptr};
  int64_t last = x->type.rank() - 1;
  Value *mean = n.div(n.reduceSum(n.mul(x, x), {last}), static_cast<double>(normalized->inner));
  Value *root = n.unary(OpKind::Sqrt, n.add(mean, n.floatAttribute("epsilon", 1e-5f)));
  if (!root)
    return {nullptr};
  Dims column = root->type.dims;
  column.push_back(1);
  Value *y = n.mul(n.div(x, n.reshape(root, column)), scale);
  return {n.reshape(y, normalized->dims)};
}

} // namespace zerocc
