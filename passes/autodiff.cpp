// The walk is compiler/ops/reverse_mode.cpp; here is what it starts from and what becomes of its results.

#include "passes/autodiff.h"

#include "compiler/ops/interpreter.h"
#include "compiler/ops/reverse_mode.h"
#include "compiler/ops/ops.h"
#include "passes/dead_code.h"
#include "runtime/plan/scalars.h"

#include "llvm/ADT/StringRef.h"

namespace zerocc {
namespace {

bool isFloatValue(const Value *value) { return isFloat(value->type.dtype); }

Value *addSeed(Module &module, const TensorType &type, double seed) {
  std::string name = "gradient_seed";
  while (module.global(name))
    name += "~";
  return module.addConstant(name, type,
                            {DataSource::Kind::inlineBytes, HostTensor::real(type, {seed}).toBytes(), ""});
}

/// The seed times the loss scale as it stands in the scalar block.
Value *scaledSeed(Module &module, Graph &graph, Value *seed) {
  Value *scalars = module.global("scalars");
  if (!scalars)
    scalars = module.addStorage("scalars", {DType::f64, {kScalars}}, Region::persistent);
  GraphBuilder g(module, graph);
  g.location = "loss scale";
  Value *scale = g.reshape(g.slice(scalars, {kScalarLossScale}, {1}), {});
  return g.mul(g.cast(scale, seed->type.dtype), seed);
}

Value *resultNamed(const Graph &graph, llvm::StringRef wanted) {
  for (const auto &[name, value] : graph.results)
    if (name == wanted)
      return value;
  return nullptr;
}

} // namespace

Expected<PassReport> autodiff(Module &module, const Decisions &decisions) {
  Graph *graph = module.graph("forward");
  Value *loss = graph ? resultNamed(*graph, "loss") : nullptr,
        *count = graph ? resultNamed(*graph, "count") : nullptr;
  const AttributeValue *fact = module.facts.find("static_count");
  const double *staticCount = fact ? std::get_if<double>(fact) : nullptr;
  if (!loss || !count || !isFloatValue(loss) || loss->type.rank() != 0 || !staticCount || !(*staticCount > 0))
    return Error(
        "autodiff: needs segment @forward that yields a scalar loss and its count, and the fact static_count "
        "(a real above 0)",
        "run attach-loss first");

  std::vector<std::pair<std::string, Value *>> results = {{"loss", loss}, {"count", count}};
  for (const auto &result : graph->results)
    if (isBufferResult(result.first))
      results.push_back(result);
  graph->results = std::move(results);
  removeDeadNodes(*graph);
  const int64_t forwardNodes = static_cast<int64_t>(graph->nodes.size());
  GradientRequest request;
  for (const Parameter &parameter : module.parameters)
    if (parameter.trainable)
      request.leaves.push_back(parameter.value.get());
  request.root = loss;
  request.seed = addSeed(module, loss->type, 1 / *staticCount);
  if (decisions.precision == "f16")
    request.seed = scaledSeed(module, *graph, request.seed);
  request.prefix = "autodiff: ";
  request.between = "a trainable parameter and the loss";
  request.hint = "freeze the parameters before it with --freeze, or choose another loss";
  ZEROCC_ASSIGN(std::vector<Value *> gradients, appendGradients(module, *graph, request));

  PassReport report;
  report.changed = true;
  graph->name = "micro_step";
  size_t leaf = 0;
  for (Parameter &parameter : module.parameters) {
    if (!parameter.trainable)
      continue;
    if (Value *gradient = gradients[leaf++]) {
      graph->results.push_back({"grad:" + parameter.value->name, gradient});
      ++report.counters["gradients"];
    } else {
      parameter.trainable = false;
      report.notes.push_back("parameter \"" + parameter.value->name + "\" does not reach the loss: frozen");
      ++report.counters["frozen"];
    }
  }
  if (report.counters["gradients"] == 0)
    return Error("autodiff: the loss reaches no trainable parameter",
                 "check --loss, --freeze and --trainable");
  removeDeadNodes(*graph);
  report.counters["backwardNodes"] = static_cast<int64_t>(graph->nodes.size()) - forwardNodes;
  return report;
}

} // namespace zerocc
