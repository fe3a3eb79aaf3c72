// conv, conv_data_grad, conv_weight_grad by oneDNN. One spatial axis is two, the first of length 1.
//
// oneDNN's best loops want channels in blocks. Their operands are reordered into the workspace and back, some
// images at a time, so that the copies stay small and in the cache; sums over images (the weights' gradient)
// are added up in the order of the images. Products that gain nothing from blocks run on the operands as they
// are. How many images go at once follows from the workspace, which follows from the shapes
// (compiler/ops/workspace_window.cpp): the same shapes give the same bits on every run of one machine.

#include "runtime/kernels/cpu/one_dnn.h"

#include <algorithm>
#include <cstring>
#include <memory>

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

enum class Layout { Plain, Blocked };

/// An operand or the result of a call.
struct Argument {
  int id;         // oneDNN's
  bool hasImages; // x and y; not w
  dnnl::memory::desc plain;
  char *data;
};

/// An implementation, and what oneDNN still reads while it looks for the next one: the operations'
/// descriptions, and the forward implementation that a gradient's was made for.
struct Implementation {
  std::shared_ptr<const void> forwardOperation, operation;
  dnnl::primitive_desc forward, desc;
};

/// One of the three ops.
struct Convolution {
  OpKind op;
  ConvShapes shapes;
  std::vector<Argument> arguments; // operands, then the result

  /// On `images` images.
  Implementation describe(int64_t images, Layout layout) const;
};

dnnl::memory::desc descOf(DnnlDims dims, Layout layout) {
  if (layout == Layout::Plain)
    return plainDesc(dims);
  return {dims, dnnl::memory::data_type::f32, dnnl::memory::format_tag::any};
}

Implementation Convolution::describe(int64_t images, Layout layout) const {
  ConvShapes s = shapes;
  s.x[0] = s.y[0] = images;
  const dnnl::memory::desc x = descOf(s.x, layout), w = descOf(s.w, layout), y = descOf(s.y, layout);
  constexpr auto kDirect = dnnl::algorithm::convolution_direct;
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  auto forwardOperation = std::make_shared<dnnl::convolution_forward::desc>(
      dnnl::prop_kind::forward_training, kDirect, x, w, y, s.strides, s.dilations, s.low, s.high);
  const dnnl::convolution_forward::primitive_desc forward(*forwardOperation, attributes, cpuEngine());
  if (op == OpKind::Conv)
    return {nullptr, forwardOperation, {}, forward};
  if (op == OpKind::ConvDataGrad) {
    auto operation = std::make_shared<dnnl::convolution_backward_data::desc>(kDirect, x, w, y, s.strides,
                                                                             s.dilations, s.low, s.high);
    return {forwardOperation, operation, forward,
            dnnl::convolution_backward_data::primitive_desc(*operation, attributes, cpuEngine(), forward)};
  }
  auto operation = std::make_shared<dnnl::convolution_backward_weights::desc>(kDirect, x, w, y, s.strides,
                                                                              s.dilations, s.low, s.high);
  return {forwardOperation, operation, forward,
          dnnl::convolution_backward_weights::primitive_desc(*operation, attributes, cpuEngine(), forward)};
}

dnnl::memory::desc wantedBy(const dnnl::primitive_desc &desc, const Argument &argument) {
  return desc.query_md(dnnl::query::exec_arg_md, argument.id);
}

/// Plain loops for anything, far slower than the others.
bool isReference(const dnnl::primitive_desc &desc) {
  return std::strstr(desc.impl_info_str(), "ref") != nullptr;
}

/// The argument with `images` images.
dnnl::memory::desc plainPart(const Argument &argument, int64_t images) {
  DnnlDims dims = argument.plain.dims();
  if (argument.hasImages)
    dims[0] = images;
  return plainDesc(dims);
}

/// The operands as they are, all images at once.
bool makePlain(const KernelCall &call, const Convolution &convolution, bool takesReference,
               OneDnnSteps &state) {
  Implementation implementation = convolution.describe(convolution.shapes.x[0], Layout::Plain);
  dnnl::primitive_desc &desc = implementation.desc;
  for (;;) {
    void *scratch = WorkspaceCut(call).take(desc.scratchpad_desc().get_size());
    if (scratch && (takesReference || !isReference(desc))) {
      state.steps.push_back({dnnl::primitive(desc), {}});
      for (const Argument &argument : convolution.arguments)
        state.steps[0].arguments.push_back(state.argument(argument.id, argument.plain, argument.data));
      state.steps[0].arguments.push_back(
          state.argument(DNNL_ARG_SCRATCHPAD, desc.scratchpad_desc(), scratch));
      return true;
    }
    if (!desc.next_impl())
      return false;
  }
}

/// Adds the steps that compute all images, `images` at a time; false when the workspace does not suffice.
bool makeSteps(const KernelCall &call, const Convolution &convolution, const dnnl::primitive_desc &desc,
               int64_t images, OneDnnSteps &state) {
  const int64_t parts = convolution.shapes.x[0] / images;
  WorkspaceCut cut(call);
  const dnnl::primitive primitive(desc);
  void *scratch = cut.take(desc.scratchpad_desc().get_size());
  struct Copy {
    const Argument *argument;
    dnnl::memory::desc desc, plain;
    void *data; // null: the argument itself serves
    void *part; // of a sum over several parts
  };
  std::vector<Copy> copies;
  bool fits = scratch != nullptr;
  for (const Argument &argument : convolution.arguments) {
    Copy copy{&argument, wantedBy(desc, argument), plainPart(argument, images), nullptr, nullptr};
    const bool isSum = &argument == &convolution.arguments.back() && !argument.hasImages && parts > 1;
    if (copy.desc != copy.plain)
      fits = (copy.data = cut.take(copy.desc.get_size())) && fits;
    if (isSum)
      fits = (copy.part = cut.take(copy.desc.get_size())) && fits;
    copies.push_back(copy);
  }
  if (!fits)
    return false;
  auto placeOf = [&](const Copy &copy, int64_t part) {
    const size_t offset = copy.argument->hasImages ? part * copy.plain.get_size() : 0;
    return copy.argument->data + offset;
  };
  const Copy &result = copies.back();
  for (int64_t part = 0; part < parts; ++part) {
    std::vector<dnnl_exec_arg_t> arguments = {
        state.argument(DNNL_ARG_SCRATCHPAD, desc.scratchpad_desc(), scratch)};
    for (const Copy &copy : copies) {
      const bool isResult = &copy == &result;
      void *data = copy.data ? copy.data : placeOf(copy, part);
      if (!isResult && copy.data && (part == 0 || copy.argument->hasImages))
        state.reorder(copy.plain, placeOf(copy, part), copy.desc, copy.data);
      if (isResult && copy.part && part > 0)
        data = copy.part;
      arguments.push_back(state.argument(copy.argument->id, copy.desc, data));
    }
    state.steps.push_back({primitive, std::move(arguments)});
    if (result.part && part > 0)
      state.steps.push_back({{},
                             {},
                             static_cast<float *>(result.data ? result.data : placeOf(result, 0)),
                             static_cast<const float *>(result.part),
                             static_cast<int64_t>(result.desc.get_size() / sizeof(float))});
    if (result.data && (part == parts - 1 || result.argument->hasImages))
      state.reorder(result.desc, result.data, result.plain, placeOf(result, part));
  }
  return true;
}

/// Channels in blocks, as many images at a time as the workspace takes.
bool makeBlocked(const KernelCall &call, const Convolution &convolution, OneDnnSteps &state) {
  const int64_t batch = convolution.shapes.x[0];
  const dnnl::primitive_desc one = convolution.describe(1, Layout::Blocked).desc;
  if (isReference(one))
    return false;
  int64_t perImage = 0, always = static_cast<int64_t>(one.scratchpad_desc().get_size());
  for (const Argument &argument : convolution.arguments) {
    const dnnl::memory::desc wanted = wantedBy(one, argument);
    if (wanted != plainPart(argument, 1))
      (argument.hasImages ? perImage : always) += static_cast<int64_t>(wanted.get_size());
  }
  int64_t images =
      perImage == 0 ? batch : std::clamp<int64_t>((call.workspaceBytes - always) / perImage, 1, batch);
  for (; images > 0; --images) {
    if (batch % images != 0)
      continue;
    const dnnl::primitive_desc desc = convolution.describe(images, Layout::Blocked).desc;
    if (!isReference(desc) && makeSteps(call, convolution, desc, images, state))
      return true;
  }
  return false;
}

/// Whether blocks gain nothing: a matrix product as it stands, or hardly any channels to put into blocks.
bool prefersPlain(const Convolution &convolution, int64_t groups) {
  const ConvShapes &s = convolution.shapes;
  auto all = [](const DnnlDims &list, int64_t value) {
    return std::all_of(list.begin(), list.end(), [&](int64_t entry) { return entry == value; });
  };
  const bool isPointwise = all(DnnlDims(s.w.end() - s.strides.size(), s.w.end()), 1) && all(s.strides, 1) &&
                           all(s.low, 0) && all(s.high, 0);
  const bool isDepthwise = groups == s.x[1] && groups == s.y[1];
  return (isPointwise && !isDepthwise) ||
         (convolution.op == OpKind::ConvDataGrad && !isDepthwise && s.x[1] / groups < 16);
}

Status makeConvolution(KernelCall &call, const Convolution &convolution) {
  const int64_t groups = call.attributes.getInt("groups", 1);
  std::string why =
      "none of oneDNN's ways fits into " + std::to_string(call.workspaceBytes) + " bytes of workspace";
  auto attempt = [&](auto make) {
    OneDnnSteps state;
    try {
      if (!make(state))
        return false;
    } catch (const dnnl::error &error) {
      why = std::string("oneDNN: ") + error.what();
      return false;
    }
    setState(call, std::move(state));
    return true;
  };
  auto plain = [&](OneDnnSteps &state) { return makePlain(call, convolution, false, state); };
  auto blocked = [&](OneDnnSteps &state) { return makeBlocked(call, convolution, state); };
  auto anything = [&](OneDnnSteps &state) { return makePlain(call, convolution, true, state); };
  const bool plainFirst = prefersPlain(convolution, groups);
  if ((plainFirst && attempt(plain)) || attempt(blocked) || (!plainFirst && attempt(plain)) ||
      attempt(anything)) {
    call.run = runOneDnn;
    return success();
  }
  return refuse(call, why);
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
  const bool isForward = call.op == OpKind::Conv, isData = call.op == OpKind::ConvDataGrad;
  const TensorView &x = isData ? call.results[0] : call.inputs[0],
                   &w = isForward || isData ? call.inputs[1] : call.results[0],
                   &y = isForward ? call.results[0] : call.inputs[isData ? 0 : 1];
  Convolution convolution{call.op, shapesOf(call, x, w, y), {}};
  const ConvShapes &s = convolution.shapes;
  const Argument xs{isData ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, true, plainDesc(s.x),
                    static_cast<char *>(x.data)},
      ws{isForward || isData ? DNNL_ARG_WEIGHTS : DNNL_ARG_DIFF_WEIGHTS, false, plainDesc(s.w),
         static_cast<char *>(w.data)},
      ys{isForward ? DNNL_ARG_DST : DNNL_ARG_DIFF_DST, true, plainDesc(s.y), static_cast<char *>(y.data)};
  convolution.arguments = isForward ? std::vector{xs, ws, ys}
                          : isData  ? std::vector{ys, ws, xs}
                                    : std::vector{xs, ys, ws};
  return makeConvolution(call, convolution);
}

} // namespace

extern const CpuKernel convKernels = {prepareConv};

} // namespace zerocc
