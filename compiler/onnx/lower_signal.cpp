// Lowerings of signal processing on lengths that are known when compiling.

#include "compiler/onnx/lowerings.h"

#include <cmath>

namespace zerocc {

// X_k = Σ_t x_t e^(∓2πi k t / N): products with the matrices of cosines and sines. Complex numbers are pairs.
Values lowerDft(NodeLowering &n) {
  Value *x = n.in(0);
  if (!x)
    return {nullptr};
  const bool inverse = n.intAttribute("inverse", 0), onesided = n.intAttribute("onesided", 0);
  std::optional<int64_t> given = n.version < 20 ? std::optional<int64_t>(n.intAttribute("axis", 1))
                                 : n.has(2)     ? n.constantInt(2, "the axis")
                                                : std::optional<int64_t>(-2);
  if (!given || x->type.rank() < 2)
    return {n.failed() ? nullptr : n.fail("needs a last axis of real or complex numbers, got " + print(x->type))};
  std::optional<int64_t> axis = n.normalAxis(*given, x->type.rank());
  std::optional<int64_t> length = axis && n.has(1) ? n.constantInt(1, "the length") : std::nullopt;
  if (!axis || n.failed())
    return {nullptr};
  const int64_t last = x->type.rank() - 1, parts = x->type.dims.back();
  if (*axis == last || (parts != 1 && parts != 2))
    return {n.fail("needs a last axis of real or complex numbers, got " + print(x->type))};
  const bool toReal = inverse && onesided; // irfft: the other half is the mirror's conjugate
  const int64_t have = x->type.dims[*axis];
  const int64_t points = length ? *length : toReal ? 2 * (have - 1) : have;
  const int64_t taken = toReal ? points / 2 + 1 : points;
  if (points < 1 || points > 4096)
    return {n.fail("a transform of " + std::to_string(points) + " points is not supported (1 to 4096)")};
  if (taken < have) {
    x = n.sliceAxis(x, *axis, 0, taken);
  } else if (taken > have) {
    std::vector<int64_t> low(x->type.dims.size(), 0), high = low;
    high[*axis] = taken - have;
    x = n.emit(OpKind::Pad, {x}, {{"low", low}, {"high", high}, {"value", 0.0}});
  }
  const int64_t results = onesided && !inverse ? points / 2 + 1 : points;
  // y = x M with rows t, columns k, for the real and imaginary parts
  const DType dtype = x ? x->type.dtype : DType::f32;
  HostTensor cosines = HostTensor::zeros({dtype, {taken, results}}), sines = cosines;
  const double sign = inverse ? 1 : -1, factor = inverse ? 1.0 / static_cast<double>(points) : 1;
  for (int64_t t = 0; t < taken; ++t) {
    const double twice = toReal && t != 0 && 2 * t != points ? 2 : 1;
    for (int64_t k = 0; k < results; ++k) {
      const double angle = 2 * M_PI * static_cast<double>(t * k % points) / static_cast<double>(points);
      cosines.reals[t * results + k] = factor * twice * std::cos(angle);
      sines.reals[t * results + k] = factor * twice * sign * std::sin(angle);
    }
  }
  auto part = [&](int64_t i) { // [..., t], without the axis of parts
    Value *single = n.sliceAxis(x, last, i, 1);
    if (!single)
      return single;
    Dims dims(single->type.dims.begin(), single->type.dims.end() - 1);
    return n.moveLast(n.reshape(single, dims), *axis);
  };
  Value *c = n.constant(cosines), *s = n.constant(sines), *real = part(0);
  Value *re = n.matmul(real, c), *im = n.matmul(real, s);
  if (parts == 2) {
    Value *imaginary = part(1);
    re = n.sub(re, n.matmul(imaginary, s));
    im = n.add(im, n.matmul(imaginary, c));
  }
  auto back = [&](Value *y) {
    Value *placed = moveBack(n, y, *axis);
    if (!placed)
      return placed;
    Dims dims = placed->type.dims;
    dims.push_back(1);
    return n.reshape(placed, dims);
  };
  return {toReal ? back(re) : n.concat({back(re), back(im)}, last)};
}

} // namespace zerocc
