#include "compiler/onnx/folder.h"

#include "compiler/ops/ops.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <cstring>

namespace zerocc {

void Folder::note(const Node &node) {
  if (llvm::all_of(node.inputs, [&](const Value *input) { return isConstant(input); }))
    constants_.insert(node.results.begin(), node.results.end());
}

bool Folder::isConstant(const Value *value) const {
  return value->isGlobal() ? module_.constantOf(value) != nullptr : constants_.count(value) != 0;
}

bool Folder::tooLarge(const Value *value) const {
  int64_t elements = 1;
  for (int64_t dim : value->type.dims)
    if (__builtin_mul_overflow(elements, dim, &elements))
      return true;
  return elements > kMaxFoldedElements;
}

const HostTensor *Folder::hostOfGlobal(const Value *value) {
  std::unique_ptr<HostTensor> &host = hosts_[value];
  if (host)
    return host.get();
  const Constant *constant = module_.constantOf(value);
  if (!constant)
    return nullptr;
  if (constant->source.kind == DataSource::Kind::inlineBytes) {
    host = std::make_unique<HostTensor>(HostTensor::fromBytes(value->type, constant->source.bytes));
    return host.get();
  }
  if (value->type.bytes() > kMaxReadBytes) {
    fault = "constant \"" + value->name + "\" (" + print(value->type) + ") is too large to compute with";
    return nullptr;
  }
  Expected<std::string> bytes = read_(constant->source.initializer);
  if (!bytes) {
    fault = bytes.error().findings().front().message;
    return nullptr;
  }
  host = std::make_unique<HostTensor>(HostTensor::fromBytes(value->type, *bytes));
  return host.get();
}

const HostTensor *Folder::evaluate(const Value *wanted) {
  if (!isConstant(wanted))
    return nullptr;
  // Chains of constants can be long, so the operands are visited with a stack of our own.
  std::vector<const Value *> stack{wanted};
  while (!stack.empty()) {
    const Value *value = stack.back();
    if (auto known = hosts_.find(value); known != hosts_.end() && known->second) {
      stack.pop_back();
      continue;
    }
    if (value->isGlobal()) {
      if (!hostOfGlobal(value))
        return nullptr;
      stack.pop_back();
      continue;
    }
    const Node &node = *value->definition;
    for (const Value *result : node.results)
      if (tooLarge(result)) {
        fault = "a constant of type " + print(result->type) + " is too large to compute with";
        return nullptr;
      }
    bool ready = true;
    for (const Value *input : node.inputs)
      if (auto known = hosts_.find(input); known == hosts_.end() || !known->second) {
        stack.push_back(input);
        ready = false;
      }
    if (!ready)
      continue;
    llvm::SmallVector<const HostTensor *, 4> operands;
    for (const Value *input : node.inputs)
      operands.push_back(hosts_[input].get());
    Expected<std::vector<HostTensor>> results = interpretNode(node, operands, {/*roundToDType=*/true});
    if (!results) {
      fault = results.error().findings().front().message;
      return nullptr;
    }
    for (size_t i = 0; i < node.results.size(); ++i)
      hosts_[node.results[i]] = std::make_unique<HostTensor>(std::move((*results)[i]));
    stack.pop_back();
  }
  return hosts_[wanted].get();
}

/// True when all elements have the same bits.
static bool isUniform(const HostTensor &host) {
  int64_t elements = host.type.elements();
  if (elements < 2)
    return false;
  if (!isFloat(host.type.dtype))
    return llvm::all_of(host.integers, [&](int64_t v) { return v == host.integers[0]; });
  return llvm::all_of(host.reals, [&](double v) { return std::memcmp(&v, &host.reals[0], sizeof(double)) == 0; });
}

Value *Folder::inlineConstant(const HostTensor &host) {
  std::string bytes = host.toBytes();
  Value *&constant = inlined_[{print(host.type), bytes}];
  if (constant)
    return constant;
  // Names of scalars tell their value through a double.
  bool exact = isFloat(host.type.dtype) || static_cast<int64_t>(host.at(0)) == host.integers[0];
  if (host.type.dims.empty() && exact)
    return constant = module_.scalar(host.type.dtype, host.at(0));
  std::string name;
  for (size_t i = inlined_.size() - 1;; ++i)
    if (name = "constant." + std::to_string(i); !module_.global(name))
      break;
  return constant = module_.addConstant(name, host.type, {DataSource::Kind::inlineBytes, bytes, ""});
}

void Folder::settle(Graph &graph) {
  // Needed nodes that are no constants, and the constants they read.
  llvm::DenseSet<const Node *> needed;
  std::vector<Value *> work; // constants that somebody reads
  std::vector<const Node *> stack;
  auto need = [&](Value *value) {
    if (!value->isGlobal() && isConstant(value))
      work.push_back(value);
    else if (!value->isGlobal() && needed.insert(value->definition).second)
      stack.push_back(value->definition);
  };
  for (auto &[name, value] : graph.results)
    need(value);
  while (!stack.empty()) {
    const Node *node = stack.back();
    stack.pop_back();
    for (Value *input : node->inputs)
      need(input);
  }
  std::reverse(work.begin(), work.end());

  // What stands for each of these constants: another value, or itself, when its node has to stay.
  llvm::DenseMap<const Value *, Value *> standsFor;
  llvm::DenseMap<const Value *, Node *> splats; // broadcasts of scalars made here, by result
  for (size_t i = 0; i < work.size(); ++i) {
    Value *value = work[i];
    if (value->isGlobal() || standsFor.count(value))
      continue;
    Node *node = value->definition;
    const HostTensor *host = node->op == OpKind::Broadcast ? nullptr : evaluate(value);
    if (host && isUniform(*host)) {
      TensorType scalar{value->type.dtype, {}};
      HostTensor element = isFloat(scalar.dtype) ? HostTensor::real(scalar, {host->reals[0]})
                                                 : HostTensor::integer(scalar, {host->integers[0]});
      Attributes shape{{"shape", std::vector<int64_t>(value->type.dims.begin(), value->type.dims.end())}};
      Node *splat = graph.create(OpKind::Broadcast, {inlineConstant(element)}, {value->type}, shape, node->location);
      splats[splat->result()] = splat;
      standsFor[value] = splat->result();
    } else if (host && host->type.bytes() <= kInlineConstantBytes) {
      standsFor[value] = inlineConstant(*host);
    } else {
      standsFor[value] = value;
      needed.insert(node);
      work.insert(work.end(), node->inputs.begin(), node->inputs.end());
    }
  }

  std::vector<Node *> kept;
  llvm::DenseSet<const Node *> placed;
  auto use = [&](Value *&value) {
    if (auto found = standsFor.find(value); found != standsFor.end())
      value = found->second;
    if (auto splat = splats.find(value); splat != splats.end() && placed.insert(splat->second).second)
      kept.push_back(splat->second);
  };
  for (Node *node : graph.nodes) {
    if (!needed.count(node))
      continue;
    for (Value *&input : node->inputs)
      use(input);
    kept.push_back(node);
  }
  for (auto &[name, value] : graph.results)
    use(value);
  graph.nodes = std::move(kept);
}

} // namespace zerocc
