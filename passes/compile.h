#pragma once

#include "passes/pipeline.h"

namespace zerocc {

/// The ladder under a budget and with `--stage auto`: the driver repeats it from a snapshot of the imported module
/// with changed Decisions, at most once per stage, and keeps the first result that fits.
struct LadderResult {
  std::unique_ptr<Module> module;
  Decisions decisions;       // as they ended
  std::vector<PassRun> runs; // of the last round
  int64_t rounds = 0;
  std::string graphText; // the fused graph before it is partitioned: what the numerics key is formed of
};

/// Runs the ladder on copies of `imported`. `stageAuto`: the lowest stage that fits in the budget (stage 0 without one).
/// An error when the plan needs more than decisions.memoryBudget, with what fills the peak and what would help.
Expected<LadderResult> compileModule(const Module &imported, const Decisions &decisions, bool stageAuto,
                                     const PipelineOptions &options);

} // namespace zerocc
