#pragma once

#include "runtime/plan/findings.h"

namespace zerocc {

/// No race: any two accesses of the same bytes of which one writes are ordered by streams and events, in list order.
/// Different values that share bytes count, so do workspaces. Relies on verifyStructure.
void verifyOrder(const plan::Plan &plan, Findings &findings);

} // namespace zerocc
