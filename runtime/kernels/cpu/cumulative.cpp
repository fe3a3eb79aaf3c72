// cum_sum, cum_prod, cum_prod_grad: along rows, one after the other; f32 is cumulated in f64.

#include "runtime/kernels/cpu/last_axis.h"

#include <type_traits>

namespace zerocc {
namespace {

/// Floats in f64, integers wrapping.
template <typename T> using Accumulator = std::conditional_t<std::is_floating_point_v<T>, double, uint64_t>;

template <typename T, bool isProduct> void runCumulative(const KernelCall &call) {
  using A = Accumulator<T>;
  const auto &state = stateOf<LastAxisState>(call);
  const int64_t step = state.reverse ? -1 : 1, first = state.reverse ? state.width - 1 : 0;
  for (int64_t row = 0; row < state.rows; ++row) {
    const T *x = pointer<const T>(call.inputs[0]) + row * state.width + first;
    T *y = pointer<T>(call.results[0]) + row * state.width + first;
    A sum = isProduct ? 1 : 0;
    for (int64_t j = 0; j < state.width; ++j, x += step, y += step) {
      const A with = static_cast<A>(isProduct ? sum * static_cast<A>(*x) : sum + static_cast<A>(*x));
      *y = static_cast<T>(state.exclusive ? sum : with);
      sum = with;
    }
  }
}

// dx_j = (Π x before j) S_j, S from behind: compiler/ops/interpreter_index.cpp
template <typename T> void runCumProdGrad(const KernelCall &call) {
  using A = Accumulator<T>;
  const auto &state = stateOf<LastAxisState>(call);
  for (int64_t row = 0; row < state.rows; ++row) {
    const T *x = pointer<const T>(call.inputs[0]) + row * state.width;
    const T *dy = pointer<const T>(call.inputs[1]) + row * state.width;
    T *dx = pointer<T>(call.results[0]) + row * state.width;
    auto place = [&](int64_t i) { return state.reverse ? state.width - 1 - i : i; };
    A before = 1;
    for (int64_t i = 0; i < state.width; ++i) {
      dx[place(i)] = static_cast<T>(before);
      before = static_cast<A>(before * static_cast<A>(x[place(i)]));
    }
    A behind = 0;
    for (int64_t i = state.width - 1; i >= 0; --i) {
      const int64_t j = place(i);
      const A here = state.exclusive ? behind : static_cast<A>(static_cast<A>(dy[j]) + behind);
      dx[j] = static_cast<T>(static_cast<A>(dx[j]) * here);
      behind = static_cast<A>(state.exclusive ? static_cast<A>(dy[j]) + static_cast<A>(x[j]) * here
                                              : static_cast<A>(x[j]) * here);
    }
  }
}

Status prepareCumulative(KernelCall &call) {
  const bool isGradient = call.op == OpKind::CumProdGrad;
  ZEROCC_TRY(expectCounts(call, isGradient ? 2 : 1, 1));
  ZEROCC_TRY(expectContiguous(call));
  for (const TensorView &input : call.inputs)
    if (input.dtype != call.results[0].dtype || !sameDims(input, call.results[0]))
      return refuse(call, "operands and result must have equal types");
  using Run = void (*)(const KernelCall &);
  call.run = withNumber(call.inputs[0].dtype, [&](auto zero) -> Run {
    using T = decltype(zero);
    return isGradient                   ? runCumProdGrad<T>
           : call.op == OpKind::CumProd ? runCumulative<T, true>
                                        : runCumulative<T, false>;
  });
  if (!call.run)
    return refuse(call, "no kernel for " + std::string(dtypeName(call.inputs[0].dtype)));
  setState(call, lastAxisState(call));
  return success();
}

} // namespace

extern const CpuKernel cumulativeKernels = {prepareCumulative};

} // namespace zerocc
