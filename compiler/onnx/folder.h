#pragma once

#include "compiler/ir/module.h"
#include "compiler/ops/interpreter.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/DenseSet.h"

#include <functional>

namespace zerocc {

constexpr int64_t kMaxFoldedElements = int64_t(1) << 22; // of one tensor on the host
constexpr int64_t kMaxKeptElements = int64_t(1) << 22;   // of all, before those not needed any more are dropped
constexpr int64_t kMaxFoldingWork = int64_t(1) << 30;    // elements and products, of a whole import
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
  /// What `evaluate` gave so far is not looked at any more: large values may go.
  void release();

private:
  const HostTensor *hostOfGlobal(const Value *value);
  bool tooLarge(const Value *value) const;
  void keep(const Value *value, std::unique_ptr<HostTensor> host);
  void dropUnneeded(llvm::ArrayRef<const Value *> wanted);

  Module &module_;
  Reader read_;
  llvm::DenseSet<const Value *> constants_; // results of nodes
  llvm::DenseMap<const Value *, std::unique_ptr<HostTensor>> hosts_;
  llvm::DenseSet<const Value *> given_; // by `evaluate`, since `release`
  int64_t kept_ = 0, dropAbove_ = kMaxKeptElements, work_ = 0;
};

} // namespace zerocc
