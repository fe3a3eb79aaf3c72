// Each optimizer beside PyTorch's recorded training (models/record_optimizers.py), and the same bits at every
// stage. Tolerances are those of parity_test.cpp.

#include "tests/e2e/cli.h"

#include <gtest/gtest.h>

namespace zerocc::e2e {
namespace {

using Flags = std::vector<std::string>;

struct Recorded {
  const char *name; // prefix of its keys
  Flags flags;      // the numbers of record_optimizers.py
};

const std::vector<Recorded> &optimizers() {
  static const std::vector<Recorded> all = {
      {"adam", {"--optimizer", "adam", "--lr", "2e-3", "--beta1", "0.8", "--beta2", "0.99", "--eps", "1e-6"}},
      {"nesterov", {"--optimizer", "momentum", "--nesterov", "--lr", "0.05", "--momentum", "0.8"}},
      {"lion", {"--optimizer", "lion", "--lr", "5e-4"}},
      {"rmsprop", {"--optimizer", "rmsprop", "--lr", "2e-3", "--beta2", "0.98", "--eps", "1e-6"}},
      {"groups",
       {"--optimizer", "adamw", "--lr", "2e-3", "--group", "first=fc1.*:lr-factor=0.1,weight-decay=0.3", "--group",
        "last=out.*:lr-factor=2"}},
      {"adagrad", {"--optimizer", "adagrad", "--lr", "0.02", "--eps", "1e-6"}},
  };
  return all;
}

class Optimizers : public testing::TestWithParam<Recorded> {
protected:
  std::string planOf(const std::string &model, int stage, const char *mesh, const char *microSteps,
                     const char *batch) {
    std::string plan = scratch("optimizers") + "/" + GetParam().name + ".zplan";
    Flags flags = {"--stage",
                   std::to_string(stage),
                   "--mesh",
                   mesh,
                   "--grad-accumulation",
                   microSteps,
                   "--micro-batch",
                   batch,
                   "--bucket-bytes",
                   "4KiB",
                   "--weight-decay",
                   "0.1"};
    flags.insert(flags.end(), GetParam().flags.begin(), GetParam().flags.end());
    compile(model, plan, flags);
    return plan;
  }
};

TEST_P(Optimizers, AgreeWithTorch) {
  for (const char *model : {"mlp", "mlp_classifier"})
    for (int stage : {0, 3})
      for (bool isSplit : {false, true}) {
        std::string plan =
            isSplit ? planOf(model, stage, "shard=2", "2", "1") : planOf(model, stage, "shard=1", "1", "4");
        CliResult result = train(model, plan,
                                 {"--steps", "20", "--check-against",
                                  source("models/" + std::string(model) + ".optimizers.npz"),
                                  "--reference-prefix", std::string(GetParam().name) + "/"});
        EXPECT_EQ(result.exitCode, 0) << model << ", stage " << stage << result.out << result.error;
        EXPECT_NE(result.out.find("loss, within tolerance"), std::string::npos) << result.out;
        EXPECT_NE(result.out.find("agrees with the reference"), std::string::npos) << result.out;
      }
}

TEST_P(Optimizers, GiveTheSameBitsAtEveryStage) {
  std::string losses, weights;
  for (int stage = 0; stage < 4; ++stage) {
    std::string plan = planOf("mlp", stage, "shard=3,replicate=2", "1", "1");
    CliResult result = train(
        "mlp", plan,
        {"--steps", "6", "--metrics", plan + ".jsonl", "--export", plan + ".safetensors", "--check-memory"});
    ASSERT_EQ(result.exitCode, 0) << result.error;
    std::string now;
    for (const std::string &loss : jsonTexts(readFile(plan + ".jsonl"), "loss"))
      now += loss + " ";
    EXPECT_FALSE(now.empty());
    if (stage > 0) {
      EXPECT_EQ(losses, now) << "stage " << stage;
      EXPECT_TRUE(weights == readFile(plan + ".safetensors")) << "stage " << stage;
    }
    losses = now;
    weights = readFile(plan + ".safetensors");
  }
}

INSTANTIATE_TEST_SUITE_P(All, Optimizers, testing::ValuesIn(optimizers()),
                         [](const testing::TestParamInfo<Recorded> &info) {
                           return std::string(info.param.name);
                         });

std::string errorOf(const std::vector<std::string> &flags) {
  std::vector<std::string> all = {
      "compile", modelPath("mlp"), "-o",   scratch("optimizers") + "/x.zplan", "--micro-batch",
      "2",       "--loss",         "mse:y"};
  all.insert(all.end(), flags.begin(), flags.end());
  CliResult result = cli("zerocc", all);
  EXPECT_EQ(result.exitCode, 1) << result.out;
  return result.error;
}

TEST(OptimizerFlags, ThatAreNotReadAreRefused) {
  EXPECT_NE(errorOf({"--optimizer", "sgd", "--momentum", "0.9"})
                .find("--momentum: --optimizer sgd does not read it\n  hint: use --optimizer momentum"),
            std::string::npos);
  EXPECT_NE(
      errorOf({"--optimizer", "lion", "--eps", "1e-6"}).find("--eps: --optimizer lion does not read it"),
      std::string::npos);
  EXPECT_NE(
      errorOf({"--optimizer", "adamw", "--nesterov"}).find("--nesterov: --optimizer adamw does not read it"),
      std::string::npos);
  EXPECT_NE(errorOf({"--optimizer", "muon"})
                .find("\"muon\" is not in this version\n  hint: use one of adamw, adam, "),
            std::string::npos);
}

TEST(OptimizerFlags, RunTimeValuesThatAreNotReadAreRefused) {
  std::string plan = scratch("optimizers") + "/set.zplan";
  compile("mlp", plan, {"--optimizer", "sgd"});
  CliResult set = train("mlp", plan, {"--steps", "1", "--set", "momentum=0.9"});
  EXPECT_EQ(set.exitCode, 1);
  EXPECT_NE(
      set.error.find("--set momentum: the plan's optimizer, sgd, does not read it\n  hint: compile with "
                     "--optimizer momentum"),
      std::string::npos)
      << set.error;
  set = train("mlp", plan, {"--steps", "1", "--set", "beta2=0.9"});
  EXPECT_NE(set.error.find("--set beta2: the plan's optimizer, sgd, does not read it"), std::string::npos)
      << set.error;
  EXPECT_EQ(train("mlp", plan, {"--steps", "1", "--set", "weight-decay=0.2"}).exitCode, 0);
}

TEST(ParameterGroups, AreShownAndChangeableAtRunTime) {
  const std::string plan = scratch("optimizers") + "/groups.zplan", exported = plan + ".safetensors";
  CliResult compiled = compile("mlp", plan,
                               {"--group", "first=fc1.*:lr-factor=0.5,weight-decay=0.3", "--group", "last=out.weight",
                                "--group", "last=out.bias", "--group", "off=fc2.*:frozen"});
  EXPECT_NE(compiled.out.find("first: 840 parameters in 2 tensors"), std::string::npos) << compiled.out;
  EXPECT_NE(compiled.out.find("learning rate x 0.5, weight decay 0.3"), std::string::npos) << compiled.out;
  const std::string json = cli("zerocc", {"inspect", plan, "--json"}).out;
  EXPECT_EQ(jsonNumber(json, "tensors", "first"), 2);
  EXPECT_EQ(jsonNumber(json, "weight_decay", "last"), 0.1);
  EXPECT_EQ(jsonNumber(json, "weight_decay", "last.no-decay"), 0);
  const std::string parameters = cli("zerocc", {"inspect", plan, "--parameters"}).out;
  EXPECT_NE(parameters.find("last.no-decay"), std::string::npos) << parameters;
  EXPECT_NE(parameters.find("frozen"), std::string::npos) << parameters;

  auto weightsWith = [&](const Flags &set) {
    Flags flags = {"--steps", "3", "--export", exported};
    for (const std::string &one : set)
      flags.insert(flags.end(), {"--set", one});
    CliResult result = train("mlp", plan, flags);
    EXPECT_EQ(result.exitCode, 0) << result.error;
    return readFile(exported);
  };
  const std::string own = weightsWith({});
  EXPECT_TRUE(own == weightsWith({"first.lr-factor=0.5", "last.weight-decay=0.1"}));
  EXPECT_FALSE(own == weightsWith({"first.lr-factor=1"}));
  EXPECT_TRUE(weightsWith({"weight-decay=0.7"}) == weightsWith({"decay.weight-decay=0.7", "last.weight-decay=0.7"}))
      << "--set weight-decay reaches groups without one of their own, and no others";
  CliResult wrong = train("mlp", plan, {"--steps", "1", "--set", "frist.lr-factor=1"});
  EXPECT_EQ(wrong.exitCode, 1);
  EXPECT_NE(wrong.error.find("the plan has no parameter group \"frist\"\n  hint: it has decay, no-decay, first, last"),
            std::string::npos)
      << wrong.error;
}

TEST(ParameterGroups, ThatSayNothingAreRefused) {
  EXPECT_NE(errorOf({"--group", "fc1.*:lr-factor=2"}).find("cannot be a group's name"), std::string::npos);
  EXPECT_NE(errorOf({"--group", "decay=fc1.*"}).find("\"decay\" cannot be a group's name"), std::string::npos);
  EXPECT_NE(errorOf({"--group", "a=fc9.*:lr-factor=2"}).find("--group a fc9.*: no parameter has such a name"),
            std::string::npos);
  EXPECT_NE(errorOf({"--group", "a=fc1.*:rate=2"}).find("--group a: there is no key \"rate\""), std::string::npos);
  EXPECT_NE(errorOf({"--group", "a=fc1.*:lr-factor=-2"}).find("lr-factor \"-2\" is not a number of at least 0"),
            std::string::npos);
  EXPECT_NE(errorOf({"--group", "a=fc1.*", "--group", "b=fc1.*"}).find("--group b fc1.*: no parameter has such a name"),
            std::string::npos);
  EXPECT_NE(errorOf({"--group", "a=fc1.*:frozen", "--group", "a=fc2.*:frozen"}).find("--group a is given twice with values"),
            std::string::npos);
}

TEST(OptimizerDefaults, AreThoseOfEachOptimizer) {
  for (auto [name, text] : {std::pair{"adam", "adam, lr 0.001, betas 0.9 0.999 ("},
                            {"lion", "lion, lr 0.0001, betas 0.9 0.99 ("},
                            {"rmsprop", "rmsprop, lr 0.01, beta2 0.99 ("},
                            {"adagrad", "adagrad, lr 0.01 ("},
                            {"momentum", "sgd, lr 0.001, momentum 0.9, weight decay 0.01 ("}}) {
    CliResult result = cli("zerocc", {"compile", modelPath("mlp"), "-o", scratch("optimizers") + "/d.zplan",
                                      "--micro-batch", "2", "--loss", "mse:y", "--optimizer", name});
    EXPECT_EQ(result.exitCode, 0) << result.error;
    EXPECT_NE(result.out.find(text), std::string::npos) << result.out;
  }
}

TEST(OptimizerExport, RefusesWhatOnnxHasNoOpFor) {
  std::string plan = scratch("optimizers") + "/export.zplan";
  compile("mlp", plan, {"--optimizer", "lion"});
  CliResult result =
      cli("zerocc", {"export", plan, "--training-info", "--model", modelPath("mlp"), "-o", plan + ".onnx"});
  EXPECT_EQ(result.exitCode, 1);
  EXPECT_NE(result.error.find("the plan updates with lion, which ONNX has no op for"), std::string::npos)
      << result.error;
}

} // namespace
} // namespace zerocc::e2e
