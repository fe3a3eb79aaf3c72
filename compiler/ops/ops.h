#pragma once

#include "compiler/ir/module.h"

namespace zerocc {

/// What a shape rule sees. `bucket` and `mesh` are set for collective and update ops only.
struct ShapeQuery {
  OpKind op;
  llvm::ArrayRef<TensorType> inputs;
  const Attributes &attributes;
  const Bucket *bucket = nullptr;
  const Mesh *mesh = nullptr;
};
using ResultTypes = llvm::SmallVector<TensorType, 3>;

/// Result types by the op table's shape rule, or which requirement failed (with both values).
Expected<ResultTypes> inferTypes(const ShapeQuery &query);

/// Builds nodes with inferred types at the end of a graph. A type error is an assertion here: callers that
/// build from user input check first (or use tryMake).
class GraphBuilder {
public:
  GraphBuilder(Module &module, Graph &graph) : module(module), graph(graph) {}

  Node *make(OpKind op, llvm::ArrayRef<Value *> inputs, Attributes attributes = {}, int bucket = -1);
  Expected<Node *> tryMake(OpKind op, llvm::ArrayRef<Value *> inputs, Attributes attributes = {});

  // Views, casts and reductions that change nothing return their operand and make no node.
  // views
  Value *reshape(Value *x, llvm::ArrayRef<int64_t> dims);
  Value *transpose(Value *x, llvm::ArrayRef<int64_t> permutation);
  /// NumPy broadcast to `dims`: x's dims are aligned right; each is equal or 1.
  Value *broadcast(Value *x, llvm::ArrayRef<int64_t> dims);
  Value *slice(Value *x, llvm::ArrayRef<int64_t> starts, llvm::ArrayRef<int64_t> sizes,
               llvm::ArrayRef<int64_t> steps = {});
  // movement
  Value *concat(llvm::ArrayRef<Value *> xs, int64_t axis);
  Value *pad(Value *x, llvm::ArrayRef<int64_t> low, llvm::ArrayRef<int64_t> high, double value = 0);
  Value *cast(Value *x, DType to);
  Value *iota(DType dtype, int64_t elements);
  Value *gather(Value *data, Value *indices, int64_t axis);
  Value *scatterAdd(Value *indices, Value *updates, int64_t axis, int64_t size);
  // elementwise; operands of `binary` must have equal types (use broadcastTogether first)
  Value *unary(OpKind op, Value *x);
  Value *binary(OpKind op, Value *a, Value *b);
  Value *add(Value *a, Value *b) { return binary(OpKind::Add, a, b); }
  Value *sub(Value *a, Value *b) { return binary(OpKind::Sub, a, b); }
  Value *mul(Value *a, Value *b) { return binary(OpKind::Mul, a, b); }
  Value *div(Value *a, Value *b) { return binary(OpKind::Div, a, b); }
  /// kind: "eq", "ne", "lt", "le", "gt", "ge"
  Value *compare(Value *a, Value *b, const std::string &kind);
  Value *select(Value *condition, Value *a, Value *b);
  /// A scalar constant of x's dtype, broadcast to x's shape.
  Value *splatLike(Value *x, double value);
  Value *scale(Value *x, double factor) { return mul(x, splatLike(x, factor)); }
  // reductions and products
  Value *reduceSum(Value *x, llvm::ArrayRef<int64_t> axes); // removes the axes
  Value *reduceMax(Value *x, llvm::ArrayRef<int64_t> axes);
  /// [..., M, K] x [..., K, N]; equal batch dims; transA/transB swap the last two dims of an operand first.
  Value *matmul(Value *a, Value *b, bool transA = false, bool transB = false);

  Module &module;
  Graph &graph;
  std::string location; // given to every node made
};

/// The common NumPy broadcast shape of two shapes, or nullopt.
std::optional<Dims> broadcastShape(llvm::ArrayRef<int64_t> a, llvm::ArrayRef<int64_t> b);

/// Gradients of a node's operands, in operand order; kNoGradient where none flows.
using Gradients = llvm::SmallVector<Value *, 4>;
inline constexpr Value *kNoGradient = nullptr;

/// What a gradient rule builds with: a GraphBuilder that knows which operands need a gradient.
class GradientBuilder : public GraphBuilder {
public:
  using GraphBuilder::GraphBuilder;
  /// False when nobody wants the gradient of operand i: the rule may return kNoGradient for it.
  bool needs(int operand) const { return needed.empty() || needed[operand]; }
  llvm::SmallVector<bool, 4> needed;
};

/// Applies the op table's gradient rule to `node`. `resultGradients[i]` may be null (no gradient reaches it).
/// The rules may assume at least one non-null.
Gradients gradientsOf(GradientBuilder &builder, const Node &node, llvm::ArrayRef<Value *> resultGradients);

/// True when the op has a gradient rule other than noGradient / zeroGradient / secondOrder.
bool isDifferentiable(OpKind op);
/// The name of the rule or kernel in the op table, for `zerocc ops`.
struct OpRow {
  const char *text, *shape, *gradient, *cost, *workspace, *alias, *kernels;
  int minInputs, maxInputs, results;
};
const OpRow &opRow(OpKind op);

/// Floating-point operations and bytes read and written by a node.
struct Cost {
  int64_t flops = 0, bytes = 0;
};
Cost costOf(const Node &node);

/// Scratch bytes the kernel of `node` needs.
int64_t workspaceBytes(const Node &node);

} // namespace zerocc
