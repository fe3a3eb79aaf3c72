// reduce_sum, reduce_max over any axes of a strided operand.
//
// Two forms. Along rows: the reduced unit-stride dim is summed into kLanes interleaved partial results, which
// are joined pairwise at the end. Along columns: where a kept dim has the unit stride (the gradient of a
// bias), a tile of columns is held as accumulators and rows are added to it, in order, four at a time. The
// order of sums follows from dims and strides alone. f32 is summed in f64, but for the four.

#include "runtime/kernels/cpu/loop_plan.h"
#include "runtime/kernels/cpu/prepare.h"
#include "runtime/kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/kernels/cpu/reduce.cpp"
#include "hwy/foreach_target.h"

#include "hwy/highway.h"

#include <algorithm>
#include <limits>
#include <type_traits>

#ifndef ZEROCC_REDUCE_ONCE
#define ZEROCC_REDUCE_ONCE
namespace zerocc {
/// kept: operand 0 the result, 1 the input. reduced: operand 0 the input. The inner loop of `kept` is the
/// column loop when `columns` is set.
struct ReduceState {
  LoopPlan kept, reduced;
  bool columns = false;
};
using ReduceRun = void (*)(const KernelCall &);
} // namespace zerocc
#endif

HWY_BEFORE_NAMESPACE();
namespace zerocc {
namespace HWY_NAMESPACE {
namespace {

constexpr int64_t kReduceLanes = 16;
constexpr int64_t kColumns = 512; // accumulators of a tile

template <typename T, typename A> struct Sum {
  using Element = T;
  using Accumulator = A;
  static constexpr A kNone = 0;
  static A join(A a, A b) { return a + b; }
  static T joinElements(T a, T b) { return a + b; }
};

template <typename T> struct Greatest {
  using Element = T;
  using Accumulator = T;
  static constexpr T kNone =
      std::is_floating_point_v<T> ? -std::numeric_limits<T>::infinity() : std::numeric_limits<T>::lowest();
  static T join(T a, T b) { return b > a || b != b ? b : a; } // NaN stays
  static T joinElements(T a, T b) { return join(a, b); }
};

/// acc[i mod kReduceLanes] joined with x[i].
template <typename R>
void addRow(typename R::Accumulator *acc, const typename R::Element *x, int64_t stride, int64_t n) {
  using A = typename R::Accumulator;
  int64_t i = 0;
  if (stride == 1)
    for (; i + kReduceLanes <= n; i += kReduceLanes)
      for (int64_t lane = 0; lane < kReduceLanes; ++lane)
        acc[lane] = R::join(acc[lane], static_cast<A>(x[i + lane]));
  for (; i < n; ++i)
    acc[i % kReduceLanes] = R::join(acc[i % kReduceLanes], static_cast<A>(x[i * stride]));
}

template <typename R> void reduceRows(const KernelCall &call, const ReduceState &state) {
  using T = typename R::Element;
  using A = typename R::Accumulator;
  T *y = pointer<T>(call.results[0]);
  const T *x = pointer<const T>(call.inputs[0]);
  const LoopPlan &reduced = state.reduced;
  forEachRow(state.kept, [&](const int64_t *keptAt) {
    for (int64_t i = 0; i < state.kept.innerLength(); ++i) {
      const T *from = x + keptAt[1] + i * state.kept.innerStride(1);
      A acc[kReduceLanes];
      std::fill_n(acc, kReduceLanes, R::kNone);
      forEachRow(reduced, [&](const int64_t *at) {
        addRow<R>(acc, from + at[0], reduced.innerStride(0), reduced.innerLength());
      });
      for (int64_t half = kReduceLanes / 2; half > 0; half /= 2)
        for (int64_t lane = 0; lane < half; ++lane)
          acc[lane] = R::join(acc[lane], acc[lane + half]);
      y[keptAt[0] + i * state.kept.innerStride(0)] = static_cast<T>(acc[0]);
    }
  });
}

/// acc[c] joined with rows [0, rows) of x, in groups of four that are joined among themselves first.
template <typename R>
void addColumns(typename R::Accumulator *acc, const typename R::Element *x, int64_t rowStride, int64_t rows,
                int64_t columns) {
  using T = typename R::Element;
  using A = typename R::Accumulator;
  int64_t row = 0;
  for (; row + 4 <= rows; row += 4) {
    const T *a = x + row * rowStride, *b = a + rowStride, *c = b + rowStride, *d = c + rowStride;
#pragma GCC ivdep
    for (int64_t i = 0; i < columns; ++i)
      acc[i] = R::join(
          acc[i], static_cast<A>(R::joinElements(R::joinElements(a[i], b[i]), R::joinElements(c[i], d[i]))));
  }
  for (; row < rows; ++row) {
    const T *a = x + row * rowStride;
#pragma GCC ivdep
    for (int64_t i = 0; i < columns; ++i)
      acc[i] = R::join(acc[i], static_cast<A>(a[i]));
  }
}

template <typename R> void reduceColumns(const KernelCall &call, const ReduceState &state) {
  using T = typename R::Element;
  using A = typename R::Accumulator;
  T *y = pointer<T>(call.results[0]);
  const T *x = pointer<const T>(call.inputs[0]);
  const LoopPlan &reduced = state.reduced;
  forEachRow(state.kept, [&](const int64_t *keptAt) {
    for (int64_t begin = 0; begin < state.kept.innerLength(); begin += kColumns) {
      int64_t columns = std::min(kColumns, state.kept.innerLength() - begin);
      A acc[kColumns];
      std::fill_n(acc, columns, R::kNone);
      forEachRow(reduced, [&](const int64_t *at) {
        addColumns<R>(acc, x + keptAt[1] + begin + at[0], reduced.innerStride(0), reduced.innerLength(),
                      columns);
      });
      T *to = y + keptAt[0] + begin * state.kept.innerStride(0);
      for (int64_t c = 0; c < columns; ++c)
        to[c * state.kept.innerStride(0)] = static_cast<T>(acc[c]);
    }
  });
}

template <typename R> void runReduce(const KernelCall &call) {
  const auto &state = stateOf<ReduceState>(call);
  if (state.columns)
    reduceColumns<R>(call, state);
  else
    reduceRows<R>(call, state);
}

ReduceRun reduceRun(OpKind op, DType dtype) {
  bool isSum = op == OpKind::ReduceSum;
  switch (dtype) {
  case DType::f32:
    return isSum ? runReduce<Sum<float, double>> : runReduce<Greatest<float>>;
  case DType::f64:
    return isSum ? runReduce<Sum<double, double>> : runReduce<Greatest<double>>;
  case DType::i64: // unsigned sums wrap
    return isSum ? runReduce<Sum<uint64_t, uint64_t>> : runReduce<Greatest<int64_t>>;
  case DType::i32:
    return isSum ? runReduce<Sum<uint32_t, uint32_t>> : runReduce<Greatest<int32_t>>;
  case DType::boolean:
    return isSum ? nullptr : runReduce<Greatest<uint8_t>>;
  default:
    return nullptr;
  }
}

} // namespace
} // namespace HWY_NAMESPACE
} // namespace zerocc
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zerocc {
HWY_EXPORT(reduceRun);

static void addLoop(LoopPlan &plan, int64_t dim, std::initializer_list<int64_t> strides) {
  int operand = 0;
  for (int64_t stride : strides)
    plan.strides[operand++][plan.rank] = stride;
  plan.dims[plan.rank++] = dim;
}

/// Makes the loop with the unit stride of `operand`, if there is one, the inner one.
static void bringUnitStrideIn(LoopPlan &plan, int operand) {
  int unit = plan.rank - 1;
  while (unit >= 0 && plan.strides[operand][unit] != 1)
    --unit;
  for (int i = unit; i >= 0 && i + 1 < plan.rank; ++i) {
    std::swap(plan.dims[i], plan.dims[i + 1]);
    for (int k = 0; k < plan.operands; ++k)
      std::swap(plan.strides[k][i], plan.strides[k][i + 1]);
  }
}

// reduce_sum        y = Σ over the axes;  reduce_max: the greatest, -inf (or the least integer) of none
static Status prepareReduce(KernelCall &call) {
  ZEROCC_TRY(expectCounts(call, 1, 1));
  const TensorView &input = call.inputs[0], &result = call.results[0];
  if (result.dtype != input.dtype)
    return refuse(call, "the result is " + describe(result) + ": another dtype");
  bool isReduced[kMaxRank] = {};
  for (int64_t axis : call.attributes.getInts("axes")) {
    if (axis < 0 || axis >= input.rank)
      return refuse(call, "axis " + std::to_string(axis) + " of rank " + std::to_string(input.rank));
    isReduced[axis] = true;
  }
  ReduceState state;
  state.kept.operands = 2;
  state.reduced.operands = 1;
  state.kept.rank = state.reduced.rank = 0;
  for (int i = 0; i < input.rank; ++i) {
    if (isReduced[i]) {
      addLoop(state.reduced, input.dims[i], {input.strides[i]});
      continue;
    }
    int kept = state.kept.rank;
    if (kept >= result.rank || result.dims[kept] != input.dims[i])
      return refuse(call, "the result is " + describe(result) + ": not the kept dims");
    addLoop(state.kept, input.dims[i], {result.strides[kept], input.strides[i]});
  }
  if (state.kept.rank != result.rank)
    return refuse(call, "the result is " + describe(result) + ": not the kept dims");
  collapse(state.kept);
  collapse(state.reduced);
  bringUnitStrideIn(state.reduced, 0);
  bringUnitStrideIn(state.kept, 1);
  state.columns = state.kept.elements > 1 && state.kept.innerStride(1) == 1 &&
                  (state.reduced.innerStride(0) != 1 || state.reduced.elements == 1);
  chooseTarget();
  call.run = HWY_DYNAMIC_DISPATCH(reduceRun)(call.op, input.dtype);
  if (!call.run)
    return refuse(call, "no kernel for " + std::string(dtypeName(input.dtype)));
  setState(call, state);
  return success();
}

extern const CpuKernel reduceKernels = {prepareReduce};

} // namespace zerocc
#endif
