// Scratch memory of convolution. The compiler does not ask oneDNN: it grants what the kernel's ways of
// working (runtime/kernels/cpu/conv.cpp) take at most, and the kernel takes one that does with it.

#include "compiler/ops/op_table.h"
#include "compiler/ops/window.h"

#include <algorithm>

namespace zerocc {
namespace {

constexpr int64_t kSlack = 64 << 10;
constexpr int64_t kBlock = 16; // the most channels in a block
int64_t blocks(int64_t channels) { return (channels + kBlock - 1) / kBlock * kBlock; }

int64_t places(const TensorType &type) {
  int64_t count = 1;
  for (size_t axis = 2; axis < type.dims.size(); ++axis)
    count *= type.dims[axis];
  return count;
}

/// Copies of some images and of the weights with their channels in blocks. So many images that the copies
/// stay in a cache, but one at least.
int64_t blockedElements(const TensorType &x, const TensorType &w, const TensorType &y, int64_t groups,
                        bool isSum) {
  constexpr int64_t kCacheElements = 1 << 20;
  const int64_t outputs = w.dims[0] / groups, inputs = w.dims[1], batch = x.dims[0];
  const int64_t image = blocks(x.dims[1]) * places(x) + blocks(y.dims[1]) * places(y);
  int64_t images = std::clamp<int64_t>(kCacheElements / image, 1, batch);
  while (batch % images != 0)
    --images;
  const int64_t weights =
      places(w) * (inputs == 1 && outputs == 1 ? blocks(groups) : groups * blocks(outputs) * blocks(inputs));
  return images * image + weights * (isSum && images < batch ? 2 : 1);
}

/// One image of one group unrolled into a matrix, and what sums of weights take on top.
int64_t unrolledElements(const TensorType &w, const TensorType &y, bool isPointwise, bool isSum) {
  return (isPointwise ? 0 : w.elements() / w.dims[0] * places(y)) + (isSum ? 4 * w.elements() : 0);
}

bool all(llvm::ArrayRef<int64_t> list, int64_t value) {
  return std::all_of(list.begin(), list.end(), [&](int64_t entry) { return entry == value; });
}

} // namespace

int64_t convWorkspace(const Node &node) {
  const bool isForward = node.op == OpKind::Conv, isWeight = node.op == OpKind::ConvWeightGrad;
  const bool isData = node.op == OpKind::ConvDataGrad;
  const TensorType &x = isData ? node.result()->type : node.input(0)->type;
  const TensorType &w = isWeight ? node.result()->type : node.input(1)->type;
  const TensorType &y = isForward ? node.result()->type : node.input(isWeight ? 1 : 0)->type;
  if (x.elements() == 0 || w.elements() == 0 || y.elements() == 0)
    return 0;
  const WindowAttributes window(node.attributes);
  const int64_t groups = window.groups, outputs = w.dims[0] / groups, inputs = w.dims[1];
  const bool isDepthwise = outputs == 1 && inputs == 1;
  const bool isPointwise =
      places(w) == 1 && all(window.strides, 1) && all(window.low, 0) && all(window.high, 0);
  // Where blocks may not do: few channels, groups that are no blocks, holes in the kernel, padding beyond it, small
  // images of one channel each.
  bool isOdd = (isPointwise && !isDepthwise) || (isData && !isDepthwise && inputs < kBlock) ||
               (groups > 1 && !isDepthwise && (inputs % kBlock != 0 || outputs % kBlock != 0)) ||
               !all(window.dilations, 1);
  for (size_t axis = 0; axis < window.low.size(); ++axis)
    isOdd = isOdd || std::max(window.low[axis], window.high[axis]) >= w.dims[2 + axis] ||
            (isDepthwise && isWeight && x.dims[2 + axis] < 2 * w.dims[2 + axis]);
  // Kernels of one place with strides read an image with what they skip taken out.
  const int64_t thinned = places(w) == 1 && !isPointwise ? blocks(x.dims[1]) * places(y) : 0;
  const int64_t blocked = blockedElements(x, w, y, groups, isWeight) + thinned;
  const int64_t unrolled = unrolledElements(w, y, isPointwise, isWeight);
  const int64_t elements = isPointwise && !isDepthwise ? unrolled
                           : isOdd                     ? std::max(blocked, unrolled)
                                                       : blocked;
  return elements * byteSize(w.dtype) + kSlack;
}

int64_t poolWorkspace(const Node &) { return 0; }

} // namespace zerocc
