// Lowerings of convolutions and pooling.

#include "compiler/onnx/window_of.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>
#include <numeric>

namespace zerocc {

static std::optional<std::vector<int64_t>> entries(NodeLowering &n, const char *name, size_t count,
                                                   int64_t otherwise, int64_t least) {
  std::vector<int64_t> list = n.intsAttribute(name);
  if (list.empty())
    list.assign(count, otherwise);
  if (list.size() != count) {
    n.fail(std::string(name) + " has " + std::to_string(list.size()) + " entries for " +
           std::to_string(count) + " spatial axes");
    return std::nullopt;
  }
  for (int64_t entry : list)
    if (entry < least || entry > int64_t(1) << 31) {
      n.fail(std::string(name) + " has an entry of " + std::to_string(entry));
      return std::nullopt;
    }
  return list;
}

std::optional<OnnxWindow> windowOf(NodeLowering &n, const TensorType &x, llvm::ArrayRef<int64_t> kernel,
                                   bool mayRoundUp) {
  const size_t spatial = x.dims.size() < 3 ? 0 : x.dims.size() - 2;
  if (spatial < 1 || spatial > 3) {
    n.fail("needs batch, channels and one to three spatial axes, got " + print(x));
    return std::nullopt;
  }
  OnnxWindow window;
  window.kernel = n.intsAttribute("kernel_shape");
  if (window.kernel.empty())
    window.kernel.assign(kernel.begin(), kernel.end());
  if (window.kernel.size() != spatial ||
      (!kernel.empty() && llvm::ArrayRef<int64_t>(window.kernel) != kernel) ||
      llvm::any_of(window.kernel, [](int64_t k) { return k < 1; })) {
    n.fail("kernel_shape does not fit " + print(x));
    return std::nullopt;
  }
  auto strides = entries(n, "strides", spatial, 1, 1), dilations = entries(n, "dilations", spatial, 1, 1),
       pads = entries(n, "pads", 2 * spatial, 0, 0);
  if (!strides || !dilations || !pads)
    return std::nullopt;
  window.strides = *strides;
  window.dilations = *dilations;
  window.low.assign(pads->begin(), pads->begin() + spatial);
  window.high.assign(pads->begin() + spatial, pads->end());
  const std::string autoPad = n.stringAttribute("auto_pad", "NOTSET");
  const bool isSame = autoPad == "SAME_UPPER" || autoPad == "SAME_LOWER";
  if (!isSame && autoPad != "NOTSET" && autoPad != "VALID") {
    n.fail("auto_pad is \"" + autoPad + "\"");
    return std::nullopt;
  }
  for (size_t axis = 0; axis < spatial; ++axis) {
    const int64_t size = x.dims[2 + axis], stride = window.strides[axis];
    if (autoPad == "VALID")
      window.low[axis] = window.high[axis] = 0;
    if (isSame) { // as many outputs as strides fit into the input
      const int64_t outputs = (size + stride - 1) / stride;
      const int64_t total = std::max<int64_t>(0, (outputs - 1) * stride + window.reach(axis) - size);
      window.low[axis] = autoPad == "SAME_UPPER" ? total / 2 : total - total / 2;
      window.high[axis] = total - window.low[axis];
    }
    if (mayRoundUp && n.intAttribute("ceil_mode", 0)) {
      const int64_t room = size + window.low[axis] + window.high[axis] - window.reach(axis);
      if (room < 0)
        continue; // the shape rule says so
      int64_t outputs = (room + stride - 1) / stride + 1;
      if ((outputs - 1) * stride >=
          size + window.low[axis]) // a window that would begin in the padding behind
        --outputs;
      window.high[axis] += std::max<int64_t>(0, (outputs - 1) * stride - room);
    }
  }
  return window;
}

/// y + bias per channel
static Value *addBias(NodeLowering &n, Value *y, int operand) {
  if (!y || !n.has(operand))
    return y;
  Dims dims(y->type.rank(), 1);
  dims[1] = y->type.dims[1];
  if (n.in(operand)->type.elements() != dims[1])
    return n.fail("the bias " + print(n.in(operand)->type) + " does not fit " + print(y->type));
  return n.add(y, n.reshape(n.in(operand), dims));
}

Values lowerConv(NodeLowering &n) {
  Value *x = n.in(0), *w = n.in(1);
  if (!x || !w)
    return {nullptr};
  if (x->type.rank() < 3 || w->type.rank() != x->type.rank())
    return {
        n.fail("x and w need equal rank of at least 3: x is " + print(x->type) + ", w is " + print(w->type))};
  std::optional<OnnxWindow> window =
      windowOf(n, x->type, llvm::ArrayRef<int64_t>(w->type.dims).drop_front(2));
  if (!window)
    return {nullptr};
  Attributes attributes = window->attributes();
  attributes.set("groups", n.intAttribute("group", 1));
  return {addBias(n, n.emit(OpKind::Conv, {x, w}, attributes), 2)};
}

/// The transpose of a convolution: the gradient of its data. w is [C, M/group, k…]: as the weights of that
/// convolution, C outputs from M inputs.
Values lowerConvTranspose(NodeLowering &n) {
  Value *x = n.in(0), *w = n.in(1);
  if (!x || !w)
    return {nullptr};
  const int64_t rank = x->type.rank(), groups = n.intAttribute("group", 1);
  if (rank < 3 || rank > 5 || w->type.rank() != rank || groups < 1)
    return {n.fail("x and w need equal rank of 3 to 5: x is " + print(x->type) + ", w is " + print(w->type))};
  const size_t spatial = rank - 2;
  std::vector<int64_t> kernel(w->type.dims.begin() + 2, w->type.dims.end());
  auto strides = entries(n, "strides", spatial, 1, 1), dilations = entries(n, "dilations", spatial, 1, 1),
       pads = entries(n, "pads", 2 * spatial, 0, 0), extra = entries(n, "output_padding", spatial, 0, 0);
  if (!strides || !dilations || !pads || !extra)
    return {nullptr};
  std::vector<int64_t> wanted = n.intsAttribute("output_shape");
  if (wanted.size() == spatial + 2)
    wanted.erase(wanted.begin(), wanted.begin() + 2);
  if (!wanted.empty() && wanted.size() != spatial)
    return {n.fail("output_shape does not fit " + print(x->type))};
  const std::string autoPad = n.stringAttribute("auto_pad", "NOTSET");
  const bool isSame = autoPad == "SAME_UPPER" || autoPad == "SAME_LOWER";
  OnnxWindow window{kernel, *strides, *dilations, std::vector<int64_t>(spatial),
                    std::vector<int64_t>(spatial)};
  Dims y = {x->type.dims[0], w->type.dims[1] * groups};
  for (size_t axis = 0; axis < spatial; ++axis) {
    const int64_t full =
        (x->type.dims[2 + axis] - 1) * (*strides)[axis] + (*extra)[axis] + window.reach(axis);
    int64_t size = full - (*pads)[axis] - (*pads)[spatial + axis];
    window.low[axis] = (*pads)[axis];
    if (autoPad == "VALID") {
      size = full;
      window.low[axis] = 0;
    }
    if (wanted.empty() && isSame && full < x->type.dims[2 + axis] * (*strides)[axis])
      return {n.fail("auto_pad " + autoPad + " of a kernel that is shorter than its stride is read in two ways",
                     "export with pads instead")};
    if (!wanted.empty() || isSame) { // the padding follows from the size
      size = wanted.empty() ? x->type.dims[2 + axis] * (*strides)[axis] : wanted[axis];
      const int64_t total = std::max<int64_t>(0, full - size);
      window.low[axis] = autoPad == "SAME_UPPER" ? total / 2 : total - total / 2;
    }
    if (size < 1)
      return {n.fail("the output has " + std::to_string(size) + " elements on spatial axis " +
                     std::to_string(axis))};
    y.push_back(size);
    // What the convolution of y needs behind to give x back.
    window.high[axis] =
        (x->type.dims[2 + axis] - 1) * (*strides)[axis] + window.reach(axis) - size - window.low[axis];
  }
  // y may reach beyond the last window (output_padding): those elements are zero, and are cut as a padded
  // tail.
  Dims inner = y;
  std::vector<int64_t> tail(rank, 0);
  for (size_t axis = 0; axis < spatial; ++axis)
    if (window.high[axis] < 0) {
      const int64_t beyond = -window.high[axis];
      if (beyond >= (*strides)[axis]) { // more than a stride: a window more would fit
        tail[2 + axis] = beyond;
        inner[2 + axis] -= beyond;
      }
      window.high[axis] = 0;
    }
  Attributes attributes = window.attributes();
  attributes.set("groups", groups);
  attributes.set("shape", std::vector<int64_t>(inner.begin(), inner.end()));
  Value *result = n.emit(OpKind::ConvDataGrad, {x, w}, attributes);
  if (llvm::any_of(tail, [](int64_t pad) { return pad != 0; }))
    result = n.emit(OpKind::Pad, {result},
                    {{"low", std::vector<int64_t>(rank, 0)}, {"high", tail}, {"value", 0.0}});
  return {addBias(n, result, 2)};
}

/// Adds blocks [N, C kernel, blocks] up to an image: the gradient of cutting it into blocks, which is a convolution
/// with one weight 1 per kernel element.
Values lowerCol2Im(NodeLowering &n) {
  Value *x = n.in(0);
  std::optional<std::vector<int64_t>> image = n.constantInts(1, "the image's shape"),
                                      kernel = n.constantInts(2, "the block's shape");
  if (!x || !image || !kernel)
    return {nullptr};
  const size_t spatial = image->size();
  if (spatial < 1 || spatial > 3 || kernel->size() != spatial)
    return {n.fail("needs one to three spatial axes, got " + std::to_string(spatial))};
  auto strides = entries(n, "strides", spatial, 1, 1), dilations = entries(n, "dilations", spatial, 1, 1),
       pads = entries(n, "pads", 2 * spatial, 0, 0);
  if (!strides || !dilations || !pads)
    return {nullptr};
  constexpr int64_t kMostElements = 1 << 16; // of a block
  int64_t elements = 1, blocks = 1;
  Dims counts, weightDims;
  OnnxWindow window{*kernel, *strides, *dilations, {}, {}};
  for (size_t axis = 0; axis < spatial; ++axis) {
    const int64_t size = (*kernel)[axis];
    if (size < 1 || (*image)[axis] < 1 || elements > kMostElements / size)
      return {n.fail("a dim of the image or the block is not positive, or the block is too large")};
    elements *= size;
    window.low.push_back((*pads)[axis]);
    window.high.push_back((*pads)[spatial + axis]);
    const int64_t room = (*image)[axis] + window.low[axis] + window.high[axis] - window.reach(axis);
    counts.push_back(room < 0 ? 0 : room / window.strides[axis] + 1);
    blocks *= counts.back();
    weightDims.push_back(size);
  }
  if (x->type.rank() != 3 || x->type.dims[1] % elements != 0 || x->type.dims[2] != blocks)
    return {n.fail(print(x->type) + " should hold " + std::to_string(blocks) + " blocks of " +
                   std::to_string(elements) + " elements")};
  const int64_t channels = x->type.dims[1] / elements;
  weightDims.insert(weightDims.begin(), {elements, 1});
  HostTensor ones = HostTensor::zeros({x->type.dtype, weightDims});
  for (int64_t k = 0; k < elements; ++k)
    ones.reals[k * elements + k] = 1;
  // Channels go to the batch, so that one set of weights serves all.
  Dims places = {x->type.dims[0] * channels, elements}, planes = {x->type.dims[0] * channels, 1},
       result = {x->type.dims[0], channels};
  places.append(counts);
  planes.append(image->begin(), image->end());
  result.append(image->begin(), image->end());
  Attributes attributes = window.attributes();
  attributes.set("groups", int64_t(1));
  attributes.set("shape", std::vector<int64_t>(planes.begin(), planes.end()));
  return {n.reshape(n.emit(OpKind::ConvDataGrad, {n.reshape(x, places), n.constant(ones)}, attributes), result)};
}

// --- pooling

namespace {

Attributes poolAttributes(const OnnxWindow &window) {
  Attributes attributes = window.attributes();
  attributes.set("kernel", window.kernel);
  return attributes;
}

/// How many elements each window of a pool has, by output place: the product of the axes' counts.
HostTensor countsOf(const OnnxWindow &window, const TensorType &x, const TensorType &y,
                    llvm::ArrayRef<int64_t> low, llvm::ArrayRef<int64_t> high) {
  TensorType type = y;
  type.dims[0] = type.dims[1] = 1;
  HostTensor counts = HostTensor::zeros(type);
  std::vector<std::vector<int64_t>> perAxis;
  for (size_t axis = 0; axis < window.kernel.size(); ++axis) {
    perAxis.emplace_back();
    for (int64_t o = 0; o < y.dims[2 + axis]; ++o) {
      int64_t count = 0;
      for (int64_t k = 0; k < window.kernel[axis]; ++k) {
        const int64_t at = o * window.strides[axis] - window.low[axis] + k * window.dilations[axis];
        count += at >= -low[axis] && at < x.dims[2 + axis] + high[axis];
      }
      perAxis.back().push_back(std::max<int64_t>(count, 1));
    }
  }
  for (int64_t place = 0; place < type.elements(); ++place) {
    int64_t rest = place, count = 1;
    for (size_t axis = perAxis.size(); axis-- > 0; rest /= y.dims[2 + axis])
      count *= perAxis[axis][rest % y.dims[2 + axis]];
    counts.reals[place] = static_cast<double>(count);
  }
  return counts;
}

Value *globalReduction(NodeLowering &n, bool isMax, double &count) {
  Value *x = n.in(0);
  if (!x)
    return nullptr;
  if (x->type.rank() < 3)
    return n.fail("needs batch, channels and spatial axes, got " + print(x->type));
  std::vector<int64_t> axes(x->type.rank() - 2);
  std::iota(axes.begin(), axes.end(), 2);
  Dims kept(x->type.rank(), 1);
  kept[0] = x->type.dims[0];
  kept[1] = x->type.dims[1];
  count = static_cast<double>(x->type.elements() / std::max<int64_t>(1, kept[0] * kept[1]));
  return n.reshape(isMax ? n.reduceMax(x, axes) : n.reduceSum(x, axes), kept);
}

/// (Σ |x|^p)^(1/p) with `sum` for the sums; p = 2 and 1 without powers.
template <typename F> Value *norm(NodeLowering &n, Value *x, double p, F sum) {
  if (p == 1)
    return sum(n.unary(OpKind::Abs, x));
  if (p == 2)
    return n.unary(OpKind::Sqrt, sum(n.mul(x, x)));
  return n.binary(OpKind::Pow, sum(n.binary(OpKind::Pow, n.unary(OpKind::Abs, x), p)), 1 / p);
}

/// Version 1 has a float p, later ones an integer.
double normExponent(NodeLowering &n) {
  return n.version < 2 ? n.floatAttribute("p", 2) : static_cast<double>(n.intAttribute("p", 2));
}

} // namespace

Values lowerMaxPool(NodeLowering &n) {
  Value *x = n.in(0);
  std::optional<OnnxWindow> window = x ? windowOf(n, x->type, {}, true) : std::nullopt;
  if (!window)
    return {nullptr};
  const Attributes attributes = poolAttributes(*window);
  Values results{n.emit(OpKind::MaxPool, {x}, attributes)};
  if (!n.wantsOutput(1))
    return results;
  // Positions in the whole tensor; with storage_order the spatial axes count column by column.
  Value *places = n.emit(OpKind::MaxPoolIndex, {x}, attributes);
  if (!places)
    return {nullptr};
  const Dims &dims = x->type.dims;
  int64_t plane = 1;
  for (size_t axis = 2; axis < dims.size(); ++axis)
    plane *= dims[axis];
  if (n.intAttribute("storage_order", 0) && dims.size() > 3) {
    Value *turned = nullptr;
    int64_t below = plane, stride = 1;
    for (size_t axis = 2; axis < dims.size(); ++axis) {
      below /= dims[axis];
      Value *digit =
          n.binary(OpKind::Mod, n.div(places, static_cast<double>(below)), static_cast<double>(dims[axis]));
      Value *term = n.mul(digit, static_cast<double>(stride));
      turned = turned ? n.add(turned, term) : term;
      stride *= dims[axis];
    }
    places = turned;
  }
  Value *planes = n.mul(n.iota(DType::i64, dims[0] * dims[1]), static_cast<double>(plane));
  Dims column(dims.size(), 1);
  column[0] = dims[0];
  column[1] = dims[1];
  results.push_back(n.add(places, n.reshape(planes, column)));
  return results;
}

// sum / count: of the window's elements in x, or with count_include_pad in x and its padding (but not in what
// ceil_mode adds)
Values lowerAveragePool(NodeLowering &n) {
  Value *x = n.in(0);
  std::optional<OnnxWindow> window = x ? windowOf(n, x->type, {}, true) : std::nullopt;
  if (!window)
    return {nullptr};
  Value *sum = n.emit(OpKind::SumPool, {x}, poolAttributes(*window));
  if (!sum)
    return {nullptr};
  const std::vector<int64_t> none(window->kernel.size(), 0);
  std::vector<int64_t> high = none;
  const bool withPadding = n.intAttribute("count_include_pad", 0);
  if (withPadding) {
    std::optional<OnnxWindow> plain = windowOf(n, x->type, {}, false);
    high = plain->high;
  }
  const HostTensor counts = countsOf(*window, x->type, sum->type, withPadding ? window->low : none, high);
  const bool isUniform = llvm::all_of(counts.reals, [&](double count) { return count == counts.reals[0]; });
  if (counts.reals.empty())
    return {sum};
  return {isUniform ? n.div(sum, counts.reals[0]) : n.div(sum, n.constant(counts))};
}

Values lowerLpPool(NodeLowering &n) {
  Value *x = n.in(0);
  std::optional<OnnxWindow> window = x ? windowOf(n, x->type, {}, true) : std::nullopt;
  if (!window)
    return {nullptr};
  return {norm(n, x, normExponent(n),
               [&](Value *terms) { return n.emit(OpKind::SumPool, {terms}, poolAttributes(*window)); })};
}

Values lowerGlobalAveragePool(NodeLowering &n) {
  double count = 1;
  Value *sum = globalReduction(n, false, count);
  return {n.div(sum, count)};
}

Values lowerGlobalMaxPool(NodeLowering &n) {
  double count = 1;
  return {globalReduction(n, true, count)};
}

Values lowerGlobalLpPool(NodeLowering &n) {
  Value *x = n.in(0);
  if (!x)
    return {nullptr};
  if (x->type.rank() < 3)
    return {n.fail("needs batch, channels and spatial axes, got " + print(x->type))};
  std::vector<int64_t> axes(x->type.rank() - 2);
  std::iota(axes.begin(), axes.end(), 2);
  Dims kept(x->type.rank(), 1);
  kept[0] = x->type.dims[0];
  kept[1] = x->type.dims[1];
  return {
      norm(n, x, normExponent(n), [&](Value *terms) { return n.reshape(n.reduceSum(terms, axes), kept); })};
}

/// Scatters the values to their places in a zero tensor.
Values lowerMaxUnpool(NodeLowering &n) {
  Value *x = n.in(0), *places = n.in(1);
  if (!x || !places)
    return {nullptr};
  if (x->type.rank() < 3 || places->type.dims != x->type.dims)
    return {n.fail("x and its indices need equal dims with spatial axes: " + print(x->type) + " and " +
                   print(places->type))};
  const size_t spatial = x->type.dims.size() - 2;
  std::vector<int64_t> kernel = n.intsAttribute("kernel_shape");
  auto strides = entries(n, "strides", spatial, 1, 1), pads = entries(n, "pads", 2 * spatial, 0, 0);
  if (!strides || !pads || kernel.size() != spatial)
    return {n.fail("kernel_shape does not fit " + print(x->type))};
  // The indices count in the tensor that was pooled; a larger output_shape is that tensor with more room
  // behind.
  Dims pooled = {x->type.dims[0], x->type.dims[1]};
  for (size_t axis = 0; axis < spatial; ++axis)
    pooled.push_back((x->type.dims[2 + axis] - 1) * (*strides)[axis] + kernel[axis] - (*pads)[axis] -
                     (*pads)[spatial + axis]);
  Dims dims = pooled;
  if (n.has(2)) {
    std::optional<std::vector<int64_t>> wanted = n.constantInts(2, "the output shape");
    if (!wanted)
      return {nullptr};
    dims = Dims(wanted->begin(), wanted->end());
  }
  TensorType type{x->type.dtype, pooled};
  if (llvm::any_of(pooled, [](int64_t dim) { return dim < 1; }))
    return {n.fail("the output has no elements: " + print(type))};
  const int64_t count = x->type.elements();
  Value *zeros = n.filled({x->type.dtype, {type.elements()}}, 0);
  Value *flat = n.emit(OpKind::Scatter, {zeros, n.reshape(places, {count}), n.reshape(x, {count})},
                       {{"reduction", std::string("none")}});
  Value *y = n.reshape(flat, pooled);
  if (dims == pooled)
    return {y};
  std::vector<int64_t> low(dims.size(), 0), high(dims.size(), 0);
  if (dims.size() != pooled.size())
    return {n.fail("the output shape does not fit " + print(x->type))};
  for (size_t axis = 0; axis < dims.size(); ++axis)
    if ((high[axis] = dims[axis] - pooled[axis]) < 0)
      return {n.fail("the output shape is smaller than what was pooled")};
  return {n.emit(OpKind::Pad, {y}, {{"low", low}, {"high", high}, {"value", 0.0}})};
}

} // namespace zerocc
