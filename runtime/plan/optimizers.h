#pragma once

#include "compiler/ops/op_kind.h"

#include <string>
#include <string_view>

namespace zerocc {

/// What a plan may update with: its name (Facts.optimizer, attribute `kind` of the updating op where it is
/// not the op's name), the op, and the f32 states that are kept of each element. Then the run-time values
/// that it reads, with the compiler's defaults (those of PyTorch, or of Lion's paper); negative: not read.
struct Optimizer {
  std::string_view name;
  OpKind op;
  int leastStates, mostStates;
  double lr, weightDecay, beta1, beta2, eps, momentum;
};

// clang-format off
inline constexpr Optimizer kOptimizers[] = {
    // name        op                states lr    decay beta1 beta2  eps    momentum
    {"adamw",     OpKind::AdamW,    2, 2, 1e-3, 0.01, 0.9, 0.999, 1e-8,  -1},
    {"adam",      OpKind::AdamW,    2, 2, 1e-3, 0,    0.9, 0.999, 1e-8,  -1},
    {"onnx_adam", OpKind::OnnxAdam, 2, 2, 1e-3, 0.01, 0.9, 0.999, 1e-8,  -1},
    {"sgd",       OpKind::Sgd,      0, 1, 1e-3, 0.01, -1,  -1,    -1,    0.9},
    {"lion",      OpKind::Sgd,      1, 1, 1e-4, 0,    0.9, 0.99,  -1,    -1},
    {"rmsprop",   OpKind::Sgd,      1, 1, 1e-2, 0,    -1,  0.99,  1e-8,  -1},
    {"adagrad",   OpKind::Adagrad,  1, 1, 1e-2, 0,    -1,  -1,    1e-10, -1},
};
// clang-format on

constexpr const Optimizer *findOptimizer(std::string_view name) {
  for (const Optimizer &optimizer : kOptimizers)
    if (optimizer.name == name)
      return &optimizer;
  return nullptr;
}

/// Of an updating op with this attribute `kind` (empty: none). Null: the op has no such kind.
constexpr const Optimizer *optimizerOf(OpKind op, std::string_view kind) {
  for (const Optimizer &optimizer : kOptimizers)
    if (optimizer.op == op && optimizer.name == (kind.empty() ? opText(op) : kind))
      return &optimizer;
  return nullptr;
}

/// "adamw, adam, …".
inline std::string optimizerNames() {
  std::string names;
  for (const Optimizer &optimizer : kOptimizers)
    names += (names.empty() ? "" : ", ") + std::string(optimizer.name);
  return names;
}

} // namespace zerocc
