// Lowerings of products, normalizations and losses.

#include "compiler/onnx/lowerings.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <numeric>
#include <set>

namespace zerocc {

Values lowerMatMul(NodeLowering &n) {
  Value *a = n.in(0), *b = n.in(1);
  return {n.matmul(a, b)};
}

// alpha a' b' + beta c
Values lowerGemm(NodeLowering &n) {
  Value *a = n.in(0), *b = n.in(1);
  if (!a || !b)
    return {nullptr};
  if (a->type.rank() != 2 || b->type.rank() != 2)
    return {n.fail("operands must be matrices: " + print(a->type) + " and " + print(b->type))};
  if (n.intAttribute("transA", 0))
    a = n.transpose(a, {1, 0});
  if (n.intAttribute("transB", 0))
    b = n.transpose(b, {1, 0});
  Value *product = n.matmul(a, b);
  double alpha = n.floatAttribute("alpha", 1), beta = n.floatAttribute("beta", 1);
  if (alpha != 1)
    product = n.mul(product, alpha);
  if (!n.has(2) || beta == 0 || !product)
    return {product};
  Value *c = n.in(2);
  std::optional<Dims> dims = broadcastShape(product->type.dims, c->type.dims);
  if (!dims || *dims != product->type.dims)
    return {n.fail("addend " + print(c->type) + " does not broadcast to " + print(product->type))};
  return {n.add(product, beta == 1 ? c : n.mul(c, beta))};
}

// --- einsum

namespace {

using Letters = std::string;

/// "ij,jk->ik" taken apart.
struct Equation {
  std::vector<Letters> operands;
  Letters result;
};

std::optional<Equation> parseEquation(NodeLowering &n) {
  std::string text = n.stringAttribute("equation", "");
  llvm::erase_value(text, ' ');
  Equation equation;
  size_t arrow = text.find("->");
  std::string left = text.substr(0, arrow);
  for (size_t at = 0; at != std::string::npos;) {
    size_t comma = left.find(',', at);
    equation.operands.push_back(left.substr(at, comma == std::string::npos ? comma : comma - at));
    at = comma == std::string::npos ? comma : comma + 1;
  }
  std::map<char, int> counts;
  for (const Letters &letters : equation.operands)
    for (char c : letters) {
      if (!std::isalpha(static_cast<unsigned char>(c))) {
        n.fail("equation \"" + text + "\": only letters are supported, no \"...\"",
               "write the dims out as letters");
        return std::nullopt;
      }
      if (std::count(letters.begin(), letters.end(), c) > 1) {
        n.fail("equation \"" + text + "\": a letter twice in one operand is not supported");
        return std::nullopt;
      }
      ++counts[c];
    }
  if (arrow != std::string::npos)
    equation.result = text.substr(arrow + 2);
  else // implicitly: the letters that occur once, in order
    for (const auto &[letter, count] : counts)
      if (count == 1)
        equation.result += letter;
  for (char c : equation.result)
    if (!counts.count(c) || std::count(equation.result.begin(), equation.result.end(), c) > 1) {
      n.fail("equation \"" + text + "\": the result's letters do not fit");
      return std::nullopt;
    }
  return equation;
}

bool holds(const Letters &letters, char c) { return letters.find(c) != Letters::npos; }

/// Sums over the axes of `x` whose letters are not kept.
Value *sumOver(NodeLowering &n, Value *x, Letters &letters, const Letters &kept) {
  std::vector<int64_t> axes;
  Letters left;
  for (size_t i = 0; i < letters.size(); ++i)
    if (holds(kept, letters[i]))
      left += letters[i];
    else
      axes.push_back(static_cast<int64_t>(i));
  letters = left;
  return n.reduceSum(x, axes);
}

Value *reorder(NodeLowering &n, Value *x, const Letters &from, const Letters &to) {
  std::vector<int64_t> permutation;
  for (char c : to)
    permutation.push_back(static_cast<int64_t>(from.find(c)));
  return n.transpose(x, permutation);
}

Letters select(const Letters &letters, const Letters &in, const Letters &notIn) {
  Letters out;
  for (char c : letters)
    if (holds(in, c) && !holds(notIn, c))
      out += c;
  return out;
}

} // namespace

/// One operand: sum and permute. Two: [shared, rows, summed] x [shared, summed, columns], then permute.
Values lowerEinsum(NodeLowering &n) {
  std::optional<Equation> equation = parseEquation(n);
  if (!equation)
    return {nullptr};
  size_t count = equation->operands.size();
  if (count > 2 || static_cast<int>(count) != n.operandCount())
    return {n.fail("an equation of " + std::to_string(count) + " operands is not supported; 1 or 2 are",
                   "write it as several Einsum or MatMul nodes")};
  Values operands;
  for (size_t i = 0; i < count; ++i) {
    Value *x = n.in(static_cast<int>(i));
    if (!x || x->type.dims.size() != equation->operands[i].size())
      return {n.fail("operand " + std::to_string(i) + " does not have the equation's rank")};
    operands.push_back(x);
  }
  Letters a = equation->operands[0], b = count == 2 ? equation->operands[1] : "", result = equation->result;
  Value *x = sumOver(n, operands[0], a, result + b);
  if (count == 1)
    return {reorder(n, x, a, result)};
  Value *y = sumOver(n, operands[1], b, result + a);
  Letters batch = select(select(a, b, ""), result, ""), summed = select(select(a, b, ""), a, result),
          rows = select(a, result, b), columns = select(b, result, a);
  x = reorder(n, x, a, batch + rows + summed);
  y = reorder(n, y, b, batch + summed + columns);
  if (!x || !y)
    return {nullptr};
  auto extent = [&](const Value *value, size_t first, size_t length) {
    int64_t product = 1;
    for (size_t i = first; i < first + length; ++i)
      product *= value->type.dims[i];
    return product;
  };
  Dims batchDims(x->type.dims.begin(), x->type.dims.begin() + batch.size()),
      left = batchDims, right = batchDims, out = batchDims;
  left.append({extent(x, batch.size(), rows.size()), extent(x, batch.size() + rows.size(), summed.size())});
  right.append(
      {extent(y, batch.size(), summed.size()), extent(y, batch.size() + summed.size(), columns.size())});
  out.append(x->type.dims.begin() + batch.size(), x->type.dims.begin() + batch.size() + rows.size());
  out.append(y->type.dims.begin() + batch.size() + summed.size(), y->type.dims.end());
  x = n.reshape(x, left);
  y = n.reshape(y, right);
  return {reorder(n, n.reshape(n.matmul(x, y), out), batch + rows + columns, result)};
}

// --- softmax

/// Opset 13 works along one axis; before, the dims from `axis` on count as one.
static Values lowerSoftmaxLike(NodeLowering &n, OpKind op) {
  Value *x = n.in(0);
  if (!x)
    return {nullptr};
  bool flattens = n.version < 13;
  std::optional<int64_t> axis = n.normalAxis(n.intAttribute("axis", flattens ? 1 : -1), x->type.rank());
  if (!axis)
    return {nullptr};
  bool isLast = *axis == x->type.rank() - 1;
  if (flattens && !isLast)
    return {n.reshape(n.unary(op, flattenTo2D(n, x, *axis)), x->type.dims)};
  if (isLast)
    return {n.unary(op, x)};
  Value *last = n.unary(op, n.moveLast(x, *axis));
  return {moveBack(n, last, *axis)};
}

Values lowerSoftmax(NodeLowering &n) { return lowerSoftmaxLike(n, OpKind::Softmax); }
Values lowerLogSoftmax(NodeLowering &n) { return lowerSoftmaxLike(n, OpKind::LogSoftmax); }

// --- normalization

namespace {

/// A tensor normalized over its dims from `axis` on: those as one last dim.
struct Normalized {
  Value *x = nullptr;    // outer dims, inner
  Dims dims, statistics; // of the operand; of mean and deviation, which keep dims of 1
  int64_t inner = 1;
  Dims innerDims;
};

std::optional<Normalized> normalizedOperand(NodeLowering &n) {
  Value *x = n.in(0);
  if (!x)
    return std::nullopt;
  std::optional<int64_t> axis = n.normalAxis(n.intAttribute("axis", -1), x->type.rank());
  if (!axis)
    return std::nullopt;
  Normalized out;
  out.dims = x->type.dims;
  Dims rows(out.dims.begin(), out.dims.begin() + *axis);
  out.innerDims = Dims(out.dims.begin() + *axis, out.dims.end());
  out.statistics = rows;
  for (int64_t dim : out.innerDims) {
    out.inner *= dim;
    out.statistics.push_back(1);
  }
  rows.push_back(out.inner);
  out.x = n.reshape(x, rows);
  return out;
}

/// Scale or bias as one vector over the normalized dims.
Value *channelVector(NodeLowering &n, Value *vector, const Normalized &normalized) {
  if (!vector)
    return nullptr;
  if (vector->type.elements() != normalized.inner)
    vector = n.broadcast(vector, normalized.innerDims);
  return n.reshape(vector, {normalized.inner});
}

} // namespace

Values lowerLayerNormalization(NodeLowering &n) {
  std::optional<Normalized> normalized = normalizedOperand(n);
  if (!normalized)
    return {nullptr};
  Values operands{normalized->x, channelVector(n, n.in(1), *normalized)};
  if (n.has(2))
    operands.push_back(channelVector(n, n.in(2), *normalized));
  Node *norm = n.make(OpKind::LayerNorm, operands, {{"eps", n.floatAttribute("epsilon", 1e-5f)}});
  if (!norm)
    return {nullptr};
  Values results{n.reshape(norm->result(0), normalized->dims)};
  for (int i : {1, 2})
    if (n.wantsOutput(i))
      results.push_back(n.reshape(norm->result(i), normalized->statistics));
    else
      results.push_back(nullptr);
  return results;
}

// x / √(mean x² + eps) scale
Values lowerRmsNormalization(NodeLowering &n) {
  std::optional<Normalized> normalized = normalizedOperand(n);
  if (!normalized)
    return {nullptr};
  Value *x = normalized->x, *scale = channelVector(n, n.in(1), *normalized);
  if (!x)
    return {nullptr};
  int64_t last = x->type.rank() - 1;
  Value *mean = n.div(n.reduceSum(n.mul(x, x), {last}), static_cast<double>(normalized->inner));
  Value *root = n.unary(OpKind::Sqrt, n.add(mean, n.floatAttribute("epsilon", 1e-5f)));
  if (!root)
    return {nullptr};
  Dims column = root->type.dims;
  column.push_back(1);
  Value *y = n.mul(n.div(x, n.reshape(root, column)), scale);
  return {n.reshape(y, normalized->dims)};
}

} // namespace zerocc
