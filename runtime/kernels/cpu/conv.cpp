// conv, conv_data_grad, conv_weight_grad: oneDNN on plain [batch, channels, spatial…] layouts. One spatial
// axis is two, the first of length 1.

#include "runtime/kernels/cpu/one_dnn.h"

#include <cstring>

namespace zerocc {
namespace {

using DnnlDims = dnnl::memory::dims;

/// The shapes of one convolution, x * w = y.
struct ConvShapes {
  DnnlDims x, w, y, strides, dilations, low, high;
};

DnnlDims dimsOf(const TensorView &view) {
  DnnlDims dims = {view.dims[0], view.dims[1]};
  if (view.rank == 3)
    dims.push_back(1);
  dims.insert(dims.end(), view.dims + 2, view.dims + view.rank);
  return dims;
}

/// The weights with the groups as an axis of their own, as oneDNN wants them.
DnnlDims grouped(const DnnlDims &w, int64_t groups) {
  if (groups == 1)
    return w;
  DnnlDims dims = {groups, w[0] / groups};
  dims.insert(dims.end(), w.begin() + 1, w.end());
  return dims;
}

DnnlDims perAxis(const KernelCall &call, const char *name, int64_t otherwise, int64_t offset = 0) {
  const std::vector<int64_t> list = call.attributes.getInts(name);
  DnnlDims entries;
  if (list.size() == 1)
    entries.push_back(otherwise);
  for (int64_t entry : list)
    entries.push_back(entry + offset);
  return entries;
}

ConvShapes shapesOf(const KernelCall &call, const TensorView &x, const TensorView &w, const TensorView &y) {
  const int64_t groups = call.attributes.getInt("groups", 1);
  ConvShapes shapes;
  shapes.x = dimsOf(x);
  shapes.w = grouped(dimsOf(w), groups);
  shapes.y = dimsOf(y);
  shapes.strides = perAxis(call, "strides", 1);
  shapes.dilations = perAxis(call, "dilations", 0, -1); // oneDNN counts what lies between two elements
  shapes.low = perAxis(call, "low", 0);
  shapes.high = perAxis(call, "high", 0);
  // What the stride leaves over at the end is no padding to oneDNN.
  for (size_t i = 0; i < shapes.strides.size(); ++i) {
    const int64_t kernel = shapes.w[shapes.w.size() - shapes.strides.size() + i];
    const int64_t reach = (kernel - 1) * (shapes.dilations[i] + 1) + 1;
    shapes.high[i] = (shapes.y[2 + i] - 1) * shapes.strides[i] + reach - shapes.x[2 + i] - shapes.low[i];
  }
  return shapes;
}

dnnl::convolution_forward::primitive_desc forwardDesc(const ConvShapes &s,
                                                      const dnnl::primitive_attr &attributes) {
  dnnl::convolution_forward::desc desc(dnnl::prop_kind::forward_training, dnnl::algorithm::convolution_direct,
                                       plainDesc(s.x), plainDesc(s.w), plainDesc(s.y), s.strides, s.dilations,
                                       s.low, s.high);
  return {desc, attributes, cpuEngine()};
}

Status makeForward(KernelCall &call, const ConvShapes &s, const dnnl::primitive_attr &attributes,
                   OneDnnState &state) {
  auto desc = forwardDesc(s, attributes);
  ZEROCC_TRY(chooseImplementation(call, desc, state));
  state.primitive = dnnl::convolution_forward(desc);
  state.bind(DNNL_ARG_SRC, plainDesc(s.x), call.inputs[0].data);
  state.bind(DNNL_ARG_WEIGHTS, plainDesc(s.w), call.inputs[1].data);
  state.bind(DNNL_ARG_DST, plainDesc(s.y), call.results[0].data);
  return success();
}

Status makeDataGrad(KernelCall &call, const ConvShapes &s, const dnnl::primitive_attr &attributes,
                    OneDnnState &state) {
  dnnl::convolution_backward_data::desc backward(dnnl::algorithm::convolution_direct, plainDesc(s.x),
                                                 plainDesc(s.w), plainDesc(s.y), s.strides, s.dilations,
                                                 s.low, s.high);
  dnnl::convolution_backward_data::primitive_desc desc(backward, attributes, cpuEngine(),
                                                       forwardDesc(s, attributes));
  ZEROCC_TRY(chooseImplementation(call, desc, state));
  state.primitive = dnnl::convolution_backward_data(desc);
  state.bind(DNNL_ARG_DIFF_DST, plainDesc(s.y), call.inputs[0].data);
  state.bind(DNNL_ARG_WEIGHTS, plainDesc(s.w), call.inputs[1].data);
  state.bind(DNNL_ARG_DIFF_SRC, plainDesc(s.x), call.results[0].data);
  return success();
}

Status makeWeightGrad(KernelCall &call, const ConvShapes &s, const dnnl::primitive_attr &attributes,
                      OneDnnState &state) {
  dnnl::convolution_backward_weights::desc backward(dnnl::algorithm::convolution_direct, plainDesc(s.x),
                                                    plainDesc(s.w), plainDesc(s.y), s.strides, s.dilations,
                                                    s.low, s.high);
  dnnl::convolution_backward_weights::primitive_desc desc(backward, attributes, cpuEngine(),
                                                          forwardDesc(s, attributes));
  ZEROCC_TRY(chooseImplementation(call, desc, state));
  state.primitive = dnnl::convolution_backward_weights(desc);
  state.bind(DNNL_ARG_SRC, plainDesc(s.x), call.inputs[0].data);
  state.bind(DNNL_ARG_DIFF_DST, plainDesc(s.y), call.inputs[1].data);
  state.bind(DNNL_ARG_DIFF_WEIGHTS, plainDesc(s.w), call.results[0].data);
  return success();
}

/// Sums over nothing.
void runZero(const KernelCall &call) {
  std::memset(call.results[0].data, 0, static_cast<size_t>(call.results[0].elements()) * sizeof(float));
}

Status prepareConv(KernelCall &call) {
  ZEROCC_TRY(expectCounts(call, 2, 1));
  ZEROCC_TRY(expectContiguous(call));
  for (const TensorView *view : {&call.inputs[0], &call.inputs[1], &call.results[0]}) {
    if (view->dtype != DType::f32)
      return refuse(call, describe(*view) + " should be f32");
    if (view->rank < 3 || view->rank > 5 || view->rank != call.results[0].rank)
      return refuse(call, describe(*view) + " should have one to three spatial axes");
  }
  if (call.inputs[0].elements() == 0 || call.inputs[1].elements() == 0 || call.results[0].elements() == 0) {
    call.run = runZero;
    return success();
  }
  stayOnThisThread();
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  OneDnnState state;
  try {
    switch (call.op) {
    case OpKind::Conv:
      ZEROCC_TRY(makeForward(call, shapesOf(call, call.inputs[0], call.inputs[1], call.results[0]),
                             attributes, state));
      break;
    case OpKind::ConvDataGrad:
      ZEROCC_TRY(makeDataGrad(call, shapesOf(call, call.results[0], call.inputs[1], call.inputs[0]),
                              attributes, state));
      break;
    default:
      ZEROCC_TRY(makeWeightGrad(call, shapesOf(call, call.inputs[0], call.results[0], call.inputs[1]),
                                attributes, state));
    }
  } catch (const dnnl::error &error) {
    return refuse(call, std::string("oneDNN: ") + error.what());
  }
  setState(call, std::move(state));
  call.run = runOneDnn;
  return success();
}

} // namespace

extern const CpuKernel convKernels = {prepareConv};

} // namespace zerocc
