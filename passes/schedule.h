#pragma once

#include "passes/pass.h"

namespace zerocc {

/// Starts fetches early and joins reductions late, so that communication runs beside compute.
///
/// Before: each fetch.start stands directly in front of its fetch.wait, each reduce.wait directly behind its start.
/// After:  node order is execution order; starts come before waits. A fetch starts when the fetch
///         `prefetchDistance` before it is waited for; a reduction is joined when the next one starts, or at the
///         segment's end. Under a memory budget a fetch that would take the live bytes past it starts later.
/// Here:   after insert_fetch_release, before plan_memory.
///
/// Tests: tests/passes/schedule
Expected<PassReport> schedule(Module &module, const Decisions &decisions);

} // namespace zerocc
