#include "passes/mixed_precision.h"

#include "compiler/ir/views.h"
#include "compiler/ops/ops.h"
#include "passes/dead_code.h"

namespace zerocc {
namespace {

/// Writes a graph anew, with products of `to`.
class Narrower {
public:
  Narrower(Module &module, Graph &graph, DType to, PassReport &report)
      : graph_(graph), to_(to), report_(report), builder_(module, graph) {}

  void run() {
    std::vector<Node *> nodes = std::move(graph_.nodes);
    graph_.nodes.clear();
    for (Node *node : nodes) {
      for (Value *&input : node->inputs)
        input = latest(input);
      builder_.location = node->location;
      if (isProduct(*node))
        replacements_[node->result()] = product(*node);
      else
        graph_.nodes.push_back(node);
    }
    for (auto &[name, value] : graph_.results)
      value = latest(value);
    removeDeadNodes(graph_);
  }

private:
  static bool isProduct(const Node &node) {
    const bool multiplies =
        node.op == OpKind::MatMul || node.op == OpKind::Conv || node.op == OpKind::ConvDataGrad;
    return multiplies && node.results[0]->type.dtype == DType::f32;
  }

  Value *latest(Value *value) const {
    auto found = replacements_.find(value);
    return found == replacements_.end() ? value : found->second;
  }

  /// The product of narrow operands, widened.
  Value *product(const Node &node) {
    Value *a = narrow(node.input(0)), *b = narrow(node.input(1)), *result = nullptr;
    if (node.op == OpKind::MatMul) {
      result = builder_.matmul(a, b, node.attributes.getInt("trans_a") != 0, node.attributes.getInt("trans_b") != 0);
    } else {
      // Convolutions have no kernel of 16 bits: the same values in f32, and the result rounded once.
      result = builder_.make(node.op, {widen(a), widen(b)}, node.attributes)->result();
      result = cast(result, to_);
    }
    ++report_.counters["products"];
    return widen(result);
  }

  /// `value` rounded to 16 bits; views of it are views of the rounded value.
  Value *narrow(Value *value) {
    auto [entry, isNew] = narrow_.try_emplace(value, nullptr);
    if (!isNew)
      return entry->second;
    Value *out = nullptr;
    if (!value->isGlobal() && isViewNode(*value->definition)) {
      const Node &view = *value->definition;
      Value *operand = narrow(view.input(0));
      out = graph_.append(view.op, {operand}, {{to_, value->type.dims}}, view.attributes, view.location)->result();
    } else {
      out = cast(value, to_);
    }
    return narrow_[value] = out;
  }

  Value *widen(Value *value) {
    auto [entry, isNew] = wide_.try_emplace(value, nullptr);
    if (!isNew)
      return entry->second;
    Value *out = cast(value, DType::f32);
    narrow_[out] = value;
    return wide_[value] = out;
  }

  Value *cast(Value *value, DType to) {
    ++report_.counters["casts"];
    return builder_.cast(value, to);
  }

  Graph &graph_;
  DType to_;
  PassReport &report_;
  GraphBuilder builder_;
  llvm::DenseMap<const Value *, Value *> replacements_; // results of f32 products
  llvm::DenseMap<const Value *, Value *> narrow_, wide_;
};

} // namespace

Expected<PassReport> mixedPrecision(Module &module, const Decisions &decisions) {
  PassReport report;
  Graph *graph = module.graph("forward");
  if (decisions.precision == "f32" || !graph)
    return report;
  Narrower(module, *graph, decisions.precision == "f16" ? DType::f16 : DType::bf16, report).run();
  report.changed = report.counters["products"] > 0;
  return report;
}

} // namespace zerocc
