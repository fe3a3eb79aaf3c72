#pragma once

#include "compiler/ops/interpreter.h"
#include "runtime/kernels/kernel.h"

#include <gtest/gtest.h>

#include <random>

namespace zerocc {

using Random = std::mt19937_64;

/// A tensor in memory of its own: exactly the bytes its view may touch.
struct Tensor {
  TensorView view;
  std::vector<char> storage; // the vector's buffer does not move when a Tensor does

  TensorType type() const;
  template <typename T> T *data() const { return static_cast<T *>(view.data); }
  /// The elements in row-major order, read through the view.
  HostTensor host() const;
};

/// How a tensor may lie in memory. Each deviation is drawn per dim.
struct Lie {
  bool permuted = false, spread = false, reversed = false, broadcast = false;
};
constexpr Lie kContiguous = {};
constexpr Lie kAnyhow = {true, true, true, true};

/// A tensor of random elements in [low, high]; integers are rounded, booleans drawn.
Tensor randomTensor(Random &random, DType dtype, Dims dims, Lie lie = kContiguous, double low = -3,
                    double high = 3);
/// Contiguous, all bytes 0xa5.
Tensor poisoned(DType dtype, Dims dims);
template <typename T> Tensor tensorOf(DType dtype, Dims dims, const std::vector<T> &values) {
  Tensor out = poisoned(dtype, std::move(dims));
  std::copy(values.begin(), values.end(), out.data<T>());
  return out;
}

/// Rank 0 to maxRank, dims from 0 to 70, at most some thousand elements.
Dims randomDims(Random &random, int maxRank, bool withEmpty = true);

/// Prepares and runs; results are contiguous and poisoned before. Fails the test when prepare refuses.
std::vector<Tensor> runKernel(OpKind op, const Attributes &attributes,
                              const std::vector<const Tensor *> &inputs,
                              const std::vector<TensorType> &resultTypes);
/// The call, prepared, on given results.
Expected<KernelCall> prepareCall(OpKind op, const Attributes &attributes,
                                 const std::vector<const Tensor *> &inputs,
                                 const std::vector<const Tensor *> &results,
                                 const BucketLayout *bucket = nullptr);

struct Tolerance {
  double absolute = 0, relative = 0;
};
constexpr Tolerance kExact = {0, 0};

/// Compares the kernel with the plain interpreter. `scale`: what `absolute` is multiplied by.
void expectAsInterpreted(OpKind op, const Attributes &attributes, const std::vector<const Tensor *> &inputs,
                         Tolerance tolerance);

/// NaN equals NaN; infinities must match.
void expectNear(const HostTensor &actual, const HostTensor &expected, Tolerance tolerance,
                const std::string &what);

/// Runs `body` once per instruction set that this machine and binary have.
template <typename F> void forEachTarget(F body);

} // namespace zerocc

#include "hwy/targets.h"

namespace zerocc {
template <typename F> void forEachTarget(F body) {
  int64_t all = hwy::SupportedTargets() & ~(HWY_SSSE3 | HWY_SSE4);
  for (int64_t rest = all & (HWY_AVX3 | HWY_AVX2); true; rest &= rest - 1) {
    int64_t target = rest ? rest & -rest : HWY_SCALAR;
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    body();
    hwy::SetSupportedTargetsForTest(0);
    if (target == HWY_SCALAR)
      break;
  }
}
} // namespace zerocc
