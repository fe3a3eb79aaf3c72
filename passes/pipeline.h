#pragma once

#include "passes/pass.h"

#include "llvm/ADT/ArrayRef.h"

#include <functional>

namespace zerocc {

/// One row of the ladder: a pass and the fact it leaves behind.
struct LadderRow {
  const char *name;  // "insert-fetch-release", as on the command line
  PassFunction run;
  Status (*check)(const Module &module); // the fact; null: only the structural check
};

/// The ladder of DESIGN.md, in order.
llvm::ArrayRef<LadderRow> ladder();
/// The same for a plan that only infers: the forward graph with its outputs, no loss, gradient or update.
llvm::ArrayRef<LadderRow> inferenceLadder();
/// In either.
const LadderRow *findPass(llvm::StringRef name);

/// How the driver watches the ladder.
struct PipelineOptions {
  std::string dumpDir;    // write NN-pass.ir after each pass; unchanged modules say so
  std::string printAfter; // print the module after this pass to `out`
  std::string stopAfter;  // stop after this pass
  bool check = true;      // run every row's checker
  bool inference = false; // the inference ladder
  std::function<void(const std::string &)> out;
  std::function<void(const std::string &name, const Module &module)> afterPass;
};

/// What one pass did.
struct PassRun {
  std::string name;
  PassReport report;
  double milliseconds = 0;
};

/// Runs the ladder from the first row. Returns what each pass did, in order.
Expected<std::vector<PassRun>> runLadder(Module &module, Decisions &decisions, const PipelineOptions &options);

/// Sets one decision by its command-line name ("bucket-bytes", "1KiB"). The driver, `zerocc opt` and text tests share it.
Status setDecision(Decisions &decisions, llvm::StringRef name, llvm::StringRef value);

/// "32MiB", "1.5 GiB", "4096" -> bytes.
Expected<int64_t> parseSize(llvm::StringRef text);

} // namespace zerocc
