#include "runtime/plan/lr_schedule.h"

#include "runtime/plan/scalars.h"

#include "llvm/ADT/StringRef.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

namespace zerocc {
namespace {

// What a schedule keeps in kScalarSchedule0 + i.
enum WarmupSlot : int { kWarmupLinear, kWarmupMin, kCosineMin };
enum CycleSlot : int {
  kSecondSteps,
  kFirstStairs,
  kSecondStairs,
  kDecaySteps,
  kDecayLr,
  kMinMomentum,
  kMaxMomentum,
  kDecayMomentum
};
enum RangeSlot : int { kRangeSteps, kRangeRate, kRangeStaircase };
constexpr double kUnset = -1;

struct Key {
  const char *name;
  int scalar;
  double otherwise; // NaN: the scalar block's
  double least = 0;
};

constexpr double kKept = std::numeric_limits<double>::quiet_NaN();
constexpr int slot(int i) { return kScalarSchedule0 + i; }

struct Form {
  const char *name;
  Schedule schedule;
  std::vector<Key> keys;
};

// Defaults: deepspeed/runtime/lr_schedules.py (0.19).
const std::vector<Form> &forms() {
  static const std::vector<Form> list = {
      {"constant", Schedule::constant, {}},
      {"linear", Schedule::linear, {}},
      {"cosine", Schedule::cosine, {}},
      {"WarmupLR",
       Schedule::warmupLr,
       {{"warmup_min_lr", slot(kWarmupMin), 0},
        {"warmup_max_lr", kScalarBaseLr, kKept},
        {"warmup_num_steps", kScalarWarmupSteps, 1000, 1},
        {"warmup_type", slot(kWarmupLinear), 0}}},
      {"WarmupDecayLR",
       Schedule::warmupDecayLr,
       {{"total_num_steps", kScalarTotalSteps, kKept, 1},
        {"warmup_min_lr", slot(kWarmupMin), 0},
        {"warmup_max_lr", kScalarBaseLr, 0.001},
        {"warmup_num_steps", kScalarWarmupSteps, 1000, 1},
        {"warmup_type", slot(kWarmupLinear), 0}}},
      {"WarmupCosineLR",
       Schedule::warmupCosineLr,
       {{"total_num_steps", kScalarTotalSteps, kKept, 1},
        {"warmup_min_ratio", slot(kWarmupMin), 0},
        {"warmup_num_steps", kScalarWarmupSteps, 1000, 1},
        {"cos_min_ratio", slot(kCosineMin), 0.0001},
        {"warmup_type", slot(kWarmupLinear), 0}}},
      {"OneCycle",
       Schedule::oneCycle,
       {{"cycle_min_lr", kScalarMinLr, kKept},
        {"cycle_max_lr", kScalarBaseLr, kKept},
        {"decay_lr_rate", slot(kDecayLr), 0},
        {"cycle_first_step_size", kScalarWarmupSteps, 2000, 1},
        {"cycle_second_step_size", slot(kSecondSteps), kUnset},
        {"cycle_first_stair_count", slot(kFirstStairs), 0},
        {"cycle_second_stair_count", slot(kSecondStairs), kUnset},
        {"decay_step_size", slot(kDecaySteps), 0},
        {"cycle_momentum", slot(kMinMomentum), 1}, // 0 or 1; becomes the least momentum
        {"cycle_min_mom", slot(kMinMomentum), 0.8},
        {"cycle_max_mom", slot(kMaxMomentum), 0.9},
        {"decay_mom_rate", slot(kDecayMomentum), 0}}},
      {"LRRangeTest",
       Schedule::lrRangeTest,
       {{"lr_range_test_min_lr", kScalarMinLr, 1e-3},
        {"lr_range_test_step_size", slot(kRangeSteps), 2000, 1},
        {"lr_range_test_step_rate", slot(kRangeRate), 1},
        {"lr_range_test_staircase", slot(kRangeStaircase), 0}}}};
  return list;
}

Expected<double> valueOf(const Key &key, llvm::StringRef text) {
  if (llvm::StringRef(key.name) == "warmup_type") {
    if (text == "log" || text == "linear")
      return text == "linear" ? 1.0 : 0.0;
    return Error("warmup_type is \"" + text.str() + "\"", "it is log or linear");
  }
  if (text == "true" || text == "false")
    return text == "true" ? 1.0 : 0.0;
  double value = 0;
  if (text.getAsDouble(value) || !std::isfinite(value))
    return Error(std::string(key.name) + ": \"" + text.str() + "\" is not a number");
  if (value < key.least)
    return Error(std::string(key.name) + " is " + text.str() + ", it must be at least " +
                 std::to_string(static_cast<int64_t>(key.least)));
  return value;
}

Expected<const Form *> formOf(llvm::StringRef name) {
  std::string names;
  for (const Form &form : forms()) {
    if (name == form.name)
      return &form;
    names += (names.empty() ? "" : ", ") + std::string(form.name);
  }
  return Error("there is no learning-rate schedule \"" + name.str() + "\"", "schedules are " + names);
}

// --- the formulas; `i` counts updates from 0

// DeepSpeed: the first update takes the least, later ones the fraction of step i - 1: log(i) / log(W), or (i
// - 1) / W
std::optional<double> warmupFraction(const double *scalars, double i) {
  const double last = i - 1, steps = std::max(2.0, scalars[kScalarWarmupSteps]);
  if (last >= steps)
    return std::nullopt;
  if (last < 0)
    return 0;
  return scalars[slot(kWarmupLinear)] != 0 ? last / steps : std::log(last + 1) / std::log(steps);
}

double warmupLr(const double *scalars, double i, bool decay) {
  const double least = scalars[slot(kWarmupMin)], span = scalars[kScalarBaseLr] - least;
  if (std::optional<double> fraction = warmupFraction(scalars, i))
    return least + span * *fraction;
  if (!decay)
    return scalars[kScalarBaseLr];
  const double steps = std::max(2.0, scalars[kScalarWarmupSteps]), total = scalars[kScalarTotalSteps];
  return least + span * std::max(0.0, (total - (i - 1)) / std::max(1.0, total - steps));
}

double warmupCosine(const double *scalars, double i) {
  if (i < 1)
    return 0; // whatever the least ratio
  const double least = scalars[slot(kWarmupMin)], floor = scalars[slot(kCosineMin)];
  if (std::optional<double> fraction = warmupFraction(scalars, i))
    return scalars[kScalarBaseLr] * (least + *fraction * (1 - least));
  const double steps = std::max(2.0, scalars[kScalarWarmupSteps]);
  const double progress = std::min(1.0, (i - steps) / std::max(1.0, scalars[kScalarTotalSteps] - steps));
  return scalars[kScalarBaseLr] * std::max(0.0, floor + (1 - floor) * (1 + std::cos(M_PI * progress)) / 2);
}

/// One cycle up and down, then decay (Smith, arXiv 1803.09820).
struct Cycle {
  double first, second, firstStairs, secondStairs;

  explicit Cycle(const double *scalars)
      : first(scalars[kScalarWarmupSteps]), second(scalars[slot(kSecondSteps)]),
        firstStairs(scalars[slot(kFirstStairs)]), secondStairs(scalars[slot(kSecondStairs)]) {
    second = second < 0 ? first : second;
    secondStairs = secondStairs < 0 ? firstStairs : secondStairs;
  }
  double total() const { return first + second; }
  /// How far from the least to the greatest rate.
  double scale(double i) const {
    const double within = std::fmod(i, total());
    const bool up = within <= first;
    const double stairs = up ? firstStairs : secondStairs;
    const double fraction = up ? within / first : (total() - within) / second;
    return stairs > 0 ? std::floor(fraction * stairs) / stairs : fraction;
  }
};

double oneCycle(const double *scalars, double i) {
  const Cycle cycle(scalars);
  const double least = scalars[kScalarMinLr];
  if (i - 1 < cycle.total())
    return least + (scalars[kScalarBaseLr] - least) * cycle.scale(i);
  const double interval = scalars[slot(kDecaySteps)];
  return interval > 0 ? least / (1 + scalars[slot(kDecayLr)] * (i - cycle.total()) / interval) : least;
}

// warm-up: base (i + 1) / warmup; then constant, or from base to least at the last step: linear, cosine
double ours(const double *scalars, double i, Schedule schedule) {
  const double base = scalars[kScalarBaseLr], least = scalars[kScalarMinLr],
               warmup = scalars[kScalarWarmupSteps];
  if (i < warmup)
    return base * (i + 1) / warmup;
  const double progress =
      std::clamp((i - warmup) / std::max(1.0, scalars[kScalarTotalSteps] - warmup), 0.0, 1.0);
  if (schedule == Schedule::linear)
    return base + (least - base) * progress;
  if (schedule == Schedule::cosine)
    return least + 0.5 * (base - least) * (1 + std::cos(M_PI * progress));
  return base;
}

} // namespace

Status writeSchedule(const std::string &text, double *scalars) {
  auto [name, rest] = llvm::StringRef(text).split(':');
  ZEROCC_ASSIGN(const Form *form, formOf(name.empty() ? "constant" : name));
  scalars[kScalarSchedule] = static_cast<double>(form->schedule);
  bool cyclesMomentum = form->schedule == Schedule::oneCycle;
  for (const Key &key : form->keys)
    if (!std::isnan(key.otherwise) && llvm::StringRef(key.name) != "cycle_momentum")
      scalars[key.scalar] = key.otherwise;
  while (!rest.empty()) {
    auto [entry, tail] = rest.split(',');
    rest = tail;
    auto [keyName, valueText] = entry.split('=');
    const Key *found = nullptr;
    std::string names;
    for (const Key &key : form->keys) {
      names += (names.empty() ? "" : ", ") + std::string(key.name);
      if (keyName == key.name)
        found = &key;
    }
    if (!found)
      return Error("schedule " + name.str() + " has no key \"" + keyName.str() + "\"",
                   names.empty() ? "it has none: use --warmup-steps, --total-steps, --min-lr"
                                 : "keys are " + names);
    auto value = valueOf(*found, valueText);
    if (!value)
      return value.error().in("schedule " + name.str());
    if (keyName == "cycle_momentum")
      cyclesMomentum = *value != 0;
    else
      scalars[found->scalar] = *value;
  }
  if (form->schedule == Schedule::oneCycle && !cyclesMomentum)
    scalars[slot(kMinMomentum)] = kUnset;
  return success();
}

Status checkSchedule(const std::string &text) {
  double scalars[kScalars] = {};
  return writeSchedule(text, scalars);
}

double scheduledRate(const double *scalars) {
  const auto schedule = static_cast<Schedule>(static_cast<int>(scalars[kScalarSchedule]));
  const double updates = scalars[kScalarUpdates]; // DeepSpeed's schedulers rest in a step that is skipped
  switch (schedule) {
  case Schedule::warmupLr:
  case Schedule::warmupDecayLr:
    return warmupLr(scalars, updates, schedule == Schedule::warmupDecayLr);
  case Schedule::warmupCosineLr:
    return warmupCosine(scalars, updates);
  case Schedule::oneCycle:
    return oneCycle(scalars, updates);
  case Schedule::lrRangeTest: {
    double interval = updates / scalars[slot(kRangeSteps)];
    interval = scalars[slot(kRangeStaircase)] != 0 ? std::floor(interval) : interval;
    return scalars[kScalarMinLr] * (1 + scalars[slot(kRangeRate)] * interval);
  }
  default:
    return ours(scalars, scalars[kScalarStep], schedule);
  }
}

double scheduledBeta1(const double *scalars) {
  const double least = scalars[slot(kMinMomentum)], greatest = scalars[slot(kMaxMomentum)],
               i = scalars[kScalarUpdates];
  if (static_cast<Schedule>(static_cast<int>(scalars[kScalarSchedule])) != Schedule::oneCycle || least < 0)
    return scalars[kScalarBeta1];
  const Cycle cycle(scalars);
  if (i == 0)
    return least; // before its first step DeepSpeed's scheduler leaves the least
  if (i - 1 < cycle.total())
    return greatest - (greatest - least) * cycle.scale(i);
  const double interval = scalars[slot(kDecaySteps)], rate = scalars[slot(kDecayMomentum)];
  return interval > 0 && rate != 0 ? greatest * (1 + rate * (i - cycle.total()) / interval) : greatest;
}

} // namespace zerocc
