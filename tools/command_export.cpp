#include "compiler/onnx/training_export.h"
#include "compiler/ops/op_kind.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/verify.h"
#include "tools/command.h"

#include <algorithm>
#include <cstdio>

namespace zerocc {
namespace {

struct ExportFlags {
  std::string plan, model, output;
  bool trainingInfo = false, followLinks = false;
};

/// What one device cannot do in one step on the whole batch, or ONNX has no words for.
Status checkMeaning(const plan::Plan &plan) {
  std::vector<Diagnostic> findings;
  const plan::RunDefaults &defaults = plan.defaults();
  if (plan.facts().clipping())
    findings.push_back(
        {"the plan clips gradients, which is not written", "compile without --clip-grad-norm"});
  if (!defaults.lr_schedule().empty() && defaults.lr_schedule() != "constant")
    findings.push_back(
        {"the plan has learning-rate schedule " + defaults.lr_schedule() + ", which is not written",
         "compile with --lr-schedule constant"});
  const std::string &optimizer = plan.facts().optimizer();
  if (optimizer != "adamw" && optimizer != "onnx_adam" && optimizer != "sgd" && optimizer != "adagrad")
    findings.push_back({"the plan updates with " + optimizer + ", which ONNX has no op for",
                        "compile with --optimizer adamw, onnx-adam, momentum or adagrad"});
  for (double factor : defaults.group_lr_factor())
    if (factor != 1)
      findings.push_back({"a parameter group has its own learning rate, which is not written", ""});
  for (const plan::Storage &storage : plan.storages())
    if (storage.kind() == plan::Storage::BUFFER)
      findings.push_back({"the plan updates buffer \"" + storage.name() + "\", which is not written",
                          "compile without --train-batchnorm"});
  for (const plan::Input &input : plan.inputs())
    if (input.role() == "random")
      findings.push_back(
          {"the plan draws random numbers, which ONNX does not define", "compile with --dropout off"});
  const std::string &loss = plan.facts().loss();
  bool isOwn = loss.rfind("cross-entropy", 0) != 0 && loss.rfind("mse", 0) != 0;
  int64_t parts = static_cast<int64_t>(plan.mesh().shard() * plan.mesh().replicate()) * plan.micro_steps();
  if (isOwn && parts > 1)
    findings.push_back({"the model's own loss is averaged over " + std::to_string(parts) +
                            " micro-batches, which is not its value on the whole batch in general",
                        "compile for one rank and one micro-step, or with --loss"});
  return findings.empty() ? success() : Status(Error(std::move(findings)));
}

const plan::Instruction *crossEntropyOf(const plan::Plan &plan) {
  for (const plan::Segment &segment : plan.segments())
    for (const plan::Instruction &instruction : segment.instructions())
      if (instruction.op() == static_cast<uint32_t>(OpKind::CrossEntropy))
        return &instruction;
  return nullptr;
}

Status describeLoss(const plan::Plan &plan, TrainingExport &what) {
  what.loss = plan.facts().loss();
  if (what.loss.rfind("cross-entropy", 0) == 0) {
    const plan::Instruction *node = crossEntropyOf(plan);
    if (!node || node->inputs(0).dims_size() != 2)
      return Error("the plan computes no cross-entropy");
    what.classes = node->inputs(0).dims(1);
    for (const plan::Attribute &attribute : node->attributes()) {
      if (attribute.name() == "ignore_index")
        what.ignoreIndex = attribute.integer();
      if (attribute.name() == "label_smoothing" && attribute.real() != 0)
        return Error("the plan smooths labels, which ONNX's loss does not",
                     "compile without --label-smoothing");
    }
  }
  return success();
}

/// The input that the model does not have: attach_loss added it.
void findLossInput(const plan::Plan &plan, const std::vector<std::string> &modelInputs,
                   TrainingExport &what) {
  for (const plan::Input &input : plan.inputs())
    if (std::find(modelInputs.begin(), modelInputs.end(), input.name()) == modelInputs.end() &&
        input.role() != "training") {
      what.lossInput = input.name();
      what.lossInputType = {static_cast<DType>(input.dtype()),
                            Dims(input.dims().begin(), input.dims().end())};
    }
}

Status describeUpdate(const plan::Plan &plan, TrainingExport &what) {
  const plan::RunDefaults &defaults = plan.defaults();
  what.optimizer = plan.facts().optimizer();
  TrainingForm &form = what.form;
  form.lr = defaults.lr();
  form.beta1 = defaults.beta1();
  form.beta2 = defaults.beta2();
  form.eps = defaults.eps();
  form.momentum = defaults.momentum();
  form.nesterov = defaults.nesterov();
  form.dampening = defaults.dampening();
  form.postDecay = defaults.post_decay();
  form.rateDecay = defaults.rate_decay();
  form.firstCount = defaults.first_count();
  for (const plan::Parameter &parameter : plan.parameters()) {
    const int group = static_cast<int>(parameter.group());
    TrainingExport::Parameter &out = what.parameters.emplace_back();
    out.name = parameter.name();
    out.initializer = parameter.initializer();
    out.type.dims.assign(parameter.dims().begin(), parameter.dims().end());
    out.copies.assign(parameter.copies().begin(), parameter.copies().end());
    out.transposedCopies.assign(parameter.transposed_copies().begin(), parameter.transposed_copies().end());
    out.trainable = parameter.trainable();
    if (group < defaults.group_lr_factor_size() && defaults.group_lr_factor(group) != 1)
      return Error("the learning rate of \"" + parameter.name() + "\" has a factor, which ONNX's updates do not have",
                   "compile without --group …:lr-factor=");
    out.decay = group < defaults.group_weight_decay_size() ? defaults.group_weight_decay(group) : 0;
  }
  return success();
}

Status exportPlan(const ExportFlags &flags) {
  if (!flags.trainingInfo)
    return Error("there is nothing to export",
                 "add --training-info; trained weights leave with zero-run --export");
  ZEROCC_ASSIGN(plan::Plan plan, loadPlan(flags.plan));
  if (std::vector<Diagnostic> findings = verifyPlan(plan); !findings.empty())
    return Error(std::move(findings)).in(flags.plan);
  if (Status ok = checkMeaning(plan); !ok)
    return ok.error().in(flags.plan);
  TrainingExport what;
  if (Status ok = describeLoss(plan, what); !ok)
    return ok.error().in(flags.plan);
  ZEROCC_ASSIGN(std::vector<std::string> inputs, modelInputs(flags.model, flags.followLinks));
  findLossInput(plan, inputs, what);
  ZEROCC_TRY(describeUpdate(plan, what));
  ZEROCC_TRY(exportTraining(flags.model, what, flags.output, flags.followLinks));
  std::fprintf(stderr, "wrote %s\n", escapeForTerminal(flags.output).c_str());
  return success();
}

} // namespace

void addExportCommand(CLI::App &app, Run &run) {
  auto flags = std::make_shared<ExportFlags>();
  CLI::App *command = app.add_subcommand("export", "write what a plan does in ONNX's own training form");
  command->footer(
      "Example:\n  zerocc export model.zplan --training-info --model model.onnx -o training.onnx\n"
      "The result holds the model and training_info: the loss, Gradient, and the optimizer's update of one\n"
      "device on the whole batch.");
  command->add_option("PLAN", flags->plan, "plan of zerocc compile")->required();
  command->add_flag("--training-info", flags->trainingInfo, "as ModelProto.training_info");
  command->add_option("--model", flags->model, "the model the plan was compiled from")->required();
  command->add_option("-o,--output", flags->output, "ONNX file to write")->required();
  command->add_flag("--follow-symlinks", flags->followLinks, "accept external data behind links");
  command->callback([flags, &run] {
    run = [flags] {
      Status done = exportPlan(*flags);
      return done ? kDone : refuse(done.error());
    };
  });
}

} // namespace zerocc
