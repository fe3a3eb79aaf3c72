// Views, buffers, waits and releases move no bytes; collectives belong to the communicator.

#include "runtime/kernels/cpu/prepare.h"

namespace zerocc {

static Status prepareNothing(KernelCall &call) {
  call.run = [](const KernelCall &) {};
  return success();
}

static Status refuseCollective(KernelCall &call) {
  return refuse(call, "internal error: a collective is the communicator's work, not a kernel's");
}

extern const CpuKernel viewKernels = {prepareNothing};
extern const CpuKernel structuralKernels = {prepareNothing};
extern const CpuKernel collectiveKernels = {refuseCollective};

} // namespace zerocc
