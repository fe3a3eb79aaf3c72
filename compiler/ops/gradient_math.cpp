#include "compiler/ops/op_table.h"

namespace zerocc {

Gradients tanGradient(GradientBuilder &g, const Node &y, llvm::ArrayRef<Value *> dys) {
  return secondOrder(g, y, dys);
}
Gradients asinGradient(GradientBuilder &g, const Node &y, llvm::ArrayRef<Value *> dys) {
  return secondOrder(g, y, dys);
}
Gradients acosGradient(GradientBuilder &g, const Node &y, llvm::ArrayRef<Value *> dys) {
  return secondOrder(g, y, dys);
}
Gradients atanGradient(GradientBuilder &g, const Node &y, llvm::ArrayRef<Value *> dys) {
  return secondOrder(g, y, dys);
}
Gradients sinhGradient(GradientBuilder &g, const Node &y, llvm::ArrayRef<Value *> dys) {
  return secondOrder(g, y, dys);
}
Gradients coshGradient(GradientBuilder &g, const Node &y, llvm::ArrayRef<Value *> dys) {
  return secondOrder(g, y, dys);
}
Gradients asinhGradient(GradientBuilder &g, const Node &y, llvm::ArrayRef<Value *> dys) {
  return secondOrder(g, y, dys);
}
Gradients acoshGradient(GradientBuilder &g, const Node &y, llvm::ArrayRef<Value *> dys) {
  return secondOrder(g, y, dys);
}
Gradients atanhGradient(GradientBuilder &g, const Node &y, llvm::ArrayRef<Value *> dys) {
  return secondOrder(g, y, dys);
}

} // namespace zerocc
