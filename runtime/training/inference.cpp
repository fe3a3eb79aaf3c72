#include "runtime/training/inference.h"

#include "runtime/checkpoint/load.h"
#include "runtime/plan/plan.h"

namespace zerocc {

int64_t OutputSpec::bytes() const {
  int64_t bytes = byteSize(dtype);
  for (int64_t dim : dims)
    bytes *= dim;
  return bytes;
}

std::vector<OutputSpec> outputsOf(const plan::Plan &plan) {
  std::vector<OutputSpec> outputs;
  const auto samples = static_cast<int64_t>(plan.micro_batch());
  for (const plan::Storage &storage : plan.storages()) {
    if (storage.kind() != plan::Storage::OUTPUT)
      continue;
    OutputSpec output;
    output.name = storage.name().substr(storage.name().find(':') + 1);
    output.dtype = static_cast<DType>(storage.dtype());
    output.dims.assign(storage.dims().begin(), storage.dims().end());
    if (!output.dims.empty() && output.dims[0] > 0 && output.dims[0] % samples == 0)
      output.rowsPerSample = output.dims[0] / samples;
    outputs.push_back(std::move(output));
  }
  return outputs;
}

Expected<std::unique_ptr<Inference>> Inference::create(const plan::Plan &plan, const InitialValues &values,
                                                       const RankGroupOptions &options) {
  if (!isInference(plan))
    return Error("the plan trains", "compile with --mode inference");
  if (values.checkpoint)
    ZEROCC_TRY(checkCheckpoint(plan, *values.checkpoint));
  std::unique_ptr<Inference> made(new Inference(plan));
  for (const plan::Storage &storage : plan.storages())
    if (storage.kind() == plan::Storage::OUTPUT)
      made->offsets_.push_back(storage.offset());
  ZEROCC_ASSIGN(made->group_, RankGroup::create(plan, options));
  ZEROCC_TRY(made->group_->forEachRank([&](Executor &executor) { return loadValues(plan, executor, values); }));
  if (made->group_->here().hasSegment("init"))
    ZEROCC_TRY(made->group_->runSegment("init"));
  return made;
}

Status Inference::run(const std::function<Status(Executor &)> &fill) {
  auto one = [&](Executor &executor) -> Status {
    ZEROCC_TRY(fill(executor));
    return executor.runSegment("infer");
  };
  return group_->forEachRank(std::ref(one));
}

Status Inference::run(const DataSet &data, int64_t round) {
  auto fill = [&](Executor &executor) -> Status {
    Batch batch;
    batch.step = round * group_->ranks() + executor.rank();
    for (int i = 0; i < plan_.inputs_size(); ++i)
      ZEROCC_TRY(data.fill(batch, i, executor.address(kInputsRegion, plan_.inputs(i).offset())));
    return success();
  };
  return run(std::ref(fill));
}

const char *Inference::output(int rank, int index) const {
  return group_->executor(rank).address(kCarriedRegion, offsets_[index]);
}

} // namespace zerocc
