#include "compiler/ops/shape_common.h"

#include "runtime/plan/optimizers.h"
#include "runtime/plan/scalars.h"

// One function per rule name of core_ops.def: an `if` per requirement with both values in the message, then
// the result types. inferTypes() has already checked the number of operands and the kinds of attributes, and
// checks afterwards that rank and bytes of the results are within bounds, so a rule need not.

namespace zerocc {

// --- views

Expected<ResultTypes> reshapeShape(const ShapeQuery &q) {
  ZEROCC_ASSIGN(Dims dims, shapeAttribute(q));
  if (safeElements(dims) != q.inputs[0].elements())
    return refuse("cannot reshape ", print(q.inputs[0]), " (", text(q.inputs[0].elements()),
                  " elements) into ", text(dims));
  return one({q.inputs[0].dtype, dims});
}

Expected<ResultTypes> transposeShape(const ShapeQuery &q) {
  const TensorType &x = q.inputs[0];
  ZEROCC_TRY(needAttributes(q, {"perm"}));
  const std::vector<int64_t> perm = q.attributes.getInts("perm");
  if (static_cast<int64_t>(perm.size()) != x.rank())
    return refuse("permutation ", text(perm), " does not fit ", print(x));
  llvm::SmallVector<bool, 8> seen(perm.size(), false);
  Dims dims;
  for (int64_t axis : perm) {
    if (!isAxis(axis, x.rank()) || seen[axis])
      return refuse(text(perm), " is not a permutation of ", text(x.rank()), " axes");
    seen[axis] = true;
    dims.push_back(x.dims[axis]);
  }
  return one({x.dtype, dims});
}

Expected<ResultTypes> broadcastShape(const ShapeQuery &q) {
  const TensorType &x = q.inputs[0];
  ZEROCC_ASSIGN(Dims dims, shapeAttribute(q));
  const int64_t extra = static_cast<int64_t>(dims.size()) - x.rank();
  if (extra < 0)
    return refuse("cannot broadcast ", print(x), " to fewer dims ", text(dims));
  for (int64_t i = 0; i < x.rank(); ++i)
    if (x.dims[i] != 1 && x.dims[i] != dims[extra + i])
      return refuse("cannot broadcast ", print(x), " to ", text(dims));
  return one({x.dtype, dims});
}

Expected<ResultTypes> sliceShape(const ShapeQuery &q) {
  const TensorType &x = q.inputs[0];
  ZEROCC_TRY(needAttributes(q, {"starts", "sizes", "steps"}));
  const std::vector<int64_t> starts = q.attributes.getInts("starts"), sizes = q.attributes.getInts("sizes"),
                             steps = q.attributes.getInts("steps");
  for (const std::vector<int64_t> *list : {&starts, &sizes, &steps})
    if (static_cast<int64_t>(list->size()) != x.rank())
      return refuse("starts, sizes and steps need ", text(x.rank()), " entries for ", print(x), ", got ",
                    text(*list));
  for (int64_t i = 0; i < x.rank(); ++i) {
    const std::string where = " of axis " + text(i);
    if (steps[i] == 0)
      return refuse("step", where, " is 0");
    if (sizes[i] < 0)
      return refuse("size", where, " is negative: ", text(sizes[i]));
    if (sizes[i] == 0)
      continue;
    const __int128 last = starts[i] + static_cast<__int128>(sizes[i] - 1) * steps[i];
    if (!isAxis(starts[i], x.dims[i]) || last < 0 || last >= x.dims[i])
      return refuse(text(sizes[i]), " elements from ", text(starts[i]), " by ", text(steps[i]),
                    " leave axis ", text(i), " of ", print(x));
  }
  return one({x.dtype, toDims(sizes)});
}

// --- movement

Expected<ResultTypes> concatShape(const ShapeQuery &q) {
  ZEROCC_TRY(needAttributes(q, {"axis"}));
  const int64_t axis = q.attributes.getInt("axis");
  TensorType result = q.inputs[0];
  if (!isAxis(axis, result.rank()))
    return refuse("axis ", text(axis), " is outside the ", text(result.rank()), " axes of ", print(result));
  for (const TensorType &input : q.inputs.drop_front()) {
    TensorType other = input;
    if (other.rank() == result.rank())
      other.dims[axis] = q.inputs[0].dims[axis];
    if (!(other == q.inputs[0]))
      return refuse("operands must agree outside axis ", text(axis), ": ", print(q.inputs[0]), " and ",
                    print(input));
    if (__builtin_add_overflow(result.dims[axis], input.dims[axis], &result.dims[axis]))
      return refuse("axis ", text(axis), " grows beyond 2^63");
  }
  return one(result);
}

Expected<ResultTypes> padShape(const ShapeQuery &q) {
  ZEROCC_TRY(needAttributes(q, {"low", "high"}));
  TensorType result = q.inputs[0];
  const std::vector<int64_t> low = q.attributes.getInts("low"), high = q.attributes.getInts("high");
  for (const std::vector<int64_t> *list : {&low, &high}) {
    if (static_cast<int64_t>(list->size()) != result.rank())
      return refuse("low and high need ", text(result.rank()), " entries for ", print(result), ", got ",
                    text(*list));
    for (int64_t i = 0; i < result.rank(); ++i) {
      if ((*list)[i] < 0)
        return refuse("padding must not be negative: ", text(*list));
      if (__builtin_add_overflow(result.dims[i], (*list)[i], &result.dims[i]))
        return refuse("axis ", text(i), " grows beyond 2^63");
    }
  }
  return one(result);
}

Expected<ResultTypes> castShape(const ShapeQuery &q) {
  ZEROCC_ASSIGN(DType to, dtypeAttribute(q, "to"));
  return one({to, q.inputs[0].dims});
}

Expected<ResultTypes> iotaShape(const ShapeQuery &q) {
  ZEROCC_ASSIGN(DType dtype, dtypeAttribute(q, "dtype"));
  ZEROCC_ASSIGN(Dims dims, shapeAttribute(q));
  if (dtype == DType::boolean)
    return refuse("needs a dtype of numbers, not bool");
  if (dims.size() != 1)
    return refuse("needs one dim, got ", text(dims));
  return one({dtype, dims});
}

Expected<ResultTypes> gatherShape(const ShapeQuery &q) {
  const TensorType &data = q.inputs[0], &indices = q.inputs[1];
  ZEROCC_TRY(needAttributes(q, {"axis"}));
  const int64_t axis = q.attributes.getInt("axis");
  if (!isAxis(axis, data.rank()))
    return refuse("axis ", text(axis), " is outside the ", text(data.rank()), " axes of ", print(data));
  if (!isIndex(indices.dtype))
    return refuse("indices must be i64 or i32, are ", print(indices));
  Dims dims(data.dims.begin(), data.dims.begin() + axis);
  dims.append(indices.dims.begin(), indices.dims.end());
  dims.append(data.dims.begin() + axis + 1, data.dims.end());
  return one({data.dtype, dims});
}

Expected<ResultTypes> scatterAddShape(const ShapeQuery &q) {
  const TensorType &indices = q.inputs[0], &updates = q.inputs[1];
  ZEROCC_TRY(needAttributes(q, {"axis", "size"}));
  const int64_t axis = q.attributes.getInt("axis"), size = q.attributes.getInt("size");
  if (!isIndex(indices.dtype))
    return refuse("indices must be i64 or i32, are ", print(indices));
  if (updates.dtype == DType::boolean)
    return refuse("updates must be numbers, are ", print(updates));
  if (size < 0)
    return refuse("size is negative: ", text(size));
  if (axis < 0 || axis > updates.rank() - indices.rank())
    return refuse("the dims of indices ", print(indices), " do not fit into updates ", print(updates),
                  " at axis ", text(axis));
  if (llvm::ArrayRef<int64_t>(updates.dims).slice(axis, indices.rank()) !=
      llvm::ArrayRef<int64_t>(indices.dims))
    return refuse("updates ", print(updates), " do not have the dims of indices ", print(indices),
                  " at axis ", text(axis));
  Dims dims(updates.dims.begin(), updates.dims.begin() + axis);
  dims.push_back(size);
  dims.append(updates.dims.begin() + axis + indices.rank(), updates.dims.end());
  return one({updates.dtype, dims});
}

// --- elementwise

/// Ops of this rule that only move bytes take booleans too.
static bool movesOnly(OpKind op) {
  return op == OpKind::Copy || op == OpKind::Assign || op == OpKind::FetchWait || op == OpKind::ReduceWait;
}

static bool isSecondOrderFloatOp(OpKind op) {
  return op == OpKind::GeluGrad || op == OpKind::SoftmaxGrad || op == OpKind::LogSoftmaxGrad;
}

/// Softmax and its kin work along the last axis.
static Status needLastAxis(const ShapeQuery &q) {
  const bool alongLast = q.op == OpKind::Softmax || q.op == OpKind::LogSoftmax ||
                         q.op == OpKind::SoftmaxGrad || q.op == OpKind::LogSoftmaxGrad;
  if (alongLast && q.inputs[0].rank() == 0)
    return refuse("needs at least one axis, got ", print(q.inputs[0]));
  return success();
}

Expected<ResultTypes> sameShape(const ShapeQuery &q) {
  ZEROCC_ASSIGN(TensorType type, commonType(q));
  if (type.dtype == DType::boolean && !movesOnly(q.op))
    return refuse("needs numbers, got ", print(type));
  if (isSecondOrderFloatOp(q.op))
    ZEROCC_TRY(needFloat(type));
  ZEROCC_TRY(needLastAxis(q));
  return one(type);
}

Expected<ResultTypes> floatShape(const ShapeQuery &q) {
  ZEROCC_TRY(needFloat(q.inputs[0]));
  ZEROCC_TRY(needLastAxis(q));
  return one(q.inputs[0]);
}

Expected<ResultTypes> integerShape(const ShapeQuery &q) {
  ZEROCC_ASSIGN(TensorType type, commonType(q));
  if (isFloat(type.dtype) || type.dtype == DType::boolean)
    return refuse("needs integer operands, got ", print(type));
  return one(type);
}

Expected<ResultTypes> boolShape(const ShapeQuery &q) {
  ZEROCC_ASSIGN(TensorType type, commonType(q));
  if (type.dtype != DType::boolean)
    return refuse("needs bool operands, got ", print(type));
  return one(type);
}

Expected<ResultTypes> predicateShape(const ShapeQuery &q) {
  ZEROCC_ASSIGN(TensorType type, commonType(q));
  if (q.op == OpKind::IsNan) {
    ZEROCC_TRY(needFloat(type));
    return one({DType::boolean, type.dims});
  }
  ZEROCC_TRY(needAttributes(q, {"kind"}));
  const std::string kind = q.attributes.getString("kind");
  const bool equality = kind == "eq" || kind == "ne";
  if (!equality && kind != "lt" && kind != "le" && kind != "gt" && kind != "ge")
    return refuse("kind must be eq, ne, lt, le, gt or ge, is \"", kind, "\"");
  if (!equality && type.dtype == DType::boolean)
    return refuse("kind ", kind, " needs numbers, got ", print(type));
  return one({DType::boolean, type.dims});
}

Expected<ResultTypes> selectShape(const ShapeQuery &q) {
  const TensorType &condition = q.inputs[0], &a = q.inputs[1], &b = q.inputs[2];
  if (condition.dtype != DType::boolean)
    return refuse("the condition must be bool, is ", print(condition));
  if (!(a == b))
    return refuse("the alternatives must have equal types: ", print(a), " and ", print(b));
  if (condition.dims != a.dims)
    return refuse("condition ", print(condition), " and alternatives ", print(a), " differ in shape");
  return one(a);
}

// --- reductions and products

Expected<ResultTypes> reduceShape(const ShapeQuery &q) {
  const TensorType &x = q.inputs[0];
  ZEROCC_TRY(needAttributes(q, {"axes"}));
  const std::vector<int64_t> axes = q.attributes.getInts("axes");
  if (x.dtype == DType::boolean)
    return refuse("needs numbers, got ", print(x));
  llvm::SmallVector<bool, 8> removed(x.dims.size(), false);
  int64_t previous = -1;
  for (int64_t axis : axes) {
    if (!isAxis(axis, x.rank()))
      return refuse("axis ", text(axis), " is outside the ", text(x.rank()), " axes of ", print(x));
    if (axis <= previous)
      return refuse("axes must ascend: ", text(axes));
    if (q.op == OpKind::ReduceMax && x.dtype == DType::u64)
      return refuse("u64 is not compared here: cast ", print(x), " first");
    if (q.op == OpKind::ReduceMax && x.dims[axis] == 0)
      return refuse("axis ", text(axis), " of ", print(x), " is empty and has no maximum");
    removed[axis] = true;
    previous = axis;
  }
  Dims dims;
  for (int64_t i = 0; i < x.rank(); ++i)
    if (!removed[i])
      dims.push_back(x.dims[i]);
  return one({x.dtype, dims});
}

Expected<ResultTypes> matmulShape(const ShapeQuery &q) {
  TensorType a = q.inputs[0], b = q.inputs[1];
  ZEROCC_TRY(needFloat(a));
  if (a.dtype != b.dtype)
    return refuse("operand dtypes differ: left is ", print(a), ", right is ", print(b));
  if (a.rank() < 2 || a.rank() != b.rank())
    return refuse("operands need equal rank of at least 2: left is ", text(a.dims), ", right is ",
                  text(b.dims));
  const int64_t row = a.rank() - 2, column = a.rank() - 1;
  if (q.attributes.getInt("trans_a"))
    std::swap(a.dims[row], a.dims[column]);
  if (q.attributes.getInt("trans_b"))
    std::swap(b.dims[row], b.dims[column]);
  if (a.dims[column] != b.dims[row])
    return refuse("inner dimensions differ: left is ", text(a.dims), ", right is ", text(b.dims));
  for (int64_t i = 0; i < row; ++i)
    if (a.dims[i] != b.dims[i])
      return refuse("batch dimensions differ: left is ", text(a.dims), ", right is ", text(b.dims));
  a.dims[column] = b.dims[column];
  return one(a);
}

// --- composites

/// x is a float tensor with a last axis; returns its dims without it.
static Expected<Dims> rowsOf(const TensorType &x) {
  ZEROCC_TRY(needFloat(x));
  if (x.rank() == 0)
    return refuse("needs at least one axis, got ", print(x));
  return Dims(x.dims.begin(), x.dims.end() - 1);
}

Expected<ResultTypes> layerNormShape(const ShapeQuery &q) {
  const TensorType &x = q.inputs[0];
  ZEROCC_ASSIGN(Dims rows, rowsOf(x));
  ZEROCC_TRY(needType("scale", q.inputs[1], x.dtype, {x.dims.back()}));
  if (q.inputs.size() > 2)
    ZEROCC_TRY(needType("bias", q.inputs[2], x.dtype, {x.dims.back()}));
  return ResultTypes{x, {DType::f32, rows}, {DType::f32, rows}};
}

Expected<ResultTypes> layerNormGradShape(const ShapeQuery &q) {
  const TensorType &x = q.inputs[0];
  ZEROCC_ASSIGN(Dims rows, rowsOf(x));
  ZEROCC_TRY(needType("scale", q.inputs[1], x.dtype, {x.dims.back()}));
  ZEROCC_TRY(needType("mean", q.inputs[2], DType::f32, rows));
  ZEROCC_TRY(needType("rstd", q.inputs[3], DType::f32, rows));
  ZEROCC_TRY(needType("the gradient", q.inputs[4], x.dtype, x.dims));
  return one(x);
}

Expected<ResultTypes> layerNormParameterGradShape(const ShapeQuery &q) {
  const TensorType &x = q.inputs[0];
  ZEROCC_ASSIGN(Dims rows, rowsOf(x));
  ZEROCC_TRY(needType("mean", q.inputs[1], DType::f32, rows));
  ZEROCC_TRY(needType("rstd", q.inputs[2], DType::f32, rows));
  ZEROCC_TRY(needType("the gradient", q.inputs[3], x.dtype, x.dims));
  const TensorType channels{x.dtype, {x.dims.back()}};
  return ResultTypes{channels, channels};
}

static Status checkLogitsAndLabels(const TensorType &logits, const TensorType &labels) {
  ZEROCC_TRY(needFloat(logits));
  if (logits.rank() != 2)
    return refuse("logits must have two axes, are ", print(logits));
  if (!isIndex(labels.dtype))
    return refuse("labels must be i64 or i32, are ", print(labels));
  if (labels.dims != Dims{logits.dims[0]})
    return refuse("labels ", print(labels), " must have one entry per row of logits ", print(logits));
  return success();
}

Expected<ResultTypes> crossEntropyShape(const ShapeQuery &q) {
  ZEROCC_TRY(checkLogitsAndLabels(q.inputs[0], q.inputs[1]));
  return ResultTypes{{DType::f64, {}}, {DType::f64, {}}, {DType::f32, {q.inputs[0].dims[0]}}};
}

Expected<ResultTypes> crossEntropyGradShape(const ShapeQuery &q) {
  ZEROCC_TRY(checkLogitsAndLabels(q.inputs[0], q.inputs[1]));
  ZEROCC_TRY(needType("lse", q.inputs[2], DType::f32, {q.inputs[0].dims[0]}));
  ZEROCC_TRY(needType("seed", q.inputs[3], DType::f32, {}));
  return one(q.inputs[0]);
}

// --- the step

namespace {

/// How many elements of the bucket one rank owns.
int64_t partElements(const ShapeQuery &q) { return q.bucket->paddedElements / q.mesh->shard; }

Status needBucket(const ShapeQuery &q) {
  if (!q.bucket || !q.mesh)
    return refuse("needs a bucket");
  if (q.mesh->shard < 1 || q.bucket->paddedElements % q.mesh->shard != 0)
    return refuse("bucket of ", text(q.bucket->paddedElements), " elements does not divide into ",
                  text(q.mesh->shard), " shards");
  return success();
}

/// A flat operand that is the whole bucket or the part of this rank.
Status needWholeOrPart(const ShapeQuery &q, const TensorType &x) {
  ZEROCC_TRY(needFloat(x));
  const int64_t whole = q.bucket->paddedElements, part = partElements(q);
  if (x.dims != Dims{whole} && x.dims != Dims{part})
    return refuse("operand must be the whole bucket [", text(whole), "] or a rank's part [", text(part),
                  "], is ", print(x));
  return success();
}

} // namespace

Expected<ResultTypes> nothingShape(const ShapeQuery &) { return ResultTypes{}; }

Expected<ResultTypes> bufferShape(const ShapeQuery &q) {
  DType dtype = DType::f32;
  if (q.attributes.has("dtype")) {
    ZEROCC_ASSIGN(dtype, dtypeAttribute(q, "dtype"));
  }
  if (q.bucket)
    return one({dtype, {q.bucket->paddedElements}});
  ZEROCC_ASSIGN(Dims dims, shapeAttribute(q));
  return one({dtype, dims});
}

Expected<ResultTypes> memberShape(const ShapeQuery &q) {
  const TensorType &flat = q.inputs[0];
  ZEROCC_TRY(needAttributes(q, {"offset"}));
  ZEROCC_ASSIGN(Dims dims, shapeAttribute(q));
  const int64_t offset = q.attributes.getInt("offset"), elements = safeElements(dims);
  if (flat.rank() != 1)
    return refuse("needs a flat buffer, got ", print(flat));
  if (offset < 0 || elements < 0 || elements > flat.dims[0] - offset)
    return refuse(text(dims), " at ", text(offset), " leaves the buffer ", print(flat));
  return one({flat.dtype, dims});
}

Expected<ResultTypes> wholeShape(const ShapeQuery &q) {
  ZEROCC_TRY(needBucket(q));
  const int64_t whole = q.bucket->paddedElements;
  const bool inPlace = q.attributes.getInt("in_place") != 0;
  const int64_t expected = inPlace ? whole : partElements(q);
  if (q.inputs[0].dims != Dims{expected})
    return refuse("operand must be ", inPlace ? "the whole bucket [" : "a rank's part [", text(expected),
                  "], is ", print(q.inputs[0]));
  return one({q.inputs[0].dtype, {whole}});
}

Expected<ResultTypes> partShape(const ShapeQuery &q) {
  const TensorType &buffer = q.inputs[0];
  ZEROCC_TRY(needBucket(q));
  ZEROCC_TRY(needFloat(buffer));
  if (buffer.dims != Dims{q.bucket->paddedElements})
    return refuse("operand must be the whole bucket [", text(q.bucket->paddedElements), "], is ",
                  print(buffer));
  for (const TensorType &member : q.inputs.drop_front())
    if (member.dtype != buffer.dtype)
      return refuse("member ", print(member), " has another dtype than the buffer ", print(buffer));
  return one({buffer.dtype, {partElements(q)}});
}

Expected<ResultTypes> exchangeShape(const ShapeQuery &q) {
  const TensorType &x = q.inputs[0];
  if (!q.mesh)
    return refuse("needs the mesh");
  if (x.dtype != DType::f64 || x.rank() != 1)
    return refuse("needs a flat f64 operand, got ", print(x));
  return one({DType::f64, {q.mesh->ranks(), x.dims[0]}});
}

Expected<ResultTypes> normPartialShape(const ShapeQuery &q) {
  ZEROCC_TRY(needBucket(q));
  ZEROCC_TRY(needWholeOrPart(q, q.inputs[0]));
  return one({DType::f64, {2}});
}

Expected<ResultTypes> stepScalarsShape(const ShapeQuery &q) {
  const TensorType &exchanged = q.inputs[0];
  if (!q.mesh)
    return refuse("needs the mesh");
  if (exchanged.dtype != DType::f64 || exchanged.rank() != 2 || exchanged.dims[0] != q.mesh->ranks())
    return refuse("exchanged must be f64[", text(q.mesh->ranks()), ",m], is ", print(exchanged));
  ZEROCC_TRY(needType("scalars", q.inputs[1], DType::f64, {kScalars}));
  return one(q.inputs[1]);
}

/// param, gradient, states… and scalars, all of one length; as many states as the optimizer keeps.
static Status checkUpdate(const ShapeQuery &q) {
  const TensorType &parameter = q.inputs[0], &gradient = q.inputs[1];
  const std::string kind = q.attributes.getString("kind");
  const Optimizer *optimizer = optimizerOf(q.op, kind);
  if (!optimizer)
    return refuse("kind is \"", kind, "\", which is none of ", std::string(opText(q.op)));
  if (auto states = static_cast<int>(q.inputs.size()) - 3; states < optimizer->leastStates)
    return refuse(std::string(optimizer->name), " keeps ", text(optimizer->leastStates), " states, given ",
                  text(states));
  ZEROCC_TRY(needBucket(q));
  ZEROCC_TRY(needWholeOrPart(q, parameter));
  ZEROCC_TRY(needType("the parameter", parameter, DType::f32, parameter.dims));
  ZEROCC_TRY(needFloat(gradient));
  if (gradient.dims != parameter.dims)
    return refuse("parameter ", print(parameter), " and gradient ", print(gradient), " differ in shape");
  for (const TensorType &state : q.inputs.drop_front(2).drop_back())
    ZEROCC_TRY(needType("a state", state, DType::f32, parameter.dims));
  ZEROCC_TRY(needType("scalars", q.inputs.back(), DType::f64, {kScalars}));
  return success();
}

Expected<ResultTypes> adamwShape(const ShapeQuery &q) {
  ZEROCC_TRY(checkUpdate(q));
  return ResultTypes{q.inputs[0], q.inputs[2], q.inputs[3]};
}

Expected<ResultTypes> sgdShape(const ShapeQuery &q) {
  ZEROCC_TRY(checkUpdate(q));
  ResultTypes results = one(q.inputs[0]);
  if (q.inputs.size() == 4)
    results.push_back(q.inputs[2]);
  return results;
}

} // namespace zerocc
