#pragma once

#include "compiler/onnx/lowering.h"

#include <deque>
#include <functional>
#include <map>

namespace zerocc {

/// Rows that data chooses: `idx = NonZero(mask); y = f(x[idx]); out.index_add(idx, y)`, as exporters unroll
/// mixtures of experts. How many rows there are is not known when compiling, so all of them are computed, and
/// where the results are added, those that the mask has not chosen add zero.
///
/// A place is a token and a choice, [K, T] or [T, K]; what depends on the token alone, as the expert does, is
/// computed once per token and repeated where it meets something that depends on both.
///
/// That is the same only if no row looks at another and nothing depends on their number. So every value
/// behind a NonZero is tagged with the axis that its rows lie along (or, for shapes, the place of their
/// number), op by op; a node that mixes rows, or an op without a rule here, is refused.
class RoutedRows {
public:
  using Maker = std::function<NodeLowering(const FlatNode &, Values)>;

  /// Whether the node reads rows that data chooses, or is a NonZero that may choose them.
  bool concerns(const FlatNode &node) const;
  /// Lowers such a node by its row's function. `n` is its lowering, `make` makes more for replacements of the
  /// node.
  Values lower(NodeLowering &n, LowerFunction function, const Maker &make);
  /// A node that does not concern them defines its outputs anew (bodies of loops are lowered many times).
  void forget(const FlatNode &node);
  /// Each `to` is another name of the `from` beside it, "" of none; all at once, as the steps of a loop swap names.
  void alias(llvm::ArrayRef<std::string> from, llvm::ArrayRef<std::string> to);
  /// Why an output of the model cannot be this name, or nullopt.
  std::optional<Diagnostic> asOutput(const std::string &name) const;
  /// For the report: what was computed densely.
  void report(ImportReport &report) const;

private:
  /// Which rows a value has: all, or those of one axis of the mask, to be repeated along the other.
  enum class Form : uint8_t { all, perColumn, perRow };
  struct Tag {
    int route = 0;
    bool isSize = false; // an integer tensor that holds the number of rows
    int64_t axis = 0;    // of the rows; of a size the place of the number, -1: somewhere
    Form form = Form::all;
  };
  struct Route {
    std::string title;             // of the NonZero
    Value *isChosen;               // bool[rows]
    int64_t rows;                  // all
    int64_t maskRows, maskColumns; // rows = maskRows * maskColumns
    int64_t count(Form form) const {
      return form == Form::all ? rows : form == Form::perColumn ? maskColumns : maskRows;
    }
  };
  using Result = std::optional<Tag>;

  const Tag *tagOf(const NodeLowering &n, size_t operand) const;
  /// The form that all rows among the operands have, when the op keeps it.
  Form commonForm(NodeLowering &n) const;
  /// Operands to gather with fewer rows, because `indices` repeat; none when they do not. Sets form_.
  std::optional<Values> gatherOnce(NodeLowering &n);
  Value *allRows(NodeLowering &n, Value *value, const Tag &tag) const;
  Values start(NodeLowering &n);
  Values addWhereChosen(NodeLowering &n, LowerFunction function, const Maker &make);
  /// The tag of the results; fails the lowering when there is no rule.
  Result resultTag(NodeLowering &n, const Values &results);
  Result sizeTag(NodeLowering &n, const Values &results);
  Result rowsTag(NodeLowering &n, const Values &results);
  Result elementwiseTag(NodeLowering &n, Value *result);
  Result reshapedTag(NodeLowering &n, const Tag &tag, Value *operand, Value *result);
  Result expandedTag(NodeLowering &n, Value *result);
  Result gatheredTag(NodeLowering &n);
  Result refuse(NodeLowering &n, const std::string &why);

  std::map<std::string, Tag> tags_; // by the names of the file
  Form form_ = Form::all;           // of the rows of the node at hand
  std::vector<Route> routes_;
  std::deque<FlatNode> replacements_;
  std::deque<onnx::AttributeProto> attributes_;
};

} // namespace zerocc
