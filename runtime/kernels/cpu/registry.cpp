#include "runtime/kernels/kernel.h"

namespace zerocc {

#define CORE_OP(kind, text, minInputs, maxInputs, results, shape, gradient, cost, workspace, alias, kernels) \
  extern const CpuKernel kernels;
#include "compiler/ops/core_ops.def"

const CpuKernel &cpuKernel(OpKind op) {
  static constexpr const CpuKernel *table[] = {
#define CORE_OP(kind, text, minInputs, maxInputs, results, shape, gradient, cost, workspace, alias, kernels) \
  &kernels,
#include "compiler/ops/core_ops.def"
  };
  return *table[static_cast<int>(op)];
}

} // namespace zerocc
