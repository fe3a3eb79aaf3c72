#include "passes/facts.h"

#include "compiler/ir/views.h"

#include "llvm/ADT/DenseSet.h"

namespace zerocc {
namespace {

Status asStatus(std::vector<Diagnostic> findings) {
  if (findings.empty())
    return success();
  return Error(std::move(findings));
}

std::string describe(const Graph &graph, const Node &node) {
  return graph.name + ": " + std::string(opText(node.op)) + " \"" + node.location + "\"";
}

} // namespace

Status checkOneGradientPerParameter(const Module &module) {
  std::vector<Diagnostic> findings;
  const Graph *graph = module.graph("micro_step");
  if (!graph)
    return Error("there is no graph micro_step");
  std::map<std::string, std::vector<const Value *>> gradients;
  for (const auto &[name, value] : graph->results)
    gradients[name].push_back(value);
  for (const Parameter &parameter : module.parameters) {
    const std::string &name = parameter.value->name;
    auto &found = gradients["grad:" + name];
    size_t expected = parameter.trainable ? 1 : 0;
    if (found.size() != expected)
      findings.push_back({"parameter \"" + name + "\" has " + std::to_string(found.size()) + " gradients, expected " +
                              std::to_string(expected),
                          ""});
    else if (expected && !(found[0]->type == parameter.value->type))
      findings.push_back({"gradient of \"" + name + "\" is " + print(found[0]->type) + ", the parameter is " +
                              print(parameter.value->type),
                          ""});
  }
  return asStatus(std::move(findings));
}

Status checkEveryParameterInOneBucket(const Module &module) {
  std::vector<Diagnostic> findings;
  std::vector<int> seen(module.parameters.size(), 0);
  for (const Bucket &bucket : module.buckets) {
    int64_t end = 0;
    for (const BucketRange &range : bucket.ranges) {
      const std::string &name = module.parameters[range.parameter].value->name;
      ++seen[range.parameter];
      if (range.begin < end || range.begin % 32 != 0 || range.end > bucket.paddedElements)
        findings.push_back({"parameter \"" + name + "\" lies badly in #" + bucket.name, ""});
      if (range.end - range.begin != module.parameters[range.parameter].value->type.elements())
        findings.push_back({"parameter \"" + name + "\" has another size in #" + bucket.name, ""});
      end = range.end;
    }
    if (bucket.paddedElements % (32 * module.mesh.ranks()) != 0)
      findings.push_back({"#" + bucket.name + " is not padded to 32 times the ranks", ""});
  }
  for (size_t i = 0; i < seen.size(); ++i)
    if (seen[i] != 1)
      findings.push_back({"parameter \"" + module.parameters[i].value->name + "\" lies in " + std::to_string(seen[i]) +
                              " buckets",
                          ""});
  return asStatus(std::move(findings));
}

Status checkFetchesAndSpreads(const Module &module) {
  std::vector<Diagnostic> findings;
  for (const auto &graph : module.graphs) {
    llvm::DenseMap<const Value *, int> released; // fetched root -> releases seen
    llvm::DenseSet<const Value *> fetched;
    for (const Node *node : graph->nodes) {
      for (const Value *input : node->inputs) {
        if (input->isGlobal() && module.parameterOf(input))
          findings.push_back({describe(*graph, *node) + " reads parameter \"" + input->name + "\"", ""});
        const Value *root = rootOf(input);
        if (node->op != OpKind::Release && released.lookup(root) > 0)
          findings.push_back({describe(*graph, *node) + " reads a released parameter", ""});
      }
      if (node->op == OpKind::FetchStart && !node->attributes.getInt("in_place"))
        fetched.insert(node->result());
      if (node->op == OpKind::Release)
        ++released[rootOf(node->input(0))];
    }
    for (const Value *value : fetched)
      if (released.lookup(value) != 1)
        findings.push_back({graph->name + ": a fetch of #" + module.buckets[value->definition->bucket].name + " has " +
                                std::to_string(released.lookup(value)) + " releases, expected 1",
                            ""});
  }
  if (Status spreads = checkSpreads(module); !spreads)
    for (const Diagnostic &finding : spreads.error().findings())
      findings.push_back(finding);
  return asStatus(std::move(findings));
}

Status checkStartsBeforeWaits(const Module &module) {
  std::vector<Diagnostic> findings;
  for (const auto &graph : module.graphs) {
    llvm::DenseSet<const Node *> done;
    llvm::DenseMap<const Node *, int> waits;
    for (const Node *node : graph->nodes) {
      for (const Value *input : node->inputs)
        if (input->definition && !done.count(input->definition))
          findings.push_back({describe(*graph, *node) + " stands before what it reads", ""});
      if (node->op == OpKind::FetchWait)
        ++waits[node->input(0)->definition];
      done.insert(node);
    }
    for (const Node *node : graph->nodes)
      if (node->op == OpKind::FetchStart && waits.lookup(node) != 1)
        findings.push_back({describe(*graph, *node) + " has " + std::to_string(waits.lookup(node)) + " waits", ""});
  }
  return asStatus(std::move(findings));
}

Status checkEveryValuePlaced(const Module &module) {
  std::vector<Diagnostic> findings;
  for (const auto &graph : module.graphs)
    for (const Node *node : graph->nodes)
      for (const Value *result : node->results) {
        const Value *root = rootOf(result);
        if (root->place.kind != Place::Kind::region)
          findings.push_back({describe(*graph, *node) + " has a result without bytes", ""});
        else if (root->place.offset < 0 || root->place.offset + root->type.bytes() >
                                               module.regionBytes[static_cast<int>(root->place.region)])
          findings.push_back({describe(*graph, *node) + " has a result outside its region", ""});
      }
  return asStatus(std::move(findings));
}

} // namespace zerocc
