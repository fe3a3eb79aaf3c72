#pragma once

#include "compiler/support/expected.h"

#include "runtime/plan/plan.pb.h"

#include <vector>

namespace zerocc {

/// Proves from the plan alone that it is sound, and lists what is not (empty: sound; at most a hundred
/// findings). Shares nothing with the passes that made the plan.
///
/// Form: every number, offset, size and reference is in range; storages, constants and inputs do not overlap;
///   buckets cover every parameter once; memory by kind adds up to the regions; regions end where used.
/// Bytes: nothing is read that was not written, was released or is still in flight; a reader sees one whole
///   value of its dtype (and of its number, where the plan has numbers); every result is read by somebody.
/// Order: any two conflicting accesses of the same bytes are ordered by streams and events.
/// Collectives: only on their streams; joined exactly once; fetched bytes are released exactly once.
/// Training: parameters are whole where compute reads them; each gradient holds all micro-steps and is
///   reduced exactly once per boundary or micro-step; each trainable bucket is updated exactly once.
///
/// Segments are walked in the order they run, the step twice, so that what one leaves behind suits the next.
std::vector<Diagnostic> verifyPlan(const plan::Plan &plan);

} // namespace zerocc
