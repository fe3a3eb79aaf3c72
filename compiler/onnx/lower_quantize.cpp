// Lowerings of quantized ops: forward only, as no gradient passes a conversion to integers. All 8-bit
// products are exact: sums of as many as fit into the 24 bits of an f32 are formed in f32 and added up as
// i32.

#include "compiler/onnx/window_of.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>

namespace zerocc {
namespace {

/// Products of two numbers in [-255, 255] whose sum an f32 holds exactly.
constexpr int64_t kExactTerms = (int64_t(1) << 24) / (255 * 255);

/// The least and the greatest number of an integer dtype of up to 16 bits.
std::optional<std::pair<double, double>> rangeOf(DType dtype) {
  switch (dtype) {
  case DType::i8:
    return std::pair(-128.0, 127.0);
  case DType::u8:
    return std::pair(0.0, 255.0);
  case DType::i16:
    return std::pair(-32768.0, 32767.0);
  case DType::u16:
    return std::pair(0.0, 65535.0);
  default:
    return std::nullopt;
  }
}

/// Scale or zero point as f32 that broadcasts against x: one number, one per place along `axis`, or, where
/// there are blocks, one for `block` places along it.
Value *perPlace(NodeLowering &n, Value *scale, const TensorType &x, int64_t axis, int64_t block) {
  if (!scale)
    return nullptr;
  scale = n.cast(scale, DType::f32);
  if (block == 0 && scale->type.rank() <= 1 && scale->type.elements() == 1)
    return n.reshape(scale, {});
  Dims dims(x.rank(), 1);
  if (block == 0) {
    if (scale->type.dims != Dims{x.dims[axis]})
      return n.fail(print(scale->type) + " is neither one number nor one for each place along axis " +
                    std::to_string(axis) + " of " + print(x));
    dims[axis] = x.dims[axis];
    return n.reshape(scale, dims);
  }
  Dims blocks = x.dims;
  blocks[axis] = (x.dims[axis] + block - 1) / block;
  if (scale->type.dims != blocks)
    return n.fail(print(scale->type) + " is not one number for each block of " + std::to_string(block) +
                  " along axis " + std::to_string(axis) + " of " + print(x));
  Dims split(blocks.begin(), blocks.begin() + axis + 1), spread, joined = blocks;
  split.push_back(1);
  split.append(blocks.begin() + axis + 1, blocks.end());
  spread = split;
  spread[axis + 1] = block;
  joined[axis] *= block;
  Value *repeated = n.reshape(n.broadcast(n.reshape(scale, split), spread), joined);
  return n.sliceAxis(repeated, axis, 0, x.dims[axis]);
}

/// The axis and block size of QuantizeLinear and DequantizeLinear.
struct Places {
  int64_t axis = 0, block = 0;
};
std::optional<Places> placesOf(NodeLowering &n, const TensorType &x, const Value *scale) {
  Places places;
  places.block = n.intAttribute("block_size", 0);
  if (places.block < 0) {
    n.fail("block_size is " + std::to_string(places.block));
    return std::nullopt;
  }
  if (places.block == 0 && scale->type.rank() <= 1 && scale->type.elements() == 1)
    return places; // one number fits any axis
  std::optional<int64_t> axis = n.normalAxis(n.intAttribute("axis", 1), x.rank());
  if (!axis)
    return std::nullopt;
  places.axis = *axis;
  return places;
}

/// ⌊quotient⌉ + zero point, within the range of the dtype
Value *saturate(NodeLowering &n, Value *quotient, Value *zeroPoint, DType dtype) {
  auto range = rangeOf(dtype);
  if (!range)
    return n.fail("quantization to " + std::string(dtypeName(dtype)) + " is not supported",
                  "int8, uint8, int16 and uint16 are");
  Value *rounded = n.cast(n.unary(OpKind::Round, quotient), DType::f32);
  if (zeroPoint)
    rounded = n.add(rounded, zeroPoint);
  return n.cast(clip(n, rounded, n.scalar(DType::f32, range->first), n.scalar(DType::f32, range->second)),
                dtype);
}

/// A quantized operand less its zero point, as f32.
Value *centred(NodeLowering &n, Value *x, Value *zeroPoint) {
  if (!x)
    return nullptr;
  if (x->type.dtype != DType::i8 && x->type.dtype != DType::u8)
    return n.fail("operands must be int8 or uint8, got " + print(x->type));
  x = n.cast(x, DType::f32);
  return zeroPoint ? n.sub(x, n.cast(zeroPoint, DType::f32)) : x;
}

/// A vector with an element for each row of a matrix, as a column.
Value *asColumn(NodeLowering &n, Value *perRow) {
  if (!perRow || perRow->type.rank() != 1 || perRow->type.elements() == 1)
    return perRow;
  return n.reshape(perRow, {perRow->type.dims[0], 1});
}

/// The product of two matrices of whole numbers in [-255, 255], as i32.
Value *exactMatmul(NodeLowering &n, Value *a, Value *b) {
  if (!a || !b)
    return nullptr;
  if (a->type.rank() == 0 || b->type.rank() == 0)
    return n.fail("operands must have at least one dim: " + print(a->type) + " and " + print(b->type));
  const int64_t aAxis = a->type.rank() - 1, bAxis = std::max<int64_t>(b->type.rank() - 2, 0),
                depth = a->type.dims[aAxis];
  if (depth != b->type.dims[bAxis])
    return n.fail("inner dimensions differ: left is " + print(a->type) + ", right is " + print(b->type));
  Value *sum = nullptr;
  for (int64_t start = 0; start == 0 || start < depth; start += kExactTerms) {
    const int64_t size = std::min(kExactTerms, depth - start);
    Value *part =
        n.cast(n.matmul(n.sliceAxis(a, aAxis, start, size), n.sliceAxis(b, bAxis, start, size)), DType::i32);
    sum = start == 0 ? part : n.add(sum, part);
  }
  return sum;
}

/// The convolution of x and w, whole numbers in [-255, 255], as i32.
Value *exactConv(NodeLowering &n, Value *x, Value *w) {
  if (!x || !w)
    return nullptr;
  if (x->type.rank() < 3 || w->type.rank() != x->type.rank())
    return n.fail("x and w need equal rank of at least 3: x is " + print(x->type) + ", w is " +
                  print(w->type));
  std::optional<OnnxWindow> window =
      windowOf(n, x->type, llvm::ArrayRef<int64_t>(w->type.dims).drop_front(2));
  if (!window)
    return nullptr;
  const int64_t groups = n.intAttribute("group", 1), channels = w->type.dims[1];
  int64_t taps = 1;
  for (int64_t k : window->kernel)
    taps *= k;
  if (taps > kExactTerms || (groups != 1 && taps * channels > kExactTerms))
    return n.fail("sums of " + std::to_string(taps) + " by " + std::to_string(channels) + " products" +
                  (groups != 1 ? " in groups" : "") + " are not exact here");
  Attributes attributes = window->attributes();
  attributes.set("groups", groups);
  if (groups != 1)
    return n.cast(n.emit(OpKind::Conv, {x, w}, attributes), DType::i32);
  if (x->type.dims[1] != channels)
    return n.fail("channels differ: x is " + print(x->type) + ", w is " + print(w->type));
  Value *sum = nullptr;
  for (int64_t start = 0, most = kExactTerms / taps; start == 0 || start < channels; start += most) {
    const int64_t size = std::min(most, channels - start);
    Value *part =
        n.emit(OpKind::Conv, {n.sliceAxis(x, 1, start, size), n.sliceAxis(w, 1, start, size)}, attributes);
    part = n.cast(part, DType::i32);
    sum = start == 0 ? part : n.add(sum, part);
  }
  return sum;
}

/// A vector with an element for each output channel, to go with w or, with `inResult`, with the result.
Value *perOutput(NodeLowering &n, Value *vector, const Value *w, bool inResult) {
  if (!vector || !w || vector->type.elements() == 1)
    return vector ? n.reshape(vector, {}) : nullptr;
  if (vector->type.dims != Dims{w->type.dims[0]})
    return n.fail(print(vector->type) + " is not one number for each output of " + print(w->type));
  Dims dims(w->type.rank(), 1);
  dims[inResult ? 1 : 0] = w->type.dims[0];
  return n.reshape(vector, dims);
}

Value *optional(NodeLowering &n, int operand) { return n.has(operand) ? n.in(operand) : nullptr; }

/// A whole product with the scales aScale bScale of its operands, quantized anew.
Value *requantize(NodeLowering &n, Value *product, Value *aScale, Value *bScale, Value *yScale,
                  Value *yZeroPoint) {
  if (!product || !aScale || !bScale || !yScale || !yZeroPoint)
    return nullptr;
  Value *factor =
      n.div(n.mul(n.cast(aScale, DType::f32), n.cast(bScale, DType::f32)), n.cast(yScale, DType::f32));
  return saturate(n, n.mul(n.cast(product, DType::f32), factor), n.cast(yZeroPoint, DType::f32),
                  yZeroPoint->type.dtype);
}

} // namespace

// y = saturate(⌊x / scale⌉ + zero point), ties to even
Values lowerQuantizeLinear(NodeLowering &n) {
  Value *x = n.in(0), *scale = n.in(1), *zeroPoint = optional(n, 2);
  if (!x || !scale)
    return {nullptr};
  std::optional<DType> to =
      zeroPoint ? std::optional<DType>(zeroPoint->type.dtype) : std::optional<DType>(DType::u8);
  const auto asked = static_cast<int32_t>(n.intAttribute("output_dtype", 0));
  if (asked != 0 && !zeroPoint)
    to = dtypeFromOnnx(asked);
  if (!to)
    return {n.fail("quantization to " + onnxTypeName(asked) + " is not supported",
                   "int8, uint8, int16 and uint16 are")};
  std::optional<DType> precision = scale->type.dtype;
  if (const auto named = static_cast<int32_t>(n.intAttribute("precision", 0)); named != 0)
    precision = dtypeFromOnnx(named);
  if (!precision || !isFloat(*precision))
    precision = DType::f32;
  std::optional<Places> places = placesOf(n, x->type, scale);
  if (!places)
    return {nullptr};
  Value *divisor = n.cast(perPlace(n, scale, x->type, places->axis, places->block), *precision);
  Value *centre = zeroPoint ? perPlace(n, zeroPoint, x->type, places->axis, places->block) : nullptr;
  return {saturate(n, n.div(n.cast(x, *precision), divisor), centre, *to)};
}

// y = (x - zero point) scale
Values lowerDequantizeLinear(NodeLowering &n) {
  Value *x = n.in(0), *scale = n.in(1), *zeroPoint = optional(n, 2);
  if (!x || !scale)
    return {nullptr};
  std::optional<DType> to = scale->type.dtype;
  const auto asked = static_cast<int32_t>(n.intAttribute("output_dtype", 0));
  if (asked != 0)
    to = dtypeFromOnnx(asked);
  std::optional<Places> places = placesOf(n, x->type, scale);
  if (!places)
    return {nullptr};
  if (!to || !isFloat(*to))
    return {n.fail("its output_dtype is no float that is supported")};
  Value *y = n.cast(x, DType::f32);
  if (zeroPoint)
    y = n.sub(y, perPlace(n, zeroPoint, x->type, places->axis, places->block));
  return {n.cast(n.mul(y, perPlace(n, scale, x->type, places->axis, places->block)), *to)};
}

/// To uint8, with the scale and zero point that the range of x, with 0 in it, asks for.
Values lowerDynamicQuantizeLinear(NodeLowering &n) {
  Value *x = n.in(0);
  if (!x)
    return {nullptr};
  if (x->type.dtype != DType::f32 || x->type.elements() == 0)
    return {n.fail("needs a float tensor that is not empty, got " + print(x->type))};
  Value *flat = n.reshape(x, {x->type.elements()}), *zero = n.scalar(DType::f32, 0),
        *one = n.scalar(DType::f32, 1);
  Value *greatest = n.binary(OpKind::Max, n.reduceMax(flat, {0}), zero);
  Value *least = n.unary(OpKind::Neg, n.reduceMax(n.unary(OpKind::Neg, flat), {0}));
  least = n.binary(OpKind::Min, least, zero);
  Value *span = n.sub(greatest, least);
  span = n.select(n.compare(span, zero, "eq"), one, span); // all zeros: any scale does
  Value *scale = n.div(span, 255.0);
  Value *zeroPoint = saturate(n, n.unary(OpKind::Neg, n.div(least, scale)), nullptr, DType::u8);
  return {saturate(n, n.div(x, scale), n.cast(zeroPoint, DType::f32), DType::u8), scale, zeroPoint};
}

Values lowerMatMulInteger(NodeLowering &n) {
  Value *a = centred(n, n.in(0), asColumn(n, optional(n, 2)));
  Value *b = centred(n, n.in(1), optional(n, 3));
  return {exactMatmul(n, a, b)};
}

Values lowerQLinearMatMul(NodeLowering &n) {
  Value *a = centred(n, n.in(0), asColumn(n, n.in(2)));
  Value *b = centred(n, n.in(3), n.in(5));
  return {requantize(n, exactMatmul(n, a, b), asColumn(n, n.in(1)), n.in(4), asColumn(n, n.in(6)),
                     asColumn(n, n.in(7)))};
}

Values lowerConvInteger(NodeLowering &n) {
  Value *w = n.in(1);
  Value *x = centred(n, n.in(0), n.has(2) ? n.reshape(n.in(2), {}) : nullptr);
  return {exactConv(n, x, centred(n, w, n.has(3) ? perOutput(n, n.in(3), w, false) : nullptr))};
}

Values lowerQLinearConv(NodeLowering &n) {
  Value *w = n.in(3), *xZeroPoint = n.in(2), *yZeroPoint = n.in(7), *yScale = n.in(6);
  if (!w || !xZeroPoint || !yZeroPoint || !yScale)
    return {nullptr};
  Value *x = centred(n, n.in(0), n.reshape(xZeroPoint, {}));
  Value *product = exactConv(n, x, centred(n, w, perOutput(n, n.in(5), w, false)));
  if (n.has(8))
    product = n.add(product, perOutput(n, n.in(8), w, true));
  return {requantize(n, product, n.reshape(n.in(1), {}), perOutput(n, n.in(4), w, true),
                     n.reshape(yScale, {}), n.reshape(yZeroPoint, {}))};
}

} // namespace zerocc
