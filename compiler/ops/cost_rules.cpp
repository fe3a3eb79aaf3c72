#include "compiler/ops/op_table.h"

namespace zerocc {

Cost freeCost(const Node &) { return {}; }

/// Bytes of every operand read once and every result written once.
static int64_t touchedBytes(const Node &node) {
  int64_t bytes = 0;
  for (const Value *input : node.inputs)
    bytes += input->type.bytes();
  for (const Value *result : node.results)
    bytes += result->type.bytes();
  return bytes;
}

/// Floating-point operations per element, by rough weight: what matters is which nodes are dear to recompute.
static int64_t flopsPerElement(OpKind op) {
  switch (op) {
  case OpKind::Copy:
  case OpKind::Concat:
  case OpKind::Pad:
  case OpKind::Iota:
  case OpKind::Gather:
    return 0;
  case OpKind::Exp:
  case OpKind::Log:
  case OpKind::Tanh:
  case OpKind::Sigmoid:
  case OpKind::Erf:
  case OpKind::Sin:
  case OpKind::Cos:
  case OpKind::Pow:
  case OpKind::Dropout:
  case OpKind::Atanh:
  case OpKind::Acosh:
  case OpKind::Asinh:
  case OpKind::Cosh:
  case OpKind::Sinh:
  case OpKind::Atan:
  case OpKind::Acos:
  case OpKind::Asin:
  case OpKind::Tan:
  case OpKind::LayerNorm:
  case OpKind::LayerNormGrad:
  case OpKind::LayerNormParameterGrad:
    return 8;
  case OpKind::Gelu:
  case OpKind::GeluGrad:
  case OpKind::Softmax:
  case OpKind::LogSoftmax:
  case OpKind::CrossEntropy:
  case OpKind::CrossEntropyGrad:
  case OpKind::AdamW:
  case OpKind::OnnxAdam:
    return 16;
  case OpKind::SoftmaxGrad:
  case OpKind::LogSoftmaxGrad:
  case OpKind::Sgd:
  case OpKind::Adagrad:
    return 4;
  default:
    return 1;
  }
}

Cost elementwiseCost(const Node &node) {
  int64_t elements = 0;
  for (const Value *input : node.inputs)
    elements = std::max(elements, input->type.elements());
  for (const Value *result : node.results)
    elements = std::max(elements, result->type.elements());
  Cost cost{elements * flopsPerElement(node.op), touchedBytes(node)};
  // A gather reads the rows it takes, not the whole table.
  if (node.op == OpKind::Gather)
    cost.bytes = 2 * node.result()->type.bytes() + node.input(1)->type.bytes();
  return cost;
}

// 2 M N K per matrix of the batch
Cost matmulCost(const Node &node) {
  const TensorType &a = node.input(0)->type;
  const int64_t inner = a.dims[a.rank() - (node.attributes.getInt("trans_a") ? 2 : 1)];
  return {2 * inner * node.result()->type.elements(), touchedBytes(node)};
}

// 2 · output elements · kernel elements · input channels per group. In all three ops the same products are
// summed.
Cost convCost(const Node &node) {
  const bool isForward = node.op == OpKind::Conv;
  const TensorType &y =
      isForward ? node.result()->type : node.input(node.op == OpKind::ConvWeightGrad ? 1 : 0)->type;
  const TensorType &w = node.op == OpKind::ConvWeightGrad ? node.result()->type : node.input(1)->type;
  const int64_t perOutput = w.dims[0] == 0 ? 0 : w.elements() / w.dims[0];
  return {2 * y.elements() * perOutput, touchedBytes(node)};
}

// one operation per element of each window
Cost poolCost(const Node &node) {
  int64_t windows = std::min(node.input(0)->type.elements(), node.result()->type.elements());
  for (int64_t k : node.attributes.getInts("kernel"))
    windows *= k;
  return {windows, touchedBytes(node)};
}

/// Bytes of the larger side; what the wire costs is the LatencyEstimator's business.
Cost collectiveCost(const Node &node) {
  return {0, std::max(node.input(0)->type.bytes(), node.result()->type.bytes())};
}

} // namespace zerocc
