// Inference plans through the command line: outputs beside those that ONNX Runtime gave (tests/e2e/inference/record.py),
// the same bits on every mesh and stage, and texts that go on.

#include "runtime/data/npy.h"
#include "tests/e2e/cli.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>

namespace zerocc::e2e {
namespace {

std::string planOf(const std::string &model, const std::string &name, const std::vector<std::string> &more) {
  std::string path = scratch("inference") + "/" + model + "_" + name + ".zplan";
  std::vector<std::string> flags = {"--mode", "inference", "--bucket-bytes", "4KiB", "--persistence-bytes", "64"};
  flags.insert(flags.end(), more.begin(), more.end());
  compile(model, path, flags);
  return path;
}

CliResult runPlan(const std::string &model, const std::string &plan, const std::vector<std::string> &more) {
  std::vector<std::string> arguments = {plan, "--model", modelPath(model)};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return cli("zero-run", arguments);
}

std::string dataOf(const std::string &model) { return source("tests/e2e/inference/" + model + ".npz"); }

class Recorded : public testing::TestWithParam<std::pair<std::string, std::string>> {};

TEST_P(Recorded, AgreesWithOnnxRuntimeAndHasTheSameBitsOnEveryMesh) {
  const auto [model, output] = GetParam();
  std::vector<std::string> bytes;
  const std::vector<std::vector<std::string>> meshes = {
      {}, {"--ranks", "2"}, {"--ranks", "2", "--stage", "3"}, {"--mesh", "shard=2,replicate=2", "--stage", "3"},
      {"--ranks", "3", "--stage", "3", "--prefetch-distance", "2"}};
  for (size_t m = 0; m < meshes.size(); ++m) {
    const std::string plan = planOf(model, std::to_string(m), meshes[m]);
    CliResult result =
        runPlan(model, plan, {"--data", dataOf(model), "--output", plan + ".npy", "--check-memory"});
    ASSERT_EQ(result.exitCode, 0) << result.error;
    bytes.push_back(readFile(plan + ".npy"));
    EXPECT_TRUE(bytes[m] == bytes[0]) << "mesh " << m << " has other bits";
    CliResult summary = cli("zerocc", {"inspect", plan});
    EXPECT_EQ(summary.exitCode, 0) << summary.error;
    EXPECT_NE(summary.out.find("output"), std::string::npos) << summary.out;
    EXPECT_EQ(cli("zerocc", {"verify", plan}).exitCode, 0);
    if (m >= 2) {
      CliResult schedule = cli("zerocc", {"inspect", plan, "--schedule"});
      EXPECT_NE(schedule.out.find("infer"), std::string::npos) << schedule.out;
      EXPECT_NE(schedule.out.find("fetch"), std::string::npos) << schedule.out;
    }
  }

  auto got = readNpy(planOf(model, "0", {}) + ".npy");
  auto archive = NpzFile::open(dataOf(model));
  ASSERT_TRUE(got && archive) << got.error().text();
  auto expected = archive->read("expect/" + output);
  ASSERT_TRUE(expected) << expected.error().text();
  ASSERT_EQ(got->dims, expected->dims);
  double largest = 0, worst = 0; // relative to the largest: sums of f32 in another order
  for (int64_t i = 0; i < got->elements; ++i) {
    const double value = elementAsDouble(expected->type, expected->data, i);
    largest = std::max(largest, std::abs(value));
    worst = std::max(worst, std::abs(value - elementAsDouble(got->type, got->data, i)));
  }
  EXPECT_GT(largest, 0.01);
  EXPECT_LT(worst, 2e-5 * largest);
}

INSTANTIATE_TEST_SUITE_P(Models, Recorded,
                         testing::Values(std::pair("mlp", "y"), std::pair("resnet_torchscript", "logits"),
                                         std::pair("bert_dynamo", "logits"), std::pair("gpt2_dynamo", "logits")),
                         [](const auto &info) { return info.param.first; });

TEST(Inference, TakesTheWeightsOfACheckpointAndOfAnExport) {
  const std::string folder = scratch("inference-weights"), train = folder + "/train.zplan";
  compile("resnet_torchscript", train, {"--ranks", "2", "--stage", "2"});
  CliResult trained = e2e::train("resnet_torchscript", train,
                                 {"--steps", "3", "--save", folder + "/saves", "--export", folder + "/trained.onnx"});
  ASSERT_EQ(trained.exitCode, 0) << trained.error;
  const std::string plan = planOf("resnet_torchscript", "weights", {"--ranks", "3", "--stage", "3"});
  auto run = [&](const std::string &model, const std::string &to, std::vector<std::string> more) {
    std::vector<std::string> arguments = {plan, "--model", model, "--data", dataOf("resnet_torchscript"), "--output", to};
    arguments.insert(arguments.end(), more.begin(), more.end());
    CliResult result = cli("zero-run", arguments);
    EXPECT_EQ(result.exitCode, 0) << result.error;
    return readFile(to);
  };
  const std::string before = run(modelPath("resnet_torchscript"), folder + "/before.npy", {});
  const std::string resumed =
      run(modelPath("resnet_torchscript"), folder + "/resumed.npy", {"--resume", folder + "/saves"});
  const std::string exported = run(folder + "/trained.onnx", folder + "/exported.npy", {});
  EXPECT_FALSE(resumed == before);
  EXPECT_TRUE(resumed == exported) << "parameters or running statistics differ";
}

TEST(Inference, RefusesWhatBelongsToTraining) {
  const std::string plan = planOf("mlp", "refused", {});
  CliResult noOutput = runPlan("mlp", plan, {"--data", dataOf("mlp")});
  EXPECT_EQ(noOutput.exitCode, 1);
  EXPECT_NE(noOutput.error.find("--output FILE.npy"), std::string::npos) << noOutput.error;
  CliResult saved = runPlan("mlp", plan, {"--data", dataOf("mlp"), "--output", plan + ".npy", "--save", plan + ".d"});
  EXPECT_EQ(saved.exitCode, 1);
  EXPECT_NE(saved.error.find("--save: the plan infers"), std::string::npos) << saved.error;
  CliResult wrong = runPlan("mlp", plan, {"--data", dataOf("mlp"), "--output", "z=" + plan + ".npy"});
  EXPECT_EQ(wrong.exitCode, 1);
  EXPECT_NE(wrong.error.find("y f32[2,8]"), std::string::npos) << wrong.error;
  CliResult many = runPlan("mlp", plan, {"--data", dataOf("mlp"), "--steps", "9", "--output", plan + ".npy"});
  EXPECT_EQ(many.exitCode, 1);
  EXPECT_FALSE(std::filesystem::exists(plan + ".npy"));
  CliResult text = runPlan("mlp", plan, {"--sample", "x"});
  EXPECT_EQ(text.exitCode, 1);
  EXPECT_NE(text.error.find("no input of tokens"), std::string::npos) << text.error;
  CliResult none = cli("zerocc", {"compile", modelPath("mlp"), "--mode", "inference", "--outputs", "z", "-o", plan});
  EXPECT_EQ(none.exitCode, 1);
  EXPECT_NE(none.error.find("no output \"z\""), std::string::npos) << none.error;
}

TEST(Sample, GoesOnTheSameOnEveryMeshAndPastTheSequence) {
  std::vector<std::string> greedy, drawn;
  for (std::vector<std::string> mesh : {std::vector<std::string>{}, {"--ranks", "2", "--stage", "3"}}) {
    const std::string plan = planOf("gpt2_dynamo", "sample" + std::to_string(mesh.size()), mesh);
    CliResult result = runPlan("gpt2_dynamo", plan, {"--sample", "tokens:5,17,40", "--sample-tokens", "40"});
    ASSERT_EQ(result.exitCode, 0) << result.error;
    EXPECT_EQ(std::count(result.out.begin(), result.out.end(), ' '), 42) << result.out; // 43 tokens, 32 are seen
    EXPECT_EQ(result.out.rfind("5 17 40 ", 0), 0u) << result.out;
    greedy.push_back(result.out);
    std::vector<std::string> hot = {"--sample", "tokens:5,17,40", "--temperature", "1.5", "--top-k", "20", "--seed"};
    hot.push_back("3");
    drawn.push_back(runPlan("gpt2_dynamo", plan, hot).out);
    hot.back() = "4";
    EXPECT_NE(runPlan("gpt2_dynamo", plan, hot).out, drawn.back());
  }
  EXPECT_EQ(greedy[0], greedy[1]);
  EXPECT_EQ(drawn[0], drawn[1]);
  EXPECT_NE(drawn[0], greedy[0]);
}

TEST(Sample, RefusesAModelThatLooksAhead) {
  const std::string plan = planOf("bert_dynamo", "sample", {});
  CliResult result = runPlan("bert_dynamo", plan, {"--sample", "tokens:5,17"});
  EXPECT_EQ(result.exitCode, 1);
  EXPECT_NE(result.error.find("looks ahead"), std::string::npos) << result.error;
  EXPECT_EQ(result.out, "");
  CliResult foreign = runPlan("bert_dynamo", plan, {"--sample", "x"});
  EXPECT_NE(foreign.error.find("is not among the model's 40"), std::string::npos) << foreign.error;
}

} // namespace
} // namespace zerocc::e2e
