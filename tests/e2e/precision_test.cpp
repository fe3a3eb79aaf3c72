// --precision bf16 and f16 beside PyTorch (models/record_precision.py). Two kinds of evidence:
// Against recorded autocast training: a product is off by up to 2^-9 (bf16) or 2^-12 (f16), and autocast rounds some sums
// (biases, activations) that stay in f32 here. Tolerances: losses and norms 0.4 %; gradients and weights 3 % of the tensor's
// largest value (2.4 % in one element, whose gradient is next to nothing and which Adam moves by the rate all the same),
// weights besides four times the recorded distance to f32 training. An f32 run passes, too: this bounds how
// far 16 bits may stray.
// Against PyTorch with every product rounded and nothing else: what rounding changes in the gradients. An f32 run has a
// distance of 1 from it. bf16 has products that f32 sums exactly, nearly: 1e-3. With f16, the order of a sum moves a rounding
// now and then, and each moves all behind it: 0.5 where two layers of attention lie in between (0.385 here).

#include "runtime/data/npy.h"
#include "runtime/weights/safetensors.h"
#include "tests/e2e/cli.h"

#include <gtest/gtest.h>

#include <cmath>

namespace zerocc::e2e {
namespace {

using Flags = std::vector<std::string>;

struct Outcome {
  std::vector<std::string> losses;
  std::string weights, key;
};

Outcome runPlan(const std::string &model, const std::string &plan, Flags flags) {
  compile(model, plan, flags);
  std::string metrics = plan + ".jsonl", weights = plan + ".safetensors";
  CliResult result = train(model, plan, {"--steps", "8", "--metrics", metrics, "--export", weights});
  EXPECT_EQ(result.exitCode, 0) << result.error;
  std::string json = cli("zerocc", {"inspect", plan, "--json"}).out;
  size_t at = json.find("\"numerics_key\"");
  return {jsonTexts(readFile(metrics), "loss"), readFile(weights), json.substr(at, json.find('\n', at) - at)};
}

TEST(Precision, FollowsTorchAutocast) {
  for (const char *model : {"mlp", "gpt2_torchscript"})
    for (const char *precision : {"bf16", "f16"})
      for (int stage : {0, 1, 2, 3}) {
        const std::string plan = scratch("precision") + "/parity.zplan";
        const bool isSplit = stage > 0;
        compile(model, plan,
                {"--precision", precision, "--stage", std::to_string(stage), "--ranks", isSplit ? "2" : "1",
                 "--micro-batch", isSplit ? "2" : "4", "--bucket-bytes", "16KiB"});
        CliResult result = train(model, plan,
                                 {"--steps", "20", "--check-against",
                                  source("models/" + std::string(model) + "." + precision + ".npz"), "--loss-tolerance",
                                  "4e-3", "--tensor-tolerance", "3e-2"});
        EXPECT_EQ(result.exitCode, 0) << model << ", stage " << stage << "\n" << result.out << result.error;
        EXPECT_NE(result.out.find("agrees with the reference"), std::string::npos) << result.out;
      }
}

using Tensors = std::map<std::string, std::vector<double>>;

/// Gradients of the first step (and the weights, next to nothing): one step of SGD at a large rate.
Tensors gradients(const std::string &model, const std::string &precision) {
  constexpr double kRate = 4096;
  const std::string plan = scratch("precision") + "/gradient.zplan", weights = plan + ".safetensors";
  compile(model, plan,
          {"--precision", precision, "--micro-batch", "4", "--optimizer", "sgd", "--lr", std::to_string(kRate),
           "--weight-decay", "0"});
  CliResult result = train(model, plan, {"--steps", "1", "--export", weights});
  EXPECT_EQ(result.exitCode, 0) << result.error;
  auto file = SafetensorsFile::open(weights);
  EXPECT_TRUE(file);
  Tensors tensors;
  for (const std::string &name : file->names()) {
    const ArrayView &view = *file->find(name);
    const auto *values = reinterpret_cast<const float *>(view.data);
    for (int64_t i = 0; i < view.elements; ++i)
      tensors[name].push_back(-values[i] / kRate);
  }
  return tensors;
}

TEST(Precision, RoundsWhereProductsAre) {
  struct {
    const char *model, *precision;
    double most;
  } cases[] = {{"mlp", "bf16", 1e-3},
               {"mlp", "f16", 1e-2},
               {"gpt2_torchscript", "bf16", 1e-3},
               {"gpt2_torchscript", "f16", 0.5}};
  for (const auto &[model, precision, most] : cases) {
    const Tensors wide = gradients(model, "f32"), narrow = gradients(model, precision);
    auto recorded = NpzFile::open(source("models/" + std::string(model) + "." + precision + ".npz"));
    ASSERT_TRUE(recorded);
    double off = 0, all = 0;
    int compared = 0;
    for (const auto &[name, values] : wide) {
      auto view = recorded->read("rounded/" + name);
      if (!view)
        continue;
      ASSERT_EQ(static_cast<size_t>(view->elements), values.size()) << name;
      ++compared;
      for (size_t i = 0; i < values.size(); ++i) {
        const double expected = reinterpret_cast<const float *>(view->data)[i];
        off += std::pow(narrow.at(name)[i] - values[i] - expected, 2);
        all += expected * expected;
      }
    }
    EXPECT_GE(compared, 6);
    EXPECT_LT(std::sqrt(off / all), most) << model << " " << precision;
  }
}

TEST(Precision, HasAKeyOfItsOwn) {
  const Outcome wide = runPlan("mlp", scratch("precision") + "/f32.zplan", {});
  for (const char *precision : {"bf16", "f16"}) {
    const Outcome narrow = runPlan("mlp", scratch("precision") + "/narrow.zplan", {"--precision", precision});
    EXPECT_NE(narrow.losses, wide.losses);
    EXPECT_NE(narrow.key, wide.key);
    EXPECT_NE(narrow.key.find(std::string("precision=") + precision), std::string::npos) << narrow.key;
  }
}

TEST(Precision, GivesTheSameBitsAtEveryStage) {
  for (const char *precision : {"bf16", "f16"}) {
    Outcome first;
    for (int stage = 0; stage < 4; ++stage) {
      Outcome outcome = runPlan("gpt2_torchscript", scratch("precision") + "/stage.zplan",
                                {"--precision", precision, "--ranks", "2", "--micro-batch", "1", "--clip-grad-norm", "0.5",
                                 "--stage", std::to_string(stage), "--bucket-bytes", "12KiB"});
      ASSERT_FALSE(outcome.losses.empty());
      if (stage == 0)
        first = outcome;
      EXPECT_EQ(outcome.losses, first.losses) << "stage " << stage;
      EXPECT_TRUE(outcome.weights == first.weights) << "stage " << stage;
      EXPECT_EQ(outcome.key, first.key) << "stage " << stage;
    }
  }
}

TEST(Precision, OneRankOfEightMicroStepsIsEightRanksOfOne) {
  for (const char *precision : {"bf16", "f16"}) {
    Outcome one = runPlan("mlp", scratch("precision") + "/1x8.zplan",
                          {"--precision", precision, "--micro-batch", "1", "--grad-accumulation", "8"});
    Outcome eight = runPlan("mlp", scratch("precision") + "/8x1.zplan",
                            {"--precision", precision, "--micro-batch", "1", "--ranks", "8", "--stage", "2"});
    ASSERT_EQ(one.losses.size(), eight.losses.size());
    for (size_t i = 0; i < one.losses.size(); ++i)
      EXPECT_NEAR(std::stod(one.losses[i]) / std::stod(eight.losses[i]), 1, 1e-5);
  }
}

/// Without bf16 in it, a convolution still gets rounded operands.
TEST(Precision, Bf16TrainsConvolutions) {
  Outcome narrow = runPlan("unet_torchscript", scratch("precision") + "/conv16.zplan", {"--precision", "bf16"});
  Outcome wide = runPlan("unet_torchscript", scratch("precision") + "/conv32.zplan", {});
  EXPECT_NE(narrow.losses, wide.losses);
  ASSERT_EQ(narrow.losses.size(), wide.losses.size());
  for (size_t i = 0; i < wide.losses.size(); ++i)
    EXPECT_NEAR(std::stod(narrow.losses[i]) / std::stod(wide.losses[i]), 1, 2e-2);
}

TEST(Precision, InfersIn16Bits) {
  const Flags run = {"--model", modelPath("mlp"), "--data", "x=" + source("models/mlp.data.npz")};
  auto outputOf = [&](const char *precision) {
    const std::string plan = scratch("precision") + "/infer.zplan";
    compile("mlp", plan, {"--mode", "inference", "--precision", precision});
    Flags flags = {plan, "--output", plan + ".npy"};
    flags.insert(flags.end(), run.begin(), run.end());
    CliResult result = cli("zero-run", flags);
    EXPECT_EQ(result.exitCode, 0) << result.error;
    auto view = readNpy(plan + ".npy");
    EXPECT_TRUE(view);
    const auto *values = reinterpret_cast<const float *>(view->data);
    return std::vector<float>(values, values + view->elements);
  };
  const std::vector<float> wide = outputOf("f32");
  for (auto [precision, most] : {std::pair("bf16", 0.02), std::pair("f16", 0.0025)}) {
    const std::vector<float> narrow = outputOf(precision);
    ASSERT_EQ(narrow.size(), wide.size());
    double worst = 0, largest = 0;
    for (size_t i = 0; i < wide.size(); ++i) {
      worst = std::max<double>(worst, std::fabs(narrow[i] - wide[i]));
      largest = std::max<double>(largest, std::fabs(wide[i]));
    }
    EXPECT_GT(worst, 0) << precision;
    EXPECT_LT(worst / largest, most) << precision;
  }
}

TEST(Precision, RefusesALossScaleThatNothingReads) {
  auto refused = [](const Flags &flags, const char *why) {
    Flags all = {"compile", modelPath("mlp"), "-o", scratch("precision") + "/no.zplan", "--micro-batch", "2", "--loss", "mse:y"};
    all.insert(all.end(), flags.begin(), flags.end());
    CliResult result = cli("zerocc", all);
    EXPECT_EQ(result.exitCode, 1);
    EXPECT_NE(result.error.find(why), std::string::npos) << result.error;
  };
  refused({"--precision", "bf16", "--loss-scale", "8"}, "--loss-scale: --precision bf16 has the range of f32");
  refused({"--loss-scale-window", "8"}, "--loss-scale-window: --precision f32 has the range of f32");
  refused({"--precision", "f16", "--loss-scale", "8", "--loss-scale-min", "2"}, "the loss scale is 8 in every step");
  refused({"--precision", "f16", "--loss-scale", "0"}, "\"0\" is neither dynamic nor a number above 0");
}

} // namespace
} // namespace zerocc::e2e
