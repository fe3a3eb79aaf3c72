#pragma once

#include "runtime/collectives/processes.h"
#include "runtime/executor/executor.h"

#include <functional>
#include <memory>

namespace zerocc {

class MpiWorld;

struct RankGroupOptions {
  /// Null: all ranks are threads of this process. Else this process is one of the ranks, and outlived by the world.
  MpiWorld *world = nullptr;
  /// How long a collective waits for a rank before it names it and gives up.
  int timeoutSeconds = 60;
  CpuDeviceOptions device; // delaySeed differs by rank
  ExecutorOptions executor;
  /// Called once when a rank has failed and another one does not come back within the time-out: its thread
  /// hangs, so forEachRank would never return. What is left is to print the error and end the process.
  std::function<void(const Error &)> onHang;
};

/// The ranks of a plan: all in this process, with a CPU device, an executor and a host thread for each; or this
/// process's own one of them, on the thread that calls. In the second case all processes make the same calls. The
/// plan outlives the group.
class RankGroup {
public:
  static Expected<std::unique_ptr<RankGroup>> create(const plan::Plan &plan,
                                                     const RankGroupOptions &options = {});
  virtual ~RankGroup() = default;

  virtual int ranks() const = 0; // of the plan
  /// Ranks [firstHere, firstHere + ranksHere) are of this process; only they have an executor and a device.
  virtual int firstHere() const { return 0; }
  virtual int ranksHere() const { return ranks(); }
  bool isHere(int rank) const { return rank >= firstHere() && rank < firstHere() + ranksHere(); }
  Executor &here() { return executor(firstHere()); }
  /// To talk with the other processes from the thread that calls.
  virtual Processes &processes() = 0;
  /// To be used from forEachRank, or while no forEachRank is running.
  virtual Executor &executor(int rank) = 0;
  virtual Device &device(int rank) = 0;

  /// Runs `work` for every rank of this process at once, each on the rank's host thread, and returns when all are done. When
  /// it fails on a rank, the other ranks' collectives are given up, so that they come back as well; what is
  /// returned are the failures themselves, not what followed from them. Nothing can be run after a failure.
  /// Allocates nothing itself when all goes well.
  virtual Status forEachRank(const std::function<Status(Executor &)> &work) = 0;
  /// A segment on all ranks.
  virtual Status runSegment(std::string_view name) = 0;

  /// A rank threw, or did not come in time: no fault of what it was given.
  virtual bool rankFailed() const = 0;

  /// Of all ranks of this process together.
  virtual int64_t mappedBytes() const = 0;
  virtual Traffic traffic() const = 0;
};

} // namespace zerocc
