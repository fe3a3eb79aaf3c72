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
  bool flat = false; // every row of every operand is contiguous, and long enough
};

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

/// `rows` rows of `n` elements, rowStride and stride apart in an operand, one behind the other when packed.
struct Block {
  int64_t rows, n, rowStride, stride;

  bool isPacked() const { return stride == 1 && (rows == 1 || rowStride == n); }
};

template <typename T> void packBlock(T *to, const T *from, Block block) {
  for (int64_t r = 0; r < block.rows; ++r, to += block.n, from += block.rowStride) {
    if (block.stride == 0)
      std::fill_n(to, block.n, *from);
    else if (block.stride == 1)
      std::copy_n(from, block.n, to);
    else
      for (int64_t i = 0; i < block.n; ++i)
        to[i] = from[i * block.stride];
  }
}

template <typename T> void unpackBlock(T *to, const T *from, Block block) {
  for (int64_t r = 0; r < block.rows; ++r, from += block.n, to += block.rowStride)
    for (int64_t i = 0; i < block.n; ++i)
      to[i * block.stride] = from[i];
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

/// Does the two inner loops in tiles: pieces of a long row, or several short rows.
void runTiled(const ElementwiseState &state, char *const *data) {
  const LoopPlan &plan = state.plan;
  alignas(64) char tiles[LoopPlan::kMaxOperands][kTile * 8];
  const int inner = plan.rank - 1, middle = plan.rank - 2;
  const int64_t length = plan.dims[inner], rows = middle < 0 ? 1 : plan.dims[middle];
  const int64_t tileRows = std::max<int64_t>(1, kTile / std::max<int64_t>(length, 1));
  LoopPlan outer = plan;
  if (middle >= 0)
    outer.dims[middle] = 1;

  auto runTile = [&](const int64_t *offsets, int64_t row, int64_t begin) {
    Block blocks[LoopPlan::kMaxOperands];
    char *places[LoopPlan::kMaxOperands];   // where the block lies
    void *operands[LoopPlan::kMaxOperands]; // where the loop finds it
    for (int i = 0; i < plan.operands; ++i) {
      Block &block = blocks[i];
      block = {std::min(tileRows, rows - row), std::min(kTile, length - begin),
               middle < 0 ? 0 : plan.strides[i][middle], plan.strides[i][inner]};
      places[i] = data[i] + (offsets[i] + row * block.rowStride + begin * block.stride) * state.bytes[i];
      operands[i] = block.isPacked() ? places[i] : tiles[i];
      // A broadcast tile is packed once, first, when it is largest.
      bool isFirst = row == 0 && begin == 0;
      bool differs = (block.stride != 0 && length > kTile) || (block.rowStride != 0 && begin == 0);
      if (i > 0 && !block.isPacked() && (isFirst || differs))
        withSize(state.bytes[i], [&](auto lane) {
          using T = decltype(lane);
          packBlock(reinterpret_cast<T *>(tiles[i]), reinterpret_cast<const T *>(places[i]), block);
        });
    }
    state.loop(operands[0], operands + 1, blocks[0].rows * blocks[0].n);
    if (!blocks[0].isPacked())
      withSize(state.bytes[0], [&](auto lane) {
        using T = decltype(lane);
        unpackBlock(reinterpret_cast<T *>(places[0]), reinterpret_cast<const T *>(tiles[0]), blocks[0]);
      });
  };
  forEachRow(outer, [&](const int64_t *offsets) {
    for (int64_t row = 0; row < rows; row += tileRows)
      for (int64_t begin = 0; begin < length; begin += kTile)
        runTile(offsets, row, begin);
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
    runTiled(state, data);
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
  state.flat = state.plan.innerLength() >= kTile || state.plan.rank == 1;
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
