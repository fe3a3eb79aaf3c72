// Shape rules of convolution and pooling. Operands are [batch, channels, spatial…]; `low` and `high` pad each
// spatial axis; an output axis has ⌊(size + low + high - ((kernel - 1) dilation + 1)) / stride⌋ + 1 elements.

#include "compiler/ops/shape_common.h"

namespace zerocc {
namespace {

/// The attributes of one window op, checked: one entry per spatial axis.
struct Window {
  std::vector<int64_t> strides, low, high, dilations;
};

Status needEntries(const ShapeQuery &q, const char *name, int64_t count, int64_t least) {
  ZEROCC_TRY(needAttributes(q, {name}));
  const std::vector<int64_t> list = q.attributes.getInts(name);
  if (static_cast<int64_t>(list.size()) != count)
    return refuse(name, " needs ", text(count), " entries, one per spatial axis, got ", text(list));
  for (int64_t entry : list)
    if (entry < least || entry > (int64_t(1) << 31))
      return refuse(name, " must be at least ", text(least), " and at most 2^31: ", text(list));
  return success();
}

Expected<Window> windowOf(const ShapeQuery &q, int64_t spatial) {
  if (spatial < 1 || spatial > 3)
    return refuse("needs one to three spatial axes behind batch and channels, has ", text(spatial));
  ZEROCC_TRY(needEntries(q, "strides", spatial, 1));
  ZEROCC_TRY(needEntries(q, "low", spatial, 0));
  ZEROCC_TRY(needEntries(q, "high", spatial, 0));
  ZEROCC_TRY(needEntries(q, "dilations", spatial, 1));
  return Window{q.attributes.getInts("strides"), q.attributes.getInts("low"), q.attributes.getInts("high"),
                q.attributes.getInts("dilations")};
}

/// Output dims behind [batch, channels] for input dims `x` and kernel dims `kernel`.
Expected<Dims> slideOver(llvm::ArrayRef<int64_t> x, llvm::ArrayRef<int64_t> kernel, const Window &window) {
  Dims out;
  for (size_t i = 0; i < x.size(); ++i) {
    if (kernel[i] < 1)
      return refuse("the kernel is empty: ", text(kernel));
    const __int128 reach = static_cast<__int128>(kernel[i] - 1) * window.dilations[i] + 1;
    const __int128 room = static_cast<__int128>(x[i]) + window.low[i] + window.high[i] - reach;
    if (room < 0)
      return refuse("the kernel ", text(kernel), " is larger than the padded input on spatial axis ",
                    text(static_cast<int64_t>(i)));
    out.push_back(static_cast<int64_t>(room / window.strides[i]) + 1);
  }
  return out;
}

/// What conv and its two gradients have in common: the type of y for x and w.
Expected<TensorType> convResult(const ShapeQuery &q, const TensorType &x, const TensorType &w) {
  ZEROCC_TRY(needFloat(x));
  if (w.dtype != x.dtype)
    return refuse("operand dtypes differ: ", print(x), " and ", print(w));
  if (x.rank() < 3 || w.rank() != x.rank())
    return refuse("x and w need equal rank of at least 3: x is ", print(x), ", w is ", print(w));
  ZEROCC_ASSIGN(Window window, windowOf(q, x.rank() - 2));
  const int64_t groups = q.attributes.getInt("groups", 1);
  if (groups < 1 || w.dims[0] % groups != 0 || x.dims[1] % groups != 0 || x.dims[1] / groups != w.dims[1])
    return refuse("channels do not fit: x is ", text(x.dims), ", w is ", text(w.dims), ", groups ",
                  text(groups));
  ZEROCC_ASSIGN(Dims spatial, slideOver(llvm::ArrayRef<int64_t>(x.dims).drop_front(2),
                                        llvm::ArrayRef<int64_t>(w.dims).drop_front(2), window));
  Dims dims = {x.dims[0], w.dims[0]};
  dims.append(spatial.begin(), spatial.end());
  return TensorType{x.dtype, dims};
}

Expected<TensorType> poolResult(const ShapeQuery &q, const TensorType &x) {
  if (x.rank() < 3)
    return refuse("needs batch, channels and spatial axes, got ", print(x));
  if (x.dtype == DType::boolean)
    return refuse("needs numbers, got ", print(x));
  ZEROCC_ASSIGN(Window window, windowOf(q, x.rank() - 2));
  ZEROCC_TRY(needEntries(q, "kernel", x.rank() - 2, 1));
  const std::vector<int64_t> kernel = q.attributes.getInts("kernel");
  ZEROCC_ASSIGN(Dims spatial, slideOver(llvm::ArrayRef<int64_t>(x.dims).drop_front(2), kernel, window));
  Dims dims = {x.dims[0], x.dims[1]};
  dims.append(spatial.begin(), spatial.end());
  return TensorType{x.dtype, dims};
}

} // namespace

// x [N,C,…], w [O,C/groups,k…] -> [N,O,…]
Expected<ResultTypes> convShape(const ShapeQuery &q) {
  ZEROCC_ASSIGN(TensorType y, convResult(q, q.inputs[0], q.inputs[1]));
  return one(y);
}

// dy, w -> dx of dims `shape`
Expected<ResultTypes> convDataGradShape(const ShapeQuery &q) {
  ZEROCC_ASSIGN(Dims dims, shapeAttribute(q));
  const TensorType x{q.inputs[0].dtype, dims};
  ZEROCC_ASSIGN(TensorType y, convResult(q, x, q.inputs[1]));
  ZEROCC_TRY(needType("dy", q.inputs[0], y.dtype, y.dims));
  return one(x);
}

// x, dy -> dw of dims `shape`
Expected<ResultTypes> convWeightGradShape(const ShapeQuery &q) {
  ZEROCC_ASSIGN(Dims dims, shapeAttribute(q));
  const TensorType w{q.inputs[0].dtype, dims};
  ZEROCC_ASSIGN(TensorType y, convResult(q, q.inputs[0], w));
  ZEROCC_TRY(needType("dy", q.inputs[1], y.dtype, y.dims));
  return one(w);
}

// x -> y; max_pool wants every window to hold an element of x
Expected<ResultTypes> poolShape(const ShapeQuery &q) {
  ZEROCC_ASSIGN(TensorType y, poolResult(q, q.inputs[0]));
  return one(y);
}

// x -> i64: where in x's spatial axes, flattened, the greatest element of each window lies
Expected<ResultTypes> maxPoolIndexShape(const ShapeQuery &q) {
  ZEROCC_ASSIGN(TensorType y, poolResult(q, q.inputs[0]));
  return one({DType::i64, y.dims});
}

// x, dy -> dx
Expected<ResultTypes> maxPoolGradShape(const ShapeQuery &q) {
  ZEROCC_ASSIGN(TensorType y, poolResult(q, q.inputs[0]));
  ZEROCC_TRY(needType("dy", q.inputs[1], y.dtype, y.dims));
  return one(q.inputs[0]);
}

// dy -> dx of dims `shape`
Expected<ResultTypes> sumPoolGradShape(const ShapeQuery &q) {
  ZEROCC_ASSIGN(Dims dims, shapeAttribute(q));
  const TensorType x{q.inputs[0].dtype, dims};
  ZEROCC_ASSIGN(TensorType y, poolResult(q, x));
  ZEROCC_TRY(needType("dy", q.inputs[0], y.dtype, y.dims));
  return one(x);
}

} // namespace zerocc
