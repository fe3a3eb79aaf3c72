// Scratch memory of convolution. The compiler does not ask oneDNN: it grants what unrolling one image of one
// group into a matrix takes (im2col), and the kernel takes an implementation that does with it.

#include "compiler/ops/op_table.h"

namespace zerocc {

int64_t convWorkspace(const Node &node) {
  const bool isForward = node.op == OpKind::Conv, isWeight = node.op == OpKind::ConvWeightGrad;
  const TensorType &w = isWeight ? node.result()->type : node.input(1)->type;
  const TensorType &y = isForward ? node.result()->type : node.input(isWeight ? 1 : 0)->type;
  constexpr int64_t kSlack = 64 << 10;
  if (w.elements() == 0 || y.elements() == 0)
    return 0;
  int64_t places = 1;
  for (size_t axis = 2; axis < y.dims.size(); ++axis)
    places *= y.dims[axis];
  const int64_t unrolled = w.elements() / w.dims[0] * places;
  return (unrolled + w.elements()) * byteSize(w.dtype) + kSlack;
}

int64_t poolWorkspace(const Node &) { return 0; }

} // namespace zerocc
