#pragma once

#include "compiler/support/expected.h"

#include <functional>
#include <optional>
#include <string>

namespace zerocc {

/// What started this process as one of several, and what it says of its place, in the environment.
struct Launcher {
  std::string name; // "mpirun", "srun", "torchrun"
  int rank = 0, size = 1;
};

/// Reads the usual variables: OMPI_COMM_WORLD_RANK/SIZE and PMI_RANK/SIZE (mpirun), SLURM_PROCID with
/// SLURM_STEP_NUM_TASKS (srun; a batch script alone is no step), RANK with WORLD_SIZE and LOCAL_RANK (torchrun). Nothing:
/// started by hand. Refuses what is no place: a rank that is no number or not below the size.
Expected<std::optional<Launcher>> findLauncher(const std::function<const char *(const char *)> &environment);
/// Of this process.
Expected<std::optional<Launcher>> findLauncher();

} // namespace zerocc
