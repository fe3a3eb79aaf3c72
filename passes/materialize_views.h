#pragma once

#include "passes/pass.h"

namespace zerocc {

/// Copies where no strides describe a view, or where a kernel cannot follow them.
///
/// Before: reshape, transpose, broadcast, slice are nodes; any node may read any of them.
/// After:  every view chain is one set of strides over its root, and every kernel reads strides it can follow:
///         elementwise, reductions, copies any; matrix products those with a unit stride in one of the last two
///         dims; all others contiguous operands only. A `copy` stands in front of the others.
/// Here:   before the step is built: bucket members are as contiguous as parameters were.
///
///     %t = transpose %x; %y = softmax %t      becomes      %t = transpose %x; %c = copy %t; %y = softmax %c
///
/// Tests: tests/passes/materialize_views
Expected<PassReport> materializeViews(Module &module, const Decisions &decisions);

} // namespace zerocc
