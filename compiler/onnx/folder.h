#pragma once

#include "compiler/ir/module.h"
#include "compiler/ops/interpreter.h"

#include "llvm/ADT/DenseSet.h"

#include <functional>

namespace zerocc {

constexpr int64_t kMaxFoldedElements = int64_t(1) << 22; // of one tensor on the host
constexpr int64_t kMaxReadBytes = int64_t(16) << 20;     // of one stored constant

/// Knows which values depend on constants only (never on a parameter or an input), and computes them with the plain
/// interpreter when somebody asks: shapes, axes and masks are asked for, most others never.
class Folder {
public:
  /// `read` gives the bytes of a constant that is stored in the model file.
  using Reader = std::function<Expected<std::string>(const std::string &initializer)>;
  Folder(Module &module, Reader read) : module_(module), read_(std::move(read)) {}

  /// Takes note of a new node.
  void note(const Node &node);
  bool isConstant(const Value *value) const;
  /// The value on the host; null when it is no constant, too large, or cannot be computed (then `fault` says why).
  const HostTensor *evaluate(const Value *value);
  std::string fault;

private:
  const HostTensor *hostOfGlobal(const Value *value);
  bool tooLarge(const Value *value) const;

  Module &module_;
  Reader read_;
  llvm::DenseSet<const Value *> constants_; // results of nodes
  llvm::DenseMap<const Value *, std::unique_ptr<HostTensor>> hosts_;
};

} // namespace zerocc
