#pragma once

#include "runtime/kernels/kernel.h"

#include <initializer_list>

namespace zerocc {

/// A loop nest over the same index space of several strided operands, as few loops as their strides allow.
/// The last loop is the inner one: kernels do it themselves, row by row.
struct LoopPlan {
  static constexpr int kMaxOperands = 4;
  int operands = 0;
  int rank = 1; // at least 1
  int64_t elements = 0;
  int64_t dims[kMaxRank] = {};
  int64_t strides[kMaxOperands][kMaxRank] = {};

  int64_t innerLength() const { return dims[rank - 1]; }
  int64_t innerStride(int operand) const { return strides[operand][rank - 1]; }
};

/// Drops dims of size 1 and joins neighbours that are one loop for every operand. The views have equal dims.
LoopPlan makeLoopPlan(std::initializer_list<const TensorView *> views);
/// The same for dims and strides that are no view's.
void collapse(LoopPlan &plan);

/// Calls row(offsets) for every position of the outer loops in row-major order; offsets[operand] is the
/// element where the row begins.
template <typename F> void forEachRow(const LoopPlan &plan, F row) {
  if (plan.elements == 0)
    return;
  int64_t offsets[LoopPlan::kMaxOperands] = {};
  int64_t index[kMaxRank] = {};
  while (true) {
    row(static_cast<const int64_t *>(offsets));
    int axis = plan.rank - 2;
    for (; axis >= 0; --axis) {
      for (int i = 0; i < plan.operands; ++i)
        offsets[i] += plan.strides[i][axis];
      if (++index[axis] < plan.dims[axis])
        break;
      index[axis] = 0;
      for (int i = 0; i < plan.operands; ++i)
        offsets[i] -= plan.strides[i][axis] * plan.dims[axis];
    }
    if (axis < 0)
      return;
  }
}

} // namespace zerocc
