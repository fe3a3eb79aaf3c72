#pragma once

#include "runtime/data/data_set.h"
#include "runtime/training/parameters.h"

#include <functional>
#include <string>
#include <vector>

namespace zerocc {

/// One output of an inference plan: of one micro-batch, row-major.
struct OutputSpec {
  std::string name;
  DType dtype = DType::f32;
  std::vector<int64_t> dims;
  /// Rows of the leading dim that belong to one sample; 0 when the output is no sequence of samples (a scalar, a sum).
  int64_t rowsPerSample = 0;
  int64_t bytes() const;
};
std::vector<OutputSpec> outputsOf(const plan::Plan &plan);

/// Runs an inference plan on all ranks of this process. Rank r of n takes global micro-batch i * n + r, so that a
/// sample's outputs do not depend on the number of ranks.
class Inference {
public:
  /// The plan outlives it. With a checkpoint among the values, its parameters and buffers are taken; states are not read.
  static Expected<std::unique_ptr<Inference>> create(const plan::Plan &plan, const InitialValues &values,
                                                     const RankGroupOptions &options);

  /// Global micro-batches round * ranks … round * ranks + ranks - 1 of `data`, which was opened with
  /// `inferenceShape`. Allocates nothing itself.
  Status run(const DataSet &data, int64_t round);
  /// `fill` writes the inputs of a rank.
  Status run(const std::function<Status(Executor &)> &fill);

  /// The bytes of output `index` on a rank; they stay until the next run.
  const char *output(int rank, int index) const;
  const std::vector<OutputSpec> &outputs() const { return outputs_; }
  RankGroup &group() { return *group_; }

private:
  explicit Inference(const plan::Plan &plan) : plan_(plan), outputs_(outputsOf(plan)) {}

  const plan::Plan &plan_;
  std::vector<OutputSpec> outputs_;
  std::vector<uint64_t> offsets_; // in region carried
  std::unique_ptr<RankGroup> group_;
};

/// A step of one rank: positions and random numbers are those of the global micro-batch, whoever takes it.
inline BatchShape inferenceShape(const plan::Plan &plan) { return {1, 1, static_cast<int64_t>(plan.micro_batch())}; }

} // namespace zerocc
