#pragma once

#include "compiler/ir/module.h"

namespace zerocc {

/// True for nodes that do something besides making their results: those without results, collectives, in-place
/// updates.
bool hasEffect(const Node &node);

/// Takes out of `graph.nodes` every node without effect whose results reach neither a result of the graph nor a node
/// with an effect; the others keep their order. Returns how many it took out. Linear.
int64_t removeDeadNodes(Graph &graph);

} // namespace zerocc
