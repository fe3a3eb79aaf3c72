// adamw, sgd, onnx_adam, adagrad and their kinds (runtime/plan/optimizers.h): in place, over the members of a
// bucket within what all operands hold: the rank's part, or the whole bucket when parameters, gradients and
// states are whole. Padding is not touched. Nothing is written when the step is skipped.
//
// Formulas and order of operations are torch's (adamw, adam, sgd, rmsprop), Lion's paper's and ONNX's (the
// others), element by element in f32, scalars rounded from f64 once. Every operation is rounded by IEEE
// rules, so a vector lane and a tail give the same bits.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/kernels/cpu/optimizer.cpp"
#include "hwy/foreach_target.h"

#include "hwy/highway.h"

#include "runtime/kernels/cpu/bucket_walk.h"
#include "runtime/kernels/cpu/prepare.h"
#include "runtime/kernels/cpu/targets.h"
#include "runtime/plan/optimizers.h"
#include "runtime/plan/scalars.h"

#include <cmath>

#ifndef ZEROCC_OPTIMIZER_ONCE
#define ZEROCC_OPTIMIZER_ONCE
namespace zerocc {
struct OptimizerState {
  Stretch updated;
  int64_t parameterFirst = 0, gradientFirst = 0,
          stateFirst = 0; // bucket element that a view's first element is
};
} // namespace zerocc
#endif

HWY_BEFORE_NAMESPACE();
namespace zerocc {
namespace HWY_NAMESPACE {
namespace {

/// What a parameter group adds to the scalar block.
struct GroupRates {
  double learningRate, weightDecay;
  GroupRates(const double *scalars, int group)
      : learningRate(scalars[kScalarLr] * scalars[kScalarGroups + 2 * group + 1]),
        weightDecay(scalars[kScalarGroups + 2 * group]) {}
};

/// Pointers at the first element of a member range.
struct Stretched {
  int64_t n;
  float *p;
  const float *g;
  float *m, *v; // states that the optimizer keeps
};

/// body(stretch, rates) for each member range; nothing in a skipped step.
template <typename F> void forMembers(const KernelCall &call, F body) {
  const auto &state = stateOf<OptimizerState>(call);
  const double *scalars = pointer<const double>(call.inputs.back());
  if (scalars[kScalarSkip] != 0)
    return;
  forRanges(*call.bucket, state.updated, [&](int64_t begin, int64_t end, const MemberRange &range) {
    auto kept = [&](size_t k) {
      return k < call.results.size() ? pointer<float>(call.results[k]) + (begin - state.stateFirst) : nullptr;
    };
    body(Stretched{end - begin, pointer<float>(call.results[0]) + (begin - state.parameterFirst),
                   pointer<const float>(call.inputs[1]) + (begin - state.gradientFirst), kept(1), kept(2)},
         GroupRates(scalars, range.group));
  });
}

// p *= 1 - lr wd;  m += (1 - β1) (g - m);  v = β2 v + (1 - β2) g²;  p -= lr / (1 - β1^t) m / (√v / √(1 -
// β2^t) + eps)
void runAdamW(const KernelCall &call) {
  const auto &state = stateOf<OptimizerState>(call);
  const double *scalars = pointer<const double>(call.inputs[4]);
  if (scalars[kScalarSkip] != 0)
    return;
  const auto factor = static_cast<float>(scalars[kScalarFactor]);
  const auto blend1 = static_cast<float>(1 - scalars[kScalarBeta1]);
  const auto beta2 = static_cast<float>(scalars[kScalarBeta2]);
  const auto blend2 = static_cast<float>(1 - scalars[kScalarBeta2]);
  const auto rootCorrection2 = static_cast<float>(std::sqrt(scalars[kScalarCorrection2]));
  const auto eps = static_cast<float>(scalars[kScalarEps]);
  forRanges(*call.bucket, state.updated, [&](int64_t begin, int64_t end, const MemberRange &range) {
    const GroupRates rates(scalars, range.group);
    const auto keep = static_cast<float>(1 - rates.learningRate * rates.weightDecay);
    const auto minusStep = static_cast<float>(-rates.learningRate / scalars[kScalarCorrection1]);
    float *p = pointer<float>(call.results[0]) + (begin - state.parameterFirst);
    const float *g = pointer<const float>(call.inputs[1]) + (begin - state.gradientFirst);
    float *m = pointer<float>(call.results[1]) + (begin - state.stateFirst);
    float *v = pointer<float>(call.results[2]) + (begin - state.stateFirst);
    const int64_t n = end - begin;
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) {
      const float gradient = g[i] * factor;
      const float decayed = p[i] * keep;
      const float first = m[i] + blend1 * (gradient - m[i]);
      const float second = v[i] * beta2 + blend2 * gradient * gradient;
      const float denominator = std::sqrt(second) / rootCorrection2 + eps;
      p[i] = decayed + minusStep * first / denominator;
      m[i] = first;
      v[i] = second;
    }
  });
}

// g += wd p;  m += (1 - β1) (g - m);  v = β2 v + (1 - β2) g²;  p -= lr / (1 - β1^t) m / (√v / √(1 - β2^t) +
// eps)
void runAdam(const KernelCall &call) {
  const double *scalars = pointer<const double>(call.inputs[4]);
  const auto factor = static_cast<float>(scalars[kScalarFactor]);
  const auto blend1 = static_cast<float>(1 - scalars[kScalarBeta1]);
  const auto beta2 = static_cast<float>(scalars[kScalarBeta2]);
  const auto blend2 = static_cast<float>(1 - scalars[kScalarBeta2]);
  const auto rootCorrection2 = static_cast<float>(std::sqrt(scalars[kScalarCorrection2]));
  const auto eps = static_cast<float>(scalars[kScalarEps]);
  const double correction1 = scalars[kScalarCorrection1];
  forMembers(call, [=](const Stretched &at, const GroupRates &rates) {
    const auto decay = static_cast<float>(rates.weightDecay);
    const auto minusStep = static_cast<float>(-rates.learningRate / correction1);
    auto [n, p, g, m, v] = at;
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) {
      const float gradient = g[i] * factor + decay * p[i];
      const float first = m[i] + blend1 * (gradient - m[i]);
      const float second = v[i] * beta2 + blend2 * gradient * gradient;
      const float denominator = std::sqrt(second) / rootCorrection2 + eps;
      p[i] = p[i] + minusStep * first / denominator;
      m[i] = first;
      v[i] = second;
    }
  });
}

// p *= 1 - lr wd;  p -= lr sign(β1 m + (1 - β1) g);  m = β2 m + (1 - β2) g
void runLion(const KernelCall &call) {
  const double *scalars = pointer<const double>(call.inputs[3]);
  const auto factor = static_cast<float>(scalars[kScalarFactor]);
  const auto beta1 = static_cast<float>(scalars[kScalarBeta1]);
  const auto blend1 = static_cast<float>(1 - scalars[kScalarBeta1]);
  const auto beta2 = static_cast<float>(scalars[kScalarBeta2]);
  const auto blend2 = static_cast<float>(1 - scalars[kScalarBeta2]);
  forMembers(call, [=](const Stretched &at, const GroupRates &rates) {
    const auto keep = static_cast<float>(1 - rates.learningRate * rates.weightDecay);
    const auto rate = static_cast<float>(rates.learningRate);
    auto [n, p, g, m, unused] = at;
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) {
      const float gradient = g[i] * factor;
      const float mixed = m[i] * beta1 + gradient * blend1;
      const float step = mixed > 0 ? rate : mixed < 0 ? -rate : 0.0F;
      p[i] = p[i] * keep - step;
      m[i] = m[i] * beta2 + gradient * blend2;
    }
  });
}

// g += wd p;  s = β2 s + (1 - β2) g²;  p -= lr g / (√s + eps)      (torch calls β2 alpha)
void runRmsprop(const KernelCall &call) {
  const double *scalars = pointer<const double>(call.inputs[3]);
  const auto factor = static_cast<float>(scalars[kScalarFactor]);
  const auto beta2 = static_cast<float>(scalars[kScalarBeta2]);
  const auto blend2 = static_cast<float>(1 - scalars[kScalarBeta2]);
  const auto eps = static_cast<float>(scalars[kScalarEps]);
  forMembers(call, [=](const Stretched &at, const GroupRates &rates) {
    const auto decay = static_cast<float>(rates.weightDecay);
    const auto minusRate = static_cast<float>(-rates.learningRate);
    auto [n, p, g, s, unused] = at;
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) {
      const float gradient = g[i] * factor + decay * p[i];
      const float mean = s[i] * beta2 + blend2 * gradient * gradient;
      p[i] = p[i] + minusRate * gradient / (std::sqrt(mean) + eps);
      s[i] = mean;
    }
  });
}

/// T of this update, as ONNX counts.
double countOf(const double *scalars) { return scalars[kScalarFirstCount] + scalars[kScalarUpdates] - 1; }

// g += wd p;  m = β1 m + (1 - β1) g;  v = β2 v + (1 - β2) g²;  p -= R' m / (√v + eps);  p *= 1 - post
// R' = T > 0 ? lr √(1 - β2^T) / (1 - β1^T) : lr
void runOnnxAdam(const KernelCall &call) {
  const auto &state = stateOf<OptimizerState>(call);
  const double *scalars = pointer<const double>(call.inputs[4]);
  if (scalars[kScalarSkip] != 0)
    return;
  const double beta1Exact = scalars[kScalarBeta1], beta2Exact = scalars[kScalarBeta2],
               count = countOf(scalars);
  const double correction =
      count > 0 ? std::sqrt(1 - std::pow(beta2Exact, count)) / (1 - std::pow(beta1Exact, count)) : 1;
  const auto factor = static_cast<float>(scalars[kScalarFactor]);
  const auto beta1 = static_cast<float>(beta1Exact), blend1 = static_cast<float>(1 - beta1Exact);
  const auto beta2 = static_cast<float>(beta2Exact), blend2 = static_cast<float>(1 - beta2Exact);
  const auto eps = static_cast<float>(scalars[kScalarEps]);
  const auto keep = static_cast<float>(1 - scalars[kScalarOwn]);
  forRanges(*call.bucket, state.updated, [&](int64_t begin, int64_t end, const MemberRange &range) {
    const GroupRates rates(scalars, range.group);
    const auto decay = static_cast<float>(rates.weightDecay);
    const auto rate = static_cast<float>(rates.learningRate * correction);
    float *p = pointer<float>(call.results[0]) + (begin - state.parameterFirst);
    const float *g = pointer<const float>(call.inputs[1]) + (begin - state.gradientFirst);
    float *m = pointer<float>(call.results[1]) + (begin - state.stateFirst);
    float *v = pointer<float>(call.results[2]) + (begin - state.stateFirst);
    const int64_t n = end - begin;
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) {
      const float gradient = g[i] * factor + decay * p[i];
      const float first = m[i] * beta1 + blend1 * gradient;
      const float second = v[i] * beta2 + blend2 * (gradient * gradient);
      p[i] = (p[i] - rate * first / (std::sqrt(second) + eps)) * keep;
      m[i] = first;
      v[i] = second;
    }
  });
}

// g += wd p;  h += g²;  p -= lr / (1 + T decay) g / (√h + eps)
void runAdagrad(const KernelCall &call) {
  const auto &state = stateOf<OptimizerState>(call);
  const double *scalars = pointer<const double>(call.inputs[3]);
  if (scalars[kScalarSkip] != 0)
    return;
  const double slower = 1 + countOf(scalars) * scalars[kScalarOwn];
  const auto factor = static_cast<float>(scalars[kScalarFactor]);
  const auto eps = static_cast<float>(scalars[kScalarEps]);
  forRanges(*call.bucket, state.updated, [&](int64_t begin, int64_t end, const MemberRange &range) {
    const GroupRates rates(scalars, range.group);
    const auto decay = static_cast<float>(rates.weightDecay);
    const auto rate = static_cast<float>(rates.learningRate / slower);
    float *p = pointer<float>(call.results[0]) + (begin - state.parameterFirst);
    const float *g = pointer<const float>(call.inputs[1]) + (begin - state.gradientFirst);
    float *h = pointer<float>(call.results[1]) + (begin - state.stateFirst);
    const int64_t n = end - begin;
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) {
      const float gradient = g[i] * factor + decay * p[i];
      const float sum = h[i] + gradient * gradient;
      p[i] = p[i] - rate * gradient / (std::sqrt(sum) + eps);
      h[i] = sum;
    }
  });
}

// g += wd p;  buf = momentum buf + (1 - dampening) g (dampened where T > 0; g alone without a buffer);  p -=
// lr (nesterov ? g + momentum buf : buf)
void runSgd(const KernelCall &call) {
  const auto &state = stateOf<OptimizerState>(call);
  const double *scalars = pointer<const double>(call.inputs.back());
  if (scalars[kScalarSkip] != 0)
    return;
  const bool hasMomentum = call.inputs.size() == 4;
  const bool nesterov = scalars[kScalarNesterov] != 0;
  const auto factor = static_cast<float>(scalars[kScalarFactor]);
  const auto momentum = static_cast<float>(scalars[kScalarMomentum]);
  const auto blend = static_cast<float>(countOf(scalars) > 0 ? 1 - scalars[kScalarOwn] : 1);
  forRanges(*call.bucket, state.updated, [&](int64_t begin, int64_t end, const MemberRange &range) {
    const GroupRates rates(scalars, range.group);
    const auto decay = static_cast<float>(rates.weightDecay);
    const auto minusRate = static_cast<float>(-rates.learningRate);
    float *p = pointer<float>(call.results[0]) + (begin - state.parameterFirst);
    const float *g = pointer<const float>(call.inputs[1]) + (begin - state.gradientFirst);
    const int64_t n = end - begin;
    if (!hasMomentum) {
#pragma GCC ivdep
      for (int64_t i = 0; i < n; ++i)
        p[i] = p[i] + minusRate * (g[i] * factor + decay * p[i]);
      return;
    }
    float *buffer = pointer<float>(call.results[1]) + (begin - state.stateFirst);
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) {
      const float gradient = g[i] * factor + decay * p[i];
      const float moved = buffer[i] * momentum + blend * gradient;
      const float direction = nesterov ? gradient + momentum * moved : moved;
      p[i] = p[i] + minusRate * direction;
      buffer[i] = moved;
    }
  });
}

} // namespace
} // namespace HWY_NAMESPACE
} // namespace zerocc
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zerocc {
HWY_EXPORT(runAdamW);
HWY_EXPORT(runSgd);
HWY_EXPORT(runOnnxAdam);
HWY_EXPORT(runAdagrad);
HWY_EXPORT(runAdam);
HWY_EXPORT(runLion);
HWY_EXPORT(runRmsprop);

/// Operands: param grad states… scalars; results lie on param and the states.
static Status prepareOptimizer(KernelCall &call) {
  const Optimizer *optimizer = optimizerOf(call.op, call.attributes.getString("kind"));
  if (!optimizer)
    return refuse(call, "it has no kind \"" + call.attributes.getString("kind") + "\"");
  size_t states = call.inputs.size() == 3 ? optimizer->leastStates : optimizer->mostStates;
  ZEROCC_TRY(expectCounts(call, 3 + states, 1 + states));
  for (size_t i = 0; i < call.results.size(); ++i)
    if (call.results[i].data != call.inputs[inPlaceOperand(call.op, static_cast<int>(i))].data)
      return refuse(call, "result " + std::to_string(i) + " must lie on its operand");
  const TensorView &scalars = call.inputs.back();
  if (scalars.dtype != DType::f64 || scalars.elements() != kScalars || !scalars.contiguous())
    return refuse(call, "scalars must be f64[" + std::to_string(kScalars) + "], is " + describe(scalars));

  OptimizerState state;
  state.updated = {0, INT64_MAX};
  int64_t firsts[4] = {};
  for (size_t i = 0; i < 2 + states; ++i) {
    ZEROCC_ASSIGN(Stretch held, expectHeld(call, call.inputs[i], DType::f32));
    firsts[i] = held.begin;
    state.updated = {std::max(state.updated.begin, held.begin), std::min(state.updated.end, held.end)};
  }
  if (states == 2 && firsts[2] != firsts[3])
    return refuse(call, "the states must have one size");
  state.parameterFirst = firsts[0];
  state.gradientFirst = firsts[1];
  state.stateFirst = firsts[2];
  for (const MemberRange &range : call.bucket->ranges)
    if (range.group < 0 || range.group >= kMaxGroups)
      return refuse(call, "parameter group " + std::to_string(range.group) + " of at most " +
                              std::to_string(kMaxGroups));
  setState(call, state);
  chooseTarget();
  if (optimizer->name == "adam")
    call.run = HWY_DYNAMIC_DISPATCH(runAdam);
  else if (optimizer->name == "lion")
    call.run = HWY_DYNAMIC_DISPATCH(runLion);
  else if (optimizer->name == "rmsprop")
    call.run = HWY_DYNAMIC_DISPATCH(runRmsprop);
  else if (call.op == OpKind::AdamW)
    call.run = HWY_DYNAMIC_DISPATCH(runAdamW);
  else if (call.op == OpKind::OnnxAdam)
    call.run = HWY_DYNAMIC_DISPATCH(runOnnxAdam);
  else if (call.op == OpKind::Adagrad)
    call.run = HWY_DYNAMIC_DISPATCH(runAdagrad);
  else
    call.run = HWY_DYNAMIC_DISPATCH(runSgd);
  return success();
}

extern const CpuKernel optimizerKernels = {prepareOptimizer};

} // namespace zerocc
#endif
