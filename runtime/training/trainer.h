#pragma once

#include "runtime/data/data_set.h"
#include "runtime/training/parameters.h"

#include <functional>
#include <string>
#include <vector>

namespace zerocc {

/// One step as it is reported: all ranks together.
struct StepReport {
  int64_t step = 0; // from 1
  double loss = 0, lr = 0, gradNorm = 0, milliseconds = 0, samplesPerSecond = 0;
  int64_t skipped = 0;   // steps skipped so far: gradients were not finite
  int64_t wireBytes = 0; // received by rank 0 in this step
  int64_t skippedInRow = 0; // up to this step, it included
  double lossScale = 1;     // of the next step
};

struct TrainerOptions {
  InitialValues values;
  /// Run-time values by name (lr, beta1, weight-decay, …) over the plan's defaults.
  std::vector<std::pair<std::string, double>> set;
  std::string schedule; // of the learning rate (lr_schedule.h); empty: the plan's
  int64_t totalSteps = 0; // length of the schedule when the plan does not say
  RankGroupOptions group;
};

/// Runs a plan's training on the ranks of this process, beside the other processes if there are any. With a checkpoint among the values it goes on from there: at its
/// step, its position in the data, with its run-time values where `set` and `schedule` say nothing else.
class Trainer {
public:
  /// The plan outlives the trainer.
  static Expected<std::unique_ptr<Trainer>> create(const plan::Plan &plan, const TrainerOptions &options);

  /// One step: K micro-steps and the update. `beforeUpdate`, when given, runs once between them.
  Expected<StepReport> step(const DataSet &data, const std::function<Status()> &beforeUpdate = {});
  /// Mean loss over `batches` global micro-batches, from the first sample of `data` on.
  Expected<double> evaluate(const DataSet &data, int64_t batches);

  RankGroup &group() { return *group_; }
  /// Sum of losses and count of labels over all ranks of the micro-steps since the last update.
  Expected<std::pair<double, double>> lossPair();
  /// What the backward of the next step is scaled by; 1 without loss scaling.
  double lossScale();
  /// What was first not to be finite in the row of skipped steps that has just gone on: step, parameter, element.
  std::string skipCause();
  int64_t stepsDone() const { return step_; }
  /// Samples taken so far, by all ranks; of a resumed run, those before it included.
  int64_t samplesTaken() const { return step_ * samplesPerStep() + samplesAhead_; }
  /// Run-time values that a checkpoint changed, and those of it that --set changed.
  const std::vector<std::string> &notes() const { return notes_; }

private:
  Trainer(const plan::Plan &plan, std::unique_ptr<RankGroup> group) : plan_(plan), group_(std::move(group)) {}
  Status writeScalars(const TrainerOptions &options);
  void readScalars(double *scalars);
  Status fillInputs(Executor &executor, const DataSet &data, const Batch &batch);
  const char *variant(int64_t k) const;
  int64_t samplesPerStep() const {
    return static_cast<int64_t>(plan_.micro_steps()) * group_->ranks() * plan_.micro_batch();
  }

  const plan::Plan &plan_;
  std::unique_ptr<RankGroup> group_;
  int64_t step_ = 0;
  int64_t samplesAhead_ = 0; // of step_ * samplesPerStep(): steps before a resume took more or fewer
  int64_t wireBefore_ = 0;
  std::vector<std::string> notes_;
};

/// The names --set takes, with what each means: for --help and errors.
std::vector<std::pair<std::string, std::string>> runTimeValues();

} // namespace zerocc
