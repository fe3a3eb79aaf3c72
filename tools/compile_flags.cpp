#include "tools/compile_flags.h"

namespace zerocc {

void ModelFlags::add(CLI::App &command) {
  command.add_option("MODEL", model, "model to train: model.onnx, or ONNX text in model.onnxtxt")->required();
  command.add_option("--dim", dims, "bind a symbolic dim: NAME=VALUE, per rank and micro-step (repeatable)");
  command.add_option("--micro-batch", microBatch, "samples per rank and micro-step: the leading dim of every input")
      ->check(CLI::PositiveNumber);
  command.add_option("--input", inputs, "role of an input: NAME=tokens|labels|iota|ones|zeros|data (repeatable)");
  command.add_option("--trainable", trainable, "train parameters whose names match PATTERN (repeatable)");
  command.add_option("--freeze", freeze, "do not train parameters whose names match PATTERN (repeatable)");
  command.add_option("--tie", tie, "keep one parameter of what the model shares: PATTERN (repeatable)");
  command.add_flag("--train-batchnorm", trainBatchNorm,
                   "normalize by the batch where the exporter has put BatchNormalization into inference mode");
  command.add_flag("--sync-batchnorm", syncBatchNorm,
                   "batch norm by the micro-batches of all ranks together; else each rank has statistics of its own");
  command.add_option("--dropout", dropout, "file: as the model's Dropout nodes say; off: none")
      ->check(CLI::IsMember({"file", "off"}));
  command.add_flag("--follow-symlinks", followLinks, "accept external data behind links");
  command.add_option("--untie", untie, "split a shared parameter into one per reader: PATTERN (repeatable)");
}

Expected<std::pair<std::string, std::string>> splitAssignment(const std::string &flag, const std::string &text) {
  size_t at = text.find('=');
  if (at == std::string::npos || at == 0 || at + 1 == text.size())
    return Error(flag + ": \"" + text + "\" is not NAME=VALUE");
  return std::pair(text.substr(0, at), text.substr(at + 1));
}

Expected<ImportOptions> ModelFlags::importOptions() const {
  ImportOptions options;
  for (const std::string &text : dims) {
    ZEROCC_ASSIGN(auto pair, splitAssignment("--dim", text));
    int64_t value = 0;
    if (llvm::StringRef(pair.second).getAsInteger(10, value) || value < 0)
      return Error("--dim: \"" + pair.second + "\" is not a size (dim \"" + pair.first + "\")");
    options.dims[pair.first] = value;
  }
  for (const std::string &text : inputs) {
    ZEROCC_ASSIGN(auto pair, splitAssignment("--input", text));
    options.inputRoles[pair.first] = pair.second;
  }
  options.microBatch = microBatch;
  options.freeze = freeze;
  options.trainable = trainable;
  options.tie = tie;
  options.untie = untie;
  options.trainBatchNorm = trainBatchNorm;
  options.followLinks = followLinks;
  options.syncBatchNorm = syncBatchNorm;
  options.dropout = dropout;
  options.computeF32 = true; // mixed_precision narrows products afterwards
  return options;
}

} // namespace zerocc
