#pragma once

#include "runtime/executor/rank_group.h"

#include <string>

namespace zerocc {

/// Says before training what would fail after it: the target's ending, and the model that an ONNX export is made from.
Status checkExportTarget(const plan::Plan &plan, const std::string &target, const std::string &modelFile);

/// Writes trained weights: FILE.onnx is the original model with new initializer bytes, FILE.safetensors holds the
/// parameters by name. Written beside and renamed.
Status exportWeights(const plan::Plan &plan, RankGroup &group, const std::string &modelFile, const std::string &target);

} // namespace zerocc
