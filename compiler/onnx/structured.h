#pragma once

#include "compiler/onnx/lowering.h"

#include <functional>
#include <memory>

namespace zerocc {

/// What unrolling may cost in a whole import: nodes that steps lower or make, what they read and hand on, and copies of lists,
/// together.
constexpr int64_t kMaxUnrolledNodes = 200000;

class UnrollBudget {
public:
  /// False when that is more than is left.
  bool spend(int64_t nodes) {
    left_ = nodes <= left_ ? left_ - nodes : 0;
    isSpent_ |= left_ == 0;
    return !isSpent_;
  }

private:
  int64_t left_ = kMaxUnrolledNodes;
  bool isSpent_ = false;
};

/// A list of tensors whose length is known, as are the places it is read and changed at: it exists while compiling only.
/// Lists do not change; one that grows at its end shares what it has, so that a loop of n appends costs n.
class TensorList {
public:
  TensorList() : entries_(std::make_shared<std::vector<Value *>>()) {}
  explicit TensorList(llvm::ArrayRef<Value *> values)
      : entries_(std::make_shared<std::vector<Value *>>(values.begin(), values.end())), size_(values.size()) {}

  llvm::ArrayRef<Value *> values() const { return llvm::ArrayRef<Value *>(*entries_).take_front(size_); }
  int64_t size() const { return static_cast<int64_t>(size_); }
  /// In nodes, as UnrollBudget counts: entries that are copied are small.
  int64_t costOfCopy() const { return 1 + size() / 64; }
  int64_t costOfInsert(int64_t place) const { return place == size() && size_ == entries_->size() ? 1 : costOfCopy(); }
  TensorList inserted(int64_t place, Value *value) const;
  TensorList erased(int64_t place) const;

private:
  std::shared_ptr<std::vector<Value *>> entries_; // of this list first, then those of lists grown from it
  size_t size_ = 0;
};

struct Container;

/// What a name of the file stands for: a tensor, a list or an optional value; nothing, as long as it is unknown because
/// of an earlier finding, or for an operand that is left out.
struct Bound {
  Bound(Value *tensor = nullptr) : tensor(tensor) {}
  static Bound list(TensorList list);
  static Bound optional(Bound content);

  explicit operator bool() const { return tensor || container; }
  /// Null when it is none.
  const TensorList *asList() const;
  /// The value in an optional (nothing when it is empty); null when it is none.
  const Bound *asOptional() const;
  const char *kindName() const;

  Value *tensor = nullptr;
  std::shared_ptr<const Container> container;
};
using Bounds = llvm::SmallVector<Bound, 4>;

struct Container {
  bool isOptional = false;
  TensorList list;
  Bound content;
};

/// A value for an input of a body. `source`: the name of the file that it is another name of, or "".
struct BodyInput {
  Bound value;
  std::string source;
};

/// What lowering a node with bodies or lists works with.
struct StructuredNode {
  NodeLowering &n; // lists and optionals are null there
  llvm::ArrayRef<Bound> operands;
  UnrollBudget &budget;
  /// Lowers a body; its nodes are named by the step, unless that is -1. Gives all outputs; nothing when something could
  /// not be lowered: either it has been found there (then isUnknown is set), or `n` has failed.
  std::function<std::optional<Bounds>(const FlatGraph &body, llvm::ArrayRef<BodyInput> inputs, int64_t step)> run;
  /// Whether anything reads output `i`.
  std::function<bool(size_t i)> isNeeded;
  /// Fails when the name stands for rows that data chooses, which cannot be put together with others.
  std::function<bool(const std::string &name)> isWhole;

  std::vector<std::string> sources; // by output: the name of the file that it is another name of, or ""
  std::string note;                 // for the report, once per import
  bool isUnknown = false;

  /// The body of that name; fails when there is none.
  const FlatGraph *body(const std::string &name);
  /// Operand `i` as a list; fails when it is none.
  const TensorList *list(size_t i);
  /// Fails when the budget does not allow it.
  bool spend(int64_t nodes);
};

/// Gives the results of a node, in output order; anything when it has failed or is unknown.
using StructuredFunction = Bounds (*)(StructuredNode &s);

struct StructuredRow {
  const char *domain;
  const char *op;
  int since, until;
  StructuredFunction lower;
  const char *limits;
};
/// Null when the node is no op with bodies or lists.
const StructuredRow *structuredRowOf(const FlatNode &node);
llvm::ArrayRef<StructuredRow> structuredTable();

/// Tensors of one shape along a new axis, or joined along an axis they have. Axes are normal.
Value *stackAll(NodeLowering &n, llvm::ArrayRef<Value *> parts, int64_t axis);

// unroll.cpp
Bounds lowerIf(StructuredNode &s);
Bounds lowerLoop(StructuredNode &s);
Bounds lowerScan(StructuredNode &s);
Bounds lowerSequenceMap(StructuredNode &s);
// lower_list.cpp
Bounds lowerConcatFromSequence(StructuredNode &s);
Bounds lowerOptional(StructuredNode &s);
Bounds lowerOptionalGetElement(StructuredNode &s);
Bounds lowerOptionalHasElement(StructuredNode &s);
Bounds lowerSequenceAt(StructuredNode &s);
Bounds lowerSequenceConstruct(StructuredNode &s);
Bounds lowerSequenceEmpty(StructuredNode &s);
Bounds lowerSequenceErase(StructuredNode &s);
Bounds lowerSequenceInsert(StructuredNode &s);
Bounds lowerSequenceLength(StructuredNode &s);
Bounds lowerSplitToSequence(StructuredNode &s);
// lower_attention.cpp
Bounds lowerFlexAttention(StructuredNode &s);

} // namespace zerocc
