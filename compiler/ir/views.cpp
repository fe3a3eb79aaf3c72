#include "compiler/ir/views.h"

namespace zerocc {

StridedView StridedView::contiguous(llvm::ArrayRef<int64_t> dims) {
  StridedView view;
  view.dims.assign(dims.begin(), dims.end());
  view.strides.assign(dims.size(), 1);
  for (int i = static_cast<int>(dims.size()) - 2; i >= 0; --i)
    view.strides[i] = view.strides[i + 1] * dims[i + 1];
  return view;
}

bool StridedView::isContiguous() const {
  int64_t expected = 1;
  for (int i = static_cast<int>(dims.size()) - 1; i >= 0; --i) {
    if (dims[i] != 1 && strides[i] != expected)
      return false;
    expected *= dims[i];
  }
  return true;
}

// A reshape keeps strides when the old dims can be grouped so that each group, which must be walkable with one
// stride, is split into new dims. Groups are found by matching products from the left (as NumPy does).
static std::optional<StridedView> reshapeView(const StridedView &from, llvm::ArrayRef<int64_t> dims) {
  int64_t elements = 1;
  for (int64_t d : from.dims)
    elements *= d;
  if (elements == 0 || from.isContiguous()) {
    StridedView view = StridedView::contiguous(dims);
    view.offset = from.offset;
    return view;
  }
  Dims oldDims, oldStrides; // without dims of 1
  for (size_t i = 0; i < from.dims.size(); ++i)
    if (from.dims[i] != 1) {
      oldDims.push_back(from.dims[i]);
      oldStrides.push_back(from.strides[i]);
    }
  StridedView view;
  view.dims.assign(dims.begin(), dims.end());
  view.strides.assign(dims.size(), 0);
  view.offset = from.offset;
  size_t o = 0, n = 0;
  while (o < oldDims.size()) {
    size_t oEnd = o + 1, nEnd = n;
    int64_t oldProduct = oldDims[o], newProduct = 1;
    while (newProduct != oldProduct) {
      if (newProduct < oldProduct) {
        if (nEnd == dims.size())
          return std::nullopt;
        newProduct *= dims[nEnd++];
      } else {
        oldProduct *= oldDims[oEnd++];
      }
    }
    for (size_t i = o; i + 1 < oEnd; ++i)
      if (oldStrides[i] != oldStrides[i + 1] * oldDims[i + 1])
        return std::nullopt;
    int64_t stride = oldStrides[oEnd - 1];
    for (size_t i = nEnd; i-- > n;) {
      view.strides[i] = stride;
      stride *= dims[i];
    }
    o = oEnd;
    n = nEnd;
  }
  return view; // trailing new dims are 1: their stride does not matter
}

std::optional<StridedView> composeView(const Node &node, const StridedView &operand) {
  switch (node.op) {
  case OpKind::Reshape:
    return reshapeView(operand, node.result()->type.dims);
  case OpKind::Transpose: {
    StridedView view;
    view.offset = operand.offset;
    for (int64_t from : node.attributes.getInts("perm")) {
      view.dims.push_back(operand.dims[from]);
      view.strides.push_back(operand.strides[from]);
    }
    return view;
  }
  case OpKind::Broadcast: {
    StridedView view;
    view.offset = operand.offset;
    view.dims = node.result()->type.dims;
    view.strides.assign(view.dims.size(), 0);
    size_t lead = view.dims.size() - operand.dims.size();
    for (size_t i = 0; i < operand.dims.size(); ++i)
      view.strides[lead + i] = operand.dims[i] == 1 ? 0 : operand.strides[i];
    return view;
  }
  case OpKind::Slice: {
    StridedView view;
    view.offset = operand.offset;
    view.dims = node.result()->type.dims;
    std::vector<int64_t> starts = node.attributes.getInts("starts"), steps = node.attributes.getInts("steps");
    for (size_t i = 0; i < operand.dims.size(); ++i) {
      int64_t step = steps.empty() ? 1 : steps[i];
      view.offset += view.dims[i] == 0 ? 0 : starts[i] * operand.strides[i];
      view.strides.push_back(operand.strides[i] * step);
    }
    return view;
  }
  default:
    return std::nullopt;
  }
}

bool isViewNode(const Node &node) {
  return node.op == OpKind::Reshape || node.op == OpKind::Transpose || node.op == OpKind::Broadcast ||
         node.op == OpKind::Slice;
}

const Value *aliasedValue(const Value *value) {
  if (value->isGlobal())
    return nullptr;
  if (value->place.kind == Place::Kind::value)
    return value->place.base;
  const Node &node = *value->definition;
  if (opAlias(node.op) == Alias::View)
    return node.input(0);
  if (opAlias(node.op) == Alias::Collective)
    return node.attributes.getInt("in_place") ? node.input(0) : nullptr;
  int operand = inPlaceOperand(node.op, value->resultIndex);
  return operand < 0 ? nullptr : node.input(operand);
}

const Value *rootOf(const Value *value) {
  while (const Value *next = aliasedValue(value))
    value = next;
  return value;
}

RootOffset locate(const Value *value) {
  const Value *operand = aliasedValue(value);
  if (!operand) {
    RootOffset here;
    here.root = value;
    here.view = StridedView::contiguous(value->type.dims);
    return here;
  }
  RootOffset at = locate(operand);
  int64_t elementBytes = byteSize(value->type.dtype);
  if (value->place.kind == Place::Kind::value) {
    at.bytes += value->place.offset * elementBytes;
    at.view = StridedView::contiguous(value->type.dims);
    return at;
  }
  const Node &node = *value->definition;
  if (isViewNode(node)) {
    std::optional<StridedView> view = composeView(node, at.view);
    assert(view && "a view that no strides describe: materialize_views has not run");
    at.bytes += view->offset * elementBytes;
    at.view = *view;
    at.view.offset = 0;
    return at;
  }
  if (node.op == OpKind::Member) {
    at.bytes += node.attributes.getInt("offset") * elementBytes;
    if (node.attributes.getInt("part"))
      at.rankStrideBytes = value->type.elements() * elementBytes;
    at.view = StridedView::contiguous(value->type.dims);
    return at;
  }
  if (node.op == OpKind::ReduceStart) // in place: the own slot of the whole buffer
    at.rankStrideBytes = value->type.elements() * elementBytes;
  at.view = StridedView::contiguous(value->type.dims);
  return at;
}

} // namespace zerocc
