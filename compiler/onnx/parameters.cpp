// Steps:
//   1. Readers: who reads each name. A reader behind Identity, Transpose, Reshape, Cast, … counts as a reader
//   of what
//      these were fed with, so an initializer's readers are the ends of such chains.
//   2. Each float initializer of rank >= 1 is judged: by the exporter's tag; else by the slots it is read at.
//   A matrix
//      operand or a norm scale is a weight whatever it is called; an addend or a factor is one when it is a
//      vector along the last axis and meets activations (masks, cos/sin tables and eps are not), or when its
//      name says so.
//   3. Initializers filled with one value and read by several modules are split.
//   4. Exporter-named matrices are compared, content with content, against parameters of the same element
//   count.
// Cost: readers are visited a constant number of times; content is read only for vectors with several readers
// and for candidates of step 4.

#include "compiler/onnx/parameters.h"

#include "compiler/onnx/group_norms.h"
#include "compiler/onnx/structure.h"
#include "compiler/onnx/tie_scan.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/GlobPattern.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <set>

namespace zerocc {
namespace {

constexpr const char *kKindKey = "pkg.torch.export.graph_signature.InputSpec.kind";

/// What a place of reading says about the tensor read there.
enum class SlotKind {
  none,        // nothing
  strong,      // a weight, whatever the shape: matrix operands, norm scales, embedding tables
  elementwise, // an addend or factor: a weight when it is shaped like a bias or a scale
};

struct SlotMeaning {
  SlotKind kind = SlotKind::none;
  const char *suffix = "weight"; // how PyTorch calls the parameter there
};

SlotMeaning meaningOf(const FlatNode &node, int input) {
  if (!node.domain.empty())
    return {};
  const std::string &op = node.op;
  if (op == "MatMul" || op == "Einsum")
    return {SlotKind::strong, "weight"};
  if (op == "Gemm")
    return {SlotKind::strong, input == 2 ? "bias" : "weight"};
  if (op == "Gather")
    return input == 0 ? SlotMeaning{SlotKind::strong, "weight"} : SlotMeaning{};
  bool isNorm = op == "LayerNormalization" || op == "GroupNormalization" || op == "InstanceNormalization" ||
                op == "BatchNormalization" || op == "RMSNormalization" ||
                op == "SimplifiedLayerNormalization";
  if (isNorm || op == "Conv" || op == "ConvTranspose")
    return input == 1 || input == 2 ? SlotMeaning{SlotKind::strong, input == 2 ? "bias" : "weight"}
                                    : SlotMeaning{};
  if (op == "DeformConv")
    return input == 1 || input == 3 ? SlotMeaning{SlotKind::strong, input == 3 ? "bias" : "weight"}
                                    : SlotMeaning{};
  if (op == "PRelu")
    return input == 1 ? SlotMeaning{SlotKind::strong, "weight"} : SlotMeaning{};
  if (op == "LSTM" || op == "GRU" || op == "RNN")
    return input >= 1 && input <= 3 ? SlotMeaning{SlotKind::strong, input == 3 ? "bias" : "weight"}
                                    : SlotMeaning{};
  if (op == "Add" || op == "Sub" || op == "Sum")
    return {SlotKind::elementwise, "bias"};
  if (op == "Mul" || op == "Div")
    return {SlotKind::elementwise, "weight"};
  return {};
}

/// Ops whose first operand passes on unchanged but for shape and dtype.
bool isTransparent(const FlatNode &node, int input) {
  static const std::set<std::string> ops = {"Identity", "Transpose", "Reshape", "Cast",  "CastLike",
                                            "Squeeze",  "Unsqueeze", "Flatten", "Expand"};
  return input == 0 && node.domain.empty() && ops.count(node.op);
}

/// Results that say nothing about the operand's values.
bool readsShapeOnly(const FlatNode &node) {
  return node.domain.empty() && (node.op == "Shape" || node.op == "Size");
}

std::string lastPart(const std::string &name) {
  size_t at = name.find_last_of("./");
  return at == std::string::npos ? name : name.substr(at + 1);
}

/// "weight", "ln.bias", "cls_token", "pos_embed", "layer_scale1.gamma", "lora_A".
bool namedLikeParameter(const std::string &name) {
  std::string last = lastPart(name);
  static const char *endings[] = {"weight", "bias",  "gamma", "beta",       "kernel",    "embedding",
                                  "embed",  "token", "scale", "embeddings", "parameter", "param"};
  for (const char *ending : endings)
    if (llvm::StringRef(last).endswith(ending))
      return true;
  return llvm::StringRef(last).startswith("lora_");
}

/// Buffers that sit in weight slots: rotary tables and masks.
bool namedLikeBuffer(const std::string &name) {
  llvm::StringRef text(name);
  return text.contains("inv_freq") || text.contains("rotary") || text.contains("mask") ||
         text.endswith("cos_cached") || text.endswith("sin_cached") || text.contains("running_");
}

bool isVectorAlongLastAxis(const Dims &dims) {
  return !dims.empty() && dims.back() > 1 &&
         llvm::all_of(llvm::ArrayRef<int64_t>(dims).drop_back(), [](int64_t d) { return d == 1; });
}

std::string describe(Slot slot) {
  const FlatNode &node = *slot.first;
  std::string name =
      !node.name.empty() ? node.name : node.op + ":" + (node.outputs.empty() ? "" : node.outputs[0]);
  return name + ":" + std::to_string(slot.second);
}

class Finder {
public:
  Finder(const LoadedModel &model, const FlatModel &flat, const ImportOptions &options, ImportReport &report)
      : model_(model), flat_(flat), options_(options), report_(report) {}

  Expected<ParameterTable> run() {
    collectReaders(flat_.graph);
    markActivations();
    readTags();
    norms_ = findGroupNorms(model_, flat_);
    for (const auto &[name, tensor] : flat_.initializers)
      ZEROCC_TRY(judge(name, *tensor));
    ZEROCC_TRY(split());
    ZEROCC_TRY(retie());
    ZEROCC_TRY(tieOnRequest());
    rename();
    finish();
    ZEROCC_TRY(applyTrainable());
    if (!findings_.empty())
      return Error(findings_);
    return std::move(table_);
  }

private:
  struct Candidate {
    std::string name; // initializer
    const onnx::TensorProto *tensor = nullptr;
    TensorType type;
    std::string reason;
    std::vector<Slot> readers; // direct
    std::string parameterName; // when not split
    struct Part {
      std::string name;
      std::vector<Slot> readers;
    };
    std::vector<Part> parts; // when split
    bool tied = false;
    int copyOf = -1; // index of the candidate whose values this repeats
    bool copyTransposed = false;
  };

  // --- 1: readers
  // ---------------------------------------------------------------------------------------------------

  void collectReaders(const FlatGraph &graph) {
    for (const FlatNode &node : graph.nodes) {
      for (size_t i = 0; i < node.inputs.size(); ++i)
        if (!node.inputs[i].empty())
          readers_[node.inputs[i]].push_back({&node, static_cast<int>(i)});
      for (const auto &[name, subgraph] : node.subgraphs)
        collectReaders(*subgraph);
    }
  }

  const std::vector<Slot> &readersOf(const std::string &name) const {
    static const std::vector<Slot> none;
    auto found = readers_.find(name);
    return found == readers_.end() ? none : found->second;
  }

  /// Calls visit(slot) for the ends of the chains of transparent ops that start at `slot`.
  template <typename F> void eachEnd(Slot slot, F visit) const {
    std::vector<Slot> stack{slot};
    std::set<Slot> seen{slot};
    while (!stack.empty()) {
      Slot at = stack.back();
      stack.pop_back();
      if (!isTransparent(*at.first, at.second)) {
        visit(at);
        continue;
      }
      for (const std::string &output : at.first->outputs)
        for (const Slot &next : readersOf(output))
          if (seen.insert(next).second)
            stack.push_back(next);
    }
  }

  /// fromInputs_: names whose values depend on the inputs; active_: those and what tensors in strong slots reach.
  void markActivations() {
    fromInputs_.insert(flat_.graph.inputs.begin(), flat_.graph.inputs.end());
    spread(flat_.graph, fromInputs_);
    active_ = fromInputs_;
    for (const auto &[name, tensor] : flat_.initializers)
      for (const Slot &slot : readersOf(name))
        if (meaningOf(*slot.first, slot.second).kind == SlotKind::strong && tensor->dims_size() >= 1 &&
            isFloatTensor(*tensor))
          active_.insert(name);
    spread(flat_.graph, active_);
  }

  /// Adds what is computed from names of the set.
  static void spread(const FlatGraph &graph, std::set<std::string> &names) {
    for (const FlatNode &node : graph.nodes) {
      for (const auto &[name, subgraph] : node.subgraphs)
        spread(*subgraph, names);
      bool isReached = !readsShapeOnly(node) &&
                       llvm::any_of(node.inputs, [&](const std::string &input) { return names.count(input); });
      if (isReached || !node.subgraphs.empty())
        names.insert(node.outputs.begin(), node.outputs.end());
    }
  }

  // --- 2: which are parameters
  // --------------------------------------------------------------------------------------

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

  bool matches(const std::vector<std::string> &patterns, const std::string &name) {
    bool any = false;
    for (const std::string &pattern : patterns) {
      Expected<bool> matched = matchesOne(pattern, name);
      if (matched && *matched) {
        usedPatterns_.insert(pattern);
        any = true;
      }
    }
    return any;
  }

  Expected<bool> matchesOne(const std::string &pattern, const std::string &name) const {
    llvm::Expected<llvm::GlobPattern> glob = llvm::GlobPattern::create(pattern);
    if (!glob) {
      std::string why = llvm::toString(glob.takeError());
      return Error("pattern \"" + pattern + "\": " + why);
    }
    return glob->match(name);
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
    for (const Slot &slot : readersOf(name))
      eachEnd(slot, [&](Slot end) {
        if (reason.empty() && !norms_.constants.count(end) && isWeightSlot(end, name, type))
          reason = "read at " + describe(end);
      });
    return reason;
  }

  bool isWeightSlot(Slot slot, const std::string &name, const TensorType &type) const {
    const auto &[node, input] = slot;
    if (norms_.weights.count(slot))
      return true;
    SlotMeaning meaning = meaningOf(*node, input);
    bool named = namedLikeParameter(name);
    if (meaning.kind == SlotKind::strong) {
      // [.., n, 1] times [.., 1, m] is an outer product: of rotary frequencies and positions, unless it is a layer of one
      // feature.
      bool isOuterProduct = node->op == "MatMul" && type.rank() >= 2 && type.dims[type.rank() - 1 - input] == 1 &&
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
    if (!isFloatTensor(tensor) || readersOf(name).empty())
      return success();
    Expected<TensorType> type = LoadedModel::typeOf(tensor);
    if (!type || type->elements() == 0)
      return success();
    std::string reason = reasonFor(name, *type);
    const bool isAskedFor = reason.empty() && !type->dims.empty() && matches(options_.trainable, name);
    if (isAskedFor)
      reason = "asked for with --trainable";
    if (reason.empty())
      return success();
    Candidate candidate;
    candidate.name = candidate.parameterName = name;
    candidate.tensor = &tensor;
    candidate.type = *type;
    candidate.reason = reason;
    for (const Slot &slot : readersOf(name))
      if (norms_.constants.count(slot) && !isAskedFor)
        table_.bySlot[slot] = -1; // here it is a constant
      else
        candidate.readers.push_back(slot);
    candidates_.push_back(std::move(candidate));
    taken_.insert(name);
    return success();
  }

  // --- 3: false ties
  // ------------------------------------------------------------------------------------------------

  static bool isFilledWithOneValue(const std::string &bytes, int64_t elementBytes) {
    return bytes.size() <= static_cast<size_t>(elementBytes) ||
           std::memcmp(bytes.data(), bytes.data() + elementBytes, bytes.size() - elementBytes) == 0;
  }

  /// Most tensors tell by their first bytes, so that big ones are not read.
  Expected<bool> isFilled(const Candidate &candidate) const {
    constexpr int64_t kBlock = 4096;
    if (!model_.hasBytes(*candidate.tensor))
      return false;
    int64_t size = candidate.type.bytes(), elementBytes = byteSize(candidate.type.dtype);
    ZEROCC_ASSIGN(std::string head, model_.bytesOf(*candidate.tensor, 0, std::min(size, kBlock)));
    if (!isFilledWithOneValue(head, elementBytes) || size <= kBlock)
      return isFilledWithOneValue(head, elementBytes);
    ZEROCC_ASSIGN(std::string bytes, model_.bytesOf(*candidate.tensor));
    return isFilledWithOneValue(bytes, elementBytes);
  }

  /// What the reader at `slot` would have been called: by the Identity that the exporter left, or by the
  /// module that the first real reader behind it belongs to. "" when neither is known.
  std::string recoveredName(Slot slot) const {
    if (slot.first->op == "Identity" && slot.first->domain.empty() &&
        !namedByExporter(slot.first->outputs[0]))
      return slot.first->outputs[0];
    std::string name;
    eachEnd(slot, [&](Slot end) {
      SlotMeaning meaning = meaningOf(*end.first, end.second);
      if (name.empty() && meaning.kind != SlotKind::none && !end.first->scope.empty())
        name = end.first->scope + "." + meaning.suffix;
    });
    return name;
  }

  Status split() {
    for (Candidate &candidate : candidates_) {
      if (candidate.readers.size() < 2)
        continue;
      bool untie = matches(options_.untie, candidate.name);
      bool tie = matches(options_.tie, candidate.name);
      if (tie && !untie) {
        candidate.tied = true;
        continue;
      }
      ZEROCC_ASSIGN(bool filled, isFilled(candidate));
      if (untie || (filled && !model_.trained))
        splitByReader(candidate, untie);
      else
        candidate.tied = true;
    }
    return success();
  }

  void splitByReader(Candidate &candidate, bool onRequest) {
    std::vector<Candidate::Part> parts;
    std::map<std::string, size_t> partOf;
    for (const Slot &slot : candidate.readers) {
      std::string name = recoveredName(slot);
      auto [found, isNew] = partOf.emplace(name.empty() ? describe(slot) : name, parts.size());
      if (isNew)
        parts.push_back({name, {}});
      parts[found->second].readers.push_back(slot);
    }
    if (parts.size() < 2) {
      candidate.tied = candidate.readers.size() > 1;
      return;
    }
    // The initializer's own name stays with the reader it belongs to, else with the first nameless one.
    bool ownNameGiven = llvm::any_of(parts, [&](const auto &part) { return part.name == candidate.name; });
    int number = 0;
    for (Candidate::Part &part : parts) {
      bool isTaken = part.name != candidate.name && !part.name.empty() && taken_.count(part.name);
      if (part.name.empty() || isTaken) {
        if (!ownNameGiven) {
          part.name = candidate.name;
          ownNameGiven = true;
          continue;
        }
        do
          part.name = candidate.name + "#" + std::to_string(++number);
        while (taken_.count(part.name));
      }
      taken_.insert(part.name);
    }
    std::string names;
    for (const Candidate::Part &part : parts)
      names += (names.empty() ? "" : ", ") + part.name;
    report_.repairs.push_back("untied \"" + candidate.name + "\" (" + print(candidate.type) +
                              (onRequest ? ", on request" : ", all elements equal") +
                              "), which the exporter shared: " + std::to_string(parts.size()) +
                              " parameters, " + names);
    candidate.parts = std::move(parts);
  }

  // --- 4: lost ties
  // -------------------------------------------------------------------------------------------------

  bool isNameless(const Candidate &candidate) const {
    if (hasTags_ && !tags_.count(candidate.name))
      return true;
    return namedByExporter(candidate.name);
  }

  Expected<bool> repeats(const Candidate &copy, const Candidate &original, bool transposing) {
    const Dims &a = copy.type.dims, &b = original.type.dims;
    bool fits = copy.type.dtype == original.type.dtype &&
                (transposing ? a.size() == 2 && b.size() == 2 && a[0] == b[1] && a[1] == b[0] : a == b);
    if (!fits || !model_.hasBytes(*copy.tensor) || !model_.hasBytes(*original.tensor))
      return false;
    // First and last element tell most pairs apart before anything big is read.
    int64_t elementBytes = byteSize(copy.type.dtype);
    for (int64_t offset : {int64_t(0), copy.type.bytes() - elementBytes}) {
      ZEROCC_ASSIGN(std::string ours, model_.bytesOf(*copy.tensor, offset, elementBytes));
      ZEROCC_ASSIGN(std::string theirs, model_.bytesOf(*original.tensor, offset, elementBytes));
      if (ours != theirs)
        return false;
    }
    return equalContents(model_, *copy.tensor, copy.type, *original.tensor, transposing);
  }

  Status retie() {
    if (model_.trained)
      return success();
    for (Candidate &copy : candidates_) {
      if (!isNameless(copy) || copy.type.rank() < 2 || !copy.parts.empty() ||
          matches(options_.untie, copy.name))
        continue;
      for (size_t i = 0; i < candidates_.size() && copy.copyOf < 0; ++i) {
        Candidate &original = candidates_[i];
        if (isNameless(original) || !original.parts.empty() || original.copyOf >= 0)
          continue;
        for (bool transposing : {false, true}) {
          ZEROCC_ASSIGN(bool same, repeats(copy, original, transposing));
          if (!same)
            continue;
          makeCopy(copy, i, transposing);
          break;
        }
      }
    }
    return success();
  }

  void makeCopy(Candidate &copy, size_t original, bool transposing) {
    copy.copyOf = static_cast<int>(original);
    copy.copyTransposed = transposing;
    candidates_[original].tied = true;
    report_.repairs.push_back("tied \"" + copy.name + "\" to \"" + candidates_[original].name +
                              "\", which it repeats" + (transposing ? " transposed" : "") +
                              ": one parameter of " + std::to_string(copy.type.bytes()) +
                              " bytes instead of two");
  }

  /// --tie PATTERN over several initializers makes them one; they must be equal.
  Status tieOnRequest() {
    for (const std::string &pattern : options_.tie) {
      int first = -1;
      for (size_t i = 0; i < candidates_.size(); ++i) {
        Candidate &candidate = candidates_[i];
        ZEROCC_ASSIGN(bool matched, matchesOne(pattern, candidate.name));
        if (!matched || candidate.copyOf >= 0 || !candidate.parts.empty())
          continue;
        usedPatterns_.insert(pattern);
        if (first < 0) {
          first = static_cast<int>(i);
          continue;
        }
        Candidate &original = candidates_[first];
        ZEROCC_ASSIGN(bool same, equalContent(candidate, original, false));
        ZEROCC_ASSIGN(bool turned, equalContent(candidate, original, true));
        if (!same && !turned)
          findings_.push_back({"--tie " + pattern + ": \"" + candidate.name + "\" (" + print(candidate.type) +
                                   ") and \"" + original.name + "\" (" + print(original.type) + ") differ",
                               "only tensors with equal values, or equal after transposing, can be tied"});
        else
          makeCopy(candidate, first, !same);
      }
    }
    return success();
  }

  Expected<bool> equalContent(const Candidate &a, const Candidate &b, bool transposing) {
    if (!transposing && a.type == b.type) {
      ZEROCC_ASSIGN(std::string left, model_.bytesOf(*a.tensor));
      ZEROCC_ASSIGN(std::string right, model_.bytesOf(*b.tensor));
      return left == right;
    }
    return transposing ? repeats(a, b, true) : Expected<bool>(false);
  }

  // --- names and the table
  // ------------------------------------------------------------------------------------------

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
        names.insert(recoveredName(slot));
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
      bool frozen = matches(options_.freeze, entry.report.name);
      bool wanted = matches(options_.trainable, entry.report.name);
      entry.report.trainable = !options_.inference && (wanted || !frozen);
    }
    auto checkUsed = [&](const std::vector<std::string> &patterns, const char *flag) {
      for (const std::string &pattern : patterns) {
        Expected<bool> valid = matchesOne(pattern, "");
        if (!valid)
          findings_.push_back({std::string(flag) + ": " + valid.error().findings().front().message, ""});
        else if (!usedPatterns_.count(pattern))
          findings_.push_back({std::string(flag) + " " + pattern + ": no parameter has such a name",
                               "`zerocc check` lists the parameters"});
      }
    };
    checkUsed(options_.freeze, "--freeze");
    checkUsed(options_.trainable, "--trainable");
    checkUsed(options_.tie, "--tie");
    checkUsed(options_.untie, "--untie");
    return success();
  }

  const LoadedModel &model_;
  const FlatModel &flat_;
  const ImportOptions &options_;
  ImportReport &report_;
  std::map<std::string, std::vector<Slot>> readers_;
  std::set<std::string> fromInputs_, active_;
  std::map<std::string, std::string> tags_; // initializer -> PARAMETER | BUFFER | CONSTANT_TENSOR
  bool hasTags_ = false;
  std::vector<Candidate> candidates_;
  std::set<std::string> taken_; // names of parameters
  std::set<std::string> usedPatterns_;
  std::vector<Diagnostic> findings_;
  NormSlots norms_;
  ParameterTable table_;
};

} // namespace

bool namedByExporter(const std::string &name) {
  llvm::StringRef text(name);
  if (text.startswith("onnx::") || text.startswith("/") || text.endswith("_output_0"))
    return true;
  text.consume_front("val_");
  return !text.empty() && text.find_if_not([](char c) {
    return std::isdigit(static_cast<unsigned char>(c));
  }) == llvm::StringRef::npos;
}

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
