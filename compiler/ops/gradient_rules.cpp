// Gradient rules: one function per row of core_ops.def, the formula above each.
//
// A rule returns one gradient per operand, in operand order, kNoGradient where none flows; `dys` are the
// gradients of the results. It may build more than is asked for: `autodiff` removes what nobody reads. The
// order of nodes must not depend on the C++ compiler, so at most one argument of a call builds nodes.
//
// Tests: tests/ops/gradient_test.cpp (finite differences for every rule).

#include "compiler/ops/interpreter.h"
#include "compiler/ops/op_table.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringRef.h"

#include <cmath>

namespace zerocc {

static Gradients none(const Node &y) { return Gradients(y.inputs.size(), kNoGradient); }

/// The reduced value, repeated along the reduced axes of `dims`.
static Value *spread(GradientBuilder &g, Value *reduced, llvm::ArrayRef<int64_t> dims,
                     llvm::ArrayRef<int64_t> axes) {
  if (axes.empty() || axes.back() == static_cast<int64_t>(axes.size()) - 1)
    return g.broadcast(reduced, dims); // leading axes: broadcast aligns right
  Dims kept(dims.begin(), dims.end());
  for (int64_t axis : axes)
    kept[axis] = 1;
  return g.broadcast(g.reshape(reduced, kept), dims);
}

// y does not depend on x, or is constant almost everywhere: predicates, integers, steps.
Gradients noGradient(GradientBuilder &, const Node &y, llvm::ArrayRef<Value *>) { return none(y); }
Gradients zeroGradient(GradientBuilder &, const Node &y, llvm::ArrayRef<Value *>) { return none(y); }

Gradients secondOrder(GradientBuilder &, const Node &y, llvm::ArrayRef<Value *>) {
  assert(false && "autodiff refuses ops of the backward and of the step");
  return none(y);
}

// ---------------------------------------------------------------------------------------------------------------
// Views and movement

// y = reshape x           dx = dy in the shape of x
Gradients reshapeGradient(GradientBuilder &g, const Node &y, llvm::ArrayRef<Value *> dys) {
  return {g.reshape(dys[0], y.input(0)->type.dims)};
}

// y = transpose_p x       dx = transpose_p⁻¹ dy
Gradients transposeGradient(GradientBuilder &g, const Node &y, llvm::ArrayRef<Value *> dys) {
  std::vector<int64_t> permutation = y.attributes.getInts("perm");
  std::vector<int64_t> inverse(permutation.size());
  for (size_t i = 0; i < permutation.size(); ++i)
    inverse[permutation[i]] = static_cast<int64_t>(i);
  return {g.transpose(dys[0], inverse)};
}

// y = broadcast x         dx = Σ dy over the repeated axes
Gradients broadcastGradient(GradientBuilder &g, const Node &y, llvm::ArrayRef<Value *> dys) {
  const Dims &from = y.input(0)->type.dims, &to = dys[0]->type.dims;
  size_t missing = to.size() - from.size();
  Dims repeated;
  for (size_t axis = 0; axis < to.size(); ++axis)
    if (to[axis] != 1 && (axis < missing || from[axis - missing] == 1))
      repeated.push_back(static_cast<int64_t>(axis));
  if (repeated.empty())
    return {g.reshape(dys[0], from)};
  DType dtype = dys[0]->type.dtype; // 16 bits: summed in f32, rounded once
  bool isNarrow = isFloat(dtype) && byteSize(dtype) == 2;
  Value *sum = g.reduceSum(isNarrow ? g.cast(dys[0], DType::f32) : dys[0], repeated);
  return {g.reshape(g.cast(sum, dtype), from)};
}

/// x with `step - 1` zeros between neighbours along `axis`: each element becomes a row of its own, is padded
/// to `step` elements, and the rows are joined; the zeros behind the last element are cut off.
static Value *spaceOut(GradientBuilder &g, Value *x, int64_t axis, int64_t step) {
  Dims rows = x->type.dims, low(rows.size() + 1, 0), high(rows.size() + 1, 0);
  rows.insert(rows.begin() + axis + 1, 1);
  high[axis + 1] = step - 1;
  Dims joined = x->type.dims, starts(joined.size(), 0);
  joined[axis] *= step;
  Value *spaced = g.reshape(g.pad(g.reshape(x, rows), low, high), joined);
  joined[axis] -= step - 1;
  return g.slice(spaced, starts, joined);
}

static Value *reverse(GradientBuilder &g, Value *x, int64_t axis) {
  Dims starts(x->type.dims.size(), 0), steps(x->type.dims.size(), 1);
  starts[axis] = x->type.dims[axis] - 1;
  steps[axis] = -1;
  return g.slice(x, starts, x->type.dims, steps);
}

// y_i = x_(start + i step)     dx = dy at those places, 0 elsewhere
Gradients sliceGradient(GradientBuilder &g, const Node &y, llvm::ArrayRef<Value *> dys) {
  const Dims &from = y.input(0)->type.dims;
  std::vector<int64_t> steps = y.attributes.getInts("steps"), low = y.attributes.getInts("starts"), high;
  Value *dx = dys[0];
  for (size_t axis = 0; axis < from.size(); ++axis) {
    int64_t size = y.result()->type.dims[axis];
    int64_t step =
        steps.empty() || size < 2 ? 1 : steps[axis]; // a step from nowhere to nowhere does not count
    if (step < 0) {
      dx = reverse(g, dx, static_cast<int64_t>(axis));
      low[axis] += (size - 1) * step;
      step = -step;
    }
    if (step > 1)
      dx = spaceOut(g, dx, static_cast<int64_t>(axis), step);
    high.push_back(from[axis] - low[axis] - dx->type.dims[axis]);
  }
  return {g.pad(dx, low, high)};
}

// y = x                   dx = dy
Gradients copyGradient(GradientBuilder &, const Node &, llvm::ArrayRef<Value *> dys) { return {dys[0]}; }

// y = x_0 | x_1 | …       dx_i = the part of dy where x_i lies
Gradients concatGradient(GradientBuilder &g, const Node &y, llvm::ArrayRef<Value *> dys) {
  int64_t axis = y.attributes.getInt("axis");
  Dims starts(y.result()->type.dims.size(), 0);
  Gradients out;
  for (const Value *x : y.inputs) {
    out.push_back(g.slice(dys[0], starts, x->type.dims));
    starts[axis] += x->type.dims[axis];
  }
  return out;
}

// y = x with a margin     dx = dy without it
Gradients padGradient(GradientBuilder &g, const Node &y, llvm::ArrayRef<Value *> dys) {
  return {g.slice(dys[0], y.attributes.getInts("low"), y.input(0)->type.dims)};
}

// y = x in another dtype  dx = dy in that of x; nothing flows into integers
Gradients castGradient(GradientBuilder &g, const Node &y, llvm::ArrayRef<Value *> dys) {
  DType from = y.input(0)->type.dtype;
  if (!isFloat(from) || !isFloat(dys[0]->type.dtype))
    return none(y);
  return {g.cast(dys[0], from)};
}

// y_i = x_indices(i)      dx_j = Σ_{i: indices(i) = j} dy_i
Gradients gatherGradient(GradientBuilder &g, const Node &y, llvm::ArrayRef<Value *> dys) {
  int64_t axis = y.attributes.getInt("axis");
  return {g.scatterAdd(y.input(1), dys[0], axis, y.input(0)->type.dims[axis]), kNoGradient};
}

// y_j = Σ_{i: indices(i) = j} x_i     dx_i = dy_indices(i)
Gradients scatterAddGradient(GradientBuilder &g, const Node &y, llvm::ArrayRef<Value *> dys) {
  return {kNoGradient, g.gather(dys[0], y.input(0), y.attributes.getInt("axis"))};
}

// ---------------------------------------------------------------------------------------------------------------
// Elementwise, one operand

// y = -x                  dx = -dy
Gradients negGradient(GradientBuilder &g, const Node &, llvm::ArrayRef<Value *> dys) {
  return {g.unary(OpKind::Neg, dys[0])};
}

// y = |x|                 dx = dy sign x
Gradients absGradient(GradientBuilder &g, const Node &y, llvm::ArrayRef<Value *> dys) {
  return {g.mul(dys[0], g.unary(OpKind::Sign, y.input(0)))};
}

// y = e^x                 dx = dy y
Gradients expGradient(GradientBuilder &g, const Node &y, llvm::ArrayRef<Value *> dys) {
  return {g.mul(dys[0], y.result())};
}

// y = ln x                dx = dy / x
Gradients logGradient(GradientBuilder &g, const Node &y, llvm::ArrayRef<Value *> dys) {
  return {g.div(dys[0], y.input(0))};
}

// y = √x                  dx = ½ dy / y
Gradients sqrtGradient(GradientBuilder &g, const Node &y, llvm::ArrayRef<Value *> dys) {
  return {g.div(g.scale(dys[0], 0.5), y.result())};
}

// y = tanh x              dx = dy (1 - y²)
Gradients tanhGradient(GradientBuilder &g, const Node &y, llvm::ArrayRef<Value *> dys) {
  Value *square = g.mul(y.result(), y.result());
  return {g.mul(dys[0], g.sub(g.splatLike(square, 1), square))};
}

// y = 1 / (1 + e^-x)      dx = dy y (1 - y)
Gradients sigmoidGradient(GradientBuilder &g, const Node &y, llvm::ArrayRef<Value *> dys) {
  Value *rest = g.sub(g.splatLike(y.result(), 1), y.result());
  return {g.mul(g.mul(dys[0], y.result()), rest)};
}

// y = erf x               dx = 2/√π dy e^-x²
Gradients erfGradient(GradientBuilder &g, const Node &y, llvm::ArrayRef<Value *> dys) {
  Value *square = g.mul(y.input(0), y.input(0));
  Value *bell = g.unary(OpKind::Exp, g.unary(OpKind::Neg, square));
  return {g.mul(dys[0], g.scale(bell, M_2_SQRTPI))};
}

// y = sin x               dx = dy cos x
Gradients sinGradient(GradientBuilder &g, const Node &y, llvm::ArrayRef<Value *> dys) {
  return {g.mul(dys[0], g.unary(OpKind::Cos, y.input(0)))};
}

// y = cos x               dx = -dy sin x
Gradients cosGradient(GradientBuilder &g, const Node &y, llvm::ArrayRef<Value *> dys) {
  return {g.unary(OpKind::Neg, g.mul(dys[0], g.unary(OpKind::Sin, y.input(0))))};
}

// y = max(x, 0)           dx = dy where y > 0, else 0
Gradients reluGradient(GradientBuilder &g, const Node &y, llvm::ArrayRef<Value *> dys) {
  Value *zero = g.splatLike(y.result(), 0);
  return {g.select(g.compare(y.result(), zero, "gt"), dys[0], zero)};
}

// y = gelu x              dx = dy gelu'(x)
Gradients geluGradient(GradientBuilder &g, const Node &y, llvm::ArrayRef<Value *> dys) {
  return {g.make(OpKind::GeluGrad, {y.input(0), dys[0]}, y.attributes)->result()};
}

// ---------------------------------------------------------------------------------------------------------------
// Elementwise, two and three operands

// y = a + b               da = dy         db = dy
Gradients addGradient(GradientBuilder &, const Node &, llvm::ArrayRef<Value *> dys) {
  return {dys[0], dys[0]};
}

// y = a - b               da = dy         db = -dy
Gradients subGradient(GradientBuilder &g, const Node &, llvm::ArrayRef<Value *> dys) {
  return {dys[0], g.unary(OpKind::Neg, dys[0])};
}

// y = a b                 da = dy b       db = dy a
Gradients mulGradient(GradientBuilder &g, const Node &y, llvm::ArrayRef<Value *> dys) {
  return {g.mul(dys[0], y.input(1)), g.mul(dys[0], y.input(0))};
}

// y = a / b               da = dy / b     db = -(dy / b) y
Gradients divGradient(GradientBuilder &g, const Node &y, llvm::ArrayRef<Value *> dys) {
  Value *da = g.div(dys[0], y.input(1));
  return {da, g.unary(OpKind::Neg, g.mul(da, y.result()))};
}

/// The number when every element of `x` is the same inline constant, seen through views and casts between
/// floats.
static std::optional<double> splatOf(const Module &module, const Value *x) {
  if (const Constant *constant = module.constantOf(x)) {
    if (constant->source.kind != DataSource::Kind::inlineBytes || x->type.elements() != 1)
      return std::nullopt;
    return HostTensor::fromBytes(x->type, constant->source.bytes).at(0);
  }
  if (x->isGlobal())
    return std::nullopt;
  const Node &node = *x->definition;
  bool isView = node.op == OpKind::Broadcast || node.op == OpKind::Reshape;
  if (!isView && !(node.op == OpKind::Cast && isFloat(node.input(0)->type.dtype)))
    return std::nullopt;
  std::optional<double> value = splatOf(module, node.input(0));
  return value ? std::optional(roundToDType(*value, x->type.dtype)) : std::nullopt;
}

/// d(x^n)/dx for a number n, in the cheapest form; at x = 0 it is the limit (so not NaN for n = 1, 2, 3).
static Value *powerDerivative(GradientBuilder &g, const Node &y, double n) {
  Value *x = y.input(0);
  if (n == 0)
    return g.splatLike(x, 0);
  if (n == 1)
    return g.splatLike(x, 1);
  if (n == 2)
    return g.scale(x, 2); // 2 x
  if (n == 3)
    return g.scale(g.mul(x, x), 3); // 3 x²
  if (n == 0.5)
    return g.div(g.splatLike(x, 0.5), y.result()); // ½ / y
  if (n == -1)
    return g.unary(OpKind::Neg, g.mul(y.result(), y.result()));       // -y²
  return g.scale(g.binary(OpKind::Pow, x, g.splatLike(x, n - 1)), n); // n x^(n-1)
}

// y = a^b                 da = dy b a^(b-1), 0 where b = 0        db = dy y ln a, 0 where a ≤ 0
Gradients powGradient(GradientBuilder &g, const Node &y, llvm::ArrayRef<Value *> dys) {
  Value *a = y.input(0), *b = y.input(1), *dy = dys[0];
  if (std::optional<double> exponent = splatOf(g.module, b))
    return {g.mul(dy, powerDerivative(g, y, *exponent)), kNoGradient};

  Value *zero = g.splatLike(a, 0);
  Value *isFlat = g.compare(b, zero, "eq"); // 0 · 0^-1 would be NaN
  Value *lowered = g.binary(OpKind::Pow, a, g.sub(b, g.splatLike(b, 1)));
  Value *da = g.mul(dy, g.select(isFlat, zero, g.mul(b, lowered)));
  Value *isPositive = g.compare(a, zero, "gt");
  Value *growth = g.mul(y.result(), g.unary(OpKind::Log, a));
  return {da, g.mul(dy, g.select(isPositive, growth, zero))};
}

/// The winner of each pair takes the gradient; a tie is split equally.
static Gradients extremumGradient(GradientBuilder &g, const Node &y, Value *dy, const std::string &wins) {
  Value *a = y.input(0), *b = y.input(1);
  Value *zero = g.splatLike(dy, 0);
  Value *tied = g.select(g.compare(a, b, "eq"), g.scale(dy, 0.5), zero);
  return {g.select(g.compare(a, b, wins), dy, tied), g.select(g.compare(b, a, wins), dy, tied)};
}

// y = max(a, b)           da = dy where a > b, ½ dy where a = b       db likewise
Gradients maxGradient(GradientBuilder &g, const Node &y, llvm::ArrayRef<Value *> dys) {
  return extremumGradient(g, y, dys[0], "gt");
}

// y = min(a, b)           da = dy where a < b, ½ dy where a = b       db likewise
Gradients minGradient(GradientBuilder &g, const Node &y, llvm::ArrayRef<Value *> dys) {
  return extremumGradient(g, y, dys[0], "lt");
}

// y = c ? a : b           da = c ? dy : 0     db = c ? 0 : dy
Gradients selectGradient(GradientBuilder &g, const Node &y, llvm::ArrayRef<Value *> dys) {
  Value *condition = y.input(0), *zero = g.splatLike(dys[0], 0);
  return {kNoGradient, g.select(condition, dys[0], zero), g.select(condition, zero, dys[0])};
}

// ---------------------------------------------------------------------------------------------------------------
// Reductions and products

// y = Σ x                 dx = dy along the summed axes
Gradients reduceSumGradient(GradientBuilder &g, const Node &y, llvm::ArrayRef<Value *> dys) {
  return {spread(g, dys[0], y.input(0)->type.dims, y.attributes.getInts("axes"))};
}

// y = max x               dx = dy / (number of maxima) where x = y, else 0
Gradients reduceMaxGradient(GradientBuilder &g, const Node &y, llvm::ArrayRef<Value *> dys) {
  Value *x = y.input(0);
  std::vector<int64_t> axes = y.attributes.getInts("axes");
  Value *isMax = g.compare(x, spread(g, y.result(), x->type.dims, axes), "eq");
  Value *maxima = g.reduceSum(g.cast(isMax, x->type.dtype), axes);
  Value *part = spread(g, g.div(dys[0], maxima), x->type.dims, axes);
  return {g.select(isMax, part, g.splatLike(x, 0))};
}

// y = A B                 dA = dy Bᵀ      dB = Aᵀ dy      where A is a or aᵀ, B is b or bᵀ; of a swapped
// operand
//                         the rule wants the transposed:  dAᵀ = B dyᵀ,  dBᵀ = dyᵀ A
Gradients matmulGradient(GradientBuilder &g, const Node &y, llvm::ArrayRef<Value *> dys) {
  Value *a = y.input(0), *b = y.input(1), *dy = dys[0];
  bool transA = y.attributes.getInt("trans_a"), transB = y.attributes.getInt("trans_b");
  return {transA ? g.matmul(b, dy, transB, true) : g.matmul(dy, b, false, !transB),
          transB ? g.matmul(dy, a, true, transA) : g.matmul(a, dy, !transA, false)};
}

// ---------------------------------------------------------------------------------------------------------------
// Composites

// y = softmax x           dx = y (dy - Σ y dy)
Gradients softmaxGradient(GradientBuilder &g, const Node &y, llvm::ArrayRef<Value *> dys) {
  return {g.make(OpKind::SoftmaxGrad, {y.result(), dys[0]})->result()};
}

// y = log softmax x       dx = dy - e^y Σ dy
Gradients logSoftmaxGradient(GradientBuilder &g, const Node &y, llvm::ArrayRef<Value *> dys) {
  return {g.make(OpKind::LogSoftmaxGrad, {y.result(), dys[0]})->result()};
}

// y = x̂ scale + bias      dx = layer_norm_grad             dscale = Σ dy x̂, dbias = Σ dy
Gradients layerNormGradient(GradientBuilder &g, const Node &y, llvm::ArrayRef<Value *> dys) {
  assert(dys[0] && !dys[1] && !dys[2] && "autodiff refuses gradients of mean and rstd");
  Value *x = y.input(0), *scale = y.input(1), *mean = y.result(1), *rstd = y.result(2);
  Value *dx = g.make(OpKind::LayerNormGrad, {x, scale, mean, rstd, dys[0]})->result();
  Node *parameters = g.make(OpKind::LayerNormParameterGrad, {x, mean, rstd, dys[0]});
  Gradients out = {dx, parameters->result(0), parameters->result(1)};
  out.resize(y.inputs.size()); // without a bias there is no gradient of one
  return out;
}

// y = loss of x           dx = dy (softmax x - target)     nothing flows through count, lse, labels
Gradients crossEntropyGradient(GradientBuilder &g, const Node &y, llvm::ArrayRef<Value *> dys) {
  assert(dys[0] && !dys[1] && !dys[2] && "autodiff refuses gradients of count and lse");
  Value *seed = g.cast(dys[0], DType::f32);
  Node *dx = g.make(OpKind::CrossEntropyGrad, {y.input(0), y.input(1), y.result(2), seed}, y.attributes);
  return {dx->result(), kNoGradient};
}

} // namespace zerocc
