#include "compiler/onnx/damage.h"

#include "compiler/onnx/lowering.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringRef.h"

namespace zerocc {
namespace {

struct Census {
  int64_t convolutions = 0, withBias = 0;
  int64_t batchNorms = 0, trainingBatchNorms = 0;
  int64_t dropouts = 0, activeDropouts = 0;
  int64_t withoutBias = 0;
  int64_t attentions = 0, losses = 0, normalizations = 0;
  std::string firstBatchNorm;

  void visit(const FlatGraph &graph, const ImportOptions &options) {
    for (const FlatNode &node : graph.nodes) {
      for (const auto &[name, subgraph] : node.subgraphs)
        visit(*subgraph, options);
      if (node.domain.empty())
        count(node, options);
    }
  }

private:
  void count(const FlatNode &node, const ImportOptions &options) {
    if (node.op == "Conv") {
      ++convolutions;
      withBias += node.inputs.size() > 2 && !node.inputs[2].empty();
    } else if (node.op == "BatchNormalization") {
      if (batchNorms++ == 0)
        firstBatchNorm = node.name.empty() ? node.outputs[0] : node.name;
      ImportOptions asInFile = options;
      asInFile.trainBatchNorm = false;
      trainingBatchNorms += trainsBatchNormalization(node, asInFile);
    } else if (node.op == "Gemm") {
      withoutBias += node.inputs.size() < 3 || node.inputs[2].empty();
    } else if (node.op == "Dropout") {
      ++dropouts;
      activeDropouts += node.version < 12 || (node.inputs.size() > 2 && !node.inputs[2].empty());
    } else if (node.op == "Softmax") {
      ++attentions;
    } else if (node.op == "SoftmaxCrossEntropyLoss" || node.op == "NegativeLogLikelihoodLoss") {
      ++losses;
    } else if (llvm::StringRef(node.op).endswith("Normalization")) {
      ++normalizations;
    }
  }
};

std::string plural(int64_t count, const std::string &what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

} // namespace

void reportDamage(const FlatModel &flat, const ImportOptions &options, ImportReport &report) {
  Census census;
  census.visit(flat.graph, options);
  auto advise = [&](const std::string &text) { report.advice.push_back(text); };
  auto note = [&](const std::string &text) { report.notes.push_back(text); };

  const int64_t inference = census.batchNorms - census.trainingBatchNorms;
  if (census.convolutions > 2 && census.batchNorms == 0 && census.withBias == census.convolutions &&
      census.normalizations == 0)
    advise(
        "no normalization is left: all " + plural(census.convolutions, "convolution") +
        " have a bias, as exporters leave them when they fold batch norm; it cannot be undone here: export "
        "with "
        "do_constant_folding=False and training=TrainingMode.TRAINING");
  if (inference > 0 && options.trainBatchNorm)
    report.repairs.push_back(plural(inference, "BatchNormalization node") +
                             " in inference mode train with the batch's own statistics (--train-batchnorm)");
  else if (inference > 0)
    note(plural(inference, "BatchNormalization node") + " in inference mode (the first is \"" +
         census.firstBatchNorm +
         "\"): the stored statistics are used and stay as they are; --train-batchnorm trains them");
  const bool trains = census.trainingBatchNorms > 0 || (inference > 0 && options.trainBatchNorm);
  if (trains && options.syncBatchNorm)
    note("batch norm: normalizes by the micro-batches of all ranks together (--sync-batchnorm), an exchange for each "
         "statistic; variance divided by the number of values, as ONNX defines it");
  else if (trains)
    note("batch norm: every rank normalizes by its own micro-batch; running statistics are moved by each and "
         "averaged "
         "over the ranks after every step (variance divided by the batch's size, as ONNX defines it)");
  if (census.activeDropouts > 0 && options.dropout == "off")
    report.repairs.push_back(plural(census.activeDropouts, "Dropout node") + " left out (--dropout off)");
  else if (census.dropouts > census.activeDropouts)
    note(plural(census.dropouts - census.activeDropouts, "Dropout node") +
         " in inference mode: they drop nothing; export in train mode to keep dropout");
  else if (census.dropouts == 0 && census.attentions > 0)
    advise(
        "no Dropout node: if the model had dropout, an export in eval mode has removed it, and it cannot be "
        "put back");
  if (census.losses > 0)
    advise("the model's own loss has no label smoothing: exporters drop it; leave the loss out of the export "
           "and use "
           "--loss cross-entropy:LOGITS --label-smoothing X to have it");
  if (census.withoutBias > 0)
    advise(plural(census.withoutBias, "Gemm node") +
           " without a bias: exporters leave out a bias that is all zero, as fresh ones are, and it stays "
           "zero here; to "
           "train it, give it other values before the export");
  int64_t halves = 0;
  for (const auto &[name, tensor] : flat.initializers) {
    const auto dtype = dtypeFromOnnx(tensor->data_type());
    halves += tensor->dims_size() > 0 && dtype && (*dtype == DType::f16 || *dtype == DType::bf16);
  }
  if (halves > 0)
    note(plural(halves, "stored tensor") + " of 16 bits: parameters among them are trained in f32" +
         (options.computeF32 ? "" : " and read through a cast, as the file has them"));
}

void reportDropouts(const Module &module, ImportReport &report) {
  const int64_t active = llvm::count_if(module.graph("forward")->nodes,
                                        [](const Node *node) { return node->op == OpKind::Dropout; });
  if (active > 0)
    report.notes.push_back(plural(active, "Dropout node") + (active == 1 ? " drops" : " drop") +
                           " in training steps (--dropout off: none)");
}

} // namespace zerocc
