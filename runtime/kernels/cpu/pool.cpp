// max_pool, sum_pool and what belongs to them: plain loops over rows of outputs, kernel position by kernel
// position, so that compilers find vectors. Positions are clipped to the input once per axis; NaN, ties (the
// first wins) and dilations are what compiler/ops/interpreter_window.cpp says. Sums are in f64.

#include "runtime/kernels/cpu/prepare.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

namespace zerocc {
namespace {

/// What kernel position k of the last axis reads: for outputs [first, end), input places o stride + offset of
/// a row.
struct Column {
  int64_t first, end, offset;
};

/// Three spatial axes; leading ones of length 1 stand for missing ones.
struct PoolState {
  int64_t planes = 1, xPlaces = 1, yPlaces = 1;
  int64_t x[3] = {1, 1, 1}, y[3] = {1, 1, 1}, kernel[3] = {1, 1, 1};
  int64_t strides[3] = {1, 1, 1}, low[3] = {0, 0, 0}, dilations[3] = {1, 1, 1};
  std::vector<Column> columns;
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

std::vector<Column> columnsOf(const PoolState &s) {
  std::vector<Column> columns;
  for (int64_t k = 0; k < s.kernel[2]; ++k) {
    const int64_t offset = k * s.dilations[2] - s.low[2], stride = s.strides[2];
    const int64_t first = std::min(s.y[2], offset >= 0 ? 0 : (-offset + stride - 1) / stride);
    const int64_t end = s.x[2] <= offset ? 0 : std::min(s.y[2], (s.x[2] - offset + stride - 1) / stride);
    columns.push_back({first, std::max(first, end), offset});
  }
  return columns;
}

/// Outputs of a row that are worked on at once, on the stack.
constexpr int64_t kStrip = 128;

/// For every strip of outputs: begin(first output place, count); then tap(i, input place, count, stride) for
/// each kernel position in ascending order, where outputs i … i+count-1 of the strip read every stride-th
/// place; then end().
template <typename Begin, typename Tap, typename End>
void forStrips(const PoolState &s, Begin begin, Tap tap, End end) {
  for (int64_t a = 0; a < s.y[0]; ++a) {
    const Reach ra = reach(s, 0, a);
    for (int64_t b = 0; b < s.y[1]; ++b) {
      const Reach rb = reach(s, 1, b);
      for (int64_t from = 0; from < s.y[2]; from += kStrip) {
        const int64_t to = std::min(from + kStrip, s.y[2]);
        begin((a * s.y[1] + b) * s.y[2] + from, to - from);
        for (int64_t i = ra.first; i < ra.end; ++i)
          for (int64_t j = rb.first; j < rb.end; ++j) {
            const int64_t row =
                ((ra.start + i * s.dilations[0]) * s.x[1] + rb.start + j * s.dilations[1]) * s.x[2];
            for (const Column &column : s.columns) {
              const int64_t first = std::max(column.first, from), last = std::min(column.end, to);
              if (first < last)
                tap(first - from, row + first * s.strides[2] + column.offset, last - first, s.strides[2]);
            }
          }
        end();
      }
    }
  }
}

/// f(i, place of i) for `count` outputs; the strides that occur are known to the loop.
template <typename F> void forPlaces(int64_t place, int64_t count, int64_t stride, F f) {
  if (stride == 1)
    for (int64_t i = 0; i < count; ++i)
      f(i, place + i);
  else if (stride == 2)
    for (int64_t i = 0; i < count; ++i)
      f(i, place + 2 * i);
  else
    for (int64_t i = 0; i < count; ++i)
      f(i, place + stride * i);
}

template <typename T>
constexpr T kNone = std::is_floating_point_v<T> ? -std::numeric_limits<T>::infinity()
                                                : std::numeric_limits<T>::lowest();

/// What is greatest in each window; NaN stands above all.
template <typename T> void maxOfPlane(const PoolState &s, const T *__restrict x, T *__restrict y) {
  T best[kStrip];
  T *strip = nullptr;
  int64_t length = 0;
  forStrips(
      s,
      [&](int64_t place, int64_t count) {
        strip = y + place;
        length = count;
        std::fill_n(best, count, kNone<T>);
      },
      [&](int64_t at, int64_t place, int64_t count, int64_t stride) {
        T *__restrict held = best + at;
        forPlaces(place, count, stride, [&](int64_t i, int64_t from) {
          const T value = x[from];
          held[i] = (value > held[i]) | (value != value) ? value : held[i];
        });
      },
      [&] { std::copy_n(best, length, strip); });
}

/// use(output place, place of the greatest element of its window); the first of equals, -1 for padding alone.
template <typename T, typename Use> void greatestOfPlane(const PoolState &s, const T *__restrict x, Use use) {
  T best[kStrip];
  int32_t places[kStrip];
  int64_t output = 0, length = 0;
  forStrips(
      s,
      [&](int64_t place, int64_t count) {
        output = place;
        length = count;
        std::fill_n(best, count, kNone<T>);
        std::fill_n(places, count, -1);
      },
      [&](int64_t at, int64_t place, int64_t count, int64_t stride) {
        T *__restrict held = best + at;
        int32_t *__restrict where = places + at;
        forPlaces(place, count, stride, [&](int64_t i, int64_t from) {
          const T value = x[from];
          const bool wins = (where[i] < 0) | (value > held[i]) | ((value != value) & (held[i] == held[i]));
          held[i] = wins ? value : held[i];
          where[i] = wins ? static_cast<int32_t>(from) : where[i];
        });
      },
      [&] {
        for (int64_t i = 0; i < length; ++i)
          use(output + i, static_cast<int64_t>(places[i]));
      });
}

template <typename T> void runMaxPool(const KernelCall &call) {
  const auto &s = stateOf<PoolState>(call);
  for (int64_t plane = 0; plane < s.planes; ++plane) {
    const T *x = pointer<const T>(call.inputs[0]) + plane * s.xPlaces;
    if (call.op == OpKind::MaxPool) {
      maxOfPlane(s, x, pointer<T>(call.results[0]) + plane * s.yPlaces);
    } else if (call.op == OpKind::MaxPoolIndex) {
      auto *y = pointer<int64_t>(call.results[0]) + plane * s.yPlaces;
      greatestOfPlane(s, x, [&](int64_t o, int64_t place) { y[o] = place; });
    } else {
      const T *dy = pointer<const T>(call.inputs[1]) + plane * s.yPlaces;
      T *dx = pointer<T>(call.results[0]) + plane * s.xPlaces;
      std::fill_n(dx, s.xPlaces, T(0));
      greatestOfPlane(s, x, [&](int64_t o, int64_t place) {
        if (place >= 0)
          dx[place] = static_cast<T>(dx[place] + dy[o]);
      });
    }
  }
}

template <typename T> void runSumPool(const KernelCall &call) {
  using Sum = std::conditional_t<std::is_floating_point_v<T>, double, uint64_t>;
  const auto &s = stateOf<PoolState>(call);
  for (int64_t plane = 0; plane < s.planes; ++plane) {
    const T *__restrict x = pointer<const T>(call.inputs[0]) + plane * s.xPlaces;
    T *__restrict y = pointer<T>(call.results[0]) + plane * s.yPlaces;
    Sum sums[kStrip];
    int64_t output = 0, length = 0;
    forStrips(
        s,
        [&](int64_t place, int64_t count) {
          output = place;
          length = count;
          std::fill_n(sums, count, Sum(0));
        },
        [&](int64_t at, int64_t place, int64_t count, int64_t stride) {
          Sum *__restrict to = sums + at;
          forPlaces(place, count, stride,
                    [&](int64_t i, int64_t from) { to[i] += static_cast<Sum>(x[from]); });
        },
        [&] {
          for (int64_t i = 0; i < length; ++i)
            y[output + i] = static_cast<T>(sums[i]);
        });
  }
}

template <typename T> void runSumPoolGrad(const KernelCall &call) {
  const auto &s = stateOf<PoolState>(call);
  for (int64_t plane = 0; plane < s.planes; ++plane) {
    const T *dy = pointer<const T>(call.inputs[0]) + plane * s.yPlaces;
    T *__restrict dx = pointer<T>(call.results[0]) + plane * s.xPlaces;
    std::fill_n(dx, s.xPlaces, T(0));
    const T *strip = nullptr;
    forStrips(
        s, [&](int64_t place, int64_t) { strip = dy + place; },
        [&](int64_t at, int64_t place, int64_t count, int64_t stride) {
          const T *__restrict from = strip + at;
          forPlaces(place, count, stride,
                    [&](int64_t i, int64_t to) { dx[to] = static_cast<T>(dx[to] + from[i]); });
        },
        [] {});
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
  if (s.xPlaces > std::numeric_limits<int32_t>::max())
    return refuse(call, describe(x) + " has more than 2^31 places in a plane");
  s.columns = columnsOf(s);
  using Run = void (*)(const KernelCall &);
  call.run = withNumber(x.dtype, [&](auto zero) -> Run {
    using T = decltype(zero);
    return isSumGrad ? runSumPoolGrad<T> : call.op == OpKind::SumPool ? runSumPool<T> : runMaxPool<T>;
  });
  if (!call.run)
    return refuse(call, "no kernel for " + std::string(dtypeName(x.dtype)));
  setState(call, std::move(s));
  return success();
}

} // namespace

extern const CpuKernel poolKernels = {preparePool};

} // namespace zerocc
