#include "passes/dead_code.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"

namespace zerocc {

bool hasEffect(const Node &node) {
  Alias alias = opAlias(node.op);
  return node.results.empty() || node.op == OpKind::ExchangeStart ||
         (alias != Alias::None && alias != Alias::View);
}

int64_t removeDeadNodes(Graph &graph) {
  llvm::DenseSet<const Value *> live;
  for (const auto &[name, value] : graph.results)
    live.insert(value);
  std::vector<Node *> kept;
  for (Node *node : llvm::reverse(graph.nodes)) {
    if (!hasEffect(*node) && llvm::none_of(node->results, [&](const Value *v) { return live.contains(v); }))
      continue;
    kept.push_back(node);
    for (const Value *input : node->inputs)
      live.insert(input);
    for (const Value *result : node->results)
      if (result->place.kind == Place::Kind::value)
        live.insert(result->place.base); // the buffer it is written into
  }
  int64_t removed = static_cast<int64_t>(graph.nodes.size() - kept.size());
  graph.nodes.assign(kept.rbegin(), kept.rend());
  return removed;
}

} // namespace zerocc
