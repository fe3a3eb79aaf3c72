// dropout, keep_mask: the mask is made from counters as it is used, see compiler/support/philox.h.

#include "compiler/support/philox.h"
#include "runtime/kernels/cpu/prepare.h"

#include <algorithm>

namespace zerocc {
namespace {

struct DropoutState {
  double rate = 0;
  int64_t id = 0;
};

void runDropout(const KernelCall &call) {
  const auto &state = stateOf<DropoutState>(call);
  const DropoutMask mask(pointer<const int64_t>(call.inputs[1]), state.rate, state.id);
  const auto scale = static_cast<float>(1 / (1 - state.rate));
  const auto *x = pointer<const float>(call.inputs[0]);
  auto *y = pointer<float>(call.results[0]);
  const int64_t elements = call.results[0].elements();
  for (int64_t i = 0; i < elements; i += 4) {
    const std::array<bool, 4> keeps = mask.keeps(i / 4);
    for (int64_t j = i; j < std::min(i + 4, elements); ++j)
      y[j] = keeps[j - i] ? x[j] * scale : 0.0f;
  }
}

void runKeepMask(const KernelCall &call) {
  const auto &state = stateOf<DropoutState>(call);
  const DropoutMask mask(pointer<const int64_t>(call.inputs[0]), state.rate, state.id);
  auto *y = pointer<uint8_t>(call.results[0]);
  const int64_t elements = call.results[0].elements();
  for (int64_t i = 0; i < elements; i += 4) {
    const std::array<bool, 4> keeps = mask.keeps(i / 4);
    for (int64_t j = i; j < std::min(i + 4, elements); ++j)
      y[j] = keeps[j - i];
  }
}

Status prepareDropout(KernelCall &call) {
  const bool isMask = call.op == OpKind::KeepMask;
  ZEROCC_TRY(expectCounts(call, isMask ? 1 : 2, 1));
  ZEROCC_TRY(expectContiguous(call));
  const TensorView &random = call.inputs.back(), &result = call.results[0];
  if (random.dtype != DType::i64 || random.elements() != 3)
    return refuse(call, "random is " + describe(random) + ", it must be i64[3]");
  if (isMask ? result.dtype != DType::boolean : result.dtype != DType::f32 || call.inputs[0].dtype != DType::f32)
    return refuse(call, "no kernel for " + describe(result));
  if (!isMask && !sameDims(call.inputs[0], result))
    return refuse(call, "the result is " + describe(result) + ": other dims");
  setState(call, DropoutState{call.attributes.getFloat("rate"), call.attributes.getInt("id")});
  call.run = isMask ? runKeepMask : runDropout;
  return success();
}

} // namespace

extern const CpuKernel dropoutKernels = {prepareDropout};

} // namespace zerocc
