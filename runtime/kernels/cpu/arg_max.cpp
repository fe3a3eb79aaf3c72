// arg_max: where the greatest element of each row lies.

#include "runtime/kernels/cpu/last_axis.h"

namespace zerocc {
namespace {

template <typename T> void runArgMax(const KernelCall &call) {
  const auto &state = stateOf<LastAxisState>(call);
  auto *out = pointer<int64_t>(call.results[0]);
  for (int64_t row = 0; row < state.rows; ++row) {
    const T *x = pointer<const T>(call.inputs[0]) + row * state.width;
    int64_t best = 0;
    for (int64_t j = 1; j < state.width; ++j)
      if (isAhead(x[j], x[best], state.smallest) || (state.last && !isAhead(x[best], x[j], state.smallest)))
        best = j;
    out[row] = best;
  }
}

Status prepareArgMax(KernelCall &call) {
  ZEROCC_TRY(expectCounts(call, 1, 1));
  ZEROCC_TRY(expectContiguous(call));
  const LastAxisState state = lastAxisState(call);
  if (call.results[0].dtype != DType::i64 || call.results[0].elements() != state.rows)
    return refuse(call, "the result is " + describe(call.results[0]) + ", it must be one i64 per row");
  using Run = void (*)(const KernelCall &);
  call.run = withNumber(call.inputs[0].dtype, [](auto zero) -> Run { return runArgMax<decltype(zero)>; });
  if (!call.run)
    return refuse(call, "no kernel for " + std::string(dtypeName(call.inputs[0].dtype)));
  setState(call, state);
  return success();
}

} // namespace

extern const CpuKernel argMaxKernels = {prepareArgMax};

} // namespace zerocc
