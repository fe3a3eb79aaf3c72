// Walks the ONNX nodes in order, each by its row of the table. A name is bound to a value once its node is lowered; a
// node that cannot be lowered binds its outputs to "unknown", and so does, silently, everything behind it: one fault is
// one finding. Nodes that no output of the model needs are not looked at.

#include "compiler/onnx/lowering.h"

#include "compiler/onnx/lower_gradient.h"
#include "compiler/onnx/routed_rows.h"
#include "compiler/onnx/settle_constants.h"
#include "compiler/onnx/structure.h"
#include "compiler/onnx/structured.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringMap.h"

#include <algorithm>
#include <set>
#include <utility>

namespace zerocc {
namespace {

constexpr int kMaxFindingsPerOp = 8;

class ModelLowering {
public:
  ModelLowering(const LoadedModel &model, const FlatModel &flat, ParameterTable &parameters,
                const ImportOptions &options, Module &module, ImportReport &report)
      : model_(model), flat_(flat), parameters_(parameters), options_(options), module_(module), report_(report),
        graph_(module.addGraph("forward")), folder_(module, [this](const std::string &name) { return read(name); }) {}

  std::vector<Diagnostic> run() {
    for (const Input &input : module_.inputs)
      bind(input.value->name, input.value.get());
    for (const Constant &input : module_.constants) // inputs without elements
      bind(input.value->name, input.value.get());
    addParameters();
    markNeeded();
    findBuffers(flat_.graph);
    lowerNodes(flat_.graph);
    const auto buffers = std::move(graph_.results); // of training nodes; behind the model's outputs
    graph_.results.clear();
    for (const std::string &output : flat_.graph.outputs) {
      const Bound bound = operand(output, {nullptr, 0});
      if (llvm::StringRef(output).startswith("buffer:"))
        findings_.push_back({"output \"" + output + "\": names that begin with \"buffer:\" are taken", "rename it"});
      else if (std::optional<Diagnostic> finding = rows_.asOutput(output))
        findings_.push_back(*finding);
      else if (bound.container)
        findings_.push_back({"output \"" + output + "\" is " + bound.kindName() + ", which exist while compiling only",
                             "export tensors: torch.stack, torch.cat, or one output each"});
      else if (bound.tensor)
        graph_.results.push_back({output, bound.tensor});
      else if (findings_.empty())
        findings_.push_back({"output \"" + output + "\" has no value", ""});
    }
    graph_.results.insert(graph_.results.end(), buffers.begin(), buffers.end());
    for (const auto &[op, count] : hiddenFindings_)
      findings_.push_back({"and " + std::to_string(count) + " more nodes of op " + op, ""});
    if (!findings_.empty())
      return std::move(findings_);
    rows_.report(report_);
    settleConstants(module_, graph_, folder_);
    dropUnused();
    refuseLargeTables();
    return std::move(findings_);
  }

private:
  /// Constants that lowerings make lie in the plan; those of the model do not.
  void refuseLargeTables() {
    for (const Constant &constant : module_.constants)
      if (constant.source.kind == DataSource::Kind::inlineBytes && constant.value->type.bytes() > kMaxTableBytes)
        findings_.push_back({"\"" + constant.value->name + "\" needs a table " + print(constant.value->type) + " of " +
                                 std::to_string(constant.value->type.bytes()) + " bytes; a plan holds tables of up to " +
                                 std::to_string(kMaxTableBytes),
                             ""});
  }

  // --- names --------------------------------------------------------------------------------------------------------

  void bind(const std::string &name, const Bound &value) { // nothing: unknown
    values_[name] = value;
    firstNames_.try_emplace(value.tensor, name);
  }
  void giveUp(const FlatNode &node) {
    for (const std::string &output : node.outputs)
      bind(output, nullptr);
  }

  Expected<std::string> read(const std::string &initializer) const {
    auto found = flat_.initializerOf.find(initializer);
    if (found == flat_.initializerOf.end())
      return Error("there is no initializer \"" + initializer + "\"");
    return model_.bytesOf(*found->second);
  }

  std::string freshGlobal(std::string name) const {
    while (module_.global(name))
      name += "~";
    return name;
  }

  /// Parameters have f32 values: what the optimizer updates. Models in other float dtypes read them through a cast.
  void addParameters() {
    for (ParameterTable::Entry &entry : parameters_.entries) {
      ImportedParameter &parameter = entry.report;
      parameter.name = freshGlobal(parameter.name);
      DataSource source{DataSource::Kind::initializer, "", parameter.initializer};
      parameterValues_.push_back(module_.addParameter(parameter.name, parameter.type, source));
      Parameter &added = module_.parameters.back();
      added.trainable = parameter.trainable;
      added.group = entry.isVector ? "no-decay" : "decay";
      added.tiedNote = entry.tied;
    }
  }

  /// The initializers that training BatchNormalization keeps its running statistics in.
  void findBuffers(const FlatGraph &graph) {
    for (const FlatNode &node : graph.nodes) {
      if (!options_.inference && trainsBatchNormalization(node, options_))
        for (size_t i : {3, 4})
          if (i < node.inputs.size() && flat_.initializerOf.count(node.inputs[i]))
            bufferNames_.insert(node.inputs[i]);
      for (const auto &[name, subgraph] : node.subgraphs)
        findBuffers(*subgraph);
    }
  }

  Value *bufferOf(const std::string &name, const onnx::TensorProto &tensor) {
    Expected<TensorType> type = LoadedModel::typeOf(tensor);
    if (!type || type->dtype != DType::f32) {
      findings_.push_back({"initializer \"" + name + "\": running statistics must be float", ""});
      return nullptr;
    }
    return module_.addStorage(freshGlobal(name), *type, Region::persistent,
                              {DataSource::Kind::initializer, "", name});
  }

  /// What a reader gets for a name: nothing when it is unknown because of an earlier finding.
  Bound operand(const std::string &name, Slot slot) {
    if (auto found = values_.find(name); found != values_.end())
      return found->second;
    auto initializer = flat_.initializerOf.find(name);
    if (initializer == flat_.initializerOf.end())
      return nullptr;
    if (bufferNames_.count(name))
      return values_[name] = Bound(bufferOf(name, *initializer->second));
    ParameterTable::Use use = parameters_.find(name, slot);
    if (use.entry < 0)
      return values_[name] = Bound(constantOf(name, *initializer->second));
    return parameterOf(use, *initializer->second);
  }

  Value *parameterOf(ParameterTable::Use use, const onnx::TensorProto &tensor) {
    Value *&made = parameterReads_[{use.entry, use.transposed}];
    if (made)
      return made;
    GraphBuilder builder(module_, graph_);
    builder.location = parameters_.entries[use.entry].report.initializer;
    Value *value = parameterValues_[use.entry];
    value = builder.cast(value, *dtypeFromOnnx(tensor.data_type()));
    if (use.transposed)
      value = builder.transpose(value, {1, 0});
    return made = value;
  }

  Value *constantOf(const std::string &name, const onnx::TensorProto &tensor) {
    Expected<TensorType> type = LoadedModel::typeOf(tensor);
    if (!type) {
      findings_.push_back({"initializer \"" + name + "\": " + type.error().findings().front().message, ""});
      return nullptr;
    }
    if (type->bytes() > kInlineConstantBytes)
      return module_.addConstant(freshGlobal(name), *type, {DataSource::Kind::initializer, "", name});
    Expected<std::string> bytes = model_.bytesOf(tensor);
    if (!bytes) {
      findings_.push_back({"initializer \"" + name + "\": " + bytes.error().findings().front().message, ""});
      return nullptr;
    }
    if (type->dims.empty() && isFloat(type->dtype))
      return module_.scalar(type->dtype, HostTensor::fromBytes(*type, *bytes).at(0));
    return module_.addConstant(freshGlobal(name), *type, {DataSource::Kind::inlineBytes, *bytes, ""});
  }

  // --- which nodes --------------------------------------------------------------------------------------------------

  void markNeeded() {
    neededNames_.insert(flat_.graph.outputs.begin(), flat_.graph.outputs.end());
    markNeeded(flat_.graph);
  }

  void markNeeded(const FlatGraph &graph) {
    for (const FlatNode &node : llvm::reverse(graph.nodes)) {
      if (llvm::none_of(node.outputs, [&](const std::string &output) { return neededNames_.count(output); }))
        continue;
      neededNames_.insert(node.inputs.begin(), node.inputs.end());
      if (isGradient(node)) {
        GradientNames names = namesOf(node);
        neededNames_.insert(names.leaves.begin(), names.leaves.end());
        neededNames_.insert(names.root);
      }
      for (const auto &[name, subgraph] : node.subgraphs) {
        neededNames_.insert(subgraph->outputs.begin(), subgraph->outputs.end());
        markNeeded(*subgraph);
      }
    }
  }

  // --- nodes --------------------------------------------------------------------------------------------------------

  void lowerNodes(const FlatGraph &graph) {
    if (!step_.empty())
      loweredInSteps_ += graph.nodes.size() / 8; // looking whether they are needed
    for (const FlatNode &node : graph.nodes)
      if (llvm::any_of(node.outputs, [&](const std::string &output) { return neededNames_.count(output); })) {
        folder_.release();
        lowerNode(node);
      }
  }

  void find(const FlatNode &node, const Diagnostic &finding) {
    if (++findingsOf_[node.op] > kMaxFindingsPerOp) {
      ++hiddenFindings_[node.op];
      return;
    }
    std::string first = node.outputs.empty() ? "" : node.outputs[0];
    findings_.push_back({nodeTitle(node.name.empty() ? "" : node.name + step_, node.op, first + step_) + ": " +
                             finding.message,
                         finding.hint});
  }

  static const LoweringRow *rowOf(const FlatNode &node) {
    static const llvm::StringMap<const LoweringRow *> rows = [] {
      llvm::StringMap<const LoweringRow *> map;
      for (const LoweringRow &row : loweringTable())
        map[std::string(row.domain) + "::" + row.op] = &row;
      return map;
    }();
    return rows.lookup(node.domain + "::" + node.op);
  }

  NodeLowering loweringOf(const FlatNode &node, Values operands) {
    return NodeLowering(node, std::move(operands), module_, graph_, folder_, model_, options_, step_);
  }

  void lowerNode(const FlatNode &node) {
    if (!step_.empty())
      loweredInSteps_ += 1 + (node.inputs.size() + node.outputs.size()) / 8;
    if (step_.empty() || countedInSteps_.insert(&node).second)
      ++report_.ops[node.domain.empty() ? node.op : node.domain + "." + node.op];
    Bounds operands;
    Values tensors;
    bool unknown = false;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      operands.push_back(node.inputs[i].empty() ? Bound() : operand(node.inputs[i], {&node, static_cast<int>(i)}));
      tensors.push_back(operands.back().tensor);
      unknown |= !node.inputs[i].empty() && !operands.back();
    }
    if (!rowOf(node) && rows_.concerns(node)) {
      find(node, {"reads rows whose number depends on data", remedyFor(node)});
      return giveUp(node);
    }
    rows_.forget(node);
    if (const StructuredRow *row = structuredRowOf(node))
      return unknown ? giveUp(node) : lowerStructured(node, *row, operands, std::move(tensors));
    if (isGradient(node))
      return unknown ? giveUp(node) : lowerGradientNode(node, std::move(tensors));
    const LoweringRow *row = rowOf(node);
    if (!row) {
      std::string op = node.domain.empty() ? node.op : node.domain + "." + node.op;
      find(node, {"op " + op + " is not supported", remedyFor(node)});
      return giveUp(node);
    }
    if (node.version < row->since) {
      find(node, {"op " + node.op + " is known from opset " + std::to_string(row->since) + " on, the model uses " +
                      std::to_string(node.version),
                  "export with a newer opset"});
      return giveUp(node);
    }
    if (unknown)
      return giveUp(node);
    for (size_t i = 0; i < operands.size(); ++i)
      if (operands[i].container) {
        if (node.op == "Identity" && node.domain.empty() && node.outputs.size() == 1)
          return bind(node.outputs[0], operands[i]);
        find(node, {"operand " + std::to_string(i) + " (\"" + node.inputs[i] + "\") is " + operands[i].kindName(), ""});
        return giveUp(node);
      }
    NodeLowering lowering = loweringOf(node, std::move(tensors));
    Values results;
    if (rows_.concerns(node)) {
      results = rows_.lower(lowering, row->lower, [&](const FlatNode &other, Values values) {
        return loweringOf(other, std::move(values));
      });
    } else {
      results = row->lower(lowering);
      if (!lowering.failed())
        lowering.finding = lowering.unread();
    }
    finish(node, lowering, Bounds(results.begin(), results.end()));
  }

  /// Ops with bodies or lists.
  void lowerStructured(const FlatNode &node, const StructuredRow &row, llvm::ArrayRef<Bound> operands, Values tensors) {
    NodeLowering lowering = loweringOf(node, std::move(tensors));
    StructuredNode s{lowering, operands, budget_, {}, {}, {}, {}, {}, false};
    s.run = [&](const FlatGraph &body, llvm::ArrayRef<BodyInput> inputs, int64_t step) {
      return runBody(s, body, inputs, step);
    };
    s.isNeeded = [&](size_t i) { return i < node.outputs.size() && neededNames_.count(node.outputs[i]) != 0; };
    s.isWhole = [&](const std::string &name) {
      std::optional<Diagnostic> finding = rows_.asOutput(name);
      if (finding)
        lowering.fail("puts together rows whose number depends on data", finding->hint);
      return !finding;
    };
    Bounds results;
    if (node.version < row.since)
      lowering.fail("op " + node.op + " is known from opset " + std::to_string(row.since) + " on, the model uses " +
                        std::to_string(node.version),
                    "export with a newer opset");
    else
      results = row.lower(s);
    if (!s.isUnknown && !lowering.failed())
      lowering.finding = lowering.unread();
    if (!s.note.empty() && !llvm::is_contained(report_.notes, s.note))
      report_.notes.push_back(s.note);
    if (s.isUnknown && !lowering.failed())
      return giveUp(node);
    finish(node, lowering, results);
    s.sources.resize(node.outputs.size());
    rows_.alias(s.sources, node.outputs);
  }

  /// What steps have cost since the last call, about in nodes: those lowered or those made, whatever is more; and more for
  /// long lists of operands, long names and tables.
  int64_t costOfNew() {
    constexpr size_t kOperands = 8, kBytes = 256;
    size_t made = 0;
    for (; budgetedNodes_ < graph_.nodes.size(); ++budgetedNodes_) {
      const Node &node = *graph_.nodes[budgetedNodes_];
      made += 1 + node.inputs.size() / kOperands + node.location.size() / kBytes;
    }
    for (; budgetedConstants_ < module_.constants.size(); ++budgetedConstants_)
      made += module_.constants[budgetedConstants_].source.bytes.size() / kBytes;
    const size_t lowered = std::exchange(loweredInSteps_, 0);
    return static_cast<int64_t>(std::max(made, lowered));
  }

  /// Lowers a body, which may have been lowered before: its names are bound anew.
  std::optional<Bounds> runBody(StructuredNode &s, const FlatGraph &body, llvm::ArrayRef<BodyInput> inputs,
                                int64_t step) {
    if (body.inputs.size() != inputs.size()) {
      s.n.fail("its body has " + std::to_string(body.inputs.size()) + " inputs, " + std::to_string(inputs.size()) +
               " values are given");
      return std::nullopt;
    }
    const std::string outer = step_;
    std::vector<std::string> sources;
    for (size_t i = 0; i < inputs.size(); ++i) {
      sources.push_back(inputs[i].source);
      bind(body.inputs[i], inputs[i].value);
    }
    rows_.alias(sources, body.inputs);
    if (step >= 0) {
      if (step_.empty())
        costOfNew();
      step_ += "[" + std::to_string(step) + "]";
    }
    lowerNodes(body);
    step_ = outer;
    Bounds outputs;
    for (const std::string &output : body.outputs) {
      outputs.push_back(operand(output, {nullptr, 0}));
      s.isUnknown |= !outputs.back();
    }
    if (s.isUnknown ||
        (step >= 0 && !s.spend(static_cast<int64_t>(body.inputs.size() + body.outputs.size()) + costOfNew())))
      return std::nullopt;
    return outputs;
  }

  void finish(const FlatNode &node, NodeLowering &lowering, const Bounds &results) {
    for (size_t i = 0; i < node.outputs.size() && !lowering.failed(); ++i)
      if (!node.outputs[i].empty() && (i >= results.size() || !results[i]) && neededNames_.count(node.outputs[i]))
        lowering.fail("output " + std::to_string(i) + " (\"" + node.outputs[i] + "\") is not supported");
    if (lowering.failed()) {
      find(node, *lowering.finding);
      return giveUp(node);
    }
    for (size_t i = 0; i < node.outputs.size(); ++i)
      if (!node.outputs[i].empty())
        bind(node.outputs[i], i < results.size() ? results[i] : Bound());
  }

  void lowerGradientNode(const FlatNode &node, Values operands) {
    NodeLowering lowering = loweringOf(node, std::move(operands));
    Values results;
    GradientNames names = namesOf(node);
    names.find = [this](const std::string &name) { return leafNamed(name); };
    if (flat_.inlinedCalls > 0)
      lowering.fail("names tensors, which is not supported in a model with local functions", "inline them first");
    else
      results = lowerGradient(lowering, names, module_, graph_, gradientNodes_);
    finish(node, lowering, Bounds(results.begin(), results.end()));
  }

  /// The value whose gradient is that of the tensor `name`.
  GradientNames::Named leafNamed(const std::string &name) {
    if (flat_.initializerOf.count(name)) {
      ParameterTable::Use use = parameters_.find(name, {nullptr, 0});
      if (use.entry >= 0 && !use.transposed && !parameters_.entries[use.entry].report.split)
        return {parameterValues_[use.entry], ""};
      return {nullptr, use.entry < 0 ? "is a constant here" : "was tied or untied: keep it with --untie or --tie"};
    }
    auto found = values_.find(name);
    Value *value = found == values_.end() ? nullptr : found->second.tensor;
    if (!value)
      return {};
    if (module_.constantOf(value))
      return {nullptr, "is a constant"};
    if (firstNames_[value] != name)
      return {nullptr, "is the same tensor as \"" + firstNames_[value] + "\": name that one"};
    return {value, ""};
  }

  // --- the end ------------------------------------------------------------------------------------------------------

  /// Keeps the inputs, parameters and constants that the graph reads; constants in the order of their first use.
  void dropUnused() {
    llvm::DenseMap<const Value *, size_t> firstUse;
    auto use = [&](const Value *value) {
      if (value->isGlobal())
        firstUse.try_emplace(value, firstUse.size());
    };
    for (const Node *node : graph_.nodes)
      llvm::for_each(node->inputs, use);
    for (const auto &[name, value] : graph_.results)
      use(value);
    for (const Input &input : module_.inputs)
      if (!firstUse.count(input.value.get()))
        report_.notes.push_back("input \"" + input.value->name + "\" is not read by anything and left out");
    auto isUnused = [&](const auto &entry) { return !firstUse.count(entry.value.get()); };
    llvm::erase_if(module_.inputs, isUnused);
    llvm::erase_if(module_.constants, isUnused);
    llvm::sort(module_.constants, [&](const Constant &a, const Constant &b) {
      return firstUse[a.value.get()] < firstUse[b.value.get()];
    });
    std::set<std::string> kept;
    for (const Parameter &parameter : module_.parameters)
      if (!isUnused(parameter))
        kept.insert(parameter.value->name);
    llvm::erase_if(parameters_.entries, [&](const auto &entry) { return !kept.count(entry.report.name); });
    llvm::erase_if(module_.parameters, isUnused);
    module_.reindex();
  }

  const LoadedModel &model_;
  const FlatModel &flat_;
  ParameterTable &parameters_;
  const ImportOptions &options_;
  Module &module_;
  ImportReport &report_;
  Graph &graph_;
  Folder folder_;
  RoutedRows rows_;
  std::map<std::string, Bound> values_;
  UnrollBudget budget_;
  size_t budgetedNodes_ = 0, budgetedConstants_ = 0; // that the budget has paid for, or need not
  size_t loweredInSteps_ = 0;                        // nodes, that it has not paid for yet
  std::string step_;                                 // of the loops around the node at hand: "[3][0]"
  llvm::DenseSet<const FlatNode *> countedInSteps_;  // for the report
  std::map<const Value *, std::string> firstNames_; // the name a value was first bound to
  NodeSet gradientNodes_;                           // of all Gradient nodes
  std::vector<Value *> parameterValues_; // by entry
  std::map<std::pair<int, bool>, Value *> parameterReads_;
  std::set<std::string> neededNames_, bufferNames_;
  std::vector<Diagnostic> findings_;
  std::map<std::string, int> findingsOf_;
  std::map<std::string, int> hiddenFindings_;
};

} // namespace

std::vector<Diagnostic> lowerModel(const LoadedModel &model, const FlatModel &flat, ParameterTable &parameters,
                                   const ImportOptions &options, Module &module, ImportReport &report) {
  return ModelLowering(model, flat, parameters, options, module, report).run();
}

} // namespace zerocc
