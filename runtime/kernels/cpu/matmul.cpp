// matmul: [..., M, K] x [..., K, N] in f32. OpenBLAS does the products, called once per matrix of the batch,
// or once for many when they share the right operand; products too small for its overhead go to small_matmul.
// Which one is used depends on shapes alone.
// bf16, f16: blocks of both operands are widened to f32 (exactly), multiplied as above, the sums of a block of the result
// kept in f32 over all of k and rounded once.

#include "runtime/collectives/half.h"
#include "runtime/kernels/cpu/loop_plan.h"
#include "runtime/kernels/cpu/prepare.h"
#include "runtime/kernels/cpu/small_matmul.h"

#include <cblas.h>

#include <algorithm>
#include <cstring>

namespace zerocc {
namespace {

/// How BLAS is told to read a matrix of `rows` x `columns`: row-major, or its transpose row-major.
struct MatrixRead {
  bool transposed = false;
  int64_t leading = 1;
};

struct MatMulState {
  int64_t m = 0, n = 0, k = 0;
  MatrixRead a, b;
  int64_t leadingC = 1;
  LoopPlan batch; // operands: result, a, b; all loops are outer ones
  SmallMatMul small = nullptr;
};

std::optional<MatrixRead> matrixRead(int64_t rows, int64_t columns, int64_t rowStride, int64_t columnStride) {
  if ((columnStride == 1 || columns == 1) && (rowStride >= columns || rows == 1))
    return MatrixRead{false, std::max<int64_t>(rows == 1 ? columns : rowStride, 1)};
  if ((rowStride == 1 || rows == 1) && (columnStride >= rows || columns == 1))
    return MatrixRead{true, std::max<int64_t>(columns == 1 ? rows : columnStride, 1)};
  return std::nullopt;
}

/// Matrices one behind the other that share the right operand are one taller matrix.
void foldBatch(MatMulState &state) {
  LoopPlan &batch = state.batch;
  int last = batch.rank - 1;
  if (batch.elements <= 1 || batch.strides[2][last] != 0 || state.a.transposed)
    return;
  if (state.m == 1)
    state.a.leading = std::max<int64_t>(batch.strides[1][last], 1);
  if (batch.strides[1][last] != state.m * state.a.leading || batch.strides[0][last] != state.m * state.n ||
      state.a.leading < state.k) {
    if (state.m == 1)
      state.a.leading = std::max<int64_t>(state.k, 1);
    return;
  }
  state.m *= batch.dims[last];
  batch.dims[last] = 1;
  batch.elements = 1;
  for (int i = 0; i < batch.rank; ++i)
    batch.elements *= batch.dims[i];
}

void multiply(const MatMulState &state, float *c, const float *a, const float *b) {
  if (state.small) {
    state.small(state.m, state.n, state.k, a, state.a.transposed ? 1 : state.a.leading,
                state.a.transposed ? state.a.leading : 1, b, state.b.transposed ? 1 : state.b.leading,
                state.b.transposed ? state.b.leading : 1, c);
    return;
  }
  cblas_sgemm(CblasRowMajor, state.a.transposed ? CblasTrans : CblasNoTrans,
              state.b.transposed ? CblasTrans : CblasNoTrans, static_cast<blasint>(state.m),
              static_cast<blasint>(state.n), static_cast<blasint>(state.k), 1.0f, a,
              static_cast<blasint>(state.a.leading), b, static_cast<blasint>(state.b.leading), 0.0f, c,
              static_cast<blasint>(state.leadingC));
}

void runMatMul(const KernelCall &call) {
  const auto &state = stateOf<MatMulState>(call);
  float *c = pointer<float>(call.results[0]);
  if (state.k == 0) {
    std::memset(c, 0, static_cast<size_t>(call.results[0].elements()) * sizeof(float));
    return;
  }
  if (state.m == 0 || state.n == 0)
    return;
  const float *a = pointer<const float>(call.inputs[0]), *b = pointer<const float>(call.inputs[1]);
  const LoopPlan &batch = state.batch;
  forEachRow(batch, [&](const int64_t *at) {
    for (int64_t i = 0; i < batch.innerLength(); ++i)
      multiply(state, c + at[0] + i * batch.innerStride(0), a + at[1] + i * batch.innerStride(1),
               b + at[2] + i * batch.innerStride(2));
  });
}

constexpr int64_t kBlockM = 128, kBlockN = 256, kBlockK = 256;

/// One rank's blocks of widened operands and of sums.
struct WideBlocks {
  alignas(64) float a[kBlockM * kBlockK], b[kBlockK * kBlockN], c[kBlockM * kBlockN];
};

/// 16-bit floats as bits.
struct Bf16 {
  static float widened(uint16_t bits) { return fromBf16(bits); }
  static uint16_t rounded(float value) { return toBf16(value); }
};
struct F16 {
  static float widened(uint16_t bits) { return fromF16(bits); }
  static uint16_t rounded(float value) { return toF16(value); }
};

/// rows x columns from (row, column) of a matrix, row-major and packed.
template <typename Narrow>
void widenBlock(float *to, const uint16_t *from, const MatrixRead &read, int64_t row, int64_t rows, int64_t column,
                int64_t columns) {
  const int64_t rowStride = read.transposed ? 1 : read.leading, columnStride = read.transposed ? read.leading : 1;
  from += row * rowStride + column * columnStride;
  if (!read.transposed) {
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < columns; ++c)
        to[r * columns + c] = Narrow::widened(from[r * rowStride + c]);
    return;
  }
  for (int64_t c = 0; c < columns; ++c)
    for (int64_t r = 0; r < rows; ++r)
      to[r * columns + c] = Narrow::widened(from[c * columnStride + r]);
}

template <typename Narrow>
void multiplyNarrow(const MatMulState &state, uint16_t *result, const uint16_t *a, const uint16_t *b) {
  static thread_local WideBlocks blocks;
  for (int64_t column = 0; column < state.n; column += kBlockN)
    for (int64_t row = 0; row < state.m; row += kBlockM) {
      const int64_t m = std::min(kBlockM, state.m - row), n = std::min(kBlockN, state.n - column);
      for (int64_t inner = 0; inner < state.k; inner += kBlockK) {
        const int64_t k = std::min(kBlockK, state.k - inner);
        widenBlock<Narrow>(blocks.a, a, state.a, row, m, inner, k);
        widenBlock<Narrow>(blocks.b, b, state.b, inner, k, column, n);
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, static_cast<blasint>(m), static_cast<blasint>(n),
                    static_cast<blasint>(k), 1.0f, blocks.a, static_cast<blasint>(k), blocks.b,
                    static_cast<blasint>(n), inner == 0 ? 0.0f : 1.0f, blocks.c, static_cast<blasint>(n));
      }
      for (int64_t r = 0; r < m; ++r)
        for (int64_t c = 0; c < n; ++c)
          result[(row + r) * state.leadingC + column + c] = Narrow::rounded(blocks.c[r * n + c]);
    }
}

template <typename Narrow>
void runNarrowMatMul(const KernelCall &call) {
  const auto &state = stateOf<MatMulState>(call);
  auto *c = pointer<uint16_t>(call.results[0]);
  if (state.k == 0) {
    std::memset(c, 0, static_cast<size_t>(call.results[0].elements()) * sizeof(uint16_t));
    return;
  }
  if (state.m == 0 || state.n == 0)
    return;
  const auto *a = pointer<const uint16_t>(call.inputs[0]), *b = pointer<const uint16_t>(call.inputs[1]);
  const LoopPlan &batch = state.batch;
  forEachRow(batch, [&](const int64_t *at) {
    for (int64_t i = 0; i < batch.innerLength(); ++i)
      multiplyNarrow<Narrow>(state, c + at[0] + i * batch.innerStride(0), a + at[1] + i * batch.innerStride(1),
                     b + at[2] + i * batch.innerStride(2));
  });
}

/// The batch dims of a view.
TensorView batchOf(const TensorView &view) {
  TensorView out = view;
  out.rank -= 2;
  return out;
}

// matmul            c[m, n] = Σ_k a[m, k] b[k, n];  trans_a, trans_b: the last two dims of an operand swapped
// first
Status prepareMatMul(KernelCall &call) {
  // One rank is one thread; BLAS must not start its own.
  static const bool blasReady = (openblas_set_num_threads(1), true);
  (void)blasReady;
  ZEROCC_TRY(expectCounts(call, 2, 1));
  const TensorView &a = call.inputs[0], &b = call.inputs[1], &c = call.results[0];
  const bool isKnown = a.dtype == DType::f32 || a.dtype == DType::bf16 || a.dtype == DType::f16;
  if (!isKnown || b.dtype != a.dtype || c.dtype != a.dtype)
    return refuse(call, "f32, bf16 or f16 only");
  if (a.rank < 2 || a.rank != b.rank || a.rank != c.rank)
    return refuse(call, "operands and result must have one rank of at least 2");
  if (!c.contiguous())
    return refuse(call, "the result must be contiguous, is " + describe(c));
  int row = a.rank - 2, column = a.rank - 1;
  int aRow = row, aColumn = column, bRow = row, bColumn = column;
  if (call.attributes.getInt("trans_a"))
    std::swap(aRow, aColumn);
  if (call.attributes.getInt("trans_b"))
    std::swap(bRow, bColumn);

  MatMulState state;
  state.m = a.dims[aRow];
  state.k = a.dims[aColumn];
  state.n = b.dims[bColumn];
  if (b.dims[bRow] != state.k || c.dims[row] != state.m || c.dims[column] != state.n ||
      !sameDims(batchOf(a), batchOf(b)) || !sameDims(batchOf(a), batchOf(c)))
    return refuse(call, "dims do not fit each other and the result " + describe(c));
  auto readA = matrixRead(state.m, state.k, a.strides[aRow], a.strides[aColumn]);
  auto readB = matrixRead(state.k, state.n, b.strides[bRow], b.strides[bColumn]);
  if (!readA || !readB)
    return refuse(call,
                  "one of an operand's last two dims must have stride 1, the other step over whole rows");
  state.a = *readA;
  state.b = *readB;
  state.leadingC = std::max<int64_t>(state.n, 1);
  TensorView batchA = batchOf(a), batchB = batchOf(b), batchC = batchOf(c);
  state.batch = makeLoopPlan({&batchC, &batchA, &batchB});
  foldBatch(state);
  for (int64_t size : {state.m, state.n, state.k, state.a.leading, state.b.leading})
    if (size > INT32_MAX)
      return refuse(call, "a matrix dimension above 2^31 - 1");
  state.small = findSmallMatMul(state.m, state.n, state.k);
  setState(call, state);
  call.run = a.dtype == DType::f32    ? runMatMul
             : a.dtype == DType::bf16 ? runNarrowMatMul<Bf16>
                                      : runNarrowMatMul<F16>;
  return success();
}

} // namespace

extern const CpuKernel matmulKernels = {prepareMatMul};

} // namespace zerocc
