#include "runtime/training/reference_check.h"

namespace zerocc {
namespace {

// The recorded name of a parameter among `names`, or empty.
std::string recordedName(const std::vector<std::string> &names, const plan::Parameter &parameter) {
  auto has = [&](const std::string &wanted) {
    for (const std::string &name : names)
      if (name == wanted)
        return true;
    return false;
  };
  if (has(parameter.name()))
    return parameter.name();
  std::string suffix = "#" + parameter.name();
  for (const std::string &name : names)
    if (name.size() > suffix.size() && name.compare(name.size() - suffix.size(), suffix.size(), suffix) == 0)
      return name;
  return has(parameter.initializer()) ? parameter.initializer() : "";
}

} // namespace

Expected<ReferenceCheck> ReferenceCheck::open(const std::string &path, const std::string &prefix, int64_t weightStep,
                                              const Tolerances &tolerances) {
  ZEROCC_ASSIGN(Comparison comparison, Comparison::open(path, prefix, tolerances));
  ReferenceCheck check(std::move(comparison));
  check.weightStep_ = weightStep;
  return check;
}

Status ReferenceCheck::compareTensors(const plan::Plan &plan, RankGroup &group, Tensor which, double factor) {
  bool gradients = which == Tensor::gradient;
  std::vector<std::string> names = gradients ? comparison_.gradients() : comparison_.weights();
  for (int p = 0; p < plan.parameters_size(); ++p) {
    const plan::Parameter &parameter = plan.parameters(p);
    if (!parameter.trainable())
      continue;
    std::string name = recordedName(names, parameter);
    if (name.empty()) {
      unrecorded_.push_back(std::string(gradients ? "gradient" : "weight") + " of \"" + parameter.name() + "\"");
      continue;
    }
    ZEROCC_ASSIGN(std::vector<float> ours, readTensor(plan, group, p, which));
    for (float &value : ours)
      value = static_cast<float>(value * factor);
    ZEROCC_TRY(gradients ? comparison_.compareGradient(name, 0, ours) : comparison_.compareWeight(name, 0, ours));
  }
  return success();
}

Status ReferenceCheck::compareBuffers(const plan::Plan &plan, RankGroup &group) {
  for (const plan::Storage &storage : plan.storages()) {
    if (storage.kind() != plan::Storage::BUFFER)
      continue;
    for (const std::string &name : comparison_.buffers())
      if (name == storage.initializer())
        ZEROCC_TRY(comparison_.compareBuffer(name, 0, readBuffer(plan, group, storage.name())));
  }
  return success();
}

Status ReferenceCheck::compareGradients(const plan::Plan &plan, Trainer &trainer) {
  gradientsCompared_ = true;
  ZEROCC_ASSIGN(auto pair, trainer.lossPair());
  double count = pair.second;
  double factor = count > 0 ? plan.facts().static_count() / count / trainer.lossScale() : 0;
  return compareTensors(plan, trainer.group(), Tensor::gradient, factor);
}

Status ReferenceCheck::afterStep(const plan::Plan &plan, Trainer &trainer, const StepReport &step) {
  ZEROCC_TRY(comparison_.compareLoss(step.step - 1, step.loss));
  ZEROCC_TRY(comparison_.compareGradNorm(step.step - 1, step.gradNorm));
  if (step.step != weightStep_)
    return success();
  weightsCompared_ = true;
  ZEROCC_TRY(compareBuffers(plan, trainer.group()));
  return compareTensors(plan, trainer.group(), Tensor::parameter, 1);
}

bool ReferenceCheck::passed() const {
  return comparison_.passed() && unrecorded_.empty() && gradientsCompared_ && weightsCompared_ &&
         comparison_.missing().empty();
}

std::string ReferenceCheck::report() const {
  std::string out = comparison_.report();
  for (const std::string &name : unrecorded_)
    out += "FAILED: " + name + " was not recorded\n";
  if (!gradientsCompared_ || !weightsCompared_)
    out += "FAILED: the run was too short to compare gradients and weights (" + std::to_string(weightStep_) + " steps)\n";
  else
    for (const std::string &key : comparison_.missing())
      out += "FAILED: " + key + " was recorded, and the plan does not train it\n";
  return out + (passed() ? "agrees with the reference\n" : "does not agree with the reference\n");
}

} // namespace zerocc
