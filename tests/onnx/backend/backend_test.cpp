// Runs the ONNX project's own backend tests. What is refused has to be expected (backend_expectations.txt);
// what is imported has to give the suite's results in the double interpreter and, where there are kernels, in
// these, and its gradients have to be those of finite differences.
//
//   ZEROCC_ONNX_BACKEND_TESTS=DIR   the suite, unpacked; else the archive of the checkout is
//   ZEROCC_BACKEND_UPDATE=1         rewrites the expectations, keeping the reasons
//   ZEROCC_BACKEND_ONLY=PART        only cases whose name contains PART
//   ZEROCC_VERBOSE=1                every refusal with its reason

#include "tests/onnx/backend/table.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <set>

namespace zerocc {
namespace {

namespace fs = std::filesystem;

class Backend : public testing::Test {
protected:
  static void SetUpTestSuite() {
    root_ = findSuite(whyNot_);
    if (root_.empty())
      return;
    std::string why;
    std::optional<Expectations> read = Expectations::read(expectationsPath(), why);
    ASSERT_TRUE(read) << why;
    expectations_ = std::move(*read);
    const char *only = std::getenv("ZEROCC_BACKEND_ONLY");
    auto isWanted = [&](const SuiteCase &c) { return !only || c.name.find(only) != std::string::npos; };
    isWhole_ = !only;
    CaseRunner runner;
    for (const SuiteCase &suiteCase : listCases(root_))
      if (isWanted(suiteCase)) {
        const Expectation *expectation = expectations_.of(suiteCase.name);
        results_.push_back(runner.run(suiteCase, expectation && expectation->kind == "random"));
      }
    for (const SuiteCase &suiteCase : listLightModels(root_))
      if (isWanted(suiteCase))
        results_.push_back(runner.runLight(suiteCase));
    if (std::getenv("ZEROCC_VERBOSE"))
      for (const CaseResult &result : results_)
        explain(result);
  }

  void SetUp() override {
    if (root_.empty())
      GTEST_SKIP() << whyNot_;
  }

  static fs::path expectationsPath() {
    return fs::path(ZEROCC_SOURCE_DIR) / "tests/onnx/backend/backend_expectations.txt";
  }

  static void explain(const CaseResult &result) {
    const std::string &name = result.suiteCase.name;
    if (result.outcome == Outcome::refused)
      std::cout << "refused " << name << ": " << result.why;
    if (result.kernels == KernelOutcome::refused)
      std::cout << "kernels refuse " << name << ": " << result.kernelWhy;
    if (result.gradient.outcome == GradientOutcome::refused)
      std::cout << "no gradient " << name << ": " << result.gradient.why;
    if (result.gradient.outcome == GradientOutcome::notSmooth)
      std::cout << "not smooth " << name << ": " << result.gradient.why << "\n";
  }

  static inline fs::path root_;
  static inline std::string whyNot_;
  static inline Expectations expectations_;
  static inline std::vector<CaseResult> results_;
  static inline bool isWhole_ = true;
};

TEST_F(Backend, GivesTheResultsOfTheSuite) {
  int passed = 0;
  for (const CaseResult &result : results_) {
    passed += result.outcome == Outcome::passed;
    if (result.outcome == Outcome::wrong)
      ADD_FAILURE() << result.suiteCase.name << ": " << result.why;
  }
  EXPECT_GT(passed, 0);
}

TEST_F(Backend, KernelsGiveTheResultsOfTheSuite) {
  int passed = 0;
  for (const CaseResult &result : results_) {
    passed += result.kernels == KernelOutcome::passed;
    if (result.kernels == KernelOutcome::wrong && result.outcome != Outcome::wrong)
      ADD_FAILURE() << result.suiteCase.name << " through kernels: " << result.kernelWhy;
  }
  EXPECT_GT(passed, 0);
}

TEST_F(Backend, GradientsAreThoseOfFiniteDifferences) {
  int agree = 0;
  for (const CaseResult &result : results_) {
    agree += result.gradient.outcome == GradientOutcome::agrees;
    if (result.gradient.outcome == GradientOutcome::disagrees)
      ADD_FAILURE() << result.suiteCase.name << ": " << result.gradient.why;
  }
  EXPECT_GT(agree, 0);
}

TEST_F(Backend, LightModelsBecomeTrainingPlans) {
  for (const CaseResult &result : results_)
    if (!result.noPlan.empty())
      ADD_FAILURE() << result.suiteCase.name << ": " << result.noPlan;
}

TEST_F(Backend, RefusesWhatIsExpectedToBe) {
  std::map<std::string, std::optional<Expectation>> actual;
  std::vector<std::string> names;
  for (const CaseResult &result : results_) {
    const std::string &name = result.suiteCase.name;
    const Expectation *expectation = expectations_.of(name);
    names.push_back(name);
    bool isRandom = expectation && expectation->kind == "random",
         isRefused = result.outcome == Outcome::refused;
    std::optional<Expectation> &now = actual[name];
    if (expectation && (isRefused || isRandom))
      now = *expectation;
    else if (isRefused)
      now = Expectation{"not-yet", result.op};
    if (std::getenv("ZEROCC_BACKEND_UPDATE"))
      continue;
    if (isRefused && (!expectation || isRandom))
      ADD_FAILURE() << name << " is refused: " << result.why;
    else if (!isRefused && expectation && !isRandom)
      ADD_FAILURE() << name << " passes; ZEROCC_BACKEND_UPDATE=1 takes it off the list";
  }
  if (std::getenv("ZEROCC_BACKEND_UPDATE") && isWhole_)
    expectations_.write(expectationsPath(), actual);
  else if (isWhole_)
    for (const std::string &pattern : expectations_.unusedPatterns(names))
      ADD_FAILURE() << pattern << " matches no case";
}

TEST_F(Backend, WritesTheTable) {
  std::string table = tableOf(results_, expectations_);
  std::cout << table.substr(0, table.find("\n## "));
  if (!isWhole_)
    return;
  fs::path path = fs::path(ZEROCC_BIN_DIR).parent_path() / "backend-tests.md";
  std::ofstream(path) << table;
  std::cout << "by op: " << path.string() << "\n";
}

// ---------------------------------------------------------------------------------------------------------------
// Operators outside ONNX (com.microsoft's), and those that the suite has no float case of: tests/onnx/contrib/record.py has
// their results from ONNX Runtime; and exports of scripted modules (record_scripted.py)

TEST(ContribOperators, GiveTheRecordedResults) {
  CaseRunner runner;
  std::vector<SuiteCase> cases = listCases(fs::path(ZEROCC_SOURCE_DIR) / "tests/onnx/contrib");
  EXPECT_GE(cases.size(), 34u);
  std::set<std::string> agree; // ops with a gradient of their own here
  for (const SuiteCase &suiteCase : cases) {
    const CaseResult result = runner.run(suiteCase, false);
    EXPECT_EQ(result.outcome, Outcome::passed) << suiteCase.name << ": " << result.why;
    EXPECT_EQ(result.kernels, KernelOutcome::passed) << suiteCase.name << ": " << result.kernelWhy;
    EXPECT_NE(result.gradient.outcome, GradientOutcome::disagrees) << suiteCase.name << ": " << result.gradient.why;
    if (result.gradient.outcome == GradientOutcome::agrees && !result.gradient.isZero)
      agree.insert(result.op);
  }
  for (const char *op : {"GlobalLpPool", "MaxRoiPool", "Trilu"}) // ONNX declares them differentiable
    EXPECT_TRUE(agree.count(op)) << op;
}

// ---------------------------------------------------------------------------------------------------------------
// The list itself

class ExpectationFile : public testing::Test {
protected:
  ExpectationFile() { path_ = fs::path(testing::TempDir()) / "zerocc_expectations.txt"; }
  ~ExpectationFile() override { fs::remove(path_); }

  std::optional<Expectations> read(const std::string &text) {
    std::ofstream(path_) << text;
    return Expectations::read(path_, why_);
  }

  fs::path path_;
  std::string why_;
};

TEST_F(ExpectationFile, TakesTheFirstLineThatMatches) {
  auto list = read("# note\ntest_a_b not-yet: one\ntest_a_* out-of-scope: two: three\n");
  ASSERT_TRUE(list) << why_;
  EXPECT_EQ(*list->of("test_a_b"), (Expectation{"not-yet", "one"}));
  EXPECT_EQ(*list->of("test_a_c"), (Expectation{"out-of-scope", "two: three"}));
  EXPECT_EQ(list->of("test_a"), nullptr);
  EXPECT_EQ(list->unusedPatterns({"test_a_c"}), std::vector<std::string>{"test_a_b"});
}

TEST_F(ExpectationFile, RefusesALineWithoutAReason) {
  EXPECT_FALSE(read("test_a not-yet\n"));
  EXPECT_NE(why_.find(":1: "), std::string::npos) << why_;
  EXPECT_FALSE(read("\ntest_a wrong: reason\n"));
  EXPECT_NE(why_.find(":2: "), std::string::npos) << why_;
}

TEST_F(ExpectationFile, IsWrittenWithFewPatternsThatSayTheSame) {
  auto old = read("test_y_*_p not-yet: kept\ntest_z_* not-yet: too wide\ntest_x_3 not-yet: gone\n");
  ASSERT_TRUE(old) << why_;
  Expectation a{"not-yet", "a"}, b{"out-of-scope", "b"}, kept{"not-yet", "kept"};
  std::map<std::string, std::optional<Expectation>> cases = {
      {"test_x_1", a},   {"test_x_2", a},           {"test_x", std::nullopt},
      {"test_y_1", a},   {"test_y_2_p", kept},      {"test_y_2_q", b},
      {"test_y_2_r", b}, {"test_x1", std::nullopt}, {"test_z_1", std::nullopt},
      {"test_z_2", a}};
  old->write(path_, cases);
  auto list = Expectations::read(path_, why_);
  ASSERT_TRUE(list) << why_;
  for (const auto &[name, expectation] : cases) {
    const Expectation *found = list->of(name);
    EXPECT_EQ(found ? std::optional<Expectation>(*found) : std::nullopt, expectation) << name;
  }
  std::ifstream file(path_);
  std::string text((std::istreambuf_iterator<char>(file)), {});
  EXPECT_NE(
      text.find(
          "date and keeps the reasons.\ntest_y_*_p not-yet: kept\ntest_x_* not-yet: a\ntest_y_1 not-yet: a\n"
          "test_z_2 not-yet: a\ntest_y_2_* out-of-scope: b\n"),
      std::string::npos)
      << text;
}

} // namespace
} // namespace zerocc
