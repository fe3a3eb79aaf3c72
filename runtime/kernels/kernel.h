#pragma once

#include "compiler/ops/op_kind.h"
#include "compiler/support/attributes.h"
#include "compiler/support/dtype.h"
#include "compiler/support/expected.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace zerocc {

constexpr int kMaxRank = 8;

/// A strided tensor in a rank's memory. `strides` are in elements; 0 for broadcast dims, possibly negative.
struct TensorView {
  void *data = nullptr;
  DType dtype = DType::f32;
  int rank = 0;
  int64_t dims[kMaxRank] = {};
  int64_t strides[kMaxRank] = {};

  int64_t elements() const {
    int64_t n = 1;
    for (int i = 0; i < rank; ++i)
      n *= dims[i];
    return n;
  }
  bool contiguous() const {
    int64_t expected = 1;
    for (int i = rank - 1; i >= 0; --i) {
      if (dims[i] != 1 && strides[i] != expected)
        return false;
      expected *= dims[i];
    }
    return true;
  }
};

/// One member of a bucket as update kernels walk it: elements [begin, end) belong to one parameter, in `group`.
struct MemberRange {
  int64_t begin = 0, end = 0;
  int group = 0;
  int parameter = 0;
};

/// What bucket-walking kernels (clear_padding, norm_partial, adamw, sgd) need to know. A view of `paddedElements`
/// is the whole bucket; one of paddedElements / shardSize is the part of this rank.
struct BucketLayout {
  std::vector<MemberRange> ranges; // ascending
  int64_t paddedElements = 0;
  int64_t shardIndex = 0, shardSize = 1;
};

/// One kernel call with everything resolved: built once at load, run every step. `state` holds what `prepare` made
/// (decoded attributes, loop plans, library primitives); run() allocates nothing.
struct KernelCall {
  OpKind op = OpKind::Copy;
  std::vector<TensorView> inputs, results;
  Attributes attributes;
  void *workspace = nullptr;
  int64_t workspaceBytes = 0;
  const BucketLayout *bucket = nullptr; // update ops
  std::shared_ptr<void> state;
  void (*run)(const KernelCall &) = nullptr;
};

/// Fills call.run and call.state for the CPU, or says why this call cannot be done.
struct CpuKernel {
  Status (*prepare)(KernelCall &call);
};

/// By the op table. Views, structural and collective ops have a kernel that does nothing / refuses: the executor
/// handles them itself.
const CpuKernel &cpuKernel(OpKind op);

} // namespace zerocc
