#pragma once

#include "runtime/kernels/cpu/loop_plan.h"
#include "runtime/kernels/kernel.h"

namespace zerocc {

/// y[i] = f(x…[i]) for i in [0, n), all arrays contiguous; y may be one of the x. Each result depends on its
/// own operands alone, to the last bit.
using FlatLoop = void (*)(void *y, const void *const *x, int64_t n);

/// Which loop of an op: comparisons in the order eq ne lt le gt ge; gelu: 1 is the tanh form; 0 else.
using LoopVariant = int;
/// The loop of an elementwise op for operands of `dtype` (select: any dtype, by size) or null.
FlatLoop findFlatLoop(OpKind op, DType dtype, LoopVariant variant);

/// Makes the call run `loop` over result 0 and all operands, whatever their strides.
Status prepareElementwise(KernelCall &call, FlatLoop loop);

} // namespace zerocc
