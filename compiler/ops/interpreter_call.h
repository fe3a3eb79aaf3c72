#pragma once

#include "compiler/ops/interpreter.h"

#include "llvm/ADT/STLExtras.h"

// What the parts of the plain interpreter share: one node's call, and access to its operands.

namespace zerocc {

using HostTensors = std::vector<HostTensor>;

// ---------------------------------------------------------------------------------------------------------------
// Access

template <typename T> std::vector<T> &lanes(HostTensor &tensor) {
  if constexpr (std::is_same_v<T, double>)
    return tensor.reals;
  else
    return tensor.integers;
}
template <typename T> const std::vector<T> &lanes(const HostTensor &tensor) {
  return lanes<T>(const_cast<HostTensor &>(tensor));
}

/// One node with its operands' values.
struct Call {
  const Node &node;
  llvm::ArrayRef<const HostTensor *> inputs;

  const HostTensor &in(int i) const { return *inputs[i]; }
  const TensorType &resultType(int i = 0) const { return node.results[i]->type; }
  HostTensor result(int i = 0) const { return HostTensor::zeros(resultType(i)); }
  const Attributes &attributes() const { return node.attributes; }
};

inline HostTensors single(HostTensor tensor) {
  HostTensors out;
  out.push_back(std::move(tensor));
  return out;
}

/// Runs `body` for the lane type of `dtype`: body(double()) or body(int64_t()).
template <typename F> auto withLane(DType dtype, F body) {
  return isFloat(dtype) ? body(double()) : body(int64_t());
}

inline Dims rowMajorStrides(llvm::ArrayRef<int64_t> dims) {
  Dims strides(dims.size(), 1);
  for (int i = static_cast<int>(dims.size()) - 2; i >= 0; --i)
    strides[i] = strides[i + 1] * dims[i + 1];
  return strides;
}

inline int64_t product(llvm::ArrayRef<int64_t> dims) {
  int64_t n = 1;
  for (int64_t d : dims)
    n *= d;
  return n;
}

/// Walks `dims` in row-major order: visit(position in the walk, offset by `strides`).
template <typename F>
void walk(llvm::ArrayRef<int64_t> dims, llvm::ArrayRef<int64_t> strides, int64_t offset, F visit) {
  int64_t total = product(dims);
  Dims index(dims.size(), 0);
  for (int64_t i = 0; i < total; ++i) {
    visit(i, offset);
    for (int axis = static_cast<int>(dims.size()) - 1; axis >= 0; --axis) {
      offset += strides[axis];
      if (++index[axis] < dims[axis])
        break;
      offset -= strides[axis] * dims[axis];
      index[axis] = 0;
    }
  }
}

/// Rows along the last axis, for the ops that treat it as one unit.
struct Rows {
  int64_t count, width;
  explicit Rows(const TensorType &type) : count(1), width(type.dims.empty() ? 1 : type.dims.back()) {
    for (size_t i = 0; i + 1 < type.dims.size(); ++i)
      count *= type.dims[i];
  }
};

// Integer arithmetic goes through unsigned numbers, where overflow is defined.
inline double plus(double a, double b) { return a + b; }
inline int64_t plus(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
inline int64_t minus(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
}
inline double times(double a, double b) { return a * b; }
inline int64_t times(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}

// The families with a file of their own; each takes the ops named.
/// interpreter_index.cpp: arg_max, top_k, cum_sum, cum_prod, cum_prod_grad, scatter.
Expected<HostTensors> evaluateIndexOp(const Call &call);
/// interpreter_window.cpp: conv, max_pool, sum_pool and their gradients.
Expected<HostTensors> evaluateWindowOp(const Call &call);
/// interpreter_random.cpp: dropout, keep_mask.
Expected<HostTensors> evaluateRandomOp(const Call &call);

} // namespace zerocc
