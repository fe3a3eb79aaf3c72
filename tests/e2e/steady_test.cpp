// Nothing is allocated inside a step, and results do not depend on how streams are delayed: the trainer in this process,
// on plans made by the compiler's program.

#include "runtime/checkpoint/writer.h"
#include "runtime/data/plan_inputs.h"
#include "runtime/plan/plan.h"
#include "runtime/training/trainer.h"
#include "tests/e2e/cli.h"
#include "tests/e2e/memory_files.h"
#include "tests/runtime/executor/malloc_hook.h"

#include <gtest/gtest.h>

namespace zerocc {
namespace {

struct Prepared {
  plan::Plan plan;
  std::optional<ModelWeights> weights;
  std::optional<DataSet> data;
  std::unique_ptr<Trainer> trainer;
};

std::unique_ptr<Prepared> prepare(const std::string &model, int stage, int microSteps,
                                  const RankGroupOptions &group = {}) {
  auto prepared = std::make_unique<Prepared>();
  std::string path = e2e::scratch("steady") + "/" + model + ".zplan";
  e2e::compile(model, path,
               {"--ranks", "2", "--stage", std::to_string(stage), "--grad-accumulation", std::to_string(microSteps),
                "--micro-batch", "1", "--bucket-bytes", "16KiB", "--clip-grad-norm", "1"});
  auto plan = loadPlan(path);
  EXPECT_TRUE(plan);
  prepared->plan = std::move(*plan);
  auto weights = ModelWeights::open(e2e::modelPath(model));
  EXPECT_TRUE(weights);
  prepared->weights.emplace(std::move(*weights));
  auto data = DataSet::open({e2e::source("models/" + model + ".data.npz")}, inputSpecs(prepared->plan),
                            batchShape(prepared->plan));
  EXPECT_TRUE(data);
  prepared->data.emplace(std::move(*data));
  TrainerOptions options;
  options.values.model = &*prepared->weights;
  options.group = group;
  auto trainer = Trainer::create(prepared->plan, options);
  EXPECT_TRUE(trainer) << trainer.error().text();
  prepared->trainer = std::move(*trainer);
  return prepared;
}

class Steady : public testing::TestWithParam<std::tuple<const char *, int>> {};

TEST_P(Steady, AllocatesNothingFromTheSecondStepOn) {
  if (!allocationCounterWorks())
    GTEST_SKIP() << "a sanitizer counts allocations itself";
  auto [model, stage] = GetParam();
  auto prepared = prepare(model, stage, 2);
  ASSERT_TRUE(prepared->trainer->step(*prepared->data));
  startCountingAllocations();
  bool ok = true;
  for (int i = 0; i < 3; ++i)
    ok &= static_cast<bool>(prepared->trainer->step(*prepared->data));
  AllocationCounts counts = stopCountingAllocations();
  EXPECT_TRUE(ok);
  EXPECT_EQ(counts.ours, 0) << counts.text;
  EXPECT_LE(counts.largest, 4096) << counts.text;
}

// The saving thread is held at its first call of the file system while steps are counted.
class HeldFiles : public MemoryFiles {
public:
  void hold() {
    std::lock_guard lock(mutex_);
    isHeld_ = true;
    fault = [this](Call, int64_t) -> int64_t {
      std::unique_lock lock(mutex_);
      isThere_ = isHeld_;
      changed_.notify_all();
      changed_.wait(lock, [&] { return !isHeld_; });
      return 0;
    };
  }
  void awaitWriter() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return isThere_; });
  }
  void letGo() {
    std::lock_guard lock(mutex_);
    isHeld_ = false;
    changed_.notify_all();
  }

private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool isHeld_ = false, isThere_ = false;
};

TEST_P(Steady, AllocatesNothingWhileASaveIsInProgressAndSavesWhatWasThen) {
  auto [model, stage] = GetParam();
  auto prepared = prepare(model, stage, 2);
  HeldFiles files;
  auto writer = CheckpointWriter::create(files, prepared->plan, prepared->trainer->group(), {"saves", 3}, {});
  ASSERT_TRUE(writer) << writer.error().text();
  ASSERT_TRUE(prepared->trainer->step(*prepared->data));
  const std::vector<float> then = *readTensor(prepared->plan, prepared->trainer->group(), 0, Tensor::parameter);
  files.hold();
  ASSERT_TRUE((*writer)->save(1, prepared->trainer->samplesTaken()));
  files.awaitWriter();
  startCountingAllocations();
  bool ok = true;
  for (int i = 0; i < 3; ++i) // goes on while the save waits
    ok &= static_cast<bool>(prepared->trainer->step(*prepared->data));
  AllocationCounts counts = stopCountingAllocations();
  files.letGo();
  EXPECT_TRUE(ok);
  if (allocationCounterWorks()) {
    EXPECT_EQ(counts.ours, 0) << counts.text;
  }
  auto saved = (*writer)->outcome(true);
  ASSERT_TRUE(saved && saved->status);
  auto checkpoint = Checkpoint::open(files, saved->path);
  ASSERT_TRUE(checkpoint) << checkpoint.error().text();
  const CheckpointTensor *tensor = (*checkpoint)->index().find("parameter/" + prepared->plan.parameters(0).name());
  ASSERT_TRUE(tensor);
  std::vector<float> values(then.size());
  Checkpoint::Cursor cursor;
  ASSERT_TRUE((*checkpoint)->read(cursor, *tensor, 0, static_cast<int64_t>(values.size()), DType::f32, values.data()));
  EXPECT_EQ(values, then);
  EXPECT_NE(values, *readTensor(prepared->plan, prepared->trainer->group(), 0, Tensor::parameter));
}

TEST_P(Steady, DelayedStreamsChangeNoBit) {
  auto [model, stage] = GetParam();
  std::vector<double> losses[2];
  std::vector<float> weights[2];
  for (int delayed = 0; delayed < 2; ++delayed) {
    RankGroupOptions group;
    group.device.maxDelayMicros = delayed ? 300 : 0;
    group.device.delaySeed = 11;
    auto prepared = prepare(model, stage, 2, group);
    for (int i = 0; i < 2; ++i) {
      auto step = prepared->trainer->step(*prepared->data);
      ASSERT_TRUE(step) << step.error().text();
      losses[delayed].push_back(step->loss);
    }
    for (int p = 0; p < prepared->plan.parameters_size(); ++p) {
      std::vector<float> values = *readTensor(prepared->plan, prepared->trainer->group(), p, Tensor::parameter);
      weights[delayed].insert(weights[delayed].end(), values.begin(), values.end());
    }
  }
  EXPECT_EQ(losses[0], losses[1]);
  EXPECT_EQ(weights[0], weights[1]);
}

INSTANTIATE_TEST_SUITE_P(Models, Steady,
                         testing::Combine(testing::Values("mlp", "gpt2_torchscript"), testing::Values(0, 1, 2, 3)),
                         [](const testing::TestParamInfo<std::tuple<const char *, int>> &info) {
                           return std::string(std::get<0>(info.param)) + "_stage" +
                                  std::to_string(std::get<1>(info.param));
                         });

} // namespace
} // namespace zerocc
