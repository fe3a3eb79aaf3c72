#pragma once

#include "compiler/onnx/folder.h"

namespace zerocc {

constexpr int64_t kInlineConstantBytes = 4096;         // larger folded constants are computed by the plan
constexpr int64_t kMaxTableBytes = int64_t(1) << 24; // of what a lowering makes without a node that computes it

/// Decides in which form each constant of a lowered graph stays, and drops nodes that nothing needs:
///   - all elements equal: a scalar and a broadcast;
///   - up to kInlineConstantBytes: inline, equal ones once;
///   - a causal mask: a comparison of two iotas, equal ones once;
///   - any other: its nodes (`hoist_constants` moves these to `init`), computed at the smallest shape, before a broadcast
///     to the shape that is asked for.
void settleConstants(Module &module, Graph &graph, Folder &folder);

} // namespace zerocc
