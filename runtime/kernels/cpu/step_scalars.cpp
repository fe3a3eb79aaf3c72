// step_scalars: from what the ranks exchanged, everything the update reads. All ranks compute the same from
// the same.

#include "runtime/kernels/cpu/prepare.h"
#include "runtime/plan/loss_scale.h"
#include "runtime/plan/lr_schedule.h"
#include "runtime/plan/scalars.h"

#include <algorithm>
#include <cmath>

namespace zerocc {
namespace {

/// What the ranks' rows come to. Columns of a row: loss sum, count, then per bucket what norm_partial gives.
struct Exchange {
  double loss = 0, count = 0, squares = 0;
  double badBucket = -1, badElement = -1; // the first gradient that is not finite, none: -1

  bool isFinite() const { return badBucket < 0 && std::isfinite(squares) && std::isfinite(loss); }
};

struct StepState {
  int64_t ranks = 1, columns = 2;
  int64_t shard = 1; // ranks of one replica; rank = replica * shard + index
};

/// Sums in rank order, in a rank in bucket order. Replicas hold equal gradient parts: the first replica
/// counts. Buckets are in reverse order of use and parts in rank order: of what is not finite, the first bucket's first
/// element is the one that the backward met first.
Exchange combine(const StepState &state, const double *rows) {
  Exchange out;
  for (int64_t rank = 0; rank < state.ranks; ++rank) {
    const double *row = rows + rank * state.columns;
    out.loss += row[0];
    out.count += row[1];
    if (rank >= state.shard)
      continue;
    for (int64_t column = 2; column + 1 < state.columns; column += 2) {
      out.squares += row[column];
      const double bucket = static_cast<double>(column / 2 - 1);
      if (row[column + 1] != 0 && (out.badBucket < 0 || bucket < out.badBucket)) {
        out.badBucket = bucket;
        out.badElement = row[column + 1] - 1;
      }
    }
  }
  return out;
}

void runStepScalars(const KernelCall &call) {
  const auto &state = stateOf<StepState>(call);
  double *scalars = pointer<double>(call.results[0]);
  Exchange sums = combine(state, pointer<const double>(call.inputs[0]));

  // Gradients are sums over all labels, times the loss scale, seeded as if each micro-batch had staticCount of them.
  double mean = sums.count > 0 ? scalars[kScalarStaticCount] / sums.count / scalars[kScalarLossScale] : 0;
  double norm = std::sqrt(sums.squares) * mean;
  double loss = sums.count > 0 ? sums.loss / sums.count : 0;
  double factor = mean;
  if (scalars[kScalarClip] > 0) // torch.nn.utils.clip_grad_norm_
    factor *= std::min(1.0, scalars[kScalarClip] / (norm + 1e-6));
  const bool skip = !sums.isFinite() || !std::isfinite(norm);

  scalars[kScalarLr] = scheduledRate(scalars);
  scalars[kScalarBeta1] = scheduledBeta1(scalars);
  scalars[kScalarLoss] = loss;
  scalars[kScalarCount] = sums.count;
  scalars[kScalarGradNorm] = norm;
  scalars[kScalarFactor] = skip ? 0 : factor;
  scalars[kScalarSkip] = skip;
  scalars[kScalarStep] += 1;
  const double scale = scalars[kScalarLossScale];
  moveLossScale(scalars, skip);
  if (skip) {
    if (scalars[kScalarSkippedInRow] == 0) {
      scalars[kScalarBadStep] = scalars[kScalarStep] - 1;
      scalars[kScalarBadBucket] = sums.badBucket;
      scalars[kScalarBadElement] = sums.badElement;
      scalars[kScalarBadScale] = scale;
    }
    scalars[kScalarSkippedInRow] += 1;
    scalars[kScalarSkipped] += 1;
    return;
  }
  scalars[kScalarSkippedInRow] = 0;
  scalars[kScalarUpdates] += 1;
  scalars[kScalarCorrection1] = 1 - std::pow(scalars[kScalarBeta1], scalars[kScalarUpdates]);
  scalars[kScalarCorrection2] = 1 - std::pow(scalars[kScalarBeta2], scalars[kScalarUpdates]);
}

// step_scalars      (exchanged f64[ranks, m], scalars) -> scalars, in place
Status prepareStepScalars(KernelCall &call) {
  ZEROCC_TRY(expectCounts(call, 2, 1));
  const TensorView &exchanged = call.inputs[0], &scalars = call.inputs[1];
  if (exchanged.dtype != DType::f64 || exchanged.rank != 2 || !exchanged.contiguous() ||
      exchanged.dims[1] < 2 || exchanged.dims[1] % 2 != 0)
    return refuse(call, "exchanged must be f64[ranks,2 + 2 buckets]");
  if (scalars.dtype != DType::f64 || scalars.elements() != kScalars || !scalars.contiguous())
    return refuse(call, "scalars must be f64[" + std::to_string(kScalars) + "]");
  if (call.results[0].data != scalars.data)
    return refuse(call, "the result must lie on operand 1");
  StepState state;
  state.ranks = exchanged.dims[0];
  state.columns = exchanged.dims[1];
  state.shard = call.attributes.getInt("mesh_shard", state.ranks);
  int64_t replicas = call.attributes.getInt("mesh_replicate", 1);
  if (state.shard * replicas != state.ranks)
    return refuse(call, "a mesh of " + std::to_string(state.shard) + " x " + std::to_string(replicas) +
                            " has not " + std::to_string(state.ranks) + " ranks");
  setState(call, state);
  call.run = runStepScalars;
  return success();
}

} // namespace

extern const CpuKernel stepScalarsKernels = {prepareStepScalars};

} // namespace zerocc
