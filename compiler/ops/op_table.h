#pragma once

#include "compiler/ops/ops.h"

namespace zerocc {

// The rules the op table names, declared by expanding it: a rule that nobody wrote does not link.
//
//   shape      Expected<ResultTypes> NAME(const ShapeQuery &)      shape_rules.cpp; one `if` per requirement
//   gradient   Gradients NAME(GradientBuilder &, const Node &, resultGradients)    gradient_rules.cpp
//   cost       Cost NAME(const Node &)                             cost_rules.cpp
//   workspace  int64_t NAME(const Node &)                          workspace_rules.cpp
#define CORE_OP(kind, text, minInputs, maxInputs, results, shape, gradient, cost, workspace, alias, kernels) \
  Expected<ResultTypes> shape(const ShapeQuery &query);                                                      \
  Gradients gradient(GradientBuilder &g, const Node &node, llvm::ArrayRef<Value *> resultGradients);         \
  Cost cost(const Node &node);                                                                               \
  int64_t workspace(const Node &node);
#include "compiler/ops/core_ops.def"

/// Bounds that hold for every type: rank at most kMaxTensorRank (a kernel's view has no more), no negative
/// dim, and less than 2^60 bytes, so that sizes can be added without overflow.
constexpr int64_t kMaxTensorRank = 8;
Status checkType(const TensorType &type);

} // namespace zerocc
