// Gradient rules of randomness and of means over ranks: both are linear and their own transposes.

#include "compiler/ops/op_table.h"

namespace zerocc {

// y = dropout(x, random)  dx = dropout(dy, random): the same mask, made again
Gradients dropoutGradient(GradientBuilder &g, const Node &y, llvm::ArrayRef<Value *> dys) {
  return {g.make(OpKind::Dropout, {dys[0], y.input(1)}, y.attributes)->result(), kNoGradient};
}

// y = mean_ranks x        dx = mean_ranks dy: what every rank's loss says of it, as the losses add up
Gradients rankMeanGradient(GradientBuilder &g, const Node &, llvm::ArrayRef<Value *> dys) {
  return {g.make(OpKind::RankMean, {dys[0]})->result()};
}

} // namespace zerocc
