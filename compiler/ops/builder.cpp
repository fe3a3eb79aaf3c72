#include "compiler/ops/ops.h"

#include "llvm/ADT/STLExtras.h"

#include <cstdio>
#include <cstdlib>
#include <numeric>

namespace zerocc {

static std::vector<int64_t> list(llvm::ArrayRef<int64_t> values) { return values.vec(); }

static Expected<Node *> build(GraphBuilder &builder, OpKind op, llvm::ArrayRef<Value *> inputs,
                              Attributes &&attributes, int bucket) {
  llvm::SmallVector<TensorType, 4> inputTypes;
  for (const Value *input : inputs)
    inputTypes.push_back(input->type);
  const Module &module = builder.module;
  ZEROCC_ASSIGN(ResultTypes types,
                inferTypes({op, inputTypes, attributes, bucket >= 0 ? &module.buckets[bucket] : nullptr,
                            &module.mesh}));
  Node *node = builder.graph.append(op, inputs, types, std::move(attributes), builder.location);
  node->bucket = bucket;
  return node;
}

Expected<Node *> GraphBuilder::tryMake(OpKind op, llvm::ArrayRef<Value *> inputs, Attributes attributes) {
  return build(*this, op, inputs, std::move(attributes), -1);
}

Node *GraphBuilder::make(OpKind op, llvm::ArrayRef<Value *> inputs, Attributes attributes, int bucket) {
  Expected<Node *> node = build(*this, op, inputs, std::move(attributes), bucket);
  if (node)
    return *node;
  // A compiler bug also in release builds, where an assertion would let a wrong type through.
  std::fprintf(stderr, "zerocc: building %s at \"%s\": %s", std::string(opText(op)).c_str(), location.c_str(),
               node.error().text().c_str());
  std::abort();
}

// Views and movements that change nothing are their operand: no node is made.

Value *GraphBuilder::reshape(Value *x, llvm::ArrayRef<int64_t> dims) {
  if (llvm::ArrayRef<int64_t>(x->type.dims) == dims)
    return x;
  return make(OpKind::Reshape, {x}, {{"shape", list(dims)}})->result();
}

Value *GraphBuilder::transpose(Value *x, llvm::ArrayRef<int64_t> permutation) {
  if (llvm::is_sorted(permutation) && static_cast<int64_t>(permutation.size()) == x->type.rank())
    return x;
  return make(OpKind::Transpose, {x}, {{"perm", list(permutation)}})->result();
}

Value *GraphBuilder::broadcast(Value *x, llvm::ArrayRef<int64_t> dims) {
  if (llvm::ArrayRef<int64_t>(x->type.dims) == dims)
    return x;
  return make(OpKind::Broadcast, {x}, {{"shape", list(dims)}})->result();
}

Value *GraphBuilder::slice(Value *x, llvm::ArrayRef<int64_t> starts, llvm::ArrayRef<int64_t> sizes,
                           llvm::ArrayRef<int64_t> steps) {
  const std::vector<int64_t> ones(x->type.dims.size(), 1);
  const bool forward = steps.empty() || llvm::all_of(steps, [](int64_t step) { return step == 1; });
  if (forward && llvm::ArrayRef<int64_t>(x->type.dims) == sizes)
    return x;
  return make(OpKind::Slice, {x},
              {{"starts", list(starts)},
               {"sizes", list(sizes)},
               {"steps", steps.empty() ? ones : list(steps)}})
      ->result();
}

Value *GraphBuilder::concat(llvm::ArrayRef<Value *> xs, int64_t axis) {
  if (xs.size() == 1)
    return xs[0];
  return make(OpKind::Concat, xs, {{"axis", axis}})->result();
}

Value *GraphBuilder::pad(Value *x, llvm::ArrayRef<int64_t> low, llvm::ArrayRef<int64_t> high, double value) {
  return make(OpKind::Pad, {x}, {{"low", list(low)}, {"high", list(high)}, {"value", value}})->result();
}

Value *GraphBuilder::cast(Value *x, DType to) {
  if (x->type.dtype == to)
    return x;
  return make(OpKind::Cast, {x}, {{"to", std::string(dtypeName(to))}})->result();
}

Value *GraphBuilder::iota(DType dtype, int64_t elements) {
  return make(OpKind::Iota, {}, {{"dtype", std::string(dtypeName(dtype))}, {"shape", list({elements})}})
      ->result();
}

Value *GraphBuilder::gather(Value *data, Value *indices, int64_t axis) {
  return make(OpKind::Gather, {data, indices}, {{"axis", axis}})->result();
}

Value *GraphBuilder::scatterAdd(Value *indices, Value *updates, int64_t axis, int64_t size) {
  return make(OpKind::ScatterAdd, {indices, updates}, {{"axis", axis}, {"size", size}})->result();
}

Value *GraphBuilder::unary(OpKind op, Value *x) { return make(op, {x})->result(); }

Value *GraphBuilder::binary(OpKind op, Value *a, Value *b) { return make(op, {a, b})->result(); }

Value *GraphBuilder::compare(Value *a, Value *b, const std::string &kind) {
  return make(OpKind::Compare, {a, b}, {{"kind", kind}})->result();
}

Value *GraphBuilder::select(Value *condition, Value *a, Value *b) {
  return make(OpKind::Select, {condition, a, b})->result();
}

Value *GraphBuilder::splatLike(Value *x, double value) {
  return broadcast(module.scalar(x->type.dtype, value), x->type.dims);
}

static std::vector<int64_t> ascending(llvm::ArrayRef<int64_t> axes) {
  std::vector<int64_t> sorted = axes.vec();
  std::sort(sorted.begin(), sorted.end());
  return sorted;
}

Value *GraphBuilder::reduceSum(Value *x, llvm::ArrayRef<int64_t> axes) {
  return axes.empty() ? x : make(OpKind::ReduceSum, {x}, {{"axes", ascending(axes)}})->result();
}

Value *GraphBuilder::reduceMax(Value *x, llvm::ArrayRef<int64_t> axes) {
  return axes.empty() ? x : make(OpKind::ReduceMax, {x}, {{"axes", ascending(axes)}})->result();
}

Value *GraphBuilder::matmul(Value *a, Value *b, bool transA, bool transB) {
  Attributes flags;
  if (transA)
    flags.set("trans_a", int64_t(1));
  if (transB)
    flags.set("trans_b", int64_t(1));
  return make(OpKind::MatMul, {a, b}, std::move(flags))->result();
}

std::optional<Dims> broadcastShape(llvm::ArrayRef<int64_t> a, llvm::ArrayRef<int64_t> b) {
  if (a.size() < b.size())
    std::swap(a, b);
  Dims dims(a.begin(), a.end());
  const size_t extra = a.size() - b.size();
  for (size_t i = 0; i < b.size(); ++i) {
    int64_t &dim = dims[extra + i];
    if (dim != b[i] && dim != 1 && b[i] != 1)
      return std::nullopt;
    if (dim == 1)
      dim = b[i];
  }
  return dims;
}

} // namespace zerocc
