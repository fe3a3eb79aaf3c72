#pragma once

#include "compiler/onnx/importer.h"

namespace zerocc {

/// --precision f32: what the file computes in f16, bf16 or f64 is computed in f32. Values, inputs and
/// constants become f32, conversions between them go; stored tensors are converted when they are read.
/// Integers and booleans stay. Says in the report how many values changed.
Status computeInF32(Module &module, ImportReport &report);

} // namespace zerocc
