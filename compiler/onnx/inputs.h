#pragma once

#include "compiler/onnx/importer.h"
#include "compiler/onnx/inliner.h"

#include <vector>

namespace zerocc {

/// Binds the dimensions of the model's inputs and makes the module's inputs. Lists every dimension that is left over.
std::vector<Diagnostic> makeInputs(const LoadedModel &model, const FlatModel &flat, const ImportOptions &options,
                                   Module &module, ImportReport &report);

/// Gives every input of the lowered module its role, by what reads it, else by its name; --input overrides.
std::vector<Diagnostic> assignRoles(const ImportOptions &options, Module &module, ImportReport &report);

} // namespace zerocc
