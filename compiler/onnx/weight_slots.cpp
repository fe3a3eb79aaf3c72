#include "compiler/onnx/weight_slots.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringRef.h"

#include <algorithm>
#include <cctype>

namespace zerocc {

namespace {

/// The names that an operand goes on under, unchanged but for shape and dtype; none where the node does something with it.
/// Bodies read what is scanned or mapped as inputs of their own, lists give back what was put in. What the first step of a
/// loop starts from is no such operand: a weight would look like an initial state, and those are constants.
llvm::ArrayRef<std::string> namesBehind(const FlatNode &node, int input) {
  static const std::set<std::string> ops = {
      "Identity",  "Transpose",     "Reshape",    "Cast",          "CastLike", "Squeeze",           "Unsqueeze",
      "Flatten",   "Expand",        "SequenceAt", "SequenceErase", "Optional", "OptionalGetElement"};
  if (!node.domain.empty())
    return {};
  const std::string &op = node.op;
  if ((input == 0 && ops.count(op)) || op == "SequenceConstruct" || (op == "SequenceInsert" && input < 2))
    return node.outputs;
  if ((op != "Scan" && op != "SequenceMap") || node.subgraphs.size() != 1)
    return {};
  const std::vector<std::string> &inputs = node.subgraphs[0].second->inputs; // those that are scanned stand last
  const size_t lengths = op == "Scan" && node.version < 9 ? 1 : 0, place = input - lengths;
  auto scanned = node.attributes.find("num_scan_inputs");
  const int64_t count = scanned == node.attributes.end() ? 0 : scanned->second->i();
  const bool isState = op == "Scan" && static_cast<int64_t>(place) < static_cast<int64_t>(inputs.size()) - count;
  if (static_cast<size_t>(input) < lengths || place >= inputs.size() || isState)
    return {};
  return llvm::ArrayRef<std::string>(inputs).slice(place, 1);
}

/// Results that say nothing about the operand's values.
bool readsShapeOnly(const FlatNode &node) {
  return node.domain.empty() && (node.op == "Shape" || node.op == "Size");
}

std::string lastPart(const std::string &name) {
  size_t at = name.find_last_of("./");
  return at == std::string::npos ? name : name.substr(at + 1);
}

} // namespace

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

bool namedLikeParameter(const std::string &name) {
  std::string last = lastPart(name);
  static const char *endings[] = {"weight", "bias",  "gamma", "beta",       "kernel",    "embedding",
                                  "embed",  "token", "scale", "embeddings", "parameter", "param"};
  for (const char *ending : endings)
    if (llvm::StringRef(last).endswith(ending))
      return true;
  return llvm::StringRef(last).startswith("lora_");
}

bool namedLikeBuffer(const std::string &name) {
  llvm::StringRef text(name);
  return text.contains("inv_freq") || text.contains("rotary") || text.contains("mask") ||
         text.endswith("cos_cached") || text.endswith("sin_cached") || text.contains("running_");
}

bool namedByExporter(const std::string &name) {
  llvm::StringRef text(name);
  if (text.startswith("onnx::") || text.startswith("/") || text.endswith("_output_0"))
    return true;
  text.consume_front("val_");
  return !text.empty() && text.find_if_not([](char c) {
    return std::isdigit(static_cast<unsigned char>(c));
  }) == llvm::StringRef::npos;
}

std::string describe(Slot slot) {
  const FlatNode &node = *slot.first;
  std::string name =
      !node.name.empty() ? node.name : node.op + ":" + (node.outputs.empty() ? "" : node.outputs[0]);
  return name + ":" + std::to_string(slot.second);
}

void spread(const FlatGraph &graph, std::set<std::string> &names) {
  for (const FlatNode &node : graph.nodes) {
    for (const auto &[name, subgraph] : node.subgraphs) {
      // Steps hand on what earlier ones have made: like outputs, inputs count as reached; not a loop's step and condition.
      const size_t first = node.op == "Loop" ? 2 : 0;
      for (size_t i = first; i < subgraph->inputs.size(); ++i)
        names.insert(subgraph->inputs[i]);
      spread(*subgraph, names);
    }
    bool isReached = !readsShapeOnly(node) &&
                     llvm::any_of(node.inputs, [&](const std::string &input) { return names.count(input); });
    if (isReached || !node.subgraphs.empty())
      names.insert(node.outputs.begin(), node.outputs.end());
  }
}

void Readers::collect(const FlatGraph &graph) {
  for (const FlatNode &node : graph.nodes) {
    for (size_t i = 0; i < node.inputs.size(); ++i)
      if (!node.inputs[i].empty())
        readers_[node.inputs[i]].push_back({&node, static_cast<int>(i)});
    for (const auto &[name, subgraph] : node.subgraphs)
      collect(*subgraph);
  }
}

const std::vector<Slot> &Readers::of(const std::string &name) const {
  static const std::vector<Slot> none;
  auto found = readers_.find(name);
  return found == readers_.end() ? none : found->second;
}

void Readers::eachEnd(Slot slot, const std::function<void(Slot)> &visit) const {
  std::vector<Slot> stack{slot};
  std::set<Slot> seen{slot};
  while (!stack.empty()) {
    Slot at = stack.back();
    stack.pop_back();
    const llvm::ArrayRef<std::string> behind = namesBehind(*at.first, at.second);
    if (behind.empty()) {
      visit(at);
      continue;
    }
    for (const std::string &name : behind)
      for (const Slot &next : of(name))
        if (seen.insert(next).second)
          stack.push_back(next);
  }
}

std::string Readers::recoveredName(Slot slot) const {
  if (slot.first->op == "Identity" && slot.first->domain.empty() && !namedByExporter(slot.first->outputs[0]))
    return slot.first->outputs[0];
  std::string name;
  eachEnd(slot, [&](Slot end) {
    SlotMeaning meaning = meaningOf(*end.first, end.second);
    if (name.empty() && meaning.kind != SlotKind::none && !end.first->scope.empty())
      name = end.first->scope + "." + meaning.suffix;
  });
  return name;
}

} // namespace zerocc
