// Tiny real exports of the model families people train, by both exporters: the trained program beside PyTorch's
// recorded one on one rank and on two, and the same bits at stage 0 and stage 3. Tolerances as in parity_test.cpp.

#include "tests/e2e/cli.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>

namespace zerocc::e2e {
namespace {

const std::set<std::string> kLocalStatistics = {"resnet_torchscript", "mobilenet_torchscript", "efficientnet_torchscript"};

struct FamilyModel {
  std::string name;
  /// Batch norm in training mode: each rank has the statistics of its own samples, so that two ranks train another
  /// function than PyTorch's one process.
  bool localStatistics = false;
};

class Families : public testing::TestWithParam<FamilyModel> {
protected:
  std::string plan(const std::string &name, int ranks, int stage, const std::vector<std::string> &more = {}) {
    std::string path = scratch("families") + "/" + GetParam().name + "_" + name + ".zplan";
    std::vector<std::string> flags = {"--ranks",       std::to_string(ranks),     "--stage",        std::to_string(stage),
                                      "--micro-batch", std::to_string(4 / ranks), "--bucket-bytes", "4KiB"};
    flags.insert(flags.end(), more.begin(), more.end());
    compile(GetParam().name, path, flags);
    return path;
  }
  std::string reference() { return source("models/" + GetParam().name + ".ref.npz"); }
};

TEST_P(Families, OneRankAgreesWithPyTorch) {
  CliResult result = train(GetParam().name, plan("one", 1, 0), {"--steps", "20", "--check-against", reference()});
  EXPECT_EQ(result.exitCode, 0) << result.out << result.error;
  EXPECT_NE(result.out.find("loss, within tolerance"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("agrees with the reference"), std::string::npos) << result.out;
}

TEST_P(Families, TwoRanksAtStageThreeAgreeAndHaveTheBitsOfStageZero) {
  std::vector<std::string> metrics, weights;
  for (int stage : {0, 3}) {
    std::string path = plan("stage" + std::to_string(stage), 2, stage);
    std::vector<std::string> run = {"--steps", "20", "--metrics", path + ".jsonl", "--export", path + ".safetensors"};
    const bool isChecked = stage == 3 && !GetParam().localStatistics;
    if (isChecked)
      run.insert(run.end(), {"--check-against", reference()});
    CliResult result = train(GetParam().name, path, run);
    ASSERT_EQ(result.exitCode, 0) << result.out << result.error;
    EXPECT_EQ(result.out.find("agrees with the reference") != std::string::npos, isChecked) << result.out;
    std::vector<std::string> losses = jsonTexts(readFile(path + ".jsonl"), "loss");
    EXPECT_EQ(losses.size(), 20u);
    metrics.push_back(testing::PrintToString(losses));
    weights.push_back(readFile(path + ".safetensors"));
  }
  EXPECT_EQ(metrics[0], metrics[1]);
  EXPECT_FALSE(weights[0].empty());
  EXPECT_TRUE(weights[0] == weights[1]) << "final weights differ";
}

class SynchronisedBatchNorm : public Families {};

TEST_P(SynchronisedBatchNorm, TwoRanksTrainWhatOneProcessDoes) {
  std::vector<std::string> weights;
  for (int stage : {0, 3}) {
    std::string path = plan("sync" + std::to_string(stage), 2, stage, {"--sync-batchnorm"});
    // Rounding grows in the ResNet: its recording says how far (models/record.py).
    std::vector<std::string> run = {"--steps", "20", "--check-against", reference(), "--export", path + ".safetensors"};
    CliResult result = train(GetParam().name, path, run);
    ASSERT_EQ(result.exitCode, 0) << result.out << result.error;
    EXPECT_NE(result.out.find("agrees with the reference"), std::string::npos) << result.out;
    weights.push_back(readFile(path + ".safetensors"));
  }
  EXPECT_FALSE(weights[0].empty());
  EXPECT_TRUE(weights[0] == weights[1]) << "final weights differ";
}

INSTANTIATE_TEST_SUITE_P(Models, SynchronisedBatchNorm,
                         testing::Values(FamilyModel{"resnet_torchscript", true}, FamilyModel{"mobilenet_torchscript", true},
                                         FamilyModel{"efficientnet_torchscript", true}),
                         [](const testing::TestParamInfo<FamilyModel> &info) { return info.param.name; });

/// Every model with flags and a recording, but those of parity_test: a new one is tested when it is there.
std::vector<FamilyModel> familyModels() {
  const std::set<std::string> elsewhere = {"gpt2_torchscript", "gpt2_dynamo", "gpt2_external", "mlp", "mlp_classifier",
                                           "mlp_own_loss"};
  std::vector<FamilyModel> models;
  for (const auto &entry : std::filesystem::directory_iterator(source("models"))) {
    const std::string name = entry.path().stem();
    if (entry.path().extension() == ".args" && !elsewhere.count(name) && name != "char_gpt") // has no recording
      models.push_back({name, kLocalStatistics.count(name) > 0});
  }
  std::sort(models.begin(), models.end(), [](const auto &a, const auto &b) { return a.name < b.name; });
  return models;
}

INSTANTIATE_TEST_SUITE_P(Models, Families, testing::ValuesIn(familyModels()),
                         [](const testing::TestParamInfo<FamilyModel> &info) { return info.param.name; });

TEST(FamilyModels, AreThere) { EXPECT_GE(familyModels().size(), 30u); }

class EveryStage : public Families {};

TEST_P(EveryStage, OfFourRanksHasTheBitsOfStageZero) {
  std::vector<std::string> weights;
  for (int stage : {0, 1, 2, 3}) {
    std::string path = plan("four" + std::to_string(stage), 4, stage);
    CliResult result = train(GetParam().name, path, {"--steps", "5", "--export", path + ".safetensors"});
    ASSERT_EQ(result.exitCode, 0) << result.out << result.error;
    weights.push_back(readFile(path + ".safetensors"));
    EXPECT_TRUE(weights[0] == weights.back()) << "weights of stage " << stage << " differ";
  }
  EXPECT_FALSE(weights[0].empty());
}

INSTANTIATE_TEST_SUITE_P(Models, EveryStage,
                         testing::Values(FamilyModel{"llama_dynamo"}, FamilyModel{"moe_capacity_torchscript"},
                                         FamilyModel{"merged_decoder"}, FamilyModel{"t5_torchscript"},
                                         FamilyModel{"unet_dynamo"}, FamilyModel{"efficientnet_torchscript", true}),
                         [](const testing::TestParamInfo<FamilyModel> &info) { return info.param.name; });

} // namespace
} // namespace zerocc::e2e
