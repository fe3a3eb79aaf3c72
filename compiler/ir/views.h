#pragma once

#include "compiler/ir/module.h"

#include <optional>

namespace zerocc {

/// How the elements of a value lie relative to the first element of its root: dims and strides in elements.
struct StridedView {
  Dims dims;
  Dims strides;
  int64_t offset = 0; // elements from the root's first element

  static StridedView contiguous(llvm::ArrayRef<int64_t> dims);
  bool isContiguous() const;
};

/// The view that a reshape, transpose, broadcast or slice node makes of its operand's view, or nullopt when no
/// strides describe it (a reshape across a gap: the operand must be copied first).
std::optional<StridedView> composeView(const Node &node, const StridedView &operand);

/// True for reshape, transpose, broadcast, slice: nodes that only rename bytes of operand 0.
bool isViewNode(const Node &node);

/// The value whose bytes `value` is or is part of, by its place or by the op table; null for a root.
const Value *aliasedValue(const Value *value);

/// The value whose bytes `value` is or lies in, through views, places and in-place results: a module-level value or
/// the result of a node that has bytes of its own.
const Value *rootOf(const Value *value);

/// Where a value's first element lies relative to its root.
struct RootOffset {
  const Value *root = nullptr;
  int64_t bytes = 0;
  int64_t rankStrideBytes = 0; // added per index on the shard axis (the rank's own part of a whole buffer)
  StridedView view;            // dims and strides; its offset is already in `bytes`
};
RootOffset locate(const Value *value);

} // namespace zerocc
