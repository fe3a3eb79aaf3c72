#pragma once

#include "onnx/onnx_pb.h"

#include <string>

namespace zerocc {

/// xxHash64, in hex, of a model without weights: nodes with their attributes, functions, names and dims of initializers.
/// Dims that the user binds, and where the bytes of weights lie, change nothing: the same model with trained weights,
/// another batch or other ranks has the same fingerprint.
std::string modelFingerprint(const onnx::ModelProto &model);

} // namespace zerocc
