#include "runtime/collectives/launcher.h"

#include <gtest/gtest.h>

#include <map>

namespace zerocc {
namespace {

using Environment = std::map<std::string, std::string>;

Expected<std::optional<Launcher>> find(const Environment &environment) {
  return findLauncher([&](const char *name) -> const char * {
    auto at = environment.find(name);
    return at == environment.end() ? nullptr : at->second.c_str();
  });
}

void expectLauncher(const Environment &environment, const std::string &name, int rank, int size) {
  auto found = find(environment);
  ASSERT_TRUE(found);
  ASSERT_TRUE(found->has_value()) << name;
  EXPECT_EQ((*found)->name, name);
  EXPECT_EQ((*found)->rank, rank);
  EXPECT_EQ((*found)->size, size);
}

TEST(Launcher, EachIsKnownByItsVariables) {
  expectLauncher({{"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "4"}}, "mpirun", 2, 4);
  expectLauncher({{"PMI_RANK", "0"}, {"PMI_SIZE", "3"}}, "mpirun", 0, 3);
  expectLauncher({{"SLURM_PROCID", "7"}, {"SLURM_STEP_NUM_TASKS", "8"}}, "srun", 7, 8);
  expectLauncher({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "1"}}, "torchrun", 1, 2);
}

TEST(Launcher, MpirunInsideOfSlurmIsMpirun) {
  expectLauncher({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "4"}, {"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}},
                 "mpirun", 1, 4);
}

TEST(Launcher, ABatchScriptAndAStrayVariableAreNone) {
  for (const Environment &environment :
       {Environment{}, Environment{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}}, Environment{{"RANK", "1"}, {"WORLD_SIZE", "2"}}}) {
    auto found = find(environment);
    ASSERT_TRUE(found);
    EXPECT_FALSE(found->has_value());
  }
}

TEST(Launcher, WhatIsNoPlaceIsRefused) {
  for (const char *rank : {"-1", "x", "4", "", "1 ", "99999999999"}) {
    auto found = find({{"OMPI_COMM_WORLD_RANK", rank}, {"OMPI_COMM_WORLD_SIZE", "4"}});
    ASSERT_FALSE(found) << rank;
    EXPECT_NE(found.error().text().find("OMPI_COMM_WORLD_RANK is"), std::string::npos) << found.error().text();
  }
}

} // namespace
} // namespace zerocc
