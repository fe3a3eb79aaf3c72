#pragma once

#include "runtime/checkpoint/checkpoint.h"
#include "runtime/executor/executor.h"

namespace zerocc {

/// Whether a plan can go on from a checkpoint: it is of the same model, and each has the tensors the other has. Mesh,
/// stage, buckets, micro-batch and dtypes of floats may differ. Names what does not fit.
Status checkCheckpoint(const plan::Plan &plan, const Checkpoint &checkpoint);

/// Fills a rank's parameters, optimizer states and buffers, reading only what it owns.
Status loadCheckpoint(const plan::Plan &plan, Executor &executor, const Checkpoint &checkpoint);

/// What is saved of the scalar block goes into `scalars` (kScalars), by name. `scalars` holds the plan's values.
/// Labels per micro-batch stay those of the plan, group values are found by the group's name.
Status loadScalars(const plan::Plan &plan, const Checkpoint &checkpoint, double *scalars);

} // namespace zerocc
