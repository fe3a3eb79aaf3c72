#pragma once

#include "passes/pass.h"

namespace zerocc {

/// Orders the streams with the least set of waits.
///
/// Before: nodes have streams and bytes; between streams nothing is ordered inside a segment.
/// After:  `after` of a node lists the nodes of other streams that must have finished before it starts; with
///         the order of each stream this puts every two conflicting accesses of the same bytes in list order.
///         Dropping any entry would leave a hazard.
/// Here:   needs the places of `plan_memory`: different values that share bytes conflict too.
///
///     %f = fetch.start %w   stream=gather         %f = fetch.start %w   stream=gather
///     %g = fetch.wait %f                becomes   %g = fetch.wait %f    after=%f
///     %y = matmul %x, %g                          %y = matmul %x, %g
///
/// Fails when a value has no place yet.
/// Tests: tests/passes/insert_sync
Expected<PassReport> insertSync(Module &module, const Decisions &decisions);

} // namespace zerocc
