#include "compiler/onnx/folder.h"

#include "compiler/ops/ops.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>

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

/// About how many steps the interpreter takes for a node.
static int64_t workOf(const Node &node) {
  int64_t work = 1;
  for (const Value *result : node.results)
    work += result->type.elements();
  if (node.op == OpKind::MatMul && node.input(0)->type.rank() > 0)
    return work * std::max<int64_t>(node.input(0)->type.dims.back(), 1);
  int64_t read = 0;
  for (const Value *input : node.inputs)
    read += input->type.elements();
  bool isWindowed =
      node.op == OpKind::Conv || node.op == OpKind::ConvDataGrad || node.op == OpKind::ConvWeightGrad;
  return isWindowed ? work * std::max<int64_t>(read, 1) : work + read;
}

void Folder::keep(const Value *value, std::unique_ptr<HostTensor> host) {
  kept_ += value->type.elements();
  hosts_[value] = std::move(host);
}

/// Constants are computed again when asked for again. Small ones stay: there may be many, and they are shapes.
void Folder::dropUnneeded(llvm::ArrayRef<const Value *> wanted) {
  constexpr int64_t kSmall = 1024;
  if (kept_ <= dropAbove_)
    return;
  llvm::DenseSet<const Value *> needed = given_;
  for (const Value *value : wanted) {
    needed.insert(value);
    if (value->definition)
      needed.insert(value->definition->inputs.begin(), value->definition->inputs.end());
  }
  for (auto &[value, host] : hosts_)
    if (host && value->type.elements() > kSmall && !needed.count(value)) {
      kept_ -= value->type.elements();
      host.reset();
    }
  dropAbove_ = kept_ + kMaxKeptElements; // looked through again after as much has come
}

void Folder::release() {
  given_.clear();
  dropUnneeded({});
}

const HostTensor *Folder::hostOfGlobal(const Value *value) {
  if (auto known = hosts_.find(value); known != hosts_.end() && known->second)
    return known->second.get();
  const Constant *constant = module_.constantOf(value);
  if (!constant)
    return nullptr;
  if (constant->source.kind == DataSource::Kind::inlineBytes) {
    keep(value, std::make_unique<HostTensor>(HostTensor::fromBytes(value->type, constant->source.bytes)));
    return hosts_[value].get();
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
  keep(value, std::make_unique<HostTensor>(HostTensor::fromBytes(value->type, *bytes)));
  return hosts_[value].get();
}

const HostTensor *Folder::evaluate(const Value *wanted) {
  if (!isConstant(wanted))
    return nullptr;
  given_.insert(wanted);
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
    if ((work_ += workOf(node)) > kMaxFoldingWork) {
      work_ = kMaxFoldingWork; // does not overflow, however often it is asked
      fault = "computing the model's constants takes more than " + std::to_string(kMaxFoldingWork) + " steps";
      return nullptr;
    }
    llvm::SmallVector<const HostTensor *, 4> operands;
    for (const Value *input : node.inputs)
      operands.push_back(hosts_[input].get());
    Expected<std::vector<HostTensor>> results = interpretNode(node, operands, {/*roundToDType=*/true});
    if (!results) {
      fault = results.error().findings().front().message;
      return nullptr;
    }
    for (size_t i = 0; i < node.results.size(); ++i)
      if (std::unique_ptr<HostTensor> &host = hosts_[node.results[i]]; !host)
        keep(node.results[i], std::make_unique<HostTensor>(std::move((*results)[i])));
    stack.pop_back();
    dropUnneeded(stack);
    if (kept_ > 8 * kMaxKeptElements) {
      fault = "computing the model's constants takes too much memory";
      return nullptr;
    }
  }
  return hosts_[wanted].get();
}

} // namespace zerocc
