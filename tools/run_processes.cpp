#include "tools/run_processes.h"

#include "runtime/collectives/launcher.h"
#include "tools/command.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>

namespace zerocc {
namespace {

std::string processes(int count) { return std::to_string(count) + (count == 1 ? " process" : " processes"); }

std::string launchHint(const std::string &launcher, int size) {
  const std::string mpirun = "mpirun -n " + std::to_string(size) + " zero-run …";
  if (launcher == "srun")
    return "start with srun --mpi=pmix (srun --mpi=list tells what there is), or with " + mpirun;
  if (launcher == "torchrun")
    return "torchrun starts no MPI: start with " + mpirun;
  return "start with the mpirun of the MPI that zerocc was built with: " + mpirun;
}

} // namespace

Status RunProcesses::join(const Flags &flags) {
  ZEROCC_ASSIGN(auto launcher, findLauncher());
  const bool isOneOfSeveral = launcher && launcher->size > 1;
  if (flags.comm != "mpi" && !(flags.comm.empty() && isOneOfSeveral)) {
    if (isOneOfSeveral)
      return Error("--comm threads: " + launcher->name + " has started " + processes(launcher->size) +
                       ", and each of them would run all ranks by itself",
                   "leave --comm out, or start one process");
    return success();
  }
  ZEROCC_ASSIGN(library_, MpiLibrary::load());
  if (launcher && (launcher->size != library_->size() || launcher->rank != library_->rank()))
    return Error(launcher->name + " has started rank " + std::to_string(launcher->rank) + " of " +
                     std::to_string(launcher->size) + ", to " + library_->version() + " it is rank " +
                     std::to_string(library_->rank()) + " of " + std::to_string(library_->size()),
                 launchHint(launcher->name, launcher->size));
  MpiWorldOptions options;
  options.timeoutSeconds = static_cast<int>(flags.timeoutSeconds);
  options.stopSignal = flags.stopSignal;
  options.onHang = [this](const std::string &reason) { // a thread hangs: nothing can be unwound
    std::fputs(Error(reason).in("rank " + std::to_string(library_->rank())).text().c_str(), error_);
    std::_Exit(kRankFailed);
  };
  ZEROCC_ASSIGN(world_, MpiWorld::create(*library_, options));
  ZEROCC_ASSIGN(processes_, world_->processes());
  if (!isFirst())
    if (FILE *nowhere = std::fopen("/dev/null", "w"))
      stdout = stderr = nowhere;
  return success();
}

Status RunProcesses::checkPlan(const plan::Plan &plan) const {
  const uint64_t ranks = plan.mesh().shard() * plan.mesh().replicate();
  if (!world_ || ranks == static_cast<uint64_t>(world_->size()))
    return success();
  return Error("the plan is for " + std::to_string(ranks) + " ranks, and this run has " + processes(world_->size()),
               "start with mpirun -n " + std::to_string(ranks) + ", or compile with --ranks " +
                   std::to_string(world_->size()));
}

Status RunProcesses::compare(const Facts &facts) {
  if (!world_)
    return success();
  std::vector<Diagnostic> findings;
  for (const auto &[name, value] : facts) {
    ZEROCC_ASSIGN(auto values, gatherTexts(*processes_, value));
    std::map<std::string, int> counts;
    for (const std::string &one : values)
      ++counts[one];
    if (counts.size() == 1)
      continue;
    // What most have is right; where none has a majority, rank 0.
    std::string usual = values[0];
    for (const auto &[one, count] : counts)
      if (2 * count > static_cast<int>(values.size()))
        usual = one;
    for (size_t rank = 0; rank < values.size(); ++rank)
      if (values[rank] != usual)
        findings.push_back({"rank " + std::to_string(rank) + ": its " + name + " is \"" + values[rank] + "\", that of the others is \"" +
                                usual + "\"",
                            "give all ranks the same plan, data and flags"});
  }
  return findings.empty() ? success() : Status(Error(std::move(findings)));
}

int RunProcesses::conclude(const Status &done, int exitCode) {
  if (!world_) {
    if (!done)
      refuse(done.error());
    return exitCode;
  }
  const std::string error = done ? "" : done.error().findings().front().message;
  if (!done && !world_->failure().empty())
    exitCode = kRankFailed;
  const MpiWorld::Farewell farewell = world_->conclude(exitCode, error);
  if (!done && farewell.isNews) {
    const std::string rank = "rank " + std::to_string(world_->rank());
    const bool says = error.compare(0, rank.size(), rank) == 0 || (isFirst() && farewell.allAlike);
    std::fputs((says ? done.error() : done.error().in(rank)).text().c_str(), error_);
  }
  std::fflush(nullptr);
  if (!farewell.allAlike)
    std::_Exit(done ? kRankFailed : exitCode); // somebody is missing: MPI cannot be ended in order
  processes_.reset();
  world_.reset();
  library_->finalize();
  return exitCode;
}

} // namespace zerocc
