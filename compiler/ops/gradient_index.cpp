// Gradient rules of the ops along the last axis and of scatter.

#include "compiler/ops/op_table.h"

namespace zerocc {

// (v, i) = top_k x        dx = dv at the places i of each row, else 0
Gradients topKGradient(GradientBuilder &g, const Node &y, llvm::ArrayRef<Value *> dys) {
  if (!dys[0])
    return {kNoGradient};
  const TensorType &x = y.input(0)->type, &top = y.result(0)->type;
  const int64_t width = x.dims.back(), k = top.dims.back(), rows = k == 0 ? 0 : top.elements() / k;
  if (rows == 0)
    return {g.splatLike(y.input(0), 0)};
  // places in the flattened x: row · width + i
  Value *starts = g.iota(DType::i64, rows);
  starts = g.broadcast(g.reshape(g.mul(starts, g.splatLike(starts, static_cast<double>(width))), {rows, 1}),
                       {rows, k});
  Value *places = g.add(starts, g.reshape(y.result(1), {rows, k}));
  Value *flat = g.scatterAdd(g.reshape(places, {rows * k}), g.reshape(dys[0], {rows * k}), 0, rows * width);
  return {g.reshape(flat, x.dims)};
}

// y = cum_sum x           dx = the cumulated dy, from the other end
Gradients cumSumGradient(GradientBuilder &g, const Node &y, llvm::ArrayRef<Value *> dys) {
  Attributes attributes = y.attributes;
  attributes.set("reverse", int64_t(!y.attributes.getInt("reverse")));
  return {g.make(OpKind::CumSum, {dys[0]}, attributes)->result()};
}

// y = cum_prod x          dx = cum_prod_grad
Gradients cumProdGradient(GradientBuilder &g, const Node &y, llvm::ArrayRef<Value *> dys) {
  return {g.make(OpKind::CumProdGrad, {y.input(0), dys[0]}, y.attributes)->result()};
}

/// `data` with the rows at `indices` replaced.
static Value *replaced(GradientBuilder &g, Value *data, Value *indices, Value *rows) {
  return g.make(OpKind::Scatter, {data, indices, rows}, {{"reduction", std::string("none")}})->result();
}

// y = scatter(x, i, u)    none: dx = dy, 0 at i;  du = dy_i, 0 where a later update replaced it
//                         mul:  dx = dy · Π u at i;  du = (dy x)_i · Π of the other u at i
//                         max, min: the elements that y took share dy equally
Gradients scatterGradient(GradientBuilder &g, const Node &y, llvm::ArrayRef<Value *> dys) {
  Value *x = y.input(0), *indices = y.input(1), *updates = y.input(2), *dy = dys[0];
  const std::string reduction = y.attributes.getString("reduction");
  if (reduction == "none") {
    // Which update stands last: its number is what a scatter of numbers leaves.
    const int64_t count = indices->type.dims[0], rows = x->type.dims[0];
    Value *numbers = g.iota(DType::i64, count);
    Value *none = g.broadcast(g.module.scalar(DType::i64, -1), {rows});
    Value *last = g.gather(replaced(g, none, indices, numbers), indices, 0);
    Value *stands = g.compare(last, numbers, "eq");
    Dims column(updates->type.dims.size(), 1);
    column[0] = count;
    Value *standsAll = g.broadcast(g.reshape(stands, column), updates->type.dims);
    Value *zeros = g.splatLike(updates, 0);
    Value *dx = replaced(g, dy, indices, zeros);
    return {dx, kNoGradient, g.select(standsAll, g.gather(dy, indices, 0), zeros)};
  }
  if (reduction == "mul") {
    Value *product = g.make(OpKind::Scatter, {g.splatLike(x, 1), indices, updates}, y.attributes)->result();
    // The others' product is the whole one by the own factor. Zeros are left out of it and counted instead.
    Value *zeros = g.splatLike(updates, 0), *isZero = g.compare(updates, zeros, "eq");
    Value *factors = g.select(isZero, g.splatLike(updates, 1), updates);
    Value *whole = g.make(OpKind::Scatter, {x, indices, factors}, y.attributes)->result();
    Value *own = g.cast(isZero, x->type.dtype);
    Value *counts = g.gather(g.scatterAdd(indices, own, 0, x->type.dims[0]), indices, 0);
    Value *othersAreNot = g.compare(counts, own, "eq");
    Value *du = g.div(g.gather(g.mul(dy, whole), indices, 0), factors);
    return {g.mul(dy, product), kNoGradient, g.select(othersAreNot, du, zeros)};
  }
  Value *fromX = g.cast(g.compare(x, y.result(), "eq"), x->type.dtype);
  Value *taken = g.gather(y.result(), indices, 0);
  Value *fromUpdates = g.cast(g.compare(updates, taken, "eq"), x->type.dtype);
  Value *sharers = g.scatterAdd(indices, fromUpdates, 0, x->type.dims[0]);
  Value *part = g.div(dy, g.add(fromX, sharers));
  Value *dx = g.mul(part, fromX);
  return {dx, kNoGradient, g.mul(g.gather(part, indices, 0), fromUpdates)};
}

} // namespace zerocc
