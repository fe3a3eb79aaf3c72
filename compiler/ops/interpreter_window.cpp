// The plain interpreter: convolution and pooling. Every op is one walk over (output position, kernel
// position) pairs.

#include "compiler/ops/interpreter_call.h"
#include "compiler/ops/window.h"

#include <cmath>
#include <limits>

namespace zerocc {
namespace {

llvm::ArrayRef<int64_t> spatial(const TensorType &type) {
  return llvm::ArrayRef<int64_t>(type.dims).drop_front(2);
}

/// visit(output place, kernel place, input place), each flattened over the spatial axes, for every pair that
/// reads an element of the input (not the padding); output and kernel places ascend.
template <typename F>
void forPairs(const WindowAttributes &window, llvm::ArrayRef<int64_t> output, llvm::ArrayRef<int64_t> kernel,
              llvm::ArrayRef<int64_t> input, F visit) {
  const Dims none(output.size(), 0);
  const int64_t outputs = product(output), kernels = product(kernel);
  Dims o = none;
  for (int64_t outputPlace = 0; outputPlace < outputs; ++outputPlace) {
    Dims k = none;
    for (int64_t kernelPlace = 0; kernelPlace < kernels; ++kernelPlace) {
      int64_t inputPlace = 0;
      bool inside = true;
      for (size_t axis = 0; axis < output.size(); ++axis) {
        const int64_t at = window.read(axis, o[axis], k[axis]);
        inside = inside && at >= 0 && at < input[axis];
        inputPlace = inputPlace * input[axis] + at;
      }
      if (inside)
        visit(outputPlace, kernelPlace, inputPlace);
      for (size_t axis = kernel.size(); axis-- > 0 && ++k[axis] == kernel[axis];)
        k[axis] = 0;
    }
    for (size_t axis = output.size(); axis-- > 0 && ++o[axis] == output[axis];)
      o[axis] = 0;
  }
}

/// The places of x, w and y that one convolution ties together: visit(x index, w index, y index) per product.
template <typename F>
void forProducts(const Attributes &attributes, const TensorType &x, const TensorType &w, const TensorType &y,
                 F visit) {
  const WindowAttributes window(attributes);
  const int64_t xPlaces = product(spatial(x)), wPlaces = product(spatial(w)), yPlaces = product(spatial(y));
  const int64_t outputs = w.dims[0], perGroup = w.dims[1], outputsPerGroup = outputs / window.groups;
  for (int64_t n = 0; n < x.dims[0]; ++n)
    for (int64_t out = 0; out < outputs; ++out)
      for (int64_t in = 0; in < perGroup; ++in) {
        const int64_t channel = out / outputsPerGroup * perGroup + in;
        const int64_t xBase = (n * x.dims[1] + channel) * xPlaces, wBase = (out * perGroup + in) * wPlaces,
                      yBase = (n * outputs + out) * yPlaces;
        forPairs(window, spatial(y), spatial(w), spatial(x),
                 [&](int64_t o, int64_t k, int64_t i) { visit(xBase + i, wBase + k, yBase + o); });
      }
}

// conv              y[n,o,p] = Σ_{c,k} x[n, group·C + c, p·stride - low + k·dilation] w[o,c,k]
HostTensor evaluateConv(const Call &call) {
  HostTensor out = call.result();
  const HostTensor &x = call.in(0), &w = call.in(1);
  forProducts(call.attributes(), x.type, w.type, out.type,
              [&](int64_t i, int64_t k, int64_t o) { out.reals[o] += x.reals[i] * w.reals[k]; });
  return out;
}

// conv_data_grad    dx[…] = Σ dy w over the products that read x[…]
HostTensor evaluateConvDataGrad(const Call &call) {
  HostTensor out = call.result();
  const HostTensor &dy = call.in(0), &w = call.in(1);
  forProducts(call.attributes(), out.type, w.type, dy.type,
              [&](int64_t i, int64_t k, int64_t o) { out.reals[i] += dy.reals[o] * w.reals[k]; });
  return out;
}

// conv_weight_grad  dw[…] = Σ dy x over the products with w[…]
HostTensor evaluateConvWeightGrad(const Call &call) {
  HostTensor out = call.result();
  const HostTensor &x = call.in(0), &dy = call.in(1);
  forProducts(call.attributes(), x.type, out.type, dy.type,
              [&](int64_t i, int64_t k, int64_t o) { out.reals[k] += dy.reals[o] * x.reals[i]; });
  return out;
}

/// visit(plane of x, plane of y, output place, input place) over all planes [batch, channel].
template <typename F>
void forWindows(const Attributes &attributes, const TensorType &x, const TensorType &y, F visit) {
  const WindowAttributes window(attributes);
  const int64_t planes = x.dims[0] * x.dims[1], xPlaces = product(spatial(x)), yPlaces = product(spatial(y));
  for (int64_t plane = 0; plane < planes; ++plane)
    forPairs(window, spatial(y), window.kernel, spatial(x),
             [&](int64_t o, int64_t, int64_t i) { visit(plane * xPlaces, plane * yPlaces, o, i); });
}

/// For each window the place of its greatest element (the first of equals; NaN stands above all) within its
/// plane; -1 for a window that holds padding alone.
template <typename T>
std::vector<int64_t> greatest(const Attributes &attributes, const HostTensor &x, TensorType y) {
  std::vector<int64_t> places(y.elements(), -1);
  const std::vector<T> &from = lanes<T>(x);
  forWindows(attributes, x.type, y, [&](int64_t xPlane, int64_t yPlane, int64_t o, int64_t i) {
    int64_t &best = places[yPlane + o];
    if (best < 0) {
      best = i;
      return;
    }
    const T held = from[xPlane + best], candidate = from[xPlane + i];
    if (candidate > held || (candidate != candidate && held == held))
      best = i;
  });
  return places;
}

TensorType pooled(const Call &call) { // the type of y
  return {call.in(0).type.dtype,
          call.node.op == OpKind::MaxPoolGrad ? call.in(1).type.dims : call.resultType().dims};
}

// max_pool          y[p] = the greatest x in the window of p; a window of padding alone gives -inf or the
// least integer max_pool_index    where it lies max_pool_grad     dx = dy at the places of the greatest,
// summed
HostTensor evaluateMaxPool(const Call &call) {
  HostTensor out = call.result();
  const HostTensor &x = call.in(0);
  withLane(x.type.dtype, [&](auto lane) {
    using T = decltype(lane);
    const TensorType y = pooled(call);
    const std::vector<int64_t> places = greatest<T>(call.attributes(), x, y);
    const int64_t xPlaces = product(spatial(x.type)), yPlaces = product(spatial(y));
    for (int64_t at = 0; at < y.elements(); ++at) {
      const int64_t from = at / yPlaces * xPlaces + places[at];
      if (call.node.op == OpKind::MaxPoolIndex)
        out.integers[at] = places[at];
      else if (call.node.op == OpKind::MaxPoolGrad && places[at] >= 0)
        lanes<T>(out)[from] = plus(lanes<T>(out)[from], lanes<T>(call.in(1))[at]);
      else if (call.node.op == OpKind::MaxPool)
        lanes<T>(out)[at] = places[at] >= 0 ? lanes<T>(x)[from]
                            : std::is_floating_point_v<T>
                                ? static_cast<T>(-std::numeric_limits<double>::infinity())
                            : isUnsigned(x.type.dtype) ? T(0)
                                                       : T(-(int64_t(1) << (byteSize(x.type.dtype) * 8 - 1)));
    }
  });
  return out;
}

// sum_pool          y[p] = Σ x in the window of p
// sum_pool_grad     dx = Σ dy of the windows that hold it
HostTensor evaluateSumPool(const Call &call) {
  HostTensor out = call.result();
  const bool isGradient = call.node.op == OpKind::SumPoolGrad;
  withLane(out.type.dtype, [&](auto lane) {
    using T = decltype(lane);
    const std::vector<T> &from = lanes<T>(call.in(0));
    std::vector<T> &to = lanes<T>(out);
    forWindows(call.attributes(), isGradient ? out.type : call.in(0).type,
               isGradient ? call.in(0).type : out.type,
               [&](int64_t xPlane, int64_t yPlane, int64_t o, int64_t i) {
                 T &sum = isGradient ? to[xPlane + i] : to[yPlane + o];
                 sum = plus(sum, isGradient ? from[yPlane + o] : from[xPlane + i]);
               });
  });
  return out;
}

} // namespace

Expected<HostTensors> evaluateWindowOp(const Call &call) {
  switch (call.node.op) {
  case OpKind::Conv:
    return single(evaluateConv(call));
  case OpKind::ConvDataGrad:
    return single(evaluateConvDataGrad(call));
  case OpKind::ConvWeightGrad:
    return single(evaluateConvWeightGrad(call));
  case OpKind::SumPool:
  case OpKind::SumPoolGrad:
    return single(evaluateSumPool(call));
  default:
    return single(evaluateMaxPool(call));
  }
}

} // namespace zerocc
