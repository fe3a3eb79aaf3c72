// Gradient rules of the trigonometric and hyperbolic functions, and of mod.

#include "compiler/ops/op_table.h"

namespace zerocc {

/// x² + number
static Value *squarePlus(GradientBuilder &g, Value *x, double number) {
  Value *square = g.mul(x, x);
  return g.add(square, g.splatLike(square, number));
}
/// 1 - x²
static Value *oneMinusSquare(GradientBuilder &g, Value *x) {
  Value *square = g.mul(x, x);
  return g.sub(g.splatLike(square, 1), square);
}
static Value *root(GradientBuilder &g, Value *x) { return g.unary(OpKind::Sqrt, x); }

// y = tan x               dx = dy (1 + y²)
Gradients tanGradient(GradientBuilder &g, const Node &y, llvm::ArrayRef<Value *> dys) {
  return {g.mul(dys[0], squarePlus(g, y.result(), 1))};
}

// y = asin x              dx = dy / √(1 - x²)
Gradients asinGradient(GradientBuilder &g, const Node &y, llvm::ArrayRef<Value *> dys) {
  return {g.div(dys[0], root(g, oneMinusSquare(g, y.input(0))))};
}

// y = acos x              dx = -dy / √(1 - x²)
Gradients acosGradient(GradientBuilder &g, const Node &y, llvm::ArrayRef<Value *> dys) {
  return {g.unary(OpKind::Neg, g.div(dys[0], root(g, oneMinusSquare(g, y.input(0)))))};
}

// y = atan x              dx = dy / (1 + x²)
Gradients atanGradient(GradientBuilder &g, const Node &y, llvm::ArrayRef<Value *> dys) {
  return {g.div(dys[0], squarePlus(g, y.input(0), 1))};
}

// y = sinh x              dx = dy cosh x
Gradients sinhGradient(GradientBuilder &g, const Node &y, llvm::ArrayRef<Value *> dys) {
  return {g.mul(dys[0], g.unary(OpKind::Cosh, y.input(0)))};
}

// y = cosh x              dx = dy sinh x
Gradients coshGradient(GradientBuilder &g, const Node &y, llvm::ArrayRef<Value *> dys) {
  return {g.mul(dys[0], g.unary(OpKind::Sinh, y.input(0)))};
}

// y = asinh x             dx = dy / √(x² + 1)
Gradients asinhGradient(GradientBuilder &g, const Node &y, llvm::ArrayRef<Value *> dys) {
  return {g.div(dys[0], root(g, squarePlus(g, y.input(0), 1)))};
}

// y = acosh x             dx = dy / √(x² - 1)
Gradients acoshGradient(GradientBuilder &g, const Node &y, llvm::ArrayRef<Value *> dys) {
  return {g.div(dys[0], root(g, squarePlus(g, y.input(0), -1)))};
}

// y = atanh x             dx = dy / (1 - x²)
Gradients atanhGradient(GradientBuilder &g, const Node &y, llvm::ArrayRef<Value *> dys) {
  return {g.div(dys[0], oneMinusSquare(g, y.input(0)))};
}

// y = a - b q             da = dy           db = -q dy       q = (a - y) / b, an integer
Gradients modGradient(GradientBuilder &g, const Node &y, llvm::ArrayRef<Value *> dys) {
  Value *a = y.input(0), *b = y.input(1), *dy = dys[0];
  Value *quotient = g.div(g.sub(a, y.result()), b);
  return {dy, g.unary(OpKind::Neg, g.mul(dy, quotient))};
}

} // namespace zerocc
