#include "passes/lower_rank_means.h"

#include "compiler/ops/ops.h"

namespace zerocc {
namespace {

Value *meanOverRanks(GraphBuilder &g, Value *value, int64_t ranks) {
  const TensorType type = value->type;
  Node *start = g.make(OpKind::ExchangeStart, {g.reshape(g.cast(value, DType::f64), {type.elements()})});
  start->stream = Stream::reduce;
  Value *all = g.make(OpKind::ReduceWait, {start->result()})->result();
  Value *mean = g.scale(g.reduceSum(all, {0}), 1 / static_cast<double>(ranks));
  return g.cast(g.reshape(mean, type.dims), type.dtype);
}

} // namespace

Expected<PassReport> lowerRankMeans(Module &module, const Decisions &) {
  PassReport report;
  const int64_t ranks = module.mesh.ranks();
  for (auto &graph : module.graphs) {
    GraphBuilder g(module, *graph);
    llvm::DenseMap<const Value *, Value *> means;
    std::vector<Node *> nodes = std::move(graph->nodes);
    graph->nodes.clear();
    for (Node *node : nodes) {
      for (Value *&input : node->inputs)
        if (Value *mean = means.lookup(input))
          input = mean;
      if (node->op != OpKind::RankMean) {
        graph->nodes.push_back(node);
        continue;
      }
      g.location = node->location;
      means[node->result()] = ranks == 1 ? node->input(0) : meanOverRanks(g, node->input(0), ranks);
    }
    report.counters["means"] += static_cast<int64_t>(means.size());
    if (!means.empty())
      replaceUses(*graph, std::move(means));
  }
  report.changed = report.counters["means"] != 0;
  return report;
}

} // namespace zerocc
