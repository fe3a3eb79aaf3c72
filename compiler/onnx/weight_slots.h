#pragma once

#include "compiler/onnx/parameters.h"

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace zerocc {

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

SlotMeaning meaningOf(const FlatNode &node, int input);
/// NODE:INPUT
std::string describe(Slot slot);

/// "weight", "ln.bias", "cls_token", "pos_embed", "layer_scale1.gamma", "lora_A".
bool namedLikeParameter(const std::string &name);
/// Buffers that sit in weight slots: rotary tables and masks.
bool namedLikeBuffer(const std::string &name);
/// Names that exporters make up: "onnx::MatMul_12", "val_3", "12", "_inlined_3", "/h/Constant_output_0".
bool namedByExporter(const std::string &name);

/// Adds to the set the names of what is computed from names in it.
void spread(const FlatGraph &graph, std::set<std::string> &names);

/// Who reads each name. A reader behind Identity, Transpose, Reshape, Cast, … counts as a reader of what
/// these were fed with.
class Readers {
public:
  explicit Readers(const FlatGraph &graph) { collect(graph); }

  /// Those that name it themselves.
  const std::vector<Slot> &of(const std::string &name) const;
  /// Calls visit(slot) for the ends of the chains of such ops that start at `slot`.
  void eachEnd(Slot slot, const std::function<void(Slot)> &visit) const;
  /// What the reader at `slot` would have called its operand: by the Identity that the exporter left, or by
  /// the module that the first real reader behind it belongs to. "" when neither is known.
  std::string recoveredName(Slot slot) const;

private:
  void collect(const FlatGraph &graph);
  std::map<std::string, std::vector<Slot>> readers_;
};

} // namespace zerocc
