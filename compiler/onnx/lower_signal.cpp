// Lowerings of signal processing on lengths that are known when compiling.

#include "compiler/onnx/lowerings.h"

#include <cmath>

namespace zerocc {

/// X_k = Σ_t x_t e^(∓2πi k t / N) along `axis`, of `length` points where it is given: products with the
/// matrices of cosines and sines. Complex numbers are pairs in a last axis of 2; one of 1 holds real numbers.
static Value *transform(NodeLowering &n, Value *x, int64_t axis, std::optional<int64_t> length, bool inverse,
                        bool onesided) {
  if (!x)
    return nullptr;
  const int64_t last = x->type.rank() - 1, parts = x->type.dims.back();
  if (axis == last || (parts != 1 && parts != 2))
    return n.fail("needs a last axis of real or complex numbers, got " + print(x->type));
  const bool toReal = inverse && onesided; // irfft: the other half is the mirror's conjugate
  const int64_t have = x->type.dims[axis];
  const int64_t points = length ? *length : toReal ? 2 * (have - 1) : have;
  const int64_t taken = toReal ? points / 2 + 1 : points;
  if (points < 1 || points > 4096)
    return n.fail("a transform of " + std::to_string(points) + " points is not supported (1 to 4096)");
  if (taken < have) {
    x = n.sliceAxis(x, axis, 0, taken);
  } else if (taken > have) {
    std::vector<int64_t> low(x->type.dims.size(), 0), high = low;
    high[axis] = taken - have;
    x = n.emit(OpKind::Pad, {x}, {{"low", low}, {"high", high}, {"value", 0.0}});
  }
  const int64_t results = onesided && !inverse ? points / 2 + 1 : points;
  // y = x M with rows t and columns k. The matrices are gathered from the N numbers they hold.
  const DType dtype = x ? x->type.dtype : DType::f32;
  HostTensor cosines = HostTensor::zeros({dtype, {points}}), sines = cosines;
  const double sign = inverse ? 1 : -1, factor = inverse ? 1.0 / static_cast<double>(points) : 1;
  for (int64_t i = 0; i < points; ++i) {
    const double angle = 2 * M_PI * static_cast<double>(i) / static_cast<double>(points);
    cosines.reals[i] = factor * std::cos(angle);
    sines.reals[i] = factor * sign * std::sin(angle);
  }
  Value *turns = n.mul(n.reshape(n.iota(DType::i64, taken), {taken, 1}), n.iota(DType::i64, results));
  turns = n.binary(OpKind::Mod, turns, static_cast<double>(points));
  if (toReal) { // what the mirror adds
    HostTensor twice = HostTensor::zeros({dtype, {taken}});
    for (int64_t t = 0; t < taken; ++t)
      twice.reals[t] = t != 0 && 2 * t != points ? 2 : 1;
    Dims along(last + 1, 1);
    along[axis] = taken;
    x = n.mul(x, n.reshape(n.constant(twice), along));
  }
  auto part = [&](int64_t i) { // [..., t], without the axis of parts
    Value *single = n.sliceAxis(x, last, i, 1);
    if (!single)
      return single;
    Dims dims(single->type.dims.begin(), single->type.dims.end() - 1);
    return n.moveLast(n.reshape(single, dims), axis);
  };
  Value *c = n.gather(n.constant(cosines), turns, 0), *s = n.gather(n.constant(sines), turns, 0),
        *real = part(0);
  Value *re = n.matmul(real, c), *im = n.matmul(real, s);
  if (parts == 2) {
    Value *imaginary = part(1);
    re = n.sub(re, n.matmul(imaginary, s));
    im = n.add(im, n.matmul(imaginary, c));
  }
  auto back = [&](Value *y) {
    Value *placed = moveBack(n, y, axis);
    if (!placed)
      return placed;
    Dims dims = placed->type.dims;
    dims.push_back(1);
    return n.reshape(placed, dims);
  };
  return toReal ? back(re) : n.concat({back(re), back(im)}, last);
}

Values lowerDft(NodeLowering &n) {
  Value *x = n.in(0);
  if (!x)
    return {nullptr};
  std::optional<int64_t> given = n.version < 20 ? std::optional<int64_t>(n.intAttribute("axis", 1))
                                 : n.has(2)     ? n.constantInt(2, "the axis")
                                                : std::optional<int64_t>(-2);
  if (!given || x->type.rank() < 2)
    return {n.failed() ? nullptr
                       : n.fail("needs a last axis of real or complex numbers, got " + print(x->type))};
  std::optional<int64_t> axis = n.normalAxis(*given, x->type.rank());
  std::optional<int64_t> length = axis && n.has(1) ? n.constantInt(1, "the length") : std::nullopt;
  if (!axis || n.failed())
    return {nullptr};
  return {transform(n, x, *axis, length, n.intAttribute("inverse", 0), n.intAttribute("onesided", 0))};
}

/// Transforms of frames of a signal [batch, length, 1 or 2], `step` apart and weighted by a window.
Values lowerStft(NodeLowering &n) {
  Value *signal = n.in(0);
  std::optional<int64_t> step = n.constantInt(1, "the step between frames"), length;
  if (!signal || !step)
    return {nullptr};
  if (signal->type.rank() == 2) // real numbers may come without the last axis
    signal = n.reshape(signal, {signal->type.dims[0], signal->type.dims[1], 1});
  if (signal->type.rank() != 3)
    return {n.fail("needs a signal [batch, length, 1 or 2], got " + print(signal->type))};
  Value *window = n.has(2) ? n.in(2) : nullptr;
  const int64_t all = signal->type.dims[1];
  if (n.has(3))
    length = n.constantInt(3, "the length of a frame");
  else
    length = window ? window->type.elements() : all;
  if (!length || n.failed())
    return {nullptr};
  if (*step < 1 || *length < 1 || *length > all)
    return {n.fail("frames of " + std::to_string(*length) + " every " + std::to_string(*step) +
                   " do not fit " + print(signal->type))};
  if (window && window->type.dims != Dims{*length})
    return {n.fail("the window " + print(window->type) + " is not as long as a frame, " +
                   std::to_string(*length))};
  const bool onesided = n.intAttribute("onesided", 1);
  if (onesided && signal->type.dims[2] == 2)
    return {n.fail("a complex signal has no onesided transform")};
  const int64_t frames = (all - *length) / *step + 1;
  Value *starts = n.mul(n.reshape(n.iota(DType::i64, frames), {frames, 1}), static_cast<double>(*step));
  Value *x =
      n.gather(signal, n.add(starts, n.iota(DType::i64, *length)), 1); // [batch, frames, length, parts]
  if (window)
    x = n.mul(x, n.reshape(window, {*length, 1}));
  return {transform(n, x, 2, std::nullopt, false, onesided)};
}

/// [points / 2 + 1, bins]: triangles that lie evenly on the mel scale, 2595 log10(1 + f / 700).
Values lowerMelWeightMatrix(NodeLowering &n) {
  constexpr int64_t kMost = 1 << 16;
  std::optional<int64_t> bins = n.constantInt(0, "the number of bins"),
                         points = n.constantInt(1, "the length"), rate = n.constantInt(2, "the sample rate");
  std::optional<double> low = n.constantNumber(n.in(3)), high = n.constantNumber(n.in(4));
  std::optional<DType> dtype = dtypeFromOnnx(static_cast<int32_t>(n.intAttribute("output_datatype", 1)));
  if (n.failed() || !bins || !points || !rate)
    return {nullptr};
  if (!low || !high)
    return {n.fail("the edges must be known when compiling")};
  if (!dtype || !isFloat(*dtype) || *bins < 1 || *bins > kMost || *points < 1 || *points > kMost ||
      *rate < 1 || !(*low >= 0 && *high >= *low))
    return {n.fail("its output_datatype is not a float, or its operands are out of range")};
  const int64_t rows = *points / 2 + 1;
  auto mel = [](double hertz) { return 2595 * std::log10(1 + hertz / 700); };
  const double start = mel(*low), step = (mel(*high) - start) / static_cast<double>(*bins + 2);
  std::vector<int64_t> edges;
  for (int64_t i = 0; i < *bins + 2; ++i) {
    const double hertz = 700 * (std::pow(10, (start + static_cast<double>(i) * step) / 2595) - 1);
    edges.push_back(static_cast<int64_t>(
        std::floor(static_cast<double>(*points + 1) * hertz / static_cast<double>(*rate))));
  }
  if (edges.back() > rows || edges[*bins] >= rows)
    return {n.fail("the upper edge lies above half the sample rate")};
  if (rows * *bins > kMaxFoldedElements)
    return {n.fail(std::to_string(rows) + " by " + std::to_string(*bins) + " weights are too many")};
  std::vector<double> weights(rows * *bins, 0);
  for (int64_t bin = 0; bin < *bins; ++bin) {
    const int64_t left = edges[bin], centre = edges[bin + 1], right = edges[bin + 2];
    if (left == centre)
      weights[centre * *bins + bin] = 1;
    for (int64_t at = left; at <= centre && left < centre; ++at)
      weights[at * *bins + bin] = static_cast<double>(at - left) / static_cast<double>(centre - left);
    for (int64_t at = centre; at < right; ++at)
      weights[at * *bins + bin] = static_cast<double>(right - at) / static_cast<double>(right - centre);
  }
  return {n.constant(HostTensor::real({*dtype, {rows, *bins}}, weights))};
}

} // namespace zerocc
