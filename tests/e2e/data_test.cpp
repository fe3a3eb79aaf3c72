// Where data come from, through the command line: patterns, mixtures, Megatron, what run.json says of them.

#include "tests/e2e/cli.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>

namespace zerocc::e2e {
namespace {

/// `count` 16-bit tokens below 96, the vocabulary of gpt2_dynamo.
std::string tokens16(uint32_t seed, int count) {
  std::string bytes;
  for (int i = 0; i < count; ++i) {
    seed = seed * 1664525 + 1013904223;
    bytes += static_cast<char>((seed >> 16) % 96);
    bytes += '\0';
  }
  return bytes;
}

std::string planOf(const std::string &folder, const std::string &name, const std::vector<std::string> &more) {
  const std::string plan = folder + "/" + name + ".zplan";
  compile("gpt2_dynamo", plan, more);
  return plan;
}

CliResult run(const std::string &plan, const std::vector<std::string> &more) {
  std::vector<std::string> arguments = {plan, "--model", modelPath("gpt2_dynamo")};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return cli("zero-run", arguments);
}

/// The losses of a run that must succeed, as written.
std::vector<std::string> losses(const std::string &plan, std::vector<std::string> more) {
  more.insert(more.end(), {"--metrics", plan + ".jsonl"});
  CliResult result = run(plan, more);
  EXPECT_EQ(result.exitCode, 0) << result.error;
  return jsonTexts(readFile(plan + ".jsonl"), "loss");
}

TEST(Data, APatternOfFilesIsOneStream) {
  const std::string folder = scratch("data-pattern"), bytes = tokens16(1, 1000);
  writeFile(folder + "/whole.bin", bytes);
  writeFile(folder + "/s_00.bin", bytes.substr(0, 2 * 333));
  writeFile(folder + "/s_01.bin", bytes.substr(2 * 333, 2));
  writeFile(folder + "/s_02.bin", bytes.substr(2 * 334));
  const std::string plan = planOf(folder, "two", {"--ranks", "2", "--stage", "3"});
  const auto whole = losses(plan, {"--data", folder + "/whole.bin", "--steps", "8", "--shuffle", "--seed", "3"});
  ASSERT_EQ(whole.size(), 8u);
  EXPECT_EQ(losses(plan, {"--data", folder + "/s_*.bin", "--steps", "8", "--shuffle", "--seed", "3"}), whole);
  CliResult none = run(plan, {"--data", folder + "/t_*.bin", "--steps", "8"});
  EXPECT_EQ(none.exitCode, 1);
  EXPECT_NE(none.error.find("t_*.bin: matches no file"), std::string::npos) << none.error;
}

TEST(Data, AMixtureIsTheSameOnEveryMeshAndAfterAResume) {
  const std::string folder = scratch("data-mixture");
  writeFile(folder + "/a.bin", tokens16(1, 500));
  writeFile(folder + "/b_0.bin", tokens16(2, 300));
  writeFile(folder + "/b_1.bin", tokens16(3, 80));
  const std::string source = "mix:0.7*" + folder + "/a.bin,0.3*" + folder + "/b_*.bin";
  const std::vector<std::string> data = {"--data", source, "--shuffle", "--seed", "5"};
  auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), data.begin(), data.end());
    return more;
  };
  const std::string four = planOf(folder, "four", {"--ranks", "4", "--stage", "2", "--micro-batch", "1"});
  const std::string one = planOf(folder, "one", {"--grad-accumulation", "4", "--micro-batch", "1"});
  const auto whole = losses(four, with({"--steps", "12", "--export", folder + "/whole.safetensors"}));
  ASSERT_EQ(whole.size(), 12u);
  // 5 steps on four ranks, the rest resumed: bit for bit
  ASSERT_EQ(run(four, with({"--steps", "5", "--save", folder + "/saves"})).exitCode, 0);
  const auto resumed = losses(four, with({"--steps", "12", "--resume", folder + "/saves", "--export", folder + "/resumed.safetensors"}));
  EXPECT_EQ(resumed, whole); // rows 6 to 12 of the metrics are written again
  EXPECT_TRUE(readFile(folder + "/whole.safetensors") == readFile(folder + "/resumed.safetensors"));
  // the same samples on one rank: only sums are in another order
  const auto single = losses(one, with({"--steps", "12"}));
  for (size_t i = 0; i < whole.size(); ++i)
    EXPECT_NEAR(std::stod(single[i]), std::stod(whole[i]), 1e-5) << i;
  const auto otherSeed = losses(one, {"--data", source, "--shuffle", "--seed", "6", "--steps", "1"});
  EXPECT_NE(otherSeed[0], single[0]);

  CliResult described = run(one, with({"--steps", "1"}));
  EXPECT_NE(described.error.find("  70 %: " + folder + "/a.bin, a stream of u16, 15 samples"), std::string::npos) << described.error;
  EXPECT_NE(described.error.find("  30 %: " + folder + "/b_*.bin (2 files), a stream of u16, 11 samples"), std::string::npos)
      << described.error;
  CliResult wrong = run(one, {"--data", "mix:0.7*" + folder + "/a.bin,0.3*pipe:x", "--steps", "1"});
  EXPECT_EQ(wrong.exitCode, 1);
  EXPECT_NE(wrong.error.find("pipe: cannot be part of a mixture"), std::string::npos) << wrong.error;
}

/// A Megatron index of documents of one sequence each.
std::string megatronIndex(const std::vector<int32_t> &lengths) {
  std::string index("MMIDIDX\0\0", 9);
  auto add = [&](auto value) { index.append(reinterpret_cast<const char *>(&value), sizeof value); };
  add(uint64_t(1));
  add(uint8_t(8)); // u16
  add(uint64_t(lengths.size()));
  add(uint64_t(lengths.size() + 1));
  int64_t at = 0;
  for (int32_t length : lengths)
    add(length);
  for (int32_t length : lengths) {
    add(at);
    at += 2 * length;
  }
  for (size_t d = 0; d <= lengths.size(); ++d)
    add(int64_t(d));
  return index;
}

TEST(Data, MegatronTrainsAndEvaluatesAsTheSameTokensDo) {
  const std::string folder = scratch("data-megatron");
  std::filesystem::create_directories(folder + "/plain");
  std::filesystem::create_directories(folder + "/megatron");
  for (auto [name, seed, first] : {std::tuple("train", 1, 700), {"val", 2, 300}}) {
    const std::string bytes = tokens16(seed, 1000);
    writeFile(folder + "/plain/" + name + ".bin", bytes);
    writeFile(folder + "/megatron/" + name + ".bin", bytes);
    writeFile(folder + "/megatron/" + name + ".idx", megatronIndex({first, 1000 - first}));
  }
  const std::string plan = planOf(folder, "two", {"--ranks", "2", "--stage", "1"});
  std::vector<std::vector<std::string>> evaluations, trained;
  for (std::string kind : {"plain", "megatron"}) {
    trained.push_back(losses(plan, {"--data", folder + "/" + kind + "/train.bin", "--eval-data", folder + "/" + kind + "/val.bin",
                                    "--eval-every", "3", "--eval-batches", "4", "--steps", "6"}));
    evaluations.push_back(jsonTexts(readFile(plan + ".jsonl"), "eval_loss"));
  }
  ASSERT_EQ(evaluations[0].size(), 2u);
  EXPECT_EQ(trained[0], trained[1]);
  EXPECT_EQ(evaluations[0], evaluations[1]);
  writeFile(folder + "/megatron/val.idx", megatronIndex({300, 300}));
  CliResult cut = run(plan, {"--data", folder + "/megatron/train.bin", "--eval-data", folder + "/megatron/val.bin", "--steps", "1"});
  EXPECT_EQ(cut.exitCode, 1);
  EXPECT_NE(cut.error.find("val.idx: its sequences hold 600 tokens"), std::string::npos) << cut.error;
}

TEST(Data, RunJsonHoldsADigestOfEverySource) {
  const std::string folder = scratch("data-digest");
  writeFile(folder + "/a.bin", tokens16(1, 500));
  writeFile(folder + "/b_0.bin", tokens16(2, 300));
  writeFile(folder + "/b_1.bin", tokens16(3, 80));
  writeFile(folder + "/val.bin", tokens16(4, 200));
  const std::string plan = planOf(folder, "one", {});
  auto record = [&](const std::string &source) {
    CliResult result = run(plan, {"--data", source, "--eval-data", folder + "/val.bin", "--steps", "1", "--save", folder + "/saves"});
    EXPECT_EQ(result.exitCode, 0) << result.error;
    return readFile(folder + "/saves/run.json");
  };
  auto digests = [](const std::string &json) {
    std::vector<std::string> values = jsonTexts(json, "xxh3_64");
    values.pop_back(); // of the binary
    return values;
  };
  const std::string mixed = record("mix:2*" + folder + "/a.bin,1*" + folder + "/b_*.bin");
  const auto before = digests(mixed);
  ASSERT_EQ(before.size(), 3u) << mixed;
  EXPECT_EQ(jsonTexts(mixed, "files"), (std::vector<std::string>{" 1", " 2", " 1"}));
  EXPECT_EQ(jsonTexts(mixed, "bytes"), (std::vector<std::string>{" 1000", " 760", " 400"}));
  EXPECT_EQ(digests(record(folder + "/a.bin"))[0], before[0]);
  std::string bytes = readFile(folder + "/b_1.bin");
  bytes[40] ^= 1;
  writeFile(folder + "/b_1.bin", bytes);
  const auto after = digests(record("mix:2*" + folder + "/a.bin,1*" + folder + "/b_*.bin"));
  EXPECT_EQ(after[0], before[0]);
  EXPECT_NE(after[1], before[1]);
  EXPECT_EQ(after[2], before[2]);
}

} // namespace
} // namespace zerocc::e2e
