// One direction per input, points x ± h for three h. At a smooth point the central differences converge, and
// the one-sided ones approach each other as h shrinks; at a kink or a jump they do not, and nothing can be
// said about the gradient there: the inputs are then moved off the data and compared once more.

#include "tests/onnx/backend/gradients.h"

#include "passes/autodiff.h"
#include "tests/ops/finite_differences.h"

#include "onnx/defs/schema.h"

#include <numeric>

namespace zerocc {
namespace {

constexpr double kStep = 1e-4, kFiner = 8, kTolerance = 2e-6;
constexpr int kSteps = 3;

/// Inputs of floats become trainable parameters; autodiff knows no other leaves.
void makeParameters(Module &module, const std::set<std::string> &constant) {
  std::vector<Input> rest;
  for (Input &input : module.inputs) {
    if (!isFloat(input.value->type.dtype) || constant.count(input.value->name)) {
      rest.push_back(std::move(input));
      continue;
    }
    Parameter parameter;
    parameter.value = std::move(input.value);
    module.parameters.push_back(std::move(parameter));
  }
  module.inputs = std::move(rest);
  for (Parameter &parameter : module.parameters)
    parameter.trainable = isFloat(parameter.value->type.dtype) && !constant.count(parameter.value->name);
  module.reindex();
}

/// Yields loss, the sum of all float results (or the first) times fixed random numbers; false when there is
/// none.
bool makeLoss(Module &module, bool firstOnly) {
  Graph &graph = *module.graph("forward");
  GraphBuilder g(module, graph);
  Random random(1);
  Value *loss = nullptr;
  for (const auto &[name, value] : graph.results) {
    if (!isFloat(value->type.dtype) || (firstOnly && loss))
      continue;
    TensorType type{DType::f64, value->type.dims};
    Value *factor =
        module.addConstant("cotangent:" + name, type,
                           {DataSource::Kind::inlineBytes, randomDirection(type, random).toBytes(), ""});
    std::vector<int64_t> axes(type.dims.size());
    std::iota(axes.begin(), axes.end(), 0);
    Value *sum = g.reduceSum(g.mul(g.cast(value, DType::f64), factor), axes);
    loss = loss ? g.add(loss, sum) : sum;
  }
  if (!loss)
    return false;
  graph.results = {{"loss", loss}, {"count", module.scalar(DType::f64, 1)}};
  module.facts.set("static_count", 1.0);
  return true;
}

/// Moves values off kinks, ties, borders of domains and off infinity.
void moveOffTheData(HostTensor &tensor, Random &random) {
  for (double &value : tensor.reals)
    value = (std::isfinite(value) ? std::fabs(value) : 0.5) + random.uniform(0.05, 0.15);
}

/// The loss along one direction.
class Line {
public:
  Line(const Module &module, const Graph &graph, const Bindings &at, const Value *leaf, HostTensor direction)
      : module_(module), graph_(graph), at_(at), leaf_(leaf), direction_(std::move(direction)) {}

  Expected<double> operator()(double step) {
    Bindings there = at_;
    there[leaf_] = moved(at_.find(leaf_)->second, direction_, step);
    ZEROCC_ASSIGN(std::vector<HostTensor> results, interpret(module_, graph_, there));
    return results[0].reals[0];
  }

private:
  const Module &module_;
  const Graph &graph_;
  const Bindings &at_;
  const Value *leaf_;
  HostTensor direction_;
};

std::string text(double value) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.9g", value);
  return buffer;
}

class Checker {
public:
  Checker(Module &module, Graph &forward, const Graph &backward, Bindings bindings)
      : module_(module), forward_(forward), backward_(backward), bindings_(std::move(bindings)) {}

  GradientCheck run() {
    GradientCheck check;
    Expected<std::vector<HostTensor>> here = interpret(module_, backward_, bindings_);
    if (!here)
      return {GradientOutcome::disagrees, here.error().text()};
    if (!std::isfinite((*here)[0].reals[0]))
      return {GradientOutcome::notSmooth, "the results are not finite"};
    Random random(2);
    for (const Parameter &parameter : module_.parameters) {
      const Value *leaf = parameter.value.get();
      if (!leaves_.count(leaf))
        continue;
      const HostTensor *gradient = nullptr;
      for (size_t i = 2; i < backward_.results.size(); ++i)
        if (backward_.results[i].first == "grad:" + leaf->name)
          gradient = &(*here)[i];
      compare(leaf, gradient, randomDirection(leaf->type, random), (*here)[0].reals[0], check);
      if (check.outcome == GradientOutcome::disagrees)
        return check;
    }
    if (check.outcome == GradientOutcome::none && check.inputs > 0)
      check.outcome = GradientOutcome::agrees;
    return check;
  }

  void addLeaf(const Value *leaf) { leaves_.insert(leaf); }

private:
  void compare(const Value *leaf, const HostTensor *gradient, HostTensor direction, double here,
               GradientCheck &check) {
    double analytic = gradient ? dot(*gradient, direction) : 0, size = 0;
    for (size_t i = 0; gradient && i < direction.reals.size(); ++i)
      size += std::fabs(gradient->reals[i] * direction.reals[i]);
    Line line(module_, forward_, bindings_, leaf, std::move(direction));
    double central[kSteps], gap[kSteps], tolerance = 0, step = kStep;
    for (int i = 0; i < kSteps; ++i, step /= kFiner) {
      Expected<double> above = line(step), below = line(-step);
      if (!above || !below || !std::isfinite(*above) || !std::isfinite(*below)) {
        check.outcome = GradientOutcome::notSmooth;
        check.why = leaf->name + ": not defined next to the data";
        return;
      }
      central[i] = (*above - *below) / (2 * step);
      gap[i] = std::fabs((*above - 2 * here + *below) / step);
      double scale = std::fabs(central[i]);
      if (std::isfinite(analytic))
        scale = std::max({scale, size, std::fabs(analytic)});
      tolerance = kTolerance * scale + 1e-9 * std::max(1.0, std::fabs(here));
      if (std::fabs(analytic - central[i]) <= tolerance) {
        ++check.inputs;
        check.isZero &= analytic == 0;
        return;
      }
    }
    const int last = kSteps - 1;
    bool isSmooth = std::fabs(central[last] - central[last - 1]) <= 100 * tolerance &&
                    gap[last] <= tolerance + gap[last - 1] / 2;
    check.outcome = isSmooth ? GradientOutcome::disagrees : GradientOutcome::notSmooth;
    check.why = leaf->name + ": gradient along a direction " + text(analytic) + ", differences " +
                text(central[last - 1]) + " and " + text(central[last]);
  }

  Module &module_;
  Graph &forward_;
  const Graph &backward_;
  Bindings bindings_;
  std::set<const Value *> leaves_;
};

} // namespace

static GradientCheck checkOnce(const Module &original, const StoredWeights *weights,
                               const std::map<std::string, HostTensor> &inputs,
                               const std::set<std::string> &constant, bool firstOnly, bool offTheData) {
  std::unique_ptr<Module> module = cloneModule(original);
  Expected<Bindings> bindings = bindValues(*module, weights, inputs);
  if (!bindings)
    return {GradientOutcome::refused, bindings.error().text()};
  makeParameters(*module, constant);
  std::vector<const Value *> leaves;
  Random random(3);
  for (const Parameter &parameter : module->parameters)
    if (parameter.trainable) {
      leaves.push_back(parameter.value.get());
      if (offTheData)
        moveOffTheData((*bindings)[leaves.back()], random);
    }
  if (leaves.empty() || !makeLoss(*module, firstOnly))
    return {};
  Graph &forward = cloneGraph(*module, *module->graph("forward"), "probe");
  Expected<PassReport> report = autodiff(*module, Decisions());
  const Graph *backward = module->graph("micro_step");
  if (!report && !backward) // with a graph: no gradient reaches any leaf, so all have to be zero
    return {GradientOutcome::refused, report.error().text()};
  Checker checker(*module, forward, *backward, std::move(*bindings));
  for (const Value *leaf : leaves)
    checker.addLeaf(leaf);
  return checker.run();
}

GradientCheck checkGradients(const Module &module, const StoredWeights *weights,
                             const std::map<std::string, HostTensor> &inputs,
                             const std::set<std::string> &constant) {
  GradientCheck all;
  for (bool firstOnly : {false, true}) {
    GradientCheck check;
    for (bool offTheData : {false, true}) {
      check = checkOnce(module, weights, inputs, constant, firstOnly, offTheData);
      if (check.outcome != GradientOutcome::notSmooth)
        break;
    }
    if (!firstOnly)
      all = check;
    if (check.outcome != GradientOutcome::notSmooth && check.outcome != GradientOutcome::refused)
      return check;
  }
  return all;
}

std::set<std::string> differentiableOps() {
  std::set<std::string> ops = {"LayerNormalization"};
  for (const onnx::OpSchema &schema : onnx::OpSchemaRegistry::get_all_schemas())
    for (const auto &input : schema.inputs())
      if (schema.domain().empty() && !schema.Deprecated() &&
          input.GetDifferentiationCategory() == onnx::OpSchema::Differentiable)
        ops.insert(schema.Name());
  return ops;
}

std::set<std::string> notDifferentiable(const onnx::ModelProto &model) {
  std::set<std::string> names;
  if (model.graph().node_size() != 1)
    return names;
  const onnx::NodeProto &node = model.graph().node(0);
  int version = 0;
  for (const auto &opset : model.opset_import())
    if (opset.domain() == node.domain())
      version = static_cast<int>(opset.version());
  const onnx::OpSchema *schema = onnx::OpSchemaRegistry::Schema(node.op_type(), version, node.domain());
  if (!schema)
    return names;
  const auto &formal = schema->inputs();
  for (int i = 0; i < node.input_size() && !formal.empty(); ++i) {
    const auto &parameter = formal[std::min(static_cast<size_t>(i), formal.size() - 1)];
    if (parameter.GetDifferentiationCategory() == onnx::OpSchema::NonDifferentiable)
      names.insert(node.input(i));
  }
  return names;
}

} // namespace zerocc
