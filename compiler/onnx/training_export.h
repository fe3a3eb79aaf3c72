#pragma once

#include "compiler/onnx/importer.h"

namespace zerocc {

/// What a plan does to a model in one step, as one device would do it on the whole batch.
struct TrainingExport {
  struct Parameter {
    std::string name, initializer;
    TensorType type;
    std::vector<std::string> copies, transposedCopies; // other initializers with its values
    bool trainable = true;
    double decay = 0;
  };
  std::string
      loss; // cross-entropy:LOGITS[,LABELS] | mse:OUTPUT[,TARGET] | output:NAME | empty: the only output
  int64_t classes = 0, ignoreIndex = -100;
  /// The input that the loss adds to the model (labels, target); no name: it adds none.
  std::string lossInput;
  TensorType lossInputType;
  std::string optimizer; // the plan's: adamw | sgd | onnx_adam | adagrad; the others are refused
  TrainingForm form;     // its numbers; loss, parameters and optimizer are not read
  std::vector<Parameter> parameters;
};

/// Names of the inputs of a model that are no initializers.
Expected<std::vector<std::string>> modelInputs(const std::string &modelPath, bool followLinks = false);

/// Writes the model of `modelPath`, with what import mended in it, and training_info: an algorithm of loss,
/// Gradient and update. Momentum, Adam and Adagrad are ONNX's ops; AdamW, which ONNX has no op for, is
/// written out in elementwise ops. `followLinks`: external data may lie behind links.
Status exportTraining(const std::string &modelPath, const TrainingExport &what,
                      const std::string &outputPath, bool followLinks = false);

} // namespace zerocc
