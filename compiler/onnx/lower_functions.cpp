// Lowerings of the rarer functions, of bits, and of rearrangements of channels and space.

#include "compiler/onnx/lowerings.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>
#include <limits>
#include <numeric>

namespace zerocc {

Values lowerRound(NodeLowering &n) { return {n.unary(OpKind::Round, n.in(0))}; }
Values lowerTan(NodeLowering &n) { return {n.unary(OpKind::Tan, n.in(0))}; }
Values lowerAsin(NodeLowering &n) { return {n.unary(OpKind::Asin, n.in(0))}; }
Values lowerAcos(NodeLowering &n) { return {n.unary(OpKind::Acos, n.in(0))}; }
Values lowerAtan(NodeLowering &n) { return {n.unary(OpKind::Atan, n.in(0))}; }
Values lowerSinh(NodeLowering &n) { return {n.unary(OpKind::Sinh, n.in(0))}; }
Values lowerCosh(NodeLowering &n) { return {n.unary(OpKind::Cosh, n.in(0))}; }
Values lowerAsinh(NodeLowering &n) { return {n.unary(OpKind::Asinh, n.in(0))}; }
Values lowerAcosh(NodeLowering &n) { return {n.unary(OpKind::Acosh, n.in(0))}; }
Values lowerAtanh(NodeLowering &n) { return {n.unary(OpKind::Atanh, n.in(0))}; }

Values lowerBitwiseAnd(NodeLowering &n) { return {n.binary(OpKind::BitAnd, n.in(0), n.in(1))}; }
Values lowerBitwiseOr(NodeLowering &n) { return {n.binary(OpKind::BitOr, n.in(0), n.in(1))}; }
Values lowerBitwiseXor(NodeLowering &n) { return {n.binary(OpKind::BitXor, n.in(0), n.in(1))}; }

Values lowerBitwiseNot(NodeLowering &n) {
  Value *x = n.in(0);
  return {x ? n.binary(OpKind::BitXor, x, n.scalar(x->type.dtype, -1)) : nullptr};
}

Values lowerBitShift(NodeLowering &n) {
  const std::string direction = n.stringAttribute("direction", "");
  if (direction != "LEFT" && direction != "RIGHT")
    return {n.fail("direction is \"" + direction + "\"")};
  return {n.binary(direction == "LEFT" ? OpKind::ShiftLeft : OpKind::ShiftRight, n.in(0), n.in(1))};
}

Values lowerIsInf(NodeLowering &n) {
  Value *x = n.in(0);
  if (!x)
    return {nullptr};
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  auto is = [&](const char *flag, double infinity) -> Value * {
    return n.intAttribute(flag, 1) ? n.compare(x, n.scalar(x->type.dtype, infinity), "eq") : nullptr;
  };
  Value *positive = is("detect_positive", kInfinity), *negative = is("detect_negative", -kInfinity);
  if (positive && negative)
    return {n.binary(OpKind::Or, positive, negative)};
  if (positive || negative)
    return {positive ? positive : negative};
  return {n.filled({DType::boolean, x->type.dims}, 0)};
}

// x + bias below -lambd, x - bias above lambd, else 0
Values lowerShrink(NodeLowering &n) {
  Value *x = n.in(0);
  if (!x)
    return {nullptr};
  const double bias = n.floatAttribute("bias", 0), lambd = n.floatAttribute("lambd", 0.5);
  Value *zero = n.scalar(x->type.dtype, 0);
  Value *above = n.compare(x, n.scalar(x->type.dtype, lambd), "gt");
  Value *below = n.compare(x, n.scalar(x->type.dtype, -lambd), "lt");
  return {n.select(above, n.add(x, -bias), n.select(below, n.add(x, bias), zero))};
}

// x above alpha, else 0
Values lowerThresholdedRelu(NodeLowering &n) {
  Value *x = n.in(0);
  if (!x)
    return {nullptr};
  Value *above = n.compare(x, n.scalar(x->type.dtype, n.floatAttribute("alpha", 1)), "gt");
  return {n.select(above, x, n.scalar(x->type.dtype, 0))};
}

/// Ones on a diagonal, of the shape of the operand.
Values lowerEyeLike(NodeLowering &n) {
  Value *x = n.in(0);
  if (!x)
    return {nullptr};
  if (x->type.rank() != 2)
    return {n.fail("needs a matrix, got " + print(x->type))};
  DType dtype = x->type.dtype;
  if (n.hasAttribute("dtype")) {
    std::optional<DType> asked = dtypeFromOnnx(static_cast<int32_t>(n.intAttribute("dtype", 1)));
    if (!asked)
      return {n.fail("its dtype is not supported")};
    dtype = *asked;
  }
  Value *row = n.reshape(n.iota(DType::i64, x->type.dims[0]), {x->type.dims[0], 1});
  Value *column = n.reshape(n.iota(DType::i64, x->type.dims[1]), {1, x->type.dims[1]});
  Value *isOne = n.compare(column, n.add(row, static_cast<double>(n.intAttribute("k", 0))), "eq");
  return {n.cast(isOne, dtype)};
}

namespace {

/// [N, C, H, W] -> its block size and dims, checked.
std::optional<int64_t> blockSize(NodeLowering &n, Value *x) {
  const int64_t block = n.intAttribute("blocksize", 0);
  if (!x)
    return std::nullopt;
  if (x->type.rank() != 4 || block < 1) {
    n.fail("needs [N, C, H, W] and a block size, got " + print(x->type) + " and " + std::to_string(block));
    return std::nullopt;
  }
  return block;
}

} // namespace

Values lowerDepthToSpace(NodeLowering &n) {
  Value *x = n.in(0);
  std::optional<int64_t> block = blockSize(n, x);
  if (!block)
    return {nullptr};
  const int64_t b = *block, batch = x->type.dims[0], c = x->type.dims[1], h = x->type.dims[2],
                w = x->type.dims[3];
  if (c % (b * b) != 0)
    return {n.fail(std::to_string(c) + " channels are not blocks of " + std::to_string(b * b))};
  const bool columns = n.stringAttribute("mode", "DCR") == "CRD";
  Value *split = columns ? n.reshape(x, {batch, c / (b * b), b, b, h, w})
                         : n.reshape(x, {batch, b, b, c / (b * b), h, w});
  Value *moved = columns ? n.transpose(split, {0, 1, 4, 2, 5, 3}) : n.transpose(split, {0, 3, 4, 1, 5, 2});
  return {n.reshape(moved, {batch, c / (b * b), h * b, w * b})};
}

Values lowerSpaceToDepth(NodeLowering &n) {
  Value *x = n.in(0);
  std::optional<int64_t> block = blockSize(n, x);
  if (!block)
    return {nullptr};
  const int64_t b = *block, batch = x->type.dims[0], c = x->type.dims[1], h = x->type.dims[2],
                w = x->type.dims[3];
  if (h % b != 0 || w % b != 0)
    return {n.fail(print(x->type) + " is not blocks of " + std::to_string(b))};
  Value *split = n.reshape(x, {batch, c, h / b, b, w / b, b});
  return {n.reshape(n.transpose(split, {0, 3, 5, 1, 2, 4}), {batch, c * b * b, h / b, w / b})};
}

/// Crops or pads each axis around its centre.
Values lowerCenterCropPad(NodeLowering &n) {
  Value *x = n.in(0);
  std::optional<std::vector<int64_t>> shape = n.constantInts(1, "the shape");
  if (!x || !shape)
    return {nullptr};
  std::vector<int64_t> axes = n.intsAttribute("axes");
  if (axes.empty()) {
    axes.resize(x->type.dims.size());
    std::iota(axes.begin(), axes.end(), 0);
  }
  if (axes.size() != shape->size())
    return {n.fail("the shape does not fit the axes")};
  const std::vector<int64_t> none(x->type.dims.size(), 0);
  std::vector<int64_t> starts = none, low = none, high = none,
                       sizes(x->type.dims.begin(), x->type.dims.end());
  for (size_t i = 0; i < axes.size(); ++i) {
    std::optional<int64_t> axis = n.normalAxis(axes[i], x->type.rank());
    if (!axis)
      return {nullptr};
    const int64_t from = sizes[*axis], to = (*shape)[i];
    if (to <= from) {
      starts[*axis] = (from - to) / 2;
      sizes[*axis] = to;
    } else {
      low[*axis] = (to - from) / 2;
      high[*axis] = to - from - low[*axis];
    }
  }
  x = n.slice(x, starts, sizes);
  if (low == none && high == none)
    return {x};
  return {n.emit(OpKind::Pad, {x}, {{"low", low}, {"high", high}, {"value", 0.0}})};
}

/// The determinant of matrices up to 4 x 4, by Laplace's expansion.
Values lowerDet(NodeLowering &n) {
  Value *x = n.in(0);
  if (!x)
    return {nullptr};
  const int64_t rank = x->type.rank();
  if (rank < 2 || x->type.dims[rank - 1] != x->type.dims[rank - 2])
    return {n.fail("needs square matrices, got " + print(x->type))};
  const int64_t size = x->type.dims[rank - 1];
  if (size < 1 || size > 4)
    return {n.fail("Det is supported up to 4 x 4, the matrices are " + std::to_string(size) + " x " +
                   std::to_string(size))};
  Dims lead(x->type.dims.begin(), x->type.dims.end() - 2);
  auto element = [&](int64_t row, int64_t column) {
    return n.reshape(n.sliceAxis(n.sliceAxis(x, rank - 2, row, 1), rank - 1, column, 1), lead);
  };
  // Of the rows from `row` on and the columns in `columns`.
  auto determinant = [&](auto &&self, int64_t row, const std::vector<int64_t> &columns) -> Value * {
    if (columns.size() == 1)
      return element(row, columns[0]);
    Value *sum = nullptr;
    for (size_t i = 0; i < columns.size(); ++i) {
      std::vector<int64_t> others = columns;
      others.erase(others.begin() + i);
      Value *term = n.mul(element(row, columns[i]), self(self, row + 1, others));
      sum = !sum ? term : i % 2 ? n.sub(sum, term) : n.add(sum, term);
    }
    return sum;
  };
  std::vector<int64_t> columns(size);
  std::iota(columns.begin(), columns.end(), 0);
  return {determinant(determinant, 0, columns)};
}

// --- windows of signal processing, of known length

namespace {

/// Σ a_k (-1)^k cos(2πki / N), i = 0 … size - 1; N is the size when periodic, else size - 1
Values lowerCosineWindow(NodeLowering &n, std::initializer_list<double> terms) {
  std::optional<int64_t> size = n.constantInt(0, "the size");
  if (!size)
    return {nullptr};
  std::optional<DType> dtype = dtypeFromOnnx(static_cast<int32_t>(n.intAttribute("output_datatype", 1)));
  if (!dtype || !isFloat(*dtype) || *size < 0)
    return {n.fail("its output_datatype is not a float, or its size is negative")};
  const double length = static_cast<double>(n.intAttribute("periodic", 1) ? *size : *size - 1);
  std::vector<double> values(*size, 0);
  for (int64_t i = 0; i < *size; ++i) {
    double sign = 1, k = 0;
    for (double term : terms) {
      values[i] += sign * term * std::cos(2 * M_PI * k * static_cast<double>(i) / length);
      sign = -sign;
      k += 1;
    }
  }
  return {n.constant(HostTensor::real({*dtype, {*size}}, values))};
}

} // namespace

Values lowerHannWindow(NodeLowering &n) { return lowerCosineWindow(n, {0.5, 0.5}); }
Values lowerHammingWindow(NodeLowering &n) { return lowerCosineWindow(n, {25.0 / 46, 21.0 / 46}); }
Values lowerBlackmanWindow(NodeLowering &n) { return lowerCosineWindow(n, {0.42, 0.5, 0.08}); }

} // namespace zerocc
