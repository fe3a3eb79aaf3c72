// Steps:
//   1. Readers: who reads each name. A reader behind Identity, Transpose, Reshape, Cast, … counts as a reader of what
//      these were fed with, so an initializer's readers are the ends of such chains.
//   2. Each float initializer of rank >= 1 is judged: by the exporter's tag; else by the slots it is read at. A matrix
//      operand or a norm scale is a weight whatever it is called; an addend or a factor is one when it is a
//      vector along the last axis and meets activations (masks, cos/sin tables and eps are not), or when its
//      name says so.
//   3. `Ties`: initializers filled with one value and read by several modules are split; exporter-named matrices are
//      compared, content with content, against parameters of the same dims.
//   4. What is still called by the exporter gets the name of the module that reads it.
// Cost: readers are visited a constant number of times.

#include "compiler/onnx/parameters.h"

#include "compiler/onnx/group_norms.h"
#include "compiler/onnx/ties.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringRef.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

namespace zerocc {
namespace {

constexpr const char *kKindKey = "pkg.torch.export.graph_signature.InputSpec.kind";

bool isVectorAlongLastAxis(const Dims &dims) {
  return !dims.empty() && dims.back() > 1 &&
         llvm::all_of(llvm::ArrayRef<int64_t>(dims).drop_back(), [](int64_t d) { return d == 1; });
}

class Finder {
public:
  Finder(const LoadedModel &model, const FlatModel &flat, const ImportOptions &options, ImportReport &report)
      : model_(model), flat_(flat), options_(options), report_(report), readers_(flat.graph) {}

  Expected<ParameterTable> run() {
    markActivations();
    readTags();
    norms_ = findGroupNorms(model_, flat_);
    for (const auto &[name, tensor] : flat_.initializers)
      ZEROCC_TRY(judge(name, *tensor));
    Ties ties(model_, readers_, options_, patterns_, candidates_, taken_, report_);
    ZEROCC_TRY(ties.split());
    ZEROCC_TRY(ties.retie());
    ZEROCC_TRY(ties.tieOnRequest(findings_));
    rename();
    finish();
    ZEROCC_TRY(applyTrainable());
    if (!findings_.empty())
      return Error(findings_);
    return std::move(table_);
  }

private:
  // --- 1: readers -------------------------------------------------------------------------------------------

  /// fromInputs_: names whose values depend on the inputs; active_: those and what tensors in strong slots
  /// reach.
  void markActivations() {
    fromInputs_.insert(flat_.graph.inputs.begin(), flat_.graph.inputs.end());
    spread(flat_.graph, fromInputs_);
    active_ = fromInputs_;
    for (const auto &[name, tensor] : flat_.initializers)
      for (const Slot &slot : readers_.of(name))
        if (meaningOf(*slot.first, slot.second).kind == SlotKind::strong && tensor->dims_size() >= 1 &&
            isFloatTensor(*tensor))
          active_.insert(name);
    spread(flat_.graph, active_);
  }

  // --- 2: which are parameters ------------------------------------------------------------------------------

  static bool isFloatTensor(const onnx::TensorProto &tensor) {
    std::optional<DType> dtype = dtypeFromOnnx(tensor.data_type());
    return dtype && isFloat(*dtype);
  }

  /// The dynamo exporter tags initializers in value_info, newer ones in the tensor.
  void readTags() {
    auto read = [&](const std::string &name, const std::map<std::string, std::string> &metadata) {
      if (auto kind = metadata.find(kKindKey); kind != metadata.end())
        tags_[name] = kind->second;
    };
    for (const onnx::ValueInfoProto &info : model_.proto.graph().value_info())
      read(info.name(), metadataOf(info, kValueInfoMetadata));
    for (const auto &[name, tensor] : flat_.initializers)
      read(name, metadataOf(*tensor, kTensorMetadata));
    for (const auto &[name, tag] : tags_)
      hasTags_ |= tag == "PARAMETER" && flat_.initializerOf.count(name);
  }

  /// Why the tensor is a parameter, or "".
  std::string reasonFor(const std::string &name, const TensorType &type) {
    if (model_.trained)
      return llvm::is_contained(*model_.trained, name) ? "updated by the model's own algorithm" : "";
    if (auto tag = tags_.find(name); tag != tags_.end())
      return tag->second == "PARAMETER" ? "tagged by the exporter" : "";
    if (type.dims.empty() || namedLikeBuffer(name))
      return "";
    std::string reason;
    for (const Slot &slot : readers_.of(name))
      readers_.eachEnd(slot, [&](Slot end) {
        if (reason.empty() && !norms_.constants.count(end) && isWeightSlot(end, name, type))
          reason = "read at " + describe(end);
      });
    return reason.empty() ? recurrentReason(name) : reason;
  }

  /// Exporters write the weights of recurrent layers gate by gate: slices, joined in another order.
  std::string recurrentReason(const std::string &name) {
    static const std::set<std::string> rearranging = {"Slice", "Concat", "Split", "Unsqueeze", "Squeeze", "Reshape",
                                                      "Identity", "Transpose", "Cast"};
    std::vector<Slot> stack = readers_.of(name);
    std::set<const FlatNode *> seen;
    while (!stack.empty()) {
      const auto [node, input] = stack.back();
      stack.pop_back();
      const bool isRecurrent = node->op == "LSTM" || node->op == "GRU" || node->op == "RNN";
      if (isRecurrent && input >= 1 && input <= 3)
        return "read at " + describe({node, input});
      if (!rearranging.count(node->op) || !node->domain.empty() || !seen.insert(node).second)
        continue;
      for (const std::string &output : node->outputs)
        for (const Slot &next : readers_.of(output))
          stack.push_back(next);
    }
    return "";
  }

  bool isWeightSlot(Slot slot, const std::string &name, const TensorType &type) const {
    const auto &[node, input] = slot;
    if (norms_.weights.count(slot))
      return true;
    SlotMeaning meaning = meaningOf(*node, input);
    bool named = namedLikeParameter(name);
    if (meaning.kind == SlotKind::strong) {
      // [.., n, 1] times [.., 1, m] is an outer product: of rotary frequencies and positions, unless it is a
      // layer of one feature. Nodes may have any number of operands here: lowering refuses them later.
      bool isOuterProduct = node->op == "MatMul" && node->inputs.size() == 2 && type.rank() >= 2 &&
                            type.dims[type.rank() - 1 - input] == 1 &&
                            (type.rank() > 2 || !fromInputs_.count(node->inputs[1 - input]));
      return named || (!isOuterProduct && (type.elements() > 1 || node->op != "Gather"));
    }
    if (hasTags_ && !named)
      return false; // untagged in a tagged file: what folding left over, only matrices are worth a guess
    if (meaning.kind == SlotKind::elementwise) {
      bool meetsActivation = false;
      for (size_t i = 0; i < node->inputs.size(); ++i)
        meetsActivation |= static_cast<int>(i) != input && active_.count(node->inputs[i]);
      return meetsActivation && (named || isVectorAlongLastAxis(type.dims));
    }
    return named && (node->op == "Concat" || node->op == "Where") && !hasTags_;
  }

  Status judge(const std::string &name, const onnx::TensorProto &tensor) {
    if (!isFloatTensor(tensor) || readers_.of(name).empty())
      return success();
    Expected<TensorType> type = LoadedModel::typeOf(tensor);
    if (!type || type->elements() == 0)
      return success();
    std::string reason = reasonFor(name, *type);
    const bool isAskedFor = reason.empty() && !type->dims.empty() && patterns_.matches(options_.trainable, name);
    if (isAskedFor)
      reason = "asked for with --trainable";
    if (reason.empty())
      return adviseOn(name, tensor, *type);
    Candidate candidate;
    candidate.name = candidate.parameterName = name;
    candidate.tensor = &tensor;
    candidate.type = *type;
    candidate.reason = reason;
    for (const Slot &slot : readers_.of(name))
      if (norms_.constants.count(slot) && !isAskedFor)
        table_.bySlot[slot] = -1; // here it is a constant
      else
        candidate.readers.push_back(slot);
    candidate.isNameless = namedByExporter(name) || (hasTags_ && !tags_.count(name));
    candidates_.push_back(std::move(candidate));
    taken_.insert(name);
    return success();
  }

  /// A table of different numbers that is no parameter may be one that the exporter has computed from a parameter, as
  /// position embeddings read at fixed positions. Only the first block is looked at.
  Status adviseOn(const std::string &name, const onnx::TensorProto &tensor, const TensorType &type) {
    constexpr int64_t kBlock = 4096, kFewElements = 16;
    for (const auto &[node, input] : readers_.of(name)) {
      if (node->op == "QuantizeLinear" && input == 0 && !type.dims.empty()) {
        report_.advice.push_back("\"" + name + "\" (" + print(type) + ", read at " + describe({node, input}) +
                                 ") is quantized by the model, which no gradient passes: it keeps its value; export "
                                 "the model before quantization to train it");
        return success();
      }
      if (node->op == "QuantizeLinear" || node->op == "DequantizeLinear")
        return success(); // a scale
    }
    if (type.dtype != DType::f32 || type.elements() < kFewElements || namedLikeBuffer(name) || !model_.hasBytes(tensor) ||
        tags_.count(name))
      return success();
    ZEROCC_ASSIGN(std::string head, model_.bytesOf(tensor, 0, std::min(type.bytes(), kBlock)));
    std::vector<float> values(head.size() / sizeof(float));
    std::memcpy(values.data(), head.data(), values.size() * sizeof(float));
    // Masks and positions are whole numbers or infinite, tables of frequencies rise or fall, and those of cosines and
    // sines begin with a row of 1 or 0.
    const size_t row = std::clamp<int64_t>(type.dims.back(), 1, values.size());
    if ((row < values.size() && (values[0] == 0 || values[0] == 1) &&
         llvm::all_of(llvm::ArrayRef(values).take_front(row), [&](float value) { return value == values[0]; })) ||
        !llvm::all_of(values, [](float value) { return std::isfinite(value); }) ||
        llvm::count_if(values, [](float value) { return value != std::round(value); }) < int64_t(values.size()) / 2 ||
        std::is_sorted(values.begin(), values.end()) || std::is_sorted(values.rbegin(), values.rend()))
      return success();
    report_.advice.push_back("\"" + name + "\" (" + print(type) + ", read at " + describe(readers_.of(name).front()) +
                             ") is kept as a constant, but looks like a table that the exporter has computed from a "
                             "parameter: --trainable '" + name + "' trains it");
    return success();
  }

  // --- names and the table ----------------------------------------------------------------------------------

  /// A name from the module that reads the tensor, if that is one module and nobody else is called so.
  void rename() {
    if (model_.trained)
      return;
    std::map<std::string, int> wishes;
    std::vector<std::string> wished(candidates_.size());
    for (size_t i = 0; i < candidates_.size(); ++i) {
      const Candidate &candidate = candidates_[i];
      if (!namedByExporter(candidate.name) || candidate.copyOf >= 0 || !candidate.parts.empty())
        continue;
      std::set<std::string> names;
      for (const Slot &slot : candidate.readers)
        names.insert(readers_.recoveredName(slot));
      if (names.size() == 1 && !names.begin()->empty() && !taken_.count(*names.begin()) &&
          !flat_.initializerOf.count(*names.begin()))
        ++wishes[wished[i] = *names.begin()];
    }
    for (size_t i = 0; i < candidates_.size(); ++i)
      if (!wished[i].empty() && wishes[wished[i]] == 1) {
        candidates_[i].parameterName = wished[i];
        taken_.insert(wished[i]);
        report_.repairs.push_back("named \"" + candidates_[i].name + "\" \"" + wished[i] +
                                  "\", after the module that "
                                  "reads it");
      }
  }

  int addEntry(const Candidate &candidate, const std::string &name, const std::vector<Slot> &readers) {
    ParameterTable::Entry entry;
    entry.report.name = name;
    entry.report.initializer = candidate.name;
    entry.report.type = {DType::f32, candidate.type.dims};
    entry.report.reason = candidate.reason;
    if (!candidate.parts.empty() && !tags_.count(candidate.name))
      entry.report.reason = "read at " + describe(readers.front());
    for (const Slot &slot : readers)
      entry.report.slots.push_back(describe(slot));
    entry.isVector = candidate.type.rank() < 2 || llvm::all_of(readers, [&](const Slot &slot) {
                       return norms_.weights.count(slot) ||
                              (slot.first->op == "PRelu" &&
                               llvm::count_if(candidate.type.dims, [](int64_t dim) { return dim != 1; }) < 2);
                     });
    entry.tied = candidate.tied;
    table_.entries.push_back(std::move(entry));
    return static_cast<int>(table_.entries.size()) - 1;
  }

  void finish() {
    std::vector<int> entryOf(candidates_.size(), -1);
    for (size_t i = 0; i < candidates_.size(); ++i) {
      const Candidate &candidate = candidates_[i];
      if (candidate.copyOf >= 0)
        continue;
      if (candidate.parts.empty()) {
        entryOf[i] = addEntry(candidate, candidate.parameterName, candidate.readers);
        table_.byName[candidate.name] = {entryOf[i], false};
        continue;
      }
      for (const Candidate::Part &part : candidate.parts) {
        int entry = addEntry(candidate, part.name, part.readers);
        table_.entries[entry].report.split = true;
        for (const Slot &slot : part.readers)
          table_.bySlot[slot] = entry;
      }
    }
    for (const Candidate &candidate : candidates_) {
      if (candidate.copyOf < 0)
        continue;
      int entry = entryOf[candidate.copyOf];
      ImportedParameter &original = table_.entries[entry].report;
      (candidate.copyTransposed ? original.transposedCopies : original.copies).push_back(candidate.name);
      for (const Slot &slot : candidate.readers)
        original.slots.push_back(describe(slot));
      table_.byName[candidate.name] = {entry, candidate.copyTransposed};
    }
  }

  Status applyTrainable() {
    for (ParameterTable::Entry &entry : table_.entries) {
      bool frozen = patterns_.matches(options_.freeze, entry.report.name);
      bool wanted = patterns_.matches(options_.trainable, entry.report.name);
      entry.report.trainable = !options_.inference && (wanted || !frozen);
    }
    patterns_.checkUsed(options_.freeze, "--freeze", findings_);
    patterns_.checkUsed(options_.trainable, "--trainable", findings_);
    patterns_.checkUsed(options_.tie, "--tie", findings_);
    patterns_.checkUsed(options_.untie, "--untie", findings_);
    return success();
  }

  const LoadedModel &model_;
  const FlatModel &flat_;
  const ImportOptions &options_;
  ImportReport &report_;
  Readers readers_;
  NamePatterns patterns_;
  std::set<std::string> fromInputs_, active_;
  std::map<std::string, std::string> tags_; // initializer -> PARAMETER | BUFFER | CONSTANT_TENSOR
  bool hasTags_ = false;
  std::vector<Candidate> candidates_;
  std::set<std::string> taken_; // names of parameters
  std::vector<Diagnostic> findings_;
  NormSlots norms_;
  ParameterTable table_;
};

} // namespace

ParameterTable::Use ParameterTable::find(const std::string &name, Slot slot) const {
  if (auto found = bySlot.find(slot); found != bySlot.end())
    return {found->second, false};
  auto found = byName.find(name);
  return found == byName.end() ? Use{} : found->second;
}

Expected<ParameterTable> findParameters(const LoadedModel &model, const FlatModel &flat,
                                        const ImportOptions &options, ImportReport &report) {
  return Finder(model, flat, options, report).run();
}

} // namespace zerocc
