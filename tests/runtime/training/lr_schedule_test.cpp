// Learning-rate schedules beside what DeepSpeed's schedulers did (deepspeed_schedules.txt, by record_schedules.py).

#include "runtime/plan/lr_schedule.h"

#include "runtime/plan/scalars.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <sstream>

namespace zerocc {
namespace {

std::vector<double> numbersOf(const std::string &text) {
  std::istringstream stream(text);
  std::vector<double> out;
  for (double number; stream >> number;)
    out.push_back(number);
  return out;
}

TEST(LrSchedule, FollowsDeepSpeed) {
  std::ifstream file(ZEROCC_SOURCE_DIR "/tests/runtime/training/deepspeed_schedules.txt");
  int cases = 0;
  for (std::string line; std::getline(file, line); ++cases) {
    const size_t first = line.find(" | "), second = line.find(" | ", first + 3);
    ASSERT_NE(second, std::string::npos) << line;
    const std::string schedule = line.substr(0, first);
    const std::vector<double> rates = numbersOf(line.substr(first + 3, second - first - 3));
    const std::vector<double> betas = numbersOf(line.substr(second + 3));
    double scalars[kScalars] = {};
    scalars[kScalarBaseLr] = 0.02;
    scalars[kScalarBeta1] = 0.9;
    Status written = writeSchedule(schedule, scalars);
    ASSERT_TRUE(bool(written)) << schedule << ": " << written.error().text();
    ASSERT_EQ(rates.size(), 24u) << schedule;
    for (size_t i = 0; i < rates.size(); ++i) {
      scalars[kScalarUpdates] = static_cast<double>(i);
      EXPECT_NEAR(scheduledRate(scalars), rates[i], 1e-12) << schedule << ", update " << i;
      EXPECT_NEAR(scheduledBeta1(scalars), betas[i], 1e-12) << schedule << ", update " << i;
    }
  }
  EXPECT_EQ(cases, 12);
}

TEST(LrSchedule, OursWarmUpThenFall) {
  double scalars[kScalars] = {};
  scalars[kScalarBaseLr] = 1;
  scalars[kScalarWarmupSteps] = 4;
  scalars[kScalarTotalSteps] = 14;
  scalars[kScalarMinLr] = 0.2;
  auto at = [&](const char *schedule, double step) {
    EXPECT_TRUE(bool(writeSchedule(schedule, scalars)));
    scalars[kScalarStep] = step;
    return scheduledRate(scalars);
  };
  EXPECT_DOUBLE_EQ(at("constant", 0), 0.25);
  EXPECT_DOUBLE_EQ(at("constant", 9), 1);
  EXPECT_DOUBLE_EQ(at("linear", 9), 0.6);
  EXPECT_DOUBLE_EQ(at("cosine", 9), 0.6);
  EXPECT_DOUBLE_EQ(at("cosine", 99), 0.2);
}

TEST(LrSchedule, RefusesWhatItDoesNotKnow) {
  auto message = [](const char *schedule) {
    Status status = checkSchedule(schedule);
    return status ? std::string("accepted") : status.error().text();
  };
  EXPECT_NE(message("WarmupLr").find("there is no learning-rate schedule \"WarmupLr\""), std::string::npos);
  EXPECT_NE(message("WarmupLR:warmup_steps=3").find("has no key \"warmup_steps\""), std::string::npos);
  EXPECT_NE(message("WarmupLR:warmup_num_steps=many").find("\"many\" is not a number"), std::string::npos);
  EXPECT_NE(message("WarmupLR:warmup_num_steps=0").find("must be at least 1"), std::string::npos);
  EXPECT_NE(message("WarmupLR:warmup_type=cubic").find("it is log or linear"), std::string::npos);
  EXPECT_NE(message("cosine:min=1").find("it has none"), std::string::npos);
}

} // namespace
} // namespace zerocc
