#pragma once

#include "runtime/plan/plan.pb.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace zerocc {

/// The kinds of damage mutatePlan can do, by name.
std::vector<std::string> mutationKinds();

/// Does one random damage to a plan and says which; nullopt when nothing in the plan suits the dice. Same plan and
/// seed, same damage. Counts and references stay in order where that makes the damage harder to see (a dropped
/// instruction takes its event along).
std::optional<std::string> mutatePlan(plan::Plan &plan, uint64_t seed);
std::optional<std::string> mutatePlan(plan::Plan &plan, uint64_t seed, const std::string &kind);

} // namespace zerocc
