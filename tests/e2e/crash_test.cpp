// Killed at random moments, those of a save included, a run always finds a whole checkpoint and ends with the weights of
// a run that was never disturbed, bit for bit. ZEROCC_KILLS=N kills N times.

#include "tests/e2e/cli.h"

#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <random>

namespace zerocc::e2e {
namespace {

namespace fs = std::filesystem;

bool hasCheckpoint(const std::string &folder) {
  if (fs::exists(folder))
    for (const auto &entry : fs::directory_iterator(folder))
      if (std::string name = entry.path().filename(); name.find("-step-") != std::string::npos && !name.ends_with(".partial"))
        return true;
  return false;
}

bool hasPartial(const std::string &folder) {
  if (fs::exists(folder))
    for (const auto &entry : fs::directory_iterator(folder))
      if (entry.path().string().ends_with(".partial"))
        return true;
  return false;
}

TEST(Killed, AtRandomMomentsTheRunEndsWithTheSameWeights) {
  const char *wanted = std::getenv("ZEROCC_KILLS");
  const int target = wanted ? std::atoi(wanted) : 12;
  std::string plan = scratch("crash") + "/gpt.zplan", folder = scratch("crash") + "/saves";
  compile("gpt2_torchscript", plan, {"--ranks", "2", "--stage", "3", "--bucket-bytes", "12KiB"});
  int kills = 0, duringSave = 0;
  for (unsigned round = 0; kills < target; ++round) {
    const unsigned seed = 100 + round;
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const std::vector<std::string> base = {plan, "--model", modelPath("gpt2_torchscript"), "--data",
                                           source("models/gpt2_torchscript.data.npz"), "--shuffle", "--seed",
                                           std::to_string(seed), "--steps", std::to_string(60 + random() % 60)};
    std::string whole = scratch("crash") + "/whole.safetensors", parts = scratch("crash") + "/parts.safetensors";
    std::vector<std::string> all = base;
    all.insert(all.end(), {"--export", whole});
    ASSERT_EQ(cli("zero-run", all).exitCode, 0);
    fs::remove_all(folder);
    while (true) {
      std::vector<std::string> arguments = base;
      arguments.insert(arguments.end(), {"--export", parts, "--save", folder, "--save-every", "1", "--save-keep", "2"});
      if (hasCheckpoint(folder))
        arguments.insert(arguments.end(), {"--resume", folder});
      const bool isLast = kills >= target;
      CliResult result = isLast ? cli("zero-run", arguments)
                                : cliWithSignal("zero-run", arguments, 20 + static_cast<int>(random() % 250), SIGKILL);
      if (result.exitCode == 0)
        break;
      ASSERT_EQ(result.exitCode, 128 + SIGKILL) << result.error;
      ++kills;
      duringSave += hasPartial(folder);
    }
    ASSERT_TRUE(readFile(whole) == readFile(parts)) << "weights differ after " << kills << " kills";
  }
  RecordProperty("kills", kills);
  std::printf("%d kills, %d of them inside a save\n", kills, duringSave);
}

} // namespace
} // namespace zerocc::e2e
