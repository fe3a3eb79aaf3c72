#pragma once

#include "compiler/support/dtype.h"
#include "runtime/plan/plan.pb.h"

#include <string>
#include <vector>

namespace zerocc {

/// A tensor of a checkpoint as a plan has it.
struct LogicalTensor {
  std::string name; // checkpoint/index.h
  DType dtype = DType::f32;
  std::vector<int64_t> dims;
};

/// Elements [begin, end) of a logical tensor, and where a rank has them.
struct RankPiece {
  std::string tensor;
  DType dtype = DType::f32; // in memory; the tensor's own may be wider, where this is a rounded copy
  int64_t begin = 0, end = 0;
  uint32_t region = 0;
  uint64_t offset = 0; // bytes
};

/// What a checkpoint of this plan holds, ascending by name: the parameters, every
/// state the optimizer keeps of them, buffers, the scalar block. Found from the plan's tables alone: a storage of a bucket
/// that is no gradient is a state of its parameters, called as its kind.
std::vector<LogicalTensor> logicalTensors(const plan::Plan &plan);

/// What rank `rank` writes. All ranks together write every element of every tensor once: each its own part of a bucket,
/// shared out again among the replicas; rank 0 buffers and scalars. No padding.
std::vector<RankPiece> piecesToSave(const plan::Plan &plan, int rank);

/// What a rank has to be given before the first segment: its own part of everything it updates, all of what is whole.
/// The scalar block is not among it (see trainer.h).
std::vector<RankPiece> piecesToLoad(const plan::Plan &plan, int shardIndex);

/// Elements [begin, end) of a bucket.
struct BucketWindow {
  int64_t begin = 0, end = 0;
};
/// The part of a rank on the shard axis.
BucketWindow ownPart(const plan::Plan &plan, const plan::Bucket &bucket, int shardIndex);
/// What of a storage a rank has to be given.
BucketWindow windowToLoad(const plan::Plan &plan, const plan::Storage &storage, int shardIndex);

/// Names of the elements of the scalar block: those of scalars.h, GROUP.weight-decay and GROUP.lr-factor, else scalarN.
std::vector<std::string> scalarNames(const plan::Plan &plan);

} // namespace zerocc
