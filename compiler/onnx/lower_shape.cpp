// Lowerings of ops that move, select or lay out elements.

#include "compiler/onnx/lowerings.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace zerocc {

Values lowerIdentity(NodeLowering &n) { return {n.in(0)}; }

/// Shape: start and end (opset 15) cut the list of dims, clamped.
Values lowerShape(NodeLowering &n) {
  Value *x = n.in(0);
  if (!x)
    return {nullptr};
  int64_t rank = x->type.rank();
  auto clamp = [&](int64_t at) { return std::clamp<int64_t>(at < 0 ? at + rank : at, 0, rank); };
  int64_t start = clamp(n.intAttribute("start", 0)), end = clamp(n.intAttribute("end", rank));
  return {n.ints(llvm::ArrayRef<int64_t>(x->type.dims).slice(start, std::max<int64_t>(end - start, 0)))};
}

Values lowerSize(NodeLowering &n) {
  Value *x = n.in(0);
  return {x ? n.scalar(DType::i64, static_cast<double>(x->type.elements())) : nullptr};
}

/// 0 copies the operand's dim (unless allowzero), -1 takes what is left.
Values lowerReshape(NodeLowering &n) {
  Value *x = n.in(0);
  std::optional<std::vector<int64_t>> shape = n.intsOperandOrAttribute("shape", 1, 5);
  if (!x || n.failed())
    return {nullptr};
  if (!shape)
    return {n.fail("no shape is given")};
  bool allowZero = n.intAttribute("allowzero", 0);
  int64_t known = 1, open = -1;
  for (size_t i = 0; i < shape->size(); ++i) {
    int64_t &dim = (*shape)[i];
    if (dim == 0 && !allowZero) {
      if (static_cast<int64_t>(i) >= x->type.rank())
        return {n.fail("shape copies dim " + std::to_string(i) + " of " + print(x->type))};
      dim = x->type.dims[i];
    }
    if (dim < -1 || (dim == -1 && open >= 0))
      return {n.fail(dim == -1 ? "shape has two dims of -1" : "shape has the dim " + std::to_string(dim))};
    if (dim == -1)
      open = static_cast<int64_t>(i);
    else if (__builtin_mul_overflow(known, dim, &known))
      return {n.fail("shape overflows")};
  }
  if (open >= 0) {
    if (known == 0 || x->type.elements() % known != 0)
      return {n.fail("cannot reshape " + print(x->type) + " into rows of " + std::to_string(known) +
                     " elements")};
    (*shape)[open] = x->type.elements() / known;
  }
  return {n.reshape(x, *shape)};
}

Values lowerTranspose(NodeLowering &n) {
  Value *x = n.in(0);
  if (!x)
    return {nullptr};
  std::vector<int64_t> permutation = n.intsAttribute("perm");
  if (!n.hasAttribute("perm")) {
    permutation.resize(x->type.dims.size());
    std::iota(permutation.rbegin(), permutation.rend(), 0);
  }
  if (permutation.size() != x->type.dims.size())
    return {n.fail("a permutation of " + std::to_string(permutation.size()) + " axes does not fit " +
                   print(x->type))};
  return {n.transpose(x, permutation)};
}

Values lowerSqueeze(NodeLowering &n) {
  Value *x = n.in(0);
  std::optional<std::vector<int64_t>> axes = n.intsOperandOrAttribute("axes", 1, 13);
  if (!x || n.failed())
    return {nullptr};
  if (axes && !(axes = n.normalAxes(*axes, x->type.rank())))
    return {nullptr};
  Dims dims;
  for (int64_t i = 0; i < x->type.rank(); ++i) {
    bool listed = axes && llvm::is_contained(*axes, i);
    if (listed && x->type.dims[i] != 1)
      return {
          n.fail("axis " + std::to_string(i) + " of " + print(x->type) + " is not 1 and cannot be squeezed")};
    if (axes ? !listed : x->type.dims[i] != 1)
      dims.push_back(x->type.dims[i]);
  }
  return {n.reshape(x, dims)};
}

Values lowerUnsqueeze(NodeLowering &n) {
  Value *x = n.in(0);
  std::optional<std::vector<int64_t>> axes = n.intsOperandOrAttribute("axes", 1, 13);
  if (!x || n.failed())
    return {nullptr};
  if (!axes)
    return {n.fail("no axes are given")};
  int64_t rank = x->type.rank() + static_cast<int64_t>(axes->size());
  if (!(axes = n.normalAxes(*axes, rank)))
    return {nullptr};
  Dims dims;
  for (int64_t i = 0, from = 0; i < rank; ++i)
    dims.push_back(llvm::is_contained(*axes, i) ? 1 : x->type.dims[from++]);
  return {n.reshape(x, dims)};
}

Values lowerFlatten(NodeLowering &n) {
  Value *x = n.in(0);
  if (!x)
    return {nullptr};
  int64_t axis = n.intAttribute("axis", 1), rank = x->type.rank();
  if (axis < -rank || axis > rank)
    return {n.fail("axis " + std::to_string(axis) + " does not fit " + print(x->type))};
  return {flattenTo2D(n, x, axis < 0 ? axis + rank : axis)};
}

Value *flattenTo2D(NodeLowering &n, Value *x, int64_t axis) {
  int64_t rows = 1, columns = 1;
  for (int64_t i = 0; i < x->type.rank(); ++i)
    (i < axis ? rows : columns) *= x->type.dims[i];
  return n.reshape(x, {rows, columns});
}

/// Two-way broadcasting: dims of 1 in the shape keep the operand's.
Values lowerExpand(NodeLowering &n) {
  Value *x = n.in(0);
  std::optional<std::vector<int64_t>> shape = n.constantInts(1, "the shape");
  if (!x || !shape)
    return {nullptr};
  std::optional<Dims> dims = broadcastShape(x->type.dims, *shape);
  if (!dims || llvm::any_of(*shape, [](int64_t dim) { return dim < 0; }))
    return {n.fail("cannot expand " + print(x->type) + " to " +
                   print(TensorType{x->type.dtype, {shape->begin(), shape->end()}}))};
  return {n.broadcast(x, *dims)};
}

/// [a, b] tiled [r, s]: [1, a, 1, b] broadcast to [r, a, s, b], as [r a, s b].
Values lowerTile(NodeLowering &n) {
  Value *x = n.in(0);
  std::optional<std::vector<int64_t>> repeats = n.constantInts(1, "the repeats");
  if (!x || !repeats)
    return {nullptr};
  if (n.version < 6)
    return {n.fail("Tile before opset 6 is not supported")};
  if (static_cast<int64_t>(repeats->size()) != x->type.rank())
    return {n.fail(std::to_string(repeats->size()) + " repeats do not fit " + print(x->type))};
  Dims split, spread, joined;
  for (int64_t i = 0; i < x->type.rank(); ++i) {
    int64_t times = (*repeats)[i], dim = x->type.dims[i], total = 0;
    if (times < 0 || __builtin_mul_overflow(times, dim, &total))
      return {n.fail("repeats " + std::to_string(times) + " of " + print(x->type))};
    if (times != 1) {
      split.push_back(1);
      spread.push_back(times);
    }
    split.push_back(dim);
    spread.push_back(dim);
    joined.push_back(total);
  }
  return {n.reshape(n.broadcast(n.reshape(x, split), spread), joined)};
}

Values lowerConcat(NodeLowering &n) {
  Values operands;
  for (int i = 0; i < n.operandCount(); ++i)
    operands.push_back(n.in(i));
  if (operands.empty() || llvm::is_contained(operands, nullptr))
    return {nullptr};
  std::optional<int64_t> axis = n.normalAxis(n.intAttribute("axis", 1), operands[0]->type.rank());
  return {axis ? n.concat(operands, *axis) : nullptr};
}

Values lowerSplit(NodeLowering &n) {
  Value *x = n.in(0);
  std::optional<std::vector<int64_t>> sizes = n.intsOperandOrAttribute("split", 1, 13);
  if (!x || n.failed())
    return {nullptr};
  std::optional<int64_t> axis = n.normalAxis(n.intAttribute("axis", 0), x->type.rank());
  if (!axis)
    return {nullptr};
  int64_t dim = x->type.dims[*axis], count = static_cast<int64_t>(n.node.outputs.size());
  if (!sizes) {
    // Equal parts; from opset 18 on the last one may be smaller.
    if (n.hasAttribute("num_outputs") && n.intAttribute("num_outputs", count) != count)
      return {n.fail("num_outputs is " + std::to_string(n.intAttribute("num_outputs", count)) +
                     ", the node has " + std::to_string(count))};
    int64_t part = (dim + count - 1) / count;
    if (n.version < 18 && dim % count != 0)
      return {n.fail("axis " + std::to_string(*axis) + " of " + print(x->type) + " cannot be split into " +
                     std::to_string(count) + " equal parts")};
    sizes.emplace(count, part);
    sizes->back() = dim - part * (count - 1);
  }
  if (static_cast<int64_t>(sizes->size()) != count ||
      std::accumulate(sizes->begin(), sizes->end(), int64_t(0)) != dim ||
      llvm::any_of(*sizes, [](int64_t size) { return size < 0; }))
    return {n.fail("the sizes of the parts do not add up to axis " + std::to_string(*axis) + " of " +
                   print(x->type))};
  Values parts;
  int64_t start = 0;
  for (int64_t size : *sizes) {
    parts.push_back(n.sliceAxis(x, *axis, start, size));
    start += size;
  }
  return parts;
}

/// Starts and ends count from the end when negative and are clamped to the axis, as NumPy does; INT64_MAX and
/// INT64_MIN mean "to the end".
Values lowerSlice(NodeLowering &n) {
  Value *x = n.in(0);
  std::optional<std::vector<int64_t>> starts = n.intsOperandOrAttribute("starts", 1, 10),
                                      ends = n.intsOperandOrAttribute("ends", 2, 10),
                                      axes = n.intsOperandOrAttribute("axes", 3, 10), steps;
  if (n.version >= 10)
    steps = n.intsOperandOrAttribute("steps", 4, 10);
  if (!x || n.failed())
    return {nullptr};
  if (!starts || !ends)
    return {n.fail("starts and ends must be given")};
  size_t count = starts->size();
  if (!axes) {
    axes.emplace(count);
    std::iota(axes->begin(), axes->end(), 0);
  }
  if (!steps)
    steps.emplace(count, 1);
  if (ends->size() != count || axes->size() != count || steps->size() != count)
    return {n.fail("starts, ends, axes and steps have different lengths")};
  std::vector<int64_t> from(x->type.dims.size(), 0), sizes(x->type.dims.begin(), x->type.dims.end()),
      strides(x->type.dims.size(), 1);
  for (size_t i = 0; i < count; ++i) {
    std::optional<int64_t> axis = n.normalAxis((*axes)[i], x->type.rank());
    if (!axis)
      return {nullptr};
    int64_t dim = x->type.dims[*axis], step = (*steps)[i];
    if (step == 0)
      return {n.fail("step of axis " + std::to_string(*axis) + " is 0")};
    auto clamp = [&](int64_t at, int64_t low, int64_t high) {
      return std::clamp(at < 0 ? (at < -dim ? low : at + dim) : at, low, high);
    };
    // Going backwards, the first element is at most dim - 1 and the end may lie before element 0.
    int64_t low = step > 0 ? 0 : -1, high = step > 0 ? dim : dim - 1;
    int64_t start = clamp((*starts)[i], step > 0 ? 0 : (dim > 0 ? 0 : -1), high),
            end = clamp((*ends)[i], low, high);
    int64_t span = step > 0 ? end - start : start - end;
    // |INT64_MIN| does not exist; any step beyond dim gives one element.
    int64_t stride = step > 0 ? std::min(step, dim + 1) : std::min(step < -dim ? dim + 1 : -step, dim + 1);
    sizes[*axis] = span > 0 ? (span - 1) / stride + 1 : 0;
    from[*axis] = sizes[*axis] == 0 ? 0 : start;
    strides[*axis] = sizes[*axis] <= 1 ? 1 : (step > 0 ? stride : -stride);
  }
  return {n.slice(x, from, sizes, strides)};
}

/// Padding with elements of x: each place along `axis` reads a known one.
static Value *padFromInside(NodeLowering &n, Value *x, int64_t axis, int64_t low, int64_t high,
                            const std::string &mode) {
  if (!x || (low == 0 && high == 0))
    return x;
  const int64_t size = x->type.dims[axis];
  if (size == 0)
    return n.fail("an empty axis cannot be padded by mode \"" + mode + "\"");
  std::vector<int64_t> places;
  for (int64_t at = -low; at < size + high; ++at) {
    int64_t place = std::clamp<int64_t>(at, 0, size - 1);
    if (mode == "wrap") {
      place = (at % size + size) % size;
    } else if (mode == "reflect") { // back and forth without repeating the ends
      const int64_t period = std::max<int64_t>(1, 2 * (size - 1)), phase = (at % period + period) % period;
      place = phase < size ? phase : period - phase;
    }
    places.push_back(place);
  }
  return n.gather(x, n.ints(places), axis);
}

Values lowerPad(NodeLowering &n) {
  Value *x = n.in(0);
  std::optional<std::vector<int64_t>> pads =
      n.intsOperandOrAttribute(n.version < 2 ? "paddings" : "pads", 1, 11);
  if (!x || n.failed())
    return {nullptr};
  std::string mode = n.stringAttribute("mode", "constant");
  if (mode != "constant" && mode != "reflect" && mode != "edge" && mode != "wrap")
    return {n.fail("mode is \"" + mode + "\"", "constant, reflect, edge and wrap are known")};
  double value = n.floatAttribute("value", 0);
  if (n.version >= 11 && n.has(2)) {
    std::optional<double> constant = n.constantNumber(n.in(2));
    if (!constant)
      return {n.fail("the padding value must be known when compiling")};
    value = *constant;
  }
  std::vector<int64_t> axes(x->type.dims.size());
  std::iota(axes.begin(), axes.end(), 0);
  if (n.version >= 18 && n.has(3)) {
    std::optional<std::vector<int64_t>> listed = n.constantInts(3, "the axes");
    if (!listed)
      return {nullptr};
    axes = *listed;
  }
  if (!pads || pads->size() != 2 * axes.size())
    return {n.fail("the pads do not fit " + print(x->type))};
  std::vector<int64_t> low(x->type.dims.size(), 0), high = low, starts = low,
                                                    sizes(x->type.dims.begin(), x->type.dims.end());
  for (size_t i = 0; i < axes.size(); ++i) {
    std::optional<int64_t> axis = n.normalAxis(axes[i], x->type.rank());
    if (!axis)
      return {nullptr};
    int64_t before = (*pads)[i], after = (*pads)[i + axes.size()];
    low[*axis] = std::max<int64_t>(before, 0);
    high[*axis] = std::max<int64_t>(after, 0);
    starts[*axis] = std::max<int64_t>(-before, 0);
    sizes[*axis] += std::min<int64_t>(before, 0) + std::min<int64_t>(after, 0);
    if (sizes[*axis] < 0)
      return {n.fail("the pads cut off more than " + print(x->type) + " has")};
  }
  x = n.slice(x, starts, sizes); // negative pads cut
  if (llvm::all_of(low, [](int64_t pad) { return pad == 0; }) &&
      llvm::all_of(high, [](int64_t pad) { return pad == 0; }))
    return {x};
  if (mode == "constant")
    return {n.emit(OpKind::Pad, {x}, {{"low", low}, {"high", high}, {"value", value}})};
  for (size_t axis = 0; axis < low.size(); ++axis)
    x = padFromInside(n, x, static_cast<int64_t>(axis), low[axis], high[axis], mode);
  return {x};
}

Values lowerGather(NodeLowering &n) {
  Value *data = n.in(0), *indices = n.in(1);
  if (!data || !indices)
    return {nullptr};
  std::optional<int64_t> axis = n.normalAxis(n.intAttribute("axis", 0), data->type.rank());
  if (!axis)
    return {nullptr};
  // One constant index is a slice, which is a view.
  std::optional<double> index = indices->type.dims.empty() ? n.constantNumber(indices) : std::nullopt;
  int64_t dim = data->type.dims[*axis];
  if (index && *index >= -static_cast<double>(dim) && *index < static_cast<double>(dim)) {
    int64_t at = static_cast<int64_t>(*index);
    Dims dims = data->type.dims;
    dims.erase(dims.begin() + *axis);
    return {n.reshape(n.sliceAxis(data, *axis, at < 0 ? at + dim : at, 1), dims)};
  }
  return {n.gather(data, indices, *axis)};
}

Value *fromFront(NodeLowering &n, Value *indices, int64_t size) {
  if (!indices)
    return nullptr;
  Value *isNegative = n.compare(indices, n.scalar(indices->type.dtype, 0), "lt");
  return n.select(isNegative, n.binary(OpKind::Add, indices, static_cast<double>(size)), indices);
}

/// The last dim of `indices` holds positions along the first dims of `data`: they become one position along
/// those dims joined.
Values lowerGatherNd(NodeLowering &n) {
  Value *data = n.in(0), *indices = n.in(1);
  if (!data || !indices)
    return {nullptr};
  const int64_t batch = n.intAttribute("batch_dims", 0);
  if (batch < 0 || indices->type.rank() <= batch || indices->type.dims.back() < 1 ||
      indices->type.dims.back() + batch > data->type.rank())
    return {n.fail("indices " + print(indices->type) + " do not fit " + print(data->type))};
  int64_t depth = indices->type.dims.back() + batch, last = indices->type.rank() - 1;
  Dims lead(indices->type.dims.begin(), indices->type.dims.end() - 1);
  Value *position = nullptr;
  Dims joined{1};
  for (int64_t i = 0; i < batch; ++i) { // the batch dims are read at their own position
    if (data->type.dims[i] != indices->type.dims[i])
      return {n.fail("the batch dims of " + print(data->type) + " and " + print(indices->type) + " differ")};
    joined[0] *= data->type.dims[i];
    Dims own(lead.size(), 1);
    own[i] = data->type.dims[i];
    Value *component = n.reshape(n.iota(indices->type.dtype, own[i]), own);
    position = position ? n.add(n.mul(position, static_cast<double>(own[i])), component) : component;
  }
  for (int64_t i = batch; i < depth; ++i) {
    int64_t dim = data->type.dims[i];
    joined[0] *= dim;
    Value *component = fromFront(n, n.reshape(n.sliceAxis(indices, last, i - batch, 1), lead), dim);
    position = position ? n.add(n.mul(position, static_cast<double>(dim)), component) : component;
  }
  joined.append(data->type.dims.begin() + depth, data->type.dims.end());
  if (position)
    position = n.broadcast(position, lead);
  return {n.gather(n.reshape(data, joined), position, 0)};
}

/// Position p of the result reads data at indices[p] along the axis, and at p along all others: a GatherND
/// whose other positions are iotas, joined as above.
Values lowerGatherElements(NodeLowering &n) {
  Value *data = n.in(0), *indices = n.in(1);
  if (!data || !indices)
    return {nullptr};
  std::optional<int64_t> axis = n.normalAxis(n.intAttribute("axis", 0), data->type.rank());
  if (!axis)
    return {nullptr};
  if (indices->type.rank() != data->type.rank())
    return {n.fail("indices " + print(indices->type) + " and data " + print(data->type) + " differ in rank")};
  indices = n.cast(indices, DType::i64); // a place among all elements may need it
  Value *position = nullptr;
  for (int64_t i = 0; indices && i < data->type.rank(); ++i) {
    const int64_t dim = data->type.dims[i];
    Value *component = fromFront(n, indices, dim);
    if (i != *axis) {
      Dims dims(data->type.rank(), 1);
      dims[i] = indices->type.dims[i];
      component = n.broadcast(n.reshape(n.iota(DType::i64, dims[i]), dims), indices->type.dims);
    }
    position = position ? n.add(n.mul(position, static_cast<double>(dim)), component) : component;
  }
  return {n.gather(n.reshape(data, {data->type.elements()}), position, 0)};
}

Values lowerConstantOfShape(NodeLowering &n) {
  std::optional<std::vector<int64_t>> shape = n.constantInts(0, "the shape");
  if (!shape)
    return {nullptr};
  TensorType type{DType::f32, Dims(shape->begin(), shape->end())};
  double value = 0;
  if (n.hasAttribute("value")) {
    std::optional<HostTensor> element = n.tensorAttribute("value");
    if (!element)
      return {nullptr};
    if (element->type.elements() != 1)
      return {n.fail("the value must be one element, is " + print(element->type))};
    type.dtype = element->type.dtype;
    value = element->at(0);
  }
  return {n.filled(type, value)};
}

/// start + delta iota
Values lowerRange(NodeLowering &n) {
  Value *start = n.in(0), *limit = n.in(1), *delta = n.in(2);
  std::optional<double> from = n.constantNumber(start), to = n.constantNumber(limit),
                        step = n.constantNumber(delta);
  if (n.failed())
    return {nullptr};
  if (!from || !to || !step)
    return {n.fail("start, limit and delta must be known when compiling",
                   "bind every dimension with --dim, or export the model with fixed shapes")};
  double count = *step == 0 ? -1 : std::max(std::ceil((*to - *from) / *step), 0.0);
  if (!(count >= 0 && count < 9e15))
    return {n.fail("a range from " + std::to_string(*from) + " to " + std::to_string(*to) + " by " +
                   std::to_string(*step))};
  Value *range = n.iota(start->type.dtype, static_cast<int64_t>(count));
  if (*step != 1)
    range = n.mul(range, *step);
  if (*from != 0)
    range = n.add(range, *from);
  return {range};
}

/// Keeps what lies on or below (above) diagonal k of the last two dims: column <= (>=) row + k.
Values lowerTrilu(NodeLowering &n) {
  Value *x = n.in(0);
  std::optional<int64_t> k = n.has(1) ? n.constantInt(1, "the diagonal") : std::optional<int64_t>(0);
  if (!x || !k)
    return {nullptr};
  if (x->type.rank() < 2)
    return {n.fail("needs two dims, got " + print(x->type))};
  int64_t rows = x->type.dims[x->type.rank() - 2], columns = x->type.dims.back();
  Value *row = n.reshape(n.iota(DType::i64, rows), {rows, 1});
  Value *column = n.reshape(n.iota(DType::i64, columns), {1, columns});
  const char *kind = n.intAttribute("upper", 1) ? "ge" : "le";
  Value *kept = n.compare(column, *k == 0 ? row : n.add(row, static_cast<double>(*k)), kind);
  return {n.select(kept, x, n.scalar(x->type.dtype, 0))};
}

Value *moveBack(NodeLowering &n, Value *x, int64_t axis) {
  if (!x)
    return nullptr;
  std::vector<int64_t> permutation(x->type.dims.size() - 1);
  std::iota(permutation.begin(), permutation.end(), 0);
  permutation.insert(permutation.begin() + axis, x->type.rank() - 1);
  return n.transpose(x, permutation);
}

/// on where the class is the index, off elsewhere; negative indices count from the end.
Values lowerOneHot(NodeLowering &n) {
  Value *indices = n.in(0), *values = n.in(2);
  std::optional<double> number = n.constantNumber(n.in(1)); // of any dtype
  if (!indices || !values || n.failed())
    return {nullptr};
  if (!number)
    return {n.fail("the depth must be one number that is known when compiling")};
  if (!(*number >= 0 && *number < 9e15))
    return {n.fail("a depth of " + std::to_string(*number))};
  const int64_t depth = static_cast<int64_t>(*number);
  if (values->type.rank() != 1 || values->type.dims[0] != 2)
    return {n.fail("values must be [off, on], are " + print(values->type))};
  std::optional<int64_t> axis = n.normalAxis(n.intAttribute("axis", -1), indices->type.rank() + 1);
  if (!axis)
    return {nullptr};
  Value *whole = n.cast(indices, DType::i64);
  whole = fromFront(n, whole, depth);
  Dims dims = indices->type.dims, classDims(indices->type.rank() + 1, 1);
  dims.insert(dims.begin() + *axis, 1);
  classDims[*axis] = depth;
  whole = n.reshape(whole, dims);
  Value *isClass = n.compare(whole, n.reshape(n.iota(DType::i64, depth), classDims), "eq");
  Value *off = n.reshape(n.sliceAxis(values, 0, 0, 1), {}), *on = n.reshape(n.sliceAxis(values, 0, 1, 1), {});
  return {n.select(isClass, on, off)};
}

} // namespace zerocc
