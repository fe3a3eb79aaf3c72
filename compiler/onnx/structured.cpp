#include "compiler/onnx/structured.h"

#include "compiler/onnx/structure.h"

#include "llvm/ADT/STLExtras.h"

namespace zerocc {

TensorList TensorList::inserted(int64_t place, Value *value) const {
  TensorList out = *this;
  if (place == size() && size_ == entries_->size()) { // nobody has grown from here yet
    out.entries_->push_back(value);
    ++out.size_;
    return out;
  }
  std::vector<Value *> copy = values().vec();
  copy.insert(copy.begin() + place, value);
  return TensorList(copy);
}

TensorList TensorList::erased(int64_t place) const {
  std::vector<Value *> copy = values().vec();
  copy.erase(copy.begin() + place);
  return TensorList(copy);
}

Bound Bound::list(TensorList list) {
  Bound bound;
  bound.container = std::make_shared<const Container>(Container{false, std::move(list), {}});
  return bound;
}

Bound Bound::optional(Bound content) {
  Bound bound;
  bound.container = std::make_shared<const Container>(Container{true, {}, std::move(content)});
  return bound;
}

const TensorList *Bound::asList() const { return container && !container->isOptional ? &container->list : nullptr; }
const Bound *Bound::asOptional() const { return container && container->isOptional ? &container->content : nullptr; }

const char *Bound::kindName() const {
  return tensor ? "a tensor" : asList() ? "a list of tensors" : asOptional() ? "an optional value" : "missing";
}

const FlatGraph *StructuredNode::body(const std::string &name) {
  for (const auto &[key, graph] : n.node.subgraphs)
    if (key == name)
      return graph.get();
  n.fail("attribute \"" + name + "\" is missing");
  return nullptr;
}

const TensorList *StructuredNode::list(size_t i) {
  const TensorList *list = i < operands.size() ? operands[i].asList() : nullptr;
  if (!list)
    n.fail("operand " + std::to_string(i) + " must be a list of tensors, is " +
           (i < operands.size() ? operands[i].kindName() : "missing"));
  return list;
}

bool StructuredNode::spend(int64_t nodes) {
  if (budget.spend(nodes))
    return true;
  n.fail("loops and lists are unrolled, and that makes more than " + std::to_string(kMaxUnrolledNodes) + " nodes",
         "train on shorter sequences (--dim)");
  return false;
}

static constexpr int kNow = kNewestOpset;

static constexpr StructuredRow kStructuredRows[] = {
    {"", "ConcatFromSequence", 11, kNow, lowerConcatFromSequence, ""},
    {"", "If", 1, kNow, lowerIf, "known condition"},
    {"", "Loop", 1, kNow, lowerLoop, "known number of steps; unrolled"},
    {"", "Optional", 15, kNow, lowerOptional, "within a graph"},
    {"", "OptionalGetElement", 15, kNow, lowerOptionalGetElement, ""},
    {"", "OptionalHasElement", 15, kNow, lowerOptionalHasElement, ""},
    {"", "Scan", 8, kNow, lowerScan, "unrolled"},
    {"", "SequenceAt", 11, kNow, lowerSequenceAt, "known position"},
    {"", "SequenceConstruct", 11, kNow, lowerSequenceConstruct, "within a graph"},
    {"", "SequenceEmpty", 11, kNow, lowerSequenceEmpty, "within a graph"},
    {"", "SequenceErase", 11, kNow, lowerSequenceErase, "known position"},
    {"", "SequenceInsert", 11, kNow, lowerSequenceInsert, "known position"},
    {"", "SequenceLength", 11, kNow, lowerSequenceLength, ""},
    {"", "SequenceMap", 17, kNow, lowerSequenceMap, "unrolled"},
    {"", "SplitToSequence", 11, kNow, lowerSplitToSequence, "known sizes"},
    {"ai.onnx.preview", "FlexAttention", 1, kNow, lowerFlexAttention, ""},
};

llvm::ArrayRef<StructuredRow> structuredTable() { return kStructuredRows; }

const StructuredRow *structuredRowOf(const FlatNode &node) {
  const auto *found =
      llvm::find_if(kStructuredRows, [&](const StructuredRow &row) { return node.op == row.op && node.domain == row.domain; });
  return found == std::end(kStructuredRows) ? nullptr : found;
}

} // namespace zerocc
