#include "passes/materialize_views.h"

#include "compiler/ir/views.h"
#include "compiler/ops/ops.h"

namespace zerocc {
namespace {

enum class Reads { anyStrides, matrixStrides, contiguous };

Reads readsOf(OpKind op) {
  switch (op) {
  case OpKind::MatMul:
    return Reads::matrixStrides;
  case OpKind::Copy:
  case OpKind::Concat:
  case OpKind::Pad:
  case OpKind::Cast:
  case OpKind::Select:
  case OpKind::ReduceSum:
  case OpKind::ReduceMax:
    return Reads::anyStrides;
  default:
    // The elementwise ops stand together in the op table, in two groups.
    return (op >= OpKind::Neg && op <= OpKind::Select) || (op >= OpKind::Round && op <= OpKind::ShiftRight)
               ? Reads::anyStrides
               : Reads::contiguous;
  }
}

// A leading dimension and a transpose flag describe the last two dims when one of them has unit stride and
// the other steps over whole rows.
bool isMatrix(const StridedView &view) {
  size_t rank = view.dims.size();
  if (rank < 2)
    return false;
  int64_t rows = view.dims[rank - 2], columns = view.dims[rank - 1];
  int64_t rowStride = view.strides[rank - 2], columnStride = view.strides[rank - 1];
  bool rowMajor = (columnStride == 1 || columns == 1) && (rowStride >= columns || rows == 1);
  bool columnMajor = (rowStride == 1 || rows == 1) && (columnStride >= rows || columns == 1);
  if (!rowMajor && !columnMajor)
    return false;
  for (size_t i = 0; i + 2 < rank; ++i)
    if (view.strides[i] < 0)
      return false;
  return true;
}

bool canRead(OpKind op, const StridedView &view) {
  switch (readsOf(op)) {
  case Reads::anyStrides:
    return true;
  case Reads::matrixStrides:
    return isMatrix(view);
  case Reads::contiguous:
    return view.isContiguous();
  }
  return false;
}

int64_t materialize(Module &module, Graph &graph) {
  llvm::DenseMap<const Value *, StridedView> views;
  auto viewOf = [&](const Value *value) {
    auto found = views.find(value);
    return found != views.end() ? found->second : StridedView::contiguous(value->type.dims);
  };
  std::vector<Node *> nodes = std::move(graph.nodes);
  graph.nodes.clear();
  GraphBuilder g(module, graph);
  int64_t copies = 0;
  auto copyOf = [&](Value *value, const Node &reader) {
    g.location = reader.location;
    ++copies;
    return g.make(OpKind::Copy, {value})->result();
  };
  for (Node *node : nodes) {
    if (isViewNode(*node)) {
      std::optional<StridedView> view = composeView(*node, viewOf(node->input(0)));
      if (!view) {
        node->inputs[0] = copyOf(node->input(0), *node);
        view = composeView(*node, viewOf(node->input(0)));
      }
      views[node->result()] = *view;
    } else {
      for (Value *&input : node->inputs)
        if (!canRead(node->op, viewOf(input)))
          input = copyOf(input, *node);
    }
    graph.nodes.push_back(node);
  }
  return copies;
}

} // namespace

Expected<PassReport> materializeViews(Module &module, const Decisions &) {
  PassReport report;
  for (auto &graph : module.graphs)
    report.counters["copies"] += materialize(module, *graph);
  report.changed = report.counters["copies"] != 0;
  return report;
}

} // namespace zerocc
