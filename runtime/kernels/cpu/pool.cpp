// max_pool, sum_pool and what belongs to them: plain loops over output places, clipped to the input once per
// axis, so that NaN, ties (the first wins) and dilations are what compiler/ops/interpreter_window.cpp says.
// Sums are in f64.

#include "runtime/kernels/cpu/prepare.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>

namespace zerocc {
namespace {

/// Three spatial axes; leading ones of length 1 stand for missing ones.
struct PoolState {
  int64_t planes = 1, xPlaces = 1, yPlaces = 1;
  int64_t x[3] = {1, 1, 1}, y[3] = {1, 1, 1}, kernel[3] = {1, 1, 1};
  int64_t strides[3] = {1, 1, 1}, low[3] = {0, 0, 0}, dilations[3] = {1, 1, 1};
};

/// The kernel positions [first, end) of output `o` that read the input and not the padding.
struct Reach {
  int64_t first, end, start; // start: where kernel position 0 reads
};
Reach reach(const PoolState &s, int axis, int64_t o) {
  const int64_t start = o * s.strides[axis] - s.low[axis], d = s.dilations[axis];
  const int64_t first = start >= 0 ? 0 : (-start + d - 1) / d;
  const int64_t end = s.x[axis] <= start ? 0 : std::min(s.kernel[axis], (s.x[axis] - start + d - 1) / d);
  return {first, std::max(first, end), start};
}

/// window(output place, visitInputs): visitInputs(f) calls f(input place) for the window's places in
/// ascending order.
template <typename F> void forWindows(const PoolState &s, F window) {
  int64_t place = 0;
  for (int64_t a = 0; a < s.y[0]; ++a) {
    const Reach ra = reach(s, 0, a);
    for (int64_t b = 0; b < s.y[1]; ++b) {
      const Reach rb = reach(s, 1, b);
      for (int64_t c = 0; c < s.y[2]; ++c, ++place) {
        const Reach rc = reach(s, 2, c);
        window(place, [&](auto f) {
          for (int64_t i = ra.first; i < ra.end; ++i)
            for (int64_t j = rb.first; j < rb.end; ++j) {
              const int64_t row =
                  ((ra.start + i * s.dilations[0]) * s.x[1] + rb.start + j * s.dilations[1]) * s.x[2] +
                  rc.start;
              for (int64_t k = rc.first; k < rc.end; ++k)
                f(row + k * s.dilations[2]);
            }
        });
      }
    }
  }
}

/// The place of the window's greatest element, -1 when there is none.
template <typename T, typename Visit> int64_t greatest(const T *x, Visit visit) {
  int64_t best = -1;
  visit([&](int64_t place) {
    if (best < 0 || x[place] > x[best] || (x[place] != x[place] && x[best] == x[best]))
      best = place;
  });
  return best;
}

template <typename T> void runMaxPool(const KernelCall &call) {
  const auto &s = stateOf<PoolState>(call);
  constexpr T kNone =
      std::is_floating_point_v<T> ? -std::numeric_limits<T>::infinity() : std::numeric_limits<T>::lowest();
  for (int64_t plane = 0; plane < s.planes; ++plane) {
    const T *x = pointer<const T>(call.inputs[0]) + plane * s.xPlaces;
    if (call.op == OpKind::MaxPool) {
      T *y = pointer<T>(call.results[0]) + plane * s.yPlaces;
      forWindows(s, [&](int64_t o, auto visit) {
        const int64_t best = greatest(x, visit);
        y[o] = best < 0 ? kNone : x[best];
      });
    } else if (call.op == OpKind::MaxPoolIndex) {
      auto *y = pointer<int64_t>(call.results[0]) + plane * s.yPlaces;
      forWindows(s, [&](int64_t o, auto visit) { y[o] = greatest(x, visit); });
    } else {
      const T *dy = pointer<const T>(call.inputs[1]) + plane * s.yPlaces;
      T *dx = pointer<T>(call.results[0]) + plane * s.xPlaces;
      std::fill_n(dx, s.xPlaces, T(0));
      forWindows(s, [&](int64_t o, auto visit) {
        const int64_t best = greatest(x, visit);
        if (best >= 0)
          dx[best] = static_cast<T>(dx[best] + dy[o]);
      });
    }
  }
}

template <typename T> void runSumPool(const KernelCall &call) {
  using Sum = std::conditional_t<std::is_floating_point_v<T>, double, uint64_t>;
  const auto &s = stateOf<PoolState>(call);
  for (int64_t plane = 0; plane < s.planes; ++plane) {
    if (call.op == OpKind::SumPool) {
      const T *x = pointer<const T>(call.inputs[0]) + plane * s.xPlaces;
      T *y = pointer<T>(call.results[0]) + plane * s.yPlaces;
      forWindows(s, [&](int64_t o, auto visit) {
        Sum sum = 0;
        visit([&](int64_t place) { sum += static_cast<Sum>(x[place]); });
        y[o] = static_cast<T>(sum);
      });
    } else {
      const T *dy = pointer<const T>(call.inputs[0]) + plane * s.yPlaces;
      T *dx = pointer<T>(call.results[0]) + plane * s.xPlaces;
      std::fill_n(dx, s.xPlaces, T(0));
      forWindows(s, [&](int64_t o, auto visit) {
        visit([&](int64_t place) { dx[place] = static_cast<T>(dx[place] + dy[o]); });
      });
    }
  }
}

bool readEntries(const KernelCall &call, const char *name, int spatial, int64_t (&to)[3]) {
  const std::vector<int64_t> list = call.attributes.getInts(name);
  if (static_cast<int>(list.size()) != spatial)
    return false;
  std::copy(list.begin(), list.end(), to + 3 - spatial);
  return true;
}

Status preparePool(KernelCall &call) {
  const bool isMaxGrad = call.op == OpKind::MaxPoolGrad, isSumGrad = call.op == OpKind::SumPoolGrad;
  ZEROCC_TRY(expectCounts(call, isMaxGrad ? 2 : 1, 1));
  ZEROCC_TRY(expectContiguous(call));
  const TensorView &x = isSumGrad ? call.results[0] : call.inputs[0];
  const TensorView &y = isMaxGrad ? call.inputs[1] : isSumGrad ? call.inputs[0] : call.results[0];
  const int spatial = x.rank - 2;
  if (spatial < 1 || spatial > 3 || y.rank != x.rank)
    return refuse(call, describe(x) + " should have one to three spatial axes");
  PoolState s;
  s.planes = x.dims[0] * x.dims[1];
  for (int i = 0; i < spatial; ++i) {
    s.x[3 - spatial + i] = x.dims[2 + i];
    s.y[3 - spatial + i] = y.dims[2 + i];
    s.xPlaces *= x.dims[2 + i];
    s.yPlaces *= y.dims[2 + i];
  }
  if (!readEntries(call, "kernel", spatial, s.kernel) || !readEntries(call, "strides", spatial, s.strides) ||
      !readEntries(call, "low", spatial, s.low) || !readEntries(call, "dilations", spatial, s.dilations))
    return refuse(call, "its attributes need one entry per spatial axis");
  using Run = void (*)(const KernelCall &);
  const bool isSum = isSumGrad || call.op == OpKind::SumPool;
  call.run = withNumber(x.dtype, [&](auto zero) -> Run {
    return isSum ? runSumPool<decltype(zero)> : runMaxPool<decltype(zero)>;
  });
  if (!call.run)
    return refuse(call, "no kernel for " + std::string(dtypeName(x.dtype)));
  setState(call, s);
  return success();
}

} // namespace

extern const CpuKernel poolKernels = {preparePool};

} // namespace zerocc
