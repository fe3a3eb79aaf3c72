#include "runtime/collectives/launcher.h"

#include <charconv>
#include <cstdlib>
#include <cstring>

namespace zerocc {
namespace {

struct Names {
  const char *launcher, *rank, *size;
  const char *also; // must be there as well; null: nothing
};
// From the one that knows best to the most general: mpirun inside an allocation of Slurm is mpirun.
constexpr Names kNames[] = {
    {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", nullptr},
    {"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", nullptr},
    {"mpirun", "PMI_RANK", "PMI_SIZE", nullptr},
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK"},
};

Expected<int> numberOf(const char *name, const char *text) {
  int value = 0;
  const char *end = text + std::strlen(text);
  auto [stop, error] = std::from_chars(text, end, value);
  if (error != std::errc() || stop != end || value < 0)
    return Error(std::string("environment: ") + name + " is \"" + text + "\", no number of a process",
                 std::string("unset ") + name + " when nothing launched this program");
  return value;
}

} // namespace

Expected<std::optional<Launcher>> findLauncher(const std::function<const char *(const char *)> &environment) {
  for (const Names &names : kNames) {
    const char *rank = environment(names.rank), *size = environment(names.size);
    if (!rank || !size || (names.also && !environment(names.also)))
      continue;
    Launcher launcher{names.launcher};
    ZEROCC_ASSIGN(launcher.rank, numberOf(names.rank, rank));
    ZEROCC_ASSIGN(launcher.size, numberOf(names.size, size));
    if (launcher.rank >= launcher.size)
      return Error(std::string("environment: ") + names.rank + " is " + rank + ", " + names.size + " is " + size,
                   "a rank lies below the number of ranks");
    return std::optional<Launcher>(launcher);
  }
  return std::optional<Launcher>();
}

Expected<std::optional<Launcher>> findLauncher() {
  return findLauncher([](const char *name) -> const char * { return std::getenv(name); });
}

} // namespace zerocc
