// What exporters do to models (tests/damage): each damage is found and said, and what is mended trains like
// the module in PyTorch, parameter by parameter under the names they have there.

#include "tests/e2e/cli.h"

#include <gtest/gtest.h>

#include <filesystem>

namespace zerocc::e2e {
namespace {

using Texts = std::vector<std::string>;

struct Damage {
  const char *name;
  const char *exporter; // torchscript | dynamo
  Texts said;           // by `check`
  Texts flags;
  bool trains = true;
};

const Texts kMse = {"--loss", "mse:y"}, kTokens = {"--loss", "cross-entropy:logits"};

Texts with(Texts flags, const Texts &more) {
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

const std::vector<Damage> kDamages = {
    {"false_ties", "torchscript", {"untied \"norms.0.weight\"", "untied \"norms.0.bias\""}, kMse},
    {"false_ties",
     "dynamo",
     {"norms.0.weight, norms.1.weight, norms.2.weight", "3 Gemm nodes without a bias"},
     kMse},
    {"tied", "torchscript", {"which it repeats transposed"}, kTokens},
    {"tied", "dynamo", {"which it repeats transposed"}, kTokens},
    {"folded_norm", "torchscript", {"no normalization is left", "\"layers.6.weight\""}, kMse, false},
    {"folded_norm", "dynamo", {"no normalization is left"}, kMse, false},
    {"batch_norm", "torchscript", {"(--train-batchnorm)"}, with(kMse, {"--train-batchnorm"})},
    {"batch_norm", "dynamo", {"(--train-batchnorm)"}, with(kMse, {"--train-batchnorm"})},
    {"group_norm", "torchscript", {}, kMse},
    {"group_norm", "dynamo", {}, kMse},
    {"dropped", "torchscript", {"no Dropout node"}, kMse},
    {"dropped", "dynamo", {"no Dropout node"}, kMse},
    {"dropped_in_training", "torchscript", {"1 Dropout node left out"}, with(kMse, {"--dropout", "off"})},
    {"dropped_in_training", "dynamo", {"1 Dropout node left out"}, with(kMse, {"--dropout", "off"})},
    {"smoothed", "dynamo", {"no label smoothing", "--label-smoothing X"}, {}, false},
    {"unsmoothed", "torchscript", {}, with(kTokens, {"--label-smoothing", "0.1"})},
    {"unsmoothed", "dynamo", {}, with(kTokens, {"--label-smoothing", "0.1"})},
    {"constants", "torchscript", {"parameters: 4 tensors, 272 elements"}, kMse},
    {"constants", "dynamo", {"parameters: 4 tensors, 272 elements"}, kMse},
    {"constant_nodes", "torchscript", {"untied \"norms.0.weight\""}, kMse},
    {"constant_nodes", "dynamo", {"untied \"norms.0.weight\""}, kMse},
    {"cached", "torchscript", {"2 cache inputs are empty"}, kTokens},
    {"cached", "dynamo", {"2 cache inputs are empty"}, kTokens},
    {"experts", "torchscript", {"made dense what 3 NonZero nodes choose"}, kMse},
    {"experts", "dynamo", {"made dense what 3 NonZero nodes choose"}, kMse},
    {"guarded", "torchscript", {}, kMse},
    {"guarded", "dynamo", {}, kMse},
    {"half",
     "torchscript",
     {"computes in f32 what the file computes in f16", "4 stored tensors of 16 bits"},
     kMse},
    {"half",
     "dynamo",
     {"computes in f32 what the file computes in f16", "4 stored tensors of 16 bits"},
     kMse},
    {"bfloat", "torchscript", {"computes in f32 what the file computes in bf16"}, kMse},
    {"bfloat", "dynamo", {"computes in f32 what the file computes in bf16"}, kMse},
};

std::string fileOf(const Damage &damage) {
  return source("tests/damage/" + std::string(damage.name) + "_" + damage.exporter + ".onnx");
}

class Damaged : public testing::TestWithParam<Damage> {};

TEST_P(Damaged, IsSaid) {
  const Damage &damage = GetParam();
  Texts arguments = {"check", fileOf(damage), "--micro-batch", "4"};
  for (const std::string &flag : damage.flags) // those that are the model's
    if (flag == "--train-batchnorm" || flag == "--dropout" || flag == "off")
      arguments.push_back(flag);
  CliResult result = cli("zerocc", arguments);
  EXPECT_EQ(result.exitCode, 0) << result.error;
  EXPECT_NE(result.out.find("can be trained:\n  zerocc compile "), std::string::npos) << result.out;
  arguments.push_back("--json");
  CliResult json = cli("zerocc", arguments);
  EXPECT_EQ(json.exitCode, 0) << json.error;
  EXPECT_EQ(jsonNumber(json.out, "schema"), 1);
  for (const std::string &text : damage.said) {
    EXPECT_NE(result.out.find(text), std::string::npos) << "no \"" << text << "\" in\n" << result.out;
    std::string quoted;
    for (char c : text)
      quoted += c == '"' ? "\\\"" : std::string(1, c);
    if (text.find("parameters:") != std::string::npos)
      continue;
    EXPECT_NE(json.out.find(quoted), std::string::npos) << "no \"" << text << "\" in\n" << json.out;
  }
}

TEST_P(Damaged, TrainsLikeTheModule) {
  const Damage &damage = GetParam();
  const std::string plan = scratch("damage") + "/" + damage.name + "_" + damage.exporter + ".zplan";
  for (const char *ranks : {"1", "2"}) {
    const std::string microBatch = *ranks == '1' ? "4" : "2";
    if (!std::string(damage.name).compare("batch_norm") && *ranks == '2')
      continue; // each rank has a batch of its own
    CliResult compiled = cli("zerocc", with({"compile", fileOf(damage), "-o", plan, "--ranks", ranks,
                                             "--stage", "3", "--micro-batch", microBatch, "--optimizer",
                                             "momentum", "--lr", "0.1", "--weight-decay", "0.1"},
                                            damage.flags));
    ASSERT_EQ(compiled.exitCode, 0) << compiled.error;
    if (!damage.trains)
      return;
    CliResult result = cli(
        "zero-run",
        {plan, "--model", fileOf(damage), "--data",
         source("tests/damage/" + std::string(damage.name) + ".data.npz"), "--steps", "3", "--check-against",
         source("tests/damage/" + std::string(damage.name) + "_" + damage.exporter + ".ref.npz")});
    EXPECT_EQ(result.exitCode, 0) << result.out << result.error;
    EXPECT_NE(result.out.find("agrees with the reference"), std::string::npos) << result.out;
  }
}

INSTANTIATE_TEST_SUITE_P(Exports, Damaged, testing::ValuesIn(kDamages),
                         [](const testing::TestParamInfo<Damage> &info) {
                           return std::string(info.param.name) + "_" + info.param.exporter;
                         });

/// A lost tie is shown once more: without the repair the file trains differently.
TEST(Damaged, TiesMatter) {
  const std::string plan = scratch("damage") + "/untied.zplan",
                    model = source("tests/damage/tied_torchscript.onnx");
  CliResult compiled =
      cli("zerocc", with({"compile", model, "-o", plan, "--ranks", "1", "--micro-batch", "4", "--optimizer",
                          "momentum", "--lr", "0.1", "--weight-decay", "0.1", "--untie", "onnx::*"},
                         kTokens));
  ASSERT_EQ(compiled.exitCode, 0) << compiled.error;
  CliResult result =
      cli("zero-run", {plan, "--model", model, "--data", source("tests/damage/tied.data.npz"), "--steps", "3",
                       "--check-against", source("tests/damage/tied_torchscript.ref.npz")});
  EXPECT_NE(result.exitCode, 0);
  EXPECT_EQ(result.out.find("agrees with the reference"), std::string::npos) << result.out;
}

TEST(Damaged, SixteenBitWeightsGoHomeRounded) {
  const std::string plan = scratch("damage") + "/half.zplan",
                    model = source("tests/damage/half_torchscript.onnx");
  const std::string trained = scratch("damage") + "/half.onnx", data = source("tests/damage/half.data.npz");
  const Texts flags = with({"-o", plan, "--ranks", "1", "--micro-batch", "4", "--lr", "0.01"}, kMse);
  ASSERT_EQ(cli("zerocc", with({"compile", model}, flags)).exitCode, 0);
  CliResult result =
      cli("zero-run", {plan, "--model", model, "--data", data, "--steps", "3", "--export", trained});
  ASSERT_EQ(result.exitCode, 0) << result.error;
  EXPECT_EQ(std::filesystem::file_size(trained), std::filesystem::file_size(model));
  EXPECT_NE(readFile(trained), readFile(model));
  result = cli("zerocc", with({"compile", trained}, flags));
  EXPECT_EQ(result.exitCode, 0) << result.error;
}

} // namespace
} // namespace zerocc::e2e
