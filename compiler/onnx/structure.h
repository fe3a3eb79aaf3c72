#pragma once

#include "compiler/onnx/loader.h"

#include <vector>

namespace zerocc {

constexpr int64_t kNewestOpset = 28; // of ai.onnx, that we have read
constexpr int64_t kOldestIrVersion = 3, kNewestIrVersion = 14;
constexpr int kMaxCallDepth = 100;
constexpr int64_t kMaxInlined = 200000;            // calls and nodes that calls become, together
constexpr int64_t kMaxFlatNameBytes = 128LL << 20; // of all names after inlining: calls make them longer

/// "" for "ai.onnx".
std::string normalDomain(const std::string &domain);
/// domain::name(:overload) of a function, and of the call that means it.
std::string functionKey(const onnx::FunctionProto &function);
std::string functionKey(const onnx::NodeProto &call);
/// `node "NAME" (Op)`, or by its first output when it has no name.
std::string nodeTitle(const std::string &name, const std::string &op, const std::string &firstOutput);
std::string nodeTitle(const onnx::NodeProto &node);

/// Everything that is wrong with the form of a model: versions, names and their order, attributes, functions, tensors.
/// A model without findings can be inlined and lowered without further checks of form.
std::vector<Diagnostic> checkStructure(LoadedModel &model);

} // namespace zerocc
