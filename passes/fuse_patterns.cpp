// A gelu is y = Q(x, t) with t = f(P(x)): f = tanh or erf, P and Q polynomials. For each tanh and erf node t:
//   1. candidates for x are the values its operand is computed from, nearest first;
//   2. for each, the operand is expanded as a polynomial in x and compared with P;
//   3. if it fits, the readers of t are followed (a few levels of sums and products) until one expands to Q(x, t): y.
// Only sums, products, quotients by constants and small powers expand; anything else is a candidate for x or fails.
// Expansion stops at degree 4 and 32 values, so the cost per tanh or erf is bounded.

#include "passes/fuse_patterns.h"

#include "compiler/ops/interpreter.h"
#include "compiler/ops/ops.h"
#include "passes/dead_code.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

namespace zerocc {
namespace {

constexpr double kTolerance = 1e-3;
constexpr int kMaxDegree = 4;
constexpr int kMaxValues = 32;  // expanded, per polynomial
constexpr int kMaxLevels = 6;   // of readers behind t
constexpr double kSqrtTwoOverPi = 0.7978845608028654;
constexpr double kSqrtHalf = 0.7071067811865476;

/// Coefficients by powers of x and t; no zeros.
using Polynomial = std::map<std::pair<int, int>, double>;

Polynomial sumOf(const Polynomial &a, const Polynomial &b, double factor) {
  Polynomial out = a;
  for (const auto &[powers, coefficient] : b)
    if ((out[powers] += factor * coefficient) == 0)
      out.erase(powers);
  return out;
}

std::optional<Polynomial> productOf(const Polynomial &a, const Polynomial &b) {
  Polynomial out;
  for (const auto &[left, c] : a)
    for (const auto &[right, d] : b) {
      std::pair<int, int> powers{left.first + right.first, left.second + right.second};
      if (powers.first + powers.second > kMaxDegree)
        return std::nullopt;
      out[powers] += c * d;
    }
  return out;
}

bool nearlyEqual(const Polynomial &a, const Polynomial &b) {
  if (a.size() != b.size())
    return false;
  for (const auto &[powers, coefficient] : b) {
    auto found = a.find(powers);
    if (found == a.end() || std::fabs(found->second - coefficient) > kTolerance * std::fabs(coefficient))
      return false;
  }
  return true;
}

/// The number that all elements of a value have, when it is a constant scalar behind broadcasts, reshapes and casts.
std::optional<double> numberOf(const Module &module, const Value *value) {
  while (!value->isGlobal()) {
    OpKind op = value->definition->op;
    if (op != OpKind::Broadcast && op != OpKind::Reshape && op != OpKind::Cast)
      return std::nullopt;
    value = value->definition->input(0);
  }
  const Constant *constant = module.constantOf(value);
  if (!constant || constant->source.kind != DataSource::Kind::inlineBytes || value->type.elements() != 1)
    return std::nullopt;
  return HostTensor::fromBytes(value->type, constant->source.bytes).at(0);
}

class Expander {
public:
  Expander(const Module &module, const Value *x, const Value *t) : module_(module), x_(x), t_(t) {}

  /// `value` as a polynomial in x and t, or nullopt.
  std::optional<Polynomial> expand(const Value *value) {
    if (++values_ > kMaxValues)
      return std::nullopt;
    if (value == x_)
      return Polynomial{{{1, 0}, 1}};
    if (value == t_)
      return Polynomial{{{0, 1}, 1}};
    if (std::optional<double> number = numberOf(module_, value))
      return *number == 0 ? Polynomial{} : Polynomial{{{0, 0}, *number}};
    if (value->isGlobal())
      return std::nullopt;
    const Node &node = *value->definition;
    switch (node.op) {
    case OpKind::Neg:
      return scaled(expand(node.input(0)), -1);
    case OpKind::Add:
    case OpKind::Sub: {
      std::optional<Polynomial> a = expand(node.input(0)), b = expand(node.input(1));
      if (!a || !b)
        return std::nullopt;
      return sumOf(*a, *b, node.op == OpKind::Add ? 1 : -1);
    }
    case OpKind::Mul: {
      std::optional<Polynomial> a = expand(node.input(0)), b = expand(node.input(1));
      return a && b ? productOf(*a, *b) : std::nullopt;
    }
    case OpKind::Div: {
      std::optional<double> divisor = numberOf(module_, node.input(1));
      return divisor && *divisor != 0 ? scaled(expand(node.input(0)), 1 / *divisor) : std::nullopt;
    }
    case OpKind::Pow: {
      std::optional<double> exponent = numberOf(module_, node.input(1));
      if (!exponent || (*exponent != 2 && *exponent != 3))
        return std::nullopt;
      std::optional<Polynomial> base = expand(node.input(0)), power = base;
      for (int i = 1; i < *exponent && power; ++i)
        power = productOf(*power, *base);
      return power;
    }
    default:
      return std::nullopt;
    }
  }

private:
  static std::optional<Polynomial> scaled(std::optional<Polynomial> polynomial, double factor) {
    if (polynomial)
      for (auto &[powers, coefficient] : *polynomial)
        coefficient *= factor;
    return polynomial;
  }

  const Module &module_;
  const Value *x_, *t_;
  int values_ = 0;
};

struct GeluForm {
  OpKind function;
  const char *approximate;
  Polynomial operand; // P(x)
};

const GeluForm &formOf(OpKind function) {
  static const GeluForm tanhForm{OpKind::Tanh, "tanh", {{{1, 0}, kSqrtTwoOverPi}, {{3, 0}, kSqrtTwoOverPi * 0.044715}}};
  static const GeluForm erfForm{OpKind::Erf, "none", {{{1, 0}, kSqrtHalf}}};
  return function == OpKind::Tanh ? tanhForm : erfForm;
}

/// What a value is computed from by ops that expand, nearest first.
std::vector<Value *> candidatesFor(Value *operand) {
  std::vector<Value *> found{operand};
  for (size_t i = 0; i < found.size() && found.size() < kMaxValues; ++i) {
    if (found[i]->isGlobal())
      continue;
    OpKind op = found[i]->definition->op;
    if (op == OpKind::Neg || op == OpKind::Add || op == OpKind::Sub || op == OpKind::Mul || op == OpKind::Div ||
        op == OpKind::Pow)
      for (Value *input : found[i]->definition->inputs)
        if (!llvm::is_contained(found, input))
          found.push_back(input);
  }
  return found;
}

/// The value behind t, through sums and products, that is 0.5 x + 0.5 x t.
Value *findGelu(const Module &module, const Uses &uses, Value *x, Value *t) {
  const Polynomial gelu{{{1, 0}, 0.5}, {{1, 1}, 0.5}};
  std::vector<Value *> level{t};
  for (int i = 0; i < kMaxLevels && !level.empty(); ++i) {
    std::vector<Value *> next;
    for (const Value *value : level)
      for (Node *reader : uses.of(value)) {
        if (reader->op != OpKind::Add && reader->op != OpKind::Mul && reader->op != OpKind::Div)
          continue;
        std::optional<Polynomial> form = Expander(module, x, t).expand(reader->result());
        if (form && nearlyEqual(*form, gelu))
          return reader->result();
        if (form && !llvm::is_contained(next, reader->result()))
          next.push_back(reader->result());
      }
    level = std::move(next);
  }
  return nullptr;
}

/// The gelu that the tanh or erf node `inner` is a part of: its operand and its result.
std::optional<std::pair<Value *, Value *>> matchGelu(const Module &module, const Uses &uses, const Node &inner) {
  for (Value *x : candidatesFor(inner.input(0))) {
    if (!(x->type == inner.result()->type))
      continue;
    std::optional<Polynomial> operand = Expander(module, x, nullptr).expand(inner.input(0));
    if (!operand || !nearlyEqual(*operand, formOf(inner.op).operand))
      continue;
    if (Value *y = findGelu(module, uses, x, inner.result()))
      return std::make_pair(x, y);
  }
  return std::nullopt;
}

} // namespace

Expected<PassReport> fusePatterns(Module &module, const Decisions &) {
  PassReport report;
  Graph *graph = module.graph("forward");
  if (!graph)
    return report;
  Uses uses(*graph);
  llvm::DenseMap<const Value *, Value *> replacements;
  llvm::DenseMap<const Node *, Node *> replacedBy; // the last node of a gelu -> the gelu
  for (Node *node : graph->nodes) {
    if (node->op != OpKind::Tanh && node->op != OpKind::Erf)
      continue;
    auto match = matchGelu(module, uses, *node);
    if (!match || replacements.count(match->second))
      continue;
    auto [x, y] = *match;
    Attributes attributes{{"approximate", std::string(formOf(node->op).approximate)}};
    Node *gelu = graph->create(OpKind::Gelu, {x}, {y->type}, attributes, node->location);
    replacements[y] = gelu->result();
    replacedBy[y->definition] = gelu;
  }
  if (replacements.empty())
    return report;
  for (Node *&node : graph->nodes)
    if (auto found = replacedBy.find(node); found != replacedBy.end())
      node = found->second;
  // The operand of one gelu may be the result of another: its new node reads that one's new result, too.
  replaceUses(*graph, replacements);
  removeDeadNodes(*graph);
  report.changed = true;
  report.counters["gelu"] = static_cast<int64_t>(replacements.size());
  return report;
}

} // namespace zerocc
