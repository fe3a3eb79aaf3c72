// Compute order is not changed. Fetches keep their order on the gather stream: fetch i is moved up to the wait of
// fetch i - distance, which is where the gather stream has become free and the bytes of an older bucket have been let
// go. A reduction's tail (its waits and the sums that follow them) is moved down in front of the next reduction's
// start. Under a budget, the live profile of the moved list is compared with it, and the fetches that are in flight at
// positions above the budget go back to their readers, all at once: one more profile, not a search.

#include "passes/schedule.h"

#include "passes/plan_memory.h"

#include "llvm/ADT/DenseSet.h"

namespace zerocc {
namespace {

bool isReduceStart(const Node &node) {
  return node.op == OpKind::ReduceStart || node.op == OpKind::AllReduceStart;
}

// Nodes that only follow a reduction: they may stand anywhere between its start and the end of the segment.
bool isReductionTail(const Node &node) {
  switch (node.op) {
  case OpKind::ReduceWait:
  case OpKind::AllGatherStart:
  case OpKind::AllReduceStart:
    return true;
  case OpKind::Member:
    return node.attributes.getInt("part") != 0;
  case OpKind::Accumulate: // of a reduced part; a whole buffer is added before its reduction starts
    return !node.input(1)->isGlobal() && node.input(1)->definition->op == OpKind::ReduceWait;
  default:
    return false;
  }
}

void sinkReductions(Graph &graph) {
  std::vector<Node *> nodes, pending;
  int tailOf = -1; // bucket whose reduction the last nodes belong to
  for (Node *node : graph.nodes) {
    if (isReduceStart(*node) && node->bucket != tailOf) {
      nodes.insert(nodes.end(), pending.begin(), pending.end());
      pending.clear();
      nodes.push_back(node);
      tailOf = node->bucket;
    } else if (tailOf >= 0 && node->bucket == tailOf && isReductionTail(*node)) {
      // Starts stay where they are: only what waits moves.
      bool waits = node->op == OpKind::ReduceWait || !pending.empty();
      (waits ? pending : nodes).push_back(node);
    } else {
      tailOf = -1;
      nodes.push_back(node);
    }
  }
  nodes.insert(nodes.end(), pending.begin(), pending.end());
  graph.nodes = std::move(nodes);
}

// The list with every fetch.start in `early` moved up to the wait of the fetch `distance` before it.
std::vector<Node *> hoisted(const std::vector<Node *> &nodes, int64_t distance,
                            const llvm::DenseSet<const Node *> &late) {
  std::vector<Node *> starts;
  for (Node *node : nodes)
    if (node->op == OpKind::FetchStart)
      starts.push_back(node);
  llvm::DenseMap<const Node *, int64_t> index;
  for (size_t i = 0; i < starts.size(); ++i)
    index[starts[i]] = static_cast<int64_t>(i);
  std::vector<Node *> out;
  size_t next = 0; // first fetch not yet started
  auto startUpTo = [&](int64_t last) {
    while (next < starts.size() && static_cast<int64_t>(next) <= last && !late.count(starts[next]))
      out.push_back(starts[next++]);
  };
  if (distance > 0)
    startUpTo(distance - 1);
  for (Node *node : nodes) {
    if (node->op == OpKind::FetchStart) {
      while (static_cast<int64_t>(next) <= index[node]) // started at the latest here, in order
        out.push_back(starts[next++]);
      continue;
    }
    out.push_back(node);
    if (node->op == OpKind::FetchWait && distance > 0)
      startUpTo(index[node->input(0)->definition] + distance);
  }
  return out;
}

int64_t outsideArena(const Module &module) {
  int64_t bytes = 0;
  for (const Storage &storage : module.storages)
    bytes += storage.value->type.bytes();
  for (const Constant &constant : module.constants)
    bytes += constant.value->type.bytes();
  for (const Input &input : module.inputs)
    bytes += input.value->type.bytes();
  return bytes;
}

int64_t prefetch(const Module &module, Graph &graph, const Decisions &decisions) {
  std::vector<Node *> original = graph.nodes;
  llvm::DenseSet<const Node *> late;
  graph.nodes = hoisted(original, decisions.prefetchDistance, late);
  if (decisions.memoryBudget > 0) {
    int64_t budget = decisions.memoryBudget - outsideArena(module);
    std::vector<int64_t> live = liveProfile(graph);
    llvm::DenseSet<const Node *> inFlight;
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      const Node *node = graph.nodes[i];
      if (node->op == OpKind::FetchStart)
        inFlight.insert(node);
      if (live[i] > budget)
        late.insert(inFlight.begin(), inFlight.end());
      if (node->op == OpKind::FetchWait)
        inFlight.erase(node->input(0)->definition);
    }
    if (!late.empty())
      graph.nodes = hoisted(original, decisions.prefetchDistance, late);
  }
  return static_cast<int64_t>(late.size());
}

} // namespace

Expected<PassReport> schedule(Module &module, const Decisions &decisions) {
  PassReport report;
  for (auto &graph : module.graphs) {
    sinkReductions(*graph);
    report.counters["lateFetches"] += prefetch(module, *graph, decisions);
  }
  report.changed = true;
  return report;
}

} // namespace zerocc
