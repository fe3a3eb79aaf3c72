// Plans of a real model, run: what the communicators have counted is what the report says.

#include "runtime/executor/rank_group.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/report.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace zerocc {
namespace {

struct Flags {
  const char *name, *text;
};

class Traffic : public testing::TestWithParam<Flags> {};

TEST_P(Traffic, IsWhatCommunicatorsCount) {
  std::string path = testing::TempDir() + "/traffic_" + GetParam().name + ".zplan";
  std::string models = std::string(ZEROCC_SOURCE_DIR) + "/models/gpt2_dynamo";
  std::string command = std::string(ZEROCC_BIN_DIR) + "/zerocc compile " + models + ".onnx -o " + path +
                        " --args " + models + ".args " + GetParam().text + " > /dev/null 2>&1";
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
  Expected<plan::Plan> plan = loadPlan(path);
  ASSERT_TRUE(static_cast<bool>(plan));
  TrafficReport report = reportTraffic(*plan);
  EXPECT_GE(report.padding(), 0);

  auto group = RankGroup::create(*plan);
  ASSERT_TRUE(static_cast<bool>(group)) << group.error().text();
  for (const plan::Segment &segment : plan->segments())
    for (int64_t run = 0; run < runsPerStep(*plan, segment); ++run)
      ASSERT_TRUE(static_cast<bool>((*group)->runSegment(segment.name())));
  for (int rank = 0; rank < (*group)->ranks(); ++rank) {
    zerocc::Traffic counted = (*group)->executor(rank).traffic();
    EXPECT_EQ(counted.allGather, report.step.allGather) << "rank " << rank;
    EXPECT_EQ(counted.reduceScatter, report.step.reduceScatter) << "rank " << rank;
    EXPECT_EQ(counted.allReduce, report.step.allReduce) << "rank " << rank;
    EXPECT_EQ(counted.exchange, report.step.exchange) << "rank " << rank;
  }
  int64_t before = (*group)->executor(0).traffic().total();
  ASSERT_TRUE(static_cast<bool>((*group)->runSegment("eval")));
  EXPECT_EQ((*group)->executor(0).traffic().total() - before, report.eval.total());
}

INSTANTIATE_TEST_SUITE_P(
    Plans, Traffic,
    testing::Values(Flags{"one_rank", "--ranks 1"}, Flags{"stage0", "--ranks 2 --stage 0"},
                    Flags{"stage1", "--ranks 3 --stage 1 --grad-accumulation 2"},
                    Flags{"stage2", "--ranks 2 --stage 2 --grad-accumulation 4 --clip-grad-norm 1"},
                    Flags{"stage3", "--ranks 4 --stage 3 --grad-accumulation 3"},
                    Flags{"stage3_boundary", "--ranks 2 --stage 3 --grad-accumulation 3 --reduce boundary"},
                    Flags{"keep", "--ranks 2 --stage 3 --keep"},
                    Flags{"replicas", "--mesh shard=2,replicate=2 --stage 3 --grad-accumulation 2"},
                    Flags{"only_replicas", "--mesh shard=1,replicate=3 --stage 0"},
                    Flags{"replicas0", "--mesh shard=2,replicate=2 --stage 0"}),
    [](const auto &info) { return std::string(info.param.name); });

} // namespace
} // namespace zerocc
