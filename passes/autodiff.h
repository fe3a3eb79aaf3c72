#pragma once

#include "passes/pass.h"

namespace zerocc {

/// Appends the backward to the forward graph: one gradient per trainable parameter the loss reaches.
///
/// Before: graph `forward` yields `loss` (f64[], a sum) and `count`; fact `static_count` holds the labels of one
///         micro-batch.
/// After:  the graph is called `micro_step` and yields `loss`, `count` and `grad:NAME` (of the parameter's type) for
///         every trainable parameter. The seed of the backward is the constant `gradient_seed`, 1 / static_count.
///         Parameters the loss does not reach are frozen and listed in the notes. Backward nodes carry the location
///         of their forward node and "~"; none is left that nobody reads.
/// Here:   after attach_loss; after eval is cloned. What follows sees forward and backward as one graph.
///
///     %y = matmul %x, @w      becomes      %y  = matmul %x, @w
///                                          …
///                                          %dw = matmul %x, %dy {trans_a=1}      yield grad:w=%dw
///
/// Fails when a gradient would flow through an op without a gradient rule, through the statistics of a layer norm or
/// a cross-entropy, or when the loss reaches no trainable parameter.
/// Counters: gradients, frozen, backwardNodes.
/// Tests: tests/passes/autodiff, tests/ops/autodiff_test.cpp
Expected<PassReport> autodiff(Module &module, const Decisions &decisions);

} // namespace zerocc
