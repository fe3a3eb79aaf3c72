#pragma once

#include "compiler/onnx/loader.h"

namespace zerocc {

/// Bytes of each of two tensors that comparing them may read; tensors up to this size are compared whole.
constexpr int64_t kTieScanBytes = int64_t(32) << 20;

/// Whether two stored tensors hold the same values and not one value only: `copy` (of type `type`) those of `original`,
/// or with `transposing` ([r, c]) those of its transpose ([c, r]). Block by block; of larger tensors blocks spread evenly
/// over the whole, kTieScanBytes in all: enough to tell weights apart, however large the file.
Expected<bool> equalContents(const LoadedModel &model, const onnx::TensorProto &copy, const TensorType &type,
                             const onnx::TensorProto &original, bool transposing);

} // namespace zerocc
