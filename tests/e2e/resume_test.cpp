// A run that was saved and resumed goes on bit for bit; on another mesh, stage or batch it has the same logical bytes.
// What is not a whole checkpoint of the model is refused by name, and the last whole one offered.

#include "tests/e2e/cli.h"
#include "tests/e2e/random_network.h"

#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <random>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

namespace zerocc::e2e {
namespace {

namespace fs = std::filesystem;
using Flags = std::vector<std::string>;

std::string freshFolder(const std::string &name) {
  std::string folder = scratch("resume") + "/" + name;
  fs::remove_all(folder);
  return folder;
}

std::vector<std::string> checkpointsIn(const std::string &folder) {
  std::vector<std::string> names;
  for (const auto &entry : fs::directory_iterator(folder))
    if (entry.path().filename().string().find("-step-") != std::string::npos)
      names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

/// All ranks' bytes of a checkpoint.
std::string bytesOf(const std::string &checkpoint) {
  std::string bytes;
  for (int rank = 0; fs::exists(checkpoint + "/rank-" + std::to_string(rank) + ".safetensors"); ++rank)
    bytes += readFile(checkpoint + "/rank-" + std::to_string(rank) + ".safetensors");
  EXPECT_FALSE(bytes.empty()) << checkpoint;
  return bytes;
}

CliResult runGpt(const std::string &plan, Flags more) { return train("gpt2_torchscript", plan, more); }

std::string gptPlan(const std::string &name, const Flags &more) {
  std::string plan = scratch("resume") + "/" + name + ".zplan";
  Flags flags = {"--bucket-bytes", "12KiB", "--clip-grad-norm", "0.5"};
  flags.insert(flags.end(), more.begin(), more.end());
  compile("gpt2_torchscript", plan, flags);
  return plan;
}

struct Case {
  const char *name, *model, *mesh;
  int stage;
  Flags flags;
};

class Resumed : public testing::TestWithParam<Case> {};

TEST_P(Resumed, GoesOnBitForBit) {
  const Case &c = GetParam();
  std::string plan = scratch("resume") + "/" + c.name + ".zplan", folder = freshFolder(c.name);
  Flags flags = {"--mesh", c.mesh, "--stage", std::to_string(c.stage), "--bucket-bytes", "12KiB"};
  flags.insert(flags.end(), c.flags.begin(), c.flags.end());
  compile(c.model, plan, flags);
  const Flags order = {"--shuffle", "--seed", "5", "--lr-schedule", "cosine", "--set", "total-steps=7"};
  auto run = [&](const std::string &name, Flags more) {
    std::string path = scratch("resume") + "/" + name;
    more.insert(more.end(), {"--metrics", path + ".jsonl", "--export", path + ".safetensors"});
    CliResult result = train(c.model, plan, more);
    EXPECT_EQ(result.exitCode, 0) << result.error;
    return std::pair(jsonTexts(readFile(path + ".jsonl"), "loss"), readFile(path + ".safetensors"));
  };
  fs::remove(scratch("resume") + "/whole.jsonl");
  fs::remove(scratch("resume") + "/parts.jsonl");
  Flags whole = order, first = order;
  whole.insert(whole.end(), {"--steps", "7"});
  auto [wholeLosses, wholeWeights] = run("whole", whole);
  first.insert(first.end(), {"--steps", "3", "--save", folder});
  run("parts", first);
  // Seed, order and run-time values come from the checkpoint.
  run("parts", {"--steps", "5", "--resume", folder, "--save", folder});
  auto [losses, weights] = run("parts", {"--steps", "7", "--resume", folder});
  EXPECT_EQ(wholeLosses.size(), 7u);
  EXPECT_EQ(losses, wholeLosses); // metrics are appended
  EXPECT_TRUE(weights == wholeWeights) << "weights differ";
  EXPECT_EQ(checkpointsIn(folder), (std::vector<std::string>{"000001-step-3", "000002-step-5"}));
}

INSTANTIATE_TEST_SUITE_P(
    Cases, Resumed,
    testing::Values(Case{"gpt1", "gpt2_torchscript", "shard=1", 0, {}},
                    Case{"gpt2s0", "gpt2_torchscript", "shard=2", 0, {"--grad-accumulation", "2"}},
                    Case{"gpt2s1", "gpt2_torchscript", "shard=2", 1, {"--optimizer", "lion"}},
                    Case{"gpt3x2", "gpt2_torchscript", "shard=3,replicate=2", 2, {"--optimizer", "momentum"}},
                    Case{"gpt4s3", "gpt2_torchscript", "shard=4", 3, {"--freeze", "*wpe*"}},
                    Case{"resnet2", "resnet_torchscript", "shard=2", 3, {}}), // with running statistics
    [](const testing::TestParamInfo<Case> &info) { return info.param.name; });

TEST(Resharded, RandomNetworksHaveTheSameLogicalBytesThereAndBack) {
  const char *optimizers[] = {"adamw", "momentum", "lion", "rmsprop", "adagrad", "sgd"};
  const char *more = std::getenv("ZEROCC_SEEDS");
  const unsigned seeds = more ? static_cast<unsigned>(std::atoi(more)) : 14;
  for (unsigned seed = 1; seed <= seeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed * 77);
    std::string folder = freshFolder("random"), model = scratch("resume") + "/net.onnxtxt";
    RandomNetwork network(seed);
    writeFile(model, network.text());
    std::string x = arrayFile(scratch("resume") + "/x.npy", 200, network.in, seed);
    std::string target = arrayFile(scratch("resume") + "/target.npy", 200, network.out, seed + 1000);
    const char *optimizer = optimizers[random() % 6];
    std::string tail;
    auto plan = [&](const std::string &name) {
      std::string path = scratch("resume") + "/" + name + ".zplan";
      std::string mesh = "shard=" + std::to_string(1 + random() % 5) + ",replicate=" + std::to_string(1 + random() % 2);
      tail += " " + mesh;
      CliResult compiled =
          cli("zerocc", {"compile", model, "-o", path, "--mesh", mesh, "--stage", std::to_string(random() % 4), "--loss",
                         "mse:y", "--micro-batch", std::to_string(1 + random() % 3), "--bucket-bytes",
                         random() % 2 ? "64" : "1KiB", "--persistence-bytes", random() % 2 ? "0" : "16",
                         "--grad-accumulation", std::to_string(1 + random() % 2), "--optimizer", optimizer});
      EXPECT_EQ(compiled.exitCode, 0) << compiled.error;
      return path;
    };
    auto run = [&](const std::string &path, const Flags &more) {
      Flags flags = {path, "--data", "x=" + x, "--data", "target=" + target};
      flags.insert(flags.end(), more.begin(), more.end());
      CliResult result = cli("zero-run", flags);
      EXPECT_EQ(result.exitCode, 0) << result.error;
      return result;
    };
    std::string n = plan("n"), m = plan("m");
    run(n, {"--init", "normal:0.5", "--seed", std::to_string(seed), "--steps", "3", "--save", folder, "--save-keep", "9"});
    run(m, {"--resume", folder, "--save", folder, "--steps", "3", "--save-keep", "9"});
    run(n, {"--resume", folder, "--save", folder, "--steps", "3", "--save-keep", "9"});
    ASSERT_EQ(checkpointsIn(folder), (std::vector<std::string>{"000001-step-3", "000002-step-3", "000003-step-3"}));
    EXPECT_TRUE(bytesOf(folder + "/000001-step-3") == bytesOf(folder + "/000003-step-3"))
        << "logical bytes changed on the way" << tail;
    // On the same ranks it goes on bit for bit, random numbers included; the seed comes from the checkpoint.
    const std::string whole = scratch("resume") + "/net_whole.safetensors", parts = scratch("resume") + "/net_parts.safetensors";
    run(n, {"--init", "normal:0.5", "--seed", std::to_string(seed), "--steps", "6", "--export", whole});
    run(n, {"--resume", folder + "/000003-step-3", "--steps", "6", "--export", parts});
    EXPECT_TRUE(readFile(whole) == readFile(parts)) << "weights differ" << tail;
    // And it trains on from there, on other ranks.
    CliResult on = run(m, {"--resume", folder, "--steps", "6"});
    EXPECT_NE(on.error.find("after step 3"), std::string::npos) << on.error;
  }
}

TEST(Resumed, AtAnotherStageGoesOnBitForBit) { // same numerics key, same bits
  std::string plans[4];
  for (int stage = 0; stage < 4; ++stage)
    plans[stage] = gptPlan("stage" + std::to_string(stage), {"--mesh", "shard=2,replicate=2", "--stage", std::to_string(stage)});
  std::string whole = scratch("resume") + "/stage_whole.safetensors", parts = scratch("resume") + "/stage_parts.safetensors";
  ASSERT_EQ(runGpt(plans[0], {"--steps", "8", "--export", whole}).exitCode, 0);
  std::string folder = freshFolder("stages");
  int steps = 0;
  for (int stage : {0, 3, 1, 2}) {
    Flags flags = {"--steps", std::to_string(steps + 2), "--save", folder, "--export", parts};
    if (steps > 0)
      flags.insert(flags.end(), {"--resume", folder});
    CliResult result = runGpt(plans[stage], flags);
    ASSERT_EQ(result.exitCode, 0) << result.error;
    steps += 2;
  }
  EXPECT_TRUE(readFile(whole) == readFile(parts)) << "weights differ";
}

TEST(Resumed, MetricsAreThoseOfOneRun) {
  std::string plan = gptPlan("metrics", {"--ranks", "2"}), folder = freshFolder("metrics");
  std::string path = scratch("resume") + "/rows.jsonl";
  ASSERT_EQ(runGpt(plan, {"--steps", "5", "--save", folder, "--save-every", "2", "--metrics", path}).exitCode, 0);
  const std::vector<std::string> losses = jsonTexts(readFile(path), "loss");
  writeFile(path, readFile(path) + "{\"step\":6,\"lo"); // killed while it wrote
  fs::remove_all(folder + "/000003-step-5");
  CliResult again = runGpt(plan, {"--steps", "5", "--resume", folder, "--metrics", path});
  EXPECT_EQ(again.exitCode, 0) << again.error;
  EXPECT_NE(again.error.find("note: 2 rows behind step 4 are taken out of"), std::string::npos) << again.error;
  EXPECT_EQ(jsonTexts(readFile(path), "loss"), losses);
  EXPECT_EQ(jsonTexts(readFile(path), "step"), (std::vector<std::string>{"1", "2", "3", "4", "5"}));
}

TEST(Resumed, OnAnotherMeshTakesTheNextSamples) {
  std::string one = gptPlan("one", {"--ranks", "1", "--micro-batch", "4"});
  std::string two = gptPlan("two", {"--ranks", "2", "--micro-batch", "2", "--stage", "3"});
  std::string three = gptPlan("three", {"--ranks", "3", "--micro-batch", "1", "--stage", "2"});
  std::string folder = freshFolder("mesh");
  auto lossesOf = [&](const std::string &plan, Flags more) {
    std::string metrics = scratch("resume") + "/mesh.jsonl";
    fs::remove(metrics);
    more.insert(more.end(), {"--metrics", metrics});
    CliResult result = runGpt(plan, more);
    EXPECT_EQ(result.exitCode, 0) << result.error;
    std::vector<double> losses;
    for (const std::string &text : jsonTexts(readFile(metrics), "loss"))
      losses.push_back(std::stod(text));
    return std::pair(losses, result.error);
  };
  auto whole = lossesOf(one, {"--steps", "6"}).first;
  lossesOf(one, {"--steps", "3", "--save", folder, "--set", "total-steps=6"});
  auto [losses, said] = lossesOf(two, {"--steps", "6", "--resume", folder});
  ASSERT_EQ(losses.size(), 3u);
  for (int i = 0; i < 3; ++i)
    EXPECT_NEAR(losses[i], whole[3 + i], 2e-5 * whole[3 + i]); // sums are split otherwise
  EXPECT_NE(said.find("saved on mesh shard=1,replicate=1, goes on on shard=2,replicate=1"), std::string::npos) << said;
  auto [other, saidOther] = lossesOf(three, {"--steps", "4", "--resume", folder});
  EXPECT_NE(saidOther.find("a step takes 3 samples, it took 4"), std::string::npos) << saidOther;
  EXPECT_NE(saidOther.find("12 samples"), std::string::npos) << saidOther;
}

TEST(Resumed, RunTimeValuesAreRestoredAndSetWins) {
  std::string plan = gptPlan("values", {"--ranks", "2"}), folder = freshFolder("values");
  std::string metrics = scratch("resume") + "/values.jsonl";
  ASSERT_EQ(runGpt(plan, {"--steps", "2", "--set", "lr=3e-4", "--set", "total-steps=9", "--save", folder}).exitCode, 0);
  CliResult restored = runGpt(plan, {"--steps", "3", "--resume", folder, "--metrics", metrics});
  EXPECT_EQ(restored.exitCode, 0) << restored.error;
  EXPECT_NE(restored.error.find("note: lr is 0.0003, from the checkpoint; without it 0.001"), std::string::npos)
      << restored.error;
  EXPECT_EQ(jsonTexts(readFile(metrics), "lr"), std::vector<std::string>{"3e-04"});
  fs::remove(metrics);
  CliResult set = runGpt(plan, {"--steps", "3", "--resume", folder, "--set", "lr=1e-5", "--metrics", metrics});
  EXPECT_NE(set.error.find("note: lr is 1e-05, by --set; the checkpoint has 0.0003"), std::string::npos) << set.error;
  EXPECT_EQ(jsonTexts(readFile(metrics), "lr"), std::vector<std::string>{"1e-05"});
}

/// A folder with whole checkpoints of steps 2 and 4 on two ranks.
std::string twoCheckpoints(const std::string &plan, const std::string &name) {
  std::string folder = freshFolder(name);
  CliResult saved = runGpt(plan, {"--steps", "4", "--save", folder, "--save-every", "2"});
  EXPECT_EQ(saved.exitCode, 0) << saved.error;
  EXPECT_EQ(checkpointsIn(folder), (std::vector<std::string>{"000001-step-2", "000002-step-4"}));
  return folder;
}

TEST(Refused, DamagedCheckpointsByNameAndTheLastWholeOneIsOffered) {
  std::string plan = gptPlan("damage", {"--ranks", "2", "--stage", "3"});
  struct Damage {
    const char *what;
    std::function<void(const std::string &checkpoint)> apply;
    const char *message;
  };
  auto flipAt = [](const std::string &path, double where) {
    std::string bytes = readFile(path);
    bytes[static_cast<size_t>(where * static_cast<double>(bytes.size() - 1))] ^= 1;
    writeFile(path, bytes);
  };
  const Damage damages[] = {
      {"missing rank", [](const std::string &c) { fs::remove(c + "/rank-1.safetensors"); }, "rank-1.safetensors: is missing"},
      {"cut short", [](const std::string &c) { fs::resize_file(c + "/rank-0.safetensors", 1000); },
       "rank-0.safetensors: is cut short or was changed: it has 1000 bytes"},
      {"flipped bit", [&](const std::string &c) { flipAt(c + "/rank-1.safetensors", 0.7); },
       "rank-1.safetensors: is damaged between byte"},
      {"flipped bit in a head", [&](const std::string &c) { flipAt(c + "/rank-0.safetensors", 0.001); },
       "rank-0.safetensors: is damaged between byte"},
      {"no index", [](const std::string &c) { fs::remove(c + "/checkpoint.json"); }, "checkpoint.json: is missing"},
      {"index cut short", [](const std::string &c) { fs::resize_file(c + "/checkpoint.json", 600); },
       "checkpoint.json: is damaged"},
      {"index empty", [](const std::string &c) { fs::resize_file(c + "/checkpoint.json", 0); },
       "checkpoint.json: is cut short"},
      {"index changed", [&](const std::string &c) { flipAt(c + "/checkpoint.json", 0.5); },
       "checkpoint.json: is damaged"},
  };
  for (const Damage &damage : damages) {
    SCOPED_TRACE(damage.what);
    std::string folder = twoCheckpoints(plan, "damage");
    damage.apply(folder + "/000002-step-4");
    CliResult refused = runGpt(plan, {"--steps", "6", "--resume", folder});
    EXPECT_EQ(refused.exitCode, 1);
    EXPECT_NE(refused.error.find(damage.message), std::string::npos) << refused.error;
    EXPECT_NE(refused.error.find("hint: the last whole checkpoint is " + folder +
                                 "/000001-step-2: go on from it with --resume " + folder + "/000001-step-2"),
              std::string::npos)
        << refused.error;
    CliResult offered = runGpt(plan, {"--steps", "6", "--resume", folder + "/000001-step-2"});
    EXPECT_EQ(offered.exitCode, 0) << offered.error;
  }
  std::string folder = twoCheckpoints(plan, "damage");
  fs::remove(folder + "/000001-step-2/rank-0.safetensors");
  fs::remove(folder + "/000002-step-4/rank-0.safetensors");
  CliResult none = runGpt(plan, {"--steps", "6", "--resume", folder});
  EXPECT_NE(none.error.find("there is no other whole checkpoint"), std::string::npos) << none.error;
}

TEST(Refused, WhatIsNoCheckpointOfTheModel) {
  std::string plan = gptPlan("other", {"--ranks", "2"}), folder = twoCheckpoints(plan, "other");
  std::string mlp = scratch("resume") + "/mlp.zplan";
  compile("mlp", mlp, {});
  CliResult model = train("mlp", mlp, {"--steps", "6", "--resume", folder});
  EXPECT_EQ(model.exitCode, 1);
  EXPECT_NE(model.error.find("is of another model: gpt2_torchscript.onnx"), std::string::npos) << model.error;
  CliResult optimizer = runGpt(gptPlan("lion", {"--optimizer", "lion"}), {"--steps", "6", "--resume", folder});
  EXPECT_EQ(optimizer.exitCode, 1);
  EXPECT_NE(optimizer.error.find("holds \"moment2/"), std::string::npos) << optimizer.error;
  EXPECT_NE(optimizer.error.find("was made with optimizer adamw, the plan has lion"), std::string::npos)
      << optimizer.error;
  CliResult empty = runGpt(plan, {"--steps", "6", "--resume", freshFolder("nothing")});
  EXPECT_EQ(empty.exitCode, 1);
  EXPECT_NE(empty.error.find("No such file or directory"), std::string::npos) << empty.error;
  fs::create_directories(freshFolder("nothing"));
  empty = runGpt(plan, {"--steps", "6", "--resume", scratch("resume") + "/nothing"});
  EXPECT_NE(empty.error.find("holds no checkpoint"), std::string::npos) << empty.error;
}

TEST(Saved, TheLastAreKept) {
  std::string plan = gptPlan("keep", {"--ranks", "2"}), folder = freshFolder("keep");
  fs::create_directories(folder + "/000007-step-1.partial"); // of a run that was killed
  writeFile(folder + "/000007-step-1.partial/rank-0.safetensors", "half");
  CliResult saved = runGpt(plan, {"--steps", "9", "--save", folder, "--save-every", "2", "--save-keep", "2"});
  EXPECT_EQ(saved.exitCode, 0) << saved.error;
  EXPECT_EQ(checkpointsIn(folder), (std::vector<std::string>{"000004-step-8", "000005-step-9"}));
  std::string record = readFile(folder + "/run.json");
  for (const char *key : {"\"fingerprint\"", "\"seed\"", "\"binary\"", "\"features\"", "\"command\"", "\"numerics_key\""})
    EXPECT_NE(record.find(key), std::string::npos) << key;
}

TEST(Saved, AFailureInTheMiddleIsToldAndAtTheEndIsAnError) {
  std::string plan = gptPlan("fail", {"--ranks", "2"}), folder = freshFolder("fail");
  fs::create_directories(folder + "/000001-step-2.partial/in/the/way");
  CliResult on = runGpt(plan, {"--steps", "4", "--save", folder, "--save-every", "2"});
  EXPECT_EQ(on.exitCode, 0) << on.error;
  EXPECT_NE(on.error.find("000001-step-2.partial/in: cannot be removed"), std::string::npos) << on.error;
  EXPECT_NE(on.error.find("000001-step-2 was not saved; training goes on"), std::string::npos) << on.error;
  EXPECT_TRUE(fs::exists(folder + "/000002-step-4"));
  EXPECT_FALSE(fs::exists(folder + "/000003-step-4"));
  EXPECT_NE(on.error.find("000002-step-4 is saved, but "), std::string::npos) << on.error;
  folder = freshFolder("fail");
  fs::create_directories(folder + "/000001-step-2.partial/in/the/way");
  CliResult end = runGpt(plan, {"--steps", "2", "--save", folder});
  EXPECT_EQ(end.exitCode, 3) << end.error;
}

TEST(Saved, TheBestStaysAndARunWithoutBetterOnesEndsEarly) {
  std::string plan = gptPlan("best", {"--ranks", "2"}), folder = freshFolder("best");
  // At this rate the loss gets worse after a while.
  const Flags flags = {"--save", folder, "--save-keep", "1", "--keep-best", "--early-stop", "3", "--eval-every", "2",
                       "--eval-data", source("models/gpt2_torchscript.data.npz"), "--eval-batches", "2", "--set",
                       "lr=0.3", "--metrics", scratch("resume") + "/best.jsonl"};
  auto with = [&](Flags more) {
    more.insert(more.end(), flags.begin(), flags.end());
    return more;
  };
  CliResult whole = runGpt(plan, with({"--steps", "60"}));
  ASSERT_EQ(whole.exitCode, 0) << whole.error;
  ASSERT_NE(whole.error.find("stopped early after step "), std::string::npos) << whole.error;
  std::vector<std::string> losses = jsonTexts(readFile(scratch("resume") + "/best.jsonl"), "eval_loss");
  ASSERT_GE(losses.size(), 4u);
  auto lossOf = [](const std::string &text) { return text == "null" ? 1e9 : std::stod(text); };
  size_t best = 0;
  for (size_t i = 0; i < losses.size(); ++i)
    if (lossOf(losses[i]) < lossOf(losses[best]))
      best = i;
  EXPECT_EQ(losses.size(), best + 4) << "three evaluations without a better one";
  std::string name = readFile(folder + "/best");
  name.pop_back();
  EXPECT_NE(name.find("-step-" + std::to_string(2 * (best + 1))), std::string::npos) << name;
  std::vector<std::string> kept = checkpointsIn(folder);
  ASSERT_EQ(kept.size(), 2u); // the best and the last
  EXPECT_EQ(kept[0], name);
  // What the evaluations have shown is in the checkpoint: a resumed run ends at the same step.
  std::string stop = whole.error.substr(whole.error.find("stopped early after step "), 30);
  freshFolder("best");
  ASSERT_EQ(runGpt(plan, with({"--steps", std::to_string(2 * (best + 1) + 2)})).exitCode, 0);
  CliResult resumed = runGpt(plan, with({"--steps", "60", "--resume", folder}));
  EXPECT_EQ(resumed.exitCode, 0);
  EXPECT_NE(resumed.error.find(stop), std::string::npos) << resumed.error;
  EXPECT_EQ(runGpt(plan, {"--steps", "2", "--keep-best"}).exitCode, 1);
  EXPECT_EQ(runGpt(plan, {"--steps", "2", "--early-stop", "2"}).exitCode, 1);
}

TEST(Saved, TwoRunsDoNotShareAFolder) {
  std::string plan = gptPlan("lock", {"--ranks", "2"}), folder = freshFolder("lock");
  fs::create_directories(folder);
  int lock = ::open((folder + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_EQ(::flock(lock, LOCK_EX | LOCK_NB), 0);
  CliResult second = runGpt(plan, {"--steps", "2", "--save", folder});
  EXPECT_EQ(second.exitCode, 1);
  EXPECT_NE(second.error.find("another run saves there now"), std::string::npos) << second.error;
  ::close(lock);
}

TEST(Stopped, OnRequestAfterAStepAndGoesOn) {
  std::string plan = gptPlan("stop", {"--ranks", "2", "--stage", "3"});
  const Flags base = {plan, "--model", modelPath("gpt2_torchscript"), "--data",
                      source("models/gpt2_torchscript.data.npz"), "--steps", "1000"};
  std::string whole = scratch("resume") + "/whole.safetensors", parts = scratch("resume") + "/parts.safetensors";
  Flags all = base;
  all.insert(all.end(), {"--export", whole});
  ASSERT_EQ(cli("zero-run", all).exitCode, 0);
  std::string folder = freshFolder("stop");
  Flags saving = base;
  saving.insert(saving.end(), {"--save", folder, "--export", parts});
  CliResult stopped = cliWithSignal("zero-run", saving, 300, SIGTERM);
  ASSERT_EQ(stopped.exitCode, 75) << stopped.error;
  EXPECT_NE(stopped.error.find("stopped on request after step "), std::string::npos) << stopped.error;
  EXPECT_FALSE(fs::exists(parts)) << "exported before the end";
  ASSERT_EQ(checkpointsIn(folder).size(), 1u);
  saving.insert(saving.end(), {"--resume", folder});
  CliResult again = cliWithSignal("zero-run", saving, 300, SIGUSR1);
  ASSERT_EQ(again.exitCode, 75) << again.error;
  CliResult rest = cli("zero-run", saving);
  ASSERT_EQ(rest.exitCode, 0) << rest.error;
  EXPECT_TRUE(readFile(whole) == readFile(parts)) << "weights differ";
  // Without a folder to save to, a signal ends the run as ever.
  EXPECT_EQ(cliWithSignal("zero-run", base, 300, SIGTERM).exitCode, 128 + SIGTERM);
}

} // namespace
} // namespace zerocc::e2e
