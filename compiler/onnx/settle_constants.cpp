// 1. From the graph's results backwards: nodes that depend on an input or a parameter are needed; the constants they read
//    are decided one by one. A constant that keeps its node makes the operands of that node constants to decide.
// 2. Once more in order: operands are replaced by what stands for them, and nodes made in step 1 are put before their
//    first reader.
// Linear in the graph, plus the cost of evaluating the constants that are read.

#include "compiler/onnx/settle_constants.h"

#include "compiler/ops/ops.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <cstring>
#include <optional>

namespace zerocc {
namespace {

std::vector<int64_t> list(llvm::ArrayRef<int64_t> dims) { return dims.vec(); }

/// True when all of several elements have the same bits.
bool isUniform(const HostTensor &host) {
  if (host.type.elements() < 2)
    return false;
  if (!isFloat(host.type.dtype))
    return llvm::all_of(host.integers, [&](int64_t v) { return v == host.integers[0]; });
  return llvm::all_of(host.reals, [&](double v) { return std::memcmp(&v, &host.reals[0], sizeof(double)) == 0; });
}

/// [.., R, C], the same for all leading indices: true where column <= row + shift, or, `inverted`, where it is greater.
struct CausalMask {
  int64_t rows = 0, columns = 0, shift = 0;
  bool inverted = false;
  auto operator<=>(const CausalMask &) const = default;
};

std::optional<CausalMask> asCausalMask(const HostTensor &host) {
  int64_t rank = host.type.rank();
  if (host.type.dtype != DType::boolean || rank < 2 || host.integers.empty())
    return std::nullopt;
  CausalMask mask;
  mask.rows = host.type.dims[rank - 2];
  mask.columns = host.type.dims[rank - 1];
  mask.inverted = host.integers[0] == 0;
  int64_t prefix = 0; // of the first row
  while (prefix < mask.columns && (host.integers[prefix] != 0) != mask.inverted)
    ++prefix;
  mask.shift = prefix - 1;
  for (size_t i = 0; i < host.integers.size(); ++i) {
    int64_t column = static_cast<int64_t>(i) % mask.columns, row = static_cast<int64_t>(i) / mask.columns % mask.rows;
    if ((host.integers[i] != 0) != ((column <= row + mask.shift) != mask.inverted))
      return std::nullopt;
  }
  return mask;
}

bool isElementwise(OpKind op) { return op == OpKind::Cast || (op >= OpKind::Neg && op <= OpKind::Select); }

class ConstantSettler {
public:
  ConstantSettler(Module &module, Graph &graph, Folder &folder) : module_(module), graph_(graph), folder_(folder) {}

  void run() {
    findNeeded();
    for (size_t i = 0; i < read_.size(); ++i) // grows while it runs
      if (!standsFor_.count(read_[i])) {
        standsFor_[read_[i]] = read_[i];
        decide(read_[i]);
      }
    for (Node *node : graph_.nodes) {
      if (!needed_.count(node))
        continue;
      for (Value *&input : node->inputs)
        input = replacement(input);
      if (!computeSmaller(*node))
        keep(node);
    }
    for (auto &[name, value] : graph_.results) {
      value = replacement(value);
      placeMaker(value);
    }
    dropUnread();
  }

private:
  void findNeeded() {
    std::vector<const Node *> stack;
    auto need = [&](Value *value) {
      if (folder_.isConstant(value))
        read_.push_back(value);
      else if (!value->isGlobal() && needed_.insert(value->definition).second)
        stack.push_back(value->definition);
    };
    for (auto &[name, value] : graph_.results)
      need(value);
    while (!stack.empty()) {
      const Node *node = stack.back();
      stack.pop_back();
      llvm::for_each(node->inputs, need);
    }
    std::reverse(read_.begin(), read_.end()); // about the order of the graph, for the numbers in names
  }

  void decide(Value *value) {
    folder_.release();
    Node *node = value->definition;
    bool isSmall = value->type.bytes() <= kInlineConstantBytes;
    bool isInline = !node && isSmall, isBroadcast = node && node->op == OpKind::Broadcast;
    const HostTensor *host = isInline || isBroadcast ? nullptr : folder_.evaluate(value);
    if (host && isUniform(*host))
      standsFor_[value] = spread(inlineConstant(elementOf(*host)), value->type.dims, locationOf(*value));
    else if (host && isSmall)
      standsFor_[value] = inlineConstant(*host);
    else if (std::optional<CausalMask> mask = host ? asCausalMask(*host) : std::nullopt)
      standsFor_[value] = spread(maskOf(*mask, locationOf(*value)), value->type.dims, locationOf(*value));
    else if (node) {
      needed_.insert(node);
      read_.insert(read_.end(), node->inputs.begin(), node->inputs.end());
    }
  }

  static HostTensor elementOf(const HostTensor &host) {
    TensorType type{host.type.dtype, {}};
    return isFloat(type.dtype) ? HostTensor::real(type, {host.reals[0]}) : HostTensor::integer(type, {host.integers[0]});
  }

  static std::string locationOf(const Value &value) {
    return value.definition ? value.definition->location : value.name;
  }

  Value *inlineConstant(const HostTensor &host) {
    std::string bytes = host.toBytes();
    Value *&constant = inlined_[{print(host.type), bytes}];
    if (constant)
      return constant;
    // Names of scalars tell their value, through a double.
    bool exact = isFloat(host.type.dtype) || host.integers.empty() ||
                 static_cast<int64_t>(host.at(0)) == host.integers[0];
    if (host.type.dims.empty() && exact)
      return constant = module_.scalar(host.type.dtype, host.at(0));
    std::string name;
    for (size_t i = inlined_.size() - 1;; ++i)
      if (name = "constant." + std::to_string(i); !module_.global(name))
        break;
    return constant = module_.addConstant(name, host.type, {DataSource::Kind::inlineBytes, bytes, ""});
  }

  // --- nodes made here ----------------------------------------------------------------------------------------------

  Value *make(OpKind op, llvm::ArrayRef<Value *> inputs, TensorType type, Attributes attributes,
              const std::string &location) {
    Node *node = graph_.create(op, inputs, {type}, std::move(attributes), location);
    unplaced_.insert(node);
    return node->result();
  }

  Value *spread(Value *x, llvm::ArrayRef<int64_t> dims, const std::string &location) {
    if (llvm::ArrayRef<int64_t>(x->type.dims) == dims)
      return x;
    return make(OpKind::Broadcast, {x}, {x->type.dtype, Dims(dims.begin(), dims.end())}, {{"shape", list(dims)}}, location);
  }

  Value *positions(int64_t count, const std::string &location) {
    return make(OpKind::Iota, {}, {DType::i64, {count}}, {{"dtype", std::string("i64")}, {"shape", list({count})}}, location);
  }

  /// A few bytes of plan instead of the chains of gathers that exporters write.
  Value *maskOf(const CausalMask &mask, const std::string &location) {
    Value *&result = masks_[mask];
    if (result)
      return result;
    Dims matrix{mask.rows, mask.columns}, column{mask.rows, 1};
    Value *row = positions(mask.rows, location);
    if (mask.shift != 0) {
      Value *shift = spread(module_.scalar(DType::i64, static_cast<double>(mask.shift)), {mask.rows}, location);
      row = make(OpKind::Add, {row, shift}, row->type, {}, location);
    }
    row = make(OpKind::Reshape, {row}, {DType::i64, column}, {{"shape", list(column)}}, location);
    row = spread(row, matrix, location);
    Value *columns = spread(positions(mask.columns, location), matrix, location);
    Attributes kind{{"kind", std::string(mask.inverted ? "gt" : "le")}};
    return result = make(OpKind::Compare, {columns, row}, {DType::boolean, matrix}, kind, location);
  }

  // --- order --------------------------------------------------------------------------------------------------------

  Value *replacement(Value *value) const {
    auto found = standsFor_.find(value);
    return found == standsFor_.end() ? value : found->second;
  }

  /// Puts the node that makes `value`, if it was made here and has no place yet, and those it reads.
  void placeMaker(Value *value) {
    if (value->isGlobal() || !unplaced_.erase(value->definition))
      return;
    for (Value *input : value->definition->inputs)
      placeMaker(input);
    kept_.push_back(value->definition);
  }

  void keep(Node *node) {
    if (node->op == OpKind::Broadcast && !node->input(0)->isGlobal() &&
        node->input(0)->definition->op == OpKind::Broadcast)
      node->inputs[0] = node->input(0)->definition->input(0);
    for (Value *input : node->inputs)
      placeMaker(input);
    kept_.push_back(node);
  }

  /// What was computed at a smaller shape leaves its former operands behind.
  void dropUnread() {
    llvm::DenseSet<const Value *> read;
    for (const auto &[name, value] : graph_.results)
      read.insert(value);
    std::vector<Node *> left;
    for (Node *node : llvm::reverse(kept_)) {
      if (llvm::none_of(node->results, [&](const Value *result) { return read.count(result); }))
        continue;
      read.insert(node->inputs.begin(), node->inputs.end());
      left.push_back(node);
    }
    graph_.nodes.assign(left.rbegin(), left.rend());
  }

  /// An elementwise constant of operands that are all broadcast from a smaller shape is computed there.
  bool computeSmaller(Node &node) {
    if (!isElementwise(node.op) || !folder_.isConstant(node.results[0]))
      return false;
    Dims small;
    for (const Value *input : node.inputs) {
      bool isBroadcast = !input->isGlobal() && input->definition->op == OpKind::Broadcast;
      std::optional<Dims> dims = broadcastShape(small, isBroadcast ? input->definition->input(0)->type.dims : input->type.dims);
      small = *dims; // all of them broadcast to one shape
    }
    if (small == node.results[0]->type.dims)
      return false;
    llvm::SmallVector<Value *, 4> inputs;
    for (Value *input : node.inputs) {
      bool isBroadcast = !input->isGlobal() && input->definition->op == OpKind::Broadcast;
      inputs.push_back(spread(isBroadcast ? input->definition->input(0) : input, small, node.location));
    }
    Node *smaller = graph_.create(node.op, inputs, {{node.results[0]->type.dtype, small}}, node.attributes, node.location);
    keep(smaller);
    standsFor_[node.results[0]] = spread(smaller->result(), node.results[0]->type.dims, node.location);
    return true;
  }

  Module &module_;
  Graph &graph_;
  Folder &folder_;
  llvm::DenseSet<const Node *> needed_;
  std::vector<Value *> read_;                           // constants that a needed node reads
  llvm::DenseMap<const Value *, Value *> standsFor_;    // constant -> itself or what replaces it
  llvm::DenseSet<const Node *> unplaced_;               // made here, not yet in kept_
  std::vector<Node *> kept_;
  std::map<std::pair<std::string, std::string>, Value *> inlined_; // type and bytes -> constant
  std::map<CausalMask, Value *> masks_;
};

} // namespace

void settleConstants(Module &module, Graph &graph, Folder &folder) { ConstantSettler(module, graph, folder).run(); }

} // namespace zerocc
