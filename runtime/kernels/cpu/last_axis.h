#pragma once

#include "runtime/kernels/cpu/prepare.h"

#include <cmath>
#include <type_traits>

namespace zerocc {

/// Rows along the last axis of contiguous operands, with the attributes of the ops that walk them.
struct LastAxisState {
  int64_t rows = 1, width = 1, k = 0;
  bool smallest = false, last = false, exclusive = false, reverse = false;
};

inline LastAxisState lastAxisState(const KernelCall &call) {
  const TensorView &x = call.inputs[0];
  LastAxisState state;
  state.width = x.rank == 0 ? 1 : x.dims[x.rank - 1];
  for (int i = 0; i + 1 < x.rank; ++i)
    state.rows *= x.dims[i];
  state.k = call.attributes.getInt("k");
  state.smallest = call.attributes.getInt("smallest") != 0;
  state.last = call.attributes.getInt("last") != 0;
  state.exclusive = call.attributes.getInt("exclusive") != 0;
  state.reverse = call.attributes.getInt("reverse") != 0;
  return state;
}

/// Is a ahead of b? NaN is greater than every number.
template <typename T> bool isAhead(T a, T b, bool smallest) {
  if constexpr (std::is_floating_point_v<T>)
    if (a != a || b != b)
      return smallest ? a == a && b != b : a != a && b == b;
  return smallest ? a < b : a > b;
}

} // namespace zerocc
