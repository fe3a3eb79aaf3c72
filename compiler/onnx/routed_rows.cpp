#include "compiler/onnx/routed_rows.h"

#include "compiler/onnx/lowerings.h"
#include "compiler/onnx/structure.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <set>

namespace zerocc {
namespace {

constexpr const char *kRemedy = "export a form whose sizes do not depend on data: torch.where(condition, a, "
                                "b) instead of indices, every expert over "
                                "all tokens weighted by its (mostly zero) routing weight";

const std::set<std::string> kElementwise = {"Add",      "Sub",        "Mul",
                                            "Div",      "Pow",        "Min",
                                            "Max",      "Sum",        "Mean",
                                            "Where",    "Equal",      "Less",
                                            "Greater",  "Not",        "And",
                                            "Or",       "Xor",        "LessOrEqual",
                                            "Neg",      "Abs",        "Exp",
                                            "Log",      "Sqrt",       "Relu",
                                            "Sigmoid",  "Reciprocal", "GreaterOrEqual",
                                            "Tanh",     "Erf",        "Gelu",
                                            "Elu",      "Selu",       "Celu",
                                            "Clip",     "LeakyRelu",  "HardSigmoid",
                                            "Mish",     "HardSwish",  "Softplus",
                                            "Softsign", "Swish",      "Sign",
                                            "Floor",    "Ceil",       "Round",
                                            "Sin",      "Cos",        "IsNaN",
                                            "Cast",     "Identity",   "Dropout",
                                            "CastLike", "Mod"};

bool isScatter(const FlatNode &node) {
  return node.domain.empty() && (node.op == "ScatterElements" || node.op == "ScatterND");
}

int64_t product(llvm::ArrayRef<int64_t> dims) {
  int64_t all = 1;
  for (int64_t dim : dims)
    all *= dim;
  return all;
}

} // namespace

bool RoutedRows::concerns(const FlatNode &node) const {
  if (node.domain.empty() && node.op == "NonZero")
    return true;
  return llvm::any_of(node.inputs, [&](const std::string &input) { return tags_.count(input); });
}

void RoutedRows::forget(const FlatNode &node) {
  if (!tags_.empty())
    for (const std::string &output : node.outputs)
      tags_.erase(output);
}

void RoutedRows::alias(llvm::ArrayRef<std::string> from, llvm::ArrayRef<std::string> to) {
  if (tags_.empty())
    return;
  std::vector<Result> tags;
  for (const std::string &name : from) {
    auto found = tags_.find(name);
    tags.push_back(found == tags_.end() ? Result() : Result(found->second));
  }
  for (size_t i = 0; i < to.size(); ++i)
    if (i < tags.size() && tags[i] && !to[i].empty())
      tags_[to[i]] = *tags[i];
    else
      tags_.erase(to[i]);
}

std::optional<Diagnostic> RoutedRows::asOutput(const std::string &name) const {
  auto found = tags_.find(name);
  if (found == tags_.end())
    return std::nullopt;
  return Diagnostic{"output \"" + name + "\" has as many rows as " + routes_[found->second.route].title +
                        " finds, which depends on data",
                    kRemedy};
}

void RoutedRows::report(ImportReport &report) const {
  if (routes_.empty())
    return;
  int64_t rows = 0;
  for (const Route &route : routes_)
    rows += route.rows;
  report.repairs.push_back("made dense what " + std::to_string(routes_.size()) +
                           (routes_.size() == 1 ? " NonZero node chooses" : " NonZero nodes choose") +
                           " by data (routed experts; the first is " + routes_[0].title + "): all " +
                           std::to_string(rows) + " places are computed, those not chosen add zero");
}

const RoutedRows::Tag *RoutedRows::tagOf(const NodeLowering &n, size_t operand) const {
  auto found = operand < n.node.inputs.size() ? tags_.find(n.node.inputs[operand]) : tags_.end();
  return found == tags_.end() ? nullptr : &found->second;
}

RoutedRows::Result RoutedRows::refuse(NodeLowering &n, const std::string &why) {
  n.fail(why, kRemedy);
  return std::nullopt;
}

Values RoutedRows::lower(NodeLowering &n, LowerFunction function, const Maker &make) {
  forget(n.node);
  const bool isTagged =
      llvm::any_of(n.node.inputs, [&](const std::string &input) { return tags_.count(input); });
  if (n.node.op == "NonZero" && n.node.domain.empty() && !isTagged)
    return n.has(0) && !n.host(n.in(0)) ? start(n) : function(n);
  form_ = commonForm(n);
  std::optional<Values> operands = gatherOnce(n);
  if (!operands && form_ == Form::all) {
    operands.emplace();
    for (size_t i = 0; i < n.node.inputs.size(); ++i) {
      const Tag *tag = tagOf(n, i);
      Value *value = n.has(static_cast<int>(i)) ? n.in(static_cast<int>(i)) : nullptr;
      operands->push_back(tag && value ? allRows(n, value, *tag) : value);
    }
  }
  std::optional<NodeLowering> replaced;
  if (operands && !n.failed())
    replaced.emplace(make(n.node, *operands));
  NodeLowering &used = replaced ? *replaced : n;
  Values results = isScatter(n.node) ? addWhereChosen(used, function, make) : function(used);
  Result tag;
  if (!used.failed() && !results.empty() && results[0] && !isScatter(n.node))
    tag = resultTag(used, results);
  if (used.failed()) {
    n.finding = used.finding;
    return {};
  }
  if (tag)
    for (const std::string &output : n.node.outputs)
      if (!output.empty()) {
        tags_[output] = *tag;
        tags_[output].form = tag->isSize ? Form::all : form_;
      }
  return results;
}

RoutedRows::Form RoutedRows::commonForm(NodeLowering &n) const {
  static const std::set<std::string> kept = {
      "MatMul",  "Gemm",       "Transpose",          "Unsqueeze",        "Squeeze", "Flatten",
      "Softmax", "LogSoftmax", "LayerNormalization", "RMSNormalization", "Reshape"};
  const std::string &op = n.node.op;
  if (!n.node.domain.empty() || (!kept.count(op) && !kElementwise.count(op)))
    return Form::all;
  if (op == "Reshape") { // to a shape that says how many rows there are in all?
    const HostTensor *shape = tagOf(n, 1) || !n.has(1) ? nullptr : n.host(n.in(1));
    if (!shape || !llvm::is_contained(shape->integers, -1))
      return Form::all;
  }
  std::optional<Form> form;
  for (size_t i = 0; i < n.node.inputs.size(); ++i)
    if (const Tag *tag = tagOf(n, i)) {
      if (tag->isSize || (form && *form != tag->form))
        return Form::all;
      form = tag->form;
    }
  return form.value_or(Form::all);
}

std::optional<Values> RoutedRows::gatherOnce(NodeLowering &n) {
  const Tag *tag = tagOf(n, 1);
  const bool isGather = n.node.domain.empty() && (n.node.op == "Gather" || n.node.op == "GatherND");
  if (!isGather || !tag || tag->isSize || tag->axis != 0 || tagOf(n, 0) || n.failed())
    return std::nullopt;
  const HostTensor *host = n.host(n.in(1));
  const Route &route = routes_[tag->route];
  if (!host || tag->form != Form::all || route.maskRows < 2 || route.maskColumns < 2)
    return std::nullopt;
  const int64_t width = host->type.elements() / route.rows;
  auto repeats = [&](auto sameAs) {
    for (int64_t row = 0; row < route.rows; ++row)
      for (int64_t i = 0; i < width; ++i)
        if (host->integers[row * width + i] != host->integers[sameAs(row) * width + i])
          return false;
    return true;
  };
  int64_t step = 1;
  if (repeats([&](int64_t row) { return row % route.maskColumns; })) {
    form_ = Form::perColumn;
  } else if (repeats([&](int64_t row) { return row / route.maskColumns * route.maskColumns; })) {
    form_ = Form::perRow;
    step = route.maskColumns;
  } else {
    return std::nullopt;
  }
  const Dims &dims = host->type.dims;
  std::vector<int64_t> starts(dims.size(), 0), sizes(dims.begin(), dims.end()), steps(dims.size(), 1);
  sizes[0] = route.count(form_);
  steps[0] = step;
  return Values{n.in(0), n.slice(n.in(1), starts, sizes, steps)};
}

/// [.., T, ..] becomes [.., K, T, ..] or [.., T, K, ..], as [.., K T, ..].
Value *RoutedRows::allRows(NodeLowering &n, Value *value, const Tag &tag) const {
  if (tag.isSize || tag.form == Form::all)
    return value;
  const Route &route = routes_[tag.route];
  Dims once = value->type.dims, repeated = once, all = once;
  const int64_t axis = tag.axis + (tag.form == Form::perRow ? 1 : 0);
  once.insert(once.begin() + axis, 1);
  repeated.insert(repeated.begin() + axis, tag.form == Form::perRow ? route.maskColumns : route.maskRows);
  all[tag.axis] = route.rows;
  return n.reshape(n.broadcast(n.reshape(value, once), repeated), all);
}

/// Positions of all elements, in order, instead of those that are not zero.
Values RoutedRows::start(NodeLowering &n) {
  Value *x = n.in(0);
  const int64_t rows = x->type.elements(), rank = x->type.rank();
  if (rank == 0 || rows < 2)
    return {n.fail("finds an unknown number of places in " + print(x->type), kRemedy)};
  Values positions;
  for (int64_t axis = 0; axis < rank; ++axis) {
    Dims dims(rank, 1);
    dims[axis] = x->type.dims[axis];
    Value *along = n.broadcast(n.reshape(n.iota(DType::i64, dims[axis]), dims), x->type.dims);
    positions.push_back(n.reshape(along, {1, rows}));
  }
  Value *flat = n.reshape(x, {rows});
  Value *isChosen =
      x->type.dtype == DType::boolean ? flat : n.compare(flat, n.scalar(x->type.dtype, 0), "ne");
  Value *result = n.concat(positions, 0);
  if (!isChosen || !result)
    return {nullptr};
  tags_[n.node.outputs[0]] = {static_cast<int>(routes_.size()), false, 1, Form::all};
  routes_.push_back({nodeTitle(n.node.name, n.node.op, n.node.outputs[0]), isChosen, rows,
                     rank == 2 ? x->type.dims[0] : 1, rank == 2 ? x->type.dims[1] : rows});
  return {result};
}

/// Updates of rows that were not chosen become zero, and are added. Onto zeros, adding is what writing is:
/// without a reduction ONNX does not allow two updates of one place.
Values RoutedRows::addWhereChosen(NodeLowering &n, LowerFunction function, const Maker &make) {
  const Tag *indices = tagOf(n, 1), *updates = tagOf(n, 2);
  Value *data = n.in(0), *values = n.in(2);
  if (!data || !values)
    return {nullptr};
  if (tagOf(n, 0) || !indices || !updates || indices->isSize || updates->isSize ||
      indices->route != updates->route || indices->axis != updates->axis)
    return refuse(n, "its indices and updates are not the same rows, whose number depends on data"), Values();
  const std::string reduction = n.stringAttribute("reduction", "none");
  if (reduction != "add" && !(reduction == "none" && n.uniformNumber(data) == 0.0))
    return refuse(n, "writes rows whose number depends on data with reduction \"" + reduction +
                         "\"; only \"add\", or none onto zeros, can be made dense"),
           Values();
  const Route &route = routes_[updates->route];
  Dims dims(values->type.rank(), 1);
  dims[updates->axis] = route.rows;
  Value *masked = n.select(n.reshape(route.isChosen, dims), values, n.scalar(values->type.dtype, 0));
  if (!masked)
    return {nullptr};
  onnx::AttributeProto &add = attributes_.emplace_back();
  add.set_name("reduction");
  add.set_type(onnx::AttributeProto::STRING);
  add.set_s("add");
  FlatNode &dense = replacements_.emplace_back();
  dense.name = n.node.name;
  dense.scope = n.node.scope;
  dense.op = n.node.op;
  dense.version = n.node.version;
  dense.inputs = n.node.inputs;
  dense.outputs = n.node.outputs;
  dense.attributes = n.node.attributes;
  dense.attributes["reduction"] = &add;
  NodeLowering lowering = make(dense, {data, n.in(1), masked});
  Values results = function(lowering);
  if (lowering.failed())
    n.finding = lowering.finding;
  return results;
}

RoutedRows::Result RoutedRows::resultTag(NodeLowering &n, const Values &results) {
  bool anySize = false, anyRows = false;
  int route = -1;
  for (size_t i = 0; i < n.node.inputs.size(); ++i)
    if (const Tag *tag = tagOf(n, i)) {
      (tag->isSize ? anySize : anyRows) = true;
      if (route >= 0 && route != tag->route)
        return refuse(n, "joins rows that " + routes_[route].title + " and " + routes_[tag->route].title +
                             " choose by data");
      route = tag->route;
    }
  if (!n.node.domain.empty())
    return refuse(n, "reads rows that " + routes_[route].title + " chooses by data");
  return anyRows ? rowsTag(n, results) : anySize ? sizeTag(n, results) : Result();
}

// --- the number of rows
// ----------------------------------------------------------------------------------------------

RoutedRows::Result RoutedRows::sizeTag(NodeLowering &n, const Values &results) {
  const std::string &op = n.node.op;
  const Tag *first = tagOf(n, 0);
  if (op == "Shape" || op == "Size")
    return std::nullopt; // of a vector of sizes: known
  if (op == "Cast" || op == "Identity")
    return *first;
  if (op == "Reshape" || op == "Squeeze" || op == "Unsqueeze")
    return first ? Tag{first->route, true, results[0]->type.rank() > 1 ? -1 : first->axis}
                 : refuse(n, "gives a tensor a shape whose size depends on data");
  if (op == "Expand")
    return first ? Tag{first->route, true, -1} : expandedTag(n, results[0]);
  if (op == "Gather" && first && !tagOf(n, 1)) {
    const HostTensor *places = n.host(n.in(1));
    const int64_t size = n.in(0)->type.elements();
    if (!places || first->axis < 0)
      return Tag{first->route, true, -1};
    Tag tag{first->route, true, -1};
    int64_t hits = 0;
    for (size_t i = 0; i < places->integers.size(); ++i)
      if (places->integers[i] + (places->integers[i] < 0 ? size : 0) == first->axis) {
        tag.axis = static_cast<int64_t>(i);
        ++hits;
      }
    if (hits == 0)
      return std::nullopt;
    tag.axis = hits == 1 ? tag.axis : -1;
    return tag;
  }
  if (op == "Slice" && first)
    return Tag{first->route, true, -1};
  if (op == "Concat") {
    int64_t before = 0;
    Tag tag{0, true, -1};
    int64_t tagged = 0;
    for (size_t i = 0; i < n.node.inputs.size(); ++i) {
      if (const Tag *part = tagOf(n, i)) {
        tag = {part->route, true, part->axis < 0 ? -1 : before + part->axis};
        ++tagged;
      }
      before += n.in(static_cast<int>(i))->type.elements();
    }
    tag.axis = tagged == 1 ? tag.axis : -1;
    return tag;
  }
  if (op == "Equal" || op == "Where") { // Where(Equal(size, -1), ones, size): no size is negative
    if (op == "Where" && !tagOf(n, 0)) {
      const Tag *a = tagOf(n, 1), *b = tagOf(n, 2);
      return Tag{(a ? a : b)->route, true, a && b ? -1 : (a ? a : b)->axis};
    }
    std::optional<double> other = n.uniformNumber(n.in(first ? 1 : 0));
    if (op == "Equal" && other && *other < 0)
      return std::nullopt;
  }
  if (op == "ConstantOfShape" && first->axis >= 0)
    return Tag{first->route, false, first->axis};
  int route = 0;
  for (size_t i = 0; i < n.node.inputs.size(); ++i)
    if (const Tag *tag = tagOf(n, i))
      route = tag->route;
  return refuse(n, "depends on how many rows " + routes_[route].title + " finds");
}

// --- rows
// ------------------------------------------------------------------------------------------------------------

RoutedRows::Result RoutedRows::rowsTag(NodeLowering &n, const Values &results) {
  const std::string &op = n.node.op;
  const Tag *first = tagOf(n, 0);
  Value *x = n.has(0) ? n.in(0) : nullptr, *y = results[0];
  if (kElementwise.count(op))
    return elementwiseTag(n, y);
  if (op == "Gather" || op == "GatherND")
    return gatheredTag(n);
  if (op == "Expand")
    return expandedTag(n, y);
  if (op == "Concat") {
    std::optional<int64_t> axis = n.normalAxis(n.intAttribute("axis", 0), x->type.rank());
    for (size_t i = 0; i < n.node.inputs.size(); ++i) {
      const Tag *tag = tagOf(n, i);
      if (!tag || tag->isSize || !first || tag->axis != first->axis || axis == tag->axis)
        return refuse(n, "joins rows whose number depends on data with others");
    }
    return *first;
  }
  for (size_t i = 1; i < n.node.inputs.size(); ++i)
    if (const Tag *tag = tagOf(n, i); tag && !(op == "Reshape" && tag->isSize))
      return refuse(n, "reads rows that " + routes_[tag->route].title + " chooses by data as operand " +
                           std::to_string(i));
  const int64_t row = first->axis;
  if (op == "Shape") {
    int64_t start = n.intAttribute("start", 0);
    start = std::clamp<int64_t>(start < 0 ? start + x->type.rank() : start, 0, x->type.rank());
    const bool isThere = row >= start && row - start < y->type.elements();
    return isThere ? Result(Tag{first->route, true, row - start}) : std::nullopt;
  }
  if (op == "Reshape" || op == "Flatten" || op == "Squeeze" || op == "Unsqueeze")
    return reshapedTag(n, *first, x, y);
  if (op == "Transpose") {
    std::vector<int64_t> permutation = n.intsAttribute("perm");
    for (int64_t i = 0; i < x->type.rank(); ++i)
      if ((permutation.empty() ? x->type.rank() - 1 - i : permutation[i]) == row)
        return Tag{first->route, false, i};
  }
  if (op == "Split")
    if (n.normalAxis(n.intAttribute("axis", 0), x->type.rank()) != row)
      return *first;
  if (op == "Slice") {
    std::vector<int64_t> axes;
    if (n.has(3)) {
      axes = n.constantInts(3, "axes").value_or(axes);
    } else {
      for (int64_t i = 0; n.has(1) && i < n.in(1)->type.elements(); ++i)
        axes.push_back(i);
    }
    bool cutsRows = n.version < 10 || llvm::any_of(axes, [&](int64_t axis) {
                      return axis + (axis < 0 ? x->type.rank() : 0) == row;
                    });
    if (!cutsRows)
      return *first;
  }
  if (op == "MatMul" && row + 2 <= x->type.rank() && n.in(1)->type.rank() <= 2)
    return *first;
  if (op == "Gemm" && row == 0 && n.intAttribute("transA", 0) == 0 &&
      (!n.has(2) || n.in(2)->type.rank() < 2 || n.in(2)->type.dims[0] == 1))
    return *first;
  if (op == "LayerNormalization" || op == "RMSNormalization")
    if (n.normalAxis(n.intAttribute("axis", -1), x->type.rank()) > row)
      return *first;
  if ((op == "Softmax" || op == "LogSoftmax") && n.version >= 13)
    if (n.normalAxis(n.intAttribute("axis", -1), x->type.rank()) != row)
      return *first;
  return refuse(n, "reads rows that " + routes_[first->route].title +
                       " chooses by data, and is not known to keep them apart");
}

/// Operands broadcast; the others must be one row for all.
RoutedRows::Result RoutedRows::elementwiseTag(NodeLowering &n, Value *result) {
  Result tag;
  for (size_t i = 0; i < n.node.inputs.size(); ++i)
    if (const Tag *of = tagOf(n, i)) {
      const int64_t axis = result->type.rank() - n.in(static_cast<int>(i))->type.rank() + of->axis;
      if (of->isSize || (tag && tag->axis != axis))
        return refuse(n, "crosses rows whose number depends on data");
      tag = Tag{of->route, false, axis};
    }
  for (size_t i = 0; i < n.node.inputs.size(); ++i) {
    if (tagOf(n, i) || !n.has(static_cast<int>(i)) || (n.node.op == "CastLike" && i == 1))
      continue;
    const Dims &dims = n.in(static_cast<int>(i))->type.dims;
    const int64_t axis = tag->axis - (result->type.rank() - static_cast<int64_t>(dims.size()));
    if (axis >= 0 && dims[axis] != 1)
      return refuse(n,
                    "meets rows whose number depends on data with " + std::to_string(dims[axis]) + " others");
  }
  return tag;
}

/// The axis with as many elements before it and of the rows' size.
RoutedRows::Result RoutedRows::reshapedTag(NodeLowering &n, const Tag &tag, Value *operand, Value *result) {
  llvm::ArrayRef<int64_t> from = operand->type.dims, to = result->type.dims;
  for (size_t axis = 0; axis < to.size(); ++axis)
    if (to[axis] == routes_[tag.route].count(form_) &&
        product(to.take_front(axis)) == product(from.take_front(tag.axis)))
      return Tag{tag.route, false, static_cast<int64_t>(axis)};
  return refuse(n, "makes " + print(result->type) + " of " + print(operand->type) +
                       ", whose rows, of a number that depends on data, are axis " +
                       std::to_string(tag.axis));
}

RoutedRows::Result RoutedRows::expandedTag(NodeLowering &n, Value *result) {
  const Tag *rows = tagOf(n, 0), *size = tagOf(n, 1);
  if (size && !size->isSize)
    return refuse(n, "expands to a size that depends on data");
  Value *x = n.in(0);
  const int64_t lead = result->type.rank() - x->type.rank();
  if (rows) {
    const int64_t axis = lead + rows->axis;
    if (!size || size->axis < 0 || size->axis + result->type.rank() - n.in(1)->type.elements() == axis)
      return Tag{rows->route, false, axis};
  } else if (size->axis >= 0) {
    const int64_t axis = size->axis + result->type.rank() - n.in(1)->type.elements();
    if (axis >= 0 && (axis < lead || x->type.dims[axis - lead] == 1))
      return Tag{size->route, false, axis};
  }
  return refuse(n, "expands to a size that depends on data");
}

RoutedRows::Result RoutedRows::gatheredTag(NodeLowering &n) {
  const Tag *data = tagOf(n, 0), *indices = tagOf(n, 1);
  const int64_t dataRank = n.in(0)->type.rank(), indexRank = n.in(1)->type.rank();
  if (n.node.op == "GatherND") {
    if (!data && indices && !indices->isSize && indices->axis < indexRank - 1 &&
        n.intAttribute("batch_dims", 0) == 0)
      return Tag{indices->route, false, indices->axis};
    return refuse(n, "gathers from rows whose number depends on data");
  }
  std::optional<int64_t> axis = n.normalAxis(n.intAttribute("axis", 0), dataRank);
  if (!axis)
    return std::nullopt;
  if (!data && !indices->isSize)
    return Tag{indices->route, false, *axis + indices->axis};
  if (!indices && data->axis != *axis)
    return Tag{data->route, false, data->axis < *axis ? data->axis : data->axis + indexRank - 1};
  return refuse(n, "picks among rows whose number depends on data");
}

} // namespace zerocc
