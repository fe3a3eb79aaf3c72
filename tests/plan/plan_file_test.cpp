// The plan file: what is written is read back, the same bytes each time; anything else is refused by name.

#include "runtime/plan/plan.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

namespace zerocc {
namespace {

plan::Plan smallPlan() {
  plan::Plan plan;
  plan.set_version(kPlanVersion);
  plan.set_micro_steps(2);
  plan.mutable_provenance()->set_compiler_version("0.1.0");
  (*plan.mutable_facts()->mutable_peak_kinds())["inputs"] = 3;
  (*plan.mutable_facts()->mutable_peak_kinds())["constants"] = 4;
  plan.mutable_defaults()->set_lr(0.5);
  return plan;
}

std::string messageOf(const std::string &bytes) {
  auto plan = decodePlan(bytes, "p.zplan");
  return plan ? "accepted" : plan.error().findings()[0].message;
}

std::string readFile(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

class PlanFile : public testing::Test {
protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "zerocc_plan_file_test";
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    path_ = folder_ + "/p.zplan";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string folder_, path_;
};

TEST_F(PlanFile, IsReadAsWritten) {
  ASSERT_TRUE(savePlan(smallPlan(), path_));
  auto plan = loadPlan(path_);
  ASSERT_TRUE(plan) << plan.error().text();
  EXPECT_EQ(encodePlan(*plan), encodePlan(smallPlan()));
  EXPECT_EQ(readFile(path_), encodePlan(smallPlan()));
}

TEST_F(PlanFile, ReplacesAnOldPlanAndLeavesNothingBeside) {
  ASSERT_TRUE(savePlan(smallPlan(), path_));
  plan::Plan other = smallPlan();
  other.set_micro_steps(3);
  ASSERT_TRUE(savePlan(other, path_));
  EXPECT_EQ(loadPlan(path_)->micro_steps(), 3u);
  int files = 0;
  for ([[maybe_unused]] const auto &entry : std::filesystem::directory_iterator(folder_))
    ++files;
  EXPECT_EQ(files, 1);
}

TEST_F(PlanFile, RefusesPathsThatAreNoFiles) {
  auto missing = loadPlan(folder_ + "/missing.zplan");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().findings()[0].message,
            folder_ + "/missing.zplan: cannot be read: No such file or directory");
  auto folder = loadPlan(folder_);
  ASSERT_FALSE(folder);
  EXPECT_EQ(folder.error().findings()[0].message, folder_ + ": is not a file");
  Status nowhere = savePlan(smallPlan(), folder_ + "/no/such/folder.zplan");
  ASSERT_FALSE(nowhere);
}

TEST(PlanBytes, AreTheSameForEqualPlans) { EXPECT_EQ(encodePlan(smallPlan()), encodePlan(smallPlan())); }

TEST(PlanBytes, OfSomethingElseAreRefused) {
  EXPECT_EQ(messageOf(""), "p.zplan: is not a zerocc plan");
  EXPECT_EQ(messageOf("\x08\x07onnx model"), "p.zplan: is not a zerocc plan");
  EXPECT_EQ(messageOf(encodePlan(smallPlan()).substr(0, 20)), "p.zplan: plan is cut off after 20 bytes");
}

TEST(PlanBytes, ThatAreDamagedAreRefused) {
  const std::string whole = encodePlan(smallPlan());
  for (size_t at = 8; at < whole.size(); ++at) {
    std::string bytes = whole;
    bytes[at] ^= 1;
    EXPECT_EQ(messageOf(bytes).rfind("p.zplan: plan is damaged: its checksum is ", 0), 0u) << "byte " << at;
  }
  for (size_t size = 24; size < whole.size(); ++size)
    EXPECT_NE(messageOf(whole.substr(0, size)), "accepted") << size << " bytes";
  EXPECT_NE(messageOf(whole + "x"), "accepted");
}

TEST(PlanBytes, OfAnotherFramingAreRefused) {
  std::string bytes = encodePlan(smallPlan());
  bytes[7] = 9;
  EXPECT_EQ(messageOf(bytes), "p.zplan: plan file has framing 9, this program reads framing 1");
}

TEST(PlanBytes, OfAnotherVersionAreRefused) {
  plan::Plan plan = smallPlan();
  plan.set_version(kPlanVersion + 1);
  auto newer = decodePlan(encodePlan(plan), "p.zplan");
  ASSERT_FALSE(newer);
  const std::string reads = ", this program reads version " + std::to_string(kPlanVersion);
  EXPECT_EQ(newer.error().findings()[0].message, "p.zplan: plan has version " +
                                                     std::to_string(kPlanVersion + 1) + reads +
                                                     " (written by zerocc 0.1.0)");
  EXPECT_EQ(newer.error().findings()[0].hint, "use a zero-run as new as the zerocc that wrote it");
  plan.set_version(0);
  auto older = decodePlan(encodePlan(plan), "p.zplan");
  ASSERT_FALSE(older);
  EXPECT_EQ(older.error().findings()[0].message,
            "p.zplan: plan has version 0" + reads + " (written by zerocc 0.1.0)");
  EXPECT_EQ(older.error().findings()[0].hint, "compile the model again");
}

TEST(PlanFingerprint, LeavesRunTimeValuesOut) {
  plan::Plan plan = smallPlan();
  std::string before = planFingerprint(plan);
  EXPECT_EQ(before.size(), 32u);
  plan.mutable_defaults()->set_lr(0.25);
  plan.mutable_provenance()->set_command("another");
  EXPECT_EQ(planFingerprint(plan), before);
  plan.set_micro_steps(7);
  EXPECT_NE(planFingerprint(plan), before);
}

} // namespace
} // namespace zerocc
