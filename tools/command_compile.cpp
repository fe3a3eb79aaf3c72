#include "runtime/plan/lr_schedule.h"
#include "runtime/plan/optimizers.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/verify.h"
#include "tools/command_inspect.h"
#include "tools/compile_flags.h"
#include "tools/ds_config.h"
#include "tools/parameter_groups.h"

#include "llvm/Support/MemoryBuffer.h"

#include <cassert>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <optional>
#include <set>

namespace zerocc {
namespace {

constexpr const char *kVersion = "0.1.0";
const std::string kOptimizerFlags = "adamw, adam, sgd, momentum, lion, rmsprop, adagrad, onnx-adam";

constexpr const char *kLossScaleFlags[] = {"--loss-scale", "--loss-scale-initial-power", "--loss-scale-window",
                                           "--loss-scale-hysteresis", "--loss-scale-min"};

/// DeepSpeed's defaults.
struct LossScaleFlags {
  std::string scale = "dynamic"; // or a number
  uint64_t power = 16, window = 1000, hysteresis = 2;
  double least = 1;
  bool isDynamic() const { return scale == "dynamic"; }
};

struct CompileFlags {
  ModelFlags model;
  std::string output;
  int64_t ranks = 0;
  std::string mesh, stage = "0", mode = "train", config;
  std::string optimizer = "adamw", precision = "f32", hardware, target = "cpu", layout = "bucket",
              order = "on-demand";
  std::map<std::string, std::string> decisions; // flag -> value, for setDecision
  double lr = 0, weightDecay = 0, beta1 = 0, beta2 = 0, eps = 0, momentum = 0; // see applyDefaults
  double clip = 0, minLr = 0;
  double vectorDecay = 0, dampening = 0, postDecay = 0, rateDecay = 0; // of training_info only
  std::optional<uint64_t> firstCount;
  bool nesterov = false;
  LossScaleFlags lossScale;
  std::set<std::string> given; // flags that were on the command line, or come from --config
  std::optional<DsConfig> deepSpeed;
  std::string schedule = "constant";
  std::vector<std::string> outputs, groups;
  bool infers() const { return mode == "inference"; }
  uint64_t warmup = 0, total = 0, seed = 0;
  std::string dumpDir, printAfter, stopAfter;
  bool passTiming = false, explain = false;
};

// What this version cannot do is refused by name, never done otherwise.
Status checkScope(const CompileFlags &flags) {
  std::vector<Diagnostic> findings;
  auto only = [&](const char *flag, const std::string &value, const char *allowed, const char *hint) {
    if (value != allowed)
      findings.push_back({std::string(flag) + " " + value + " is not in this version", hint});
  };
  only("--target", flags.target, "cpu", "use --target cpu");
  only("--layout", flags.layout, "bucket", "use --layout bucket");
  only("--hardware", flags.hardware, "", "leave it out: the schedule does not use a cost model yet");
  if (!findings.empty())
    return Error(std::move(findings));
  return success();
}

Status parseMesh(const CompileFlags &flags, Decisions &decisions) {
  if (!flags.mesh.empty() && flags.ranks > 0)
    return Error("--ranks and --mesh exclude each other", "--ranks N is --mesh shard=N");
  if (flags.ranks > 0)
    decisions.shard = flags.ranks;
  llvm::StringRef rest = flags.mesh;
  while (!rest.empty()) {
    auto [axis, tail] = rest.split(',');
    rest = tail;
    ZEROCC_ASSIGN(auto pair, splitAssignment("--mesh", axis.str()));
    if (pair.first != "shard" && pair.first != "replicate")
      return Error("--mesh: there is no axis \"" + pair.first + "\"", "write --mesh shard=S,replicate=R");
    ZEROCC_TRY(setDecision(decisions, pair.first, pair.second));
  }
  return success();
}

Expected<Decisions> makeDecisions(const CompileFlags &flags, bool &stageAuto) {
  Decisions decisions;
  ZEROCC_TRY(parseMesh(flags, decisions));
  stageAuto = flags.stage == "auto";
  if (!stageAuto)
    ZEROCC_TRY(setDecision(decisions, "stage", flags.stage));
  decisions.microBatch = flags.model.microBatch;
  ZEROCC_TRY(setDecision(decisions, "precision", flags.precision));
  for (const auto &[name, value] : flags.decisions)
    ZEROCC_TRY(setDecision(decisions, name, value));
  if (flags.optimizer == "momentum" || flags.optimizer == "sgd") {
    decisions.optimizer = "sgd";
    decisions.momentum = flags.optimizer == "momentum";
  } else {
    decisions.optimizer = flags.optimizer == "onnx-adam" ? "onnx_adam" : flags.optimizer;
    if (!findOptimizer(decisions.optimizer))
      return Error("--optimizer: \"" + flags.optimizer + "\" is not in this version",
                   "use one of " + kOptimizerFlags);
  }
  decisions.clipping = flags.clip > 0;
  return decisions;
}

/// Refuses flags that the optimizer does not read.
Status checkOptimizerFlags(const CompileFlags &flags, const Decisions &decisions) {
  const Optimizer &optimizer = *findOptimizer(decisions.optimizer);
  const bool hasMomentum = flags.optimizer == "momentum";
  struct {
    const char *flag;
    bool isRead;
    const char *hint;
  } rows[] = {{"--beta1", optimizer.beta1 >= 0, "leave it out"},
              {"--beta2", optimizer.beta2 >= 0, "leave it out"},
              {"--eps", optimizer.eps >= 0, "leave it out"},
              {"--momentum", hasMomentum, "use --optimizer momentum, or leave it out"},
              {"--nesterov", hasMomentum, "use --optimizer momentum, or leave it out"}};
  for (auto [flag, isRead, hint] : rows)
    if (!isRead && flags.given.count(flag))
      return Error(std::string(flag) + ": --optimizer " + flags.optimizer + " does not read it", hint);
  return success();
}

/// What the command line says of training is of no use to an inference plan; it is said, since files of flags serve both.
std::vector<std::string> notesOfInference(const CompileFlags &flags) {
  std::string unused;
  for (const std::string &flag : flags.given)
    unused += (unused.empty() ? "" : ", ") + flag;
  return unused.empty() ? std::vector<std::string>() : std::vector{"an inference plan has no use for " + unused};
}

/// Of what the optimizer reads and no flag gives.
void applyDefaults(CompileFlags &flags) {
  const Optimizer *optimizer = findOptimizer(flags.optimizer == "momentum"    ? "sgd"
                                             : flags.optimizer == "onnx-adam" ? "onnx_adam"
                                                                              : flags.optimizer);
  if (!optimizer)
    return;
  auto set = [&](const char *flag, double &field, double value) {
    if (!flags.given.count(flag))
      field = std::max(value, 0.0);
  };
  set("--lr", flags.lr, optimizer->lr);
  set("--weight-decay", flags.weightDecay, optimizer->weightDecay);
  set("--beta1", flags.beta1, optimizer->beta1);
  set("--beta2", flags.beta2, optimizer->beta2);
  set("--eps", flags.eps, optimizer->eps);
  set("--momentum", flags.momentum, optimizer->momentum);
}

/// What the model's own training form says, where no flag says otherwise.
Status applyTraining(const TrainingForm &form, CompileFlags &flags) {
  auto set = [&](const char *flag, auto &field, auto value) {
    if (!flags.given.count(flag))
      field = value;
  };
  if (!flags.given.count("--loss"))
    flags.decisions["loss"] = "output:" + form.loss;
  if (!form.lr && !flags.given.count("--lr"))
    return Error("training_info: the learning rate is an input of the algorithm", "give it with --lr");
  if (form.lr)
    set("--lr", flags.lr, *form.lr);
  std::string optimizer = form.optimizer == "Adam"      ? "onnx-adam"
                          : form.optimizer == "Adagrad" ? "adagrad"
                                                        : "momentum";
  if (flags.given.count("--optimizer") && flags.optimizer != optimizer)
    return success();
  flags.optimizer = optimizer;
  if (!flags.given.count("--weight-decay")) {
    flags.weightDecay = form.decay.value_or(0);
    flags.vectorDecay = form.vectorDecay.value_or(0);
  }
  if (optimizer == "onnx-adam") {
    set("--beta1", flags.beta1, form.beta1);
    set("--beta2", flags.beta2, form.beta2);
  }
  set("--eps", flags.eps, form.eps);
  set("--momentum", flags.momentum, form.momentum);
  set("--nesterov", flags.nesterov, form.nesterov);
  flags.dampening = form.dampening;
  flags.postDecay = form.postDecay;
  flags.rateDecay = form.rateDecay;
  flags.firstCount = form.firstCount;
  return success();
}

/// Refuses flags of the loss scale that nothing reads.
Status checkLossScale(const CompileFlags &flags) {
  const LossScaleFlags &scale = flags.lossScale;
  for (const char *flag : kLossScaleFlags) {
    if (!flags.given.count(flag))
      continue;
    if (flags.precision != "f16")
      return Error(std::string(flag) + ": --precision " + flags.precision +
                       " has the range of f32, there is nothing to scale",
                   "leave it out, or use --precision f16");
    if (!scale.isDynamic() && flag != llvm::StringRef("--loss-scale"))
      return Error(std::string(flag) + ": the loss scale is " + scale.scale + " in every step", "use --loss-scale dynamic");
  }
  double fixed = 0;
  if (!scale.isDynamic() && (llvm::StringRef(scale.scale).getAsDouble(fixed) || !(fixed > 0) || !std::isfinite(fixed)))
    return Error("--loss-scale: \"" + scale.scale + "\" is neither dynamic nor a number above 0");
  return success();
}

plan::RunDefaults runDefaults(const CompileFlags &flags, const PlanGroups &groups) {
  plan::RunDefaults defaults;
  defaults.set_lr(flags.lr);
  defaults.set_beta1(flags.beta1);
  defaults.set_beta2(flags.beta2);
  defaults.set_eps(flags.eps);
  defaults.set_momentum(flags.optimizer == "momentum" ? flags.momentum : 0);
  defaults.set_nesterov(flags.nesterov);
  defaults.set_clip_grad_norm(flags.clip);
  defaults.set_lr_schedule(flags.schedule);
  defaults.set_warmup_steps(flags.warmup);
  defaults.set_total_steps(flags.total);
  defaults.set_min_lr(flags.minLr);
  defaults.set_seed(flags.seed);
  defaults.set_first_count(flags.firstCount.value_or(flags.optimizer == "onnx-adam" ? 1 : 0));
  defaults.set_dampening(flags.dampening);
  defaults.set_post_decay(flags.postDecay);
  defaults.set_rate_decay(flags.rateDecay);
  if (const LossScaleFlags &scale = flags.lossScale; flags.precision == "f16") {
    double fixed = 0;
    llvm::StringRef(scale.scale).getAsDouble(fixed);
    defaults.set_loss_scale(scale.isDynamic() ? std::ldexp(1, static_cast<int>(scale.power)) : fixed);
    if (scale.isDynamic()) {
      defaults.set_loss_scale_dynamic(true);
      defaults.set_loss_scale_window(scale.window);
      defaults.set_loss_scale_hysteresis(scale.hysteresis);
      defaults.set_loss_scale_min(scale.least);
    }
  }
  for (const PlanGroups::Group &group : groups.groups) {
    defaults.add_group_weight_decay(group.weightDecay);
    defaults.add_group_lr_factor(group.lrFactor);
    defaults.add_group_follows_decay(group.followsDecay);
  }
  return defaults;
}

void printTiming(const std::vector<PassRun> &runs) {
  for (const PassRun &run : runs) {
    std::fprintf(stderr, "%10.1f ms  %-22s", run.milliseconds, run.name.c_str());
    for (const auto &[name, value] : run.report.counters)
      std::fprintf(stderr, " %s=%lld", name.c_str(), static_cast<long long>(value));
    std::fputc('\n', stderr);
  }
}

Status checkPassName(const std::string &flag, const std::string &name) {
  if (name.empty() || findPass(name))
    return success();
  std::string names;
  for (const LadderRow &row : ladder())
    names += (names.empty() ? "" : ", ") + std::string(row.name);
  return Error(flag + ": there is no pass \"" + name + "\"", "passes are " + names);
}

/// Sets the flags that --config gives and the command line does not, as if they stood there.
Status applyConfig(CompileFlags &flags, CLI::App &command) {
  if (flags.config.empty())
    return success();
  const std::string path = flags.config;
  auto buffer = llvm::MemoryBuffer::getFile(path);
  if (!buffer)
    return Error(path + ": cannot read: " + buffer.getError().message(), "--config FILE is a DeepSpeed configuration");
  DsContext context;
  for (const CLI::Option *option : command.get_options())
    if (option->count() > 0)
      context.given[option->get_name()] = option->results().empty() ? "" : option->results().back();
  Decisions mesh;
  ZEROCC_TRY(parseMesh(flags, mesh));
  context.ranks = mesh.shard * mesh.replicate;
  ZEROCC_ASSIGN(DsConfig config, readDsConfig((*buffer)->getBuffer().str(), path, context));
  for (const DsFlag &flag : config.flags) {
    CLI::Option *option = command.get_option_no_throw(flag.flag);
    assert(option && "a flag that compile does not have");
    option->clear();
    option->add_result(flag.value);
    try {
      option->run_callback();
    } catch (const CLI::Error &error) {
      return Error(path + ": " + flag.flag + " " + flag.value + ": " + error.what());
    }
  }
  flags.deepSpeed = std::move(config);
  return success();
}

Status compileModel(CompileFlags flags, const std::string &commandLine) {
  ZEROCC_TRY(checkScope(flags));
  if (!flags.infers() && !flags.outputs.empty())
    return Error("--outputs: a training plan keeps its loss alone", "compile with --mode inference");
  if (Status ok = checkSchedule(flags.schedule); !ok)
    return ok.error().in("--lr-schedule");
  ZEROCC_TRY(checkPassName("--print-after", flags.printAfter));
  ZEROCC_TRY(checkPassName("--stop-after", flags.stopAfter));
  bool stageAuto = false;
  applyDefaults(flags);
  ZEROCC_TRY(makeDecisions(flags, stageAuto)); // refuses wrong flags before a model is read
  if (flags.output.empty() && flags.stopAfter.empty())
    return Error("there is no -o PLAN.zplan", "name the plan to write, or stop early with --stop-after PASS");

  ZEROCC_ASSIGN(const std::vector<GroupFlag> groupFlags, parseGroups(flags.groups));

  auto begin = std::chrono::steady_clock::now();
  ZEROCC_ASSIGN(ImportOptions importOptions, flags.model.importOptions());
  for (const GroupFlag &group : groupFlags)
    if (group.frozen)
      importOptions.freeze.insert(importOptions.freeze.end(), group.patterns.begin(), group.patterns.end());
  ImportReport importReport;
  ZEROCC_ASSIGN(auto imported, importOnnx(flags.model.model, importOptions, &importReport));
  if (flags.infers() && importReport.training) { // without what training_info adds to the graph
    importOptions.inference = true;
    importReport = {};
    ZEROCC_ASSIGN(imported, importOnnx(flags.model.model, importOptions, &importReport));
  }
  if (imported->parameters.empty() && !flags.infers())
    return Error(flags.model.model + ": the model has no parameters to train",
                 "zerocc check shows what its initializers were taken for");
  if (flags.deepSpeed && flags.deepSpeed->decaysVectors)
    flags.vectorDecay = flags.weightDecay;
  if (importReport.training)
    ZEROCC_TRY(applyTraining(*importReport.training, flags));
  ZEROCC_ASSIGN(Decisions decisions, makeDecisions(flags, stageAuto));
  PlanGroups groups;
  if (!flags.infers()) {
    ZEROCC_TRY(checkOptimizerFlags(flags, decisions));
    ZEROCC_TRY(checkLossScale(flags));
    ZEROCC_ASSIGN(groups, assignGroups(groupFlags, flags.weightDecay, flags.vectorDecay, *imported));
  } else {
    ZEROCC_ASSIGN(groups, assignGroups({}, 0, 0, *imported));
  }
  decisions.outputs = flags.outputs;
  if (flags.infers()) {
    decisions.microSteps = 1;
    decisions.reduce = "auto";
    decisions.keep = decisions.clipping = false;
  }

  PipelineOptions pipeline;
  pipeline.inference = flags.infers();
  pipeline.dumpDir = flags.dumpDir;
  pipeline.printAfter = flags.printAfter;
  pipeline.stopAfter = flags.stopAfter;
  pipeline.out = [](const std::string &text) { std::fputs(text.c_str(), stdout); };
  auto compiled = compileModule(*imported, decisions, stageAuto, pipeline);
  if (!compiled)
    return compiled.error().in(flags.model.model);
  if (flags.passTiming)
    printTiming(compiled->runs);

  std::vector<std::string> notes = flags.infers() ? notesOfInference(flags) : std::vector<std::string>();
  notes.insert(notes.end(), importReport.repairs.begin(), importReport.repairs.end());
  notes.insert(notes.end(), importReport.notes.begin(), importReport.notes.end());
  for (const PassRun &run : compiled->runs)
    notes.insert(notes.end(), run.report.notes.begin(), run.report.notes.end());
  for (const std::string &note : notes)
    std::fprintf(stderr, "note: %s\n", escapeForTerminal(note).c_str());
  if (!flags.stopAfter.empty())
    return success();

  EmitOptions emit;
  emit.compilerVersion = kVersion;
  emit.command = commandLine;
  emit.modelFile = std::filesystem::path(flags.model.model).filename().string();
  emit.notes = notes;
  if (flags.deepSpeed)
    for (const DsReportRow &row : flags.deepSpeed->rows)
      emit.notes.push_back("--config: " + row.key + " = " + row.value + ": " + row.became);
  emit.inference = flags.infers();
  emit.optimizer = flags.infers() ? "" : compiled->decisions.optimizer;
  emit.clipping = decisions.clipping;
  emit.loss = flags.infers() ? "" : decisions.loss;
  emit.precision = decisions.precision;
  emit.stage = compiled->decisions.stage;
  emit.microBatch = decisions.microBatch;
  emit.modelFingerprint = importReport.fingerprint;
  emit.graphFingerprint = fingerprint(compiled->graphText);
  for (const PlanGroups::Group &group : groups.groups)
    emit.groups.push_back(group.name);
  if (!flags.infers())
    emit.defaults = runDefaults(flags, groups);
  for (const ImportedParameter &parameter : importReport.parameters)
    if (!parameter.copies.empty() || !parameter.transposedCopies.empty())
      emit.copies[parameter.name] = {parameter.copies, parameter.transposedCopies};
  plan::Plan plan = emitPlan(*compiled->module, emit);
  std::vector<Diagnostic> findings = verifyPlan(plan);
  if (!findings.empty())
    return Error(std::move(findings)).in("internal error: the plan does not verify");
  ZEROCC_TRY(savePlan(plan, flags.output));
  double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (flags.deepSpeed)
    std::fputs(dsReport(*flags.deepSpeed, flags.config).c_str(), stdout);
  std::fputs(planSummary(plan, /*withNotes=*/false).c_str(), stdout);
  std::fprintf(stderr, "wrote %s in %.2f s (verified)\n", escapeForTerminal(flags.output).c_str(), seconds);
  return success();
}

} // namespace

void addCompileCommand(CLI::App &app, Run &run, const std::string &commandLine) {
  auto flags = std::make_shared<CompileFlags>();
  CLI::App *command =
      app.add_subcommand("compile", "compile a forward ONNX model into a sharded training or inference plan");
  command->footer(
      "Example:\n  zerocc compile model.onnx -o model.zplan --ranks 2 --stage 3 --micro-batch 4 \\\n"
      "      --dim sequence=128 --loss cross-entropy:logits --optimizer adamw --lr 3e-4\n"
      "  zerocc compile model.onnx -o model.zplan --ranks 4 --config ds_config.json --loss cross-entropy:logits\n"
      "`--args FILE` reads flags from FILE (as models/*.args).");
  flags->model.add(*command);
  command->add_option("-o,--output", flags->output, "plan to write");
  command->add_option("--ranks", flags->ranks, "ranks, all on the shard axis")->check(CLI::PositiveNumber);
  command->add_option("--mesh", flags->mesh, "mesh axes: shard=S,replicate=R");
  command->add_option("--stage", flags->stage,
                      "ZeRO stage: 0, 1, 2, 3, or auto (the lowest that fits the budget)");
  auto decision = [&](const char *flag, const char *name, const char *help) {
    command->add_option_function<std::string>(
        flag, [flags, name](const std::string &value) { flags->decisions[name] = value; }, help);
  };
  decision("--reduce", "reduce", "where gradients are reduced: boundary, micro-step, auto (by stage)");
  decision("--grad-accumulation", "grad-accumulation", "micro-steps per step");
  decision("--bucket-bytes", "bucket-bytes", "gathered bytes of a bucket (default min(32MiB, parameters/8))");
  decision("--persistence-bytes", "persistence-bytes", "parameters up to this size stay whole at stage 3");
  decision("--memory-budget", "memory-budget", "bytes per rank that the plan must fit in");
  decision("--prefetch-distance", "prefetch-distance", "buckets fetched ahead (default 1)");
  decision("--loss", "loss",
           "cross-entropy:LOGITS[,LABELS], mse:OUTPUT[,TARGET] or output:NAME (default: the model's)");
  decision("--label-smoothing", "label-smoothing", "of cross-entropy, as torch's");
  decision("--ignore-index", "ignore-index", "label that counts for nothing (default -100)");
  command->add_flag_function(
      "--keep", [flags](int64_t) { flags->decisions["keep"] = "1"; },
      "stage 3: keep parameters between forward and backward");
  command->add_option("--mode", flags->mode, "train, or inference: the forward pass alone, dropout off, running statistics")
      ->check(CLI::IsMember({"train", "inference"}));
  command->add_option("--outputs", flags->outputs, "with --mode inference: outputs to keep, NAME,NAME (default: all)")
      ->delimiter(',')
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command->add_option(
      "--optimizer", flags->optimizer,
      kOptimizerFlags +
          " (weight decay of adamw and lion is decoupled, of the others part of the gradient; onnx-adam: "
          "epsilon not corrected)");
  command->add_option("--lr", flags->lr,
                      "learning rate (run-time default; 1e-3, lion 1e-4, rmsprop and adagrad 1e-2)");
  command->add_option(
      "--weight-decay", flags->weightDecay,
      "of matrices; vectors do not decay (run-time default; 0.01, adam, lion, rmsprop, adagrad 0)");
  command->add_option("--group", flags->groups,
                      "NAME=PATTERN[:lr-factor=F,weight-decay=W,frozen]: parameters whose names match, with a factor on the "
                      "learning rate and a weight decay of their own (run-time defaults); the first group that matches; "
                      "repeatable, NAME again adds a pattern");
  command->add_option("--beta1", flags->beta1, "of adamw, adam, lion (run-time default; 0.9)");
  command->add_option("--beta2", flags->beta2, "of adamw, adam 0.999, lion, rmsprop 0.99 (run-time default)");
  command->add_option("--eps", flags->eps, "of adamw, adam, rmsprop 1e-8, adagrad 1e-10 (run-time default)");
  command->add_option("--momentum", flags->momentum, "of --optimizer momentum (run-time default)");
  command->add_flag("--nesterov", flags->nesterov, "of --optimizer momentum (run-time default)");
  command->add_option("--clip-grad-norm", flags->clip, "clip the global gradient norm (0: off)");
  command->add_option(
      "--lr-schedule", flags->schedule,
      "NAME[:key=value,...] (run-time default): constant, linear, cosine, or DeepSpeed's WarmupLR, "
      "WarmupDecayLR, WarmupCosineLR, OneCycle, LRRangeTest with the keys of their params");
  command->add_option("--warmup-steps", flags->warmup, "linear warm-up (run-time default)");
  command->add_option("--total-steps", flags->total, "length of the schedule (default: zero-run's --steps)");
  command->add_option("--min-lr", flags->minLr, "end of the schedule (run-time default)");
  command->add_option("--seed", flags->seed, "run-time default");
  command->add_option("--precision", flags->precision, "of products: f32; bf16 or f16 with sums, weights and all else in f32");
  command->add_option("--loss-scale", flags->lossScale.scale, "of --precision f16: dynamic, or a number (run-time default; dynamic)");
  command->add_option("--loss-scale-initial-power", flags->lossScale.power, "dynamic: it begins with 2^N (16)")
      ->check(CLI::Range(0, 32));
  command->add_option("--loss-scale-window", flags->lossScale.window, "dynamic: steps without an overflow after which it doubles (1000)")
      ->check(CLI::PositiveNumber);
  command->add_option("--loss-scale-hysteresis", flags->lossScale.hysteresis, "dynamic: overflows before it halves (2)")
      ->check(CLI::PositiveNumber);
  command->add_option("--loss-scale-min", flags->lossScale.least, "dynamic: the least scale (1)")->check(CLI::PositiveNumber);
  command->add_option("--hardware", flags->hardware, "not in this version");
  command->add_option("--target", flags->target, "cpu (cuda is not in this version)");
  command->add_option("--layout", flags->layout, "bucket");
  command
      ->add_option("--schedule", flags->order,
                   "on-demand: fetches in order of use, the next bucket prefetched")
      ->check(CLI::IsMember({"on-demand"}));
  command->add_option("--config", flags->config, "DeepSpeed's ds_config.json: what each key becomes is told; flags given beside it win");
  command->add_option("--dump-dir", flags->dumpDir, "write the module after every pass into this folder");
  command->add_option("--print-after", flags->printAfter, "print the module after this pass");
  command->add_option("--stop-after", flags->stopAfter, "stop after this pass, write no plan");
  command->add_flag("--pass-timing", flags->passTiming, "time and counters of every pass, to stderr");
  command->callback([flags, command, &run, commandLine] {
    run = [flags, command, commandLine] {
      if (Status ok = applyConfig(*flags, *command); !ok)
        return refuse(ok.error());
      for (const char *flag : {"--loss", "--optimizer", "--lr", "--group", "--weight-decay", "--beta1", "--beta2", "--eps",
                               "--momentum", "--nesterov", "--reduce", "--grad-accumulation", "--keep", "--label-smoothing",
                               "--ignore-index", "--clip-grad-norm", "--lr-schedule", "--warmup-steps", "--total-steps",
                               "--min-lr", "--sync-batchnorm", "--train-batchnorm"})
        if (command->count(flag) > 0)
          flags->given.insert(flag);
      for (const char *flag : kLossScaleFlags)
        if (command->count(flag) > 0)
          flags->given.insert(flag);
      Status done = compileModel(*flags, commandLine);
      return done ? kDone : refuse(done.error());
    };
  });
}

} // namespace zerocc
