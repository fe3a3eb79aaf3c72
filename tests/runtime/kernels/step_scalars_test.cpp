#include "runtime/plan/loss_scale.h"
#include "runtime/plan/lr_schedule.h"
#include "runtime/plan/scalars.h"
#include "tests/runtime/kernels/kernel_case.h"

#include <cmath>
#include <fstream>
#include <sstream>

namespace zerocc {
namespace {

struct Step {
  std::vector<double> scalars = std::vector<double>(kScalars, 0.0);
  int64_t shard = 2, replicate = 1;

  Step() {
    scalars[kScalarBaseLr] = 0.1;
    scalars[kScalarBeta1] = 0.9;
    scalars[kScalarBeta2] = 0.99;
    scalars[kScalarStaticCount] = 8;
    scalars[kScalarLossScale] = 1;
  }
  /// One step on rows of [loss, count, (squares, 1 + first element that is not finite or 0)…].
  void run(const std::vector<std::vector<double>> &rows) {
    std::vector<double> flat;
    for (const std::vector<double> &row : rows)
      flat.insert(flat.end(), row.begin(), row.end());
    Tensor exchanged =
        tensorOf(DType::f64, {static_cast<int64_t>(rows.size()), static_cast<int64_t>(rows[0].size())}, flat);
    Tensor block = tensorOf(DType::f64, {kScalars}, scalars);
    Attributes attributes = {{"mesh_shard", shard}, {"mesh_replicate", replicate}};
    Expected<KernelCall> call = prepareCall(OpKind::StepScalars, attributes, {&exchanged, &block}, {&block});
    ASSERT_TRUE(call) << call.error().text();
    call->run(*call);
    scalars.assign(block.data<double>(), block.data<double>() + kScalars);
  }
  double operator[](int i) const { return scalars[i]; }
};

TEST(StepScalars, MeansOverAllRanks) {
  Step s;
  s.run({{10, 3, 4, 0, 1, 0}, {20, 2, 3, 0, 8, 0}});
  EXPECT_EQ(s[kScalarLoss], 6);
  EXPECT_EQ(s[kScalarCount], 5);
  EXPECT_EQ(s[kScalarFactor], 8.0 / 5);
  EXPECT_EQ(s[kScalarGradNorm], 4 * 8.0 / 5);
  EXPECT_EQ(s[kScalarSkip], 0);
  EXPECT_EQ(s[kScalarStep], 1);
  EXPECT_EQ(s[kScalarUpdates], 1);
  EXPECT_EQ(s[kScalarLr], 0.1);
  EXPECT_NEAR(s[kScalarCorrection1], 0.1, 1e-15);
  EXPECT_NEAR(s[kScalarCorrection2], 0.01, 1e-15);
  s.run({{1, 1, 0, 0}, {1, 1, 0, 0}});
  EXPECT_NEAR(s[kScalarCorrection1], 1 - 0.81, 1e-15);
}

TEST(StepScalars, TheFirstReplicaGivesTheNorm) {
  Step s;
  s.replicate = 2;
  s.run({{1, 2, 9, 0}, {1, 2, 16, 0}, {1, 2, 1e6, 0}, {1, 2, 1e6, 0}});
  EXPECT_EQ(s[kScalarCount], 8);
  EXPECT_EQ(s[kScalarGradNorm], 5);
}

TEST(StepScalars, ClipsAsTorch) {
  Step s;
  s.scalars[kScalarClip] = 2;
  s.run({{1, 4, 9, 0}, {1, 4, 16, 0}});
  EXPECT_EQ(s[kScalarGradNorm], 5);
  EXPECT_EQ(s[kScalarFactor], 2 / (5 + 1e-6));
  s.scalars[kScalarClip] = 6;
  s.run({{1, 4, 9, 0}, {1, 4, 16, 0}});
  EXPECT_EQ(s[kScalarFactor], 1);
}

TEST(StepScalars, SkipsWhatIsNotFinite) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  std::vector<std::vector<std::vector<double>>> bad = {{{1, 4, 1, 0}, {1, 4, 1, 2}},
                                                       {{1, 4, 1, 0}, {1, 4, kInf, 0}},
                                                       {{std::nan(""), 4, 1, 0}, {1, 4, 1, 0}},
                                                       {{1, 0, std::nan(""), 0}, {1, 0, 1, 0}}};
  for (const auto &rows : bad) {
    Step s;
    s.run(rows);
    EXPECT_EQ(s[kScalarSkip], 1);
    EXPECT_EQ(s[kScalarSkipped], 1);
    EXPECT_EQ(s[kScalarUpdates], 0);
    EXPECT_EQ(s[kScalarStep], 1);
    s.run({{1, 4, 1, 0}, {1, 4, 1, 0}});
    EXPECT_EQ(s[kScalarSkip], 0);
    EXPECT_EQ(s[kScalarSkipped], 1);
    EXPECT_EQ(s[kScalarUpdates], 1);
  }
}

TEST(StepScalars, NamesWhatWasFirstNotFinite) {
  Step s;
  s.run({{1, 4, 1, 0, 1, 0}, {1, 4, 1, 0, 1, 0}});
  EXPECT_EQ(s[kScalarSkippedInRow], 0);
  s.run({{1, 4, 1, 0, 1, 6}, {1, 4, 1, 0, 1, 3}}); // rank 0 owns the first elements of a bucket
  EXPECT_EQ(s[kScalarSkippedInRow], 1);
  EXPECT_EQ(s[kScalarBadStep], 1);
  EXPECT_EQ(s[kScalarBadBucket], 1);
  EXPECT_EQ(s[kScalarBadElement], 5);
  s.run({{1, 4, 1, 9, 1, 0}, {1, 4, 1, 0, 1, 0}}); // the row's first is kept
  EXPECT_EQ(s[kScalarSkippedInRow], 2);
  EXPECT_EQ(s[kScalarBadStep], 1);
  EXPECT_EQ(s[kScalarBadBucket], 1);
  s.run({{1, 4, 1, 0, 1, 0}, {1, 4, 1, 0, 1, 0}});
  EXPECT_EQ(s[kScalarSkippedInRow], 0);
  s.run({{1, 4, 1, 0, 1, 7}, {1, 4, 1, 41, 1, 0}}); // the first bucket, whoever holds its part
  EXPECT_EQ(s[kScalarBadStep], 4);
  EXPECT_EQ(s[kScalarBadBucket], 0);
  EXPECT_EQ(s[kScalarBadElement], 40);
  s.run({{1, 4, 1, 0, 1, 0}, {1, 4, 1, 0, 1, 0}});
  s.run({{INFINITY, 4, 1, 0, 1, 0}, {1, 4, 1, 0, 1, 0}});
  EXPECT_EQ(s[kScalarBadBucket], -1);
}

TEST(StepScalars, TakesTheLossScaleOutOfNormAndFactor) {
  Step s, scaled;
  scaled.scalars[kScalarLossScale] = 1024;
  s.scalars[kScalarClip] = scaled.scalars[kScalarClip] = 2;
  s.run({{1, 4, 9, 0}, {1, 4, 16, 0}});
  scaled.run({{1, 4, 9.0 * 1024 * 1024, 0}, {1, 4, 16.0 * 1024 * 1024, 0}});
  EXPECT_EQ(scaled[kScalarLoss], s[kScalarLoss]);
  EXPECT_EQ(scaled[kScalarGradNorm], s[kScalarGradNorm]);
  EXPECT_EQ(scaled[kScalarFactor], s[kScalarFactor] / 1024);
  EXPECT_EQ(scaled[kScalarLossScale], 1024); // static
}

/// tests/runtime/kernels/loss_scales.txt: "window hysteresis least | overflows | scales", by record_loss_scales.py.
TEST(StepScalars, MovesTheLossScaleAsDeepSpeed) {
  std::ifstream file(ZEROCC_SOURCE_DIR "/tests/runtime/kernels/loss_scales.txt");
  int cases = 0;
  for (std::string line; std::getline(file, line); ++cases) {
    std::istringstream text(line);
    double power, window, hysteresis, least;
    std::string bar, overflows;
    ASSERT_TRUE(text >> power >> window >> hysteresis >> least >> bar >> overflows >> bar) << line;
    Step s;
    writeLossScale(std::ldexp(1, static_cast<int>(power)), true, window, hysteresis, least, s.scalars.data());
    for (size_t i = 0; i < overflows.size(); ++i) {
      const double bad = overflows[i] == 'x' ? 1 : 0;
      s.run({{1, 4, 1, 0}, {1, 4, 1, bad}});
      EXPECT_EQ(s[kScalarSkip], bad);
      double scale = 0;
      ASSERT_TRUE(text >> scale);
      EXPECT_EQ(s[kScalarLossScale], scale) << line << ", step " << i;
    }
  }
  EXPECT_EQ(cases, 6);
}

/// The rates of tests/runtime/training/deepspeed_schedules.txt, step by step: nothing that a step writes may lie on what
/// the schedule reads.
TEST(StepScalars, KeepsTheSchedule) {
  std::ifstream file(ZEROCC_SOURCE_DIR "/tests/runtime/training/deepspeed_schedules.txt");
  int cases = 0;
  for (std::string line; std::getline(file, line); ++cases) {
    const size_t first = line.find(" | ");
    Step s;
    s.scalars[kScalarBaseLr] = 0.02;
    ASSERT_TRUE(bool(writeSchedule(line.substr(0, first), s.scalars.data()))) << line;
    std::istringstream rates(line.substr(first + 3));
    for (double rate = 0; rates >> rate;) {
      s.run({{1, 4, 1, 0}, {1, 4, 1, 0}});
      EXPECT_NEAR(s[kScalarLr], rate, 1e-12) << line.substr(0, first) << ", update " << s[kScalarUpdates];
    }
    EXPECT_EQ(s[kScalarUpdates], 24);
  }
  EXPECT_EQ(cases, 12);
}

TEST(StepScalars, WithoutLabelsThereIsNothingToLearn) {
  Step s;
  s.run({{0, 0, 0, 0}, {0, 0, 0, 0}});
  EXPECT_EQ(s[kScalarFactor], 0);
  EXPECT_EQ(s[kScalarLoss], 0);
  EXPECT_EQ(s[kScalarSkip], 0);
  EXPECT_EQ(s[kScalarUpdates], 1);
}

double rateAt(int schedule, double step) {
  Step s;
  s.scalars[kScalarSchedule] = schedule;
  s.scalars[kScalarWarmupSteps] = 4;
  s.scalars[kScalarTotalSteps] = 24;
  s.scalars[kScalarMinLr] = 0.02;
  s.scalars[kScalarStep] = step;
  s.run({{1, 4, 1, 0}, {1, 4, 1, 0}});
  return s[kScalarLr];
}

TEST(StepScalars, Schedules) {
  for (int schedule : {0, 1, 2}) {
    EXPECT_DOUBLE_EQ(rateAt(schedule, 0), 0.025);
    EXPECT_DOUBLE_EQ(rateAt(schedule, 3), 0.1);
    EXPECT_DOUBLE_EQ(rateAt(schedule, 4), 0.1);
  }
  EXPECT_DOUBLE_EQ(rateAt(0, 20), 0.1);
  EXPECT_DOUBLE_EQ(rateAt(1, 14), 0.06);
  EXPECT_DOUBLE_EQ(rateAt(1, 24), 0.02);
  EXPECT_DOUBLE_EQ(rateAt(1, 99), 0.02);
  EXPECT_DOUBLE_EQ(rateAt(2, 14), 0.06);
  EXPECT_DOUBLE_EQ(rateAt(2, 9), 0.02 + 0.04 * (1 + std::cos(M_PI / 4)));
  EXPECT_DOUBLE_EQ(rateAt(2, 99), 0.02);
}

} // namespace
} // namespace zerocc
