#pragma once

#include "runtime/weights/model_weights.h"
#include "runtime/weights/tensor_bytes.h"

namespace zerocc {

struct OnnxExportOptions {
  /// A model with external data becomes one file up to this size; beyond it, external data stays external, in
  /// one file called like the model with ".data" behind it.
  int64_t inlineBytes = int64_t(3) << 29;
};

/// Writes `model` to `path` with new bytes for the tensors `names` (each in its own element type): the same
/// graph, byte for byte, but for these tensors and those that were external. The file appears whole or not at
/// all; a data file appears just before it. `path` may be the model's own.
Status exportOnnx(const ModelWeights &model, const std::string &path, const std::vector<std::string> &names,
                  const TensorBytes &bytes, const OnnxExportOptions &options = {});

} // namespace zerocc
