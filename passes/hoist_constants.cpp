#include "passes/hoist_constants.h"

#include "compiler/ir/views.h"

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
    std::vector<Node *> nodes = std::move(graph_.nodes);
    graph_.nodes.clear();
    for (Node *node : nodes) {
      if (constantNodes_.count(node))
        continue;
      for (Value *&input : node->inputs)
        input = replacement(input);
      graph_.nodes.push_back(node);
    }
    for (auto &[name, value] : graph_.results)
      value = replacement(value);
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

  // A module constant instead of a constant node's result, a view of one instead of a view; anything else stays.
  Value *replacement(Value *value) {
    if (value->isGlobal() || !constantNodes_.count(value->definition))
      return value;
    auto found = hoisted_.find(value);
    if (found != hoisted_.end())
      return found->second;
    Node *node = value->definition;
    if (isViewNode(*node)) {
      auto view = views_.find(value);
      if (view != views_.end())
        return view->second;
      Value *operand = replacement(node->input(0));
      return views_[value] = graph_.append(node->op, {operand}, {value->type}, node->attributes, node->location)->result();
    }
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
  llvm::DenseMap<const Value *, Value *> hoisted_, views_, cloned_;
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
