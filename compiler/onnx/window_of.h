#pragma once

#include "compiler/onnx/lowerings.h"

namespace zerocc {

/// The window attributes of Conv and the pools, read the same way in every version: one entry per spatial
/// axis, padding explicit.
struct OnnxWindow {
  std::vector<int64_t> kernel, strides, dilations, low, high;

  int64_t reach(size_t axis) const { return (kernel[axis] - 1) * dilations[axis] + 1; }
  Attributes attributes() const {
    return {{"strides", strides}, {"low", low}, {"high", high}, {"dilations", dilations}};
  }
};

/// Of a node whose input is `x`; `kernel` is what kernel_shape has to be, empty when the attribute says it.
/// With `mayRoundUp`, ceil_mode raises `high` so that the last, cut window counts. Fails with a finding.
std::optional<OnnxWindow> windowOf(NodeLowering &n, const TensorType &x, llvm::ArrayRef<int64_t> kernel,
                                   bool mayRoundUp = false);

} // namespace zerocc
