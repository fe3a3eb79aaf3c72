#include "runtime/weights/compare.h"

#include "tests/runtime/data/temporary_folder.h"

#include <cmath>
#include <gtest/gtest.h>

namespace zerocc {
namespace {

class ComparisonTest : public testing::Test {
protected:
  TemporaryFolder folder_;
  std::string path_ = folder_ / "ref.npz";

  void SetUp() override {
    Expected<NpzWriter> writer = NpzWriter::create(path_);
    ASSERT_TRUE(writer);
    auto add = [&](const std::string &name, auto values) {
      ArrayView view;
      view.type = sizeof values[0] == 8 ? ElementType::f64 : ElementType::f32;
      view.elements = static_cast<int64_t>(values.size());
      view.dims = {view.elements};
      view.data = reinterpret_cast<const unsigned char *>(values.data());
      ASSERT_TRUE(writer->add(name, view));
    };
    add("loss", std::vector<double>{2, 1, 0.5});
    add("grad_norm", std::vector<double>{10, 5, 1});
    add("grad/a", std::vector<float>{1, -2, 0.5});
    add("grad/tiny", std::vector<float>{1e-9f});
    add("weight/a", std::vector<float>{1, 2, 3});
    add("weight/b", std::vector<float>{1});
    add("spread/b", std::vector<double>{0.01});
    add("spread/grad_norm", std::vector<double>{0, 0.25, 0.25});
    ASSERT_TRUE(writer->finish());
  }
};

TEST_F(ComparisonTest, PassesWhatIsNear) {
  Expected<Comparison> run = Comparison::open(path_);
  ASSERT_TRUE(run) << run.error().text();
  EXPECT_EQ(run->steps(), 3);
  EXPECT_EQ(run->gradients(), (std::vector<std::string>{"a", "tiny"}));
  EXPECT_FALSE(run->passed()); // nothing was compared
  for (auto [step, loss] : {std::pair<int64_t, double>(0, 2.0001), {1, 1.00005}, {2, 0.5}, {3, 99}})
    ASSERT_TRUE(run->compareLoss(step, loss));
  ASSERT_TRUE(run->compareGradient("a", 0, std::vector<float>{1}));
  ASSERT_TRUE(run->compareGradient("a", 1, std::vector<float>{-2.0001f, 0.5f}));
  ASSERT_TRUE(run->compareGradient("tiny", 0, std::vector<float>{-5e-9f})); // zero but for rounding
  ASSERT_TRUE(run->compareWeight("b", 0, std::vector<float>{1.03f}));       // drifts by itself
  EXPECT_TRUE(run->passed()) << run->report();
  EXPECT_EQ(run->missing(), std::vector<std::string>{"weight/a"});
  const Difference &loss = run->differences().at("loss");
  EXPECT_EQ(loss.at, 0);
  EXPECT_NEAR(loss.scaled(), 5e-5, 1e-9);
  EXPECT_EQ(loss.compared, 3);
}

TEST_F(ComparisonTest, NamesTheWorst) {
  Expected<Comparison> run = Comparison::open(path_);
  ASSERT_TRUE(run);
  ASSERT_TRUE(run->compareLoss(1, 1.5));
  ASSERT_TRUE(run->compareGradNorm(0, 10));
  ASSERT_TRUE(run->compareWeight("a", 0, std::vector<float>{1, 2.25, 3}));
  ASSERT_TRUE(run->compareWeight("b", 0, std::vector<float>{1}));
  EXPECT_FALSE(run->passed());
  EXPECT_EQ(run->report(),
            "loss, 1 differ; worst step 1: 1.5, recorded 1, off by 0.5, scaled 0.5\n"
            "grad_norm, within tolerance; worst step 0: 10, recorded 10, off by 0, scaled 0\n"
            "weight/: 2 tensors, 1 differ; worst a element 1: 2.25, recorded 2, off by 0.25, scaled "
            "0.083\n"
            "  differs: loss: step 1: 1.5, recorded 1, off by 0.5, scaled 0.5\n"
            "  differs: weight/a: element 1: 2.25, recorded 2, off by 0.25, scaled 0.083\n");
}

TEST_F(ComparisonTest, ANormMayDriftAsFarAsFourTimesItsRecordedSpread) {
  Expected<Comparison> run = Comparison::open(path_);
  ASSERT_TRUE(run);
  ASSERT_TRUE(run->compareGradNorm(1, 5.99));
  EXPECT_TRUE(run->passed()) << run->report();
  ASSERT_TRUE(run->compareGradNorm(0, 10.01)); // no drift is recorded of the first step
  EXPECT_FALSE(run->passed());
  EXPECT_EQ(run->differences().at("grad_norm").at, 0); // nearer, but further out of its tolerance
}

TEST_F(ComparisonTest, NaNNeverPasses) {
  Expected<Comparison> run = Comparison::open(path_);
  ASSERT_TRUE(run);
  ASSERT_TRUE(run->compareLoss(0, 2));
  ASSERT_TRUE(run->compareGradient("a", 0, std::vector<float>{1, NAN, 100}));
  EXPECT_FALSE(run->passed());
  EXPECT_EQ(run->differences().at("grad/a").at, 1);
  ASSERT_TRUE(run->compareLoss(1, NAN));
  ASSERT_TRUE(run->compareLoss(2, 0.5));
  EXPECT_EQ(run->differences().at("loss").at, 1);
  EXPECT_NE(run->report().find("loss, 1 differ; worst step 1: nan"), std::string::npos) << run->report();
}

TEST_F(ComparisonTest, RefusesAnotherModelsRecording) {
  Expected<Comparison> run = Comparison::open(path_);
  ASSERT_TRUE(run);
  EXPECT_FALSE(run->compareWeight("a", 1, std::vector<float>(3)));
  EXPECT_FALSE(run->compareWeight("c", 0, std::vector<float>(3)));
  EXPECT_FALSE(Comparison::open(path_, "clip/"));
  EXPECT_FALSE(Comparison::open(folder_ / "none.npz"));
}

TEST(Comparison, OfRunningStatistics) {
  Expected<Comparison> run = Comparison::open(ZEROCC_SOURCE_DIR "/models/mobilenet_torchscript.ref.npz");
  ASSERT_TRUE(run) << run.error().text();
  EXPECT_EQ(run->buffers().size(), 12u);
  ASSERT_TRUE(run->compareBuffer("blocks.0.bn1.running_var", 0, std::vector<float>(18, 1e3f)));
  EXPECT_FALSE(run->passed());
  EXPECT_NE(run->report().find("buffer/: 1 tensors, 1 differ; worst blocks.0.bn1.running_var"), std::string::npos)
      << run->report();
  EXPECT_EQ(run->missing().size(), 30u + 30 + 11);
}

TEST(Comparison, ReadsRecordedTrainings) {
  for (const char *prefix : {"", "clip/", "sgd/"}) {
    Expected<Comparison> run = Comparison::open(ZEROCC_SOURCE_DIR "/models/mlp.ref.npz", prefix);
    ASSERT_TRUE(run) << run.error().text();
    EXPECT_EQ(run->steps(), 20);
    EXPECT_EQ(run->weights().size(), 6u);
    EXPECT_EQ(run->missing().size(), 12u);
  }
}

} // namespace
} // namespace zerocc
