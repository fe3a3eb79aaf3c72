#pragma once

#include "compiler/onnx/loader.h"

namespace zerocc {

/// Whether two stored tensors hold the same values: `copy` (of type `type`) those of `original`,
/// or with `transposing` ([r, c]) those of its transpose ([c, r]). Each is read once from front to end, a
/// block at a time, and only as far as they agree; different weights tell by their first elements.
Expected<bool> equalContents(const LoadedModel &model, const onnx::TensorProto &copy, const TensorType &type,
                             const onnx::TensorProto &original, bool transposing);

/// Whether all elements have the same bits; reads blocks up to the first that differs.
Expected<bool> isFilledWithOneValue(const LoadedModel &model, const onnx::TensorProto &tensor,
                                    const TensorType &type);

} // namespace zerocc
