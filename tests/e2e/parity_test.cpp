// The trained program beside PyTorch's recorded one: every gradient of step 1, every weight after step 3, 20 losses.
// Tolerances: losses 1e-4 relative; gradients and weights 1e-4 of the tensor's largest value (sums run in another
// order than PyTorch's). Each run differs from the others only in ranks, stage and how the batch of 4 is cut.

#include "tests/e2e/cli.h"

#include <gtest/gtest.h>

namespace zerocc::e2e {
namespace {

struct Split {
  int shard, replicate, microSteps; // micro-batch is 4 / (ranks * microSteps)
};

struct Parity {
  const char *model;
  const char *variant; // "", "clip", "sgd"
  Split split;
  int stage;
};

std::string name(const Parity &p) {
  return std::string(p.model) + "_" + (*p.variant ? p.variant : "plain") + "_s" + std::to_string(p.split.shard) + "r" +
         std::to_string(p.split.replicate) + "k" + std::to_string(p.split.microSteps) + "_stage" +
         std::to_string(p.stage);
}

class ParityWithTorch : public testing::TestWithParam<Parity> {};

TEST_P(ParityWithTorch, LossesGradientsAndWeightsAgree) {
  const Parity &p = GetParam();
  std::string plan = scratch("parity") + "/" + name(p) + ".zplan";
  int ranks = p.split.shard * p.split.replicate;
  std::vector<std::string> flags = {"--mesh",
                                    "shard=" + std::to_string(p.split.shard) +
                                        ",replicate=" + std::to_string(p.split.replicate),
                                    "--stage",
                                    std::to_string(p.stage),
                                    "--grad-accumulation",
                                    std::to_string(p.split.microSteps),
                                    "--micro-batch",
                                    std::to_string(4 / (ranks * p.split.microSteps)),
                                    "--bucket-bytes",
                                    "16KiB"};
  std::vector<std::string> run = {"--steps", "20", "--check-against",
                                  source("models/" + std::string(p.model) + ".ref.npz")};
  std::string variant = p.variant;
  if (variant == "clip") {
    flags.insert(flags.end(), {"--clip-grad-norm", "0.1"});
    run.insert(run.end(), {"--reference-prefix", "clip/"});
  } else if (variant == "sgd") {
    flags.insert(flags.end(), {"--optimizer", "momentum", "--lr", "0.05", "--momentum", "0.9", "--weight-decay", "0.01"});
    run.insert(run.end(), {"--reference-prefix", "sgd/"});
  }
  compile(p.model, plan, flags);
  CliResult result = train(p.model, plan, run);
  EXPECT_EQ(result.exitCode, 0) << result.out << result.error;
  EXPECT_NE(result.out.find("loss, within tolerance"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("agrees with the reference"), std::string::npos) << result.out;
}

std::vector<Parity> allCases() {
  std::vector<Parity> cases;
  for (const char *model : {"mlp", "mlp_classifier", "mlp_own_loss", "gpt2_torchscript", "gpt2_dynamo"})
    for (int stage = 0; stage < 4; ++stage) {
      for (Split split : {Split{1, 1, 1}, Split{2, 1, 1}, Split{4, 1, 1}})
        for (const char *variant : {"", "clip"})
          cases.push_back({model, variant, split, stage});
      for (Split split : {Split{1, 1, 4}, Split{2, 1, 2}, Split{2, 2, 1}})
        cases.push_back({model, "clip", split, stage});
      if (std::string(model) == "mlp" || std::string(model) == "mlp_classifier")
        cases.push_back({model, "sgd", {2, 1, 2}, stage});
    }
  cases.push_back({"gpt2_external", "", {2, 1, 1}, 3});
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Models, ParityWithTorch, testing::ValuesIn(allCases()),
                         [](const testing::TestParamInfo<Parity> &info) { return name(info.param); });

/// A recorded tensor that the plan does not train is no agreement.
TEST(Parity, NeedsEverythingThatWasRecorded) {
  const std::string plan = scratch("parity") + "/frozen.zplan";
  compile("mlp", plan, {"--micro-batch", "4", "--freeze", "fc2.*"});
  CliResult result =
      train("mlp", plan, {"--steps", "3", "--check-against", source("models/mlp.ref.npz"), "--loss-tolerance", "10",
                          "--tensor-tolerance", "10"});
  EXPECT_EQ(result.exitCode, 1) << "nothing else differs";
  EXPECT_EQ(result.out.find(" differ"), std::string::npos) << result.out;
  for (const char *key : {"grad/fc2.weight", "grad/fc2.bias", "weight/fc2.weight", "weight/fc2.bias"})
    EXPECT_NE(result.out.find(std::string("FAILED: ") + key + " was recorded, and the plan does not train it"),
              std::string::npos)
        << key << "\n" << result.out;
}

} // namespace
} // namespace zerocc::e2e
