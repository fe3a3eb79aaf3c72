// Data from a command, through the command line.

#include "runtime/data/pipe_frame.h"
#include "tests/e2e/cli.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <filesystem>

namespace zerocc::e2e {
namespace {

constexpr int kLength = 32, kFrames = 48; // tokens of a sample of gpt2_dynamo

int tokenAt(int position) { return (position * 7 + position / 5) % 96; }

/// Tokens as .bin, and as frames of `microBatch` samples with the labels' column, each with its place as token.
std::string tokenFile() {
  std::string bytes;
  for (int i = 0; i <= kFrames * kLength; ++i) {
    bytes += static_cast<char>(tokenAt(i));
    bytes += '\0';
  }
  return bytes;
}

std::string frameFile(int microBatch) {
  std::string all;
  for (int f = 0; f < kFrames / microBatch; ++f) {
    PipeFrame frame;
    frame.number = static_cast<uint64_t>(f);
    frame.token = "00" + std::to_string(10 + f); // all of one length, so that frames are
    frame.arrays = {{"input_ids", ElementType::u8, {microBatch, kLength + 1}, microBatch * (kLength + 1)}};
    all += pipeFrameHeader(frame);
    for (int b = 0; b < microBatch; ++b)
      for (int i = 0; i <= kLength; ++i)
        all += static_cast<char>(tokenAt((f * microBatch + b) * kLength + i));
  }
  return all;
}

std::string planOf(const std::string &folder, const std::string &name, std::vector<std::string> more) {
  const std::string plan = folder + "/" + name + ".zplan";
  compile("gpt2_dynamo", plan, more);
  return plan;
}

CliResult run(const std::string &plan, const std::vector<std::string> &more) {
  std::vector<std::string> arguments = {plan, "--model", modelPath("gpt2_dynamo")};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return cli("zero-run", arguments);
}

std::vector<std::string> losses(const std::string &plan, std::vector<std::string> more) {
  more.insert(more.end(), {"--metrics", plan + ".jsonl"});
  CliResult result = run(plan, more);
  EXPECT_EQ(result.exitCode, 0) << result.error;
  return jsonTexts(readFile(plan + ".jsonl"), "loss");
}

TEST(Pipe, TrainsAndEvaluatesAsTheSameTokensInAFileOnEveryMesh) {
  const std::string folder = scratch("pipe");
  writeFile(folder + "/t.bin", tokenFile());
  writeFile(folder + "/frames", frameFile(1));
  const std::string pipe = "pipe:cat " + folder + "/frames";
  for (std::vector<std::string> mesh : {std::vector<std::string>{"--ranks", "4", "--stage", "3"},
                                        {"--ranks", "2", "--stage", "2", "--grad-accumulation", "2"},
                                        {"--grad-accumulation", "4"}}) {
    mesh.insert(mesh.end(), {"--micro-batch", "1"});
    const std::string plan = planOf(folder, "plan", mesh);
    auto with = [&](const std::string &source) {
      return std::vector<std::string>{"--data", source, "--eval-data", source, "--eval-every", "4", "--eval-batches", "3",
                                      "--steps", "10", "--export", folder + "/weights.safetensors"};
    };
    const auto fromFile = losses(plan, with(folder + "/t.bin"));
    const std::string evaluations = readFile(plan + ".jsonl"), weights = readFile(folder + "/weights.safetensors");
    ASSERT_EQ(fromFile.size(), 10u);
    EXPECT_EQ(losses(plan, with(pipe)), fromFile);
    EXPECT_EQ(jsonTexts(readFile(plan + ".jsonl"), "eval_loss"), jsonTexts(evaluations, "eval_loss"));
    EXPECT_TRUE(readFile(folder + "/weights.safetensors") == weights);
  }
}

TEST(Pipe, AResumedRunHandsItsTokenBack) {
  const std::string folder = scratch("pipe-resume"), frames = frameFile(2);
  writeFile(folder + "/frames", frames);
  const size_t frameBytes = frames.size() / (kFrames / 2);
  // begins behind the frame whose token it gets; says so
  writeFile(folder + "/feed.sh", "case \"$ZEROCC_PIPE_RESUME\" in\n"
                                 "'') skip=0 ;;\n"
                                 "*) echo \"resume=$ZEROCC_PIPE_RESUME samples=$ZEROCC_PIPE_SAMPLES\" >&2\n"
                                 "   skip=$((${ZEROCC_PIPE_RESUME#00} - 9)) ;;\n"
                                 "esac\n"
                                 "tail -c +$((1 + skip * " + std::to_string(frameBytes) + ")) " + folder + "/frames\n");
  const std::string source = "pipe:sh " + folder + "/feed.sh";
  const std::string plan = planOf(folder, "plan", {"--ranks", "2", "--stage", "3"});
  const auto whole = losses(plan, {"--data", source, "--steps", "10", "--export", folder + "/whole.safetensors"});
  ASSERT_EQ(whole.size(), 10u);
  ASSERT_EQ(run(plan, {"--data", source, "--steps", "4", "--save", folder + "/saves"}).exitCode, 0);
  std::filesystem::remove(plan + ".jsonl");
  CliResult resumed = run(plan, {"--data", source, "--steps", "10", "--resume", folder + "/saves", "--metrics", plan + ".jsonl",
                                 "--export", folder + "/resumed.safetensors"});
  ASSERT_EQ(resumed.exitCode, 0) << resumed.error;
  EXPECT_NE(resumed.error.find("resume=0017 samples=16"), std::string::npos) << resumed.error; // 4 steps of 2 frames of 2
  EXPECT_EQ(jsonTexts(readFile(plan + ".jsonl"), "loss"), (std::vector<std::string>(whole.begin() + 4, whole.end())));
  EXPECT_TRUE(readFile(folder + "/whole.safetensors") == readFile(folder + "/resumed.safetensors"));
  // on another number of ranks: the same position
  const std::string one = planOf(folder, "one", {});
  CliResult alone = run(one, {"--data", source, "--steps", "12", "--resume", folder + "/saves"});
  EXPECT_EQ(alone.exitCode, 0) << alone.error;
  EXPECT_NE(alone.error.find("resume=0017 samples=16"), std::string::npos) << alone.error;
}

TEST(Pipe, ACommandThatFailsIsNamedAndNothingIsLeftRunning) {
  const std::string folder = scratch("pipe-fails");
  writeFile(folder + "/frames", frameFile(1));
  const std::string plan = planOf(folder, "plan", {"--ranks", "2", "--stage", "3", "--micro-batch", "1"});
  auto fails = [&](const std::string &source, const std::string &message, const std::vector<std::string> &more = {}) {
    std::vector<std::string> arguments = {"--data", source, "--steps", "100"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const auto begin = std::chrono::steady_clock::now();
    CliResult result = run(plan, arguments);
    EXPECT_NE(result.exitCode, 0) << source;
    EXPECT_NE(result.error.find(message), std::string::npos) << source << "\n" << result.error;
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30)) << source;
  };
  fails("pipe:cat " + folder + "/frames; exit 4", "frame 48: ends after 0 of 40 bytes; the command exited with status 4");
  fails("pipe:cat " + folder + "/frames; sleep 1000", "frame 48: did not come within 2 seconds: the command stalls",
        {"--timeout", "4"});
  fails("pipe:head -c 1000 " + folder + "/frames; kill -TERM $$", "the command was killed by signal 15");
  fails("pipe:cat " + modelPath("mlp"), "frame 0: does not begin with ZPIP");
  fails("pipe:cat " + folder + "/frames", "--shuffle: the order of pipe:cat", {"--shuffle"});
  fails("pipe: ", "names no command");

  // a run that ends ends a command that goes on
  const std::string mark = folder + "/mark";
  CliResult endless = run(plan, {"--data", "pipe:trap 'echo ended > " + mark + "; exit' TERM; cat " + folder + "/frames; while :; do sleep 0.05; done",
                                 "--steps", "3"});
  EXPECT_EQ(endless.exitCode, 0) << endless.error;
  EXPECT_EQ(readFile(mark), "ended\n");
}

TEST(Pipe, FeedsInference) {
  const std::string folder = scratch("pipe-infer");
  writeFile(folder + "/t.bin", tokenFile());
  std::string frames; // without labels: no column more
  for (int f = 0; f < 6; ++f) {
    PipeFrame frame;
    frame.number = static_cast<uint64_t>(f);
    frame.arrays = {{"input_ids", ElementType::u8, {2, kLength}, 2 * kLength}};
    frames += pipeFrameHeader(frame);
    for (int i = 0; i < 2 * kLength; ++i)
      frames += static_cast<char>(tokenAt(f * 2 * kLength + i));
  }
  writeFile(folder + "/frames", frames);
  const std::string plan = planOf(folder, "plan", {"--mode", "inference", "--ranks", "3", "--stage", "3"});
  for (auto [source, output] : {std::pair(folder + "/t.bin", "f.npy"), {"pipe:cat " + folder + "/frames", "p.npy"}}) {
    CliResult result = run(plan, {"--data", source, "--steps", "2", "--output", folder + "/" + output});
    EXPECT_EQ(result.exitCode, 0) << result.error;
  }
  const std::string expected = readFile(folder + "/f.npy");
  EXPECT_GT(expected.size(), 1000u);
  EXPECT_TRUE(readFile(folder + "/p.npy") == expected);
  CliResult endless = run(plan, {"--data", "pipe:cat " + folder + "/frames", "--output", folder + "/x.npy"});
  EXPECT_EQ(endless.exitCode, 1);
  EXPECT_NE(endless.error.find("give --steps N"), std::string::npos) << endless.error;
}

} // namespace
} // namespace zerocc::e2e
