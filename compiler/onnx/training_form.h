#pragma once

#include "compiler/onnx/importer.h"
#include "compiler/onnx/loader.h"

namespace zerocc {

/// Takes training_info into the model's graph, as ONNX says: the training graph is the main one followed by
/// that of the algorithm. Nothing is checked yet.
struct MergedTraining {
  bool isThere = false;
  int inputs = 0, initializers = 0, nodes = 0; // how many there were before
  std::map<std::string, std::string> updates;  // initializer -> the tensor it becomes
  std::vector<std::string> outputs;            // of the main graph
};
Expected<MergedTraining> mergeTraining(LoadedModel &model);

/// Reads what the algorithm says, and leaves of it in the graph only what computes the loss, which becomes an
/// output. The merged graph's structure has been checked. Refuses, with the reason, whatever does not map to
/// an optimizer of the runtime exactly.
Expected<TrainingForm> readTraining(LoadedModel &model, const MergedTraining &merged, ImportReport &report);

} // namespace zerocc
