#pragma once

#include "runtime/executor/executor.h"

#include <functional>
#include <memory>

namespace zerocc {

struct RankGroupOptions {
  /// How long a collective waits for a rank before it names it and gives up.
  int timeoutSeconds = 60;
  CpuDeviceOptions device; // delaySeed differs by rank
  ExecutorOptions executor;
  /// Called once when a rank has failed and another one does not come back within the time-out: its thread
  /// hangs, so forEachRank would never return. What is left is to print the error and end the process.
  std::function<void(const Error &)> onHang;
};

/// All ranks of a plan in this process: for each a CPU device, an executor and a host thread of its own. The
/// plan outlives the group.
class RankGroup {
public:
  static Expected<std::unique_ptr<RankGroup>> create(const plan::Plan &plan,
                                                     const RankGroupOptions &options = {});
  virtual ~RankGroup() = default;

  virtual int ranks() const = 0;
  /// To be used from forEachRank, or while no forEachRank is running.
  virtual Executor &executor(int rank) = 0;
  virtual Device &device(int rank) = 0;

  /// Runs `work` for every rank at once, each on the rank's host thread, and returns when all are done. When
  /// it fails on a rank, the other ranks' collectives are given up, so that they come back as well; what is
  /// returned are the failures themselves, not what followed from them. Nothing can be run after a failure.
  /// Allocates nothing itself when all goes well.
  virtual Status forEachRank(const std::function<Status(Executor &)> &work) = 0;
  /// A segment on all ranks.
  virtual Status runSegment(std::string_view name) = 0;

  /// Of all ranks together.
  virtual int64_t mappedBytes() const = 0;
  virtual Traffic traffic() const = 0;
};

} // namespace zerocc
