#pragma once

#include "compiler/ops/ops.h"

namespace zerocc {

/// Gradients of one value with respect to others, in one graph.
struct GradientRequest {
  std::vector<const Value *> leaves; // module-level values or results of nodes
  Value *root = nullptr;
  Value *seed = nullptr; // the gradient of the root
  // how a refusal reads: PREFIX node … lies between BETWEEN and has no gradient rule; HINT
  std::string prefix, between, hint;
};

/// Appends the nodes that compute the gradients to `graph`; gives one value per leaf, null where the root
/// does not depend on it. Contributions of several readers are summed in forward order of use. New nodes
/// carry the location of their forward node and "~". Refuses ops without a gradient rule on the way, all at
/// once.
Expected<std::vector<Value *>> appendGradients(Module &module, Graph &graph, const GradientRequest &request);

} // namespace zerocc
