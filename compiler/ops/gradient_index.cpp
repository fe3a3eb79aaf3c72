#include "compiler/ops/op_table.h"

namespace zerocc {

Gradients topKGradient(GradientBuilder &g, const Node &y, llvm::ArrayRef<Value *> dys) {
  return secondOrder(g, y, dys);
}
Gradients cumSumGradient(GradientBuilder &g, const Node &y, llvm::ArrayRef<Value *> dys) {
  return secondOrder(g, y, dys);
}
Gradients cumProdGradient(GradientBuilder &g, const Node &y, llvm::ArrayRef<Value *> dys) {
  return secondOrder(g, y, dys);
}
Gradients scatterGradient(GradientBuilder &g, const Node &y, llvm::ArrayRef<Value *> dys) {
  return secondOrder(g, y, dys);
}

} // namespace zerocc
