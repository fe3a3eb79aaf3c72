#pragma once

#include "compiler/onnx/parameters.h"

#include <set>

namespace zerocc {

/// What PyTorch's exporters make of GroupNorm, and of InstanceNorm without weights: an InstanceNormalization
/// with a scale of ones and a bias of zeros that are no parameters,
///
///     Reshape -> InstanceNormalization (ones, zeros) -> Reshape -> Mul (weight [C,1,1]) -> Add (bias
///     [C,1,1])
struct NormSlots {
  std::set<Slot> constants; // of the ones and zeros
  std::set<Slot> weights;   // of weight and bias
};

NormSlots findGroupNorms(const LoadedModel &model, const FlatModel &flat);

} // namespace zerocc
