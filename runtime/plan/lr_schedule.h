#pragma once

#include "compiler/support/expected.h"

#include <string>

namespace zerocc {

/// A learning-rate schedule as written: NAME[:key=value,…]. Names and keys are constant, linear, cosine (with the
/// run-time values warmup-steps, total-steps, min-lr), or DeepSpeed's WarmupLR, WarmupDecayLR, WarmupCosineLR, OneCycle
/// and LRRangeTest with the keys of their `params`.
///
/// Writes the schedule's entries of the scalar block (scalars.h), which the caller has filled with the other run-time
/// values: keys that a schedule does not name keep those (warmup_max_lr: lr; total_num_steps: total-steps).
/// Errors: an unknown name or key, a value that is no number or out of range.
Status writeSchedule(const std::string &text, double *scalars);

/// Checks the text alone.
Status checkSchedule(const std::string &text);

/// The learning rate of the update that comes next, from the scalar block. Of groups with a factor of 1.
double scheduledRate(const double *scalars);

/// Beta1 of that update under OneCycle, which moves it against the rate; else kScalarBeta1 as it is.
double scheduledBeta1(const double *scalars);

} // namespace zerocc
