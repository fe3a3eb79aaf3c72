#pragma once

#include "tests/onnx/evaluate.h"

#include "onnx/onnx_pb.h"

#include <set>

namespace zerocc {

enum class GradientOutcome {
  agrees,    // with central differences, along one direction per input
  disagrees, //
  notSmooth, // the differences do not agree with each other, neither at the data nor beside it
  none,      // no float input or no float output
  refused,   // autodiff refuses
};

struct GradientCheck {
  GradientOutcome outcome = GradientOutcome::none;
  std::string why;
  int inputs = 0;     // compared
  bool isZero = true; // all gradients are
};

/// Compares the gradients of the graph "forward" (a fixed random sum of its float results; of the first alone
/// where autodiff refuses the others) with finite differences of the double interpreter, at the data or,
/// where it is not smooth there, beside it. Inputs named in `constant` stay constant.
GradientCheck checkGradients(const Module &module, const StoredWeights *weights,
                             const std::map<std::string, HostTensor> &inputs,
                             const std::set<std::string> &constant);

/// Ops of the default domain that ONNX (the installed schemas) declares differentiable in an input; and
/// LayerNormalization, which they do not mark.
std::set<std::string> differentiableOps();

/// Inputs of the model that ONNX's schema calls not differentiable, where the installed schemas know its one
/// node.
std::set<std::string> notDifferentiable(const onnx::ModelProto &model);

} // namespace zerocc
