// top_k: the k greatest of each row in order, of equals the lower index first: a total order, so that it does
// not matter that the selection is not stable.

#include "runtime/kernels/cpu/last_axis.h"

#include <algorithm>
#include <numeric>

namespace zerocc {
namespace {

template <typename T> void runTopK(const KernelCall &call) {
  const auto &state = stateOf<LastAxisState>(call);
  auto *order = static_cast<int64_t *>(call.workspace);
  for (int64_t row = 0; row < state.rows; ++row) {
    const T *x = pointer<const T>(call.inputs[0]) + row * state.width;
    T *values = pointer<T>(call.results[0]) + row * state.k;
    auto *indices = pointer<int64_t>(call.results[1]) + row * state.k;
    std::iota(order, order + state.width, int64_t(0));
    std::partial_sort(order, order + state.k, order + state.width, [&](int64_t a, int64_t b) {
      return isAhead(x[a], x[b], state.smallest) || (!isAhead(x[b], x[a], state.smallest) && a < b);
    });
    for (int64_t j = 0; j < state.k; ++j) {
      values[j] = x[order[j]];
      indices[j] = order[j];
    }
  }
}

Status prepareTopK(KernelCall &call) {
  ZEROCC_TRY(expectCounts(call, 1, 2));
  ZEROCC_TRY(expectContiguous(call));
  const LastAxisState state = lastAxisState(call);
  const TensorView &values = call.results[0], &indices = call.results[1];
  if (values.dtype != call.inputs[0].dtype || indices.dtype != DType::i64 || state.k > state.width ||
      values.elements() != state.rows * state.k || indices.elements() != state.rows * state.k)
    return refuse(call, "the results are " + describe(values) + " and " + describe(indices) +
                            ", they must be " + std::to_string(state.k) + " values and i64 indices per row");
  if (call.workspaceBytes < state.width * static_cast<int64_t>(sizeof(int64_t)))
    return refuse(call, "the workspace is too small");
  using Run = void (*)(const KernelCall &);
  call.run = withNumber(call.inputs[0].dtype, [](auto zero) -> Run { return runTopK<decltype(zero)>; });
  if (!call.run)
    return refuse(call, "no kernel for " + std::string(dtypeName(call.inputs[0].dtype)));
  setState(call, state);
  return success();
}

} // namespace

extern const CpuKernel topKKernels = {prepareTopK};

} // namespace zerocc
