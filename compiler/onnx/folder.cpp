#include "compiler/onnx/folder.h"

#include "compiler/ops/ops.h"

#include "llvm/ADT/STLExtras.h"

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

} // namespace zerocc
