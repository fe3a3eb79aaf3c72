#include "compiler/ops/op_table.h"

namespace zerocc {

int64_t noWorkspace(const Node &) { return 0; }

/// Column sums of dscale and dbias in f64.
int64_t layerNormWorkspace(const Node &node) {
  return 2 * node.input(0)->type.dims.back() * static_cast<int64_t>(sizeof(double));
}

/// One row of indices.
int64_t topKWorkspace(const Node &node) {
  return node.input(0)->type.dims.back() * static_cast<int64_t>(sizeof(int64_t));
}

} // namespace zerocc
