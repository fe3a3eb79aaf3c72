// Elementwise ops over any strides. There is one loop per op and dtype, and it sees contiguous arrays only: a
// row of an operand that lies otherwise (broadcast, strided, reversed) is packed into a tile in the
// first-level cache. So an element goes through the same instructions wherever it lies.

#include "runtime/kernels/cpu/elementwise.h"
#include "runtime/kernels/cpu/prepare.h"

#include <algorithm>
#include <cstring>

namespace zerocc {
namespace {

constexpr int64_t kTile = 512; // elements

/// Operand 0 is the result.
struct ElementwiseState {
  LoopPlan plan;
  FlatLoop loop = nullptr;
  int64_t bytes[LoopPlan::kMaxOperands] = {};
  bool flat = false; // every row of every operand is contiguous
};

template <typename T> void packRow(void *to, const void *from, int64_t stride, int64_t n) {
  auto *out = static_cast<T *>(to);
  auto *in = static_cast<const T *>(from);
  if (stride == 0)
    std::fill_n(out, n, *in);
  else
    for (int64_t i = 0; i < n; ++i)
      out[i] = in[i * stride];
}

template <typename T> void unpackRow(void *to, const void *from, int64_t stride, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    static_cast<T *>(to)[i * stride] = static_cast<const T *>(from)[i];
}

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

void runFlat(const ElementwiseState &state, char *const *data) {
  const LoopPlan &plan = state.plan;
  forEachRow(plan, [&](const int64_t *offsets) {
    const void *inputs[LoopPlan::kMaxOperands];
    for (int i = 1; i < plan.operands; ++i)
      inputs[i - 1] = data[i] + offsets[i] * state.bytes[i];
    state.loop(data[0] + offsets[0] * state.bytes[0], inputs, plan.innerLength());
  });
}

void runPacked(const ElementwiseState &state, char *const *data) {
  const LoopPlan &plan = state.plan;
  alignas(64) char tiles[LoopPlan::kMaxOperands][kTile * 8];
  int64_t length = plan.innerLength();
  forEachRow(plan, [&](const int64_t *offsets) {
    for (int64_t begin = 0; begin < length; begin += kTile) {
      int64_t n = std::min(kTile, length - begin);
      const void *inputs[LoopPlan::kMaxOperands];
      for (int i = 1; i < plan.operands; ++i) {
        int64_t stride = plan.innerStride(i), bytes = state.bytes[i];
        const char *from = data[i] + (offsets[i] + begin * stride) * bytes;
        inputs[i - 1] = stride == 1 ? from : tiles[i];
        // A broadcast tile is filled once per row; later tiles are never longer.
        if (stride != 1 && (stride != 0 || begin == 0))
          withSize(bytes, [&](auto lane) { packRow<decltype(lane)>(tiles[i], from, stride, n); });
      }
      int64_t stride = plan.innerStride(0), bytes = state.bytes[0];
      char *to = data[0] + (offsets[0] + begin * stride) * bytes;
      state.loop(stride == 1 ? to : tiles[0], inputs, n);
      if (stride != 1)
        withSize(bytes, [&](auto lane) { unpackRow<decltype(lane)>(to, tiles[0], stride, n); });
    }
  });
}

void runElementwise(const KernelCall &call) {
  const auto &state = stateOf<ElementwiseState>(call);
  char *data[LoopPlan::kMaxOperands] = {pointer<char>(call.results[0])};
  for (int i = 1; i < state.plan.operands; ++i)
    data[i] = pointer<char>(call.inputs[i - 1]);
  if (state.flat)
    runFlat(state, data);
  else
    runPacked(state, data);
}

LoopVariant variantOf(const KernelCall &call) {
  if (call.op == OpKind::Compare) {
    constexpr const char *kinds[] = {"eq", "ne", "lt", "le", "gt", "ge"};
    std::string kind = call.attributes.getString("kind");
    for (int i = 0; i < 6; ++i)
      if (kind == kinds[i])
        return i;
    return -1;
  }
  return call.attributes.getString("approximate", "none") == "tanh";
}

bool isPredicate(OpKind op) { return op == OpKind::IsNan || op == OpKind::Compare; }

Status prepareByTable(KernelCall &call, size_t inputs) {
  ZEROCC_TRY(expectCounts(call, inputs, 1));
  bool isSelect = call.op == OpKind::Select;
  DType dtype = call.inputs[isSelect ? 1 : 0].dtype;
  for (size_t i = 0; i < inputs; ++i)
    if (call.inputs[i].dtype != (isSelect && i == 0 ? DType::boolean : dtype))
      return refuse(call, "operand " + std::to_string(i) + " has another dtype");
  DType result = isPredicate(call.op) ? DType::boolean : dtype;
  if (call.results[0].dtype != result)
    return refuse(call, "the result must be " + std::string(dtypeName(result)));
  FlatLoop loop = findFlatLoop(call.op, dtype, variantOf(call));
  if (!loop)
    return refuse(call, "no kernel for " + std::string(dtypeName(dtype)));
  return prepareElementwise(call, loop);
}

Status prepareUnary(KernelCall &call) { return prepareByTable(call, 1); }
Status prepareBinary(KernelCall &call) { return prepareByTable(call, 2); }
Status prepareSelect(KernelCall &call) { return prepareByTable(call, 3); }

// accumulate        a += x, in place
Status prepareAccumulate(KernelCall &call) {
  ZEROCC_TRY(expectCounts(call, 2, 1));
  if (call.results[0].data != call.inputs[0].data)
    return refuse(call, "the result must lie on operand 0");
  DType dtype = call.inputs[0].dtype;
  if (dtype != call.inputs[1].dtype || dtype != call.results[0].dtype)
    return refuse(call, "operands and result must have one dtype");
  FlatLoop loop = isFloat(dtype) ? findFlatLoop(OpKind::Add, dtype, 0) : nullptr;
  if (!loop)
    return refuse(call, "no kernel for " + std::string(dtypeName(dtype)));
  return prepareElementwise(call, loop);
}

} // namespace

Status prepareElementwise(KernelCall &call, FlatLoop loop) {
  const TensorView &result = call.results[0];
  for (const TensorView &input : call.inputs)
    if (!sameDims(input, result))
      return refuse(call, "operands and result must have equal dims; the result is " + describe(result));
  ElementwiseState state;
  state.loop = loop;
  const std::vector<TensorView> &in = call.inputs;
  state.plan = in.size() == 1   ? makeLoopPlan({&result, &in[0]})
               : in.size() == 2 ? makeLoopPlan({&result, &in[0], &in[1]})
                                : makeLoopPlan({&result, &in[0], &in[1], &in[2]});
  state.flat = true;
  for (int i = 0; i < state.plan.operands; ++i) {
    state.bytes[i] = byteSize(i == 0 ? result.dtype : in[i - 1].dtype);
    state.flat = state.flat && state.plan.innerStride(i) == 1;
  }
  setState(call, state);
  call.run = runElementwise;
  return success();
}

extern const CpuKernel unaryKernels = {prepareUnary};
extern const CpuKernel binaryKernels = {prepareBinary};
extern const CpuKernel selectKernels = {prepareSelect};
extern const CpuKernel accumulateKernels = {prepareAccumulate};

} // namespace zerocc
