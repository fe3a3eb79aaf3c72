#pragma once

#include "runtime/checkpoint/checkpoint.h"
#include "runtime/executor/rank_group.h"
#include "runtime/weights/model_weights.h"
#include "runtime/weights/named_weights.h"

#include <optional>

namespace zerocc {

/// The tensors of a state dict (--weights) that hold a plan's parameters and buffers.
struct NamedValues {
  std::vector<BoundTensor> parameters;        // as the plan's
  std::map<std::string, BoundTensor> buffers; // by storage
  std::map<std::string, BoundTensor> states;  // by STATE/PARAMETER (checkpoint/pieces.h); empty: they begin at 0
  int64_t updates = 0;                        // done with these states
};
/// `states`: from NamedWeights::openStates. The weights outlive what is bound. `given` and `notes`: see bindWeights.
Expected<NamedValues> bindPlan(const plan::Plan &plan, const NamedWeights &weights,
                               const std::map<std::string, NamedWeights> &states, int64_t updates,
                               const std::map<std::string, std::string> &given, std::vector<std::string> &notes);

/// Where the first values of parameters and constants come from.
struct InitialValues {
  const ModelWeights *model = nullptr; // initializers of the ONNX file; null: none at hand
  std::optional<double> normalStd;     // --init normal:STD: matrices from N(0, STD²), norm scales 1, other vectors 0
  uint64_t seed = 0;
  const NamedValues *named = nullptr;     // --weights: parameters and buffers come from here
  const Checkpoint *checkpoint = nullptr; // parameters, states and buffers come from here; constants from `model`
};

/// Fills a rank's persistent memory before the first segment: its own part of every parameter (all of it where states
/// are whole or nobody updates it), constants. A rank reads only what it owns.
Status loadValues(const plan::Plan &plan, Executor &executor, const InitialValues &values);

/// The values of a buffer (a running statistic) by its name; equal on all ranks between steps.
std::vector<float> readBuffer(const plan::Plan &plan, RankGroup &group, const std::string &name);


/// A parameter or its summed gradient (row-major, f32), put together from the owners' parts. Between segments only,
/// and by all processes alike.
enum class Tensor { parameter, gradient };
Expected<std::vector<float>> readTensor(const plan::Plan &plan, RankGroup &group, int parameter, Tensor which);

} // namespace zerocc
