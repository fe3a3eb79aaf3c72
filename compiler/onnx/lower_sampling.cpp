// Lowerings of what reads an image between its pixels: GridSample, AffineGrid, RoiAlign, DeformConv; and
// MaxRoiPool, which reads whole pixels of regions.
//
// A coordinate along one axis becomes taps: places that are read and their weights. The taps of all axes are
// combined; each combination is a gather of whole pixels (rows of channels) times the product of the weights.
// Places are made safe before they are read, so that coordinates beyond the image or NaN cannot reach
// outside.

#include "compiler/onnx/window_of.h"

#include <cmath>
#include <numeric>

namespace zerocc {
namespace {

/// A place along one axis, a whole number in a float, and what its pixel counts.
struct Tap {
  Value *place, *weight;
};
using Taps = std::vector<Tap>;

enum class Outside { Zeros, Border, Reflection };

struct Sampling {
  std::string mode; // nearest | linear | cubic
  Outside outside = Outside::Zeros;
  bool alignCorners = false;
};

Value *clampTo(NodeLowering &n, Value *x, double low, double high) {
  return x ? clip(n, x, n.scalar(x->type.dtype, low), n.scalar(x->type.dtype, high)) : nullptr;
}

/// low <= x <= high; false for NaN.
Value *isWithin(NodeLowering &n, Value *x, double low, double high) {
  if (!x)
    return nullptr;
  return n.binary(OpKind::And, n.compare(x, n.scalar(x->type.dtype, low), "ge"),
                  n.compare(x, n.scalar(x->type.dtype, high), "le"));
}

/// x mirrored at `low` and `high` until it lies between: a triangle wave of x - low.
Value *reflect(NodeLowering &n, Value *x, double low, double high) {
  const double span = high - low;
  if (span == 0)
    return n.mul(x, 0.0);
  Value *distance = n.unary(OpKind::Abs, n.add(x, -low));
  Value *turns = n.unary(OpKind::Floor, n.div(distance, span));
  Value *rest = n.sub(distance, n.mul(turns, span));
  Value *isOdd = n.sub(turns, n.mul(n.unary(OpKind::Floor, n.mul(turns, 0.5)), 2.0)); // 0 or 1
  Value *back = n.add(n.mul(rest, -1.0), span);
  return rest ? n.add(n.select(n.compare(isOdd, n.scalar(rest->type.dtype, 0), "eq"), rest, back), low)
              : nullptr;
}

/// Keys' kernel with a = -0.75 at the distances f + 1, f, 1 - f and 2 - f.
std::vector<Value *> cubicWeights(NodeLowering &n, Value *f) {
  constexpr double a = -0.75;
  auto polynomial = [&](Value *x, double c3, double c2, double c1, double c0) {
    Value *y = n.add(n.mul(x, c3), c2);
    y = n.mul(y, x);
    if (c1 != 0)
      y = n.add(y, c1);
    return n.add(n.mul(y, x), c0);
  };
  auto near = [&](Value *x) { return polynomial(x, a + 2, -(a + 3), 0, 1); };
  auto far = [&](Value *x) { return polynomial(x, a, -5 * a, 8 * a, -4 * a); };
  Value *g = n.add(n.mul(f, -1.0), 1.0);
  return {far(n.add(f, 1.0)), near(f), near(g), far(n.add(g, 1.0))};
}

/// The taps of coordinates `x` (in pixels) along an axis of `size` pixels. A coordinate beyond the image is
/// moved first, and then each tap by itself, as ONNX defines it.
Taps tapsOf(NodeLowering &n, Value *x, int64_t size, const Sampling &how) {
  const auto last = static_cast<double>(size - 1);
  const double low = how.alignCorners ? 0 : -0.5, high = how.alignCorners ? last : last + 0.5;
  if (how.mode == "nearest")
    x = n.unary(OpKind::Round, x);
  if (how.outside == Outside::Border && x && how.mode != "cubic")
    x = clampTo(n, x, 0, last);
  if (how.outside == Outside::Reflection)
    x = reflect(n, x, low, high);
  if (!x)
    return {};
  Taps taps;
  Value *one = n.scalar(x->type.dtype, 1), *zero = n.scalar(x->type.dtype, 0);
  if (how.mode == "nearest") {
    taps = {{x, one}};
  } else {
    Value *floor = n.unary(OpKind::Floor, x), *f = n.sub(x, floor);
    if (how.mode == "linear") {
      taps = {{floor, n.add(n.mul(f, -1.0), 1.0)}, {n.add(floor, 1.0), f}};
    } else {
      const std::vector<Value *> weights = cubicWeights(n, f);
      for (int k = 0; k < 4; ++k)
        taps.push_back({n.add(floor, k - 1.0), weights[k]});
    }
  }
  for (Tap &tap : taps) {
    if (how.outside == Outside::Border && tap.place)
      tap.place = clampTo(n, tap.place, 0, last);
    if (how.outside == Outside::Reflection)
      tap.place = reflect(n, tap.place, low, high);
    Value *isInside = isWithin(n, tap.place, 0, last);
    if (how.outside == Outside::Zeros)
      tap.weight = n.select(isInside, tap.weight, zero);
    tap.place = n.select(isInside, tap.place, zero); // NaN
  }
  return taps;
}

/// Images as rows of channels: x [N, C, …] with its channels in `groups` parts becomes [N groups pixels,
/// C/groups].
struct Rows {
  Value *rows;
  int64_t channels, pixels;
};
Rows rowsOf(NodeLowering &n, Value *x, int64_t groups) {
  const int64_t batch = x->type.dims[0], channels = x->type.dims[1] / groups;
  int64_t pixels = 1;
  for (size_t axis = 2; axis < x->type.dims.size(); ++axis)
    pixels *= x->type.dims[axis];
  Value *planes = n.reshape(x, {batch * groups, channels, pixels});
  return {n.reshape(n.transpose(planes, {0, 2, 1}), {batch * groups * pixels, channels}), channels, pixels};
}

/// Calls visit(pixels [places…, channels], weight [places…]) for every combination of one tap per axis.
/// `image` is the number of the image that each place reads; all broadcast to `places`.
template <typename F>
void forCombinations(NodeLowering &n, const Rows &rows, Value *image, const std::vector<Taps> &axes,
                     llvm::ArrayRef<int64_t> sizes, const Dims &places, F visit) {
  int64_t combinations = 1;
  for (const Taps &taps : axes)
    combinations *= static_cast<int64_t>(taps.size());
  for (int64_t which = 0; which < combinations && !n.failed(); ++which) {
    Value *place = nullptr, *weight = nullptr;
    int64_t rest = which;
    for (size_t axis = axes.size(); axis-- > 0; rest /= static_cast<int64_t>(axes[axis].size())) {
      const Tap &tap = axes[axis][rest % axes[axis].size()];
      int64_t stride = 1;
      for (size_t below = axis + 1; below < axes.size(); ++below)
        stride *= sizes[below];
      Value *offset = n.mul(n.cast(tap.place, DType::i64), static_cast<double>(stride));
      place = place ? n.add(place, offset) : offset;
      weight = weight ? n.mul(weight, tap.weight) : tap.weight;
    }
    place = n.broadcast(n.add(place, n.mul(image, static_cast<double>(rows.pixels))), places);
    visit(n.gather(rows.rows, place, 0), n.broadcast(weight, places));
  }
}

/// Σ weight · pixel over the combinations: [places…, channels].
Value *interpolate(NodeLowering &n, const Rows &rows, Value *image, const std::vector<Taps> &axes,
                   llvm::ArrayRef<int64_t> sizes, const Dims &places) {
  Value *sum = nullptr;
  Dims column = places;
  column.push_back(1);
  forCombinations(n, rows, image, axes, sizes, places, [&](Value *pixels, Value *weight) {
    Value *term =
        pixels && weight ? n.mul(pixels, n.cast(n.reshape(weight, column), pixels->type.dtype)) : nullptr;
    sum = sum ? n.add(sum, term) : term;
  });
  return sum;
}

/// 0 … count-1 along `axis` of `rank` axes.
Value *counter(NodeLowering &n, DType dtype, int64_t count, int64_t axis, int64_t rank) {
  Dims dims(rank, 1);
  dims[axis] = count;
  return n.reshape(n.iota(dtype, count), dims);
}

} // namespace

/// grid [N, places…, r] holds coordinates from -1 to 1, the last spatial axis first.
Values lowerGridSample(NodeLowering &n) {
  Value *x = n.in(0), *grid = n.in(1);
  if (!x || !grid)
    return {nullptr};
  const int64_t rank = x->type.rank(), spatial = rank - 2;
  if (spatial < 1 || spatial > 3 || grid->type.rank() != rank || grid->type.dims.back() != spatial ||
      grid->type.dims[0] != x->type.dims[0] || !isFloat(grid->type.dtype))
    return {n.fail("the grid " + print(grid->type) + " does not fit " + print(x->type))};
  Sampling how;
  how.mode = n.stringAttribute("mode", n.version < 20 ? "bilinear" : "linear");
  how.mode = how.mode == "bilinear" ? "linear" : how.mode == "bicubic" ? "cubic" : how.mode;
  how.alignCorners = n.intAttribute("align_corners", 0);
  const std::string padding = n.stringAttribute("padding_mode", "zeros");
  if (how.mode != "nearest" && how.mode != "linear" && how.mode != "cubic")
    return {n.fail("mode is \"" + how.mode + "\"")};
  if (padding != "zeros" && padding != "border" && padding != "reflection")
    return {n.fail("padding_mode is \"" + padding + "\"")};
  if (how.mode != "nearest" && !isFloat(x->type.dtype))
    return {n.fail("mode \"" + how.mode + "\" needs floats, got " + print(x->type))};
  if (x->type.elements() == 0)
    return {n.fail("there is nothing to sample in " + print(x->type))};
  how.outside = padding == "zeros"    ? Outside::Zeros
                : padding == "border" ? Outside::Border
                                      : Outside::Reflection;
  const Dims places(grid->type.dims.begin(), grid->type.dims.end() - 1);
  std::vector<Taps> axes;
  for (int64_t axis = 0; axis < spatial; ++axis) {
    const int64_t size = x->type.dims[2 + axis];
    Value *v = n.reshape(n.sliceAxis(grid, spatial + 1, spatial - 1 - axis, 1), places);
    v = n.add(v, 1.0); // from 0 to 2, to pixels
    v = how.alignCorners ? n.mul(n.mul(v, 0.5), static_cast<double>(size - 1))
                         : n.mul(n.add(n.mul(v, static_cast<double>(size)), -1.0), 0.5);
    axes.push_back(tapsOf(n, v, size, how));
  }
  if (n.failed())
    return {nullptr};
  Value *image = counter(n, DType::i64, places[0], 0, static_cast<int64_t>(places.size()));
  Value *y = interpolate(n, rowsOf(n, x, 1), image, axes, llvm::ArrayRef<int64_t>(x->type.dims).drop_front(2),
                         places);
  std::vector<int64_t> channelsSecond(rank);
  std::iota(channelsSecond.begin() + 2, channelsSecond.end(), 1);
  channelsSecond[1] = rank - 1;
  return {n.transpose(y, channelsSecond)};
}

/// theta [N, r, r+1] times the homogeneous coordinates of each place: [N, places…, r].
Values lowerAffineGrid(NodeLowering &n) {
  Value *theta = n.in(0);
  std::optional<std::vector<int64_t>> size = n.constantInts(1, "the size");
  if (!theta || !size)
    return {nullptr};
  const auto spatial = static_cast<int64_t>(size->size()) - 2;
  if (spatial < 2 || spatial > 3 || theta->type.dims != Dims{(*size)[0], spatial, spatial + 1} ||
      !isFloat(theta->type.dtype))
    return {n.fail("theta " + print(theta->type) + " does not fit a size of " + std::to_string(size->size()) +
                   " dims")};
  const bool alignCorners = n.intAttribute("align_corners", 0);
  Dims dims = {(*size)[0]};
  int64_t places = 1;
  for (int64_t axis = 0; axis < spatial; ++axis) {
    const int64_t count = (*size)[2 + axis];
    if (count < 1 || places > (int64_t(1) << 31) / count)
      return {n.fail("the size has a dim of " + std::to_string(count))};
    if (count == 1 && alignCorners)
      return {n.fail("align_corners needs two places or more on each axis")};
    places *= count;
    dims.push_back(count);
  }
  dims.push_back(spatial);
  HostTensor grid = HostTensor::zeros({theta->type.dtype, {places, spatial + 1}});
  for (int64_t place = 0; place < places; ++place) {
    int64_t rest = place;
    for (int64_t axis = spatial; axis-- > 0; rest /= (*size)[2 + axis]) { // x, the last axis, comes first
      const auto count = static_cast<double>((*size)[2 + axis]);
      const auto at = static_cast<double>(rest % (*size)[2 + axis]);
      grid.reals[place * (spatial + 1) + spatial - 1 - axis] =
          alignCorners ? 2 * at / (count - 1) - 1 : (2 * at + 1) / count - 1;
    }
    grid.reals[place * (spatial + 1) + spatial] = 1;
  }
  return {n.reshape(n.matmul(n.constant(grid), n.transpose(theta, {0, 2, 1})), dims)};
}

namespace {

/// One axis of RoiAlign: `bins` bins per region with up to `most` samples each.
struct RoiAxis {
  Taps taps;               // [R, bins, most]
  Value *counts = nullptr; // samples per bin, [R, 1, 1]; null: `most`
  int64_t most = 0;
};

/// `from` and `to` are column numbers of the regions.
std::optional<RoiAxis> roiAxis(NodeLowering &n, Value *rois, int64_t from, int64_t to, int64_t bins,
                               int64_t size) {
  const bool halfPixel =
      n.version >= 16 && n.stringAttribute("coordinate_transformation_mode", "half_pixel") == "half_pixel";
  const double scale = n.floatAttribute("spatial_scale", 1);
  const int64_t ratio = n.intAttribute("sampling_ratio", 0), regions = rois->type.dims[0];
  const DType dtype = rois->type.dtype;
  auto edge = [&](int64_t column) {
    Value *at = n.mul(n.reshape(n.sliceAxis(rois, 1, column, 1), {regions, 1, 1}), scale);
    return halfPixel ? n.add(at, -0.5) : at;
  };
  Value *start = edge(from), *length = n.sub(edge(to), start);
  if (!halfPixel && length)
    length = n.binary(OpKind::Max, length, n.scalar(dtype, 1)); // empty regions get one pixel
  Value *bin = n.div(length, static_cast<double>(bins));
  RoiAxis axis;
  axis.most = ratio;
  if (ratio <= 0) { // as many samples as pixels: the number has to be known
    const HostTensor *known = n.host(bin);
    if (!known) {
      n.fail("sampling_ratio 0 takes as many samples as the regions are large, and those depend on data",
             "export with a sampling_ratio of 2, say");
      return std::nullopt;
    }
    HostTensor counts = HostTensor::zeros({dtype, {regions, 1, 1}});
    for (int64_t r = 0; r < regions; ++r) {
      const double count = std::ceil(known->at(r));
      if (!(count >= 1 && count <= 4096)) {
        n.fail("region " + std::to_string(r) + " is empty or too large");
        return std::nullopt;
      }
      counts.reals[r] = count;
      axis.most = std::max(axis.most, static_cast<int64_t>(count));
    }
    axis.counts = n.constant(counts);
  }
  Value *count = axis.counts ? axis.counts : n.scalar(dtype, static_cast<double>(axis.most));
  Value *sample = n.add(counter(n, dtype, axis.most, 2, 3), 0.5);
  Value *at = n.add(start, n.mul(bin, counter(n, dtype, bins, 1, 3)));
  at = n.add(at, n.div(n.mul(sample, bin), count));
  if (!at)
    return std::nullopt;
  // More than a pixel outside counts nothing; up to there the border's pixels do.
  const auto last = static_cast<double>(size - 1);
  Value *isNear = isWithin(n, at, -1, static_cast<double>(size)), *zero = n.scalar(dtype, 0);
  at = clampTo(n, n.select(isNear, at, zero), 0, last);
  Value *low = n.unary(OpKind::Floor, at), *f = n.sub(at, low), *nearness = n.cast(isNear, dtype);
  if (!low)
    return std::nullopt;
  axis.taps = {{low, n.mul(nearness, n.add(n.mul(f, -1.0), 1.0))},
               {clampTo(n, n.add(low, 1.0), 0, last), n.mul(nearness, f)}};
  return axis;
}

} // namespace

/// The mean (or the greatest weighted pixel) of samples in the bins of each region.
Values lowerRoiAlign(NodeLowering &n) {
  Value *x = n.in(0), *rois = n.in(1), *images = n.in(2);
  if (!x || !rois || !images)
    return {nullptr};
  const int64_t regions = rois->type.rank() == 2 ? rois->type.dims[0] : 0;
  const int64_t height = n.intAttribute("output_height", 1), width = n.intAttribute("output_width", 1);
  const std::string mode = n.stringAttribute("mode", "avg");
  const std::string coordinates = n.stringAttribute("coordinate_transformation_mode", "half_pixel");
  if (x->type.rank() != 4 || x->type.elements() == 0 || regions < 1 || rois->type.dims[1] != 4 ||
      images->type.dims != Dims{regions} || rois->type.dtype != x->type.dtype || height < 1 || width < 1)
    return {n.fail("regions " + print(rois->type) + " of images " + print(images->type) + " do not fit " +
                   print(x->type))};
  if ((mode != "avg" && mode != "max") || (coordinates != "half_pixel" && coordinates != "output_half_pixel"))
    return {n.fail("mode is \"" + mode + "\", coordinate_transformation_mode \"" + coordinates + "\"")};
  std::optional<RoiAxis> vertical = roiAxis(n, rois, 1, 3, height, x->type.dims[2]);
  std::optional<RoiAxis> horizontal = roiAxis(n, rois, 0, 2, width, x->type.dims[3]);
  if (!vertical || !horizontal || n.failed())
    return {nullptr};
  // Samples lie on [R, height, samples, width, samples].
  const Dims places = {regions, height, vertical->most, width, horizontal->most};
  for (Tap &tap : vertical->taps)
    for (Value **value : {&tap.place, &tap.weight})
      *value = n.reshape(*value, {regions, height, vertical->most, 1, 1});
  for (Tap &tap : horizontal->taps)
    for (Value **value : {&tap.place, &tap.weight})
      *value = n.reshape(*value, {regions, 1, 1, width, horizontal->most});
  // Where regions take fewer samples than the largest one, the others do not count.
  Value *isSample = nullptr;
  for (auto [axis, at] : {std::pair(&*vertical, 2), std::pair(&*horizontal, 4)})
    if (axis->counts) {
      Value *counted = n.compare(counter(n, x->type.dtype, axis->most, at, 5),
                                 n.reshape(axis->counts, {regions, 1, 1, 1, 1}), "lt");
      isSample = isSample ? n.binary(OpKind::And, isSample, counted) : counted;
    }
  Value *image = n.reshape(n.cast(images, DType::i64), {regions, 1, 1, 1, 1});
  const Rows rows = rowsOf(n, x, 1);
  const int64_t sizes[] = {x->type.dims[2], x->type.dims[3]};
  Dims column = places;
  column.push_back(1);
  Value *y = nullptr;
  if (mode == "avg") {
    y = interpolate(n, rows, image, {vertical->taps, horizontal->taps}, sizes, places);
    if (isSample)
      y = n.mul(y, n.cast(n.reshape(n.broadcast(isSample, places), column), x->type.dtype));
    y = n.reduceSum(y, {2, 4}); // [R, height, width, C]
    Value *count = n.scalar(x->type.dtype, static_cast<double>(vertical->most * horizontal->most));
    if (isSample)
      count = n.reshape(n.mul(vertical->counts, horizontal->counts), {regions, 1, 1, 1});
    y = n.div(y, count);
  } else {
    forCombinations(n, rows, image, {vertical->taps, horizontal->taps}, sizes, places,
                    [&](Value *pixels, Value *weight) {
                      Value *term = n.mul(pixels, n.reshape(weight, column));
                      y = y ? n.binary(OpKind::Max, y, term) : term;
                    });
    if (isSample)
      y = n.select(n.reshape(n.broadcast(isSample, places), column), y,
                   n.scalar(x->type.dtype, -std::numeric_limits<double>::infinity()));
    y = n.reduceMax(y, {2, 4});
  }
  return {n.transpose(y, {0, 3, 1, 2})};
}

namespace {

/// One axis of MaxRoiPool.
struct PoolAxis {
  Value *isInside = nullptr; // bool[R, bins, size]: which pixels lie in a bin
  Value *isFilled = nullptr; // bool[R, bins]: whether any does
};

/// `from` and `to` are column numbers of the regions. Bin b of a region that starts at s and is l long goes from
/// s + ⌊b l / bins⌋ up to s + ⌈(b + 1) l / bins⌉, in integers.
PoolAxis poolAxis(NodeLowering &n, Value *rois, int64_t from, int64_t to, int64_t bins, int64_t size) {
  const double scale = n.floatAttribute("spatial_scale", 1);
  const int64_t regions = rois->type.dims[0];
  auto edge = [&](int64_t column) { // to the nearest pixel, halves away from zero; what is beyond sense at 0
    Value *at = n.mul(n.reshape(n.sliceAxis(rois, 1, column, 1), {regions, 1}), scale);
    at = n.select(isWithin(n, at, -0x1p30, 0x1p30), at, n.scalar(rois->type.dtype, 0));
    Value *nearest = n.unary(OpKind::Floor, n.add(n.unary(OpKind::Abs, at), 0.5));
    return n.cast(n.mul(n.unary(OpKind::Sign, at), nearest), DType::i64);
  };
  auto whole = [&](double value) { return n.scalar(DType::i64, value); };
  Value *start = edge(from);
  Value *length = n.binary(OpKind::Max, n.add(n.sub(edge(to), start), 1.0), whole(1));
  Value *bin = n.mul(n.reshape(n.iota(DType::i64, bins), {1, bins}), length); // [R, bins]
  const auto count = static_cast<double>(bins);
  Value *low = n.add(start, n.div(bin, count));
  Value *high = n.add(start, n.div(n.add(n.add(bin, length), count - 1), count));
  low = n.binary(OpKind::Max, low, whole(0));
  high = n.binary(OpKind::Min, high, whole(static_cast<double>(size)));
  Value *pixel = n.reshape(n.iota(DType::i64, size), {1, 1, size});
  auto column = [&](Value *x) { return n.reshape(x, {regions, bins, 1}); };
  return {n.binary(OpKind::And, n.compare(pixel, column(low), "ge"), n.compare(pixel, column(high), "lt")),
          n.compare(high, low, "gt")};
}

} // namespace

/// The greatest pixel in each bin of each region, 0 where there is none: along the width first, then along the height. The
/// regions may depend on data; no gradient flows to them, as ONNX says.
Values lowerMaxRoiPool(NodeLowering &n) {
  Value *x = n.in(0), *rois = n.in(1);
  const std::vector<int64_t> pooled = n.intsAttribute("pooled_shape");
  if (!x || !rois || n.failed())
    return {nullptr};
  const int64_t regions = rois->type.rank() == 2 ? rois->type.dims[0] : 0;
  if (x->type.rank() != 4 || x->type.elements() == 0 || regions < 1 || rois->type.dims[1] != 5 ||
      rois->type.dtype != x->type.dtype)
    return {n.fail("regions " + print(rois->type) + " do not fit " + print(x->type))};
  if (pooled.size() != 2 || pooled[0] < 1 || pooled[1] < 1)
    return {n.fail("pooled_shape must be two positive numbers")};
  const int64_t channels = x->type.dims[1], height = x->type.dims[2], width = x->type.dims[3];
  const PoolAxis vertical = poolAxis(n, rois, 2, 4, pooled[0], height),
                 horizontal = poolAxis(n, rois, 1, 3, pooled[1], width);
  if (n.failed())
    return {nullptr};
  Value *image = n.reshape(n.cast(n.sliceAxis(rois, 1, 0, 1), DType::i64), {regions});
  Value *lowest = n.scalar(x->type.dtype, -std::numeric_limits<double>::infinity());
  Value *pixels = n.reshape(n.gather(x, image, 0), {regions, channels, height, 1, width});
  Value *isColumn = n.reshape(horizontal.isInside, {regions, 1, 1, pooled[1], width});
  Value *y = n.reduceMax(n.select(isColumn, pixels, lowest), {4}); // [R, C, H, bins]
  y = n.reshape(n.transpose(y, {0, 1, 3, 2}), {regions, channels, 1, pooled[1], height});
  Value *isRow = n.reshape(vertical.isInside, {regions, 1, pooled[0], 1, height});
  y = n.reduceMax(n.select(isRow, y, lowest), {4}); // [R, C, bins, bins]
  Value *isFilled = n.binary(OpKind::And, n.reshape(vertical.isFilled, {regions, 1, pooled[0], 1}),
                             n.reshape(horizontal.isFilled, {regions, 1, 1, pooled[1]}));
  return {n.select(isFilled, y, n.scalar(x->type.dtype, 0))};
}

/// A convolution whose kernel elements read at places of their own: those are sampled, and the rest is a
/// product.
Values lowerDeformConv(NodeLowering &n) {
  Value *x = n.in(0), *w = n.in(1), *offset = n.in(2);
  if (!x || !w || !offset)
    return {nullptr};
  const int64_t groups = n.intAttribute("group", 1), parts = n.intAttribute("offset_group", 1);
  if (x->type.rank() != 4 || w->type.rank() != 4 || x->type.elements() == 0)
    return {n.fail("needs two spatial axes: x is " + print(x->type) + ", w is " + print(w->type))};
  const int64_t batch = x->type.dims[0], channels = x->type.dims[1], outputs = w->type.dims[0];
  if (groups < 1 || parts < 1 || channels % parts != 0 || outputs % groups != 0 ||
      channels != w->type.dims[1] * groups)
    return {n.fail("channels do not fit: x is " + print(x->type) + ", w is " + print(w->type) + ", group " +
                   std::to_string(groups) + ", offset_group " + std::to_string(parts))};
  std::optional<OnnxWindow> window =
      windowOf(n, x->type, llvm::ArrayRef<int64_t>(w->type.dims).drop_front(2));
  if (!window)
    return {nullptr};
  const int64_t kernel = window->kernel[0] * window->kernel[1];
  Dims y = {batch, outputs};
  for (size_t axis = 0; axis < 2; ++axis) {
    const int64_t room =
        x->type.dims[2 + axis] + window->low[axis] + window->high[axis] - window->reach(axis);
    if (room < 0)
      return {n.fail("the kernel is larger than the padded input")};
    y.push_back(room / window->strides[axis] + 1);
  }
  const int64_t places = y[2] * y[3];
  if (offset->type.dims != Dims{batch, parts * kernel * 2, y[2], y[3]} || offset->type.dtype != x->type.dtype)
    return {n.fail("the offsets " + print(offset->type) + " do not fit an output of " +
                   print(TensorType{x->type.dtype, y}))};
  // Coordinates on [N, parts, kernel, height, width].
  const Dims samples = {batch, parts, kernel, y[2], y[3]};
  Value *offsets = n.reshape(offset, {batch, parts, kernel, 2, y[2], y[3]});
  std::vector<Taps> axes;
  for (int64_t axis = 0; axis < 2; ++axis) {
    HostTensor start =
        HostTensor::zeros({x->type.dtype, {1, 1, kernel, axis == 0 ? y[2] : 1, axis == 0 ? 1 : y[3]}});
    for (int64_t k = 0; k < kernel; ++k)
      for (int64_t o = 0; o < y[2 + axis]; ++o) {
        const int64_t at = axis == 0 ? k / window->kernel[1] : k % window->kernel[1];
        start.reals[k * y[2 + axis] + o] =
            static_cast<double>(o * window->strides[axis] - window->low[axis] + at * window->dilations[axis]);
      }
    Value *moved = n.add(n.reshape(n.sliceAxis(offsets, 3, axis, 1), samples), n.constant(start));
    axes.push_back(tapsOf(n, moved, x->type.dims[2 + axis], {"linear"}));
  }
  if (n.failed())
    return {nullptr};
  Value *image = n.reshape(n.iota(DType::i64, batch * parts), {batch, parts, 1, 1, 1});
  Value *columns = interpolate(n, rowsOf(n, x, parts), image, axes,
                               llvm::ArrayRef<int64_t>(x->type.dims).drop_front(2), samples);
  if (n.has(4)) {
    if (n.in(4)->type.elements() != TensorType{x->type.dtype, samples}.elements())
      return {
          n.fail("the mask " + print(n.in(4)->type) + " does not fit the offsets " + print(offset->type))};
    Dims column = samples;
    column.push_back(1);
    columns = n.mul(columns, n.reshape(n.in(4), column));
  }
  // [N, parts, kernel, places, C/parts] -> [N, groups, C/groups kernel, places]; w [groups, O/groups,
  // C/groups kernel]
  columns = n.reshape(columns, {batch, parts, kernel, places, channels / parts});
  columns =
      n.reshape(n.transpose(columns, {0, 1, 4, 2, 3}), {batch, groups, channels / groups * kernel, places});
  Value *result = n.matmul(n.reshape(w, {1, groups, outputs / groups, channels / groups * kernel}), columns);
  result = n.reshape(result, y);
  if (!n.has(3))
    return {result};
  if (n.in(3)->type.elements() != outputs)
    return {
        n.fail("the bias " + print(n.in(3)->type) + " does not fit " + std::to_string(outputs) + " outputs")};
  return {n.add(result, n.reshape(n.in(3), {1, outputs, 1, 1}))};
}

} // namespace zerocc
