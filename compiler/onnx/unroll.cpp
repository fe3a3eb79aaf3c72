// Control flow is decided while compiling. If takes the branch that a known condition picks; Loop, Scan and SequenceMap
// become their steps, one after the other: what a step hands on is bound to the inputs of the next, what it puts out is
// stacked. Gradients through time follow from those of the steps, of slices and of the concatenation.
//
// Each step lowers the body anew, so shapes may change from step to step, and a condition is computed from what the step
// before has made of constants. Cost: linear in steps and nodes, which kMaxUnrolledNodes bounds for the whole import.

#include "compiler/onnx/structured.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <limits>

namespace zerocc {
namespace {

constexpr const char *kRemedy = "bind every dimension with --dim, or export without loops that end by data";

/// Nullopt when the condition depends on data.
std::optional<bool> known(NodeLowering &n, const Bound &condition) {
  const HostTensor *host = condition.tensor ? n.host(condition.tensor) : nullptr;
  if (!host || host->type.elements() != 1)
    return std::nullopt;
  return host->at(0) != 0;
}

bool fits(StructuredNode &s, const FlatGraph &body, size_t inputs, size_t leading) {
  if (body.inputs.size() == inputs && body.outputs.size() >= leading &&
      s.n.node.outputs.size() <= body.outputs.size())
    return true;
  s.n.fail("its body has " + std::to_string(body.inputs.size()) + " inputs and " + std::to_string(body.outputs.size()) +
           " outputs, which do not fit " + std::to_string(inputs) + " values and " +
           std::to_string(s.n.node.outputs.size()) + " results");
  return false;
}

/// What the steps of a body put out under one name, to be stacked.
using Rows = std::vector<Value *>;

/// Adds what a step puts out; fails when it is no tensor.
bool collect(StructuredNode &s, const FlatGraph &body, const Bounds &outputs, size_t first, std::vector<Rows> &rows) {
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!s.isWhole(body.outputs[first + i]))
      return false;
    if (!outputs[first + i].tensor) {
      s.n.fail("its body puts out " + std::string(outputs[first + i].kindName()) + " to be stacked");
      return false;
    }
    rows[i].push_back(outputs[first + i].tensor);
  }
  return true;
}

/// One result per list of rows, along the axis; fails for results that are needed and have no rows to tell their shape.
bool stackRows(StructuredNode &s, llvm::ArrayRef<Rows> rows, llvm::ArrayRef<int64_t> axes, Bounds &results) {
  for (size_t i = 0; i < rows.size(); ++i) {
    const size_t output = results.size();
    if (!s.isNeeded(output)) {
      results.push_back(nullptr);
      continue;
    }
    if (rows[i].empty()) {
      s.n.fail("makes no step, so that the shape of output " + std::to_string(output) + " is not known");
      return false;
    }
    const int64_t axis = axes.empty() ? 0 : axes[i];
    std::optional<int64_t> normal = s.n.normalAxis(axis, rows[i][0]->type.rank() + 1);
    results.push_back(normal ? stackAll(s.n, rows[i], *normal) : nullptr);
  }
  return !s.n.failed();
}

// --- Scan ------------------------------------------------------------------------------------------------------------

struct ScanInput {
  Value *value;
  int64_t axis;
  bool isReversed;
};

/// Element `index` along an axis, which goes.
Value *elementOf(NodeLowering &n, Value *x, int64_t axis, int64_t index) {
  Dims dims = x->type.dims;
  dims.erase(dims.begin() + axis);
  return n.reshape(n.sliceAxis(x, axis, index, 1), dims);
}

/// Runs the body over the inputs. `states` become those after the last step; the names they then have go to `sources`.
bool runScan(StructuredNode &s, const FlatGraph &body, Bounds &states, llvm::ArrayRef<ScanInput> inputs,
             std::vector<std::string> &sources, std::vector<Rows> &rows, int64_t firstStep) {
  const int64_t steps = inputs[0].value->type.dims[inputs[0].axis];
  for (int64_t step = 0; step < steps; ++step) {
    std::vector<BodyInput> given;
    for (size_t i = 0; i < states.size(); ++i)
      given.push_back({states[i], sources[i]});
    for (const ScanInput &input : inputs)
      given.push_back(
          {elementOf(s.n, input.value, input.axis, input.isReversed ? steps - 1 - step : step), ""});
    if (s.n.failed())
      return false;
    std::optional<Bounds> outputs = s.run(body, given, firstStep + step);
    if (!outputs || !collect(s, body, *outputs, states.size(), rows))
      return false;
    for (size_t i = 0; i < states.size(); ++i) {
      states[i] = (*outputs)[i];
      sources[i] = body.outputs[i];
    }
  }
  return true;
}

/// An attribute with one entry per scan input or output, or none.
bool fitsCount(NodeLowering &n, const char *name, const std::vector<int64_t> &entries, size_t count) {
  if (entries.empty() || entries.size() == count)
    return true;
  n.fail("attribute \"" + std::string(name) + "\" has " + std::to_string(entries.size()) + " entries for " +
         std::to_string(count));
  return false;
}

/// Opset 8: all have a batch dim in front, over which the scan runs by itself.
bool scanBatches(StructuredNode &s, const FlatGraph &body, Bounds &states, llvm::ArrayRef<ScanInput> inputs,
                 std::vector<Rows> &rows) {
  NodeLowering &n = s.n;
  const int64_t batches = inputs[0].value->type.dims[0], steps = inputs[0].value->type.dims[1];
  if (n.has(0)) {
    std::optional<std::vector<int64_t>> lengths = n.constantInts(0, "the lengths of sequences");
    if (!lengths)
      return false;
    if (llvm::any_of(*lengths, [&](int64_t length) { return length != steps; })) {
      n.fail("sequences of several lengths are not supported", "export with opset 9 or newer");
      return false;
    }
  }
  for (const Bound &state : states)
    if (state.tensor->type.rank() < 1 || state.tensor->type.dims[0] != batches) {
      n.fail("an initial state does not have " + std::to_string(batches) + " batches");
      return false;
    }
  std::vector<Rows> last(states.size()), stacked(rows.size());
  for (int64_t batch = 0; batch < batches; ++batch) {
    if (!s.spend(static_cast<int64_t>(3 * (states.size() + inputs.size())))) // slice, reshape, and what is stacked
      return false;
    Bounds own;
    for (const Bound &state : states)
      own.push_back(elementOf(n, state.tensor, 0, batch));
    std::vector<ScanInput> parts;
    for (const ScanInput &input : inputs)
      parts.push_back({elementOf(n, input.value, 0, batch), 0, input.isReversed});
    std::vector<std::string> sources(states.size());
    std::vector<Rows> outputs(rows.size());
    if (n.failed() || !runScan(s, body, own, parts, sources, outputs, batch * steps))
      return false;
    for (size_t i = 0; i < own.size(); ++i) {
      if (!own[i].tensor || !s.isWhole(sources[i]))
        return false;
      last[i].push_back(own[i].tensor);
    }
    for (size_t i = 0; i < outputs.size(); ++i)
      if (!outputs[i].empty())
        stacked[i].push_back(stackAll(n, outputs[i], 0));
  }
  for (size_t i = 0; i < states.size() && batches > 0; ++i)
    states[i] = stackAll(n, last[i], 0);
  rows = std::move(stacked);
  return !n.failed();
}

} // namespace

Value *stackAll(NodeLowering &n, llvm::ArrayRef<Value *> parts, int64_t axis) {
  Values rows;
  for (Value *part : parts) {
    if (!part)
      return nullptr;
    Dims dims = part->type.dims;
    dims.insert(dims.begin() + std::min<int64_t>(axis, dims.size()), 1);
    rows.push_back(n.reshape(part, dims));
  }
  return n.concat(rows, axis);
}

Bounds lowerIf(StructuredNode &s) {
  NodeLowering &n = s.n;
  std::optional<bool> condition = s.operands.empty() ? std::nullopt : known(n, s.operands[0]);
  const FlatGraph *branch = nullptr;
  for (const auto &[name, graph] : n.node.subgraphs)
    if (condition && name == (*condition ? "then_branch" : "else_branch"))
      branch = graph.get();
  if (!branch || branch->outputs.size() != n.node.outputs.size()) {
    n.fail(condition ? "the branch it takes is missing or has other outputs" : "the branch it takes depends on data",
           remedyFor(n.node));
    return {};
  }
  std::optional<Bounds> outputs = s.run(*branch, {}, -1);
  s.sources = branch->outputs;
  return outputs ? *outputs : Bounds();
}

/// Operands: trip count and condition, both may be missing, then what the steps hand on. A step reads its number, the
/// condition and what the one before handed on; it gives the condition for the next, what it hands on, and rows.
Bounds lowerLoop(StructuredNode &s) {
  NodeLowering &n = s.n;
  const FlatGraph *body = s.body("body");
  if (!body)
    return {};
  const size_t carried = s.operands.size() < 2 ? 0 : s.operands.size() - 2;
  for (size_t i = 0; i < s.operands.size(); ++i)
    if (i < 2 ? s.operands[i].container != nullptr : !s.operands[i]) {
      n.fail("operand " + std::to_string(i) + " is " + s.operands[i].kindName());
      return {};
    }
  if (!fits(s, *body, 2 + carried, 1 + carried))
    return {};
  int64_t trips = std::numeric_limits<int64_t>::max();
  if (n.has(0)) {
    std::optional<int64_t> count = n.constantInt(0, "the trip count");
    if (!count)
      return {};
    trips = *count;
  }
  const bool hasCondition = n.has(1);
  Bound condition = hasCondition ? Bound(n.in(1)) : Bound(n.scalar(DType::boolean, 1));
  if (!hasCondition && trips > kMaxUnrolledNodes) {
    n.fail(n.has(0) ? "makes " + std::to_string(trips) + " steps, which are unrolled; up to " +
                          std::to_string(kMaxUnrolledNodes) + " are"
                    : "never ends: it has neither a trip count nor a condition",
           "train on shorter sequences (--dim)");
    return {};
  }
  Bounds states(s.operands.begin() + std::min<size_t>(2, s.operands.size()), s.operands.end());
  std::vector<std::string> sources(carried);
  std::vector<Rows> rows(body->outputs.size() - 1 - carried);
  for (int64_t step = 0; step < trips; ++step) {
    std::optional<bool> goesOn = hasCondition ? known(n, condition) : true;
    if (!goesOn) {
      n.fail("whether step " + std::to_string(step) + " is made depends on data", kRemedy);
      return {};
    }
    if (!*goesOn)
      break;
    std::vector<BodyInput> given = {{n.scalar(DType::i64, static_cast<double>(step)), ""}, {condition, ""}};
    for (size_t i = 0; i < carried; ++i)
      given.push_back({states[i], sources[i]});
    std::optional<Bounds> outputs = s.run(*body, given, step);
    if (!outputs || !collect(s, *body, *outputs, 1 + carried, rows))
      return {};
    if (hasCondition)
      condition = (*outputs)[0];
    for (size_t i = 0; i < carried; ++i) {
      states[i] = (*outputs)[1 + i];
      sources[i] = body->outputs[1 + i];
    }
  }
  s.sources = sources;
  stackRows(s, rows, {}, states);
  return states;
}

/// Operands: (opset 8: lengths,) what the steps hand on, then what they go along.
Bounds lowerScan(StructuredNode &s) {
  NodeLowering &n = s.n;
  const FlatGraph *body = s.body("body");
  const bool hasBatches = n.version < 9;
  const size_t first = hasBatches ? 1 : 0;
  const int64_t scanned = n.intAttribute("num_scan_inputs", 0);
  if (!body || n.failed())
    return {};
  if (s.operands.size() < first || scanned < 1 || scanned > static_cast<int64_t>(s.operands.size() - first)) {
    n.fail("num_scan_inputs is " + std::to_string(scanned) + ", there are " + std::to_string(s.operands.size()) +
           " operands");
    return {};
  }
  const size_t count = scanned, carried = s.operands.size() - first - count;
  if (!fits(s, *body, carried + count, carried))
    return {};
  const size_t results = body->outputs.size() - carried;
  const char *directionsName = hasBatches ? "directions" : "scan_input_directions";
  const std::vector<int64_t> axes = hasBatches ? std::vector<int64_t>() : n.intsAttribute("scan_input_axes"),
                             directions = n.intsAttribute(directionsName),
                             outputAxes = hasBatches ? std::vector<int64_t>() : n.intsAttribute("scan_output_axes"),
                             outputDirections =
                                 hasBatches ? std::vector<int64_t>() : n.intsAttribute("scan_output_directions");
  if (!fitsCount(n, "scan_input_axes", axes, count) || !fitsCount(n, directionsName, directions, count) ||
      !fitsCount(n, "scan_output_axes", outputAxes, results) ||
      !fitsCount(n, "scan_output_directions", outputDirections, results))
    return {};
  std::vector<ScanInput> inputs;
  for (size_t i = 0; i < count; ++i) {
    const Bound &operand = s.operands[first + carried + i];
    if (!operand.tensor || (hasBatches && operand.tensor->type.rank() < 2)) {
      n.fail("operand " + std::to_string(first + carried + i) + " is " +
             (operand.tensor ? print(operand.tensor->type) : operand.kindName()) + ", which cannot be scanned");
      return {};
    }
    std::optional<int64_t> axis = n.normalAxis(hasBatches ? 1 : axes.empty() ? 0 : axes[i], operand.tensor->type.rank());
    if (!axis)
      return {};
    inputs.push_back({operand.tensor, *axis, !directions.empty() && directions[i] != 0});
    const Dims &dims = operand.tensor->type.dims, &firstDims = inputs[0].value->type.dims;
    if (dims[*axis] != firstDims[inputs[0].axis] || (hasBatches && dims[0] != firstDims[0])) {
      n.fail("what it scans differs in length: " + print(inputs[0].value->type) + " along axis " +
             std::to_string(inputs[0].axis) + ", " + print(operand.tensor->type) + " along axis " +
             std::to_string(*axis));
      return {};
    }
  }
  const int64_t steps = inputs[0].value->type.dims[inputs[0].axis];
  if (steps > kMaxUnrolledNodes) {
    n.fail("makes " + std::to_string(steps) + " steps, which are unrolled; up to " + std::to_string(kMaxUnrolledNodes) +
               " are",
           "train on shorter sequences (--dim)");
    return {};
  }
  Bounds states(s.operands.begin() + first, s.operands.begin() + first + carried);
  for (const Bound &state : states)
    if (!state.tensor) {
      n.fail("an initial state is " + std::string(state.kindName()));
      return {};
    }
  std::vector<Rows> rows(results);
  s.sources.assign(carried, "");
  if (hasBatches ? !scanBatches(s, *body, states, inputs, rows)
                 : !runScan(s, *body, states, inputs, s.sources, rows, 0))
    return {};
  for (size_t i = 0; i < results; ++i)
    if (!outputDirections.empty() && outputDirections[i] != 0)
      std::reverse(rows[i].begin(), rows[i].end());
  stackRows(s, rows, outputAxes, states);
  return states;
}

/// The body maps one entry of each list (and tensors as they are) to one entry of each result.
Bounds lowerSequenceMap(StructuredNode &s) {
  const FlatGraph *body = s.body("body");
  const TensorList *first = s.list(0);
  if (!body || !first || !fits(s, *body, s.operands.size(), s.n.node.outputs.size()))
    return {};
  std::vector<Rows> rows(body->outputs.size());
  for (int64_t step = 0; step < first->size(); ++step) {
    std::vector<BodyInput> given;
    for (const Bound &operand : s.operands) {
      const TensorList *list = operand.asList();
      if (list && list->size() != first->size()) {
        s.n.fail("maps lists of " + std::to_string(first->size()) + " and " + std::to_string(list->size()) +
                 " tensors");
        return {};
      }
      given.push_back({list ? Bound(list->values()[step]) : operand, ""});
    }
    std::optional<Bounds> outputs = s.run(*body, given, step);
    if (!outputs || !collect(s, *body, *outputs, 0, rows))
      return {};
  }
  Bounds results;
  for (const Rows &row : rows)
    results.push_back(Bound::list(TensorList(row)));
  return results;
}

} // namespace zerocc
