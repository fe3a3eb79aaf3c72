#include "compiler/onnx/lowering.h"

#include "compiler/onnx/newer_attributes.h"

#include "llvm/Support/xxhash.h"

#include "llvm/ADT/STLExtras.h"

#include "onnx/defs/schema.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace zerocc {

NodeLowering::NodeLowering(const FlatNode &node, Values operands, Module &module, Graph &graph, Folder &folder,
                           const LoadedModel &model, const ImportOptions &options, std::string step)
    : node(node), version(node.version), options(options), step_(std::move(step)), operands_(std::move(operands)),
      builder_(module, graph), folder_(folder), model_(model) {
  std::string first = node.outputs.empty() ? "" : node.outputs[0];
  builder_.location = (node.name.empty() ? node.op + ":" + first : node.name) + step_;
}

Value *NodeLowering::fail(const std::string &reason, const std::string &hint) {
  if (!finding)
    finding = Diagnostic{reason, hint};
  return nullptr;
}

Value *NodeLowering::in(int i) {
  if (!has(i))
    return fail("operand " + std::to_string(i) + " is missing");
  return operands_[i];
}

std::optional<Diagnostic> NodeLowering::unread() const {
  if (!node.domain.empty())
    return std::nullopt;
  const onnx::OpSchema *schema = onnx::OpSchemaRegistry::Schema(node.op, static_cast<int>(version), "");
  for (int i = readOperands_; i < operandCount(); ++i)
    if (operands_[i] && (!schema || i >= schema->max_input()))
      return Diagnostic{"has an operand " + std::to_string(i) + ", which the op does not have in opset " +
                            std::to_string(version),
                        "remove it, or export with the opset that has it"};
  for (const auto &[name, attribute] : node.attributes)
    if (!readAttributes_.count(name) && !(schema && schema->attributes().count(name)) &&
        !isNewerAttribute(node.op, name, version))
      return Diagnostic{"has an attribute \"" + name + "\", which the op does not have in opset " +
                            std::to_string(version),
                        "remove it, or export with the opset that has it"};
  return std::nullopt;
}

// --- attributes ------------------------------------------------------------------------------------------------------

const onnx::AttributeProto *NodeLowering::attribute(const std::string &name, int type) {
  readAttributes_.insert(name);
  auto found = node.attributes.find(name);
  if (found == node.attributes.end())
    return nullptr;
  if (found->second->type() == type)
    return found->second;
  fail("attribute \"" + name + "\" is of kind " + onnx::AttributeProto::AttributeType_Name(found->second->type()) +
       ", not " + onnx::AttributeProto::AttributeType_Name(static_cast<onnx::AttributeProto::AttributeType>(type)));
  return nullptr;
}

int64_t NodeLowering::intAttribute(const std::string &name, int64_t otherwise) {
  const onnx::AttributeProto *found = attribute(name, onnx::AttributeProto::INT);
  return found ? found->i() : otherwise;
}

double NodeLowering::floatAttribute(const std::string &name, double otherwise) {
  const onnx::AttributeProto *found = attribute(name, onnx::AttributeProto::FLOAT);
  return found ? found->f() : otherwise;
}

std::string NodeLowering::stringAttribute(const std::string &name, const std::string &otherwise) {
  const onnx::AttributeProto *found = attribute(name, onnx::AttributeProto::STRING);
  return found ? found->s() : otherwise;
}

std::vector<int64_t> NodeLowering::intsAttribute(const std::string &name) {
  const onnx::AttributeProto *found = attribute(name, onnx::AttributeProto::INTS);
  return found ? std::vector<int64_t>(found->ints().begin(), found->ints().end()) : std::vector<int64_t>();
}

std::optional<HostTensor> NodeLowering::tensorAttribute(const std::string &name) {
  const onnx::AttributeProto *found = attribute(name, onnx::AttributeProto::TENSOR);
  if (!found) {
    fail("attribute \"" + name + "\" is missing");
    return std::nullopt;
  }
  Expected<TensorType> type = LoadedModel::typeOf(found->t());
  Expected<std::string> bytes = type ? model_.bytesOf(found->t()) : Expected<std::string>(type.error());
  if (!bytes) {
    fail("attribute \"" + name + "\": " + bytes.error().findings().front().message);
    return std::nullopt;
  }
  return HostTensor::fromBytes(*type, *bytes);
}

std::optional<std::vector<int64_t>> NodeLowering::intsOperandOrAttribute(const std::string &name, int operand,
                                                                         int64_t since) {
  if (version >= since)
    return has(operand) ? constantInts(operand, name.c_str()) : std::nullopt;
  if (!hasAttribute(name))
    return std::nullopt;
  return intsAttribute(name);
}

// --- constants -------------------------------------------------------------------------------------------------------

std::optional<std::vector<int64_t>> NodeLowering::constantInts(int operand, const char *what) {
  Value *value = in(operand);
  if (!value)
    return std::nullopt;
  folder_.fault.clear();
  const HostTensor *known = folder_.evaluate(value);
  if (!known || isFloat(known->type.dtype)) {
    fail(std::string(what) + " must be known when compiling, but operand " + std::to_string(operand) +
             (known                    ? " is " + print(known->type)
              : folder_.fault.empty() ? " depends on the model's inputs or parameters"
                                       : " cannot be computed: " + folder_.fault),
         "bind every dimension with --dim, or export the model with fixed shapes");
    return std::nullopt;
  }
  return known->integers;
}

std::optional<int64_t> NodeLowering::constantInt(int operand, const char *what) {
  std::optional<std::vector<int64_t>> values = constantInts(operand, what);
  if (!values)
    return std::nullopt;
  if (values->size() != 1) {
    fail(std::string(what) + " must be one number, operand " + std::to_string(operand) + " has " +
         std::to_string(values->size()));
    return std::nullopt;
  }
  return values->front();
}

std::optional<double> NodeLowering::constantNumber(Value *value) {
  if (!value || value->type.elements() != 1)
    return std::nullopt;
  const HostTensor *known = host(value);
  return known ? std::optional<double>(known->at(0)) : std::nullopt;
}

std::optional<double> NodeLowering::uniformNumber(Value *value) {
  // A broadcast of one element needs no look at its elements.
  while (value && !value->isGlobal() && isConstant(value) &&
         (value->definition->op == OpKind::Broadcast || value->definition->op == OpKind::Reshape))
    value = value->definition->input(0);
  if (!value || value->type.elements() == 0)
    return std::nullopt;
  const HostTensor *known = host(value);
  if (!known)
    return std::nullopt;
  for (int64_t i = 1; i < known->type.elements(); ++i)
    if (known->at(i) != known->at(0))
      return std::nullopt;
  return known->at(0);
}

/// The one input of a role that lowerings make, under a name that the model has not taken.
static Value *inputOfRole(Module &module, const char *role, const TensorType &type) {
  for (const Input &input : module.inputs)
    if (input.role == role)
      return input.value.get();
  std::string name = role;
  while (module.global(name))
    name += "~";
  Value *made = module.addInput(name, type);
  module.inputs.back().role = role;
  return made;
}

Value *NodeLowering::random() { return inputOfRole(builder_.module, "random", {DType::i64, {3}}); }

Value *NodeLowering::whenTraining(Value *training, Value *inference) {
  if (!training || !inference || options.inference)
    return inference;
  return select(inputOfRole(builder_.module, "training", {DType::boolean, {}}), training, inference);
}

int64_t NodeLowering::randomId(int64_t stream) const {
  std::string name = (node.outputs.empty() ? node.name : node.outputs[0]) + step_;
  if (stream != 0)
    name += "#" + std::to_string(stream);
  return static_cast<int64_t>(llvm::xxHash64(name) & 0x7fffffff);
}

Value *NodeLowering::movedSoFar(Value *statistic) {
  if (statistic && builder_.module.storageOf(statistic))
    for (const auto &[name, next] : builder_.graph.results)
      if (name == "buffer:" + statistic->name)
        return next;
  return statistic;
}

bool NodeLowering::updateBuffer(Value *statistic, Value *next) {
  const Storage *storage = statistic ? builder_.module.storageOf(statistic) : nullptr;
  if (!storage || !storage->isBuffer() || !next)
    return false;
  auto &results = builder_.graph.results;
  const std::string name = "buffer:" + statistic->name;
  auto found = llvm::find_if(results, [&](const auto &result) { return result.first == name; });
  if (found == results.end())
    results.push_back({name, next});
  else
    found->second = next;
  return true;
}

Value *NodeLowering::scalar(DType dtype, double value) { return builder_.module.scalar(dtype, value); }

Value *NodeLowering::ints(llvm::ArrayRef<int64_t> values) {
  return constant(HostTensor::integer({DType::i64, {static_cast<int64_t>(values.size())}}, values.vec()));
}

Value *NodeLowering::constant(const HostTensor &host) {
  Module &module = builder_.module;
  std::string name = builder_.location;
  while (module.global(name))
    name += "~";
  return module.addConstant(name, host.type, {DataSource::Kind::inlineBytes, host.toBytes(), ""});
}

Value *NodeLowering::filled(const TensorType &type, double value) {
  return broadcast(scalar(type.dtype, value), type.dims);
}

// --- building --------------------------------------------------------------------------------------------------------

Node *NodeLowering::make(OpKind op, llvm::ArrayRef<Value *> inputs, Attributes attributes) {
  if (failed() || llvm::is_contained(inputs, nullptr))
    return nullptr;
  Expected<Node *> made = builder_.tryMake(op, inputs, std::move(attributes));
  if (!made) {
    fail(made.error().findings().front().message, made.error().findings().front().hint);
    return nullptr;
  }
  folder_.note(**made);
  return *made;
}

Value *NodeLowering::emit(OpKind op, llvm::ArrayRef<Value *> inputs, Attributes attributes) {
  Node *made = make(op, inputs, std::move(attributes));
  return made ? made->result() : nullptr;
}

static std::vector<int64_t> list(llvm::ArrayRef<int64_t> values) { return values.vec(); }

static Node *definedBy(Value *value, OpKind op) {
  return value && !value->isGlobal() && value->definition->op == op ? value->definition : nullptr;
}

Value *NodeLowering::reshape(Value *x, llvm::ArrayRef<int64_t> dims) {
  if (Node *inner = definedBy(x, OpKind::Reshape); inner && inner->input(0)->type.elements() == x->type.elements())
    x = inner->input(0);
  if (!x || llvm::ArrayRef<int64_t>(x->type.dims) == dims)
    return x;
  return emit(OpKind::Reshape, {x}, {{"shape", list(dims)}});
}

Value *NodeLowering::transpose(Value *x, llvm::ArrayRef<int64_t> permutation) {
  if (!x)
    return nullptr;
  std::vector<int64_t> composed = list(permutation);
  Node *inner = definedBy(x, OpKind::Transpose);
  if (inner && composed.size() == x->type.dims.size()) {
    std::vector<int64_t> before = inner->attributes.getInts("perm");
    for (int64_t &axis : composed) {
      if (axis < 0 || axis >= static_cast<int64_t>(before.size()))
        return fail("transpose of axis " + std::to_string(axis) + " of " + print(x->type));
      axis = before[axis];
    }
    x = inner->input(0);
  }
  if (composed.size() == x->type.dims.size() && llvm::is_sorted(composed) &&
      (composed.empty() || (composed.front() == 0 && composed.back() + 1 == x->type.rank())))
    return x;
  return emit(OpKind::Transpose, {x}, {{"perm", composed}});
}

Value *NodeLowering::broadcast(Value *x, llvm::ArrayRef<int64_t> dims) {
  if (!x || llvm::ArrayRef<int64_t>(x->type.dims) == dims)
    return x;
  if (Node *inner = definedBy(x, OpKind::Broadcast))
    x = inner->input(0);
  return emit(OpKind::Broadcast, {x}, {{"shape", list(dims)}});
}

bool NodeLowering::broadcastTogether(llvm::MutableArrayRef<Value *> values) {
  if (llvm::is_contained(values, nullptr))
    return false;
  Dims common = values[0]->type.dims;
  for (Value *value : values.drop_front()) {
    std::optional<Dims> dims = broadcastShape(common, value->type.dims);
    if (!dims) {
      fail("shapes cannot be broadcast together: " + print(values[0]->type) + " and " + print(value->type));
      return false;
    }
    common = *dims;
  }
  for (Value *&value : values)
    if (value = broadcast(value, common); !value)
      return false;
  return true;
}

Value *NodeLowering::slice(Value *x, llvm::ArrayRef<int64_t> starts, llvm::ArrayRef<int64_t> sizes,
                           llvm::ArrayRef<int64_t> steps) {
  if (!x)
    return nullptr;
  std::vector<int64_t> strides = steps.empty() ? std::vector<int64_t>(starts.size(), 1) : list(steps);
  bool forward = llvm::all_of(strides, [](int64_t step) { return step == 1; });
  if (forward && llvm::ArrayRef<int64_t>(x->type.dims) == sizes)
    return x;
  return emit(OpKind::Slice, {x}, {{"starts", list(starts)}, {"sizes", list(sizes)}, {"steps", strides}});
}

Value *NodeLowering::sliceAxis(Value *x, int64_t axis, int64_t start, int64_t size) {
  if (!x)
    return nullptr;
  std::vector<int64_t> starts(x->type.dims.size(), 0), sizes(x->type.dims.begin(), x->type.dims.end());
  starts[axis] = start;
  sizes[axis] = size;
  return slice(x, starts, sizes);
}

Value *NodeLowering::concat(llvm::ArrayRef<Value *> xs, int64_t axis) {
  if (llvm::is_contained(xs, nullptr))
    return nullptr;
  Values filled;
  for (Value *x : xs) // an empty cache in front of keys or values adds nothing
    if (x->type.elements() != 0)
      filled.push_back(x);
  if (filled.empty()) { // nothing at all: still of some shape
    TensorType type = xs[0]->type;
    for (Value *x : xs.drop_front())
      if (axis < x->type.rank() && axis < type.rank())
        type.dims[axis] += x->type.dims[axis];
    return type == xs[0]->type ? xs[0] : this->filled(type, 0);
  }
  return filled.size() == 1 ? filled[0] : emit(OpKind::Concat, filled, {{"axis", axis}});
}

Value *NodeLowering::cast(Value *x, DType to) {
  if (!x || x->type.dtype == to)
    return x;
  return emit(OpKind::Cast, {x}, {{"to", std::string(dtypeName(to))}});
}

Value *NodeLowering::iota(DType dtype, int64_t elements) {
  return emit(OpKind::Iota, {}, {{"dtype", std::string(dtypeName(dtype))}, {"shape", std::vector<int64_t>{elements}}});
}

Value *NodeLowering::gather(Value *data, Value *indices, int64_t axis) {
  return emit(OpKind::Gather, {data, indices}, {{"axis", axis}});
}

Value *NodeLowering::binary(OpKind op, Value *a, Value *b) {
  Value *operands[] = {a, b};
  return broadcastTogether(operands) ? emit(op, operands) : nullptr;
}

Value *NodeLowering::compare(Value *a, Value *b, const char *kind) {
  Value *operands[] = {a, b};
  return broadcastTogether(operands) ? emit(OpKind::Compare, operands, {{"kind", std::string(kind)}}) : nullptr;
}

Value *NodeLowering::select(Value *condition, Value *a, Value *b) {
  Value *operands[] = {condition, a, b};
  return broadcastTogether(operands) ? emit(OpKind::Select, operands) : nullptr;
}

Value *NodeLowering::reduceSum(Value *x, llvm::ArrayRef<int64_t> axes) {
  return axes.empty() ? x : emit(OpKind::ReduceSum, {x}, {{"axes", list(axes)}});
}

Value *NodeLowering::reduceMax(Value *x, llvm::ArrayRef<int64_t> axes) {
  return axes.empty() ? x : emit(OpKind::ReduceMax, {x}, {{"axes", list(axes)}});
}

Value *NodeLowering::moveLast(Value *x, int64_t axis) {
  if (!x)
    return nullptr;
  std::vector<int64_t> permutation(x->type.dims.size());
  std::iota(permutation.begin(), permutation.end(), 0);
  permutation.erase(permutation.begin() + axis);
  permutation.push_back(axis);
  return transpose(x, permutation);
}

namespace {

/// A matrix operand: read as it lies, or with its last two dims swapped.
struct MatrixOperand {
  Value *value;
  bool swapped;
};

} // namespace

/// A transpose whose last axis is not the contiguous one is read through the flag instead: swapping its last two dims
/// once more leaves a simpler transpose, often none.
static MatrixOperand matrixOperand(NodeLowering &n, Value *x) {
  Node *inner = definedBy(x, OpKind::Transpose);
  if (!inner || x->type.rank() < 2)
    return {x, false};
  std::vector<int64_t> permutation = inner->attributes.getInts("perm");
  size_t rank = permutation.size();
  if (permutation[rank - 2] != static_cast<int64_t>(rank) - 1)
    return {x, false};
  std::swap(permutation[rank - 2], permutation[rank - 1]);
  return {n.transpose(inner->input(0), permutation), true};
}

static Value *emitMatmul(NodeLowering &n, MatrixOperand a, MatrixOperand b) {
  Attributes flags;
  if (a.swapped)
    flags.set("trans_a", int64_t(1));
  if (b.swapped)
    flags.set("trans_b", int64_t(1));
  return n.emit(OpKind::MatMul, {a.value, b.value}, std::move(flags));
}

Value *NodeLowering::matmul(Value *a, Value *b) {
  if (!a || !b)
    return nullptr;
  if (a->type.rank() == 0 || b->type.rank() == 0)
    return fail("operands must have at least one dim: " + print(a->type) + " and " + print(b->type));
  bool rowVector = a->type.rank() == 1, columnVector = b->type.rank() == 1;
  if (rowVector)
    a = reshape(a, {1, a->type.dims[0]});
  if (columnVector)
    b = reshape(b, {b->type.dims[0], 1});
  if (!a || !b)
    return nullptr;
  int64_t rows = a->type.dims[a->type.rank() - 2], columns = b->type.dims.back();
  if (a->type.dims.back() != b->type.dims[b->type.rank() - 2])
    return fail("inner dimensions differ: left is " + print(a->type) + ", right is " + print(b->type));

  Dims resultDims;
  Value *product = nullptr;
  if (b->type.rank() == 2) {
    // Rows of all batches times one matrix: one 2-D product, so that the gradient of the matrix is one, too.
    resultDims = Dims(a->type.dims.begin(), a->type.dims.end() - 1);
    int64_t allRows = 1;
    for (int64_t dim : resultDims)
      allRows *= dim;
    MatrixOperand left = a->type.rank() == 2 ? matrixOperand(*this, a)
                                             : MatrixOperand{reshape(a, {allRows, a->type.dims.back()}), false};
    MatrixOperand right = matrixOperand(*this, b);
    product = emitMatmul(*this, left, right);
  } else {
    llvm::ArrayRef<int64_t> batchA = llvm::ArrayRef<int64_t>(a->type.dims).drop_back(2),
                            batchB = llvm::ArrayRef<int64_t>(b->type.dims).drop_back(2);
    std::optional<Dims> batch = broadcastShape(batchA, batchB);
    if (!batch)
      return fail("batch dimensions cannot be broadcast together: left is " + print(a->type) + ", right is " +
                  print(b->type));
    auto spread = [&](Value *x) -> MatrixOperand {
      MatrixOperand operand = matrixOperand(*this, x);
      if (!operand.value)
        return operand;
      Dims dims = *batch;
      dims.append(operand.value->type.dims.end() - 2, operand.value->type.dims.end());
      return {broadcast(operand.value, dims), operand.swapped};
    };
    resultDims = *batch;
    resultDims.push_back(rows);
    MatrixOperand left = spread(a), right = spread(b);
    product = emitMatmul(*this, left, right);
  }
  if (rowVector)
    resultDims.pop_back();
  if (!columnVector)
    resultDims.push_back(columns);
  return reshape(product, resultDims);
}

std::optional<int64_t> NodeLowering::normalAxis(int64_t axis, int64_t rank) {
  if (axis >= -rank && axis < rank)
    return axis < 0 ? axis + rank : axis;
  fail("axis " + std::to_string(axis) + " is outside [" + std::to_string(-rank) + ", " + std::to_string(rank) + ")");
  return std::nullopt;
}

std::optional<std::vector<int64_t>> NodeLowering::normalAxes(std::vector<int64_t> axes, int64_t rank) {
  for (int64_t &axis : axes) {
    std::optional<int64_t> normal = normalAxis(axis, rank);
    if (!normal)
      return std::nullopt;
    axis = *normal;
  }
  llvm::sort(axes);
  if (std::adjacent_find(axes.begin(), axes.end()) != axes.end()) {
    fail("an axis is named twice");
    return std::nullopt;
  }
  return axes;
}

} // namespace zerocc
