// gather, scatter_add: rows picked and summed by index. Negative indices count from the end. The runtime
// checks the ranges of its inputs; an index outside all the same reads and writes nothing: gather gives NaN
// (integers 0).

#include "runtime/kernels/cpu/loop_plan.h"
#include "runtime/kernels/cpu/prepare.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace zerocc {
namespace {

/// Loops over [outer dims, index dims, inner dims]. Operand 0: the tensor with index dims (gather's result,
/// scatter_add's updates); 1: the tensor with the axis in their place; 2: the indices.
struct GatherState {
  LoopPlan loops;
  int64_t size = 0;       // along the axis
  int64_t axisStride = 0; // elements
  int64_t elementBytes = 4;
};

Expected<GatherState> makeState(const KernelCall &call, const TensorView &spread, const TensorView &table,
                                const TensorView &indices) {
  int64_t axis = call.attributes.getInt("axis");
  if (axis < 0 || axis >= table.rank)
    return refuse(call,
                  "axis " + std::to_string(axis) + " of a tensor of rank " + std::to_string(table.rank));
  if (indices.dtype != DType::i64 && indices.dtype != DType::i32)
    return refuse(call, "indices must be i64 or i32");
  if (spread.dtype != table.dtype)
    return refuse(call, "the result is " + describe(call.results[0]) + ": another dtype");
  if (spread.rank != table.rank - 1 + indices.rank)
    return refuse(call, "the result is " + describe(call.results[0]) + ": another rank");

  GatherState state;
  state.size = table.dims[axis];
  state.axisStride = table.strides[axis];
  state.elementBytes = byteSize(table.dtype);
  LoopPlan &loops = state.loops;
  loops.operands = 3;
  loops.rank = spread.rank;
  for (int i = 0; i < spread.rank; ++i) {
    bool isIndex = i >= axis && i < axis + indices.rank;
    int tableAxis = i < axis ? i : i - indices.rank + 1, indexAxis = static_cast<int>(i - axis);
    int64_t expected = isIndex ? indices.dims[indexAxis] : table.dims[tableAxis];
    if (spread.dims[i] != expected)
      return refuse(call, "dim " + std::to_string(i) + " of " + describe(spread) + " should be " +
                              std::to_string(expected));
    loops.dims[i] = spread.dims[i];
    loops.strides[0][i] = spread.strides[i];
    loops.strides[1][i] = isIndex ? 0 : table.strides[tableAxis];
    loops.strides[2][i] = isIndex ? indices.strides[indexAxis] : 0;
  }
  collapse(loops);
  // A lone index has no stride of its own after collapsing; make the inner loop's roles explicit.
  if (loops.rank == 1 && loops.dims[0] == 1)
    loops.strides[2][0] = 0;
  return state;
}

template <typename Index> int64_t resolve(Index index, int64_t size) {
  auto i = static_cast<int64_t>(index);
  i += i < 0 ? size : 0;
  return i >= 0 && i < size ? i : -1;
}

/// What an index out of range gives.
template <typename T> T missing(DType dtype) {
  T element = 0;
  if (dtype == DType::f32 && sizeof(T) == 4) {
    float nan = std::numeric_limits<float>::quiet_NaN();
    std::memcpy(&element, &nan, sizeof(element));
  } else if (dtype == DType::f64 && sizeof(T) == 8) {
    double nan = std::numeric_limits<double>::quiet_NaN();
    std::memcpy(&element, &nan, sizeof(element));
  } else if (dtype == DType::f16 || dtype == DType::bf16) {
    element = static_cast<T>(0x7fff);
  }
  return element;
}

template <typename T, typename Index> void runGather(const KernelCall &call) {
  const auto &state = stateOf<GatherState>(call);
  const LoopPlan &loops = state.loops;
  int64_t n = loops.innerLength();
  int64_t toStride = loops.innerStride(0), fromStride = loops.innerStride(1),
          indexStride = loops.innerStride(2);
  const T none = missing<T>(call.results[0].dtype);
  forEachRow(loops, [&](const int64_t *at) {
    T *to = pointer<T>(call.results[0]) + at[0];
    const T *table = pointer<const T>(call.inputs[0]) + at[1];
    const Index *indices = pointer<const Index>(call.inputs[1]) + at[2];
    if (indexStride == 0) { // one index for the whole row
      int64_t row = resolve(*indices, state.size);
      const T *from = table + row * state.axisStride;
      if (row >= 0 && toStride == 1 && fromStride == 1)
        std::memcpy(to, from, static_cast<size_t>(n) * sizeof(T));
      else
        for (int64_t i = 0; i < n; ++i)
          to[i * toStride] = row >= 0 ? from[i * fromStride] : none;
      return;
    }
    for (int64_t i = 0; i < n; ++i) {
      int64_t row = resolve(indices[i * indexStride], state.size);
      to[i * toStride] = row >= 0 ? table[row * state.axisStride + i * fromStride] : none;
    }
  });
}

/// Sums in the order of position, so that equal indices always add in the same order.
template <typename T, typename Index> void runScatterAdd(const KernelCall &call) {
  const auto &state = stateOf<GatherState>(call);
  const LoopPlan &loops = state.loops;
  std::memset(call.results[0].data, 0, static_cast<size_t>(call.results[0].elements()) * sizeof(T));
  int64_t n = loops.innerLength();
  int64_t fromStride = loops.innerStride(0), toStride = loops.innerStride(1),
          indexStride = loops.innerStride(2);
  forEachRow(loops, [&](const int64_t *at) {
    const T *from = pointer<const T>(call.inputs[1]) + at[0];
    T *table = pointer<T>(call.results[0]) + at[1];
    const Index *indices = pointer<const Index>(call.inputs[0]) + at[2];
    if (indexStride == 0) {
      int64_t row = resolve(*indices, state.size);
      if (row < 0)
        return;
      T *__restrict to = table + row * state.axisStride;
      if (toStride == 1 && fromStride == 1)
        for (int64_t i = 0; i < n; ++i)
          to[i] += from[i];
      else
        for (int64_t i = 0; i < n; ++i)
          to[i * toStride] += from[i * fromStride];
      return;
    }
    for (int64_t i = 0; i < n; ++i)
      if (int64_t row = resolve(indices[i * indexStride], state.size); row >= 0)
        table[row * state.axisStride + i * toStride] += from[i * fromStride];
  });
}

using Run = void (*)(const KernelCall &);

template <typename Index> Run gatherOf(int64_t bytes) {
  switch (bytes) {
  case 1:
    return runGather<uint8_t, Index>;
  case 2:
    return runGather<uint16_t, Index>;
  case 4:
    return runGather<uint32_t, Index>;
  default:
    return runGather<uint64_t, Index>;
  }
}

template <typename Index> Run scatterAddOf(DType dtype) {
  switch (dtype) {
  case DType::f32:
    return runScatterAdd<float, Index>;
  case DType::f64:
    return runScatterAdd<double, Index>;
  case DType::i64:
    return runScatterAdd<uint64_t, Index>;
  case DType::i32:
    return runScatterAdd<uint32_t, Index>;
  default:
    return nullptr;
  }
}

// gather            y[o, i, …] = data[o, indices[i], …]
Status prepareGather(KernelCall &call) {
  ZEROCC_TRY(expectCounts(call, 2, 1));
  const TensorView &indices = call.inputs[1];
  ZEROCC_ASSIGN(GatherState state, makeState(call, call.results[0], call.inputs[0], indices));
  call.run = indices.dtype == DType::i64 ? gatherOf<int64_t>(state.elementBytes)
                                         : gatherOf<int32_t>(state.elementBytes);
  setState(call, state);
  return success();
}

// scatter_add       y = 0;  y[o, indices[i], …] += updates[o, i, …]  for i ascending
Status prepareScatterAdd(KernelCall &call) {
  ZEROCC_TRY(expectCounts(call, 2, 1));
  const TensorView &indices = call.inputs[0];
  ZEROCC_ASSIGN(GatherState state, makeState(call, call.inputs[1], call.results[0], indices));
  if (!call.results[0].contiguous())
    return refuse(call, "the result must be contiguous, is " + describe(call.results[0]));
  DType dtype = call.results[0].dtype;
  call.run = indices.dtype == DType::i64 ? scatterAddOf<int64_t>(dtype) : scatterAddOf<int32_t>(dtype);
  if (!call.run)
    return refuse(call, "no kernel for " + std::string(dtypeName(dtype)));
  setState(call, state);
  return success();
}

} // namespace

extern const CpuKernel gatherKernels = {prepareGather};
extern const CpuKernel scatterAddKernels = {prepareScatterAdd};

} // namespace zerocc
