#pragma once

#include "compiler/onnx/importer.h"
#include "compiler/plan/emit.h"
#include "passes/compile.h"
#include "tools/command.h"

namespace zerocc {

/// The flags that `check` and `compile` share: how a model is read.
struct ModelFlags {
  std::string model;
  std::vector<std::string> dims, inputs, trainable, freeze, tie, untie;
  int64_t microBatch = 1;
  bool trainBatchNorm = false, syncBatchNorm = false, followLinks = false;
  std::string dropout = "file";
  void add(CLI::App &command);
  Expected<ImportOptions> importOptions() const;
};

/// Splits "NAME=VALUE"; an error names the flag.
Expected<std::pair<std::string, std::string>> splitAssignment(const std::string &flag, const std::string &text);

} // namespace zerocc
