// Lowerings of sorting, cumulation and writes by index.

#include "compiler/onnx/lowerings.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace zerocc {
namespace {

/// Applies an op that works along the last axis along `axis`.
Value *alongAxis(NodeLowering &n, OpKind op, Value *x, int64_t axis, Attributes attributes) {
  Value *y = n.emit(op, {n.moveLast(x, axis)}, std::move(attributes));
  return moveBack(n, y, axis);
}

Values lowerArgExtreme(NodeLowering &n, bool smallest) {
  Value *x = n.in(0);
  std::optional<int64_t> axis = x ? n.normalAxis(n.intAttribute("axis", 0), x->type.rank()) : std::nullopt;
  if (!axis)
    return {nullptr};
  Value *y = n.emit(OpKind::ArgMax, {n.moveLast(x, *axis)},
                    {{"smallest", int64_t(smallest)}, {"last", n.intAttribute("select_last_index", 0)}});
  Dims dims = x->type.dims;
  if (n.intAttribute("keepdims", 1))
    dims[*axis] = 1;
  else
    dims.erase(dims.begin() + *axis);
  return {n.reshape(y, dims)};
}

Values lowerCumulation(NodeLowering &n, OpKind op) {
  Value *x = n.in(0);
  std::optional<int64_t> axis = n.constantInt(1, "the axis");
  if (!x || !axis || !(axis = n.normalAxis(*axis, x->type.rank())))
    return {nullptr};
  return {
      alongAxis(n, op, x, *axis,
                {{"exclusive", n.intAttribute("exclusive", 0)}, {"reverse", n.intAttribute("reverse", 0)}})};
}

/// data with `rows` [m, rest…] combined into it at the places [m] along its first axis.
Value *scatterRows(NodeLowering &n, Value *data, Value *places, Value *rows, const std::string &reduction) {
  if (!data || !places || !rows)
    return nullptr;
  if (reduction == "add") {
    Value *sums =
        n.emit(OpKind::ScatterAdd, {places, rows}, {{"axis", int64_t(0)}, {"size", data->type.dims[0]}});
    return n.add(data, sums);
  }
  return n.emit(OpKind::Scatter, {data, places, rows}, {{"reduction", reduction}});
}

std::optional<std::string> reductionOf(NodeLowering &n) {
  std::string reduction = n.stringAttribute("reduction", "none");
  for (const char *known : {"none", "add", "mul", "max", "min"})
    if (reduction == known)
      return reduction;
  n.fail("reduction is \"" + reduction + "\"");
  return std::nullopt;
}

} // namespace

Values lowerArgMax(NodeLowering &n) { return lowerArgExtreme(n, false); }
Values lowerArgMin(NodeLowering &n) { return lowerArgExtreme(n, true); }
Values lowerCumSum(NodeLowering &n) { return lowerCumulation(n, OpKind::CumSum); }
Values lowerCumProd(NodeLowering &n) { return lowerCumulation(n, OpKind::CumProd); }

Values lowerTopK(NodeLowering &n) {
  Value *x = n.in(0);
  std::optional<int64_t> k =
      n.version < 10 ? std::optional<int64_t>(n.intAttribute("k", 0)) : n.constantInt(1, "k");
  if (!x || !k)
    return {nullptr};
  std::optional<int64_t> axis = n.normalAxis(n.intAttribute("axis", -1), x->type.rank());
  if (!axis)
    return {nullptr};
  const bool largest = n.version < 11 || n.intAttribute("largest", 1);
  // u64 is ordered as i64 with the highest bit turned.
  const bool isTurned = x->type.dtype == DType::u64;
  auto turned = [&](Value *value) {
    return n.binary(OpKind::BitXor, value, n.scalar(DType::i64, -0x1p63));
  };
  if (isTurned)
    x = turned(n.cast(x, DType::i64));
  Node *top = n.make(OpKind::TopK, {n.moveLast(x, *axis)}, {{"k", *k}, {"smallest", int64_t(!largest)}});
  if (!top)
    return {nullptr};
  Value *values = isTurned ? n.cast(turned(top->result(0)), DType::u64) : top->result(0);
  return {moveBack(n, values, *axis), moveBack(n, top->result(1), *axis)};
}

/// 1 at the first greatest element along an axis, else 0. Before version 13 the dims from `axis` on are one.
Values lowerHardmax(NodeLowering &n) {
  Value *x = n.in(0);
  std::optional<int64_t> axis =
      x ? n.normalAxis(n.intAttribute("axis", n.version < 13 ? 1 : -1), x->type.rank()) : std::nullopt;
  if (!axis)
    return {nullptr};
  const bool flattens = n.version < 13;
  Value *rows = flattens ? flattenTo2D(n, x, *axis) : n.moveLast(x, *axis);
  if (!rows)
    return {nullptr};
  Value *best = n.emit(OpKind::ArgMax, {rows});
  Dims column(rows->type.dims.begin(), rows->type.dims.end() - 1);
  column.push_back(1);
  Value *isBest = n.compare(n.reshape(best, column), n.iota(DType::i64, rows->type.dims.back()), "eq");
  Value *y = n.cast(isBest, x->type.dtype);
  return {flattens ? n.reshape(y, x->type.dims) : moveBack(n, y, *axis)};
}

/// Position p of the updates writes to its own place but for the axis, where it writes to indices[p].
Values lowerScatterElements(NodeLowering &n) {
  Value *data = n.in(0), *indices = n.in(1), *updates = n.in(2);
  std::optional<std::string> reduction = reductionOf(n);
  if (!data || !indices || !updates || !reduction)
    return {nullptr};
  std::optional<int64_t> axis = n.normalAxis(n.intAttribute("axis", 0), data->type.rank());
  if (!axis)
    return {nullptr};
  if (indices->type.dims != updates->type.dims || indices->type.rank() != data->type.rank())
    return {n.fail("indices " + print(indices->type) + " and updates " + print(updates->type) +
                   " do not fit data " + print(data->type))};
  const int64_t count = updates->type.elements();
  indices = n.cast(indices, DType::i64); // a place among all elements may need it
  Value *position = nullptr;
  for (int64_t i = 0; indices && i < data->type.rank(); ++i) {
    const int64_t dim = data->type.dims[i];
    if (i != *axis && indices->type.dims[i] > dim)
      return {n.fail("indices " + print(indices->type) + " reach beyond data " + print(data->type))};
    Value *component = fromFront(n, indices, dim);
    if (i != *axis) {
      Dims dims(data->type.rank(), 1);
      dims[i] = indices->type.dims[i];
      component = n.broadcast(n.reshape(n.iota(DType::i64, dims[i]), dims), indices->type.dims);
    }
    position = position ? n.add(n.mul(position, static_cast<double>(dim)), component) : component;
  }
  Value *flat = scatterRows(n, n.reshape(data, {data->type.elements()}), n.reshape(position, {count}),
                            n.reshape(updates, {count}), *reduction);
  return {n.reshape(flat, data->type.dims)};
}

/// The last dim of the indices holds positions along the first dims of data. Writes of whole, consecutive
/// rows whose numbers are known become slices and a concat, which are views; others go through places along
/// those dims joined.
Values lowerScatterNd(NodeLowering &n) {
  Value *data = n.in(0), *indices = n.in(1), *updates = n.in(2);
  std::optional<std::string> reduction = reductionOf(n);
  if (!data || !indices || !updates || !reduction)
    return {nullptr};
  if (indices->type.rank() < 1 || indices->type.dims.back() > data->type.rank())
    return {n.fail("indices " + print(indices->type) + " do not fit data " + print(data->type))};
  const int64_t depth = indices->type.dims.back(), last = indices->type.rank() - 1;
  const HostTensor *host = *reduction == "none" && last == 1 && depth == 1 ? n.host(indices) : nullptr;
  if (host && !host->integers.empty()) {
    const int64_t rows = data->type.dims[0], count = indices->type.dims[0];
    auto row = [&](int64_t i) { return host->integers[i] + (host->integers[i] < 0 ? rows : 0); };
    bool consecutive = row(0) >= 0 && row(0) + count <= rows;
    for (int64_t i = 0; i < count; ++i)
      consecutive = consecutive && row(i) == row(0) + i;
    if (consecutive)
      return {n.concat({n.sliceAxis(data, 0, 0, row(0)), updates,
                        n.sliceAxis(data, 0, row(0) + count, rows - row(0) - count)},
                       0)};
  }
  Dims lead(indices->type.dims.begin(), indices->type.dims.end() - 1), joined{1};
  Value *position = depth == 0 ? n.filled({DType::i64, lead}, 0) : nullptr;
  for (int64_t i = 0; i < depth; ++i) {
    const int64_t dim = data->type.dims[i];
    joined[0] *= dim;
    Value *component = fromFront(n, n.reshape(n.sliceAxis(indices, last, i, 1), lead), dim);
    position = position ? n.add(n.mul(position, static_cast<double>(dim)), component) : component;
  }
  if (!position)
    return {nullptr};
  const int64_t count = position->type.elements();
  joined.append(data->type.dims.begin() + depth, data->type.dims.end());
  Dims rows = joined;
  rows[0] = count;
  if (updates->type.elements() != TensorType{data->type.dtype, rows}.elements())
    return {n.fail("updates " + print(updates->type) + " do not fit indices " + print(indices->type) +
                   " of " + print(data->type))};
  Value *y = scatterRows(n, n.reshape(data, joined), n.reshape(position, {count}), n.reshape(updates, rows),
                         *reduction);
  return {n.reshape(y, data->type.dims)};
}

/// The first lengths[b] elements of each batch, reversed; the others stay.
Values lowerReverseSequence(NodeLowering &n) {
  Value *x = n.in(0), *lengths = n.in(1);
  const int64_t time = n.intAttribute("time_axis", 0), batch = n.intAttribute("batch_axis", 1);
  if (!x || !lengths)
    return {nullptr};
  if (x->type.rank() < 2 || time + batch != 1 || time < 0 || time > 1)
    return {n.fail("time_axis and batch_axis must be 0 and 1 of " + print(x->type))};
  Value *steps = time == 0 ? n.transpose(x,
                                         [&] {
                                           std::vector<int64_t> permutation(x->type.dims.size());
                                           std::iota(permutation.begin(), permutation.end(), 0);
                                           std::swap(permutation[0], permutation[1]);
                                           return permutation;
                                         }())
                           : x; // [batch, time, …]
  if (!steps)
    return {nullptr};
  const int64_t batches = steps->type.dims[0], times = steps->type.dims[1];
  Value *length = n.reshape(n.cast(lengths, DType::i64), {batches, 1});
  Value *t = n.reshape(n.iota(DType::i64, times), {1, times});
  Value *mirrored = n.sub(n.add(length, -1.0), t);
  Value *from = n.select(n.compare(t, length, "lt"), mirrored, t); // [batch, time]
  Value *start = n.mul(n.reshape(n.iota(DType::i64, batches), {batches, 1}), static_cast<double>(times));
  Dims rows = {batches * times};
  rows.append(steps->type.dims.begin() + 2, steps->type.dims.end());
  Value *y = n.reshape(n.gather(n.reshape(steps, rows), n.reshape(n.add(start, from), {batches * times}), 0),
                       steps->type.dims);
  if (time == 1)
    return {y};
  std::vector<int64_t> permutation(x->type.dims.size());
  std::iota(permutation.begin(), permutation.end(), 0);
  std::swap(permutation[0], permutation[1]);
  return {n.transpose(y, permutation)};
}

// --- results whose size depends on values: only of constants

static constexpr const char *kSizeRemedy =
    "the size of its result depends on data; use torch.where(condition, a, b) with three operands";

/// The positions of what is not zero, [rank, count].
Values lowerNonZero(NodeLowering &n) {
  Value *x = n.in(0);
  const HostTensor *host = n.host(x);
  if (!x || n.failed())
    return {nullptr};
  if (!host)
    return {n.fail("NonZero is supported only of what is known when compiling", kSizeRemedy)};
  std::vector<int64_t> found;
  for (int64_t i = 0; i < x->type.elements(); ++i)
    if (host->at(i) != 0)
      found.push_back(i);
  const int64_t rank = std::max<int64_t>(x->type.rank(), 1), count = static_cast<int64_t>(found.size());
  HostTensor out = HostTensor::zeros({DType::i64, {rank, count}});
  for (int64_t k = 0; k < count; ++k) {
    int64_t rest = found[k];
    for (int64_t axis = x->type.rank() - 1; axis >= 0; --axis) {
      out.integers[axis * count + k] = rest % x->type.dims[axis];
      rest /= x->type.dims[axis];
    }
  }
  return {n.constant(out)};
}

Values lowerCompress(NodeLowering &n) {
  Value *x = n.in(0), *condition = n.in(1);
  const HostTensor *host = n.host(condition);
  if (!x || !condition || n.failed())
    return {nullptr};
  if (!host)
    return {n.fail("Compress is supported only with a condition that is known when compiling", kSizeRemedy)};
  const bool flattens = !n.hasAttribute("axis");
  Value *data = flattens ? n.reshape(x, {x->type.elements()}) : x;
  std::optional<int64_t> axis = n.normalAxis(flattens ? 0 : n.intAttribute("axis", 0), data->type.rank());
  if (!axis)
    return {nullptr};
  std::vector<int64_t> taken;
  for (int64_t i = 0; i < std::min(condition->type.elements(), data->type.dims[*axis]); ++i)
    if (host->integers[i])
      taken.push_back(i);
  return {n.gather(data, n.ints(taken), *axis)};
}

/// Element a below element b, exactly.
static bool isBefore(const HostTensor &host, int64_t a, int64_t b) {
  if (isFloat(host.type.dtype))
    return host.reals[a] < host.reals[b];
  if (host.type.dtype == DType::u64)
    return static_cast<uint64_t>(host.integers[a]) < static_cast<uint64_t>(host.integers[b]);
  return host.integers[a] < host.integers[b];
}

/// The different elements, or slices along an axis, of a constant: sorted, or in the order in which they come
/// first.
Values lowerUnique(NodeLowering &n) {
  Value *x = n.in(0);
  const HostTensor *host = n.host(x);
  if (!x || n.failed())
    return {nullptr};
  if (!host)
    return {n.fail("Unique is supported only of what is known when compiling", kSizeRemedy)};
  if (llvm::any_of(host->reals, [](double v) { return std::isnan(v); }))
    return {n.fail("its operand has NaN, which equals nothing")};
  const bool flattens = !n.hasAttribute("axis"), isSorted = n.intAttribute("sorted", 1);
  std::optional<int64_t> axis =
      flattens ? std::optional<int64_t>(0) : n.normalAxis(n.intAttribute("axis", 0), x->type.rank());
  if (!axis)
    return {nullptr};
  // Element j of slice i lies at (j / inner) count inner + i inner + j % inner.
  int64_t count = flattens ? x->type.elements() : x->type.dims[*axis], inner = 1;
  for (int64_t i = *axis + 1; !flattens && i < x->type.rank(); ++i)
    inner *= x->type.dims[i];
  const int64_t size = count == 0 ? 0 : x->type.elements() / count;
  auto compare = [&](int64_t a, int64_t b) {
    for (int64_t j = 0; j < size; ++j) {
      const int64_t start = j / inner * count * inner + j % inner;
      const int64_t left = start + a * inner, right = start + b * inner;
      const bool isLess = isBefore(*host, left, right);
      if (isLess || isBefore(*host, right, left))
        return isLess ? -1 : 1;
    }
    return 0;
  };
  std::vector<int64_t> order(count), first, inverse(count), counts;
  std::iota(order.begin(), order.end(), 0);
  llvm::stable_sort(order, [&](int64_t a, int64_t b) { return compare(a, b) < 0; });
  for (int64_t i = 0; i < count; ++i) {
    if (i == 0 || compare(order[i - 1], order[i]) != 0) {
      first.push_back(order[i]);
      counts.push_back(0);
    }
    ++counts.back();
    inverse[order[i]] = static_cast<int64_t>(first.size()) - 1;
  }
  if (!isSorted) {
    std::vector<int64_t> places(first.size()), rank(first.size());
    std::iota(places.begin(), places.end(), 0);
    llvm::sort(places, [&](int64_t a, int64_t b) { return first[a] < first[b]; });
    for (size_t i = 0; i < places.size(); ++i)
      rank[places[i]] = static_cast<int64_t>(i);
    auto reordered = [&](const std::vector<int64_t> &from) {
      std::vector<int64_t> out;
      for (int64_t place : places)
        out.push_back(from[place]);
      return out;
    };
    first = reordered(first);
    counts = reordered(counts);
    for (int64_t &place : inverse)
      place = rank[place];
  }
  Value *data = flattens ? n.reshape(x, {count}) : x;
  Values results{n.gather(data, n.ints(first), *axis)};
  results.append({n.ints(first), n.ints(inverse), n.ints(counts)});
  return results;
}

/// The bits of a constant as another dtype of the same size.
Values lowerBitCast(NodeLowering &n) {
  Value *x = n.in(0);
  const HostTensor *host = n.host(x);
  std::optional<DType> to = dtypeFromOnnx(static_cast<int32_t>(n.intAttribute("to", 0)));
  if (!x || n.failed())
    return {nullptr};
  if (!to || byteSize(*to) != byteSize(x->type.dtype))
    return {n.fail("BitCast of " + print(x->type) + " to " +
                   onnxTypeName(static_cast<int32_t>(n.intAttribute("to", 0))) + " is not supported")};
  if (!host)
    return {n.fail("BitCast is supported only of what is known when compiling")};
  return {n.constant(HostTensor::fromBytes({*to, x->type.dims}, host->toBytes()))};
}

} // namespace zerocc
