#include "compiler/ops/op_table.h"

namespace zerocc {

using GradientRule = Gradients (*)(GradientBuilder &, const Node &, llvm::ArrayRef<Value *>);

Gradients gradientsOf(GradientBuilder &builder, const Node &node, llvm::ArrayRef<Value *> resultGradients) {
  static constexpr GradientRule rules[] = {
#define CORE_OP(kind, text, minInputs, maxInputs, results, shape, gradient, cost, workspace, alias, kernels) \
  gradient,
#include "compiler/ops/core_ops.def"
  };
  assert(resultGradients.size() == node.results.size() && "one gradient, or null, per result");
  Gradients gradients = rules[static_cast<int>(node.op)](builder, node, resultGradients);
  assert(gradients.size() == node.inputs.size() && "a gradient rule returns one entry per operand");
  return gradients;
}

} // namespace zerocc
