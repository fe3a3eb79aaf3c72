#pragma once

#include "runtime/data/npy.h"
#include "runtime/training/trainer.h"

#include <string>

namespace zerocc {

/// Relative: losses to their value, tensors to their largest magnitude.
struct ReferenceTolerances {
  double loss = 1e-4, gradient = 1e-4, weight = 1e-4;
};

/// A run beside a recorded training (REF.npz): keys PREFIXloss [steps], PREFIXgrad/NAME (mean gradient of step 1 before
/// clipping), PREFIXweight/NAME (after step `weightStep`). NAME is a parameter's name or its initializer's; a recorded
/// SHARED#NAME is NAME. Every trainable parameter must have been recorded. An optional spread/NAME, how far the recording's
/// f32 and f64 weights are apart, is allowed four times over.
class ReferenceCheck {
public:
  static Expected<ReferenceCheck> open(const std::string &path, const std::string &prefix, int64_t weightStep,
                                       const ReferenceTolerances &tolerances);

  /// Between the micro-steps and the update of step 1.
  void compareGradients(const plan::Plan &plan, Trainer &trainer);
  void afterStep(const plan::Plan &plan, Trainer &trainer, const StepReport &step);
  bool passed() const { return failures_.empty() && compared_ > 0; }
  /// What was compared, the worst of each kind by name, and what failed.
  std::string report() const;

private:
  struct Worst {
    std::string name = "-";
    double relative = 0, absolute = 0;
    int64_t compared = 0;
  };
  explicit ReferenceCheck(NpzFile file) : file_(std::move(file)) {}
  void compareTensors(const plan::Plan &plan, RankGroup &group, Tensor which, const std::string &kind, double factor,
                      double tolerance, Worst &worst);
  std::string findKey(const std::string &kind, const plan::Parameter &parameter) const;
  /// How far the recording's f32 and f64 runs are apart in this weight (key spread/NAME), 0 when not recorded.
  double spreadOf(const std::string &key) const;
  void note(Worst &worst, const std::string &name, double relative, double absolute, double tolerance);

  NpzFile file_;
  std::string prefix_;
  int64_t weightStep_ = 3;
  ReferenceTolerances tolerances_;
  std::vector<double> losses_;
  Worst loss_, gradient_, weight_;
  int64_t compared_ = 0;
  std::vector<std::string> failures_;
};

} // namespace zerocc
