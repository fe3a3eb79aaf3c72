#pragma once

#include "compiler/ir/module.h"
#include "runtime/plan/plan.pb.h"

namespace zerocc {

/// Initializers, besides its own, that a parameter's values go home to.
struct ParameterCopies {
  std::vector<std::string> same, transposed;
};

/// What a plan says that the module does not know.
struct EmitOptions {
  std::string compilerVersion, command, modelFile;
  std::vector<std::string> notes;
  std::string optimizer = "adamw";
  bool clipping = false;
  bool inference = false;
  std::string loss, precision = "f32";
  int64_t stage = 0, microBatch = 1;
  std::string reduce = "auto";
  std::string modelFingerprint; // of the model without weights, hex
  std::string graphFingerprint; // of the fused graph, for the numerics key
  plan::RunDefaults defaults;
  std::map<std::string, ParameterCopies> copies; // by parameter name
  std::vector<std::string> groups; // parameter groups, in the order of defaults.group_*
};

/// Writes the planned module down: one instruction per node that does something or joins something; views and members
/// become strides and offsets of operands.
///
/// Before: `plan_memory` and `insert_sync` have run.
/// After:  the plan holds all the runtime needs; equal modules give equal bytes.
plan::Plan emitPlan(const Module &module, const EmitOptions &options);

/// `Same key, same bits`: what the result's bits depend on, as text (DESIGN.md, "Numbers").
std::string numericsKey(const Module &module, const EmitOptions &options);

/// Hex xxh64 of a text.
std::string fingerprint(llvm::StringRef text);

} // namespace zerocc
