#include "runtime/training/reference_check.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace zerocc {

Expected<ReferenceCheck> ReferenceCheck::open(const std::string &path, const std::string &prefix, int64_t weightStep,
                                              const ReferenceTolerances &tolerances) {
  ZEROCC_ASSIGN(NpzFile file, NpzFile::open(path));
  ReferenceCheck check(std::move(file));
  check.prefix_ = prefix;
  check.weightStep_ = weightStep;
  check.tolerances_ = tolerances;
  if (!check.file_.has(prefix + "loss"))
    return Error(path + ": there is no array \"" + prefix + "loss\"", "a reference holds loss, grad/NAME, weight/NAME");
  ZEROCC_ASSIGN(ArrayView losses, check.file_.read(prefix + "loss"));
  for (int64_t i = 0; i < losses.elements; ++i)
    check.losses_.push_back(elementAsDouble(losses.type, losses.data, i));
  return check;
}

std::string ReferenceCheck::findKey(const std::string &kind, const plan::Parameter &parameter) const {
  for (const std::string &prefix : {prefix_ + kind + "/", kind + "/"}) {
    if (file_.has(prefix + parameter.name()))
      return prefix + parameter.name();
    std::string suffix = "#" + parameter.name();
    for (const std::string &key : file_.names())
      if (key.rfind(prefix, 0) == 0 && key.size() > suffix.size() &&
          key.compare(key.size() - suffix.size(), suffix.size(), suffix) == 0)
        return key;
    if (file_.has(prefix + parameter.initializer()))
      return prefix + parameter.initializer();
    if (kind == "weight")
      break; // gradients are recorded once; weights of another recording are other weights
  }
  return "";
}

double ReferenceCheck::spreadOf(const std::string &key) const {
  std::string name = "spread/" + key.substr(key.rfind("weight/") + 7);
  if (!file_.has(name))
    return 0;
  auto spread = file_.read(name);
  return spread && spread->elements == 1 ? elementAsDouble(spread->type, spread->data, 0) : 0;
}

void ReferenceCheck::note(Worst &worst, const std::string &name, double relative, double absolute, double tolerance) {
  ++worst.compared;
  ++compared_;
  if (worst.name == "-" || !(relative <= worst.relative)) { // a NaN is the worst there is
    worst.name = name;
    worst.relative = relative;
    worst.absolute = absolute;
  }
  if (!(relative <= tolerance)) {
    char text[256];
    std::snprintf(text, sizeof text, "%s differs by %.3g relative (%.3g absolute), tolerance %.3g", name.c_str(), relative,
                  absolute, tolerance);
    failures_.push_back(text);
  }
}

void ReferenceCheck::compareTensors(const plan::Plan &plan, RankGroup &group, Tensor which, const std::string &kind,
                                    double factor, double tolerance, Worst &worst) {
  for (int p = 0; p < plan.parameters_size(); ++p) {
    const plan::Parameter &parameter = plan.parameters(p);
    if (!parameter.trainable())
      continue;
    std::string key = findKey(kind, parameter);
    if (key.empty()) {
      failures_.push_back(kind + " of \"" + parameter.name() + "\" was not recorded");
      continue;
    }
    auto recorded = file_.read(key);
    if (!recorded) {
      failures_.push_back(recorded.error().findings()[0].message);
      continue;
    }
    std::vector<float> ours = readTensor(plan, group, p, which);
    if (recorded->elements != static_cast<int64_t>(ours.size())) {
      failures_.push_back(key + " has " + std::to_string(recorded->elements) + " elements, the parameter " +
                          std::to_string(ours.size()));
      continue;
    }
    double absolute = 0, largest = 0;
    for (size_t i = 0; i < ours.size(); ++i) {
      double theirs = elementAsDouble(recorded->type, recorded->data, static_cast<int64_t>(i));
      double difference = std::abs(ours[i] * factor - theirs);
      if (!(difference <= absolute))
        absolute = difference;
      largest = std::max(largest, std::abs(theirs));
    }
    // Gradients that are zero but for rounding (a key bias under softmax) are held to an absolute floor.
    double scale = std::max(largest, 1e-4);
    // An element whose gradient is rounding noise moves by Adam's whole step in a direction of chance: what the
    // recording itself moved between f32 and f64 is no difference.
    double allowed = which == Tensor::parameter ? 4 * spreadOf(key) : 0;
    double counted = std::isnan(absolute) ? absolute : std::max(0.0, absolute - allowed);
    note(worst, kind + " " + parameter.name(), counted / scale, absolute, tolerance);
  }
}

void ReferenceCheck::compareGradients(const plan::Plan &plan, Trainer &trainer) {
  double count = trainer.lossPair().second;
  double factor = count > 0 ? plan.facts().static_count() / count : 0;
  compareTensors(plan, trainer.group(), Tensor::gradient, "grad", factor, tolerances_.gradient, gradient_);
}

void ReferenceCheck::afterStep(const plan::Plan &plan, Trainer &trainer, const StepReport &step) {
  if (step.step <= static_cast<int64_t>(losses_.size())) {
    double theirs = losses_[step.step - 1], absolute = std::abs(step.loss - theirs);
    note(loss_, "loss of step " + std::to_string(step.step), absolute / std::max(std::abs(theirs), 1e-12), absolute,
         tolerances_.loss);
  }
  if (step.step == weightStep_)
    compareTensors(plan, trainer.group(), Tensor::parameter, "weight", 1, tolerances_.weight, weight_);
}

std::string ReferenceCheck::report() const {
  std::string out;
  char line[320];
  for (const Worst *worst : {&loss_, &gradient_, &weight_}) {
    if (worst->compared == 0)
      continue;
    std::snprintf(line, sizeof line, "%lld compared, worst: %s, %.3g relative, %.3g absolute\n",
                  static_cast<long long>(worst->compared), worst->name.c_str(), worst->relative, worst->absolute);
    out += line;
  }
  for (const std::string &failure : failures_)
    out += "FAILED: " + failure + "\n";
  out += passed() ? "agrees with the reference\n" : "does not agree with the reference\n";
  return out;
}

} // namespace zerocc
