// Same numerics key, same bits: on N ranks every stage gives the same losses and the same final weights, bit for bit.

#include "tests/e2e/cli.h"
#include "tests/e2e/random_network.h"

#include <gtest/gtest.h>

#include <random>

namespace zerocc::e2e {
namespace {

struct Outcome {
  std::string key;
  std::vector<std::string> losses, norms;
  std::string weights; // the safetensors file
};

std::string keyOf(const std::string &plan) {
  CliResult json = cli("zerocc", {"inspect", plan, "--json"});
  EXPECT_EQ(json.exitCode, 0) << json.error;
  size_t at = json.out.find("\"numerics_key\"");
  size_t begin = json.out.find('"', json.out.find(':', at)) + 1;
  return json.out.substr(begin, json.out.find('"', begin) - begin);
}

Outcome runPlan(const std::string &plan, const std::vector<std::string> &run) {
  std::string metrics = plan + ".jsonl", weights = plan + ".safetensors";
  std::vector<std::string> arguments = {plan, "--metrics", metrics, "--export", weights};
  arguments.insert(arguments.end(), run.begin(), run.end());
  CliResult result = cli("zero-run", arguments);
  EXPECT_EQ(result.exitCode, 0) << result.error;
  std::string lines = readFile(metrics);
  return {keyOf(plan), jsonTexts(lines, "loss"), jsonTexts(lines, "grad_norm"), readFile(weights)};
}

void expectSame(const Outcome &a, const Outcome &b, const std::string &what) {
  EXPECT_EQ(a.key, b.key) << what;
  EXPECT_FALSE(a.losses.empty());
  EXPECT_EQ(a.losses, b.losses) << what;
  EXPECT_EQ(a.norms, b.norms) << what;
  EXPECT_FALSE(a.weights.empty());
  EXPECT_TRUE(a.weights == b.weights) << what << ": final weights differ";
}

struct Mesh {
  int shard, replicate;
};

class SameBits : public testing::TestWithParam<Mesh> {};

// A token model with clipping, so that the norm takes part in the weights.
std::vector<std::string> gptFlags(Mesh mesh, int stage) {
  return {"compile",       modelPath("gpt2_torchscript"),
          "--micro-batch", "1",
          "--dim",         "sequence=16",
          "--loss",        "cross-entropy:logits",
          "--mesh",        "shard=" + std::to_string(mesh.shard) + ",replicate=" + std::to_string(mesh.replicate),
          "--stage",       std::to_string(stage),
          "--bucket-bytes", "12KiB",
          "--clip-grad-norm", "0.5"};
}

// 16-bit tokens below the model's vocabulary, as nanoGPT writes them.
std::string tokensFile() {
  std::string path = scratch("bits") + "/tokens.bin", bytes;
  std::mt19937 random(7);
  for (int i = 0; i < 4000; ++i) {
    bytes += static_cast<char>(random() % 96);
    bytes += '\0';
  }
  writeFile(path, bytes);
  return path;
}

TEST_P(SameBits, AcrossStagesWithOneMicroStep) {
  std::string tokens = tokensFile();
  std::vector<Outcome> outcomes;
  for (int stage = 0; stage < 4; ++stage) {
    std::string plan = scratch("bits") + "/k1.zplan";
    std::vector<std::string> flags = gptFlags(GetParam(), stage);
    flags.insert(flags.end(), {"-o", plan});
    CliResult compiled = cli("zerocc", flags);
    ASSERT_EQ(compiled.exitCode, 0) << compiled.error;
    outcomes.push_back(runPlan(plan, {"--model", modelPath("gpt2_torchscript"), "--data", tokens, "--steps", "4"}));
    expectSame(outcomes[0], outcomes.back(), "stage " + std::to_string(stage));
  }
}

TEST_P(SameBits, AcrossStagesWithThreeMicroStepsUnderBothReductions) {
  std::string tokens = tokensFile();
  for (const char *reduce : {"boundary", "micro-step"}) {
    std::vector<Outcome> outcomes;
    for (int stage = 0; stage < 4; ++stage) {
      std::string plan = scratch("bits") + "/k3.zplan";
      std::vector<std::string> flags = gptFlags(GetParam(), stage);
      flags.insert(flags.end(), {"-o", plan, "--grad-accumulation", "3", "--reduce", reduce});
      CliResult compiled = cli("zerocc", flags);
      ASSERT_EQ(compiled.exitCode, 0) << compiled.error;
      outcomes.push_back(runPlan(plan, {"--model", modelPath("gpt2_torchscript"), "--data", tokens, "--steps", "4"}));
      expectSame(outcomes[0], outcomes.back(), std::string(reduce) + ", stage " + std::to_string(stage));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Meshes, SameBits,
                         testing::Values(Mesh{2, 1}, Mesh{3, 1}, Mesh{4, 1}, Mesh{2, 2}, Mesh{3, 2}),
                         [](const testing::TestParamInfo<Mesh> &info) {
                           return "shard" + std::to_string(info.param.shard) + "replicate" +
                                  std::to_string(info.param.replicate);
                         });

TEST(SameBitsOnRandomNetworks, StagesAgreeOnOneToNineRanks) {
  for (unsigned seed = 1; seed <= 18; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::string folder = scratch("random"), model = folder + "/net.onnxtxt";
    RandomNetwork network(seed);
    writeFile(model, network.text());
    std::string x = arrayFile(folder + "/x.npy", 200, network.in, seed);
    std::string target = arrayFile(folder + "/target.npy", 200, network.out, seed + 1000);
    // Ranks 1 … 9, and the meshes 2x2 and 3x2.
    Mesh mesh = seed % 11 == 9 ? Mesh{2, 2} : seed % 11 == 10 ? Mesh{3, 2} : Mesh{static_cast<int>(seed % 11) % 9 + 1, 1};
    std::vector<Outcome> outcomes;
    for (int stage = 0; stage < 4; ++stage) {
      std::string plan = folder + "/net.zplan";
      CliResult compiled =
          cli("zerocc", {"compile", model, "-o", plan, "--mesh",
                         "shard=" + std::to_string(mesh.shard) + ",replicate=" + std::to_string(mesh.replicate),
                         "--stage", std::to_string(stage), "--loss", "mse:y", "--micro-batch", "2", "--bucket-bytes",
                         seed % 2 ? "64" : "1KiB", "--persistence-bytes", seed % 3 ? "0" : "16", "--grad-accumulation",
                         std::to_string(1 + seed % 3), "--reduce", seed % 2 ? "boundary" : "micro-step"});
      ASSERT_EQ(compiled.exitCode, 0) << compiled.error << readFile(model);
      outcomes.push_back(
          runPlan(plan, {"--init", "normal:0.5", "--seed", std::to_string(seed), "--data", "x=" + x, "--data",
                         "target=" + target, "--steps", "3", "--check-memory"}));
      expectSame(outcomes[0], outcomes.back(), "stage " + std::to_string(stage));
    }
  }
}

} // namespace
} // namespace zerocc::e2e
