#pragma once

#include "runtime/executor/rank_group.h"

namespace zerocc {

/// This process's rank of a plan that runs in several: see RankGroup. Called by all processes; refuses a world of
/// another size than the plan's.
Expected<std::unique_ptr<RankGroup>> makeProcessRank(const plan::Plan &plan, const RankGroupOptions &options);

} // namespace zerocc
