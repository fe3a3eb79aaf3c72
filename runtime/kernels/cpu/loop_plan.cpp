#include "runtime/kernels/cpu/loop_plan.h"

namespace zerocc {

void collapse(LoopPlan &plan) {
  plan.elements = 1;
  int kept = 0;
  for (int axis = 0; axis < plan.rank; ++axis) {
    plan.elements *= plan.dims[axis];
    if (plan.dims[axis] == 1)
      continue;
    bool joins = kept > 0;
    for (int i = 0; i < plan.operands && joins; ++i)
      joins = plan.strides[i][kept - 1] == plan.strides[i][axis] * plan.dims[axis];
    int to = joins ? kept - 1 : kept++;
    plan.dims[to] = joins ? plan.dims[to] * plan.dims[axis] : plan.dims[axis];
    for (int i = 0; i < plan.operands; ++i)
      plan.strides[i][to] = plan.strides[i][axis];
  }
  if (kept == 0) {
    plan.dims[0] = plan.elements;
    for (int i = 0; i < plan.operands; ++i)
      plan.strides[i][0] = 1;
    kept = 1;
  }
  plan.rank = kept;
}

LoopPlan makeLoopPlan(std::initializer_list<const TensorView *> views) {
  LoopPlan plan;
  plan.operands = static_cast<int>(views.size());
  plan.rank = (*views.begin())->rank;
  int operand = 0;
  for (const TensorView *view : views) {
    for (int axis = 0; axis < plan.rank; ++axis) {
      plan.dims[axis] = view->dims[axis];
      plan.strides[operand][axis] = view->strides[axis];
    }
    ++operand;
  }
  collapse(plan);
  return plan;
}

} // namespace zerocc
