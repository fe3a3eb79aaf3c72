#include "runtime/kernels/kernel.h"

// The few ops that hand-written plans use, in their plainest form: these tests are about the executor, and
// link without the real kernels.

namespace zerocc {
namespace {

float &at(const TensorView &view, int64_t i) {
  int64_t offset = 0;
  for (int d = view.rank - 1; d >= 0; --d) {
    offset += i % view.dims[d] * view.strides[d];
    i /= view.dims[d];
  }
  return static_cast<float *>(view.data)[offset];
}

template <typename Function> void elementwise(const KernelCall &call, Function function) {
  const TensorView &to = call.results[0];
  for (int64_t i = 0; i < to.elements(); ++i)
    at(to, i) = function(at(call.inputs[0], i), call.inputs.size() > 1 ? at(call.inputs[1], i) : 0.0f);
}

void copy(const KernelCall &call) {
  elementwise(call, [](float a, float) { return a; });
}
void add(const KernelCall &call) {
  elementwise(call, [](float a, float b) { return a + b; });
}
void multiply(const KernelCall &call) {
  elementwise(call, [](float a, float b) { return a * b; });
}

void matmul(const KernelCall &call) {
  const TensorView &a = call.inputs[0], &b = call.inputs[1], &y = call.results[0];
  const int64_t rows = a.dims[0], inner = a.dims[1], columns = b.dims[1];
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) {
      float sum = 0;
      for (int64_t k = 0; k < inner; ++k)
        sum += at(a, i * inner + k) * at(b, k * columns + j);
      at(y, i * columns + j) = sum;
    }
}

/// Sum of the rank's part of a bucket, members only; as f64 bits, as the real one.
void normPartial(const KernelCall &call) {
  const BucketLayout &bucket = *call.bucket;
  const int64_t part = bucket.paddedElements / bucket.shardSize, first = bucket.shardIndex * part;
  double sum = 0;
  for (const MemberRange &range : bucket.ranges)
    for (int64_t i = range.begin; i < range.end; ++i)
      if (i >= first && i < first + part)
        sum += at(call.inputs[0], i - first);
  *static_cast<double *>(call.results[0].data) = sum;
}

/// Uses its workspace as scratch, and an attribute.
void pad(const KernelCall &call) {
  float *scratch = static_cast<float *>(call.workspace);
  const int64_t n = call.results[0].elements();
  for (int64_t i = 0; i < n; ++i)
    scratch[i] = at(call.inputs[0], i);
  for (int64_t i = 0; i < n; ++i)
    at(call.results[0], i) = scratch[n - 1 - i] + static_cast<float>(call.attributes.getFloat("value"));
}

template <void (*run)(const KernelCall &)>
const CpuKernel kKernel = {[](KernelCall &call) {
  call.run = run;
  return success();
}};

} // namespace

const CpuKernel &cpuKernel(OpKind op) {
  static const CpuKernel none = {
      [](KernelCall &) -> Status { return Error("this test has no such kernel"); }};
  switch (op) {
  case OpKind::Copy:
    return kKernel<copy>;
  case OpKind::Add:
  case OpKind::Accumulate:
    return kKernel<add>;
  case OpKind::Mul:
    return kKernel<multiply>;
  case OpKind::MatMul:
    return kKernel<matmul>;
  case OpKind::NormPartial:
    return kKernel<normPartial>;
  case OpKind::Pad:
    return kKernel<pad>;
  default:
    return none;
  }
}

} // namespace zerocc
