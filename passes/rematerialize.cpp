// One walk over the nodes in order. A value is *derived* when it is computed from parameters and constants only and
// from at least one parameter. Nodes that make derived values are not kept where they stand: when a reader that is
// not itself derived comes up, the chains of its derived operands are cloned in front of it. Each derived value is
// thus made once per reader; the chains are short (views, casts), so this is linear in readers times chain length.

#include "passes/rematerialize.h"

#include "compiler/ir/views.h"

#include "llvm/ADT/DenseSet.h"

namespace zerocc {
namespace {

bool isParameter(const Module &module, const Value *value) {
  return value->isGlobal() && module.parameterOf(value) != nullptr;
}

bool isInput(const Module &module, const Value *value) {
  return value->isGlobal() && module.inputOf(value) != nullptr;
}

class Rematerializer {
public:
  Rematerializer(Module &module, Graph &graph) : module_(module), graph_(graph) {}

  int64_t run() {
    findDerived();
    std::vector<Node *> nodes = std::move(graph_.nodes);
    graph_.nodes.clear();
    for (Node *node : nodes) {
      if (derivedNodes_.count(node))
        continue;
      llvm::DenseMap<const Value *, Value *> made;
      for (Value *&input : node->inputs)
        if (!input->isGlobal() && derivedNodes_.count(input->definition))
          input = remake(input, made);
      graph_.nodes.push_back(node);
    }
    llvm::DenseMap<const Value *, Value *> made;
    for (auto &[name, value] : graph_.results)
      if (!value->isGlobal() && derivedNodes_.count(value->definition))
        value = remake(value, made);
    return clones_;
  }

private:
  void findDerived() {
    for (const Node *node : graph_.nodes) {
      bool anyParameter = false, onlyParameters = !node->inputs.empty();
      for (const Value *input : node->inputs) {
        bool derived = isParameter(module_, input) || (!input->isGlobal() && derivedNodes_.count(input->definition));
        anyParameter |= derived;
        bool constant = input->isGlobal() ? !isInput(module_, input) : constantNodes_.count(input->definition) != 0;
        onlyParameters &= derived || constant;
      }
      if (onlyParameters && anyParameter)
        derivedNodes_.insert(node);
      else if (onlyParameters || node->inputs.empty())
        constantNodes_.insert(node);
    }
  }

  Value *remake(Value *value, llvm::DenseMap<const Value *, Value *> &made) {
    if (value->isGlobal() || !derivedNodes_.count(value->definition))
      return value;
    if (Value *already = made.lookup(value))
      return already;
    const Node *old = value->definition;
    llvm::SmallVector<Value *, 4> inputs;
    for (Value *input : old->inputs)
      inputs.push_back(remake(input, made));
    llvm::SmallVector<TensorType, 2> types;
    for (const Value *result : old->results)
      types.push_back(result->type);
    Node *clone = graph_.append(old->op, inputs, types, old->attributes, old->location);
    for (size_t i = 0; i < old->results.size(); ++i)
      made[old->results[i]] = clone->results[i];
    ++clones_;
    return made[value];
  }

  Module &module_;
  Graph &graph_;
  llvm::DenseSet<const Node *> derivedNodes_, constantNodes_;
  int64_t clones_ = 0;
};

} // namespace

Expected<PassReport> rematerialize(Module &module, const Decisions &) {
  PassReport report;
  for (auto &graph : module.graphs)
    report.counters["clones"] += Rematerializer(module, *graph).run();
  report.changed = report.counters["clones"] != 0;
  return report;
}

} // namespace zerocc
