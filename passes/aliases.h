#pragma once

#include "compiler/ir/views.h"

namespace zerocc {

/// Which bytes a value is: `bytes` bytes, `offset` behind the start of `root`, which aliases nothing.
struct ByteRange {
  const Value *root = nullptr;
  int64_t offset = 0, bytes = 0;
};

/// Finds roots; remembers them, so that chains of aliases cost nothing extra when asked in list order.
/// Where an alias is an unknown part of its base (a strided view, the rank's own slot), it counts as all.
class AliasMap {
public:
  ByteRange rangeOf(const Value *value);
  const Value *rootOf(const Value *value) { return rangeOf(value).root; }

private:
  llvm::DenseMap<const Value *, ByteRange> known_;
};

/// True for the ops that begin asynchronous work, which a fetch.wait or reduce.wait joins.
bool isAsyncStart(OpKind op);
/// True for fetch.wait and reduce.wait.
bool isAsyncWait(OpKind op);
/// True for nodes that name bytes and touch none of them: views, `buffer`, `release`.
bool touchesNothing(const Node &node);

} // namespace zerocc
