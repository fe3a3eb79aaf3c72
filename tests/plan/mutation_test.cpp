// Damages real plans in many ways. The verifier must see all damage, but for what changes nothing: that is shown by
// an oracle of its own (oracle.h), which compares formulas and orders pair by pair.

#include "runtime/plan/verify.h"
#include "tests/plan/mutations.h"
#include "tests/plan/oracle.h"
#include "tests/plan/text_plans.h"

#include <gtest/gtest.h>

#include <map>

namespace zerocc {
namespace {

struct Case {
  const char *name, *settings;
};
const Case kCases[] = {
    {"stage_0", "stage=0 shard=2 bucket-bytes=4KiB"},
    {"stage_0_on_one_rank", "stage=0 shard=1 grad-accumulation=2 bucket-bytes=4KiB"},
    {"stage_1_with_accumulation", "stage=1 shard=2 grad-accumulation=3 bucket-bytes=4KiB"},
    {"stage_2_with_accumulation",
     "stage=2 shard=3 grad-accumulation=2 bucket-bytes=4KiB prefetch-distance=2"},
    {"stage_3", "stage=3 shard=2 bucket-bytes=4KiB persistence-bytes=0"},
    {"stage_3_with_replicas",
     "stage=3 shard=2 replicate=2 grad-accumulation=2 bucket-bytes=4KiB persistence-bytes=70"},
    {"stage_3_kept", "stage=3 shard=4 keep=1 bucket-bytes=4KiB optimizer=sgd prefetch-distance=3"},
};

class Mutants : public testing::TestWithParam<Case> {};

TEST_P(Mutants, AreRejectedUnlessEquivalent) {
  plan::Plan original = planOfText(modelText(2, 16, 32), splitSettings(GetParam().settings));
  std::vector<Diagnostic> findings = verifyPlan(original);
  ASSERT_TRUE(findings.empty()) << findings[0].message;
  ASSERT_EQ(findRace(original), "");
  std::map<std::string, int> made, rejected;
  for (const std::string &kind : mutationKinds())
    for (uint64_t seed = 0; seed < 60; ++seed) {
      plan::Plan mutant = original;
      std::optional<std::string> what = mutatePlan(mutant, seed, kind);
      if (!what)
        continue;
      ++made[kind];
      if (!verifyPlan(mutant).empty()) {
        ++rejected[kind];
        continue;
      }
      EXPECT_TRUE(areEquivalent(original, mutant))
          << kind << " seed " << seed << ": " << *what << "; race: " << findRace(mutant);
    }
  for (const auto &[kind, count] : made)
    std::printf("%-24s made %3d rejected %3d\n", kind.c_str(), count, rejected[kind]);
}

INSTANTIATE_TEST_SUITE_P(Plans, Mutants, testing::ValuesIn(kCases),
                         [](const testing::TestParamInfo<Case> &info) { return info.param.name; });

} // namespace
} // namespace zerocc
