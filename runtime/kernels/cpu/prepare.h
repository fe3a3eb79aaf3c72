#pragma once

#include "runtime/kernels/kernel.h"

#include <optional>
#include <string>

namespace zerocc {

// What `prepare` functions share: refusals in one form, checks, and the state a call carries to `run`.

/// "f32[4,8]", with strides when they are not the row-major ones.
std::string describe(const TensorView &view);

/// "softmax(f64[4,8]) on the CPU: <why>".
Error refuse(const KernelCall &call, const std::string &why);

/// Refuses unless the call has that many operands and results.
Status expectCounts(const KernelCall &call, size_t inputs, size_t results);

inline bool sameDims(const TensorView &a, const TensorView &b) {
  if (a.rank != b.rank)
    return false;
  for (int i = 0; i < a.rank; ++i)
    if (a.dims[i] != b.dims[i])
      return false;
  return true;
}

/// Refuses unless every operand and result is contiguous.
Status expectContiguous(const KernelCall &call);

/// body(T()) for the C++ type of a number of `dtype`; null for 16-bit floats and booleans.
template <typename F> auto withNumber(DType dtype, F body) -> decltype(body(float())) {
  switch (dtype) {
  case DType::f32:
    return body(float());
  case DType::f64:
    return body(double());
  case DType::i64:
    return body(int64_t());
  case DType::i32:
    return body(int32_t());
  case DType::i16:
    return body(int16_t());
  case DType::i8:
    return body(int8_t());
  case DType::u8:
    return body(uint8_t());
  case DType::u16:
    return body(uint16_t());
  case DType::u32:
    return body(uint32_t());
  default:
    return nullptr;
  }
}

/// A tensor as rows of unit stride along its last dim, `stride` elements apart.
struct Rows {
  int64_t count = 1, width = 1, stride = 1;
};
/// Nullopt when no single row stride describes the view.
std::optional<Rows> asRows(const TensorView &view);
/// The rows of an f32 view, or a refusal.
Expected<Rows> floatRows(const KernelCall &call, const TensorView &view);

/// Puts `state` into the call; `run` gets it back with stateOf<T>.
template <typename T> void setState(KernelCall &call, T state) {
  call.state = std::make_shared<T>(std::move(state));
}
template <typename T> const T &stateOf(const KernelCall &call) {
  return *static_cast<const T *>(call.state.get());
}

template <typename T> T *pointer(const TensorView &view) { return static_cast<T *>(view.data); }

} // namespace zerocc
