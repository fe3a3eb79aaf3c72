#include "passes/hoist_constants.h"

#include "compiler/ir/views.h"
#include "passes/dead_code.h"

#include "llvm/ADT/DenseSet.h"

namespace zerocc {
namespace {

class Hoister {
public:
  Hoister(Module &module, Graph &graph) : module_(module), graph_(graph) {}

  int64_t run() {
    for (Node *node : graph_.nodes)
      if (dependsOnConstantsOnly(*node))
        constantNodes_.insert(node);
    std::vector<Node *> kept;
    for (Node *node : graph_.nodes) {
      if (constantNodes_.count(node) && !isViewNode(*node))
        continue;
      for (Value *&input : node->inputs)
        input = replacement(input);
      kept.push_back(node);
    }
    for (auto &[name, value] : graph_.results)
      value = replacement(value);
    graph_.nodes = std::move(kept);
    removeDeadNodes(graph_);
    return static_cast<int64_t>(hoisted_.size());
  }

private:
  bool dependsOnConstantsOnly(const Node &node) const {
    for (const Value *input : node.inputs) {
      bool constant =
          input->isGlobal() ? module_.constantOf(input) != nullptr : constantNodes_.count(input->definition) != 0;
      if (!constant)
        return false;
    }
    return true;
  }

  // A module constant instead of a constant node's result; anything else stays.
  Value *replacement(Value *value) {
    if (value->isGlobal() || !constantNodes_.count(value->definition) || isViewNode(*value->definition))
      return value;
    auto found = hoisted_.find(value);
    if (found != hoisted_.end())
      return found->second;
    Graph *init = module_.graph("init");
    if (!init)
      init = &module_.addGraph("init");
    Value *made = cloneInto(*init, value);
    std::string name = "init." + std::to_string(init->results.size());
    Value *constant = module_.addConstant(name, value->type, {});
    init->results.push_back({name, made});
    hoisted_[value] = constant;
    return constant;
  }

  Value *cloneInto(Graph &init, Value *value) {
    if (value->isGlobal())
      return value;
    auto found = cloned_.find(value);
    if (found != cloned_.end())
      return found->second;
    const Node *old = value->definition;
    llvm::SmallVector<Value *, 4> inputs;
    for (Value *input : old->inputs)
      inputs.push_back(cloneInto(init, input));
    llvm::SmallVector<TensorType, 2> types;
    for (const Value *result : old->results)
      types.push_back(result->type);
    Node *clone = init.append(old->op, inputs, types, old->attributes, old->location);
    for (size_t i = 0; i < old->results.size(); ++i)
      cloned_[old->results[i]] = clone->results[i];
    return cloned_[value];
  }

  Module &module_;
  Graph &graph_;
  llvm::DenseSet<const Node *> constantNodes_;
  llvm::DenseMap<const Value *, Value *> hoisted_, cloned_;
};

} // namespace

Expected<PassReport> hoistConstants(Module &module, const Decisions &) {
  PassReport report;
  if (Graph *forward = module.graph("forward"))
    report.counters["hoisted"] = Hoister(module, *forward).run();
  report.changed = report.counters["hoisted"] != 0;
  return report;
}

} // namespace zerocc
