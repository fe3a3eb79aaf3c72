#include "compiler/onnx/inputs.h"

#include "compiler/onnx/dims.h"
#include "compiler/onnx/structure.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/MathExtras.h"

#include <set>

namespace zerocc {
namespace {

constexpr int64_t kMaxDim = (int64_t(1) << 31) - 1;

using Dimension = onnx::TensorShapeProto::Dimension;

/// How a dim is called on the command line: its name, or INPUT.AXIS when it has none.
std::string dimLabel(const Dimension &dim, const std::string &input, int axis) {
  return dim.dim_param().empty() ? input + "." + std::to_string(axis) : dim.dim_param();
}

bool isSymbolic(const Dimension &dim) { return !dim.has_dim_value(); }

class InputMaker {
public:
  InputMaker(const LoadedModel &model, const FlatModel &flat, const ImportOptions &options, Module &module,
             ImportReport &report)
      : model_(model), flat_(flat), options_(options), module_(module), report_(report), bindings_(options.dims) {}

  std::vector<Diagnostic> run() {
    for (const onnx::ValueInfoProto &input : model_.proto.graph().input())
      if (!flat_.initializerOf.count(input.name()))
        inputs_.push_back(&input);
    bindMicroBatch();
    emptyCaches();
    for (const onnx::ValueInfoProto *input : inputs_)
      makeInput(*input);
    explainUnbound();
    explainUnknown();
    for (const auto &[name, value] : bindings_)
      if (report_.dims.count(name))
        report_.boundDims[name] = value;
    return std::move(findings_);
  }

private:
  void find(const std::string &message, const std::string &hint = "") { findings_.push_back({message, hint}); }

  static const onnx::TensorShapeProto *shapeOf(const onnx::ValueInfoProto &input) {
    if (!input.type().has_tensor_type() || !input.type().tensor_type().has_shape())
      return nullptr;
    return &input.type().tensor_type().shape();
  }

  /// The leading dim of an input is the micro-batch, when it is one name that --dim does not bind.
  void bindMicroBatch() {
    for (const onnx::ValueInfoProto *input : inputs_) {
      const onnx::TensorShapeProto *shape = shapeOf(*input);
      if (!shape || shape->dim_size() == 0 || !isSymbolic(shape->dim(0)))
        continue;
      std::string label = dimLabel(shape->dim(0), input->name(), 0);
      if (dimNames(label) == std::set<std::string>{label} || shape->dim(0).dim_param().empty())
        if (!bindings_.count(label)) {
          bindings_[label] = options_.microBatch;
          microBatchDims_.insert(label);
        }
    }
  }

  /// A cache of a decoder export: "past_key_values.0.key", "past_3".
  static bool isCache(llvm::StringRef name) {
    return name.startswith("past_key") || name.startswith("past_value") || name.startswith("past.") ||
           name.startswith("past_") || name.startswith("cache_");
  }

  /// Training starts from an empty cache: the length of every cache is 0, unless --dim says otherwise.
  void emptyCaches() {
    int64_t caches = 0;
    std::set<std::string> lengths;
    for (const onnx::ValueInfoProto *input : inputs_) {
      const onnx::TensorShapeProto *shape = shapeOf(*input);
      if (!shape || !isCache(input->name()) || shape->dim_size() < 3)
        continue;
      bool emptied = false;
      for (int axis = 1; axis < shape->dim_size(); ++axis) {
        const Dimension &dim = shape->dim(axis);
        if (!isSymbolic(dim))
          continue;
        const std::string label = dimLabel(dim, input->name(), axis);
        if (dim.dim_param().empty() || dimNames(label) == std::set<std::string>{label})
          if (options_.dims.count(label) == 0 && !microBatchDims_.count(label)) {
            bindings_[label] = 0;
            lengths.insert(label);
            emptied = true;
          }
      }
      caches += emptied;
    }
    if (caches > 0)
      report_.repairs.push_back(std::to_string(caches) + " cache inputs are empty: " + llvm::join(lengths, ", ") +
                                " = 0 (bind it with --dim to train behind a past)");
  }

  void makeInput(const onnx::ValueInfoProto &input) {
    std::string title = "input \"" + input.name() + "\"";
    if (!input.type().has_tensor_type())
      return find(title + (input.type().has_sequence_type()   ? " is a list of tensors"
                           : input.type().has_optional_type() ? " is an optional value"
                                                              : " is not a tensor"),
                  "a plan has a fixed number of inputs: export the model with tensors, one input each");
    const onnx::TypeProto::Tensor &tensor = input.type().tensor_type();
    std::optional<DType> dtype = dtypeFromOnnx(tensor.elem_type());
    if (!dtype)
      return find(title + ": tensors of " + onnxTypeName(tensor.elem_type()) + " are not supported");
    const onnx::TensorShapeProto *shape = shapeOf(input);
    if (!shape)
      return find(title + " has no shape, not even a rank", "export the model with the shapes of its inputs");
    if (shape->dim_size() > kMaxRank)
      return find(title + " has " + std::to_string(shape->dim_size()) + " dimensions; the limit is " +
                  std::to_string(kMaxRank));
    TensorType type{*dtype, {}};
    std::string text;
    bool bound = true;
    for (int axis = 0; axis < shape->dim_size(); ++axis) {
      const Dimension &dim = shape->dim(axis);
      std::optional<int64_t> value = isSymbolic(dim) ? bindDim(dim, input.name(), axis) : dim.dim_value();
      text += (axis ? ", " : "") + (isSymbolic(dim) ? dimLabel(dim, input.name(), axis) : std::to_string(dim.dim_value()));
      if (!value) {
        bound = false;
        continue;
      }
      if (*value < 0 || *value > kMaxDim)
        return find(title + ": dimension " + std::to_string(*value) + " of axis " + std::to_string(axis) +
                    " is outside [0, 2^31)");
      type.dims.push_back(*value);
    }
    report_.inputs.push_back({input.name(), "[" + text + "]", bound ? type : TensorType{*dtype, {}}, ""});
    if (!bound)
      return;
    int64_t bytes = byteSize(*dtype);
    for (int64_t dim : type.dims)
      if (llvm::MulOverflow(bytes, dim, bytes))
        return find(title + ": its dimensions multiply to more than 2^63 bytes");
    // Nobody can feed an input without elements: it is an empty constant (a cache bound to length 0).
    if (llvm::StringRef(input.name()).startswith("use_cache") && *dtype == DType::boolean && bytes == 1) {
      module_.addConstant(input.name(), type, {DataSource::Kind::inlineBytes, std::string(1, '\0'), ""});
      report_.inputs.back().role = "false";
      report_.repairs.push_back("input \"" + input.name() + "\" is false: the branch without a cache is trained");
    } else if (bytes == 0)
      module_.addConstant(input.name(), type, {DataSource::Kind::inlineBytes, "", ""});
    else
      module_.addInput(input.name(), type);
  }

  std::optional<int64_t> bindDim(const Dimension &dim, const std::string &input, int axis) {
    std::string label = dimLabel(dim, input, axis);
    report_.dims[label].push_back(input + "[" + std::to_string(axis) + "]");
    if (bindings_.count(label))
      return bindings_[label];
    if (dim.dim_param().empty()) {
      unbound_[label].push_back(input + "[" + std::to_string(axis) + "]");
      return std::nullopt;
    }
    bool complete = true;
    for (const std::string &name : dimNames(label))
      if (!bindings_.count(name)) {
        unbound_[name].push_back(input + "[" + std::to_string(axis) + "]");
        complete = false;
      }
    if (!complete)
      return std::nullopt;
    Expected<int64_t> value = evaluateDim(label, bindings_);
    if (value)
      return *value;
    find("input \"" + input + "\": " + value.error().findings().front().message);
    return std::nullopt;
  }

  void explainUnbound() {
    if (unbound_.empty())
      return;
    std::string flags;
    for (const auto &[name, places] : unbound_) {
      find("dimension \"" + name + "\" of " + llvm::join(std::set<std::string>(places.begin(), places.end()), ", ") +
           " has no value");
      flags += " --dim " + (name.find(' ') == std::string::npos ? name : "\"" + name + "\"") + "=N";
    }
    findings_.back().hint = "give each a number:" + flags;
  }

  /// A --dim that names nothing is a typing error.
  void explainUnknown() {
    std::set<std::string> known;
    for (const auto &[label, places] : report_.dims) {
      known.insert(label);
      std::set<std::string> names = dimNames(label);
      known.insert(names.begin(), names.end());
    }
    for (const auto &[name, value] : options_.dims)
      if (!known.count(name)) {
        std::string list;
        for (const std::string &other : known)
          list += (list.empty() ? "" : ", ") + other;
        find("--dim " + name + "=" + std::to_string(value) + ": no input has such a dimension",
             list.empty() ? "all dimensions of the model are fixed" : "its dimensions are " + list);
      }
  }

  const LoadedModel &model_;
  const FlatModel &flat_;
  const ImportOptions &options_;
  Module &module_;
  ImportReport &report_;
  DimBindings bindings_;
  std::set<std::string> microBatchDims_;
  std::vector<const onnx::ValueInfoProto *> inputs_;
  std::map<std::string, std::vector<std::string>> unbound_;
  std::vector<Diagnostic> findings_;
};

// --- roles -----------------------------------------------------------------------------------------------------------

/// What the readers of an input want it to be.
struct Wish {
  std::string role;
  int64_t high = 0;                  // of the range [0, high)
  std::optional<int64_t> ignoreIndex;
};

bool passesOn(const Node &node) {
  return node.op == OpKind::Reshape || node.op == OpKind::Cast || node.op == OpKind::Broadcast ||
         node.op == OpKind::Slice || node.op == OpKind::Transpose;
}

/// A parameter, perhaps cast.
bool isTable(const Module &module, const Value *value) {
  while (!value->isGlobal() && value->definition->op == OpKind::Cast)
    value = value->definition->input(0);
  return module.parameterOf(value) != nullptr;
}

Wish wishOf(const Module &module, const Uses &uses, const Value *input) {
  Wish wish;
  std::vector<const Value *> stack{input};
  std::set<const Value *> seen{input};
  while (!stack.empty()) {
    const Value *value = stack.back();
    stack.pop_back();
    for (const Node *node : uses.of(value)) {
      if (node->op == OpKind::Gather && node->input(1) == value && node->attributes.getInt("axis") == 0 &&
          isTable(module, node->input(0))) {
        int64_t rows = node->input(0)->type.dims[0];
        wish.high = wish.role == "tokens" ? std::min(wish.high, rows) : rows;
        wish.role = "tokens";
      } else if (node->op == OpKind::CrossEntropy && node->input(1) == value) {
        wish.role = "labels";
        wish.high = node->input(0)->type.dims[1];
        wish.ignoreIndex = node->attributes.getInt("ignore_index");
        return wish;
      } else if (passesOn(*node) && seen.insert(node->result()).second) {
        stack.push_back(node->result());
      }
    }
  }
  return wish;
}

/// "attention_mask", "position_ids", "token_type_ids".
std::string roleOfName(llvm::StringRef name) {
  if (name.contains_insensitive("mask"))
    return "ones";
  if (name.contains_insensitive("position"))
    return "iota";
  if (name.contains_insensitive("token_type") || name.contains_insensitive("segment"))
    return "zeros";
  return "";
}

constexpr const char *kRoles[] = {"tokens", "labels", "iota", "ones", "zeros", "data"};

} // namespace

std::vector<Diagnostic> makeInputs(const LoadedModel &model, const FlatModel &flat, const ImportOptions &options,
                                   Module &module, ImportReport &report) {
  return InputMaker(model, flat, options, module, report).run();
}

std::vector<Diagnostic> assignRoles(const ImportOptions &options, Module &module, ImportReport &report) {
  std::vector<Diagnostic> findings;
  Uses uses(*module.graph("forward"));
  for (Input &input : module.inputs) {
    if (input.role == "random" || input.role == "training")
      continue; // made by lowerings
    const std::string &name = input.value->name;
    bool isInteger = zerocc::isInteger(input.value->type.dtype);
    Wish wish = isInteger ? wishOf(module, uses, input.value.get()) : Wish();
    std::string byName = roleOfName(name);
    input.role = wish.role == "labels" ? wish.role : !byName.empty() ? byName : wish.role.empty() ? "data" : wish.role;
    if (auto asked = options.inputRoles.find(name); asked != options.inputRoles.end())
      input.role = asked->second;
    if ((input.role == "tokens" || input.role == "labels" || input.role == "iota") && wish.high > 0) {
      input.hasRange = true;
      input.high = wish.high;
    }
    if (input.role == "labels" && wish.ignoreIndex && (*wish.ignoreIndex < 0 || *wish.ignoreIndex >= wish.high)) {
      input.hasIgnore = true;
      input.ignoreIndex = *wish.ignoreIndex;
    }
    for (ImportedInput &reported : report.inputs)
      if (reported.name == name)
        reported.role = input.role;
  }
  for (const auto &[name, role] : options.inputRoles) {
    const std::string &wanted = name; // a binding cannot be captured
    if (!llvm::is_contained(kRoles, role))
      findings.push_back({"--input " + name + "=" + role + ": no such role",
                          "roles are tokens, labels, iota, ones, zeros, data"});
    if (llvm::none_of(report.inputs, [&](const ImportedInput &input) { return input.name == wanted; }))
      findings.push_back({"--input " + name + "=" + role + ": the model has no such input", ""});
  }
  return findings;
}

} // namespace zerocc
