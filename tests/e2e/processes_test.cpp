// Ranks as processes of mpirun: the same bits as ranks that are threads, in weights, metrics and checkpoints; and what is
// refused at the start.

#include "tests/e2e/mpirun.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

namespace zerocc::e2e {
namespace {

namespace fs = std::filesystem;

struct Mesh {
  int shard, replicate;
  int ranks() const { return shard * replicate; }
};

const std::string kModel = "gpt2_torchscript";

std::vector<std::string> runFlags(const std::string &plan, const std::string &steps) {
  return {plan, "--model", modelPath(kModel), "--data", source("models/" + kModel + ".data.npz"), "--shuffle", "--steps", steps};
}

std::vector<std::string> with(std::vector<std::string> flags, const std::vector<std::string> &more) {
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

void compileFor(const std::string &plan, Mesh mesh, int stage, const std::vector<std::string> &more = {}) {
  compile(kModel, plan, with({"--mesh", "shard=" + std::to_string(mesh.shard) + ",replicate=" + std::to_string(mesh.replicate), "--stage",
                              std::to_string(stage), "--bucket-bytes", "12KiB", "--clip-grad-norm", "0.5"}, more));
}

/// All files of a folder, by name.
std::vector<std::pair<std::string, std::string>> filesOf(const std::string &folder) {
  std::vector<std::pair<std::string, std::string>> files;
  for (const auto &entry : fs::directory_iterator(folder))
    files.push_back({entry.path().filename().string(), readFile(entry.path().string())});
  std::sort(files.begin(), files.end());
  return files;
}

class AsThreads : public testing::TestWithParam<Mesh> {};

TEST_P(AsThreads, WeightsMetricsAndCheckpointsHaveTheSameBits) {
  const Mesh mesh = GetParam();
  for (int stage = 0; stage < 4; ++stage) {
    SCOPED_TRACE("stage " + std::to_string(stage));
    const std::string folder = scratch("processes"), plan = folder + "/run.zplan";
    // Odd stages accumulate: micro-steps have schedules of their own.
    compileFor(plan, mesh, stage, stage % 2 ? std::vector<std::string>{"--grad-accumulation", "2"} : std::vector<std::string>{});
    for (const char *kind : {"/threads", "/mpi"}) {
      const std::string name = folder + kind;
      fs::remove_all(name);
      fs::remove(name + ".jsonl");
      const auto flags = with(runFlags(plan, "4"), {"--export", name + ".safetensors", "--metrics", name + ".jsonl", "--save", name,
                                                    "--save-every", "2", "--eval-every", "2", "--eval-batches", "3", "--eval-data",
                                                    source("models/" + kModel + ".data.npz")});
      const CliResult result = kind == std::string("/mpi") ? mpirun(mesh.ranks(), with(flags, {"--comm", "mpi"})) : cli("zero-run", flags);
      ASSERT_EQ(result.exitCode, 0) << result.error;
      EXPECT_NE(result.error.find("saved "), std::string::npos) << result.error;
      EXPECT_NE(result.out.find("step 4: validation loss"), std::string::npos) << result.out;
      EXPECT_EQ(result.out.find("step 4: validation loss"), result.out.rfind("step 4: validation loss")) << "one rank speaks";
    }
    const std::string threads = readFile(folder + "/threads.safetensors");
    ASSERT_FALSE(threads.empty());
    EXPECT_TRUE(threads == readFile(folder + "/mpi.safetensors")) << "weights differ";
    const std::string metrics = readFile(folder + "/threads.jsonl"), ours = readFile(folder + "/mpi.jsonl");
    for (const char *key : {"step", "loss", "grad_norm", "lr", "wire_bytes", "memory_peak", "eval_loss"}) {
      EXPECT_FALSE(jsonTexts(metrics, key).empty()) << key;
      EXPECT_EQ(jsonTexts(metrics, key), jsonTexts(ours, key)) << key;
    }
    for (const char *step : {"/000001-step-2", "/000002-step-4"}) {
      const auto saved = filesOf(folder + "/threads" + step);
      ASSERT_EQ(saved.size(), mesh.ranks() + 1u); // a file a rank, and the index
      EXPECT_TRUE(saved == filesOf(folder + "/mpi" + step)) << step;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Meshes, AsThreads, testing::Values(Mesh{1, 1}, Mesh{2, 1}, Mesh{4, 1}, Mesh{2, 2}, Mesh{1, 2}),
                         [](const testing::TestParamInfo<Mesh> &info) {
                           return "shard" + std::to_string(info.param.shard) + "replicate" + std::to_string(info.param.replicate);
                         });

TEST(Processes, ARunGoesOnAsThreadsAndBackOnOtherMeshes) {
  const std::string folder = scratch("resumed");
  compileFor(folder + "/two.zplan", {2, 1}, 3);
  compileFor(folder + "/four.zplan", {2, 2}, 1);
  // The whole run on two ranks beside one of three parts, on the same ranks: threads, processes, threads.
  ASSERT_EQ(cli("zero-run", with(runFlags(folder + "/two.zplan", "6"), {"--export", folder + "/whole.safetensors"})).exitCode, 0);
  const std::string saves = folder + "/saves";
  auto part = [&](const char *steps) {
    return with(runFlags(folder + "/two.zplan", steps),
                {"--save", saves, "--export", folder + "/parts.safetensors", "--resume", saves});
  };
  ASSERT_EQ(cli("zero-run", with(runFlags(folder + "/two.zplan", "2"), {"--save", saves})).exitCode, 0);
  CliResult result = mpirun(2, part("4"));
  ASSERT_EQ(result.exitCode, 0) << result.error;
  EXPECT_NE(result.error.find("resumed from " + saves + "/000001-step-2 after step 2"), std::string::npos) << result.error;
  ASSERT_EQ(cli("zero-run", part("6")).exitCode, 0);
  EXPECT_TRUE(readFile(folder + "/whole.safetensors") == readFile(folder + "/parts.safetensors"));
  // From two ranks to four processes: the same parameters without a step in between.
  result = mpirun(4, with(runFlags(folder + "/four.zplan", "6"), {"--resume", saves, "--export", folder + "/four.safetensors"}));
  ASSERT_EQ(result.exitCode, 0) << result.error;
  EXPECT_NE(result.error.find("saved on mesh shard=2,replicate=1, goes on on shard=2,replicate=2"), std::string::npos) << result.error;
  EXPECT_TRUE(readFile(folder + "/whole.safetensors") == readFile(folder + "/four.safetensors"));
}

// --- what is refused at the start

struct Started : testing::Test {
  const std::string folder = scratch("started"), plan = folder + "/run.zplan";
  void SetUp() override { compileFor(plan, {2, 1}, 3); }
  static void expectRefused(const CliResult &result, const std::string &message) {
    EXPECT_EQ(result.exitCode, 1) << result.error;
    const size_t at = result.error.find(message);
    EXPECT_NE(at, std::string::npos) << result.error;
    EXPECT_EQ(result.error.find(message, at + 1), std::string::npos) << "told once: " << result.error;
  }
};

TEST_F(Started, ProcessesForAnotherNumberOfRanks) {
  expectRefused(mpirun(3, runFlags(plan, "2")), "error: the plan is for 2 ranks, and this run has 3 processes\n"
                                                "  hint: start with mpirun -n 2, or compile with --ranks 3\n");
}

TEST_F(Started, ARankWithOtherRunTimeValues) {
  expectRefused(mpirunTwo(runFlags(plan, "2"), with(runFlags(plan, "2"), {"--set", "lr=0.1"})),
                "error: rank 1: its --set is \"lr=0.1\", that of the others is \"\"\n"
                "  hint: give all ranks the same plan, data and flags\n");
}

TEST_F(Started, ARankWithAnotherPlan) {
  compileFor(folder + "/other.zplan", {2, 1}, 1);
  expectRefused(mpirunTwo(runFlags(plan, "2"), runFlags(folder + "/other.zplan", "2")), "error: rank 1: its plan is \"");
}

TEST_F(Started, ARankWithOtherData) {
  std::string tokens;
  for (int i = 0; i < 4000; ++i)
    tokens += std::string(1, static_cast<char>(i * 7 % 90)) + '\0';
  writeFile(folder + "/a.bin", tokens);
  tokens[2000] = 5;
  writeFile(folder + "/b.bin", tokens);
  const std::string tokenPlan = folder + "/tokens.zplan";
  ASSERT_EQ(cli("zerocc", {"compile", modelPath(kModel), "-o", tokenPlan, "--micro-batch", "1", "--dim", "sequence=16", "--loss",
                           "cross-entropy:logits", "--ranks", "2"}).exitCode, 0);
  auto flags = [&](const char *data) {
    return std::vector<std::string>{tokenPlan, "--model", modelPath(kModel), "--steps", "2", "--data", folder + data};
  };
  expectRefused(mpirunTwo(flags("/a.bin"), flags("/b.bin")), "error: rank 1: its data is \"");
}

TEST_F(Started, ARankWithoutItsModelStopsTheOthers) {
  std::vector<std::string> without = runFlags(plan, "2");
  without[2] = folder + "/nothing.onnx";
  const CliResult result = mpirunTwo(runFlags(plan, "2"), without);
  EXPECT_NE(result.exitCode, 0);
  EXPECT_NE(result.error.find("error: rank 1: " + without[2] + ": cannot be opened"), std::string::npos) << result.error;
}

TEST_F(Started, SeveralProcessesThatWouldEachRunAllRanks) {
  const CliResult result = mpirun(2, with(runFlags(plan, "2"), {"--comm", "threads"}));
  EXPECT_EQ(result.exitCode, 1);
  EXPECT_NE(result.error.find("error: --comm threads: mpirun has started 2 processes, and each of them would run all ranks by itself"),
            std::string::npos) << result.error;
}

TEST_F(Started, ALauncherThatStartsNoMpi) {
  setenv("RANK", "1", 1);
  setenv("WORLD_SIZE", "2", 1);
  setenv("LOCAL_RANK", "1", 1);
  const CliResult result = cli("zero-run", runFlags(plan, "2"));
  for (const char *name : {"RANK", "WORLD_SIZE", "LOCAL_RANK"})
    unsetenv(name);
  EXPECT_EQ(result.exitCode, 1);
  EXPECT_NE(result.error.find("error: torchrun has started rank 1 of 2, to "), std::string::npos) << result.error;
  EXPECT_NE(result.error.find("hint: torchrun starts no MPI: start with mpirun -n 2 zero-run"), std::string::npos) << result.error;
}

TEST_F(Started, WithoutTheSharedObjectOfMpi) {
  const std::string alone = folder + "/zero-run";
  fs::copy_file(binary("zero-run"), alone, fs::copy_options::overwrite_existing);
  expectRefused(cli(alone, with(runFlags(plan, "2"), {"--comm", "mpi"})),
                "error: --comm mpi: there is no " + folder + "/libzerocc_mpi.so: zerocc was built without an MPI\n  hint: install an MPI");
}

} // namespace
} // namespace zerocc::e2e
