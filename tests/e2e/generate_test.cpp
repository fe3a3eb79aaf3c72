// Models from `zerocc generate`: shapes without weights that compile at every stage, train from --init, and
// reach the size of GPT-3.

#include "tests/e2e/cli.h"

#include <gtest/gtest.h>

#include <filesystem>

namespace zerocc::e2e {
namespace {

namespace fs = std::filesystem;

class Generate : public testing::Test {
protected:
  std::string folder = scratch("generate");
  std::string model = folder + "/model.onnx", plan = folder + "/model.zplan";

  void SetUp() override {
    fs::remove_all(folder);
    fs::create_directories(folder);
  }

  CliResult generate(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "generate");
    arguments.insert(arguments.end(), {"-o", model});
    return cli("zerocc", arguments);
  }

  void generateSmall() {
    CliResult result = generate(
        {"gpt", "--layers", "2", "--hidden", "32", "--heads", "2", "--vocab", "256", "--sequence", "16"});
    ASSERT_EQ(result.exitCode, 0) << result.error;
  }

  void compileModel(const std::vector<std::string> &more) {
    std::vector<std::string> arguments = {"compile", model, "-o", plan};
    arguments.insert(arguments.end(), more.begin(), more.end());
    CliResult result = cli("zerocc", arguments);
    ASSERT_EQ(result.exitCode, 0) << result.error;
    EXPECT_NE(result.error.find("the model is weightless"), std::string::npos) << result.error;
  }

  std::vector<std::string> losses(const std::vector<std::string> &data) {
    std::string metrics = folder + "/metrics.jsonl";
    std::vector<std::string> arguments = {plan, "--init",    "normal:0.02", "--steps",
                                          "3",  "--metrics", metrics};
    arguments.insert(arguments.end(), data.begin(), data.end());
    CliResult run = cli("zero-run", arguments);
    EXPECT_EQ(run.exitCode, 0) << run.error;
    return jsonTexts(readFile(metrics), "loss");
  }
};

TEST_F(Generate, ASmallGptTrainsWithoutAWeightsFile) {
  generateSmall();
  ASSERT_FALSE(fs::exists(model + ".data"));
  std::string text = folder + "/text.txt";
  writeFile(text, readFile(source("README.md")).substr(0, 2000));
  // A micro-batch of 1 makes bias gradients that are views of sums.
  for (const char *microBatch : {"1", "2"}) {
    std::vector<std::string> first;
    for (const char *stage : {"0", "1", "2", "3"}) {
      compileModel(
          {"--ranks", "2", "--stage", stage, "--micro-batch", microBatch, "--loss", "cross-entropy:logits"});
      std::vector<std::string> values = losses({"--data", "text:" + text});
      ASSERT_EQ(values.size(), 3u);
      EXPECT_NE(values[0], values[2]);
      if (first.empty())
        first = values;
      EXPECT_EQ(values, first) << "stage " << stage << ", micro-batch " << microBatch;
    }
  }
}

TEST_F(Generate, AnMlpCompiles) {
  ASSERT_EQ(generate({"mlp", "--layers", "3", "--hidden", "16", "--inputs", "8", "--outputs", "4"}).exitCode,
            0);
  compileModel({"--ranks", "2", "--stage", "3", "--micro-batch", "4", "--loss", "mse:y"});
  // 8 x 16 + 16, 16 x 16 + 16, 16 x 4 + 4
  EXPECT_EQ(jsonNumber(cli("zerocc", {"inspect", plan, "--json"}).out, "parameters", "model"), 484);
}

TEST_F(Generate, TwiceGivesTheSameBytes) {
  generateSmall();
  std::string first = readFile(model);
  generateSmall();
  EXPECT_FALSE(first.empty());
  EXPECT_TRUE(first == readFile(model));
}

TEST_F(Generate, AGptOfGpt3sShapeCompilesAndVerifies) {
  CliResult result = generate({"gpt", "--preset", "gpt3-175b"});
  ASSERT_EQ(result.exitCode, 0) << result.error;
  EXPECT_NE(result.out.find("174604259328 parameters"), std::string::npos) << result.out;
  EXPECT_LT(fs::file_size(model), 1u << 20);
  compileModel({"--ranks", "1024", "--stage", "3", "--micro-batch", "1", "--loss", "cross-entropy:logits"});
  CliResult verified = cli("zerocc", {"verify", plan});
  EXPECT_EQ(verified.exitCode, 0) << verified.error;
  EXPECT_LT(fs::file_size(plan), 64u << 20);
  // The output layer is the token table.
  EXPECT_EQ(jsonNumber(cli("zerocc", {"inspect", plan, "--json"}).out, "parameters", "model"),
            174604259328.0);
}

TEST_F(Generate, RefusesSizesThatDoNotFit) {
  auto expectRefused = [&](const std::vector<std::string> &arguments, int exitCode,
                           const std::vector<std::string> &texts) {
    CliResult result = generate(arguments);
    EXPECT_EQ(result.exitCode, exitCode) << result.error;
    for (const std::string &text : texts)
      EXPECT_NE(result.error.find(text), std::string::npos) << "no \"" << text << "\" in\n" << result.error;
    EXPECT_TRUE(fs::is_empty(folder)) << "a refused command left a file behind";
  };
  expectRefused({"gpt", "--hidden", "30", "--heads", "4"}, 1, {"hidden 30 is not divisible by heads 4"});
  expectRefused({"gpt", "--layers", "0", "--vocab", "-3"}, 1, {"layers is 0", "vocab is -3"});
  expectRefused({"mlp", "--layers", "0"}, 1, {"layers is 0"});
  expectRefused({"gpt", "--layers", "1", "--hidden", "500000000", "--heads", "1"}, 1,
                {"more than 2^63 bytes"});
  expectRefused({"gpt", "--preset", "gpt5"}, 2, {"gpt3-175b"});
  expectRefused({"llama"}, 2, {"hint"});
}

TEST_F(Generate, AWeightsFileThatIsMissingIsStillAnErrorToTrainFrom) {
  generateSmall();
  compileModel({"--ranks", "2", "--stage", "3", "--loss", "cross-entropy:logits"});
  writeFile(folder + "/text.txt", readFile(source("README.md")).substr(0, 2000));
  std::vector<std::string> arguments = {plan, "--data", "text:" + folder + "/text.txt", "--steps", "1"};
  CliResult none = cli("zero-run", arguments);
  EXPECT_EQ(none.exitCode, 1);
  EXPECT_NE(none.error.find("--init normal:0.02"), std::string::npos) << none.error;
  arguments.insert(arguments.end(), {"--model", model});
  CliResult missing = cli("zero-run", arguments);
  EXPECT_EQ(missing.exitCode, 1);
  EXPECT_NE(missing.error.find("model.onnx.data"), std::string::npos) << missing.error;
}

} // namespace
} // namespace zerocc::e2e
