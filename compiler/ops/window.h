#pragma once

#include "compiler/ir/module.h"

namespace zerocc {

/// What a window op's attributes say, one entry per spatial axis.
struct WindowAttributes {
  std::vector<int64_t> strides, low, high, dilations, kernel;
  int64_t groups = 1;

  explicit WindowAttributes(const Attributes &attributes)
      : strides(attributes.getInts("strides")), low(attributes.getInts("low")),
        high(attributes.getInts("high")), dilations(attributes.getInts("dilations")),
        kernel(attributes.getInts("kernel")), groups(attributes.getInt("groups", 1)) {}

  /// The input position that kernel position `k` reads for output position `o`; may lie in the padding.
  int64_t read(size_t axis, int64_t o, int64_t k) const {
    return o * strides[axis] - low[axis] + k * dilations[axis];
  }
};

} // namespace zerocc
