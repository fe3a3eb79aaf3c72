// Saves on a disk in memory: one that loses what was not synced when the power goes, one that takes less than it is given,
// is full or fails. Whatever happened, the last checkpoint there is whole, and a run resumed from it ends with the weights
// of a run that was never disturbed, bit for bit.

#include "runtime/checkpoint/writer.h"
#include "runtime/data/plan_inputs.h"
#include "runtime/plan/plan.h"
#include "runtime/training/trainer.h"
#include "tests/e2e/cli.h"
#include "tests/e2e/memory_files.h"

#include <gtest/gtest.h>

namespace zerocc {
namespace {

constexpr int kSteps = 6;

class Replay : public testing::Test {
protected:
  void SetUp() override {
    std::string path = e2e::scratch("replay") + "/mlp.zplan";
    e2e::compile("mlp", path, {"--ranks", "2", "--stage", "3", "--micro-batch", "1", "--bucket-bytes", "1KiB"});
    auto loaded = loadPlan(path);
    ASSERT_TRUE(loaded);
    plan = std::move(*loaded);
    auto weights = ModelWeights::open(e2e::modelPath("mlp"));
    ASSERT_TRUE(weights);
    model.emplace(std::move(*weights));
    auto opened = DataSet::open({e2e::source("models/mlp.data.npz")}, inputSpecs(plan), batchShape(plan));
    ASSERT_TRUE(opened);
    data.emplace(std::move(*opened));
    auto trainer = begin(nullptr);
    whole = finish(*trainer);
  }

  std::unique_ptr<Trainer> begin(const Checkpoint *checkpoint) {
    TrainerOptions options;
    options.values.model = &*model;
    options.values.checkpoint = checkpoint;
    auto trainer = Trainer::create(plan, options);
    EXPECT_TRUE(trainer) << trainer.error().text();
    return trainer ? std::move(*trainer) : nullptr;
  }

  /// The weights after step kSteps.
  std::vector<float> finish(Trainer &trainer) {
    while (trainer.stepsDone() < kSteps)
      EXPECT_TRUE(trainer.step(*data));
    std::vector<float> weights;
    for (int p = 0; p < plan.parameters_size(); ++p) {
      auto values = readTensor(plan, trainer.group(), p, Tensor::parameter);
      EXPECT_TRUE(values);
      weights.insert(weights.end(), values->begin(), values->end());
    }
    return weights;
  }

  std::unique_ptr<CheckpointWriter> writerOn(Files &files, Trainer &trainer, int keep = 2) {
    CheckpointIndex head;
    head.modelFile = plan.provenance().model_file();
    head.modelFingerprint = plan.provenance().model_fingerprint();
    head.optimizer = plan.facts().optimizer();
    head.planFingerprint = planFingerprint(plan);
    auto writer = CheckpointWriter::create(files, plan, trainer.group(), {"/runs/saves", keep}, std::move(head));
    EXPECT_TRUE(writer) << writer.error().text();
    return writer ? std::move(*writer) : nullptr;
  }

  /// The last checkpoint on a disk is whole; returns its step, 0: there is none. A run from there ends as ever.
  int64_t expectGood(Files &files, bool trainOn) {
    auto path = findCheckpoint(files, "/runs/saves");
    std::shared_ptr<const Checkpoint> checkpoint;
    if (path) {
      auto opened = Checkpoint::open(files, *path);
      EXPECT_TRUE(opened) << opened.error().text();
      if (!opened)
        return -1;
      Status verified = (*opened)->verify();
      EXPECT_TRUE(verified) << verified.error().text();
      checkpoint = *opened;
    }
    if (trainOn) {
      auto trainer = begin(checkpoint.get());
      EXPECT_TRUE(trainer && finish(*trainer) == whole) << "weights differ";
    }
    return checkpoint ? checkpoint->index().step : 0;
  }

  plan::Plan plan;
  std::optional<ModelWeights> model;
  std::optional<DataSet> data;
  std::vector<float> whole;
};

TEST_F(Replay, AfterALossOfPowerAtEveryMoment) {
  MemoryFiles disk;
  auto trainer = begin(nullptr);
  auto writer = writerOn(disk, *trainer);
  std::vector<std::pair<int64_t, int64_t>> done = {{0, 0}}; // changes by then, step that is safe by then
  for (int step = 1; step <= kSteps; ++step) {
    ASSERT_TRUE(trainer->step(*data));
    ASSERT_TRUE(writer->save(step, trainer->samplesTaken(), step == 3));
    auto saved = writer->outcome(true);
    ASSERT_TRUE(saved && saved->status);
    done.push_back({disk.logged(), step});
  }
  int resumed = 0;
  for (int64_t calls = 0; calls <= disk.logged(); ++calls) {
    auto killed = disk.afterPowerLoss(calls, 0, true);
    for (const std::string &name : listCheckpoints(*killed, "/runs/saves")) { // those being removed have lost their name
      auto each = Checkpoint::open(*killed, "/runs/saves/" + name);
      ASSERT_TRUE(each && (*each)->verify()) << name << " after " << calls << " changes";
    }
    for (unsigned seed = 0; seed < 6; ++seed) {
      SCOPED_TRACE(std::to_string(calls) + " changes, seed " + std::to_string(seed));
      auto after = disk.afterPowerLoss(calls, static_cast<unsigned>(calls) * 31 + seed);
      int64_t safe = 0;
      for (auto [changes, step] : done)
        if (changes <= calls)
          safe = step;
      const bool trainOn = seed == 0 && calls % 3 == 0;
      resumed += trainOn;
      ASSERT_GE(expectGood(*after, trainOn), safe);
      // And it can be saved to again, over what was left unfinished.
      if (seed == 1 && calls % 5 == 0) {
        auto again = writerOn(*after, *trainer);
        ASSERT_TRUE(again && again->save(kSteps, trainer->samplesTaken()));
        auto saved = again->outcome(true);
        ASSERT_TRUE(saved && saved->status) << saved->status.error().text();
        ASSERT_EQ(expectGood(*after, false), kSteps);
      }
    }
  }
  EXPECT_GT(resumed, 20);
}

TEST_F(Replay, WhenACallFails) {
  const int64_t errors[] = {-ENOSPC, -EIO};
  for (int64_t error : errors)
    for (int64_t failing = 0; failing < 400; ++failing) {
      SCOPED_TRACE("error " + std::to_string(error) + " at call " + std::to_string(failing));
      MemoryFiles disk;
      auto trainer = begin(nullptr);
      auto writer = writerOn(disk, *trainer);
      ASSERT_TRUE(trainer->step(*data));
      ASSERT_TRUE(writer->save(1, trainer->samplesTaken()));
      ASSERT_TRUE(writer->outcome(true)->status);
      int64_t call = 0;
      disk.fault = [&](MemoryFiles::Call, int64_t) { return call++ == failing ? error : 0; };
      ASSERT_TRUE(trainer->step(*data));
      ASSERT_TRUE(writer->save(2, trainer->samplesTaken()));
      auto saved = writer->outcome(true);
      disk.fault = {};
      ASSERT_TRUE(saved);
      if (!saved->status) {
        EXPECT_NE(saved->status.error().text().find("/runs/saves"), std::string::npos);
      }
      const int64_t step = expectGood(disk, failing % 7 == 0);
      EXPECT_GE(step, saved->status ? 2 : 1);
      // The next save mends it.
      ASSERT_TRUE(trainer->step(*data));
      ASSERT_TRUE(writer->save(3, trainer->samplesTaken()));
      auto next = writer->outcome(true);
      ASSERT_TRUE(next && next->status) << next->status.error().text();
      EXPECT_EQ(expectGood(disk, false), 3);
      if (call <= failing) { // all of its calls were made to fail once
        EXPECT_GT(failing, 10);
        break;
      }
    }
}

TEST_F(Replay, WhenTheDiskIsFullForGood) {
  MemoryFiles disk;
  auto trainer = begin(nullptr);
  auto writer = writerOn(disk, *trainer);
  ASSERT_TRUE(trainer->step(*data));
  ASSERT_TRUE(writer->save(1, trainer->samplesTaken()));
  ASSERT_TRUE(writer->outcome(true)->status);
  disk.fault = [](MemoryFiles::Call call, int64_t) -> int64_t { return call == MemoryFiles::Call::write ? -ENOSPC : 0; };
  for (int step = 2; step <= 3; ++step) {
    ASSERT_TRUE(trainer->step(*data));
    ASSERT_TRUE(writer->save(step, trainer->samplesTaken()));
    auto saved = writer->outcome(true);
    ASSERT_TRUE(saved && !saved->status);
    EXPECT_NE(saved->status.error().text().find("rank-0.safetensors: cannot be written: No space left on device"),
              std::string::npos)
        << saved->status.error().text();
  }
  disk.fault = {};
  std::vector<std::string> names;
  ASSERT_EQ(disk.list("/runs/saves", names), 0);
  EXPECT_EQ(names, std::vector<std::string>{"000001-step-1"}) << "the space of failed saves is given back";
  EXPECT_EQ(expectGood(disk, true), 1);
}

TEST_F(Replay, WithShortWritesAndReads) {
  MemoryFiles disk;
  std::mt19937 random(3);
  disk.fault = [&](MemoryFiles::Call call, int64_t) -> int64_t {
    if (call != MemoryFiles::Call::write && call != MemoryFiles::Call::readAt)
      return 0;
    return random() % 5 == 0 ? -EINTR : 1 + static_cast<int64_t>(random() % 3000);
  };
  auto trainer = begin(nullptr);
  auto writer = writerOn(disk, *trainer);
  for (int step = 1; step <= 3; ++step) {
    ASSERT_TRUE(trainer->step(*data));
    ASSERT_TRUE(writer->save(step, trainer->samplesTaken()));
  }
  ASSERT_TRUE(writer->outcome(true)->status);
  EXPECT_EQ(expectGood(disk, true), 3);
}

TEST_F(Replay, WhenReadingFails) {
  MemoryFiles disk;
  auto trainer = begin(nullptr);
  auto writer = writerOn(disk, *trainer);
  ASSERT_TRUE(trainer->step(*data));
  ASSERT_TRUE(writer->save(1, trainer->samplesTaken()));
  ASSERT_TRUE(writer->outcome(true)->status);
  auto checkpoint = Checkpoint::open(disk, "/runs/saves/000001-step-1");
  ASSERT_TRUE(checkpoint);
  disk.fault = [](MemoryFiles::Call call, int64_t) -> int64_t { return call == MemoryFiles::Call::readAt ? -EIO : 0; };
  TrainerOptions options;
  options.values.model = &*model;
  options.values.checkpoint = checkpoint->get();
  auto refused = Trainer::create(plan, options);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().text().find("safetensors: cannot be read: Input/output error"), std::string::npos)
      << refused.error().text();
}

} // namespace
} // namespace zerocc
