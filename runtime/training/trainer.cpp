#include "runtime/training/trainer.h"

#include "runtime/checkpoint/load.h"
#include "runtime/plan/loss_scale.h"
#include "runtime/plan/lr_schedule.h"
#include "runtime/plan/optimizers.h"
#include "runtime/plan/scalars.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

namespace zerocc {
namespace {

struct RunTimeValue {
  const char *name;
  int scalar; // -1: of all groups that decay
  const char *meaning;
};
constexpr RunTimeValue kRunTimeValues[] = {
    {"lr", kScalarBaseLr, "learning rate"},
    {"beta1", kScalarBeta1, "adamw, adam, onnx_adam, lion: decay of the first moment"},
    {"beta2", kScalarBeta2, "the same and rmsprop: decay of the second moment (lion: of its state)"},
    {"eps", kScalarEps, "added to the root"},
    {"momentum", kScalarMomentum, "SGD"},
    {"nesterov", kScalarNesterov, "SGD: 0 or 1"},
    {"clip-grad-norm", kScalarClip, "greatest global gradient norm (0: off)"},
    {"warmup-steps", kScalarWarmupSteps, "linear warm-up of the learning rate"},
    {"total-steps", kScalarTotalSteps, "length of the schedule"},
    {"min-lr", kScalarMinLr, "learning rate at the end of the schedule"},
    {"weight-decay", -1, "of matrices (vectors do not decay) outside of groups that have their own"},
    {"loss-scale", kScalarLossScale, "f16: what the loss is multiplied by (dynamic: as it stands now)"},
    {"loss-scale-window", kScalarScaleWindow, "f16, dynamic: steps without an overflow after which it doubles"},
    {"loss-scale-hysteresis", kScalarScaleHysteresis, "f16, dynamic: overflows before it halves"},
    {"loss-scale-min", kScalarScaleLeast, "f16, dynamic: the least scale"},
};

/// "0.001"
std::string numberText(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

/// Whether the plan's optimizer reads this run-time value.
bool isRead(const plan::Plan &plan, int scalar) {
  const Optimizer *optimizer = findOptimizer(plan.facts().optimizer());
  if (!optimizer)
    return true;
  switch (scalar) {
  case kScalarBeta1:
    return optimizer->beta1 >= 0;
  case kScalarBeta2:
    return optimizer->beta2 >= 0;
  case kScalarEps:
    return optimizer->eps >= 0;
  case kScalarLossScale:
    return plan.defaults().loss_scale() > 0;
  case kScalarScaleWindow:
  case kScalarScaleHysteresis:
  case kScalarScaleLeast:
    return plan.defaults().loss_scale_dynamic();
  case kScalarMomentum:
  case kScalarNesterov:
    return optimizer->momentum >= 0 && std::ranges::any_of(plan.storages(), [](const plan::Storage &storage) {
             return storage.kind() == plan::Storage::MOMENT1;
           });
  default:
    return true;
  }
}

/// Where GROUP.lr-factor or GROUP.weight-decay lies in the scalar block; -1: the name is neither.
Expected<int> groupScalar(const plan::Plan &plan, const std::string &name) {
  for (auto [ending, offset] : {std::pair<std::string, int>(".weight-decay", 0), {".lr-factor", 1}}) {
    if (!name.ends_with(ending))
      continue;
    const std::string group = name.substr(0, name.size() - ending.size());
    std::string names;
    for (int g = 0; g < plan.groups_size() && g < kMaxGroups; ++g) {
      if (plan.groups(g) == group)
        return kScalarGroups + 2 * g + offset;
      names += (names.empty() ? "" : ", ") + plan.groups(g);
    }
    return Error("--set " + name + ": the plan has no parameter group \"" + group + "\"", "it has " + names);
  }
  return -1;
}

} // namespace

std::vector<std::pair<std::string, std::string>> runTimeValues() {
  std::vector<std::pair<std::string, std::string>> values;
  for (const RunTimeValue &value : kRunTimeValues)
    values.push_back({value.name, value.meaning});
  return values;
}

Expected<std::unique_ptr<Trainer>> Trainer::create(const plan::Plan &plan, const TrainerOptions &options) {
  if (options.values.checkpoint)
    ZEROCC_TRY(checkCheckpoint(plan, *options.values.checkpoint));
  ZEROCC_ASSIGN(auto group, RankGroup::create(plan, options.group));
  std::unique_ptr<Trainer> trainer(new Trainer(plan, std::move(group)));
  if (const Checkpoint *checkpoint = options.values.checkpoint) {
    trainer->step_ = checkpoint->index().step;
    trainer->samplesAhead_ = checkpoint->index().data.samples - trainer->step_ * trainer->samplesPerStep();
  }
  if (options.values.named)
    trainer->step_ = options.values.named->updates;
  ZEROCC_TRY(agree(trainer->group_->processes(), [&]() -> Status {
    ZEROCC_TRY(trainer->group_->forEachRank(
        [&](Executor &executor) { return loadValues(plan, executor, options.values); }));
    return trainer->writeScalars(options);
  }()));
  if (trainer->group_->here().hasSegment("init"))
    ZEROCC_TRY(trainer->group_->runSegment("init"));
  return trainer;
}

Status Trainer::writeScalars(const TrainerOptions &options) {
  const plan::RunDefaults &defaults = plan_.defaults();
  double scalars[kScalars] = {};
  scalars[kScalarBaseLr] = defaults.lr();
  scalars[kScalarBeta1] = defaults.beta1();
  scalars[kScalarBeta2] = defaults.beta2();
  scalars[kScalarEps] = defaults.eps();
  scalars[kScalarMomentum] = defaults.momentum();
  scalars[kScalarNesterov] = defaults.nesterov();
  scalars[kScalarClip] = defaults.clip_grad_norm();
  scalars[kScalarWarmupSteps] = static_cast<double>(defaults.warmup_steps());
  scalars[kScalarTotalSteps] =
      static_cast<double>(defaults.total_steps() ? defaults.total_steps() : options.totalSteps);
  scalars[kScalarMinLr] = defaults.min_lr();
  scalars[kScalarFirstCount] = static_cast<double>(defaults.first_count());
  const std::string &optimizer = plan_.facts().optimizer();
  scalars[kScalarOwn] = optimizer == "onnx_adam" ? defaults.post_decay()
                        : optimizer == "adagrad" ? defaults.rate_decay()
                                                 : defaults.dampening();
  scalars[kScalarStaticCount] = plan_.facts().static_count();
  writeLossScale(defaults.loss_scale() > 0 ? defaults.loss_scale() : 1, defaults.loss_scale_dynamic(),
                 static_cast<double>(defaults.loss_scale_window()),
                 static_cast<double>(defaults.loss_scale_hysteresis()), defaults.loss_scale_min(), scalars);
  for (int g = 0; g < defaults.group_weight_decay_size() && g < kMaxGroups; ++g) {
    scalars[kScalarGroups + 2 * g] = defaults.group_weight_decay(g);
    scalars[kScalarGroups + 2 * g + 1] = defaults.group_lr_factor(g);
  }
  ZEROCC_TRY(writeSchedule(defaults.lr_schedule(), scalars));
  if (options.values.named)
    scalars[kScalarStep] = scalars[kScalarUpdates] = static_cast<double>(step_);
  if (options.values.checkpoint) {
    const std::vector<double> own(scalars, scalars + kScalars);
    ZEROCC_TRY(loadScalars(plan_, *options.values.checkpoint, scalars));
    for (const RunTimeValue &value : kRunTimeValues)
      if (value.scalar >= 0 && own[value.scalar] != scalars[value.scalar])
        notes_.push_back(std::string(value.name) + " is " + numberText(scalars[value.scalar]) +
                         ", from the checkpoint; without it " + numberText(own[value.scalar]));
  }
  if (!options.schedule.empty())
    ZEROCC_TRY(writeSchedule(options.schedule, scalars));
  for (const auto &[name, value] : options.set) {
    ZEROCC_ASSIGN(const int ofGroup, groupScalar(plan_, name));
    if (ofGroup >= 0) {
      if (!(value >= 0) || !std::isfinite(value))
        return Error("--set " + name + ": " + numberText(value) + " is not a number of at least 0");
      if (options.values.checkpoint)
        notes_.push_back(name + " is " + numberText(value) + ", by --set; the checkpoint has " + numberText(scalars[ofGroup]));
      scalars[ofGroup] = value;
      continue;
    }
    const RunTimeValue *found = nullptr;
    for (const RunTimeValue &candidate : kRunTimeValues)
      if (name == candidate.name)
        found = &candidate;
    if (!found) {
      std::string names;
      for (const RunTimeValue &candidate : kRunTimeValues)
        names += std::string(names.empty() ? "" : ", ") + candidate.name;
      return Error("--set: there is no run-time value \"" + name + "\"", "run-time values are " + names);
    }
    if (found->scalar == kScalarClip && value > 0 && !plan_.facts().clipping())
      return Error("--set clip-grad-norm: the plan was compiled without clipping",
                   "compile with --clip-grad-norm; its value can be set at run time");
    if (name.starts_with("loss-scale")) {
      if (!isRead(plan_, found->scalar))
        return Error("--set " + name + ": the plan has no " +
                         (plan_.defaults().loss_scale() > 0 ? "dynamic loss scale" : "loss scale"),
                     plan_.defaults().loss_scale() > 0 ? "compile with --loss-scale dynamic"
                                                       : "compile with --precision f16");
      if (!(value > 0) || !std::isfinite(value))
        return Error("--set " + name + ": " + numberText(value) + " is not above 0");
    }
    if (!isRead(plan_, found->scalar))
      return Error("--set " + name + ": the plan's optimizer, " + optimizer + ", does not read it",
                   found->scalar == kScalarMomentum || found->scalar == kScalarNesterov
                       ? "compile with --optimizer momentum"
                       : "leave it out");
    if (options.values.checkpoint)
      notes_.push_back(name + " is " + numberText(value) + ", by --set; the checkpoint has " +
                       numberText(scalars[found->scalar >= 0 ? found->scalar : int(kScalarGroups)]));
    if (found->scalar >= 0) {
      scalars[found->scalar] = value;
    } else {
      for (int g = 0; g < plan_.groups_size() && g < defaults.group_follows_decay_size(); ++g)
        if (defaults.group_follows_decay(g))
          scalars[kScalarGroups + 2 * g] = value;
    }
  }
  return group_->forEachRank(
      [&](Executor &executor) { return executor.writeStorage("scalars", scalars, sizeof scalars); });
}

Status Trainer::fillInputs(Executor &executor, const DataSet &data, const Batch &batch) {
  for (int i = 0; i < plan_.inputs_size(); ++i)
    ZEROCC_TRY(data.fill(batch, i, executor.address(3, plan_.inputs(i).offset())));
  return success();
}

const char *Trainer::variant(int64_t k) const {
  int64_t last = static_cast<int64_t>(plan_.micro_steps()) - 1;
  return last == 0 ? "only" : k == 0 ? "first" : k == last ? "last" : "middle";
}

Expected<StepReport> Trainer::step(const DataSet &data, const std::function<Status()> &beforeUpdate) {
  auto begin = std::chrono::steady_clock::now();
  int64_t microSteps = static_cast<int64_t>(plan_.micro_steps());
  // By reference: a std::function of its own would allocate.
  auto microBatches = [&](Executor &executor) -> Status {
    for (int64_t k = 0; k < microSteps; ++k) {
      ZEROCC_TRY(fillInputs(executor, data, {step_, k, executor.rank(), samplesAhead_}));
      ZEROCC_TRY(executor.runSegment(variant(k)));
    }
    return beforeUpdate ? success() : executor.runSegment("update");
  };
  ZEROCC_TRY(group_->forEachRank(std::ref(microBatches)));
  if (beforeUpdate) {
    ZEROCC_TRY(beforeUpdate());
    ZEROCC_TRY(group_->runSegment("update"));
  }
  double scalars[kScalars];
  readScalars(scalars);
  double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  StepReport report;
  report.step = ++step_;
  report.loss = scalars[kScalarLoss];
  report.lr = scalars[kScalarLr];
  report.gradNorm = scalars[kScalarGradNorm];
  report.skipped = static_cast<int64_t>(scalars[kScalarSkipped]);
  report.skippedInRow = static_cast<int64_t>(scalars[kScalarSkippedInRow]);
  report.lossScale = scalars[kScalarLossScale];
  report.milliseconds = seconds * 1e3;
  report.samplesPerSecond = static_cast<double>(microSteps * group_->ranks() * plan_.micro_batch()) / seconds;
  int64_t wire = group_->here().traffic().total();
  report.wireBytes = wire - wireBefore_;
  wireBefore_ = wire;
  return report;
}

void Trainer::readScalars(double *scalars) {
  const Status read = group_->here().readStorage("scalars", scalars, kScalars * sizeof(double));
  assert(read && "every training plan has the scalar block: the verifier looks for it");
  (void)read;
}

double Trainer::lossScale() {
  double scalars[kScalars];
  readScalars(scalars);
  return scalars[kScalarLossScale];
}

std::string Trainer::skipCause() {
  double scalars[kScalars];
  readScalars(scalars);
  const std::string step = "step " + std::to_string(static_cast<int64_t>(scalars[kScalarBadStep]) + 1);
  int64_t bucket = static_cast<int64_t>(scalars[kScalarBadBucket]);
  const auto element = static_cast<uint64_t>(scalars[kScalarBadElement]);
  if (bucket < 0)
    return "the loss of " + step;
  for (const plan::Bucket &candidate : plan_.buckets())
    if (candidate.trainable() && bucket-- == 0)
      for (const plan::Range &range : candidate.ranges())
        if (range.begin() <= element && element < range.end())
          return "element " + std::to_string(element - range.begin()) + " of the gradient of \"" +
                 plan_.parameters(static_cast<int>(range.parameter())).name() + "\" in " + step +
                 (scalars[kScalarBadScale] != 1 ? ", at loss scale " + numberText(scalars[kScalarBadScale]) : "");
  return "a gradient of " + step;
}

Expected<std::pair<double, double>> Trainer::lossPair() {
  std::vector<double> pairs(2 * group_->ranks());
  for (int r = group_->firstHere(); r < group_->firstHere() + group_->ranksHere(); ++r)
    std::memcpy(&pairs[2 * r], group_->executor(r).storage("loss")->data, 2 * sizeof(double));
  if (group_->processes().size() > 1)
    ZEROCC_TRY(group_->processes().allGather(&pairs[2 * group_->firstHere()], 2 * sizeof(double), pairs.data()));
  std::pair<double, double> sum{0, 0};
  for (int r = 0; r < group_->ranks(); ++r) {
    sum.first += pairs[2 * r];
    sum.second += pairs[2 * r + 1];
  }
  return sum;
}

Expected<double> Trainer::evaluate(const DataSet &data, int64_t batches) {
  ZEROCC_TRY(data.beginAgain());
  double sum = 0, count = 0;
  int64_t microSteps = static_cast<int64_t>(plan_.micro_steps());
  for (int64_t m = 0; m < batches; ++m) {
    auto one = [&](Executor &executor) -> Status {
      ZEROCC_TRY(fillInputs(executor, data, {m / microSteps, m % microSteps, executor.rank()}));
      return executor.runSegment("eval");
    };
    ZEROCC_TRY(group_->forEachRank(std::ref(one)));
    ZEROCC_ASSIGN(auto pair, lossPair());
    sum += pair.first;
    count += pair.second;
  }
  wireBefore_ = group_->here().traffic().total();
  return count > 0 ? sum / count : 0;
}

} // namespace zerocc
