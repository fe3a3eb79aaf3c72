#include "passes/clone_eval.h"

#include "compiler/ir/views.h"
#include "compiler/ops/ops.h"
#include "passes/dead_code.h"

namespace zerocc {
namespace {

Input *trainingInput(Module &module) {
  for (Input &input : module.inputs)
    if (input.role == "training")
      return &input;
  return nullptr;
}

/// The value behind views.
const Value *behindViews(const Value *value) {
  while (!value->isGlobal() && isViewNode(*value->definition))
    value = value->definition->input(0);
  return value;
}

/// Every choice by `flag` becomes the alternative that `training` takes; other readers get the number itself.
int64_t settle(Module &module, Graph &graph, Value *flag, bool training) {
  llvm::DenseMap<const Value *, Value *> replacements;
  auto latest = [&](Value *value) {
    for (auto found = replacements.find(value); found != replacements.end(); found = replacements.find(value))
      value = found->second;
    return value;
  };
  for (const Node *node : graph.nodes)
    if (node->op == OpKind::Select && behindViews(node->input(0)) == flag)
      replacements[node->result()] = latest(node->input(training ? 1 : 2));
  for (auto &[from, to] : replacements)
    to = latest(to);
  const auto settled = static_cast<int64_t>(replacements.size());
  replacements[flag] = module.scalar(DType::boolean, training);
  replaceUses(graph, std::move(replacements));
  return settled;
}

} // namespace

int64_t settleTraining(Module &module, Graph &graph, bool training) {
  Input *input = trainingInput(module);
  return input ? settle(module, graph, input->value.get(), training) : 0;
}

Expected<PassReport> cloneEval(Module &module, const Decisions &) {
  Graph &forward = *module.graph("forward");
  Graph &eval = cloneGraph(module, forward, "eval");
  llvm::erase_if(eval.results, [](const auto &result) { return isBufferResult(result.first); });
  PassReport report;
  report.changed = true;
  if (trainingInput(module)) {
    report.counters["choices"] = settleTraining(module, forward, true);
    settleTraining(module, eval, false);
    removeDeadNodes(forward);
    llvm::erase_if(module.inputs, [](const Input &candidate) { return candidate.role == "training"; });
    module.reindex();
  }
  removeDeadNodes(eval);
  return report;
}

} // namespace zerocc
