// What a plan promises and what a run does: bytes received, memory mapped, undefined memory, equal bytes of two
// compiles, plan size over ranks, the graphs of large models.

#include "tests/e2e/cli.h"

#include <gtest/gtest.h>

#include <chrono>

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

TEST(Compile, TwiceGivesTheSameBytes) {
  std::string plan = scratch("twice") + "/plan.zplan";
  compile("gpt2_dynamo", plan, {"--ranks", "2", "--stage", "3"});
  std::string first = readFile(plan);
  compile("gpt2_dynamo", plan, {"--ranks", "2", "--stage", "3"});
  EXPECT_FALSE(first.empty());
  EXPECT_TRUE(first == readFile(plan));
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
