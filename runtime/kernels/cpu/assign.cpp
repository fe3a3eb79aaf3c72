// assign            a = x, in place

#include "runtime/kernels/cpu/prepare.h"

#include <cstring>

namespace zerocc {
namespace {

void runAssign(const KernelCall &call) {
  const TensorView &to = call.results[0];
  std::memcpy(to.data, call.inputs[1].data, static_cast<size_t>(to.elements() * byteSize(to.dtype)));
}

Status prepareAssign(KernelCall &call) {
  ZEROCC_TRY(expectCounts(call, 2, 1));
  ZEROCC_TRY(expectContiguous(call));
  if (call.results[0].data != call.inputs[0].data)
    return refuse(call, "the result must lie on operand 0");
  if (call.inputs[1].dtype != call.results[0].dtype || !sameDims(call.inputs[1], call.results[0]))
    return refuse(call, "operands and result must have equal types");
  call.run = runAssign;
  return success();
}

} // namespace

extern const CpuKernel assignKernels = {prepareAssign};

} // namespace zerocc
