// layer_norm and its gradients, along rows. Statistics are formed in f64; `mean` and `rstd` are kept in f32
// for the backward pass.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/kernels/cpu/layer_norm.cpp"
#include "hwy/foreach_target.h"

#include "hwy/highway.h"

#include "runtime/kernels/cpu/prepare.h"
#include "runtime/kernels/cpu/rows-inl.h"
#include "runtime/kernels/cpu/targets.h"

#include <algorithm>
#include <cmath>

#ifndef ZEROCC_LAYER_NORM_ONCE
#define ZEROCC_LAYER_NORM_ONCE
namespace zerocc {
struct LayerNormState {
  Rows x, y; // y: the other tensor of x's shape, result or dy
  Rows dx;
  double eps = 1e-5;
};
} // namespace zerocc
#endif

HWY_BEFORE_NAMESPACE();
namespace zerocc {
namespace HWY_NAMESPACE {
namespace {

struct SquaredDistance {
  double from;
  HWY_INLINE VD operator()(F64 d, VD x) const {
    const VD distance = hn::Sub(x, hn::Set(d, from));
    return hn::Mul(distance, distance);
  }
};

/// (x - mean) rstd scale (+ bias)
struct Normalize {
  float mean, rstd;
  HWY_INLINE VF operator()(F32 d, VF x, VF scale) const {
    return hn::Mul(hn::Mul(hn::Sub(x, hn::Set(d, mean)), hn::Set(d, rstd)), scale);
  }
  HWY_INLINE VF operator()(F32 d, VF x, VF scale, VF bias) const {
    return hn::Add((*this)(d, x, scale), bias);
  }
};

// layer_norm        mean = Σ x / D;  rstd = 1 / √(Σ (x - mean)² / D + eps);  y = (x - mean) rstd scale + bias
void runLayerNorm(const KernelCall &call) {
  const auto &state = stateOf<LayerNormState>(call);
  const float *scale = pointer<const float>(call.inputs[1]);
  const float *bias = call.inputs.size() > 2 ? pointer<const float>(call.inputs[2]) : nullptr;
  float *means = pointer<float>(call.results[1]), *rstds = pointer<float>(call.results[2]);
  const int64_t width = state.x.width;
  for (int64_t r = 0; r < state.x.count; ++r) {
    const float *x = pointer<const float>(call.inputs[0]) + r * state.x.stride;
    float *y = pointer<float>(call.results[0]) + r * state.y.stride;
    double mean = sumOfRow(x, width) / static_cast<double>(width);
    RowSum squares;
    const float *const row[1] = {x};
    squares.add(row, width, SquaredDistance{mean});
    means[r] = static_cast<float>(mean);
    rstds[r] = static_cast<float>(1 / std::sqrt(squares.total() / static_cast<double>(width) + state.eps));
    if (bias) {
      const float *const inputs[3] = {x, scale, bias};
      mapFloats(y, inputs, width, Normalize{means[r], rstds[r]});
    } else {
      const float *const inputs[2] = {x, scale};
      mapFloats(y, inputs, width, Normalize{means[r], rstds[r]});
    }
  }
}

/// g x̂ = dy scale (x - mean) rstd
struct ScaledNormal {
  double mean, rstd;
  HWY_INLINE VD operator()(F64 d, VD x, VD scale, VD dy) const {
    return hn::Mul(hn::Mul(dy, scale), hn::Mul(hn::Sub(x, hn::Set(d, mean)), hn::Set(d, rstd)));
  }
};
/// rstd (g - meanG - x̂ meanGx)
struct LayerNormSlope {
  float mean, rstd, meanG, meanGx;
  HWY_INLINE VF operator()(F32 d, VF x, VF scale, VF dy) const {
    const VF normal = hn::Mul(hn::Sub(x, hn::Set(d, mean)), hn::Set(d, rstd));
    const VF centered = hn::Sub(hn::Mul(dy, scale), hn::Set(d, meanG));
    return hn::Mul(hn::Set(d, rstd), hn::Sub(centered, hn::Mul(normal, hn::Set(d, meanGx))));
  }
};

// layer_norm_grad   x̂ = (x - mean) rstd;  g = dy scale;  dx = rstd (g - Σ g / D - x̂ Σ g x̂ / D)
void runLayerNormGrad(const KernelCall &call) {
  const auto &state = stateOf<LayerNormState>(call);
  const float *scale = pointer<const float>(call.inputs[1]);
  const float *means = pointer<const float>(call.inputs[2]), *rstds = pointer<const float>(call.inputs[3]);
  const int64_t width = state.x.width;
  for (int64_t r = 0; r < state.x.count; ++r) {
    const float *x = pointer<const float>(call.inputs[0]) + r * state.x.stride;
    const float *dy = pointer<const float>(call.inputs[4]) + r * state.y.stride;
    float *dx = pointer<float>(call.results[0]) + r * state.dx.stride;
    RowSum dot;
    const float *const inputs[3] = {x, scale, dy};
    dot.add(inputs, width, ScaledNormal{means[r], rstds[r]});
    auto meanG = static_cast<float>(dotOfRows(scale, dy, width) / static_cast<double>(width));
    auto meanGx = static_cast<float>(dot.total() / static_cast<double>(width));
    mapFloats(dx, inputs, width, LayerNormSlope{means[r], rstds[r], meanG, meanGx});
  }
}

// layer_norm_parameter_grad   dscale = Σ_rows dy x̂;  dbias = Σ_rows dy
// A tile of columns at a time, rows added in order.
// Column sums in f64, row after row: the workspace holds those of dscale, then those of dbias.
void runLayerNormParameterGrad(const KernelCall &call) {
  const auto &state = stateOf<LayerNormState>(call);
  const float *means = pointer<const float>(call.inputs[1]), *rstds = pointer<const float>(call.inputs[2]);
  const int64_t width = state.x.width;
  double *__restrict scaleSums = static_cast<double *>(call.workspace);
  double *__restrict biasSums = scaleSums + width;
  std::fill_n(scaleSums, 2 * width, 0.0);
  for (int64_t r = 0; r < state.x.count; ++r) {
    const float *x = pointer<const float>(call.inputs[0]) + r * state.x.stride;
    const float *dy = pointer<const float>(call.inputs[3]) + r * state.y.stride;
    const float mean = means[r], rstd = rstds[r];
#pragma GCC ivdep
    for (int64_t c = 0; c < width; ++c) {
      scaleSums[c] += static_cast<double>(dy[c] * ((x[c] - mean) * rstd));
      biasSums[c] += static_cast<double>(dy[c]);
    }
  }
  float *dscale = pointer<float>(call.results[0]), *dbias = pointer<float>(call.results[1]);
  for (int64_t c = 0; c < width; ++c) {
    dscale[c] = static_cast<float>(scaleSums[c]);
    dbias[c] = static_cast<float>(biasSums[c]);
  }
}

} // namespace
} // namespace HWY_NAMESPACE
} // namespace zerocc
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zerocc {
HWY_EXPORT(runLayerNorm);
HWY_EXPORT(runLayerNormGrad);
HWY_EXPORT(runLayerNormParameterGrad);

/// Refuses unless `view` is `elements` floats one behind the other.
static Status expectFloats(const KernelCall &call, const TensorView &view, int64_t elements) {
  if (view.dtype != DType::f32 || !view.contiguous() || view.elements() != elements)
    return refuse(call, describe(view) + " should be " + std::to_string(elements) + " contiguous f32");
  return success();
}

// Operands: layer_norm x scale [bias]; layer_norm_grad x scale mean rstd dy;
// layer_norm_parameter_grad x mean rstd dy.
static Status prepareLayerNorm(KernelCall &call) {
  bool isForward = call.op == OpKind::LayerNorm, isInput = call.op == OpKind::LayerNormGrad;
  size_t inputs = isForward ? (call.inputs.size() == 3 ? 3 : 2) : isInput ? 5 : 4;
  ZEROCC_TRY(expectCounts(call, inputs, isForward ? 3 : isInput ? 1 : 2));
  const TensorView &other = isForward ? call.results[0] : call.inputs.back();
  if (!sameDims(call.inputs[0], other))
    return refuse(call, describe(other) + ": other dims than x");

  LayerNormState state;
  state.eps = call.attributes.getFloat("eps", 1e-5);
  ZEROCC_ASSIGN(state.x, floatRows(call, call.inputs[0]));
  ZEROCC_ASSIGN(state.y, floatRows(call, other));
  int64_t rows = state.x.count, width = state.x.width;
  chooseTarget();
  if (isForward) {
    for (size_t i = 1; i < call.inputs.size(); ++i)
      ZEROCC_TRY(expectFloats(call, call.inputs[i], width));
    ZEROCC_TRY(expectFloats(call, call.results[1], rows));
    ZEROCC_TRY(expectFloats(call, call.results[2], rows));
    call.run = HWY_DYNAMIC_DISPATCH(runLayerNorm);
  } else if (isInput) {
    ZEROCC_TRY(expectFloats(call, call.inputs[1], width));
    ZEROCC_TRY(expectFloats(call, call.inputs[2], rows));
    ZEROCC_TRY(expectFloats(call, call.inputs[3], rows));
    ZEROCC_ASSIGN(state.dx, floatRows(call, call.results[0]));
    call.run = HWY_DYNAMIC_DISPATCH(runLayerNormGrad);
  } else {
    ZEROCC_TRY(expectFloats(call, call.inputs[1], rows));
    ZEROCC_TRY(expectFloats(call, call.inputs[2], rows));
    ZEROCC_TRY(expectFloats(call, call.results[0], width));
    ZEROCC_TRY(expectFloats(call, call.results[1], width));
    if (call.workspaceBytes < 2 * width * static_cast<int64_t>(sizeof(double)))
      return refuse(call, "the plan gives it " + std::to_string(call.workspaceBytes) + " bytes of workspace, it needs " +
                              std::to_string(2 * width * static_cast<int64_t>(sizeof(double))));
    call.run = HWY_DYNAMIC_DISPATCH(runLayerNormParameterGrad);
  }
  setState(call, state);
  return success();
}

extern const CpuKernel layerNormKernels = {prepareLayerNorm};

} // namespace zerocc
#endif
