#include "passes/compile.h"

#include <algorithm>

namespace zerocc {
namespace {

int64_t peakBytes(const Module &module) {
  int64_t bytes = 0;
  for (int64_t region : module.regionBytes)
    bytes += region;
  return bytes;
}

std::string formatGiB(int64_t bytes) {
  char text[48];
  if (bytes >= (1 << 30))
    std::snprintf(text, sizeof text, "%.1f GiB", static_cast<double>(bytes) / (1 << 30));
  else
    std::snprintf(text, sizeof text, "%.1f MiB", static_cast<double>(bytes) / (1 << 20));
  return text;
}

Error overBudget(const Module &module, const Decisions &decisions) {
  std::vector<std::pair<int64_t, std::string>> kinds;
  for (const Attributes::Entry &entry : module.facts.entries())
    if (llvm::StringRef(entry.first).startswith("peak.") && std::holds_alternative<int64_t>(entry.second))
      kinds.push_back({std::get<int64_t>(entry.second), entry.first.substr(5)});
  std::sort(kinds.rbegin(), kinds.rend());
  std::string largest;
  for (size_t i = 0; i < kinds.size() && i < 3; ++i)
    largest += (i ? ", " : "") + kinds[i].second + " " + formatGiB(kinds[i].first);
  std::string hint = "largest: " + largest + "; ";
  if (decisions.stage < 3 && decisions.shard > 1)
    hint += "try --stage " + std::to_string(decisions.stage + 1);
  else if (decisions.microBatch > 1)
    hint += "try --micro-batch " + std::to_string(decisions.microBatch / 2) + " --grad-accumulation " +
            std::to_string(decisions.microSteps * 2);
  else
    hint += "try more ranks on the shard axis";
  return Error("plan needs " + formatGiB(peakBytes(module)) + " per rank, budget is " +
                   formatGiB(decisions.memoryBudget) + "; peak at \"" + module.facts.getString("peak.at") + "\"",
               hint);
}

} // namespace

Expected<LadderResult> compileModule(const Module &imported, const Decisions &decisions, bool stageAuto,
                                     const PipelineOptions &options) {
  LadderResult result;
  result.decisions = decisions;
  int64_t stage = stageAuto ? 0 : decisions.stage;
  for (;; ++stage) {
    result.decisions = decisions;
    result.decisions.stage = stage;
    result.module = cloneModule(imported);
    PipelineOptions observed = options;
    observed.afterPass = [&](const std::string &name, const Module &module) {
      if (name == "materialize-views")
        result.graphText = print(module);
      if (options.afterPass)
        options.afterPass(name, module);
    };
    ZEROCC_ASSIGN(result.runs, runLadder(*result.module, result.decisions, observed));
    ++result.rounds;
    bool fits = decisions.memoryBudget == 0 || peakBytes(*result.module) <= decisions.memoryBudget;
    if (fits || !options.stopAfter.empty())
      return result;
    if (!stageAuto || stage == 3)
      return overBudget(*result.module, result.decisions);
  }
}

} // namespace zerocc
