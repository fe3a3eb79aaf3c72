// Lists of tensors and optional values: they exist while compiling only, and what remains is the tensors. Lengths are
// always known; positions have to be.

#include "compiler/onnx/structured.h"

#include "llvm/ADT/STLExtras.h"

namespace zerocc {
namespace {

/// The position in operand `i`, or `otherwise` where that is left out; -1 is the last of `size` places.
std::optional<int64_t> positionOf(StructuredNode &s, int operand, int64_t otherwise, int64_t size) {
  if (!s.n.has(operand) && (operand >= static_cast<int>(s.operands.size()) || !s.operands[operand]))
    return otherwise;
  std::optional<int64_t> at = s.n.constantInt(operand, "the position");
  if (!at)
    return std::nullopt;
  return *at < 0 ? *at + size : *at;
}

bool isWithin(StructuredNode &s, int64_t place, int64_t places, int64_t size) {
  if (place >= 0 && place < places)
    return true;
  s.n.fail("place " + std::to_string(place) + " is outside of a list of " + std::to_string(size) + " tensors");
  return false;
}

} // namespace

Bounds lowerSequenceConstruct(StructuredNode &s) {
  Values entries;
  for (size_t i = 0; i < s.operands.size(); ++i) {
    if (!s.n.in(static_cast<int>(i)))
      return {};
    entries.push_back(s.operands[i].tensor);
    if (entries[i]->type.dtype != entries[0]->type.dtype) {
      s.n.fail("tensors of a list have one type: " + print(entries[0]->type) + " and " + print(entries[i]->type));
      return {};
    }
  }
  return {Bound::list(TensorList(entries))};
}

Bounds lowerSequenceEmpty(StructuredNode &) { return {Bound::list(TensorList())}; }

Bounds lowerSequenceInsert(StructuredNode &s) {
  const TensorList *list = s.list(0);
  Value *value = list ? s.n.in(1) : nullptr;
  if (!value)
    return {};
  std::optional<int64_t> place = positionOf(s, 2, list->size(), list->size());
  if (!place || !isWithin(s, *place, list->size() + 1, list->size()) || !s.spend(list->costOfInsert(*place)))
    return {};
  if (list->size() > 0 && list->values()[0]->type.dtype != value->type.dtype) {
    s.n.fail("tensors of a list have one type: " + print(list->values()[0]->type) + " and " + print(value->type));
    return {};
  }
  return {Bound::list(list->inserted(*place, value))};
}

Bounds lowerSequenceErase(StructuredNode &s) {
  const TensorList *list = s.list(0);
  std::optional<int64_t> place;
  if (list)
    place = positionOf(s, 1, list->size() - 1, list->size());
  if (!place || !isWithin(s, *place, list->size(), list->size()) || !s.spend(list->costOfCopy()))
    return {};
  return {Bound::list(list->erased(*place))};
}

Bounds lowerSequenceAt(StructuredNode &s) {
  const TensorList *list = s.list(0);
  std::optional<int64_t> place;
  if (list && s.n.in(1))
    place = positionOf(s, 1, 0, list->size());
  if (!place || !isWithin(s, *place, list->size(), list->size()))
    return {};
  return {list->values()[*place]};
}

Bounds lowerSequenceLength(StructuredNode &s) {
  const TensorList *list = s.list(0);
  return {list ? s.n.scalar(DType::i64, static_cast<double>(list->size())) : nullptr};
}

/// Parts of given sizes, of one size (the last may be smaller), or of one element, then without the axis unless keepdims.
/// ONNX ignores keepdims where a split is given. PyTorch's exporter writes unbind with both, though, and ONNX Runtime runs it
/// as that: a split of the number 1 counts as none.
Bounds lowerSplitToSequence(StructuredNode &s) {
  NodeLowering &n = s.n;
  Value *x = n.in(0);
  std::optional<int64_t> axis = x ? n.normalAxis(n.intAttribute("axis", 0), x->type.rank()) : std::nullopt;
  if (!axis)
    return {};
  const int64_t dim = x->type.dims[*axis];
  const bool isGiven = n.has(1);
  bool dropsAxis = !isGiven && n.intAttribute("keepdims", 1) == 0;
  std::vector<int64_t> sizes{1};
  if (isGiven) {
    std::optional<std::vector<int64_t>> known = n.constantInts(1, "the split");
    if (!known)
      return {};
    sizes = *known;
  }
  if (!isGiven || n.in(1)->type.rank() == 0) {
    const int64_t part = sizes[0];
    if (isGiven && part == 1 && n.intAttribute("keepdims", 1) == 0) {
      dropsAxis = true;
      s.note = "SplitToSequence with a split of 1 and keepdims=0 drops the axis, as PyTorch's unbind and ONNX Runtime do; by "
               "the letter of ONNX it keeps it";
    }
    if (part < 1) {
      n.fail("parts of " + std::to_string(part) + " elements");
      return {};
    }
    const int64_t parts = dim / part + (dim % part != 0);
    if (!s.spend(parts))
      return {};
    sizes.assign(parts, part);
    if (dim % part != 0)
      sizes.back() = dim % part;
  } else if (!s.spend(static_cast<int64_t>(sizes.size()))) {
    return {};
  }
  std::vector<Value *> entries;
  int64_t start = 0;
  for (int64_t size : sizes) {
    if (size < 0 || size > dim - start) {
      n.fail("the split does not fit axis " + std::to_string(*axis) + " of " + print(x->type));
      return {};
    }
    Value *part = n.sliceAxis(x, *axis, start, size);
    if (dropsAxis) {
      Dims dims = x->type.dims;
      dims.erase(dims.begin() + *axis);
      part = n.reshape(part, dims);
    }
    if (!part)
      return {};
    entries.push_back(part);
    start += size;
  }
  if (start != dim)
    n.fail("the split covers " + std::to_string(start) + " of axis " + std::to_string(*axis) + " of " +
           print(x->type));
  return {Bound::list(TensorList(entries))};
}

Bounds lowerConcatFromSequence(StructuredNode &s) {
  NodeLowering &n = s.n;
  const TensorList *list = s.list(0);
  if (!list)
    return {};
  if (list->size() == 0) {
    n.fail("joins a list without tensors, whose shape is not known");
    return {};
  }
  const bool isNew = n.intAttribute("new_axis", 0) != 0;
  std::optional<int64_t> axis =
      n.normalAxis(n.intAttribute("axis", 0), list->values()[0]->type.rank() + (isNew ? 1 : 0));
  if (!axis)
    return {};
  return {isNew ? stackAll(n, list->values(), *axis) : n.concat(list->values(), *axis)};
}

Bounds lowerOptional(StructuredNode &s) {
  if (!s.operands.empty() && s.operands[0].asOptional())
    s.n.fail("makes an optional value of an optional value");
  return {s.n.failed() ? Bound() : Bound::optional(s.operands.empty() ? Bound() : s.operands[0])};
}

/// From opset 18 on a tensor or a list counts as an optional that has it, and an operand that is left out as empty.
Bounds lowerOptionalHasElement(StructuredNode &s) {
  const Bound operand = s.operands.empty() ? Bound() : s.operands[0];
  const Bound *content = operand.asOptional();
  const bool has = content ? static_cast<bool>(*content) : static_cast<bool>(operand);
  return {s.n.scalar(DType::boolean, has)};
}

Bounds lowerOptionalGetElement(StructuredNode &s) {
  const Bound operand = s.operands.empty() ? Bound() : s.operands[0];
  const Bound *content = operand.asOptional();
  if (!operand || (content && !*content))
    s.n.fail("reads an optional value that is empty");
  return {content ? *content : operand};
}

} // namespace zerocc
