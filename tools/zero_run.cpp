#include "runtime/data/metrics.h"
#include "runtime/data/plan_inputs.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/verify.h"
#include "runtime/training/reference_check.h"
#include "runtime/training/trainer.h"
#include "runtime/training/weights_out.h"
#include "tools/command.h"
#include "tools/run_inference.h"
#include "tools/run_processes.h"
#include "tools/run_saves.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringRef.h"

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace zerocc {
namespace {

struct RunFlags {
  std::string plan, model, init, weights;
  std::vector<std::string> data, evalData, settings, weightNames;
  int64_t steps = 0, evalEvery = 0, evalBatches = 16, ranks = 0, threads = 1, timeout = 60;
  std::string schedule;
  uint64_t seed = 0;
  bool shuffle = false, checkMemory = false, followLinks = false;
  std::string comm, device = "cpu", metrics, exportFile, checkAgainst, referencePrefix;
  double lossTolerance = 1e-4, tensorTolerance = 1e-4;
  int64_t weightSteps = 3, earlyStop = 0, maxSkipped = 20;
  SaveFlags saves;
  InferenceFlags inference;
  bool seedGiven = false;
  std::vector<std::string> given; // flags on the command line
  std::vector<std::string> commandLine;
};

Status checkScope(const RunFlags &flags) {
  std::vector<Diagnostic> findings;
  if (!flags.comm.empty() && flags.comm != "threads" && flags.comm != "mpi")
    findings.push_back({"--comm " + flags.comm + " is not in this version", "use --comm threads or --comm mpi"});
  if (flags.device != "cpu")
    findings.push_back({"--device " + flags.device + " is not in this version", "use --device cpu"});
  if (flags.threads != 1)
    findings.push_back({"--threads " + std::to_string(flags.threads) + " is not in this version",
                        "one thread per rank: compile for more ranks instead"});
  if (!flags.weights.empty() && !flags.init.empty())
    findings.push_back({"--weights and --init both give initial weights", "leave one of them out"});
  if (!findings.empty())
    return Error(std::move(findings));
  return success();
}

Expected<InitialValues> initialValues(const RunFlags &flags, std::optional<ModelWeights> &weights) {
  InitialValues values;
  values.seed = flags.seed;
  if (!flags.model.empty()) {
    ModelWeightsOptions options;
    options.followSymlinks = flags.followLinks;
    ZEROCC_ASSIGN(auto opened, ModelWeights::open(flags.model, options));
    weights.emplace(std::move(opened));
    values.model = &*weights;
  }
  if (!flags.init.empty()) {
    double deviation = 0;
    llvm::StringRef text = flags.init;
    if (!text.consume_front("normal:") || text.getAsDouble(deviation) || !(deviation > 0))
      return Error("--init: \"" + flags.init + "\" is not normal:STD", "write --init normal:0.02");
    values.normalStd = deviation;
  }
  return values;
}

Expected<std::vector<std::pair<std::string, double>>> settings(const RunFlags &flags) {
  std::vector<std::pair<std::string, double>> values;
  for (const std::string &text : flags.settings) {
    auto [name, number] = llvm::StringRef(text).split('=');
    double value = 0;
    if (number.getAsDouble(value))
      return Error("--set: \"" + text + "\" is not NAME=NUMBER");
    values.push_back({name.str(), value});
  }
  return values;
}

Expected<plan::Plan> loadVerified(const RunFlags &flags) {
  ZEROCC_ASSIGN(plan::Plan plan, loadPlan(flags.plan));
  std::vector<Diagnostic> findings = verifyPlan(plan);
  if (!findings.empty())
    return Error(std::move(findings)).in(flags.plan + " is not sound");
  int64_t ranks = static_cast<int64_t>(plan.mesh().shard() * plan.mesh().replicate());
  if (flags.ranks > 0 && flags.ranks != ranks)
    return Error(flags.plan + ": the plan is for " + std::to_string(ranks) + " ranks, --ranks is " +
                     std::to_string(flags.ranks),
                 "compile again with --ranks " + std::to_string(flags.ranks));
  return plan;
}

// Tokens per sample: those of the first tokens input; 1 when there is none (samples per second then).
int64_t tokensPerSample(const plan::Plan &plan) {
  for (const plan::Input &input : plan.inputs())
    if (input.role() == "tokens") {
      int64_t tokens = 1;
      for (int i = 1; i < input.dims_size(); ++i)
        tokens *= input.dims(i);
      return tokens;
    }
  return 1;
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void describeResume(const Checkpoint &checkpoint, const plan::Plan &plan, const DataPosition &now,
                    const Trainer &trainer) {
  const CheckpointIndex &index = checkpoint.index();
  auto say = [](const std::string &line) { std::fprintf(stderr, "%s\n", escapeForTerminal(line).c_str()); };
  say("resumed from " + checkpoint.path() + " after step " + std::to_string(index.step) + ", " +
      std::to_string(index.data.samples) + " samples");
  const std::string saved = "shard=" + std::to_string(index.shard) + ",replicate=" + std::to_string(index.replicate);
  const std::string ours =
      "shard=" + std::to_string(plan.mesh().shard()) + ",replicate=" + std::to_string(plan.mesh().replicate());
  if (saved != ours)
    say("note: saved on mesh " + saved + ", goes on on " + ours);
  if (index.precision != plan.facts().precision())
    say("note: saved in precision " + index.precision + ", goes on in " + plan.facts().precision());
  if (index.data.samplesPerStep != now.samplesPerStep)
    say("note: a step takes " + std::to_string(now.samplesPerStep) + " samples, it took " +
        std::to_string(index.data.samplesPerStep));
  if (index.data.fingerprint != now.fingerprint)
    say("note: the data, their order or their split are not those that the checkpoint was trained on");
  for (const std::string &note : trainer.notes())
    say("note: " + note);
}

// Seed and order of a resumed run are those of the checkpoint; what the command line says wins, and is said.
void resumeOrder(const DataPosition &saved, RunFlags &flags) {
  if (flags.seedGiven && flags.seed != saved.seed)
    std::fprintf(stderr, "note: seed is %llu, by --seed; the checkpoint has %llu\n",
                 static_cast<unsigned long long>(flags.seed), static_cast<unsigned long long>(saved.seed));
  if (!flags.seedGiven)
    flags.seed = saved.seed;
  if (flags.shuffle && !saved.shuffle)
    std::fprintf(stderr, "note: samples are shuffled, by --shuffle; in the checkpoint they are not\n");
  flags.shuffle |= saved.shuffle;
}

/// The weights that the command line gives; it outlives what reads them.
struct GivenWeights {
  std::shared_ptr<const Checkpoint> checkpoint;
  InitialValues values;

  Status open(const RunFlags &flags, const plan::Plan &plan) {
    if (!flags.saves.resume.empty()) {
      ZEROCC_ASSIGN(checkpoint, openCheckpoint(flags.saves.resume));
    }
    ZEROCC_ASSIGN(values, initialValues(flags, model_));
    values.checkpoint = checkpoint.get();
    return flags.weights.empty() || checkpoint ? success() : bindNamed(flags, plan);
  }

private:
  Status bindNamed(const RunFlags &flags, const plan::Plan &plan) {
    ZEROCC_ASSIGN(auto opened, NamedWeights::open(flags.weights));
    named_.emplace(std::move(opened));
    std::map<std::string, std::string> given;
    for (const std::string &text : flags.weightNames) {
      auto [name, there] = llvm::StringRef(text).split('=');
      if (there.empty())
        return Error("--weight-name: \"" + text + "\" is not PARAMETER=TENSOR");
      given[name.str()] = there.str();
    }
    std::vector<std::string> notes;
    int64_t updates = 0;
    if (!isInference(plan)) {
      ZEROCC_ASSIGN(states_, NamedWeights::openStates(flags.weights, updates));
    }
    auto bound = bindPlan(plan, *named_, states_, updates, given, notes);
    if (!bound)
      return bound.error().in("--weights " + flags.weights);
    bound_.emplace(std::move(*bound));
    values.named = &*bound_;
    for (const std::string &note : notes)
      std::fprintf(stderr, "note: %s\n", escapeForTerminal(note).c_str());
    return success();
  }

  std::optional<ModelWeights> model_;
  std::optional<NamedWeights> named_;
  std::map<std::string, NamedWeights> states_;
  std::optional<NamedValues> bound_;
};

RankGroupOptions groupOptions(const RunFlags &flags, RunProcesses &processes) {
  RankGroupOptions options;
  options.world = processes.world();
  options.timeoutSeconds = static_cast<int>(flags.timeout);
  options.executor.checkMemory = flags.checkMemory;
  options.onHang = [](const Error &error) { // a thread hangs: nothing can be unwound
    refuse(error);
    std::_Exit(kRankFailed);
  };
  return options;
}

/// How long a pipe's frame may take: less than the other ranks wait for the one that has asked for it.
int pipeSeconds(const RunFlags &flags) { return static_cast<int>(std::max<int64_t>(flags.timeout / 2, 1)); }

/// Refuses flags that this kind of plan does not read.
Status checkGiven(const RunFlags &flags, std::initializer_list<const char *> others, const char *does, const char *hint) {
  for (const char *flag : others)
    if (llvm::is_contained(flags.given, flag))
      return Error(std::string(flag) + ": the plan " + does, hint);
  return success();
}

Status infer(const RunFlags &flags, const plan::Plan &plan, int &exitCode, RunProcesses &processes) {
  ZEROCC_TRY(checkGiven(flags,
                        {"--lr-schedule", "--shuffle", "--set", "--eval-every", "--eval-data", "--eval-batches", "--export",
                         "--save", "--save-every", "--save-keep", "--keep-best", "--early-stop", "--metrics",
                         "--check-against"},
                        "infers and does not train", "leave it out, or compile with --mode train"));
  if (flags.inference.sample.empty())
    ZEROCC_TRY(checkGiven(flags, {"--sample-tokens", "--temperature", "--top-k"}, "is not sampled from",
                          "give --sample TEXT"));
  if (flags.inference.temperature == 0)
    ZEROCC_TRY(checkGiven(flags, {"--top-k"}, "is sampled at temperature 0, where the likeliest token is taken",
                          "give --temperature"));
  if (!flags.inference.sample.empty() && !flags.inference.outputs.empty()) {
    exitCode = kWrongCommandLine;
    return Error("--sample and --output exclude each other");
  }
  GivenWeights weights;
  ZEROCC_TRY(weights.open(flags, plan));
  if (weights.checkpoint)
    std::fprintf(stderr, "weights of %s after step %lld\n", escapeForTerminal(weights.checkpoint->path()).c_str(),
                 static_cast<long long>(weights.checkpoint->index().step));
  InferenceRun run;
  run.flags = flags.inference;
  run.data = flags.data;
  run.seed = flags.seed;
  run.steps = flags.steps;
  run.pipeSeconds = pipeSeconds(flags);
  run.values = weights.values;
  run.group = groupOptions(flags, processes);
  return runInference(plan, run);
}

/// What all ranks must have alike, or they would not train one model.
RunProcesses::Facts factsOf(const RunFlags &flags, const plan::Plan &plan, const DataSet &data, const DataSet *evalData,
                            const Checkpoint *checkpoint) {
  auto join = [](const std::vector<std::string> &texts) {
    std::string all;
    for (const std::string &text : texts)
      all += (all.empty() ? "" : " ") + text;
    return all;
  };
  auto number = [](int64_t value) { return std::to_string(value); };
  return {{"plan", planFingerprint(plan)},
          {"data", hex16(data.fingerprint())},
          {"--eval-data", evalData ? hex16(evalData->fingerprint()) : ""},
          {"--set", join(flags.settings)},
          {"--lr-schedule", flags.schedule},
          {"--steps", number(flags.steps)},
          {"seed", std::to_string(flags.seed)},
          {"--shuffle", number(flags.shuffle)},
          {"--init", flags.init},
          {"--eval-every", number(flags.evalEvery)},
          {"--eval-batches", number(flags.evalBatches)},
          {"--max-skipped", number(flags.maxSkipped)},
          {"--early-stop", number(flags.earlyStop)},
          {"--save", flags.saves.folder.empty() ? "no" : "yes"},
          {"--save-every", number(flags.saves.every)},
          {"--keep-best", number(flags.saves.keepBest)},
          {"--export", flags.exportFile},
          {"--check-against", flags.checkAgainst.empty() ? "no" : "yes"},
          {"--resume", checkpoint ? "step " + number(checkpoint->index().step) + " of plan " + checkpoint->index().planFingerprint : ""},
          {"version", "zero-run 0.1.0"}};
}

/// While a run goes on: when a rank fails or does not answer, that is what the exit code says.
struct RankFailures {
  const RankGroup &group;
  int &exitCode;
  ~RankFailures() {
    if (group.rankFailed())
      exitCode = kRankFailed;
  }
};

Status train(RunFlags flags, int &exitCode, RunProcesses &processes) {
  ZEROCC_TRY(checkScope(flags));
  ZEROCC_ASSIGN(plan::Plan plan, loadVerified(flags));
  ZEROCC_TRY(processes.checkPlan(plan));
  if (isInference(plan) && processes.world())
    return Error("--comm mpi: an inference plan runs in one process", "use --comm threads");
  if (isInference(plan))
    return infer(flags, plan, exitCode, processes);
  ZEROCC_TRY(checkGiven(flags, {"--output", "--sample", "--sample-tokens", "--temperature", "--top-k"}, "trains",
                        "compile with --mode inference"));
  for (const char *needed : {"--steps", "--data"})
    if (!llvm::is_contained(flags.given, needed)) {
      exitCode = kWrongCommandLine;
      return Error(std::string(needed) + " is required");
    }
  GivenWeights weights;
  ZEROCC_TRY(weights.open(flags, plan));
  const Checkpoint *checkpoint = weights.checkpoint.get();
  if (checkpoint)
    resumeOrder(checkpoint->index().data, flags);
  TrainerOptions options;
  options.values = weights.values;
  options.values.seed = flags.seed;
  ZEROCC_ASSIGN(options.set, settings(flags));
  options.schedule = flags.schedule;
  options.totalSteps = flags.steps;
  options.group = groupOptions(flags, processes);

  DataOptions dataOptions;
  dataOptions.seed = flags.seed;
  dataOptions.shuffle = flags.shuffle;
  dataOptions.pipe.timeoutSeconds = pipeSeconds(flags);
  DataOptions evalOptions;
  evalOptions.pipe = dataOptions.pipe;
  if (checkpoint) {
    dataOptions.pipe.samples = checkpoint->index().data.samples;
    dataOptions.pipe.token = checkpoint->index().data.pipeToken;
  }
  ZEROCC_ASSIGN(DataSet data, DataSet::open(flags.data, inputSpecs(plan), batchShape(plan), dataOptions));
  std::optional<DataSet> evalData;
  if (!flags.evalData.empty()) {
    ZEROCC_ASSIGN(auto opened, DataSet::open(flags.evalData, inputSpecs(plan), batchShape(plan), evalOptions));
    evalData.emplace(std::move(opened));
  } else if (flags.evalEvery > 0) {
    return Error("--eval-every needs data to evaluate on", "give --eval-data SOURCE");
  }
  if (flags.saves.keepBest && (flags.saves.folder.empty() || !evalData || flags.evalEvery == 0))
    return Error("--keep-best needs a folder to save to and evaluations", "give --save, --eval-data and --eval-every");
  if (flags.earlyStop > 0 && (!evalData || flags.evalEvery == 0))
    return Error("--early-stop needs evaluations", "give --eval-data and --eval-every");
  std::optional<ReferenceCheck> reference;
  if (!flags.checkAgainst.empty()) {
    Tolerances tolerances;
    tolerances.loss = flags.lossTolerance;
    tolerances.gradient = tolerances.weight = flags.tensorTolerance;
    ZEROCC_ASSIGN(auto opened,
                  ReferenceCheck::open(flags.checkAgainst, flags.referencePrefix, flags.weightSteps, tolerances));
    reference.emplace(std::move(opened));
  }
  ZEROCC_TRY(checkExportTarget(plan, flags.exportFile, flags.model));
  ZEROCC_TRY(processes.compare(factsOf(flags, plan, data, evalData ? &*evalData : nullptr, checkpoint)));
  std::optional<MetricsFile> metrics;
  if (!flags.metrics.empty() && processes.isFirst()) {
    if (checkpoint) {
      ZEROCC_ASSIGN(int64_t dropped, dropRowsBehind(flags.metrics, checkpoint->index().step));
      if (dropped > 0)
        std::fprintf(stderr, "note: %lld rows behind step %lld are taken out of %s: these steps are done again\n",
                     static_cast<long long>(dropped), static_cast<long long>(checkpoint->index().step),
                     escapeForTerminal(flags.metrics).c_str());
    }
    ZEROCC_ASSIGN(auto opened, MetricsFile::open(flags.metrics, checkpoint != nullptr));
    metrics.emplace(std::move(opened));
  }

  for (const std::string &line : data.describe())
    std::fprintf(stderr, "%s\n", escapeForTerminal(line).c_str());
  auto created = Trainer::create(plan, options);
  if (!created)
    return checkpoint ? offeringLastWhole(created.error(), *checkpoint) : created.error();
  std::unique_ptr<Trainer> trainer = std::move(*created);
  DataPosition position;
  position.samplesPerStep = batchShape(plan).samplesPerStep();
  position.seed = flags.seed;
  position.shuffle = flags.shuffle;
  position.fingerprint = hex16(data.fingerprint());
  if (checkpoint)
    describeResume(*checkpoint, plan, position, *trainer);
  RunRecord record{flags.commandLine, flags.plan, checkpoint ? checkpoint->path() : "", &data,
                   evalData ? &*evalData : nullptr};
  ZEROCC_ASSIGN(auto saves, RunSaves::create(plan, *trainer, flags.saves, position, record));
  int64_t mapped = trainer->group().mappedBytes() / trainer->group().ranksHere();
  std::fprintf(stderr, "%d ranks, %.1f MiB each, numerics key %s\n", trainer->group().ranks(),
               static_cast<double>(mapped) / (1 << 20), escapeForTerminal(plan.numerics_key()).c_str());
  if (saves)
    std::fprintf(stderr, "saving to %s takes %.1f MiB besides, for all ranks\n",
                 escapeForTerminal(flags.saves.folder).c_str(),
                 static_cast<double>(saves->stagingBytes()) / (1 << 20));

  if (MpiWorld *world = processes.world()) {
    std::fprintf(stderr, "%d processes, one rank each; buffers for sums take %.1f MiB besides\n", world->size(),
                 static_cast<double>(world->stagingBytes()) / (1 << 20));
    RunSaves::catchSignals();
  }

  int64_t tokens = tokensPerSample(plan);
  const RankFailures failures{trainer->group(), exitCode};
  const int64_t firstStep = trainer->stepsDone();
  Progress progress(firstStep, flags.steps, now());
  EvalRecord eval;
  if (checkpoint)
    eval = checkpoint->index().eval;
  bool isBest = false; // of the step at hand
  auto evaluate = [&](int64_t step) -> Status {
    ZEROCC_ASSIGN(double loss, trainer->evaluate(*evalData, flags.evalBatches));
    isBest = std::isfinite(loss) && (!eval.bestLoss || loss < *eval.bestLoss);
    if (isBest)
      eval.bestLoss = loss;
    eval.withoutImprovement = isBest ? 0 : eval.withoutImprovement + 1;
    progress.finish();
    std::fprintf(step == flags.steps ? stdout : stderr, "step %lld: validation loss %.4f\n",
                 static_cast<long long>(step), loss);
    StepMetrics row;
    row.step = step;
    row.evalLoss = loss;
    return metrics ? metrics->write(row) : success();
  };
  for (int64_t s = firstStep; s < flags.steps; ++s) {
    if (flags.earlyStop > 0 && eval.withoutImprovement >= flags.earlyStop) {
      progress.finish();
      std::fprintf(stderr, "stopped early after step %lld: no better validation loss than %.4f in %lld evaluations\n",
                   static_cast<long long>(s), eval.bestLoss.value_or(NAN),
                   static_cast<long long>(eval.withoutImprovement));
      break;
    }
    auto compareGradients = [&] { return reference->compareGradients(plan, *trainer); };
    bool compareNow = reference && s == 0;
    ZEROCC_ASSIGN(StepReport step,
                  trainer->step(data, compareNow ? std::function<Status()>(compareGradients) : nullptr));
    StepMetrics row;
    row.step = step.step;
    row.loss = step.loss;
    row.lr = step.lr;
    row.gradNorm = step.gradNorm;
    row.stepMillis = step.milliseconds;
    row.tokensPerSecond = step.samplesPerSecond * static_cast<double>(tokens);
    row.skipped = step.skipped;
    if (plan.defaults().loss_scale() > 0)
      row.lossScale = step.lossScale;
    row.memoryPeak = mapped;
    row.wireBytes = step.wireBytes;
    progress.step(row, now());
    if (metrics)
      ZEROCC_TRY(metrics->write(row));
    if (reference)
      ZEROCC_TRY(reference->afterStep(plan, *trainer, step));
    if (step.skippedInRow >= flags.maxSkipped) {
      progress.finish();
      exitCode = kDiverged;
      return Error("step " + std::to_string(step.step) + ": " + std::to_string(step.skippedInRow) +
                       " steps in a row were skipped, training diverged; the first that was not finite was " +
                       trainer->skipCause(),
                   "look at the data of that step; lower --set lr=, or compile with --clip-grad-norm; --max-skipped N "
                   "allows more");
    }
    isBest = false;
    if (evalData && flags.evalEvery > 0 && (step.step % flags.evalEvery == 0 || step.step == flags.steps))
      ZEROCC_TRY(evaluate(step.step));
    if (saves)
      ZEROCC_TRY(saves->afterStep(isBest, eval));
    if (saves || processes.world()) {
      ZEROCC_ASSIGN(const bool isToStop, anyOf(trainer->group().processes(), RunSaves::stopSignal() != 0));
      if (isToStop && step.step < flags.steps) {
        progress.finish();
        exitCode = kRankFailed;
        if (!saves)
          return Error("stopped on request after step " + std::to_string(step.step) + ", and nothing is saved", "give --save DIR");
        ZEROCC_TRY(saves->finish());
        std::fprintf(stderr, "stopped on request after step %lld; go on with --resume %s\n",
                     static_cast<long long>(step.step), escapeForTerminal(saves->lastSaved()).c_str());
        exitCode = kStopped;
        return success();
      }
    }
  }
  if (evalData && flags.evalEvery == 0)
    ZEROCC_TRY(evaluate(flags.steps));
  progress.finish();
  if (saves) {
    exitCode = kRankFailed;
    ZEROCC_TRY(saves->finish());
    std::fprintf(stderr, "saved %s\n", escapeForTerminal(saves->lastSaved()).c_str());
  }
  exitCode = kRefused;
  if (!flags.exportFile.empty()) {
    ZEROCC_TRY(exportWeights(plan, trainer->group(), flags.model, flags.exportFile));
    std::fprintf(stderr, "wrote %s\n", escapeForTerminal(flags.exportFile).c_str());
  }
  if (reference) {
    std::fputs(escapeForTerminal(reference->report()).c_str(), stdout);
    if (!reference->passed())
      return Error("the run differs from " + flags.checkAgainst + " by more than the tolerances");
  }
  return success();
}

void addOptions(CLI::App &app, RunFlags &flags) {
  app.add_option("PLAN", flags.plan, "plan to run (zerocc compile)")->required();
  app.add_option("--model", flags.model, "ONNX file with the initial weights");
  app.add_option("--weights", flags.weights,
                 "initial weights by name: a folder of save_pretrained (safetensors), or FILE.safetensors");
  app.add_option("--weight-name", flags.weightNames,
                 "PARAMETER=TENSOR: where the plan and the files of --weights name it otherwise (repeatable)");
  app.add_option("--init", flags.init, "initial weights without a file: normal:STD");
  app.add_option("--data", flags.data,
                 "text:FILE (bytes as tokens), FILE.bin (nanoGPT, llm.c, Megatron), FILE.npy, FILE.npz, NAME=SOURCE "
                 "(repeatable); FILE may be a pattern: 'shards/*.bin' is one stream of all, sorted by name; [A:B] or "
                 "[A%:B%] behind it keeps a part; 'mix:0.7*a.bin,0.3*b_*.bin' mixes sources sample by sample in exactly "
                 "these proportions; pipe:'COMMAND' reads frames that a command writes, one a micro-batch (their form: "
                 "below)");
  app.add_option("--steps", flags.steps,
                 "steps to train (absolute); of an inference plan: rounds of one micro-batch a rank (all samples once)")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--lr-schedule", flags.schedule, "over the plan's: as zerocc compile --lr-schedule");
  app.add_option("--seed", flags.seed, "of --shuffle, --init and dropout");
  app.add_flag("--shuffle", flags.shuffle, "samples in a seeded order");
  app.add_option("--set", flags.settings, "run-time value NAME=NUMBER: lr, beta1, weight-decay, … (repeatable)");
  app.add_option("--eval-every", flags.evalEvery, "evaluate every K steps and at the end");
  app.add_option("--eval-data", flags.evalData, "data to evaluate on, as --data");
  app.add_option("--eval-batches", flags.evalBatches, "global micro-batches per evaluation")->check(CLI::PositiveNumber);
  app.add_option("--ranks", flags.ranks, "refuse a plan for another number of ranks");
  app.add_option("--comm", flags.comm, 
                 "threads: all ranks in this process; mpi: one rank a process, as mpirun or srun have started them (where "
                 "they have, the default); nccl is not in this version");
  app.add_option("--device", flags.device, "cpu (cuda is not in this version)");
  app.add_option("--threads", flags.threads, "per rank: 1");
  app.add_option("--rank-timeout,--timeout", flags.timeout,
                 "seconds the ranks wait for one that is killed or hangs before they name it, and exit 3 (60)")
      ->check(CLI::PositiveNumber);
  app.add_option("--export", flags.exportFile, "write trained weights: FILE.onnx or FILE.safetensors");
  app.add_option("--save", flags.saves.folder,
                 "folder of checkpoints: at the end, and on SIGTERM or SIGUSR1 (then exit 75)");
  app.add_option("--save-every", flags.saves.every, "besides, every K steps")->check(CLI::PositiveNumber);
  app.add_option("--save-keep", flags.saves.keep, "checkpoints to keep, the last ones (3)")->check(CLI::PositiveNumber);
  app.add_flag("--keep-best", flags.saves.keepBest, "save at every best validation loss, and keep that one (DIR/best)");
  app.add_option("--max-skipped", flags.maxSkipped,
                 "give up (exit 4) after N steps in a row whose gradients or loss were not finite; such a step changes no weights (default 20)")
      ->check(CLI::PositiveNumber);
  app.add_option("--early-stop", flags.earlyStop, "end after N evaluations without a better loss")
      ->check(CLI::PositiveNumber);
  app.add_option("--resume", flags.saves.resume,
                 "go on from a checkpoint, or from the last one in a folder; mesh, stage and micro-batch may differ");
  app.add_option("--metrics", flags.metrics, "one JSON object a step");
  app.add_option("--check-against", flags.checkAgainst, "compare loss, gradients, weights with a recorded REF.npz");
  app.add_option("--reference-prefix", flags.referencePrefix, "prefix of the keys in REF.npz, as clip/");
  app.add_option("--reference-weights-step", flags.weightSteps, "step after which weight/NAME was recorded (3)");
  app.add_option("--loss-tolerance", flags.lossTolerance, "relative, for --check-against");
  app.add_option("--tensor-tolerance", flags.tensorTolerance, "relative to each tensor's largest value");
  app.add_option("--output", flags.inference.outputs,
                 "inference plans: the outputs of all samples in their order, FILE.npy or NAME=FILE.npy (repeatable)");
  app.add_option("--sample", flags.inference.sample,
                 "inference plans: go on with TEXT (its bytes are tokens), or with tokens:12,7,3");
  app.add_option("--sample-tokens", flags.inference.sampleTokens, "tokens to add (100)")->check(CLI::PositiveNumber);
  app.add_option("--temperature", flags.inference.temperature, "0: the likeliest token; above: drawn, by --seed")
      ->check(CLI::Range(0.0, 1e6));
  app.add_option("--top-k", flags.inference.topK, "draw among the K likeliest (with --temperature)")
      ->check(CLI::PositiveNumber);
  app.add_flag("--check-memory", flags.checkMemory, "poison all memory that the plan says is undefined");
  app.add_flag("--follow-symlinks", flags.followLinks, "accept external data behind links");
  app.footer("Frames of --data pipe:'COMMAND', little-endian without padding, one for each global micro-batch, in order:\n"
             "  char magic[4] = \"ZPIP\"; u32 version = 1; u32 headerBytes (all before the payload); u32 arrays; u32 tokenBytes;\n"
             "  u32 zero; u64 number (one more than in the frame before); u64 payloadBytes;\n"
             "  of each array: char type[2] (f2 bf f4 f8 i1 i2 i4 i8 u1 u2 u4 u8 b1); u16 nameBytes; u32 rank; i64 dims[rank];\n"
             "      u64 bytes; char name[nameBytes] (an input of the plan);\n"
             "  char token[tokenBytes] (printable ASCII: where the command is behind this frame); payload: the arrays in order\n"
             "The command finds in its environment ZEROCC_PIPE_RESUME (with --resume: the token of the last frame trained on,\n"
             "behind which it goes on; without tokens it begins at the start and is skipped through), ZEROCC_PIPE_SAMPLES (taken\n"
             "before its first frame), ZEROCC_PIPE_MICRO_BATCH, ZEROCC_PIPE_SEED. Its processes end with the run. With\n"
             "--comm mpi every process runs the command and takes the frames of its own rank.\n\n"
             "Examples:\n"
             "  zero-run char_gpt.zplan --model char_gpt.onnx --data text:book.txt --steps 500\n"
             "  zero-run model.zplan --model model.onnx --data train.bin --eval-data val.bin --eval-every 100 --steps 1000 \\\n"
             "      --set lr=3e-4 --metrics run.jsonl --export trained.onnx\n"
             "  zero-run model.zplan --model model.onnx --data train.bin --steps 1000 --save run --save-every 100\n"
             "  zero-run model.zplan --model model.onnx --data train.bin --steps 1000 --save run --resume run\n"
             "  mpirun -n 4 zero-run model.zplan --model model.onnx --data train.bin --steps 1000 --save run --rank-timeout 30\n"
             "  zero-run model.zplan --model model.onnx --data 'mix:0.7*web_*.bin,0.3*text:books.txt[:90%]' --steps 1000 --shuffle\n"
             "  zero-run infer.zplan --model trained.onnx --data x.npy --output y.npy\n"
             "  zero-run infer.zplan --model char_gpt.onnx --resume run --sample \"Once\" --temperature 0.8 --top-k 40");
}

} // namespace
} // namespace zerocc

int main(int argc, char **argv) {
  using namespace zerocc;
  CLI::App app("zero-run: runs a plan made by zerocc: trains, or infers", "zero-run");
  RunFlags flags;
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast); // later flags win
  addOptions(app, flags);
  app.set_version_flag("--version", "zero-run 0.1.0");
  auto arguments = expandArguments(argc, argv);
  if (!arguments) {
    refuse(arguments.error());
    return kWrongCommandLine;
  }
  Run run;
  app.callback([&] {
    run = [&] {
      int exitCode = kRefused;
      flags.seedGiven = app.count("--seed") > 0;
      flags.commandLine.assign(argv, argv + argc);
      for (const CLI::Option *option : app.get_options())
        if (option->count() > 0)
          flags.given.push_back(option->get_name());
      RunProcesses processes;
      if (Status joined = processes.join({flags.comm, flags.timeout, &RunSaves::stopSignal()}); !joined)
        return refuse(joined.error());
      Status done = train(flags, exitCode, processes);
      if (done && exitCode != kStopped)
        exitCode = kDone;
      return processes.conclude(done, exitCode);
    };
  });
  return runApp(app, *arguments, run);
}
