#pragma once

#include "passes/pass.h"

namespace zerocc {

/// Makes the imported model one that infers.
///
/// Before: "forward" as imported for training: it may choose by the input of role `training`, and move buffers.
/// After:  the choices are those of inference (Dropout drops nothing, batch norm reads its running statistics); no
///         parameter is trainable; the results are the outputs named by `outputs`, or all of them; inputs that they do
///         not need (labels of a loss that is not kept) are gone.
///
/// Fails when there is no such output.
/// Tests: tests/passes/keep_outputs
Expected<PassReport> keepOutputs(Module &module, const Decisions &decisions);

} // namespace zerocc
