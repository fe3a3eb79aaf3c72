#pragma once

#include "runtime/collectives/communicator.h"
#include "runtime/device.h"
#include "runtime/executor/operand.h"

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace zerocc {

/// One rank's places in its groups. `gather` and `reduce` are two communicators of the same ranks, those of
/// the shard axis; collectives of different streams never wait for each other.
struct RankCommunicators {
  Communicator *gather = nullptr;    // shard axis, stream gather
  Communicator *reduce = nullptr;    // shard axis, stream reduce
  Communicator *replicate = nullptr; // replicate axis
  Communicator *world = nullptr;     // all ranks: exchange
};

struct ExecutorOptions {
  /// Overwrite every byte that the plan says is undefined (runtime/executor/poison.h).
  bool checkMemory = false;
  /// Note when each instruction begins and ends.
  bool profile = false;
};

/// When an instruction ran last, on the clock of std::chrono::steady_clock. 0, 0: it has no work of its own.
struct InstructionTime {
  int64_t startNanos = 0, endNanos = 0;
};

/// Bytes a rank has received, by the kind of instruction.
struct Traffic {
  int64_t allGather = 0, reduceScatter = 0, allReduce = 0, exchange = 0;
  int64_t total() const { return allGather + reduceScatter + allReduce + exchange; }
};

/// A plan on one rank: its memory, and its segments ready to be queued. All calls come from the rank's host
/// thread. After create() nothing is allocated, unless something fails.
///
/// Rank = replicate index * shard + shard index. The plan outlives the executor.
class Executor {
public:
  static Expected<std::unique_ptr<Executor>> create(const plan::Plan &plan, int rank, Device &device,
                                                    const RankCommunicators &communicators,
                                                    const ExecutorOptions &options = {});
  /// Waits for queued work. Collectives in it end only when the peers come too, or the group is aborted.
  virtual ~Executor() = default;

  /// Queues a segment, behind all that is queued already, and returns. Fails when a group of this rank has
  /// failed.
  virtual Status queueSegment(std::string_view name) = 0;
  /// Waits until all queued work is done. Fails, naming rank and instruction, when a collective was given up;
  /// then all groups of this rank are aborted, so that their ranks stop as well.
  virtual Status join() = 0;
  Status runSegment(std::string_view name) {
    ZEROCC_TRY(queueSegment(name));
    return join();
  }
  virtual bool hasSegment(std::string_view name) const = 0;
  /// A group of this rank was aborted.
  virtual bool failed() const = 0;
  /// Aborts all groups of this rank.
  virtual void abort(const std::string &reason) = 0;

  virtual int rank() const = 0;
  virtual int shardIndex() const = 0;
  virtual int replicateIndex() const = 0;

  // --- memory, to be touched while nothing is queued

  /// The bytes at an offset of a region. The caller stays inside.
  virtual char *address(uint32_t region, uint64_t offset) const = 0;
  virtual int64_t regionBytes(uint32_t region) const = 0;
  /// An input or storage by its name in the plan, as a row-major view.
  virtual std::optional<TensorView> input(std::string_view name) const = 0;
  virtual std::optional<TensorView> storage(std::string_view name) const = 0;
  /// Fills an input; `bytes` must be all of it. Waits for queued work first, since that may still read it.
  virtual Status copyIn(std::string_view input, const void *data, int64_t bytes) = 0;
  virtual Status writeStorage(std::string_view name, const void *data, int64_t bytes) = 0;
  virtual Status readStorage(std::string_view name, void *data, int64_t bytes) = 0;

  // --- measurements

  /// One entry per instruction of the segment; empty without `profile`.
  virtual std::span<const InstructionTime> times(std::string_view segment) const = 0;
  virtual Traffic traffic() const = 0;
};

} // namespace zerocc
