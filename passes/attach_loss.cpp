#include "passes/attach_loss.h"

#include "compiler/ops/ops.h"
#include "passes/dead_code.h"

#include "llvm/ADT/StringRef.h"

#include <cstring>

namespace zerocc {
namespace {

struct LossPair {
  Value *sum = nullptr, *count = nullptr;
  double staticCount = 1;
};

Value *scalarF64(Module &module, double value) {
  std::string name = "f64." + std::to_string(module.constants.size());
  std::string bytes(sizeof(double), '\0');
  std::memcpy(bytes.data(), &value, sizeof(double));
  return module.addConstant(name, {DType::f64, {}}, {DataSource::Kind::inlineBytes, bytes, ""});
}

std::string listOutputs(const Graph &graph) {
  std::string names;
  for (const auto &[name, value] : graph.results)
    names += isBufferResult(name) ? "" : (names.empty() ? "" : ", ") + name + " " + print(value->type);
  return names;
}

Expected<Value *> findOutput(const Graph &graph, const std::string &name) {
  for (const auto &[resultName, value] : graph.results)
    if (resultName == name)
      return value;
  return Error("loss: the model has no output \"" + name + "\"", "its outputs are " + listOutputs(graph));
}

std::string freshInputName(const Module &module, std::string name) {
  while (module.global(name))
    name += "_";
  return name;
}

// The tokens input whose next tokens are the labels of logits with these leading dims, or null.
Input *tokensInputFor(Module &module, llvm::ArrayRef<int64_t> labelDims) {
  for (Input &input : module.inputs)
    if (input.role == "tokens" && llvm::ArrayRef<int64_t>(input.value->type.dims) == labelDims)
      return &input;
  return nullptr;
}

Expected<LossPair> crossEntropy(Module &module, Graph &graph, const Decisions &decisions, const std::string &outputName,
                                const std::string &labelsName) {
  ZEROCC_ASSIGN(Value * logits, findOutput(graph, outputName));
  if (!isFloat(logits->type.dtype) || logits->type.rank() < 2)
    return Error("loss: cross-entropy wants logits [..., classes], \"" + outputName + "\" is " + print(logits->type));
  Dims labelDims(logits->type.dims.begin(), logits->type.dims.end() - 1);
  int64_t classes = logits->type.dims.back(), rows = logits->type.elements() / classes;

  Value *labels = nullptr;
  if (!labelsName.empty() && module.global(labelsName)) {
    labels = module.global(labelsName);
    if (!module.inputOf(labels))
      return Error("loss: \"" + labelsName + "\" is not an input of the model");
    if (labels->type.elements() != rows)
      return Error("loss: labels \"" + labelsName + "\" are " + print(labels->type) + ", the logits are " +
                   print(logits->type));
  } else {
    labels = module.addInput(freshInputName(module, labelsName.empty() ? "labels" : labelsName),
                             {DType::i64, labelDims});
    if (Input *tokens = tokensInputFor(module, labelDims)) {
      Input *input = module.inputOf(labels);
      input->of = tokens->value->name;
      input->shift = 1;
    }
  }
  Input *input = module.inputOf(labels);
  input->role = "labels";
  input->hasRange = true;
  input->low = 0;
  input->high = classes;
  input->hasIgnore = true;
  input->ignoreIndex = decisions.ignoreIndex;

  GraphBuilder g(module, graph);
  g.location = "loss";
  Value *rowsOfLogits = g.reshape(logits, {rows, classes});
  Value *rowsOfLabels = g.reshape(labels, {rows});
  Attributes attributes{{"ignore_index", decisions.ignoreIndex}, {"label_smoothing", decisions.labelSmoothing}};
  Node *node = g.make(OpKind::CrossEntropy, {rowsOfLogits, rowsOfLabels}, attributes);
  return LossPair{node->result(0), node->result(1), static_cast<double>(rows)};
}

Expected<LossPair> meanSquare(Module &module, Graph &graph, const std::string &outputName,
                              const std::string &targetName) {
  ZEROCC_ASSIGN(Value * output, findOutput(graph, outputName));
  if (!isFloat(output->type.dtype))
    return Error("loss: mse wants a float output, \"" + outputName + "\" is " + print(output->type));
  Value *target = targetName.empty() ? nullptr : module.global(targetName);
  if (!target)
    target = module.addInput(freshInputName(module, targetName.empty() ? "target" : targetName), output->type);
  if (!(target->type == output->type))
    return Error("loss: target \"" + target->name + "\" is " + print(target->type) + ", output \"" + outputName +
                 "\" is " + print(output->type));
  GraphBuilder g(module, graph);
  g.location = "loss";
  Value *difference = g.sub(output, target);
  Value *squares = g.mul(difference, difference);
  llvm::SmallVector<int64_t, 4> axes;
  for (int64_t i = 0; i < output->type.rank(); ++i)
    axes.push_back(i);
  Value *sum = axes.empty() ? squares : g.reduceSum(squares, axes);
  double count = static_cast<double>(output->type.elements());
  return LossPair{g.cast(sum, DType::f64), scalarF64(module, count), count};
}

Value *behindCasts(Value *value) {
  while (!value->isGlobal() && (value->definition->op == OpKind::Cast || value->definition->op == OpKind::Reshape))
    value = value->definition->input(0);
  return value;
}

// A mean cross-entropy div(sum, count) of one cross_entropy node: its sum and count.
std::optional<LossPair> asMeanOfCrossEntropy(Value *loss) {
  loss = behindCasts(loss);
  if (loss->isGlobal() || loss->definition->op != OpKind::Div)
    return std::nullopt;
  Value *sum = behindCasts(loss->definition->input(0)), *count = behindCasts(loss->definition->input(1));
  if (sum->isGlobal() || sum->definition->op != OpKind::CrossEntropy || sum->resultIndex != 0 ||
      count->definition != sum->definition || count->resultIndex != 1)
    return std::nullopt;
  return LossPair{sum, count, static_cast<double>(sum->definition->input(1)->type.elements())};
}

Expected<LossPair> ownLoss(Module &module, Graph &graph, const std::string &name, PassReport &report) {
  Value *loss = nullptr;
  std::string lossName = name;
  if (!name.empty()) {
    ZEROCC_ASSIGN(loss, findOutput(graph, name));
  } else {
    for (const auto &[resultName, value] : graph.results)
      if (isFloat(value->type.dtype) && value->type.elements() == 1 && !isBufferResult(resultName)) {
        if (loss)
          return Error("loss: the model has several scalar outputs (" + listOutputs(graph) + ")",
                       "name one with --loss output:NAME");
        loss = value;
        lossName = resultName;
      }
    if (!loss)
      return Error("loss: no output of the model is a scalar; its outputs are " + listOutputs(graph),
                   "add --loss cross-entropy:" + (graph.results.empty() ? "LOGITS" : graph.results[0].first) +
                       " or --loss mse:OUTPUT");
  }
  if (!isFloat(loss->type.dtype) || loss->type.elements() != 1)
    return Error("loss: output \"" + lossName + "\" is " + print(loss->type) + ", a loss is one float");
  if (std::optional<LossPair> pair = asMeanOfCrossEntropy(loss)) {
    report.notes.push_back("loss \"" + lossName + "\" is a mean cross-entropy: taken as sum and count of valid labels");
    return *pair;
  }
  report.notes.push_back("loss \"" + lossName + "\" counts 1 per micro-batch: the gradient is the mean over micro-batches");
  GraphBuilder g(module, graph);
  g.location = "loss";
  return LossPair{g.cast(g.reshape(loss, {}), DType::f64), scalarF64(module, 1), 1};
}

} // namespace

Expected<PassReport> attachLoss(Module &module, const Decisions &decisions) {
  Graph *graph = module.graph("forward");
  assert(graph && "attach_loss needs the forward graph");
  PassReport report;
  auto [kind, rest] = llvm::StringRef(decisions.loss).split(':');
  auto [output, second] = rest.split(',');
  Expected<LossPair> pair = Error("unset");
  if (decisions.loss.empty() || kind == "output")
    pair = ownLoss(module, *graph, output.str(), report);
  else if (kind == "cross-entropy" && !output.empty())
    pair = crossEntropy(module, *graph, decisions, output.str(), second.str());
  else if (kind == "mse" && !output.empty())
    pair = meanSquare(module, *graph, output.str(), second.str());
  else
    return Error("loss: \"" + decisions.loss + "\" is not a loss",
                 "write cross-entropy:LOGITS[,LABELS], mse:OUTPUT[,TARGET] or output:NAME");
  if (!pair)
    return pair.error();
  std::vector<std::pair<std::string, Value *>> results = {{"loss", pair->sum}, {"count", pair->count}};
  for (const auto &result : graph->results)
    if (isBufferResult(result.first))
      results.push_back(result);
  graph->results = std::move(results);
  module.facts.set("static_count", pair->staticCount);
  report.counters["deadNodes"] = removeDeadNodes(*graph);
  report.changed = true;
  return report;
}

} // namespace zerocc
