#pragma once

#include "runtime/collectives/communicator.h"
#include "runtime/collectives/mpi/mpi_library.h"
#include "runtime/collectives/processes.h"

#include <atomic>
#include <functional>
#include <memory>
#include <string>

namespace zerocc {

struct MpiWorldOptions {
  /// How long a collective waits for a rank before this one asks who is still there.
  int timeoutSeconds = 60;
  /// Set by a signal handler. Launchers send SIGTERM to all ranks when one of them has died, and SIGKILL soon after: who
  /// sees this asks at once.
  const std::atomic<int> *stopSignal = nullptr;
  /// Somebody gave up a time-out ago, and this process has not come to its end: a thread of it hangs. Called once.
  std::function<void(const std::string &reason)> onHang;
};

/// Where a process is in its plan, in words, for a rank that asks. Called by a thread of the world's own.
struct Whereabouts {
  bool isWaiting = false; // in a collective, for others
  std::string text;       // "step 12, segment only, instruction 57 (…)"
};

/// The ranks of a run as processes that an MPI launcher has started, one rank each, and the thread that watches over
/// them: it answers who asks where this rank is, asks when a wait of this rank lasts too long, and passes on the reason
/// when somebody gives up. A rank is told to have failed when it does not answer, or when it is the one that the others
/// wait for.
class MpiWorld {
public:
  /// Called by all processes. The library outlives the world.
  static Expected<std::unique_ptr<MpiWorld>> create(MpiLibrary &library, const MpiWorldOptions &options = {});
  virtual ~MpiWorld() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// The group of all processes that give the same colour, in the order of their ranks; called by all processes. The
  /// communicator does not outlive world and device.
  virtual Expected<std::unique_ptr<Communicator>> group(int colour, Device &device) = 0;
  /// Called by all processes.
  virtual Expected<std::unique_ptr<Processes>> processes() = 0;

  /// Where this rank is; empty: nobody knows.
  virtual void setWhereabouts(std::function<Whereabouts()> whereabouts) = 0;
  /// Gives up on all ranks. The first reason stays.
  virtual void abort(const std::string &reason) = 0;
  /// Why somebody gave up; empty while nobody has.
  virtual std::string failure() const = 0;
  /// How many bytes the world's communicators hold besides the plan's memory.
  virtual int64_t stagingBytes() const = 0;

  /// Says goodbye: the run of this process is over, with this exit code and error (empty: none). Waits for the others
  /// where all goes well, and a moment where it does not. `isNews`: this process is the first to tell the error.
  struct Farewell {
    bool allAlike = false; // all ended with this exit code: MPI can be finalized
    bool isNews = true;
  };
  virtual Farewell conclude(int exitCode, const std::string &error) = 0;
};

} // namespace zerocc
