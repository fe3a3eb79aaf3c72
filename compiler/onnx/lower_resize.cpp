// Lowerings of Resize and Upsample. Every axis is resized alone: its places in the output are weighted sums of places in
// the input, known when compiling. One place with weight 1 each is a gather, anything else a product with a matrix.

#include "compiler/onnx/lowerings.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>
#include <numeric>

namespace zerocc {
namespace {

struct ResizeMode {
  std::string interpolation, coordinates, rounding; // nearest | linear | cubic; …; of nearest
  bool antialias = false, excludeOutside = false;
  double cubicA = -0.75, extrapolation = 0;
};

/// One axis: `scale` is output over input, which need not be the ratio of the sizes; `bySize` when it is.
struct ResizeAxis {
  int64_t from, to;
  double scale, roiStart = 0, roiEnd = 1;
  bool bySize = false;
};

/// x / scale so that whole results are whole, or rounding to a neighbour would be left to chance: sizes are exact, and
/// a scale is an f32 that stands for a decimal, so the quotient is rounded to f32 as well.
double unscaled(const ResizeAxis &axis, double x) {
  if (axis.bySize)
    return x * static_cast<double>(axis.from) / static_cast<double>(axis.to);
  return static_cast<float>(x) / static_cast<float>(axis.scale);
}

/// The place in the input that output `i` stands for.
double sourceOf(const ResizeMode &mode, const ResizeAxis &axis, double i) {
  const auto from = static_cast<double>(axis.from);
  const double width = axis.scale * from;
  if (mode.coordinates == "align_corners")
    return width == 1 ? 0 : i * (from - 1) / (width - 1);
  if (mode.coordinates == "asymmetric")
    return unscaled(axis, i);
  if (mode.coordinates == "tf_crop_and_resize") {
    const double span = (axis.roiEnd - axis.roiStart) * (from - 1);
    return axis.roiStart * (from - 1) + (width == 1 ? span / 2 : i * span / (width - 1));
  }
  if (mode.coordinates == "pytorch_half_pixel" && axis.to == 1)
    return 0;
  if (mode.coordinates == "half_pixel_symmetric") // from the middle
    return from / 2 - 0.5 + unscaled(axis, i + 0.5 - static_cast<double>(axis.to) / 2);
  return unscaled(axis, i + 0.5) - 0.5;
}

double cubic(double a, double x) { // Keys' kernel
  x = std::fabs(x);
  if (x <= 1)
    return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

/// Places and weights around `source`; places may lie outside.
std::vector<std::pair<int64_t, double>> neighbours(const ResizeMode &mode, const ResizeAxis &axis, double source) {
  std::vector<std::pair<int64_t, double>> out;
  const double floor = std::floor(source);
  const auto base = static_cast<int64_t>(floor);
  if (mode.interpolation == "nearest") {
    const double rest = source - floor;
    const bool up = rest != 0 && (mode.rounding == "ceil" || (mode.rounding == "round_prefer_floor" && rest > 0.5) ||
                                  (mode.rounding == "round_prefer_ceil" && rest >= 0.5));
    return {{base + (up ? 1 : 0), 1.0}};
  }
  const double shrink = mode.antialias ? std::min(axis.scale, 1.0) : 1.0; // wider kernels when downsampling
  const double reach = (mode.interpolation == "linear" ? 1 : 2) / shrink;
  double sum = 0;
  for (auto place = static_cast<int64_t>(std::ceil(source - reach)); static_cast<double>(place) <= source + reach;
       ++place) {
    const double distance = (static_cast<double>(place) - source) * shrink;
    const double weight = mode.interpolation == "linear" ? std::max(0.0, 1 - std::fabs(distance))
                                                         : cubic(mode.cubicA, distance);
    if (weight != 0)
      out.push_back({place, weight});
    sum += weight;
  }
  if (mode.antialias)
    for (auto &[place, weight] : out)
      weight /= sum;
  return out;
}

/// The matrix [to, from] of an axis; rows of places to extrapolate are marked.
struct AxisMatrix {
  std::vector<double> weights;
  std::vector<bool> extrapolated;
  std::vector<int64_t> single; // the one place of each row, when every row has one of weight 1
};

AxisMatrix matrixOf(const ResizeMode &mode, const ResizeAxis &axis) {
  AxisMatrix matrix;
  matrix.weights.assign(axis.to * axis.from, 0);
  matrix.extrapolated.assign(axis.to, false);
  bool isSingle = true;
  for (int64_t i = 0; i < axis.to; ++i) {
    const double source = sourceOf(mode, axis, static_cast<double>(i));
    if (mode.coordinates == "tf_crop_and_resize" && (source < 0 || source > static_cast<double>(axis.from - 1))) {
      matrix.extrapolated[i] = true;
      matrix.single.push_back(0);
      continue;
    }
    auto places = neighbours(mode, axis, source);
    if (mode.excludeOutside) {
      llvm::erase_if(places, [&](const auto &entry) { return entry.first < 0 || entry.first >= axis.from; });
      double sum = 0;
      for (const auto &entry : places)
        sum += entry.second;
      for (auto &entry : places)
        entry.second /= sum == 0 ? 1 : sum;
    }
    int64_t last = 0;
    for (const auto &[place, weight] : places) {
      last = std::clamp<int64_t>(place, 0, axis.from - 1);
      matrix.weights[i * axis.from + last] += weight;
    }
    isSingle = isSingle && !places.empty() && matrix.weights[i * axis.from + last] == 1 && places.size() == 1;
    matrix.single.push_back(last);
  }
  if (!isSingle)
    matrix.single.clear();
  return matrix;
}

Value *resizeAxis(NodeLowering &n, Value *x, int64_t at, const ResizeMode &mode, const ResizeAxis &axis) {
  if (!x)
    return nullptr;
  if (axis.to == 0 || axis.from == 0) {
    Dims dims = x->type.dims;
    dims[at] = axis.to;
    return axis.to == 0 ? n.filled({x->type.dtype, dims}, 0) : n.fail("an empty axis cannot be resized");
  }
  constexpr int64_t kMostWeights = int64_t(1) << 26;
  if (axis.to > kMostWeights / axis.from)
    return n.fail("resizing " + std::to_string(axis.from) + " to " + std::to_string(axis.to) + " is too large");
  const AxisMatrix matrix = matrixOf(mode, axis);
  Value *y = nullptr;
  if (!matrix.single.empty()) {
    y = n.gather(x, n.ints(matrix.single), at);
  } else {
    const DType dtype = isFloat(x->type.dtype) ? x->type.dtype : DType::f32;
    Value *weights = n.constant(HostTensor::real({dtype, {axis.to, axis.from}}, matrix.weights));
    Value *last = n.matmul(n.cast(n.moveLast(x, at), dtype), n.transpose(weights, {1, 0}));
    y = n.cast(moveBack(n, last, at), x->type.dtype);
  }
  if (llvm::none_of(matrix.extrapolated, [](bool out) { return out; }) || !y)
    return y;
  HostTensor outside = HostTensor::zeros({DType::boolean, {axis.to}});
  for (int64_t i = 0; i < axis.to; ++i)
    outside.integers[i] = matrix.extrapolated[i];
  Dims dims(y->type.rank(), 1);
  dims[at] = axis.to;
  return n.select(n.reshape(n.constant(outside), dims), n.scalar(y->type.dtype, mode.extrapolation), y);
}

/// The floats of a constant operand; nullopt when absent or empty.
std::optional<std::vector<double>> constantFloats(NodeLowering &n, int operand, const char *what) {
  if (!n.has(operand))
    return std::nullopt;
  Value *value = n.in(operand);
  if (value->type.elements() == 0)
    return std::nullopt;
  const HostTensor *host = n.host(value);
  if (!host) {
    n.fail(std::string(what) + " must be known when compiling");
    return std::nullopt;
  }
  std::vector<double> out;
  for (int64_t i = 0; i < host->type.elements(); ++i)
    out.push_back(host->at(i));
  return out;
}

Values resizeBy(NodeLowering &n, const ResizeMode &mode, llvm::ArrayRef<int64_t> axes,
                const std::vector<ResizeAxis> &sizes) {
  Value *x = n.in(0);
  for (size_t i = 0; i < axes.size(); ++i)
    if (sizes[i].scale != 1 || sizes[i].to != sizes[i].from || sizes[i].roiStart != 0 || sizes[i].roiEnd != 1)
      x = resizeAxis(n, x, axes[i], mode, sizes[i]);
  return {x};
}

} // namespace

Values lowerResize(NodeLowering &n) {
  Value *x = n.in(0);
  if (!x)
    return {nullptr};
  ResizeMode mode;
  mode.interpolation = n.stringAttribute("mode", "nearest");
  mode.coordinates = n.stringAttribute("coordinate_transformation_mode", n.version < 11 ? "asymmetric" : "half_pixel");
  mode.rounding = n.stringAttribute("nearest_mode", n.version < 11 ? "floor" : "round_prefer_floor");
  mode.antialias = n.intAttribute("antialias", 0);
  mode.excludeOutside = n.intAttribute("exclude_outside", 0);
  mode.cubicA = n.floatAttribute("cubic_coeff_a", -0.75);
  mode.extrapolation = n.floatAttribute("extrapolation_value", 0);
  if (mode.interpolation != "nearest" && mode.interpolation != "linear" && mode.interpolation != "cubic")
    return {n.fail("mode is \"" + mode.interpolation + "\"")};
  if (mode.interpolation == "nearest" && mode.antialias)
    return {n.fail("antialias does not go with mode nearest")};
  for (const char *known : {"half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric",
                            "tf_crop_and_resize", ""})
    if (!*known)
      return {n.fail("coordinate_transformation_mode is \"" + mode.coordinates + "\"")};
    else if (mode.coordinates == known)
      break;
  std::vector<int64_t> axes = n.intsAttribute("axes");
  if (axes.empty()) {
    axes.resize(x->type.dims.size());
    std::iota(axes.begin(), axes.end(), 0);
  }
  for (int64_t &axis : axes) {
    std::optional<int64_t> normal = n.normalAxis(axis, x->type.rank());
    if (!normal)
      return {nullptr};
    axis = *normal;
  }
  const int scalesAt = n.version < 11 ? 1 : 2;
  std::optional<std::vector<double>> scales = constantFloats(n, scalesAt, "the scales"),
                                     sizes = n.version < 11 ? std::nullopt : constantFloats(n, 3, "the sizes"),
                                     roi = n.version < 11 ? std::nullopt : constantFloats(n, 1, "the region");
  if (n.failed())
    return {nullptr};
  if (!scales == !sizes)
    return {n.fail("needs either scales or sizes")};
  const std::vector<double> &given = scales ? *scales : *sizes;
  if (given.size() != axes.size())
    return {n.fail("scales or sizes have " + std::to_string(given.size()) + " entries for " +
                   std::to_string(axes.size()) + " axes")};
  if (mode.coordinates == "tf_crop_and_resize" && (!roi || roi->size() != 2 * axes.size()))
    return {n.fail("tf_crop_and_resize needs a region of " + std::to_string(2 * axes.size()) + " numbers")};
  const std::string policy = n.stringAttribute("keep_aspect_ratio_policy", "stretch");
  std::vector<ResizeAxis> resized;
  for (size_t i = 0; i < axes.size(); ++i) {
    const int64_t from = x->type.dims[axes[i]];
    if (!(given[i] >= 0 && given[i] < 1e9))
      return {n.fail("a scale or size is " + std::to_string(given[i]))};
    ResizeAxis axis{from, static_cast<int64_t>(given[i]), given[i]};
    if (scales)
      axis.to = static_cast<int64_t>(std::floor(given[i] * static_cast<double>(from)));
    else
      axis.scale = from == 0 ? 1 : given[i] / static_cast<double>(from);
    axis.bySize = sizes.has_value();
    if (mode.coordinates == "tf_crop_and_resize") {
      axis.roiStart = (*roi)[i];
      axis.roiEnd = (*roi)[axes.size() + i];
    }
    resized.push_back(axis);
  }
  if (sizes && policy != "stretch") {
    if (policy != "not_larger" && policy != "not_smaller")
      return {n.fail("keep_aspect_ratio_policy is \"" + policy + "\"")};
    double scale = resized.empty() ? 1 : resized[0].scale;
    for (const ResizeAxis &axis : resized)
      scale = policy == "not_larger" ? std::min(scale, axis.scale) : std::max(scale, axis.scale);
    for (ResizeAxis &axis : resized) {
      axis.scale = scale;
      axis.bySize = false;
      axis.to = static_cast<int64_t>(scale * static_cast<double>(axis.from) + 0.5);
    }
  }
  if (mode.antialias && mode.coordinates == "pytorch_half_pixel")
    for (const ResizeAxis &axis : resized)
      if (axis.to == 1 && axis.from > 1)
        return {n.fail("antialias with pytorch_half_pixel to a single element is read in two ways",
                       "export with coordinate_transformation_mode half_pixel")};
  return resizeBy(n, mode, axes, resized);
}

/// The forerunner of Resize: asymmetric coordinates, rounded down.
Values lowerUpsample(NodeLowering &n) {
  Value *x = n.in(0);
  if (!x)
    return {nullptr};
  ResizeMode mode;
  mode.interpolation = n.stringAttribute("mode", "nearest");
  if (mode.interpolation == "bilinear")
    mode.interpolation = "linear";
  mode.coordinates = "asymmetric";
  mode.rounding = "floor";
  std::optional<std::vector<double>> scales;
  if (n.version >= 9) {
    scales = constantFloats(n, 1, "the scales");
  } else if (n.version >= 7) {
    scales.emplace();
    if (auto found = n.node.attributes.find("scales"); found != n.node.attributes.end())
      for (float scale : found->second->floats())
        scales->push_back(scale);
  } else {
    scales = {1, 1, n.floatAttribute("height_scale", 1), n.floatAttribute("width_scale", 1)};
  }
  if (n.failed())
    return {nullptr};
  if (!scales || scales->size() != x->type.dims.size() ||
      (mode.interpolation != "nearest" && mode.interpolation != "linear"))
    return {n.fail("mode is \"" + mode.interpolation + "\", or the scales do not fit " + print(x->type))};
  std::vector<int64_t> axes(x->type.dims.size());
  std::iota(axes.begin(), axes.end(), 0);
  std::vector<ResizeAxis> resized;
  for (size_t i = 0; i < axes.size(); ++i) {
    if (!((*scales)[i] > 0 && (*scales)[i] < 1e9))
      return {n.fail("a scale is " + std::to_string((*scales)[i]))};
    resized.push_back({x->type.dims[i], static_cast<int64_t>(std::floor((*scales)[i] * static_cast<double>(x->type.dims[i]))),
                       (*scales)[i]});
  }
  return resizeBy(n, mode, axes, resized);
}

} // namespace zerocc
