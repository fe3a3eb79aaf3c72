#pragma once

#include "passes/pass.h"

namespace zerocc {

/// Gives the forward graph its loss: a pair of a sum and a count of valid labels.
///
/// Before: graph `forward` yields the model's outputs by name.
/// After:  it yields `loss` (f64[], a sum) and `count` (f64[]); fact `static_count` holds the labels of one
///         micro-batch, which the backward seed divides by (DESIGN.md, "Numbers"); dead nodes are gone.
/// Here:   autodiff starts from `loss`; the eval graph is a copy of what this leaves.
///
/// A model's own mean cross-entropy is taken apart into its sum and count, so that accumulation and unequal label
/// counts per rank give the true mean. Another scalar counts 1 per micro-batch, and the report says so.
/// Fails when the named output does not exist, or there is no scalar loss.
/// Tests: tests/passes/attach_loss
Expected<PassReport> attachLoss(Module &module, const Decisions &decisions);

} // namespace zerocc
