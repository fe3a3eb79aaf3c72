#include "runtime/kernels/cpu/prepare.h"

namespace zerocc {

extern const CpuKernel poolKernels = {
    [](KernelCall &call) -> Status { return refuse(call, "no kernel yet"); }};

} // namespace zerocc
