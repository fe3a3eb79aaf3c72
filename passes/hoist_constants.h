#pragma once

#include "passes/pass.h"

namespace zerocc {

/// Moves what depends on constants only out of the step, into the segment `init`, which runs once.
///
/// Before: the forward graph may compute masks and tables from constants (the importer folds small ones only).
/// After:  every such value that a non-constant node reads is a constant of the module, written by `init`;
///         views of constants stay where they are (they cost nothing).
/// Here:   before eval is cloned and before autodiff, so that all graphs share the result.
///
/// Tests: tests/passes/hoist_constants
Expected<PassReport> hoistConstants(Module &module, const Decisions &decisions);

} // namespace zerocc
