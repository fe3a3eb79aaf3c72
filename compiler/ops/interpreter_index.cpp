// The plain interpreter: ops along the last axis, and scatter.

#include "compiler/ops/interpreter_call.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace zerocc {
namespace {

/// Is a ahead of b? NaN is greater than every number.
template <typename T> bool isAhead(T a, T b, bool smallest) {
  if constexpr (std::is_floating_point_v<T>)
    if (std::isnan(a) || std::isnan(b))
      return smallest ? !std::isnan(a) && std::isnan(b) : std::isnan(a) && !std::isnan(b);
  return smallest ? a < b : a > b;
}

// arg_max           y = the first (last=1: last) j with x_j greatest (smallest=1: least); NaN stands above
// all
HostTensor evaluateArgMax(const Call &call) {
  HostTensor out = call.result();
  const bool smallest = call.attributes().getInt("smallest"), last = call.attributes().getInt("last");
  const int64_t width = call.in(0).type.dims.back();
  withLane(call.in(0).type.dtype, [&](auto lane) {
    using T = decltype(lane);
    const std::vector<T> &x = lanes<T>(call.in(0));
    for (size_t row = 0; row < out.integers.size(); ++row) {
      int64_t best = 0;
      for (int64_t j = 1; j < width; ++j) {
        T candidate = x[row * width + j], holder = x[row * width + best];
        if (isAhead(candidate, holder, smallest) || (last && !isAhead(holder, candidate, smallest)))
          best = j;
      }
      out.integers[row] = best;
    }
  });
  return out;
}

// top_k             (v, i): the k greatest (smallest=1: least) of each row in order; of equals the lower
// index first
HostTensors evaluateTopK(const Call &call) {
  HostTensor values = call.result(0), indices = call.result(1);
  const bool smallest = call.attributes().getInt("smallest");
  const int64_t width = call.in(0).type.dims.back(), k = values.type.dims.back();
  withLane(call.in(0).type.dtype, [&](auto lane) {
    using T = decltype(lane);
    const std::vector<T> &x = lanes<T>(call.in(0));
    const int64_t rows = width == 0 ? 0 : static_cast<int64_t>(x.size()) / width;
    std::vector<int64_t> order(width);
    for (int64_t row = 0; row < rows; ++row) {
      const T *from = x.data() + row * width;
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(),
                       [&](int64_t a, int64_t b) { return isAhead(from[a], from[b], smallest); });
      for (int64_t j = 0; j < k; ++j) {
        lanes<T>(values)[row * k + j] = from[order[j]];
        indices.integers[row * k + j] = order[j];
      }
    }
  });
  HostTensors out;
  out.push_back(std::move(values));
  out.push_back(std::move(indices));
  return out;
}

/// Positions of a row in the order in which they are cumulated.
std::vector<int64_t> cumulationOrder(const Call &call, int64_t width) {
  std::vector<int64_t> order(width);
  std::iota(order.begin(), order.end(), 0);
  if (call.attributes().getInt("reverse"))
    std::reverse(order.begin(), order.end());
  return order;
}

// cum_sum, cum_prod     y_j = Σ or Π of x_i, i ≤ j (exclusive: i < j; reverse: from the other end)
HostTensor evaluateCumulative(const Call &call, bool isProduct) {
  HostTensor out = call.result();
  const bool exclusive = call.attributes().getInt("exclusive");
  const int64_t width = out.type.dims.back();
  const std::vector<int64_t> order = cumulationOrder(call, width);
  withLane(out.type.dtype, [&](auto lane) {
    using T = decltype(lane);
    const std::vector<T> &x = lanes<T>(call.in(0));
    std::vector<T> &y = lanes<T>(out);
    for (size_t start = 0; start < y.size(); start += width) {
      T sum = isProduct ? 1 : 0;
      for (int64_t j : order) {
        T with = isProduct ? times(sum, x[start + j]) : plus(sum, x[start + j]);
        y[start + j] = exclusive ? sum : with;
        sum = with;
      }
    }
  });
  return out;
}

// cum_prod_grad     dx_j = Σ_i dy_i ∂y_i/∂x_j = P_j S_j with P_j = Π x_i before j, and S the recurrence from
// behind
//                   inclusive: S_j = dy_j + x_{j+1} S_{j+1};  exclusive: S_j = dy_{j+1} + x_{j+1} S_{j+1}
HostTensor evaluateCumProdGrad(const Call &call) {
  HostTensor out = call.result();
  const bool exclusive = call.attributes().getInt("exclusive");
  const int64_t width = out.type.dims.back();
  const std::vector<int64_t> order = cumulationOrder(call, width);
  withLane(out.type.dtype, [&](auto lane) {
    using T = decltype(lane);
    const std::vector<T> &x = lanes<T>(call.in(0)), &dy = lanes<T>(call.in(1));
    std::vector<T> &dx = lanes<T>(out);
    for (size_t start = 0; start < dx.size(); start += width) {
      T before = 1;
      for (int64_t j : order) {
        dx[start + j] = before;
        before = times(before, x[start + j]);
      }
      T behind = 0;
      for (int64_t at = width - 1; at >= 0; --at) {
        const size_t j = start + order[at];
        T here = exclusive ? behind : plus(dy[j], behind);
        dx[j] = times(dx[j], here);
        behind = exclusive ? plus(dy[j], times(x[j], here)) : times(x[j], here);
      }
    }
  });
  return out;
}

// scatter           y = x with row i_r replaced by, multiplied by, or the greater or lesser of it and u_r, r
// ascending
Expected<HostTensor> evaluateScatter(const Call &call) {
  HostTensor out = call.in(0);
  const int64_t rows = out.type.dims[0];
  const int64_t width = rows == 0 ? 0 : out.type.elements() / rows;
  const std::string reduction = call.attributes().getString("reduction");
  const std::vector<int64_t> &indices = call.in(1).integers;
  for (int64_t index : indices)
    if (index < -rows || index >= rows)
      return Error("index " + std::to_string(index) + " is outside [-" + std::to_string(rows) + ", " +
                   std::to_string(rows) + ")");
  withLane(out.type.dtype, [&](auto lane) {
    using T = decltype(lane);
    const std::vector<T> &updates = lanes<T>(call.in(2));
    std::vector<T> &y = lanes<T>(out);
    for (size_t r = 0; r < indices.size(); ++r)
      for (int64_t c = 0; c < width; ++c) {
        T &held = y[(indices[r] < 0 ? indices[r] + rows : indices[r]) * width + c];
        const T update = updates[r * width + c];
        if (reduction == "none")
          held = update;
        else if (reduction == "mul")
          held = times(held, update);
        else if (held == held) // NaN stays
          held = update != update || (reduction == "max" ? update > held : update < held) ? update : held;
      }
  });
  return out;
}

} // namespace

Expected<HostTensors> evaluateIndexOp(const Call &call) {
  switch (call.node.op) {
  case OpKind::ArgMax:
    return single(evaluateArgMax(call));
  case OpKind::TopK:
    return evaluateTopK(call);
  case OpKind::CumSum:
  case OpKind::CumProd:
    return single(evaluateCumulative(call, call.node.op == OpKind::CumProd));
  case OpKind::CumProdGrad:
    return single(evaluateCumProdGrad(call));
  default: {
    ZEROCC_ASSIGN(HostTensor out, evaluateScatter(call));
    return single(std::move(out));
  }
  }
}

} // namespace zerocc
