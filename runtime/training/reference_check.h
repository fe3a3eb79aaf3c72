#pragma once

#include "runtime/training/trainer.h"
#include "runtime/weights/compare.h"

#include <string>

namespace zerocc {

/// Feeds a run into the comparison with a recorded training: losses and gradient norms of every step, gradients of the
/// first step (mean, before clipping), weights after step `weightStep`. A recorded NAME is a parameter's name, its
/// initializer's, or SHARED#NAME for one that the exporter had merged. Every trainable parameter must have been recorded,
/// and everything recorded must be compared; the running statistics that a recording holds are, after the same step.
class ReferenceCheck {
public:
  static Expected<ReferenceCheck> open(const std::string &path, const std::string &prefix, int64_t weightStep,
                                       const Tolerances &tolerances);

  /// Between the micro-steps and the update of step 1.
  Status compareGradients(const plan::Plan &plan, Trainer &trainer);
  Status afterStep(const plan::Plan &plan, Trainer &trainer, const StepReport &step);
  bool passed() const;
  /// What was compared, the worst of each kind by name, and what failed.
  std::string report() const;

private:
  explicit ReferenceCheck(Comparison comparison) : comparison_(std::move(comparison)) {}
  Status compareBuffers(const plan::Plan &plan, RankGroup &group);
  Status compareTensors(const plan::Plan &plan, RankGroup &group, Tensor which, double factor);

  Comparison comparison_;
  int64_t weightStep_ = 3;
  bool gradientsCompared_ = false, weightsCompared_ = false;
  std::vector<std::string> unrecorded_;
};

} // namespace zerocc
