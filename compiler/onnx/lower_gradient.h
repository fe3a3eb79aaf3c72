#pragma once

#include "compiler/onnx/lowering.h"

#include "llvm/ADT/DenseSet.h"

#include <functional>

namespace zerocc {

constexpr const char *kTrainingDomain = "ai.onnx.preview.training";

/// The tensors a Gradient node names in its attributes.
struct GradientNames {
  struct Named {
    Value *value = nullptr;
    std::string why; // when there is no value that a gradient can be taken of
  };
  std::vector<std::string> leaves; // xs, then zs
  size_t differentiated = 0;       // how many are xs
  std::string root;                // y
  std::function<Named(const std::string &)> find;
};
using NodeSet = llvm::DenseSet<const Node *>;

bool isGradient(const FlatNode &node);
/// Without `find`.
GradientNames namesOf(const FlatNode &node);

/// Appends the gradient of y with respect to xs at the values of the operands. Where these are not the named
/// tensors themselves, what lies between the named tensors and y is computed once more from the operands.
/// `gradientNodes` are the nodes of all Gradient nodes so far: a y that depends on one is refused.
Values lowerGradient(NodeLowering &n, const GradientNames &names, Module &module, Graph &graph,
                     NodeSet &gradientNodes);

} // namespace zerocc
