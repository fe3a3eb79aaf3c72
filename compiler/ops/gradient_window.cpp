// Gradient rules of convolution and pooling.

#include "compiler/ops/op_table.h"

namespace zerocc {

static Attributes withShape(const Attributes &attributes, llvm::ArrayRef<int64_t> dims) {
  Attributes out = attributes;
  out.set("shape", std::vector<int64_t>(dims.begin(), dims.end()));
  return out;
}

static Attributes withoutShape(const Attributes &attributes) {
  Attributes out;
  for (const auto &[name, value] : attributes.entries())
    if (name != "shape")
      out.set(name, value);
  return out;
}

// y = conv(x, w)          dx = conv_data_grad(dy, w)       dw = conv_weight_grad(x, dy)
Gradients convGradient(GradientBuilder &g, const Node &y, llvm::ArrayRef<Value *> dys) {
  Value *x = y.input(0), *w = y.input(1);
  Gradients out = {kNoGradient, kNoGradient};
  if (g.needs(0))
    out[0] = g.make(OpKind::ConvDataGrad, {dys[0], w}, withShape(y.attributes, x->type.dims))->result();
  if (g.needs(1))
    out[1] = g.make(OpKind::ConvWeightGrad, {x, dys[0]}, withShape(y.attributes, w->type.dims))->result();
  return out;
}

// x = conv_data_grad(y, w), linear in both:  dy = conv(dx, w),  dw = conv_weight_grad(dx, y)
Gradients convDataGradGradient(GradientBuilder &g, const Node &x, llvm::ArrayRef<Value *> dxs) {
  Value *y = x.input(0), *w = x.input(1);
  const Attributes attributes = withoutShape(x.attributes);
  Gradients out = {kNoGradient, kNoGradient};
  if (g.needs(0))
    out[0] = g.make(OpKind::Conv, {dxs[0], w}, attributes)->result();
  if (g.needs(1))
    out[1] = g.make(OpKind::ConvWeightGrad, {dxs[0], y}, withShape(attributes, w->type.dims))->result();
  return out;
}

// y = max_pool x          dx = dy at the first greatest of each window
Gradients maxPoolGradient(GradientBuilder &g, const Node &y, llvm::ArrayRef<Value *> dys) {
  return {g.make(OpKind::MaxPoolGrad, {y.input(0), dys[0]}, y.attributes)->result()};
}

// y = sum_pool x          dx = sum_pool_grad dy, its transpose
Gradients sumPoolGradient(GradientBuilder &g, const Node &y, llvm::ArrayRef<Value *> dys) {
  return {g.make(OpKind::SumPoolGrad, {dys[0]}, withShape(y.attributes, y.input(0)->type.dims))->result()};
}

// x = sum_pool_grad y     dy = sum_pool dx
Gradients sumPoolGradGradient(GradientBuilder &g, const Node &x, llvm::ArrayRef<Value *> dxs) {
  return {g.make(OpKind::SumPool, {dxs[0]}, withoutShape(x.attributes))->result()};
}

} // namespace zerocc
