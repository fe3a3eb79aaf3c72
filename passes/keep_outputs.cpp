#include "passes/keep_outputs.h"

#include "passes/clone_eval.h"
#include "passes/dead_code.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"

namespace zerocc {

Expected<PassReport> keepOutputs(Module &module, const Decisions &decisions) {
  Graph &graph = *module.graph("forward");
  PassReport report;
  report.changed = true;
  report.counters["choices"] = settleTraining(module, graph, false);
  for (Parameter &parameter : module.parameters)
    parameter.trainable = false;
  llvm::erase_if(graph.results, [](const auto &result) { return isBufferResult(result.first); });

  if (!decisions.outputs.empty()) {
    std::string known;
    for (const auto &[name, value] : graph.results)
      known += (known.empty() ? "" : ", ") + name + " " + print(value->type);
    std::vector<std::pair<std::string, Value *>> kept;
    for (const std::string &wanted : decisions.outputs) {
      auto found = llvm::find_if(graph.results, [&](const auto &result) { return result.first == wanted; });
      if (found == graph.results.end())
        return Error("--outputs: the model has no output \"" + wanted + "\"", "its outputs are " + known);
      if (llvm::none_of(kept, [&](const auto &result) { return result.first == wanted; }))
        kept.push_back(*found);
    }
    graph.results = std::move(kept);
  }
  if (graph.results.empty())
    return Error("the model has no output to keep");

  report.counters["deadNodes"] = removeDeadNodes(graph);
  llvm::DenseSet<const Value *> needed;
  for (const Node *node : graph.nodes)
    needed.insert(node->inputs.begin(), node->inputs.end());
  for (const auto &[name, value] : graph.results)
    needed.insert(value);
  for (const Input &input : module.inputs)
    if (!needed.count(input.value.get()) && input.role != "training")
      report.notes.push_back("input \"" + input.value->name + "\" is not needed by the outputs: left out");
  llvm::erase_if(module.inputs, [&](const Input &input) { return !needed.count(input.value.get()); });
  module.reindex();
  return report;
}

} // namespace zerocc
