#include "compiler/ops/op_table.h"

namespace zerocc {

int64_t noWorkspace(const Node &) { return 0; }

/// Counting sort by target row, so that each row is summed by one thread in the order of the indices: one i64
/// per index (its place in the sorted order) and one per target row, plus one (where its indices begin).
int64_t scatterAddWorkspace(const Node &node) {
  const int64_t indices = node.input(0)->type.elements(), rows = node.attributes.getInt("size");
  return (indices + rows + 1) * static_cast<int64_t>(sizeof(int64_t));
}

/// Partial sums of dscale and dbias in f32 per block of 64 rows, combined in block order: the blocks do not
/// depend on the number of threads.
int64_t layerNormWorkspace(const Node &node) {
  constexpr int64_t kBlockRows = 64;
  const TensorType &x = node.input(0)->type;
  const int64_t channels = x.dims.back();
  const int64_t rows = channels == 0 ? 0 : x.elements() / channels;
  return (rows + kBlockRows - 1) / kBlockRows * 2 * channels * static_cast<int64_t>(sizeof(float));
}

} // namespace zerocc
