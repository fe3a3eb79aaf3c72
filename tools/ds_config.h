#pragma once

#include "compiler/support/expected.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace zerocc {

/// What `zerocc compile` knows besides the file: a ds_config.json does not say how many ranks there are.
struct DsContext {
  int64_t ranks = 1;                        // shard × replicate
  std::map<std::string, std::string> given; // flags of the command line, "--stage" -> "2": they win
};

struct DsFlag {
  std::string flag, value; // "--stage", "2"
};

/// One line of the report: each key of the file, in its order, then what DeepSpeed sets where the file is silent.
struct DsReportRow {
  std::string key, value, became;
};

struct DsConfig {
  std::vector<DsFlag> flags;      // in no flag of the command line
  std::vector<DsReportRow> rows;
  bool decaysVectors = false;     // the file's weight decay is of all parameters (DeepSpeed has one group)
};

/// Reads a DeepSpeed configuration (0.19; keys and defaults: deepspeed/runtime/{config,constants}.py, zero/config.py).
/// Every key has the same effect by a flag, or is noted with the reason why it has no effect here, or is refused.
/// "auto" is what the Hugging Face trainer fills in: the flag beside, else the default of its TrainingArguments.
/// Errors, all at once, each `file:line:column`: no JSON, unknown keys (with the nearest known), wrong types, "auto"
/// where no trainer fills it, values that cannot be had here, a batch-size triple that does not hold.
Expected<DsConfig> readDsConfig(const std::string &text, const std::string &file, const DsContext &context);

/// train_batch_size = micro-batch × accumulation × ranks.
struct DsBatch {
  int64_t train = 0, micro = 0, steps = 0;
};
/// Completes the triple as DeepSpeed does: two give the third; of train alone or micro alone, accumulation is 1.
/// Errors: none given, not positive, or the product does not hold.
Expected<DsBatch> completeBatch(std::optional<int64_t> train, std::optional<int64_t> micro,
                                std::optional<int64_t> steps, int64_t ranks);

/// Every known key, with its type and DeepSpeed's default (as JSON; empty: none).
struct DsKey {
  std::string path, type, otherwise;
};
std::vector<DsKey> dsKeys();

/// The known key nearest to `path` by edit distance, when it is near; else empty.
std::string nearestDsKey(const std::string &path);

/// The report as a table: key, value, became.
std::string dsReport(const DsConfig &config, const std::string &file);

} // namespace zerocc
