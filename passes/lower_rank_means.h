#pragma once

#include "passes/pass.h"

namespace zerocc {

/// Before: rank_mean nodes, which say that a value is to be averaged over the ranks inside of a step (statistics of
///         synchronised batch norm, and what autodiff made of them). After: each is an exchange of the ranks' values in
///         f64 and their mean in rank order, the same on every rank; on one rank it is its operand.
/// Here:   after partition, which sets the mesh.
///
///     %y = rank_mean %x      becomes, on 2 ranks
///     %a = exchange.start (reshape (cast %x)); %b = reduce.wait %a; %y = cast (reshape (0.5 * reduce_sum %b))
///
/// Tests: tests/passes/lower_rank_means
Expected<PassReport> lowerRankMeans(Module &module, const Decisions &decisions);

} // namespace zerocc
