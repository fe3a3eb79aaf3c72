// copy, concat, pad, iota: moves of elements whatever they mean. A permuted operand is read along its own
// unit stride and written along the result's, in square blocks that stay in the first-level cache.

#include "runtime/kernels/cpu/copy_plan.h"
#include "runtime/kernels/cpu/prepare.h"

#include <algorithm>
#include <cstring>

namespace zerocc {
namespace {

constexpr int64_t kBlock = 16; // elements of a side: a cache line of f32

/// Calls body(T()) for an unsigned integer of that size.
template <typename F> void withSize(int64_t bytes, F body) {
  switch (bytes) {
  case 1:
    return body(uint8_t());
  case 2:
    return body(uint16_t());
  case 4:
    return body(uint32_t());
  default:
    return body(uint64_t());
  }
}

/// to[i * toRow + j] = from[i + j * fromColumn]
template <typename T>
void transposeBlock(T *to, int64_t toRow, const T *from, int64_t fromColumn, int64_t rows, int64_t columns) {
  if (rows == kBlock && columns == kBlock) {
    T block[kBlock][kBlock];
    for (int64_t j = 0; j < kBlock; ++j)
      for (int64_t i = 0; i < kBlock; ++i)
        block[i][j] = from[i + j * fromColumn];
    for (int64_t i = 0; i < kBlock; ++i)
      std::memcpy(to + i * toRow, block[i], sizeof(block[i]));
    return;
  }
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j)
      to[i * toRow + j] = from[i + j * fromColumn];
}

template <typename T>
void transposeMatrix(T *to, int64_t toRow, const T *from, int64_t fromColumn, int64_t rows, int64_t columns) {
  for (int64_t i = 0; i < rows; i += kBlock)
    for (int64_t j = 0; j < columns; j += kBlock)
      transposeBlock(to + i * toRow + j, toRow, from + i + j * fromColumn, fromColumn,
                     std::min(kBlock, rows - i), std::min(kBlock, columns - j));
}

/// Swaps the loops of a plan.
void swapLoops(LoopPlan &plan, int a, int b) {
  std::swap(plan.dims[a], plan.dims[b]);
  for (int i = 0; i < plan.operands; ++i)
    std::swap(plan.strides[i][a], plan.strides[i][b]);
}

CopyPlan::Row rowKind(CopyPlan &plan) {
  LoopPlan &loops = plan.loops;
  int64_t to = loops.innerStride(0), from = loops.innerStride(1);
  if (to != 1)
    return CopyPlan::Row::strided;
  if (from == 1)
    return CopyPlan::Row::memory;
  if (from == 0)
    return CopyPlan::Row::fill;
  for (int axis = 0; axis + 1 < loops.rank; ++axis)
    if (loops.strides[1][axis] == 1) {
      swapLoops(loops, axis, loops.rank - 2);
      return CopyPlan::Row::transposed;
    }
  return CopyPlan::Row::strided;
}

template <typename T> void runTyped(const CopyPlan &plan, T *to, const T *from) {
  int64_t n = plan.loops.innerLength();
  int64_t toStride = plan.loops.innerStride(0), fromStride = plan.loops.innerStride(1);
  if (plan.row == CopyPlan::Row::transposed) {
    // The loop over rows of the matrix is done here, not by forEachRow.
    LoopPlan outer = plan.loops;
    int rows = outer.rank - 2;
    int64_t rowCount = outer.dims[rows], toRow = outer.strides[0][rows];
    outer.dims[rows] = 1;
    forEachRow(outer, [&](const int64_t *at) {
      transposeMatrix(to + at[0], toRow, from + at[1], fromStride, rowCount, n);
    });
    return;
  }
  forEachRow(plan.loops, [&](const int64_t *at) {
    T *y = to + at[0];
    const T *x = from + at[1];
    switch (plan.row) {
    case CopyPlan::Row::memory:
      std::memcpy(y, x, static_cast<size_t>(n) * sizeof(T));
      break;
    case CopyPlan::Row::fill:
      std::fill_n(y, n, *x);
      break;
    default:
      for (int64_t i = 0; i < n; ++i)
        y[i * toStride] = x[i * fromStride];
    }
  });
}

/// The part of `whole` from `starts` on that has the dims of `part`.
TensorView window(const TensorView &whole, const TensorView &part, const int64_t *starts, int64_t &offset) {
  TensorView out = whole;
  offset = 0;
  for (int i = 0; i < whole.rank; ++i) {
    out.dims[i] = part.dims[i];
    offset += starts[i] * whole.strides[i];
  }
  return out;
}

Status expectOneDType(const KernelCall &call) {
  for (const TensorView &input : call.inputs)
    if (input.dtype != call.results[0].dtype)
      return refuse(call, "the result is " + describe(call.results[0]) + ": another dtype");
  return success();
}

// copy              y = x
Status prepareCopy(KernelCall &call) {
  ZEROCC_TRY(expectCounts(call, 1, 1));
  ZEROCC_TRY(expectOneDType(call));
  if (!sameDims(call.inputs[0], call.results[0]))
    return refuse(call, "the result is " + describe(call.results[0]) + ": other dims");
  setState(call, makeCopyPlan(call.results[0], call.inputs[0]));
  call.run = [](const KernelCall &c) { runCopy(stateOf<CopyPlan>(c), c.results[0].data, c.inputs[0].data); };
  return success();
}

// concat            y = x_0, x_1, … one behind the other along `axis`
Status prepareConcat(KernelCall &call) {
  ZEROCC_TRY(expectCounts(call, call.inputs.size(), 1));
  ZEROCC_TRY(expectOneDType(call));
  const TensorView &result = call.results[0];
  int64_t axis = call.attributes.getInt("axis");
  if (axis < 0 || axis >= result.rank)
    return refuse(call,
                  "axis " + std::to_string(axis) + " of a result of rank " + std::to_string(result.rank));
  std::vector<CopyPlan> plans;
  int64_t starts[kMaxRank] = {};
  for (const TensorView &input : call.inputs) {
    TensorView expected = result;
    expected.dims[axis] = input.rank == result.rank ? input.dims[axis] : 0;
    if (!sameDims(input, expected))
      return refuse(call, "operands do not fit the result " + describe(result));
    int64_t offset;
    TensorView part = window(result, input, starts, offset);
    plans.push_back(makeCopyPlan(part, input));
    plans.back().toOffset = offset;
    starts[axis] += input.dims[axis];
  }
  if (starts[axis] != result.dims[axis])
    return refuse(call, "operands have " + std::to_string(starts[axis]) + " along axis " +
                            std::to_string(axis) + ", the result has " + std::to_string(result.dims[axis]));
  setState(call, std::move(plans));
  call.run = [](const KernelCall &c) {
    const auto &plans = stateOf<std::vector<CopyPlan>>(c);
    for (size_t i = 0; i < plans.size(); ++i)
      runCopy(plans[i], c.results[0].data, c.inputs[i].data);
  };
  return success();
}

struct PadState {
  CopyPlan fill, copy;
  uint64_t value = 0; // an element's bytes
};

Status padElement(const KernelCall &call, double value, uint64_t &bytes) {
  auto put = [&](auto element) {
    std::memcpy(&bytes, &element, sizeof(element));
    return success();
  };
  switch (call.results[0].dtype) {
  case DType::f32:
    return put(static_cast<float>(value));
  case DType::f64:
    return put(value);
  case DType::i64:
    return put(static_cast<int64_t>(value));
  case DType::i32:
    return put(static_cast<int32_t>(value));
  case DType::i8:
    return put(static_cast<int8_t>(value));
  case DType::u8:
    return put(static_cast<uint8_t>(value));
  case DType::i16:
    return put(static_cast<int16_t>(value));
  case DType::u16:
    return put(static_cast<uint16_t>(value));
  case DType::u32:
    return put(static_cast<uint32_t>(value));
  case DType::u64:
    return put(static_cast<uint64_t>(value));
  case DType::boolean:
    return put(static_cast<uint8_t>(value != 0));
  default:
    return value == 0 ? put(uint16_t(0)) : refuse(call, "16-bit floats are padded with 0 only");
  }
}

// pad               y = value, and x from index `low` on
Status preparePad(KernelCall &call) {
  ZEROCC_TRY(expectCounts(call, 1, 1));
  ZEROCC_TRY(expectOneDType(call));
  const TensorView &input = call.inputs[0], &result = call.results[0];
  std::vector<int64_t> low = call.attributes.getInts("low"), high = call.attributes.getInts("high");
  if (input.rank != result.rank || low.size() != static_cast<size_t>(input.rank) || high.size() != low.size())
    return refuse(call, "one low and one high per dim needed");
  for (int i = 0; i < input.rank; ++i)
    if (low[i] < 0 || high[i] < 0 || low[i] + input.dims[i] + high[i] != result.dims[i])
      return refuse(call, "low " + std::to_string(low[i]) + " and high " + std::to_string(high[i]) +
                              " along axis " + std::to_string(i) + " do not give the result " +
                              describe(result));
  PadState state;
  ZEROCC_TRY(padElement(call, call.attributes.getFloat("value"), state.value));
  TensorView splat = result;
  std::fill_n(splat.strides, kMaxRank, 0);
  state.fill = makeCopyPlan(result, splat);
  int64_t offset;
  TensorView part = window(result, input, low.data(), offset);
  state.copy = makeCopyPlan(part, input);
  state.copy.toOffset = offset;
  setState(call, state);
  call.run = [](const KernelCall &c) {
    const auto &state = stateOf<PadState>(c);
    runCopy(state.fill, c.results[0].data, &state.value);
    runCopy(state.copy, c.results[0].data, c.inputs[0].data);
  };
  return success();
}

template <typename T> void runIota(const KernelCall &call) {
  T *y = pointer<T>(call.results[0]);
  for (int64_t i = 0, n = call.results[0].elements(); i < n; ++i)
    y[i] = static_cast<T>(i);
}

// iota              y[i] = i
Status prepareIota(KernelCall &call) {
  ZEROCC_TRY(expectCounts(call, 0, 1));
  if (!call.results[0].contiguous())
    return refuse(call, "the result must be contiguous, is " + describe(call.results[0]));
  switch (call.results[0].dtype) {
  case DType::f32:
    call.run = runIota<float>;
    return success();
  case DType::f64:
    call.run = runIota<double>;
    return success();
  case DType::i64:
    call.run = runIota<int64_t>;
    return success();
  case DType::i32:
    call.run = runIota<int32_t>;
    return success();
  default:
    return refuse(call, "no kernel for a result of " + describe(call.results[0]));
  }
}

} // namespace

CopyPlan makeCopyPlan(const TensorView &to, const TensorView &from) {
  CopyPlan plan;
  plan.elementBytes = byteSize(to.dtype);
  plan.loops = makeLoopPlan({&to, &from});
  plan.row = rowKind(plan);
  return plan;
}

void runCopy(const CopyPlan &plan, void *to, const void *from) {
  withSize(plan.elementBytes, [&](auto lane) {
    using T = decltype(lane);
    runTyped(plan, static_cast<T *>(to) + plan.toOffset, static_cast<const T *>(from) + plan.fromOffset);
  });
}

extern const CpuKernel copyKernels = {prepareCopy};
extern const CpuKernel concatKernels = {prepareConcat};
extern const CpuKernel padKernels = {preparePad};
extern const CpuKernel iotaKernels = {prepareIota};

} // namespace zerocc
