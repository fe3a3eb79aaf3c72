// Shape rules of the ops along the last axis, by index, and of randomness.

#include "compiler/ops/shape_common.h"

namespace zerocc {

static Status needLastAxisOfNumbers(const TensorType &x) {
  if (x.dtype == DType::u64)
    return refuse("u64 is not compared here: cast ", print(x), " first");
  if (x.rank() == 0 || x.dtype == DType::boolean)
    return refuse("needs numbers with at least one axis, got ", print(x));
  return success();
}

Expected<ResultTypes> argMaxShape(const ShapeQuery &q) {
  const TensorType &x = q.inputs[0];
  ZEROCC_TRY(needLastAxisOfNumbers(x));
  if (x.dims.back() == 0)
    return refuse("the last axis of ", print(x), " is empty and has no greatest element");
  return one({DType::i64, Dims(x.dims.begin(), x.dims.end() - 1)});
}

Expected<ResultTypes> topKShape(const ShapeQuery &q) {
  const TensorType &x = q.inputs[0];
  ZEROCC_TRY(needLastAxisOfNumbers(x));
  ZEROCC_TRY(needAttributes(q, {"k"}));
  const int64_t k = q.attributes.getInt("k");
  if (k < 0 || k > x.dims.back())
    return refuse("k is ", text(k), ", the last axis of ", print(x), " has ", text(x.dims.back()),
                  " elements");
  Dims dims = x.dims;
  dims.back() = k;
  return ResultTypes{{x.dtype, dims}, {DType::i64, dims}};
}

Expected<ResultTypes> cumulativeShape(const ShapeQuery &q) {
  ZEROCC_ASSIGN(TensorType type, commonType(q));
  ZEROCC_TRY(needLastAxisOfNumbers(type));
  return one(type);
}

Expected<ResultTypes> scatterShape(const ShapeQuery &q) {
  const TensorType &data = q.inputs[0], &indices = q.inputs[1], &updates = q.inputs[2];
  ZEROCC_TRY(needAttributes(q, {"reduction"}));
  const std::string reduction = q.attributes.getString("reduction");
  if (reduction != "none" && reduction != "mul" && reduction != "max" && reduction != "min")
    return refuse("reduction must be none, mul, max or min, is \"", reduction, "\"");
  if (!isIndex(indices.dtype) || indices.rank() != 1)
    return refuse("indices must be i64[m] or i32[m], are ", print(indices));
  if (data.rank() == 0)
    return refuse("data needs at least one axis, is ", print(data));
  if ((data.dtype == DType::boolean || data.dtype == DType::u64) && reduction != "none")
    return refuse("reduction ", reduction, " is not for ", print(data));
  Dims rows = data.dims;
  rows[0] = indices.dims[0];
  ZEROCC_TRY(needType("updates", updates, data.dtype, rows));
  return one(data);
}

// --- randomness

/// `random` is i64[3]: seed, step, micro-batch.
static Status needRandom(const ShapeQuery &q, const TensorType &random) {
  ZEROCC_TRY(needType("random", random, DType::i64, {3}));
  ZEROCC_TRY(needAttributes(q, {"rate", "id"}));
  const double rate = q.attributes.getFloat("rate");
  if (!(rate >= 0 && rate < 1))
    return refuse("rate must be at least 0 and below 1, is ", std::to_string(rate));
  if (q.attributes.getInt("id") < 0)
    return refuse("id must not be negative");
  return success();
}

Expected<ResultTypes> dropoutShape(const ShapeQuery &q) {
  ZEROCC_TRY(needFloat(q.inputs[0]));
  ZEROCC_TRY(needRandom(q, q.inputs[1]));
  return one(q.inputs[0]);
}

Expected<ResultTypes> keepMaskShape(const ShapeQuery &q) {
  ZEROCC_TRY(needRandom(q, q.inputs[0]));
  ZEROCC_ASSIGN(Dims dims, shapeAttribute(q));
  return one({DType::boolean, dims});
}

} // namespace zerocc
