#include "passes/pipeline.h"

#include "passes/attach_loss.h"
#include "passes/autodiff.h"
#include "passes/build_inference.h"
#include "passes/build_step.h"
#include "passes/clone_eval.h"
#include "passes/facts.h"
#include "passes/fuse_patterns.h"
#include "passes/hoist_constants.h"
#include "passes/insert_fetch_release.h"
#include "passes/insert_sync.h"
#include "passes/keep_outputs.h"
#include "passes/lower_rank_means.h"
#include "passes/materialize_views.h"
#include "passes/mixed_precision.h"
#include "passes/partition.h"
#include "passes/plan_memory.h"
#include "passes/rematerialize.h"
#include "passes/schedule.h"
#include "runtime/plan/optimizers.h"

#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>

namespace zerocc {
namespace {

constexpr LadderRow kLadder[] = {
    {"attach-loss", attachLoss, nullptr},
    {"fuse-patterns", fusePatterns, nullptr},
    {"mixed-precision", mixedPrecision, nullptr},
    {"hoist-constants", hoistConstants, nullptr},
    {"clone-eval", cloneEval, nullptr},
    {"autodiff", autodiff, checkOneGradientPerParameter},
    {"rematerialize", rematerialize, nullptr},
    {"materialize-views", materializeViews, nullptr},
    {"partition", partition, checkEveryParameterInOneBucket},
    {"lower-rank-means", lowerRankMeans, nullptr},
    {"build-step", buildStep, nullptr},
    {"insert-fetch-release", insertFetchRelease, checkFetchesAndSpreads},
    {"schedule", schedule, checkStartsBeforeWaits},
    {"plan-memory", planMemory, checkEveryValuePlaced},
    {"insert-sync", insertSync, nullptr},
};

// Of an inference plan: what has to do with a loss, a gradient or an update is left out.
constexpr LadderRow kInferenceLadder[] = {
    {"keep-outputs", keepOutputs, nullptr},
    {"fuse-patterns", fusePatterns, nullptr},
    {"mixed-precision", mixedPrecision, nullptr},
    {"hoist-constants", hoistConstants, nullptr},
    {"materialize-views", materializeViews, nullptr},
    {"partition", partition, checkEveryParameterInOneBucket},
    {"lower-rank-means", lowerRankMeans, nullptr},
    {"build-inference", buildInference, nullptr},
    {"insert-fetch-release", insertFetchRelease, checkFetchesAndSpreads},
    {"schedule", schedule, checkStartsBeforeWaits},
    {"plan-memory", planMemory, checkEveryValuePlaced},
    {"insert-sync", insertSync, nullptr},
};

Status writeDump(const PipelineOptions &options, int index, const std::string &name, const std::string &text,
                 const std::string &previous) {
  if (options.dumpDir.empty())
    return success();
  std::error_code error;
  std::filesystem::create_directories(options.dumpDir, error);
  char number[16];
  std::snprintf(number, sizeof number, "%02d", index);
  std::string path = options.dumpDir + "/" + number + "-" + name + ".ir";
  std::ofstream file(path, std::ios::trunc);
  file << (text == previous ? "// unchanged by " + name + "\n" : text);
  file.close();
  if (!file)
    return Error("cannot write \"" + path + "\"", "check the folder given with --dump-dir");
  return success();
}

} // namespace

llvm::ArrayRef<LadderRow> ladder() { return kLadder; }
llvm::ArrayRef<LadderRow> inferenceLadder() { return kInferenceLadder; }

const LadderRow *findPass(llvm::StringRef name) {
  for (llvm::ArrayRef<LadderRow> rows : {ladder(), inferenceLadder()})
    for (const LadderRow &row : rows)
      if (name == row.name)
        return &row;
  return nullptr;
}

Expected<std::vector<PassRun>> runLadder(Module &module, Decisions &decisions,
                                         const PipelineOptions &options) {
  std::vector<PassRun> runs;
  std::string previous;
  int index = 0;
  if (!options.dumpDir.empty()) {
    previous = print(module);
    ZEROCC_TRY(writeDump(options, index, "import", previous, ""));
  }
  for (const LadderRow &row : options.inference ? inferenceLadder() : ladder()) {
    ++index;
    auto begin = std::chrono::steady_clock::now();
    ZEROCC_ASSIGN(PassReport report, row.run(module, decisions));
    auto end = std::chrono::steady_clock::now();
    runs.push_back({row.name, report, std::chrono::duration<double, std::milli>(end - begin).count()});
    if (options.check) {
      if (Status ok = checkModule(module); !ok)
        return ok.error().in(std::string("after ") + row.name);
      if (row.check)
        if (Status ok = row.check(module); !ok)
          return ok.error().in(std::string("after ") + row.name);
    }
    if (!options.dumpDir.empty()) {
      std::string text = print(module);
      ZEROCC_TRY(writeDump(options, index, row.name, text, previous));
      previous = std::move(text);
    }
    if (options.afterPass)
      options.afterPass(row.name, module);
    if (options.printAfter == row.name && options.out)
      options.out(print(module));
    if (options.stopAfter == row.name)
      break;
  }
  return runs;
}

Expected<int64_t> parseSize(llvm::StringRef text) {
  llvm::StringRef number = text.take_while([](char c) { return (c >= '0' && c <= '9') || c == '.'; });
  llvm::StringRef unit = text.drop_front(number.size()).trim();
  double value = 0;
  if (number.empty() || number.getAsDouble(value))
    return Error("\"" + text.str() + "\" is not a size", "write 4096, 32MiB or 1.5GiB");
  constexpr std::pair<const char *, double> units[] = {{"", 1},
                                                       {"B", 1},
                                                       {"KiB", 1024.0},
                                                       {"MiB", 1048576.0},
                                                       {"GiB", 1073741824.0},
                                                       {"TiB", 1099511627776.0},
                                                       {"KB", 1e3},
                                                       {"MB", 1e6},
                                                       {"GB", 1e9},
                                                       {"TB", 1e12}};
  for (auto [name, factor] : units)
    if (unit == name) {
      double bytes = value * factor;
      if (bytes > 9e18)
        return Error("size \"" + text.str() + "\" is too large");
      return static_cast<int64_t>(std::llround(bytes));
    }
  return Error("\"" + unit.str() + "\" is not a unit of size", "write B, KiB, MiB, GiB or TiB");
}

Status setDecision(Decisions &d, llvm::StringRef name, llvm::StringRef value) {
  auto setInt = [&](int64_t &field, int64_t low) -> Status {
    if (value.getAsInteger(10, field) || field < low)
      return Error("--" + name.str() + ": \"" + value.str() + "\" is not a whole number of at least " +
                   std::to_string(low));
    return success();
  };
  auto setBytes = [&](int64_t &field) -> Status {
    ZEROCC_ASSIGN(field, parseSize(value));
    return success();
  };
  auto setBool = [&](bool &field) -> Status {
    if (value != "0" && value != "1")
      return Error("--" + name.str() + ": \"" + value.str() + "\" is neither 0 nor 1");
    field = value == "1";
    return success();
  };
  auto setOneOf = [&](std::string &field, llvm::ArrayRef<const char *> allowed) -> Status {
    std::string list;
    for (const char *one : allowed) {
      if (value == one) {
        field = value.str();
        return success();
      }
      list += (list.empty() ? "" : ", ") + std::string(one);
    }
    return Error("--" + name.str() + ": \"" + value.str() + "\" is not one of " + list);
  };
  if (name == "shard")
    return setInt(d.shard, 1);
  if (name == "replicate")
    return setInt(d.replicate, 1);
  if (name == "grad-accumulation")
    return setInt(d.microSteps, 1);
  if (name == "micro-batch")
    return setInt(d.microBatch, 1);
  if (name == "stage") {
    ZEROCC_TRY(setInt(d.stage, 0));
    if (d.stage > 3)
      return Error("--stage: \"" + value.str() + "\" is not a ZeRO stage", "stages are 0, 1, 2 and 3");
    return success();
  }
  if (name == "reduce")
    return setOneOf(d.reduce, {"auto", "boundary", "micro-step"});
  if (name == "bucket-bytes")
    return setBytes(d.bucketBytes);
  if (name == "persistence-bytes")
    return setBytes(d.persistenceBytes);
  if (name == "prefetch-distance")
    return setInt(d.prefetchDistance, 0);
  if (name == "memory-budget")
    return setBytes(d.memoryBudget);
  if (name == "keep")
    return setBool(d.keep);
  if (name == "loss") {
    d.loss = value.str();
    return success();
  }
  if (name == "label-smoothing") {
    if (value.getAsDouble(d.labelSmoothing) || d.labelSmoothing < 0 || d.labelSmoothing >= 1)
      return Error("--label-smoothing: \"" + value.str() + "\" is not in [0, 1)");
    return success();
  }
  if (name == "ignore-index")
    return setInt(d.ignoreIndex, INT64_MIN);
  if (name == "optimizer") {
    if (!findOptimizer(std::string_view(value.data(), value.size())))
      return Error("--optimizer: \"" + value.str() + "\" is not one of " + optimizerNames());
    d.optimizer = value.str();
    return success();
  }
  if (name == "outputs") {
    d.outputs.clear();
    for (llvm::StringRef rest = value; !rest.empty();) {
      auto [one, others] = rest.split(',');
      d.outputs.push_back(one.str());
      rest = others;
    }
    return success();
  }
  if (name == "momentum-buffer")
    return setBool(d.momentum);
  if (name == "precision")
    return setOneOf(d.precision, {"f32", "bf16", "f16"});
  if (name == "clipping")
    return setBool(d.clipping);
  return Error("there is no option --" + name.str());
}

} // namespace zerocc
