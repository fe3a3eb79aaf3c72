#include "compiler/ops/op_table.h"

namespace zerocc {

Gradients convGradient(GradientBuilder &g, const Node &y, llvm::ArrayRef<Value *> dys) {
  return secondOrder(g, y, dys);
}
Gradients convDataGradGradient(GradientBuilder &g, const Node &y, llvm::ArrayRef<Value *> dys) {
  return secondOrder(g, y, dys);
}
Gradients maxPoolGradient(GradientBuilder &g, const Node &y, llvm::ArrayRef<Value *> dys) {
  return secondOrder(g, y, dys);
}
Gradients sumPoolGradient(GradientBuilder &g, const Node &y, llvm::ArrayRef<Value *> dys) {
  return secondOrder(g, y, dys);
}
Gradients sumPoolGradGradient(GradientBuilder &g, const Node &y, llvm::ArrayRef<Value *> dys) {
  return secondOrder(g, y, dys);
}

} // namespace zerocc
