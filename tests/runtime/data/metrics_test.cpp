#include "runtime/data/metrics.h"

#include "tests/runtime/data/temporary_folder.h"

#include <cmath>
#include <gtest/gtest.h>

namespace zerocc {
namespace {

StepMetrics someStep(int64_t step) {
  StepMetrics metrics;
  metrics.step = step;
  metrics.loss = 0.1;
  metrics.lr = 1e-3;
  metrics.gradNorm = 1.25;
  metrics.stepMillis = 12.5;
  metrics.tokensPerSecond = 2048;
  return metrics;
}

TEST(Metrics, WritesOneObjectAStep) {
  TemporaryFolder folder;
  std::string path = folder / "m.jsonl";
  {
    Expected<MetricsFile> file = MetricsFile::open(path, false);
    ASSERT_TRUE(file);
    StepMetrics metrics = someStep(1);
    metrics.skipped = 0;
    metrics.memoryPeak = 4096;
    metrics.wireBytes = 12;
    ASSERT_TRUE(file->write(metrics));
  }
  Expected<MetricsFile> file = MetricsFile::open(path, true);
  ASSERT_TRUE(file);
  StepMetrics metrics;
  metrics.step = 2;
  metrics.loss = NAN;
  ASSERT_TRUE(file->write(metrics));
  EXPECT_EQ(readFile(path), "{\"step\":1,\"loss\":0.1,\"lr\":0.001,\"grad_norm\":1.25,\"step_ms\":12.5,"
                            "\"tokens_per_s\":2048,\"skipped\":0,\"memory_peak\":4096,\"wire_bytes\":12}\n"
                            "{\"step\":2,\"loss\":null}\n");
  EXPECT_FALSE(MetricsFile::open(folder / "no/m.jsonl", false));
}

TEST(Metrics, TheLongestLineFits) {
  StepMetrics metrics;
  metrics.step = metrics.skipped = metrics.memoryPeak = metrics.wireBytes = INT64_MAX;
  metrics.loss = metrics.lr = metrics.gradNorm = metrics.stepMillis = metrics.tokensPerSecond =
      metrics.evalLoss = -2.2250738585072014e-308;
  char line[512];
  int bytes = formatMetrics(metrics, line, sizeof line);
  EXPECT_EQ(line[bytes - 1], '\n');
  EXPECT_LT(bytes, int(sizeof line));
}

std::string shown(bool isTerminal, int steps, double secondsPerStep) {
  TemporaryFolder folder;
  std::FILE *out = std::fopen((folder / "out").c_str(), "w");
  Progress progress(out, isTerminal, 0, steps, 0);
  for (int step = 1; step <= steps; ++step)
    progress.step(someStep(step), step * secondsPerStep);
  progress.finish();
  std::fclose(out);
  return readFile(folder / "out");
}

TEST(Progress, ALogGetsALineEveryFiveSeconds) {
  EXPECT_EQ(shown(false, 100, 0.1),
            "step 1/100  loss 0.1000  norm 1.25  lr 0.001  2048 tokens/s  1%  10 s left\n"
            "step 51/100  loss 0.1000  norm 1.25  lr 0.001  2048 tokens/s  51%  5 s left\n"
            "step 100/100  loss 0.1000  norm 1.25  lr 0.001  2048 tokens/s  100%\n");
}

TEST(Progress, ATerminalGetsOneLineWrittenOver) {
  EXPECT_EQ(shown(true, 3, 100),
            "\rstep 1/3  loss 0.1000  norm 1.25  lr 0.001  2048 tokens/s  33%  3 min 20 s left\x1b[K"
            "\rstep 2/3  loss 0.1000  norm 1.25  lr 0.001  2048 tokens/s  66%  1 min 40 s left\x1b[K"
            "\rstep 3/3  loss 0.1000  norm 1.25  lr 0.001  2048 tokens/s  100%\x1b[K\n");
  std::string fast = shown(true, 1000, 0.001);
  EXPECT_LE(std::count(fast.begin(), fast.end(), '\r'), 12);
}

} // namespace
} // namespace zerocc
