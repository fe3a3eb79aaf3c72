// cross_entropy and its gradient. The runtime checks the labels it feeds; one outside all the same makes the
// loss NaN (the step is then skipped) and reads nothing.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/kernels/cpu/cross_entropy.cpp"
#include "hwy/foreach_target.h"

#include "hwy/highway.h"

#include "runtime/kernels/cpu/prepare.h"
#include "runtime/kernels/cpu/rows-inl.h"
#include "runtime/kernels/cpu/targets.h"

#include <algorithm>
#include <cmath>

#ifndef ZEROCC_CROSS_ENTROPY_ONCE
#define ZEROCC_CROSS_ENTROPY_ONCE
namespace zerocc {
struct CrossEntropyState {
  Rows logits, gradient;
  int64_t ignoreIndex = -100;
  double smoothing = 0;
};
} // namespace zerocc
#endif

HWY_BEFORE_NAMESPACE();
namespace zerocc {
namespace HWY_NAMESPACE {
namespace {

int64_t labelOf(const TensorView &labels, int64_t row) {
  return labels.dtype == DType::i32 ? pointer<const int32_t>(labels)[row]
                                    : pointer<const int64_t>(labels)[row];
}

// lse_r = ln Σ_c e^x_rc  (0 for ignored rows);  count = valid rows
// loss  = Σ_valid (1 - e) (lse_r - x_r,label) + e (lse_r - Σ_c x_rc / C)
void runCrossEntropy(const KernelCall &call) {
  const auto &state = stateOf<CrossEntropyState>(call);
  const int64_t width = state.logits.width;
  float *lses = pointer<float>(call.results[2]);
  double loss = 0, count = 0;
  for (int64_t r = 0; r < state.logits.count; ++r) {
    const float *x = pointer<const float>(call.inputs[0]) + r * state.logits.stride;
    int64_t label = labelOf(call.inputs[1], r);
    lses[r] = 0;
    if (label == state.ignoreIndex)
      continue;
    float greatest = greatestOfRow(x, width);
    double lse = greatest + std::log(sumOfExponentials(nullptr, x, greatest, width));
    lses[r] = static_cast<float>(lse);
    bool inRange = label >= 0 && label < width;
    double likelihood = inRange ? lse - x[label] : std::numeric_limits<double>::quiet_NaN();
    if (state.smoothing != 0)
      likelihood = (1 - state.smoothing) * likelihood +
                   state.smoothing * (lse - sumOfRow(x, width) / static_cast<double>(width));
    loss += likelihood;
    count += 1;
  }
  *pointer<double>(call.results[0]) = loss;
  *pointer<double>(call.results[1]) = count;
}

/// seed (e^(x - lse) - rest), rest = e/C
struct CrossEntropySlope {
  float lse, rest, seed;
  HWY_INLINE VF operator()(F32 d, VF x) const {
    const VF probability = exponential(d, hn::Sub(x, hn::Set(d, lse)));
    return hn::Mul(hn::Set(d, seed), hn::Sub(probability, hn::Set(d, rest)));
  }
};

// dx_rc = seed (e^(x_rc - lse_r) - (1 - e) [c = label_r] - e/C);  0 for ignored rows
void runCrossEntropyGrad(const KernelCall &call) {
  const auto &state = stateOf<CrossEntropyState>(call);
  const int64_t width = state.logits.width;
  const float *lses = pointer<const float>(call.inputs[2]);
  const float seed = *pointer<const float>(call.inputs[3]);
  const auto rest = static_cast<float>(state.smoothing / static_cast<double>(width));
  const auto hit = static_cast<float>(1 - state.smoothing);
  for (int64_t r = 0; r < state.logits.count; ++r) {
    const float *x = pointer<const float>(call.inputs[0]) + r * state.logits.stride;
    float *dx = pointer<float>(call.results[0]) + r * state.gradient.stride;
    int64_t label = labelOf(call.inputs[1], r);
    if (label == state.ignoreIndex) {
      std::fill_n(dx, width, 0.0f);
      continue;
    }
    const float *const inputs[1] = {x};
    mapFloats(dx, inputs, width, CrossEntropySlope{lses[r], rest, seed});
    if (label >= 0 && label < width)
      dx[label] -= seed * hit;
  }
}

} // namespace
} // namespace HWY_NAMESPACE
} // namespace zerocc
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zerocc {
HWY_EXPORT(runCrossEntropy);
HWY_EXPORT(runCrossEntropyGrad);

static bool isScalarOf(const TensorView &view, DType dtype) {
  return view.dtype == dtype && view.elements() == 1;
}

// Operands: cross_entropy logits labels -> loss count lse; cross_entropy_grad logits labels lse seed ->
// dlogits.
static Status prepareCrossEntropy(KernelCall &call) {
  bool isForward = call.op == OpKind::CrossEntropy;
  ZEROCC_TRY(expectCounts(call, isForward ? 2 : 4, isForward ? 3 : 1));
  CrossEntropyState state;
  state.ignoreIndex = call.attributes.getInt("ignore_index", -100);
  state.smoothing = call.attributes.getFloat("label_smoothing", 0);
  ZEROCC_ASSIGN(state.logits, floatRows(call, call.inputs[0]));
  const TensorView &labels = call.inputs[1], &lse = isForward ? call.results[2] : call.inputs[2];
  if ((labels.dtype != DType::i64 && labels.dtype != DType::i32) || !labels.contiguous() ||
      labels.elements() != state.logits.count)
    return refuse(call, "labels must be one contiguous i64 or i32 per row");
  if (lse.dtype != DType::f32 || !lse.contiguous() || lse.elements() != state.logits.count)
    return refuse(call, "lse must be one contiguous f32 per row, is " + describe(lse));
  chooseTarget();
  if (isForward) {
    if (!isScalarOf(call.results[0], DType::f64) || !isScalarOf(call.results[1], DType::f64))
      return refuse(call, "loss and count must be f64[]");
    call.run = HWY_DYNAMIC_DISPATCH(runCrossEntropy);
  } else {
    if (!isScalarOf(call.inputs[3], DType::f32))
      return refuse(call, "seed must be f32[]");
    if (!sameDims(call.inputs[0], call.results[0]))
      return refuse(call, "the result is " + describe(call.results[0]) + ": other dims");
    ZEROCC_ASSIGN(state.gradient, floatRows(call, call.results[0]));
    call.run = HWY_DYNAMIC_DISPATCH(runCrossEntropyGrad);
  }
  setState(call, state);
  return success();
}

extern const CpuKernel crossEntropyKernels = {prepareCrossEntropy};

} // namespace zerocc
#endif
