// scatter: data with rows replaced by, multiplied by, or the greater or lesser of them and the updates, in
// the order of the indices. Negative indices count from the end; one outside all the same is left out (the
// runtime checks the ranges of its inputs).

#include "runtime/kernels/cpu/prepare.h"

#include <cstring>

namespace zerocc {
namespace {

struct ScatterState {
  int64_t rows = 0, width = 1, count = 0; // of data; elements of a row; number of updates
};

struct Replace {
  template <typename T> T operator()(T, T update) const { return update; }
};
struct Multiply {
  template <typename T> T operator()(T held, T update) const { return static_cast<T>(held * update); }
};
struct Greater {
  template <typename T> T operator()(T held, T update) const {
    return held == held && (update != update || update > held) ? update : held;
  }
};
struct Lesser {
  template <typename T> T operator()(T held, T update) const {
    return held == held && (update != update || update < held) ? update : held;
  }
};

template <typename T, typename Index, typename F> void runScatter(const KernelCall &call) {
  const auto &state = stateOf<ScatterState>(call);
  T *y = pointer<T>(call.results[0]);
  if (y != pointer<T>(call.inputs[0]))
    std::memcpy(y, call.inputs[0].data, static_cast<size_t>(state.rows * state.width) * sizeof(T));
  const auto *indices = pointer<const Index>(call.inputs[1]);
  const T *updates = pointer<const T>(call.inputs[2]);
  for (int64_t r = 0; r < state.count; ++r) {
    int64_t index = indices[r];
    index += index < 0 ? state.rows : 0;
    if (index < 0 || index >= state.rows)
      continue;
    for (int64_t c = 0; c < state.width; ++c)
      y[index * state.width + c] = F()(y[index * state.width + c], updates[r * state.width + c]);
  }
}

using Run = void (*)(const KernelCall &);

template <typename T, typename F> Run withIndex(DType index) {
  return index == DType::i64   ? runScatter<T, int64_t, F>
         : index == DType::i32 ? runScatter<T, int32_t, F>
                               : nullptr;
}

Run replaceRun(DType dtype, DType index) {
  switch (byteSize(dtype)) {
  case 1:
    return withIndex<uint8_t, Replace>(index);
  case 2:
    return withIndex<uint16_t, Replace>(index);
  case 4:
    return withIndex<uint32_t, Replace>(index);
  default:
    return withIndex<uint64_t, Replace>(index);
  }
}

Status prepareScatter(KernelCall &call) {
  ZEROCC_TRY(expectCounts(call, 3, 1));
  ZEROCC_TRY(expectContiguous(call));
  const TensorView &data = call.inputs[0], &indices = call.inputs[1], &updates = call.inputs[2];
  if (data.rank < 1 || data.dtype != updates.dtype || data.dtype != call.results[0].dtype ||
      !sameDims(data, call.results[0]))
    return refuse(call, "data, updates and result must have one dtype, data and result equal dims");
  ScatterState state;
  state.rows = data.dims[0];
  for (int i = 1; i < data.rank; ++i)
    state.width *= data.dims[i];
  state.count = indices.elements();
  if (updates.elements() != state.count * state.width)
    return refuse(call, "updates are " + describe(updates) + ", there must be a row per index");
  const std::string reduction = call.attributes.getString("reduction");
  if (reduction == "none")
    call.run = replaceRun(data.dtype, indices.dtype);
  else
    call.run = withNumber(data.dtype, [&](auto zero) -> Run {
      using T = decltype(zero);
      return reduction == "mul"   ? withIndex<T, Multiply>(indices.dtype)
             : reduction == "max" ? withIndex<T, Greater>(indices.dtype)
             : reduction == "min" ? withIndex<T, Lesser>(indices.dtype)
                                  : nullptr;
    });
  if (!call.run)
    return refuse(call, "no kernel for " + std::string(dtypeName(data.dtype)));
  setState(call, state);
  return success();
}

} // namespace

extern const CpuKernel scatterKernels = {prepareScatter};

} // namespace zerocc
