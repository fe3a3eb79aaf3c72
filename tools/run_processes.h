#pragma once

#include "runtime/collectives/mpi/mpi_world.h"
#include "runtime/plan/plan.pb.h"

#include <atomic>
#include <utility>

namespace zerocc {

/// The processes of a run (--comm): this one alone, or those that mpirun, srun or torchrun has started, one rank each.
class RunProcesses {
public:
  struct Flags {
    std::string comm; // --comm; empty: mpi where a launcher has started several processes, else threads
    int64_t timeoutSeconds = 60;
    const std::atomic<int> *stopSignal = nullptr;
  };
  /// Called once, before anything is said: processes but the first are silent from then on. Refuses what does not fit
  /// together: a launcher's idea of the ranks and MPI's, or several processes with --comm threads.
  Status join(const Flags &flags);

  bool isFirst() const { return !world_ || world_->rank() == 0; }
  MpiWorld *world() { return world_.get(); }
  /// The plan is for as many ranks as there are processes.
  Status checkPlan(const plan::Plan &plan) const;

  /// Something that all ranks must have alike: "plan", its fingerprint.
  using Facts = std::vector<std::pair<std::string, std::string>>;
  /// Compares them over all processes, and names the rank that differs, from the others or from rank 0, and in what.
  Status compare(const Facts &facts);

  /// The end of this process: prints the error where another rank has not said the same, and gives the exit code. With
  /// several processes it returns only when all ended alike.
  int conclude(const Status &done, int exitCode);

private:
  MpiLibrary *library_ = nullptr;
  std::unique_ptr<MpiWorld> world_;
  std::unique_ptr<Processes> processes_;
  FILE *error_ = stderr; // where errors go, also of silent processes
};

} // namespace zerocc
