#pragma once

#include "compiler/ir/module.h"

namespace zerocc {

// The facts that rows of the ladder leave behind (DESIGN.md, STYLE.md): each returns all violations it finds.

/// After autodiff: graph micro_step yields exactly one gradient per trainable parameter, of the parameter's type.
Status checkOneGradientPerParameter(const Module &module);

/// After partition: every parameter lies in exactly one bucket, aligned, without overlap, inside the padded size.
Status checkEveryParameterInOneBucket(const Module &module);

/// After insert_fetch_release: no compute node reads a parameter or a shard; each fetch out of a shard has exactly one
/// release, after its last reader; and the spreads of all values fit (checkSpreads).
Status checkFetchesAndSpreads(const Module &module);

/// How every value is spread over the shard and the replicate axis, inferred; only collectives change it.
/// An error for a compute node that reads a part or an un-reduced sum, for a gradient that reaches the optimizer
/// partial (un-reduced) and for one that is reduced twice.
Status checkSpreads(const Module &module);

/// After schedule: starts come before their waits, each start has exactly one wait.
Status checkStartsBeforeWaits(const Module &module);

/// After plan_memory: every root value has a place inside its region.
Status checkEveryValuePlaced(const Module &module);

} // namespace zerocc
