// step_scalars: from what the ranks exchanged, everything the update reads. All ranks compute the same from
// the same.

#include "runtime/kernels/cpu/prepare.h"
#include "runtime/plan/lr_schedule.h"
#include "runtime/plan/scalars.h"

#include <algorithm>
#include <cmath>

namespace zerocc {
namespace {

/// Columns of a rank's row: loss sum, count, then per bucket sum of squares and number of non-finite
/// elements.
struct Exchange {
  double loss = 0, count = 0, squares = 0, nonFinite = 0;
};

struct StepState {
  int64_t ranks = 1, columns = 2;
  int64_t shard = 1; // ranks of one replica; rank = replica * shard + index
};

/// Sums in rank order, in a rank in bucket order. Replicas hold equal gradient parts: the first replica
/// counts.
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
      out.nonFinite += row[column + 1];
    }
  }
  return out;
}

void runStepScalars(const KernelCall &call) {
  const auto &state = stateOf<StepState>(call);
  double *scalars = pointer<double>(call.results[0]);
  Exchange sums = combine(state, pointer<const double>(call.inputs[0]));

  // Gradients are sums over all labels, seeded as if each micro-batch had staticCount of them.
  double mean = sums.count > 0 ? scalars[kScalarStaticCount] / sums.count : 0;
  double norm = std::sqrt(sums.squares) * mean;
  double loss = sums.count > 0 ? sums.loss / sums.count : 0;
  double factor = mean;
  if (scalars[kScalarClip] > 0) // torch.nn.utils.clip_grad_norm_
    factor *= std::min(1.0, scalars[kScalarClip] / (norm + 1e-6));
  bool skip =
      sums.nonFinite > 0 || !std::isfinite(sums.squares) || !std::isfinite(norm) || !std::isfinite(sums.loss);

  scalars[kScalarLr] = scheduledRate(scalars);
  scalars[kScalarBeta1] = scheduledBeta1(scalars);
  scalars[kScalarLoss] = loss;
  scalars[kScalarCount] = sums.count;
  scalars[kScalarGradNorm] = norm;
  scalars[kScalarFactor] = skip ? 0 : factor;
  scalars[kScalarSkip] = skip;
  scalars[kScalarStep] += 1;
  if (skip) {
    scalars[kScalarSkipped] += 1;
    return;
  }
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
