// softmax, log_softmax and their gradients, along rows.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/kernels/cpu/softmax.cpp"
#include "hwy/foreach_target.h"

#include "hwy/highway.h"

#include "runtime/kernels/cpu/prepare.h"
#include "runtime/kernels/cpu/rows-inl.h"
#include "runtime/kernels/cpu/targets.h"

#include <algorithm>
#include <cmath>

#ifndef ZEROCC_SOFTMAX_ONCE
#define ZEROCC_SOFTMAX_ONCE
namespace zerocc {
struct SoftmaxState {
  Rows in[2], out;
  bool safe = false;
};
} // namespace zerocc
#endif

HWY_BEFORE_NAMESPACE();
namespace zerocc {
namespace HWY_NAMESPACE {
namespace {

/// Calls body(y, a, b, width) per row; b is null for one operand.
template <typename F> HWY_INLINE void forRows(const KernelCall &call, F body) {
  const auto &state = stateOf<SoftmaxState>(call);
  bool hasTwo = call.inputs.size() > 1;
  for (int64_t r = 0; r < state.out.count; ++r)
    body(pointer<float>(call.results[0]) + r * state.out.stride,
         pointer<const float>(call.inputs[0]) + r * state.in[0].stride,
         hasTwo ? pointer<const float>(call.inputs[1]) + r * state.in[1].stride : nullptr, state.out.width);
}

bool hasNan(const float *x, int64_t n) {
  return std::any_of(x, x + n, [](float v) { return v != v; });
}

struct Scale {
  float factor;
  HWY_INLINE VF operator()(F32 d, VF x) const { return hn::Mul(x, hn::Set(d, factor)); }
};
struct SubtractTwice {
  float first, second;
  HWY_INLINE VF operator()(F32 d, VF x) const {
    return hn::Sub(hn::Sub(x, hn::Set(d, first)), hn::Set(d, second));
  }
};
struct SoftmaxSlope {
  float dot;
  HWY_INLINE VF operator()(F32 d, VF y, VF dy) const { return hn::Mul(y, hn::Sub(dy, hn::Set(d, dot))); }
};
struct LogSoftmaxSlope {
  float sum;
  HWY_INLINE VF operator()(F32 d, VF y, VF dy) const {
    return hn::Sub(dy, hn::Mul(exponential(d, y), hn::Set(d, sum)));
  }
};

// softmax           y_i = e^(x_i - max) / Σ_j e^(x_j - max); a row whose max is -inf: zeros when safe, else
// NaN
void runSoftmax(const KernelCall &call) {
  bool safe = stateOf<SoftmaxState>(call).safe;
  forRows(call, [&](float *y, const float *x, const float *, int64_t n) HWY_ATTR {
    float greatest = greatestOfRow(x, n);
    if (safe && greatest == -std::numeric_limits<float>::infinity() && !hasNan(x, n)) {
      std::fill_n(y, n, 0.0f);
      return;
    }
    double sum = sumOfExponentials(y, x, greatest, n);
    const float *const inputs[1] = {y};
    mapFloats(y, inputs, n, Scale{static_cast<float>(1 / sum)});
  });
}

// log_softmax       y_i = (x_i - max) - ln Σ_j e^(x_j - max)
void runLogSoftmax(const KernelCall &call) {
  forRows(call, [&](float *y, const float *x, const float *, int64_t n) HWY_ATTR {
    float greatest = greatestOfRow(x, n);
    double sum = sumOfExponentials(nullptr, x, greatest, n);
    const float *const inputs[1] = {x};
    mapFloats(y, inputs, n, SubtractTwice{greatest, static_cast<float>(std::log(sum))});
  });
}

// softmax_grad      dx = y (dy - Σ y dy)
void runSoftmaxGrad(const KernelCall &call) {
  forRows(call, [&](float *dx, const float *y, const float *dy, int64_t n) HWY_ATTR {
    const float *const inputs[2] = {y, dy};
    mapFloats(dx, inputs, n, SoftmaxSlope{static_cast<float>(dotOfRows(y, dy, n))});
  });
}

// log_softmax_grad  dx = dy - e^y Σ dy
void runLogSoftmaxGrad(const KernelCall &call) {
  forRows(call, [&](float *dx, const float *y, const float *dy, int64_t n) HWY_ATTR {
    const float *const inputs[2] = {y, dy};
    mapFloats(dx, inputs, n, LogSoftmaxSlope{static_cast<float>(sumOfRow(dy, n))});
  });
}

} // namespace
} // namespace HWY_NAMESPACE
} // namespace zerocc
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zerocc {
HWY_EXPORT(runSoftmax);
HWY_EXPORT(runSoftmaxGrad);
HWY_EXPORT(runLogSoftmax);
HWY_EXPORT(runLogSoftmaxGrad);

static void (*runOf(OpKind op))(const KernelCall &) {
  chooseTarget();
  switch (op) {
  case OpKind::Softmax:
    return HWY_DYNAMIC_DISPATCH(runSoftmax);
  case OpKind::SoftmaxGrad:
    return HWY_DYNAMIC_DISPATCH(runSoftmaxGrad);
  case OpKind::LogSoftmax:
    return HWY_DYNAMIC_DISPATCH(runLogSoftmax);
  default:
    return HWY_DYNAMIC_DISPATCH(runLogSoftmaxGrad);
  }
}

static Status prepareSoftmax(KernelCall &call) {
  bool isGradient = call.op == OpKind::SoftmaxGrad || call.op == OpKind::LogSoftmaxGrad;
  ZEROCC_TRY(expectCounts(call, isGradient ? 2 : 1, 1));
  SoftmaxState state;
  state.safe = call.attributes.getInt("safe") != 0;
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    ZEROCC_ASSIGN(state.in[i], floatRows(call, call.inputs[i]));
    if (!sameDims(call.inputs[i], call.results[0]))
      return refuse(call, "the result is " + describe(call.results[0]) + ": other dims");
  }
  ZEROCC_ASSIGN(state.out, floatRows(call, call.results[0]));
  setState(call, state);
  call.run = runOf(call.op);
  return success();
}

extern const CpuKernel softmaxKernels = {prepareSoftmax};

} // namespace zerocc
#endif
