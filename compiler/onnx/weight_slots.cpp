#include "compiler/onnx/weight_slots.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringRef.h"

#include <cctype>

namespace zerocc {

namespace {

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
    for (const auto &[name, subgraph] : node.subgraphs)
      spread(*subgraph, names);
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
    if (!isTransparent(*at.first, at.second)) {
      visit(at);
      continue;
    }
    for (const std::string &output : at.first->outputs)
      for (const Slot &next : of(output))
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
