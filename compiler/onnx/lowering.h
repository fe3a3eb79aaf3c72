#pragma once

#include "compiler/onnx/dims.h"
#include "compiler/onnx/folder.h"
#include "compiler/onnx/importer.h"
#include "compiler/onnx/inliner.h"
#include "compiler/onnx/parameters.h"
#include "compiler/ops/ops.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace zerocc {

using Values = llvm::SmallVector<Value *, 4>;

/// What a lowering function works with: one ONNX node, its operands as core values, and ways to build more.
///
/// The first thing that goes wrong is kept as the node's finding; from then on every building function gives null for
/// null operands, so lowerings need no checks between steps.
class NodeLowering {
public:
  /// `step`: of the loops around the node, "[3][0]"; "" outside of loops.
  NodeLowering(const FlatNode &node, Values operands, Module &module, Graph &graph, Folder &folder,
               const LoadedModel &model, const ImportOptions &options, std::string step = "");

  const FlatNode &node;
  int64_t version; // of the node's opset
  const ImportOptions &options;
  std::optional<Diagnostic> finding;

  /// Records why this node cannot be lowered; gives null.
  Value *fail(const std::string &reason, const std::string &hint = "");
  bool failed() const { return finding.has_value(); }

  // --- the node
  int operandCount() const { return static_cast<int>(operands_.size()); }
  bool has(int i) const {
    readOperands_ = std::max(readOperands_, i + 1);
    return i < operandCount() && operands_[i];
  }
  /// Operand i; fails when it is absent.
  Value *in(int i);
  bool wantsOutput(int i) const { return i < static_cast<int>(node.outputs.size()) && !node.outputs[i].empty(); }
  bool hasAttribute(const std::string &name) const {
    readAttributes_.insert(name);
    return node.attributes.count(name) != 0;
  }
  int64_t intAttribute(const std::string &name, int64_t otherwise);
  double floatAttribute(const std::string &name, double otherwise);
  std::string stringAttribute(const std::string &name, const std::string &otherwise);
  std::vector<int64_t> intsAttribute(const std::string &name);
  /// A tensor; fails when absent or not readable.
  std::optional<HostTensor> tensorAttribute(const std::string &name);
  /// A list that is an operand from opset `since` on and an attribute before; nullopt when absent.
  std::optional<std::vector<int64_t>> intsOperandOrAttribute(const std::string &name, int operand, int64_t since);

  // --- constants
  bool isConstant(Value *value) const { return value && folder_.isConstant(value); }
  /// The value on the host, or null without a finding.
  const HostTensor *host(Value *value) { return value ? folder_.evaluate(value) : nullptr; }
  /// The integers of a constant operand, which `what` names in the finding when it depends on data.
  std::optional<std::vector<int64_t>> constantInts(int operand, const char *what);
  std::optional<int64_t> constantInt(int operand, const char *what);
  /// The number in a constant with one element.
  std::optional<double> constantNumber(Value *value);
  /// The number all elements of a constant have.
  std::optional<double> uniformNumber(Value *value);
  Value *scalar(DType dtype, double value);
  /// The module's input of role `random`, i64[3], made when missing.
  Value *random();
  /// `training` in the micro-steps and `inference` in eval; with inference alone when importing for it.
  Value *whenTraining(Value *training, Value *inference);
  /// A number for one stream of this node's random numbers: of its name in the file (and its step in loops), so that no
  /// other change moves it.
  int64_t randomId(int64_t stream = 0) const;
  /// What the buffer that a running statistic lies in is to hold after what has been lowered before: a module used twice,
  /// or in a loop, moves it each time.
  Value *movedSoFar(Value *statistic);
  /// The buffer that a running statistic lies in is to hold `next` after a micro-step. True when `statistic` is one.
  bool updateBuffer(Value *statistic, Value *next);
  Value *constant(const HostTensor &host);
  Value *ints(llvm::ArrayRef<int64_t> values); // i64[n]
  Value *filled(const TensorType &type, double value);

  // --- building; axes and dims are already normal (non-negative)
  Node *make(OpKind op, llvm::ArrayRef<Value *> inputs, Attributes attributes = {});
  Value *emit(OpKind op, llvm::ArrayRef<Value *> inputs, Attributes attributes = {});
  Value *reshape(Value *x, llvm::ArrayRef<int64_t> dims);
  Value *transpose(Value *x, llvm::ArrayRef<int64_t> permutation);
  Value *broadcast(Value *x, llvm::ArrayRef<int64_t> dims);
  /// NumPy broadcasting of all values to their common shape.
  bool broadcastTogether(llvm::MutableArrayRef<Value *> values);
  Value *slice(Value *x, llvm::ArrayRef<int64_t> starts, llvm::ArrayRef<int64_t> sizes,
               llvm::ArrayRef<int64_t> steps = {});
  Value *sliceAxis(Value *x, int64_t axis, int64_t start, int64_t size);
  Value *concat(llvm::ArrayRef<Value *> xs, int64_t axis);
  Value *cast(Value *x, DType to);
  Value *iota(DType dtype, int64_t elements);
  Value *gather(Value *data, Value *indices, int64_t axis);
  Value *unary(OpKind op, Value *x) { return emit(op, {x}); }
  /// With broadcasting.
  Value *binary(OpKind op, Value *a, Value *b);
  Value *add(Value *a, Value *b) { return binary(OpKind::Add, a, b); }
  Value *sub(Value *a, Value *b) { return binary(OpKind::Sub, a, b); }
  Value *mul(Value *a, Value *b) { return binary(OpKind::Mul, a, b); }
  Value *div(Value *a, Value *b) { return binary(OpKind::Div, a, b); }
  Value *binary(OpKind op, Value *a, double b) { return a ? binary(op, a, scalar(a->type.dtype, b)) : nullptr; }
  Value *add(Value *a, double b) { return binary(OpKind::Add, a, b); }
  Value *mul(Value *a, double b) { return binary(OpKind::Mul, a, b); }
  Value *div(Value *a, double b) { return binary(OpKind::Div, a, b); }
  Value *compare(Value *a, Value *b, const char *kind);
  Value *select(Value *condition, Value *a, Value *b);
  Value *reduceSum(Value *x, llvm::ArrayRef<int64_t> axes);
  Value *reduceMax(Value *x, llvm::ArrayRef<int64_t> axes);
  /// As ONNX and NumPy define it: operands of any rank, batch dims broadcast; transposed operands become flags.
  Value *matmul(Value *a, Value *b);
  /// Moves an axis behind the others.
  Value *moveLast(Value *x, int64_t axis);

  /// `axis` made non-negative; fails outside [-rank, rank).
  std::optional<int64_t> normalAxis(int64_t axis, int64_t rank);
  /// An operand behind those that were asked for, or an attribute that was not, when no schema of ONNX knows it either: it
  /// would be left out in silence.
  std::optional<Diagnostic> unread() const;

  /// The same for a list, ascending; fails on repetition.
  std::optional<std::vector<int64_t>> normalAxes(std::vector<int64_t> axes, int64_t rank);

private:
  const onnx::AttributeProto *attribute(const std::string &name, int type);

  std::string step_;
  Values operands_;
  mutable int readOperands_ = 0; // one behind the last that was asked for
  mutable std::set<std::string> readAttributes_;
  GraphBuilder builder_;
  Folder &folder_;
  const LoadedModel &model_;
};

/// Whether this BatchNormalization normalizes by the batch and moves its running statistics: its operands 3 and 4 are
/// then buffers.
bool trainsBatchNormalization(const FlatNode &node, const ImportOptions &options);

/// Gives the results of a node, in output order; null for outputs it cannot give.
using LowerFunction = Values (*)(NodeLowering &n);

struct LoweringRow {
  const char *domain;
  const char *op;
  int since, until;
  LowerFunction lower;
  const char *limits; // what is refused; for `zerocc ops`
};
llvm::ArrayRef<LoweringRow> loweringTable();
/// What to do about an op without a row, or "".
std::string remedyFor(const FlatNode &node);

/// Lowers the whole model into module.graph("forward"). The module's inputs are made; parameters are made here.
/// `inputs` maps input names to values. Gives all findings.
std::vector<Diagnostic> lowerModel(const LoadedModel &model, const FlatModel &flat, ParameterTable &parameters,
                                   const ImportOptions &options, Module &module, ImportReport &report);

} // namespace zerocc
