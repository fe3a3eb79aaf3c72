// The overflow policy, one for all stages and precisions: a step with a gradient or a loss that is not finite on any rank is
// skipped by all of them, weights and states stay, the loss scale moves as DeepSpeed's (step_scalars_test.cpp has its
// sequence), and after --max-skipped such steps in a row the run ends and names the first parameter that went bad.

#include "tests/e2e/cli.h"
#include "tests/e2e/random_network.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

namespace zerocc::e2e {
namespace {

using Flags = std::vector<std::string>;

/// models/mlp's inputs, `bad` (when not negative) the sample with an infinity in it.
Flags dataWith(int bad) {
  const std::string folder = scratch("overflow");
  const std::string x = arrayFile(folder + "/x.npy", 64, 20, 7), target = arrayFile(folder + "/target.npy", 64, 8, 8);
  if (bad >= 0) {
    std::string bytes = readFile(x);
    const float infinity = std::numeric_limits<float>::infinity();
    std::memcpy(bytes.data() + bytes.size() - (64 - bad) * 20 * sizeof(float), &infinity, sizeof infinity);
    writeFile(x, bytes);
  }
  return {"--model", modelPath("mlp"), "--data", "x=" + x, "--data", "target=" + target};
}

struct Outcome {
  int exitCode = 0;
  std::string error, weights;
  std::vector<std::string> skipped, scales, losses;
};

Outcome run(const std::string &plan, const Flags &data, int steps, const Flags &more = {}) {
  const std::string metrics = plan + ".jsonl", weights = plan + ".safetensors";
  Flags flags = {plan, "--steps", std::to_string(steps), "--metrics", metrics, "--export", weights};
  flags.insert(flags.end(), data.begin(), data.end());
  flags.insert(flags.end(), more.begin(), more.end());
  CliResult result = cli("zero-run", flags);
  const std::string lines = readFile(metrics);
  return {result.exitCode,
          result.error,
          result.exitCode ? "" : readFile(weights),
          jsonTexts(lines, "skipped"),
          jsonTexts(lines, "loss_scale"),
          jsonTexts(lines, "loss")};
}

std::string planOf(const Flags &more) {
  const std::string plan = scratch("overflow") + "/net.zplan";
  compile("mlp", plan, more);
  return plan;
}

/// Two ranks, two micro-steps of one sample: sample 8 + 2k + r is that of rank r's micro-step k in the third step.
TEST(Overflow, InAnySampleSkipsTheStepOnAllRanks) {
  for (const char *precision : {"f32", "bf16", "f16"}) {
    std::string before, after;
    for (int stage = 0; stage < 4; ++stage)
      for (int bad = 8; bad < 12; ++bad) {
        SCOPED_TRACE(testing::Message() << precision << ", stage " << stage << ", sample " << bad);
        const std::string plan =
            planOf({"--precision", precision, "--stage", std::to_string(stage), "--ranks", "2", "--micro-batch", "1",
                    "--grad-accumulation", "2", "--reduce", "boundary", "--bucket-bytes", "1KiB", "--clip-grad-norm", "1"});
        const Flags data = dataWith(bad);
        const Outcome two = run(plan, data, 2), three = run(plan, data, 3), six = run(plan, data, 6);
        ASSERT_EQ(six.exitCode, 0) << six.error;
        EXPECT_EQ(six.skipped, (std::vector<std::string>{"0", "0", "1", "1", "1", "1"}));
        EXPECT_EQ(six.losses[2], "null");
        EXPECT_NE(six.losses[3], "null");
        EXPECT_TRUE(two.weights == three.weights) << "a skipped step changed weights";
        EXPECT_TRUE(three.weights != six.weights);
        if (before.empty()) {
          before = two.weights;
          after = six.weights;
        }
        EXPECT_TRUE(two.weights == before);
        EXPECT_TRUE(six.weights == after) << "weights depend on the stage, or on who skipped";
      }
  }
}

TEST(Overflow, ADynamicScaleFallsUntilGradientsFit) {
  const Flags dynamic = {"--precision", "f16",           "--loss-scale-initial-power", "30", "--loss-scale-window", "6",
                         "--micro-batch", "1", "--bucket-bytes", "1KiB"};
  const Flags data = dataWith(-1);
  std::vector<std::string> scales, losses;
  for (const Flags &split : {Flags{"--stage", "0", "--ranks", "4"}, Flags{"--stage", "2", "--ranks", "4"},
                             Flags{"--stage", "3", "--ranks", "4"}}) {
    Flags flags = dynamic;
    flags.insert(flags.end(), split.begin(), split.end());
    const std::string plan = planOf(flags);
    const Outcome all = run(plan, data, 24);
    ASSERT_EQ(all.exitCode, 0) << all.error;
    ASSERT_EQ(all.scales.size(), 24u);
    if (scales.empty())
      scales = all.scales, losses = all.losses;
    EXPECT_EQ(all.scales, scales);
    EXPECT_EQ(all.losses, losses);

    // Saved and resumed in the middle of all that.
    const std::string saves = scratch("overflow") + "/saves" + split[1];
    ASSERT_EQ(run(plan, data, 9, {"--save", saves}).exitCode, 0);
    const Outcome rest = run(plan, data, 24, {"--resume", saves});
    ASSERT_EQ(rest.exitCode, 0) << rest.error;
    EXPECT_EQ(Flags(rest.scales.end() - 15, rest.scales.end()), Flags(scales.end() - 15, scales.end()));
    EXPECT_TRUE(rest.weights == all.weights);
  }
  // Two overflows are forgiven, then it halves with each; six good steps double it.
  EXPECT_EQ(std::stod(scales[0]), std::ldexp(1, 30));
  EXPECT_EQ(std::stod(scales[1]), std::ldexp(1, 29));
  EXPECT_EQ(std::stod(scales[2]), std::ldexp(1, 28));
  const double last = std::stod(scales.back());
  EXPECT_LT(last, std::ldexp(1, 26));
  EXPECT_GT(last, std::ldexp(1, 10));
}

TEST(Overflow, EndsTheRunAfterTooManyAndNamesTheParameter) {
  const std::string plan = planOf({"--precision", "f16", "--loss-scale", "1e30", "--ranks", "2", "--stage", "3"});
  const Outcome outcome = run(plan, dataWith(-1), 30, {"--max-skipped", "5"});
  EXPECT_EQ(outcome.exitCode, 4);
  EXPECT_EQ(outcome.skipped.size(), 5u);
  EXPECT_NE(outcome.error.find("step 5: 5 steps in a row were skipped"), std::string::npos) << outcome.error;
  EXPECT_NE(outcome.error.find("element 0 of the gradient of \"out.weight\" in step 1, at loss scale 1e+30"), std::string::npos)
      << outcome.error;
  // A scale that fits, set at run time, trains.
  const Outcome better = run(plan, dataWith(-1), 6, {"--set", "loss-scale=1024"});
  EXPECT_EQ(better.exitCode, 0) << better.error;
  EXPECT_EQ(better.skipped.back(), "0");
}

TEST(Overflow, InTheDataIsToldOfTheLoss) {
  const std::string plan = planOf({"--micro-batch", "64"});
  const Outcome outcome = run(plan, dataWith(3), 30, {"--max-skipped", "2"});
  EXPECT_EQ(outcome.exitCode, 4);
  EXPECT_EQ(outcome.skipped.size(), 2u);
  EXPECT_NE(outcome.error.find("step 2: 2 steps in a row were skipped"), std::string::npos) << outcome.error;
}

TEST(Overflow, RunTimeValuesOfAScaleThatIsNotThereAreRefused) {
  const std::string plain = planOf({});
  EXPECT_NE(run(plain, dataWith(-1), 2, {"--set", "loss-scale=8"}).error.find("the plan has no loss scale"),
            std::string::npos);
  const std::string fixed = planOf({"--precision", "f16", "--loss-scale", "8"});
  EXPECT_NE(run(fixed, dataWith(-1), 2, {"--set", "loss-scale-window=8"}).error.find("the plan has no dynamic loss scale"),
            std::string::npos);
  EXPECT_NE(run(fixed, dataWith(-1), 2, {"--set", "loss-scale=0"}).error.find("0 is not above 0"), std::string::npos);
}

} // namespace
} // namespace zerocc::e2e
