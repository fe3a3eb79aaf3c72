// What a plan promises and what a run does: bytes received, memory mapped, undefined memory, equal bytes of two
// compiles, plan size over ranks, the graphs of large models.

#include "tests/e2e/cli.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace zerocc::e2e {
namespace {

struct Case {
  const char *model;
  int shard, replicate, stage, microSteps;
};

class Figures : public testing::TestWithParam<Case> {
protected:
  std::string compileCase(const std::string &folder, const std::vector<std::string> &more = {}) {
    const Case &c = GetParam();
    std::string plan = scratch(folder) + "/plan.zplan";
    std::vector<std::string> flags = {
        "--mesh", "shard=" + std::to_string(c.shard) + ",replicate=" + std::to_string(c.replicate),
        "--stage", std::to_string(c.stage), "--grad-accumulation", std::to_string(c.microSteps),
        "--micro-batch", "1", "--bucket-bytes", "10KiB"};
    flags.insert(flags.end(), more.begin(), more.end());
    compile(c.model, plan, flags);
    return plan;
  }
};

TEST_P(Figures, BytesReceivedAndMemoryMappedAreWhatInspectSays) {
  std::string plan = compileCase("figures"), metrics = plan + ".jsonl";
  CliResult json = cli("zerocc", {"inspect", plan, "--json"});
  ASSERT_EQ(json.exitCode, 0) << json.error;
  CliResult run = train(GetParam().model, plan, {"--steps", "2", "--metrics", metrics});
  ASSERT_EQ(run.exitCode, 0) << run.error;
  std::string lines = readFile(metrics);
  std::vector<std::string> wire = jsonTexts(lines, "wire_bytes"), memory = jsonTexts(lines, "memory_peak");
  ASSERT_EQ(wire.size(), 2u) << lines;
  double promised = jsonNumber(json.out, "total", "traffic");
  EXPECT_EQ(std::stod(wire[0]), promised);
  EXPECT_EQ(std::stod(wire[1]), promised);
  EXPECT_EQ(std::stod(memory[0]), jsonNumber(json.out, "peak", "memory"));
  // Never more than the minimum and the padding.
  EXPECT_EQ(promised, jsonNumber(json.out, "minimum", "traffic") + jsonNumber(json.out, "padding", "traffic"));
  double parts = 0;
  for (const char *kind : {"parameters", "gradients", "optimizer", "fetched", "activations", "workspace", "inputs",
                           "constants", "buffers", "unused"})
    parts += jsonNumber(json.out, kind, "memory");
  EXPECT_EQ(parts, jsonNumber(json.out, "peak", "memory"));
}

TEST_P(Figures, PoisonedUndefinedMemoryChangesNothing) {
  std::string plan = compileCase("poison");
  std::vector<std::string> losses[2];
  for (int poisoned = 0; poisoned < 2; ++poisoned) {
    std::string metrics = plan + ".jsonl";
    std::vector<std::string> arguments = {"--steps", "3", "--metrics", metrics};
    if (poisoned)
      arguments.push_back("--check-memory");
    CliResult run = train(GetParam().model, plan, arguments);
    ASSERT_EQ(run.exitCode, 0) << run.error;
    losses[poisoned] = jsonTexts(readFile(metrics), "loss");
  }
  ASSERT_EQ(losses[0].size(), 3u);
  EXPECT_EQ(losses[0], losses[1]);
}

std::vector<Case> allCases() {
  std::vector<Case> cases;
  for (const char *model : {"mlp", "mlp_classifier", "mlp_own_loss", "gpt2_torchscript", "gpt2_dynamo"})
    for (int stage = 0; stage < 4; ++stage)
      cases.push_back({model, 2, 1, stage, 1});
  for (int stage = 0; stage < 4; ++stage) {
    cases.push_back({"gpt2_torchscript", 3, 1, stage, 3});
    cases.push_back({"gpt2_torchscript", 2, 2, stage, 2});
    cases.push_back({"gpt2_torchscript", 1, 3, stage, 2});
  }
  cases.push_back({"gpt2_torchscript", 1, 1, 0, 1});
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Plans, Figures, testing::ValuesIn(allCases()), [](const testing::TestParamInfo<Case> &info) {
  const Case &c = info.param;
  return std::string(c.model) + "_s" + std::to_string(c.shard) + "r" + std::to_string(c.replicate) + "k" +
         std::to_string(c.microSteps) + "_stage" + std::to_string(c.stage);
});

// The demo's model on a text, all stages with undefined memory poisoned: the same losses as without.
TEST(CharGpt, TrainsOnTextWithPoisonedMemoryAtEveryStage) {
  std::vector<std::string> expected;
  for (int stage = 0; stage < 4; ++stage)
    for (const char *poison : {"", "--check-memory"}) {
      std::string plan = scratch("char") + "/plan.zplan", metrics = plan + ".jsonl";
      compile("char_gpt", plan, {"--ranks", "2", "--stage", std::to_string(stage), "--micro-batch", "2"});
      std::vector<std::string> arguments = {plan,   "--model",   modelPath("char_gpt"), "--data",
                                            "text:" + source("LICENSE"), "--steps", "2", "--metrics", metrics};
      if (*poison)
        arguments.push_back(poison);
      CliResult run = cli("zero-run", arguments);
      ASSERT_EQ(run.exitCode, 0) << run.error;
      std::vector<std::string> losses = jsonTexts(readFile(metrics), "loss");
      ASSERT_EQ(losses.size(), 2u);
      if (expected.empty())
        expected = losses;
      EXPECT_EQ(losses, expected) << "stage " << stage << " " << poison;
    }
}

// The bytes of one tensor in a safetensors file.
std::string tensorBytes(const std::string &file, const std::string &name) {
  uint64_t header = 0;
  for (int i = 7; i >= 0; --i)
    header = header << 8 | static_cast<unsigned char>(file[i]);
  size_t at = file.find("\"" + name + "\"");
  if (at == std::string::npos) {
    ADD_FAILURE() << "no tensor " << name;
    return "";
  }
  size_t offsets = file.find("data_offsets", at);
  char *next = nullptr;
  uint64_t begin = std::strtoull(file.c_str() + file.find('[', offsets) + 1, &next, 10);
  uint64_t end = std::strtoull(next + 1, nullptr, 10);
  return file.substr(8 + header + begin, end - begin);
}

TEST(Freeze, FrozenParametersStayAndTheOthersMoveAlikeAtEveryStage) {
  const std::string frozen = "transformer.wte.weight", trained = "transformer.h.1.mlp.c_fc.weight";
  std::vector<std::string> losses;
  std::string weights, before;
  for (int stage = 0; stage < 4; ++stage) {
    std::string plan = scratch("freeze") + "/plan.zplan", metrics = plan + ".jsonl", out = plan + ".safetensors";
    compile("gpt2_torchscript", plan,
            {"--ranks", "2", "--stage", std::to_string(stage), "--freeze", "*wte*", "--freeze", "*.h.0.*"});
    CliResult start = train("gpt2_torchscript", plan, {"--steps", "0", "--export", out});
    ASSERT_EQ(start.exitCode, 0) << start.error;
    before = readFile(out);
    CliResult run = train("gpt2_torchscript", plan, {"--steps", "3", "--metrics", metrics, "--export", out});
    ASSERT_EQ(run.exitCode, 0) << run.error;
    std::string after = readFile(out);
    EXPECT_TRUE(tensorBytes(before, frozen) == tensorBytes(after, frozen)) << "stage " << stage;
    EXPECT_TRUE(tensorBytes(before, "transformer.h.0.ln_1.weight") == tensorBytes(after, "transformer.h.0.ln_1.weight"));
    EXPECT_FALSE(tensorBytes(before, trained) == tensorBytes(after, trained)) << "stage " << stage;
    std::vector<std::string> now = jsonTexts(readFile(metrics), "loss");
    if (losses.empty()) {
      losses = now;
      weights = after;
    }
    EXPECT_EQ(losses, now) << "stage " << stage;
    EXPECT_TRUE(weights == after) << "stage " << stage;
    // A frozen bucket has neither gradient nor state.
    CliResult json = cli("zerocc", {"inspect", plan, "--json"});
    double states = jsonNumber(json.out, "optimizer", "memory"), parameters = jsonNumber(json.out, "parameters", "memory");
    EXPECT_LT(states, 2 * parameters) << "stage " << stage;
  }
}

TEST(Compile, TwiceGivesTheSameBytes) {
  std::string plan = scratch("twice") + "/plan.zplan";
  compile("gpt2_dynamo", plan, {"--ranks", "2", "--stage", "3"});
  std::string first = readFile(plan);
  compile("gpt2_dynamo", plan, {"--ranks", "2", "--stage", "3"});
  EXPECT_FALSE(first.empty());
  EXPECT_TRUE(first == readFile(plan));
}

TEST(Compile, PrefetchDistanceCostsMemory) {
  std::string plan = scratch("distance") + "/plan.zplan";
  double fetched[3];
  for (int distance : {0, 1, 2}) {
    compile("gpt2_torchscript", plan,
            {"--ranks", "2", "--stage", "3", "--bucket-bytes", "16KiB", "--prefetch-distance", std::to_string(distance)});
    fetched[distance] = jsonNumber(cli("zerocc", {"inspect", plan, "--json"}).out, "peak", "memory");
  }
  EXPECT_LT(fetched[0], fetched[2]);
  EXPECT_LT(fetched[1], fetched[2]);
}

TEST(Compile, PlansDoNotGrowWithTheRanks) {
  // Offsets and sizes are varints whose length follows their values; nothing is listed per rank.
  std::string folder = scratch("ranks");
  size_t sizes[2];
  int index = 0;
  for (const char *ranks : {"8", "1024"}) {
    std::string plan = folder + "/" + ranks + ".zplan";
    compile("gpt2_torchscript", plan, {"--ranks", ranks, "--stage", "3", "--bucket-bytes", "64KiB"});
    sizes[index++] = readFile(plan).size();
  }
  EXPECT_LT(static_cast<double>(sizes[1]), static_cast<double>(sizes[0]) * 1.05);
  EXPECT_GT(static_cast<double>(sizes[1]), static_cast<double>(sizes[0]) * 0.95);
}

TEST(Compile, StageAutoTakesTheLowestThatFits) {
  std::string plan = scratch("auto") + "/plan.zplan";
  auto peak = [&](const std::vector<std::string> &more) {
    std::vector<std::string> flags = {"--ranks", "4"};
    flags.insert(flags.end(), more.begin(), more.end());
    compile("gpt2_torchscript", plan, flags);
    return jsonNumber(cli("zerocc", {"inspect", plan, "--json"}).out, "peak", "memory");
  };
  double stage0 = peak({"--stage", "0"}), stage1 = peak({"--stage", "1"});
  ASSERT_LT(stage1, stage0);
  double chosen = peak({"--stage", "auto", "--memory-budget", std::to_string(static_cast<int64_t>(stage1))});
  EXPECT_LE(chosen, stage1);
  EXPECT_EQ(jsonNumber(cli("zerocc", {"inspect", plan, "--json"}).out, "stage"), 1);
  CliResult tooSmall = cli("zerocc", {"compile", modelPath("gpt2_torchscript"), "--args",
                                      source("models/gpt2_torchscript.args"), "-o", plan, "--ranks", "4", "--stage",
                                      "auto", "--memory-budget", "100KiB"});
  EXPECT_EQ(tooSmall.exitCode, 1);
  EXPECT_NE(tooSmall.error.find("budget is 0.1 MiB"), std::string::npos) << tooSmall.error;
}

} // namespace
} // namespace zerocc::e2e
