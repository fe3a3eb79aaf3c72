#pragma once

#include "runtime/kernels/cpu/loop_plan.h"

namespace zerocc {

/// How to move the elements of one strided view to another of equal dims; what they mean does not matter.
struct CopyPlan {
  enum class Row { memory, fill, strided, transposed } row = Row::strided;
  LoopPlan loops; // operand 0 is the target; transposed: the two last loops are done together
  int64_t elementBytes = 4;
  int64_t toOffset = 0, fromOffset = 0; // elements
};

CopyPlan makeCopyPlan(const TensorView &to, const TensorView &from);
void runCopy(const CopyPlan &plan, void *to, const void *from);

} // namespace zerocc
