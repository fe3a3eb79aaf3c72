#pragma once

#include "runtime/plan/plan.pb.h"

#include <string>
#include <vector>

namespace zerocc {

/// What a plan computes when its instructions run in list order: per segment, a hash over everything it leaves in
/// persistent and carried memory, as formulas of what it found there. Where values lie in the arena does not matter;
/// whose values reach which kernel does. Plans of equal meaning give equal bits. For plans that verifyStructure passes.
std::vector<uint64_t> meaningOf(const plan::Plan &plan);

/// Two accesses of the same bytes, one a write, that neither streams nor events order; empty: none. By comparing all
/// pairs: slow and simple.
std::string findRace(const plan::Plan &plan);

/// True when `mutant` does what `original` does: it computes the same, and nothing can overtake.
bool areEquivalent(const plan::Plan &original, const plan::Plan &mutant);

} // namespace zerocc
