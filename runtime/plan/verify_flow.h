#pragma once

#include "runtime/plan/findings.h"

namespace zerocc {

/// What the bytes mean: follows values through the segments in the order they run (verify.h lists the rules under
/// Bytes, Collectives and Training). Relies on verifyStructure; with verifyOrder, list order is execution order.
void verifyFlow(const plan::Plan &plan, Findings &findings);

} // namespace zerocc
