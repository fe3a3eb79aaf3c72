// Lowerings of reductions. Axes are an attribute in old opsets and an operand in new ones (13 for ReduceSum,
// 18 for the others); core reductions remove their axes, so keepdims is a reshape.

#include "compiler/onnx/lowerings.h"

#include "llvm/ADT/STLExtras.h"

#include <limits>
#include <numeric>

namespace zerocc {
namespace {

struct Reduction {
  Value *x = nullptr;
  std::vector<int64_t> axes;
  Dims resultDims;
  int64_t count = 1; // elements that meet in one
};

std::optional<Reduction> reductionOf(NodeLowering &n, int64_t axesSince) {
  Reduction reduction;
  reduction.x = n.in(0);
  std::optional<std::vector<int64_t>> axes = n.intsOperandOrAttribute("axes", 1, axesSince);
  if (!reduction.x || n.failed())
    return std::nullopt;
  int64_t rank = reduction.x->type.rank();
  bool noneMeansNone = n.version >= axesSince && n.intAttribute("noop_with_empty_axes", 0);
  if (!axes || axes->empty()) {
    axes.emplace(noneMeansNone ? 0 : rank);
    std::iota(axes->begin(), axes->end(), 0);
  }
  if (!(axes = n.normalAxes(*axes, rank)))
    return std::nullopt;
  reduction.axes = *axes;
  bool keep = n.intAttribute("keepdims", 1);
  for (int64_t i = 0, next = 0; i < rank; ++i) {
    bool reduced = next < static_cast<int64_t>(axes->size()) && (*axes)[next] == i;
    next += reduced;
    reduction.count *= reduced ? reduction.x->type.dims[i] : 1;
    if (!reduced || keep)
      reduction.resultDims.push_back(reduced ? 1 : reduction.x->type.dims[i]);
  }
  return reduction;
}

constexpr int64_t kSumAxesSince = 13, kOtherAxesSince = 18;

template <typename F> Values reduceSumOf(NodeLowering &n, int64_t axesSince, F before) {
  std::optional<Reduction> r = reductionOf(n, axesSince);
  if (!r)
    return {nullptr};
  return {n.reshape(n.reduceSum(before(r->x), r->axes), r->resultDims)};
}

Values mapFirst(Values values, NodeLowering &n, OpKind op) { return {n.unary(op, values[0])}; }

} // namespace

Values lowerReduceSum(NodeLowering &n) {
  return reduceSumOf(n, kSumAxesSince, [](Value *x) { return x; });
}

Values lowerReduceMean(NodeLowering &n) {
  std::optional<Reduction> r = reductionOf(n, kOtherAxesSince);
  if (!r)
    return {nullptr};
  Value *sum = n.reshape(n.reduceSum(r->x, r->axes), r->resultDims);
  return {r->count == 1 ? sum : n.div(sum, static_cast<double>(r->count))};
}

Values lowerReduceSumSquare(NodeLowering &n) {
  return reduceSumOf(n, kOtherAxesSince, [&](Value *x) { return n.mul(x, x); });
}

Values lowerReduceL1(NodeLowering &n) {
  return reduceSumOf(n, kOtherAxesSince, [&](Value *x) { return n.unary(OpKind::Abs, x); });
}

Values lowerReduceL2(NodeLowering &n) { return mapFirst(lowerReduceSumSquare(n), n, OpKind::Sqrt); }

Values lowerReduceLogSum(NodeLowering &n) {
  return mapFirst(reduceSumOf(n, kOtherAxesSince, [](Value *x) { return x; }), n, OpKind::Log);
}

/// The greatest or least element. Of none it is the least or greatest number there is; of booleans whether
/// one, or every one, is true. `axes` lie in x; the result lacks them.
static Value *extreme(NodeLowering &n, Value *x, llvm::ArrayRef<int64_t> axes, bool isLeast) {
  if (!x)
    return nullptr;
  const DType dtype = x->type.dtype;
  if (llvm::any_of(axes, [&](int64_t axis) { return x->type.dims[axis] == 0; })) {
    if (!isFloat(dtype))
      return n.fail("an axis of " + print(x->type) + " is empty and has no greatest or least element");
    Dims dims;
    for (int64_t i = 0; i < x->type.rank(); ++i)
      if (!llvm::is_contained(axes, i))
        dims.push_back(x->type.dims[i]);
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    return n.filled({dtype, dims}, isLeast ? kInfinity : -kInfinity);
  }
  if (dtype == DType::boolean)
    return n.cast(extreme(n, n.cast(x, DType::i32), axes, isLeast), DType::boolean);
  if (!isLeast)
    return n.reduceMax(x, axes);
  // min x = -max -x; of integers ~max ~x, as the least of them has no negative, and unsigned ones have none.
  auto mirror = [&](Value *value) {
    return isFloat(dtype) ? n.unary(OpKind::Neg, value)
           : value        ? n.binary(OpKind::BitXor, value, n.scalar(dtype, -1))
                          : nullptr;
  };
  return mirror(n.reduceMax(mirror(x), axes));
}

Values lowerReduceMax(NodeLowering &n) {
  std::optional<Reduction> r = reductionOf(n, kOtherAxesSince);
  return {r ? n.reshape(extreme(n, r->x, r->axes, false), r->resultDims) : nullptr};
}

Values lowerReduceMin(NodeLowering &n) {
  std::optional<Reduction> r = reductionOf(n, kOtherAxesSince);
  return {r ? n.reshape(extreme(n, r->x, r->axes, true), r->resultDims) : nullptr};
}

static double lowestFinite(DType dtype) {
  return dtype == DType::f64   ? std::numeric_limits<double>::lowest()
         : dtype == DType::f16 ? -65504.0
                               : -0x1.fep127; // of f32 and bf16
}

// ln Σ e^x = m + ln Σ e^(x - m), m = max x
Values lowerReduceLogSumExp(NodeLowering &n) {
  std::optional<Reduction> r = reductionOf(n, kOtherAxesSince);
  if (!r)
    return {nullptr};
  Value *greatest = extreme(n, r->x, r->axes, false);
  if (!greatest)
    return {nullptr};
  if (r->count == 0)
    return {n.reshape(greatest, r->resultDims)}; // ln 0
  Dims kept = r->x->type.dims;
  for (int64_t axis : r->axes)
    kept[axis] = 1;
  greatest = n.binary(OpKind::Max, greatest, lowestFinite(r->x->type.dtype)); // -inf - -inf would be NaN
  Value *shifted = n.sub(r->x, n.reshape(greatest, kept));
  Value *sum = n.reduceSum(n.unary(OpKind::Exp, shifted), r->axes);
  return {n.reshape(n.add(greatest, n.unary(OpKind::Log, sum)), r->resultDims)};
}

/// The last of the cumulated products along the reduced axes as one; integers that are known are multiplied
/// here.
Values lowerReduceProd(NodeLowering &n) {
  std::optional<Reduction> r = reductionOf(n, kOtherAxesSince);
  if (!r)
    return {nullptr};
  if (r->count == 0)
    return {n.filled({r->x->type.dtype, r->resultDims}, 1)};
  const HostTensor *x =
      isFloat(r->x->type.dtype) || r->count != r->x->type.elements() ? nullptr : n.host(r->x);
  if (x) {
    int64_t product = 1;
    for (int64_t value : x->integers)
      if (__builtin_mul_overflow(product, value, &product))
        return {n.fail("the product overflows")};
    return {n.constant(HostTensor::integer({x->type.dtype, r->resultDims}, {product}))};
  }
  std::vector<int64_t> permutation;
  Dims rows;
  for (int64_t axis = 0; axis < r->x->type.rank(); ++axis)
    if (!llvm::is_contained(r->axes, axis)) {
      permutation.push_back(axis);
      rows.push_back(r->x->type.dims[axis]);
    }
  permutation.insert(permutation.end(), r->axes.begin(), r->axes.end());
  rows.push_back(r->count);
  Value *products = n.emit(OpKind::CumProd, {n.reshape(n.transpose(r->x, permutation), rows)});
  return {n.reshape(n.sliceAxis(products, static_cast<int64_t>(rows.size()) - 1, r->count - 1, 1),
                    r->resultDims)};
}

} // namespace zerocc
