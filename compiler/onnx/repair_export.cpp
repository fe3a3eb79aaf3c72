#include "compiler/onnx/repair_export.h"

#include "compiler/onnx/inliner.h"
#include "compiler/onnx/loader.h"
#include "compiler/onnx/parameters.h"
#include "compiler/onnx/structure.h"

#include "llvm/ADT/STLExtras.h"

#include <set>

namespace zerocc {
namespace {

using Parameters = llvm::ArrayRef<TrainingExport::Parameter>;

/// Import finds the same again, unless flags told it otherwise then.
Status checkSame(const ParameterTable &table, Parameters parameters) {
  std::map<std::string, int> sharersThen, sharersNow;
  for (const TrainingExport::Parameter &parameter : parameters)
    ++sharersThen[parameter.initializer];
  for (const ParameterTable::Entry &entry : table.entries)
    ++sharersNow[entry.report.initializer];
  for (const TrainingExport::Parameter &parameter : parameters) {
    auto entry =
        llvm::find_if(table.entries, [&](const auto &entry) { return entry.report.name == parameter.name; });
    if (entry == table.entries.end() || entry->report.initializer != parameter.initializer ||
        entry->report.copies != parameter.copies ||
        entry->report.transposedCopies != parameter.transposedCopies ||
        sharersThen[parameter.initializer] != sharersNow[parameter.initializer])
      return Error("parameter \"" + parameter.name +
                       "\" is not found in the model as it was compiled: it was tied or "
                       "untied on request, or this is another model",
                   "compile without --tie and --untie");
  }
  return success();
}

class Repair {
public:
  explicit Repair(onnx::GraphProto &graph) : graph_(graph) {
    for (onnx::NodeProto &node : *graph.mutable_node())
      if (node.output_size() > 0)
        nodes_[node.output(0)] = &node;
    for (const onnx::TensorProto &tensor : graph.initializer())
      initializers_[tensor.name()] = &tensor;
  }

  /// The initializers of the parameters that shared one, by parameter.
  Expected<std::map<std::string, std::string>> run(const ParameterTable &table) {
    for (const auto &[slot, entry] : table.bySlot)
      if (entry >= 0)
        ZEROCC_TRY(redirect(slot, table.entries[entry].report));
    for (const auto &[name, use] : table.byName)
      if (const ImportedParameter &original = table.entries[use.entry].report; name != original.initializer)
        ZEROCC_TRY(derive(name, original.initializer, use.transposed));
    finish();
    return own_;
  }

private:
  Status redirect(Slot slot, const ImportedParameter &parameter) {
    auto node = nodes_.find(slot.first->outputs.empty() ? "" : slot.first->outputs[0]);
    if (node == nodes_.end() || slot.second >= node->second->input_size() ||
        node->second->input(slot.second) != parameter.initializer ||
        !initializers_.count(parameter.initializer))
      return Error("parameter \"" + parameter.name +
                   "\" is read inside a subgraph or is no initializer, where it cannot "
                   "get one of its own");
    std::string &own = own_[parameter.name];
    if (own.empty())
      own = ownInitializer(parameter);
    node->second->set_input(slot.second, own);
    split_.insert(parameter.initializer);
    return success();
  }

  /// The initializer itself stays with the parameter of its name.
  std::string ownInitializer(const ImportedParameter &parameter) {
    if (parameter.name == parameter.initializer) {
      kept_.insert(parameter.initializer);
      return parameter.name;
    }
    std::string name = parameter.name;
    while (initializers_.count(name) || nodes_.count(name) || !added_.insert(name).second)
      name += ".own"; // the exporter left an Identity of that name
    fresh_.push_back(*initializers_[parameter.initializer]);
    fresh_.back().set_name(name);
    return name;
  }

  Status derive(const std::string &copy, const std::string &original, bool transposed) {
    if (!initializers_.count(copy) || !initializers_.count(original))
      return Error("\"" + copy + "\", which repeats \"" + original + "\", is no initializer");
    onnx::NodeProto node;
    node.set_op_type(transposed ? "Transpose" : "Identity");
    node.set_name("repair/" + copy);
    node.add_input(original);
    node.add_output(copy);
    if (transposed) {
      onnx::AttributeProto &perm = *node.add_attribute();
      perm.set_name("perm");
      perm.set_type(onnx::AttributeProto::INTS);
      perm.add_ints(1);
      perm.add_ints(0);
    }
    derived_.push_back(std::move(node));
    dropped_.insert(copy);
    return success();
  }

  void finish() {
    for (const std::string &name : split_)
      if (!kept_.count(name))
        dropped_.insert(name);
    google::protobuf::RepeatedPtrField<onnx::TensorProto> tensors;
    for (onnx::TensorProto &tensor : *graph_.mutable_initializer())
      if (!dropped_.count(tensor.name()))
        tensors.Add()->Swap(&tensor);
    for (onnx::TensorProto &tensor : fresh_)
      tensors.Add()->Swap(&tensor);
    graph_.mutable_initializer()->Swap(&tensors);
    google::protobuf::RepeatedPtrField<onnx::NodeProto> nodes;
    for (onnx::NodeProto &node : derived_)
      nodes.Add()->Swap(&node);
    for (onnx::NodeProto &node : *graph_.mutable_node())
      nodes.Add()->Swap(&node);
    graph_.mutable_node()->Swap(&nodes);
    google::protobuf::RepeatedPtrField<onnx::ValueInfoProto>
        inputs; // before IR 4 initializers stand here, too
    for (onnx::ValueInfoProto &input : *graph_.mutable_input())
      if (!dropped_.count(input.name()))
        inputs.Add()->Swap(&input);
    graph_.mutable_input()->Swap(&inputs);
  }

  onnx::GraphProto &graph_;
  std::map<std::string, onnx::NodeProto *> nodes_;
  std::map<std::string, const onnx::TensorProto *> initializers_;
  std::map<std::string, std::string> own_;
  std::set<std::string> split_, kept_, added_, dropped_;
  std::vector<onnx::TensorProto> fresh_;
  std::vector<onnx::NodeProto> derived_;
};

} // namespace

Expected<std::map<std::string, std::string>>
writeRepairs(onnx::ModelProto &model, const std::string &modelPath, Links links, Parameters parameters) {
  std::map<std::string, std::string> initializers;
  std::map<std::string, int> sharers;
  for (const TrainingExport::Parameter &parameter : parameters) {
    initializers[parameter.name] = parameter.initializer;
    ++sharers[parameter.initializer];
  }
  bool isMended = llvm::any_of(parameters, [&](const TrainingExport::Parameter &parameter) {
    return !parameter.copies.empty() || !parameter.transposedCopies.empty() ||
           sharers[parameter.initializer] > 1;
  });
  if (!isMended)
    return initializers;

  ZEROCC_ASSIGN(std::unique_ptr<LoadedModel> loaded, loadModel(modelPath, links));
  if (std::vector<Diagnostic> findings = checkStructure(*loaded); !findings.empty()) // opens external data, too
    return Error(std::move(findings));
  ZEROCC_ASSIGN(std::unique_ptr<FlatModel> flat, inlineFunctions(*loaded));
  if (flat->inlinedCalls > 0)
    return Error("parameters were tied or untied, which is not written into a model with local functions",
                 "inline them first");
  ImportReport report;
  ZEROCC_ASSIGN(ParameterTable table, findParameters(*loaded, *flat, {}, report));
  ZEROCC_TRY(checkSame(table, parameters));
  ZEROCC_ASSIGN(auto own, Repair(*model.mutable_graph()).run(table));
  for (const auto &[name, initializer] : own)
    initializers[name] = initializer;
  return initializers;
}

} // namespace zerocc
