#pragma once

#include "compiler/onnx/files.h"
#include "compiler/onnx/training_export.h"

#include "onnx/onnx_pb.h"

namespace zerocc {

/// Writes into the model what import mended in it: a parameter that shares its initializer with others gets
/// one of its own, named after it, and a repeated one becomes Identity or Transpose of the first. `model` is
/// the whole file of `modelPath`. Gives the initializer of each parameter, by its name. Refuses models with
/// local functions and parameters that were tied or untied on request.
Expected<std::map<std::string, std::string>>
writeRepairs(onnx::ModelProto &model, const std::string &modelPath, Links links,
             llvm::ArrayRef<TrainingExport::Parameter> parameters);

} // namespace zerocc
