#pragma once

#include "compiler/support/dtype.h"
#include "runtime/device.h"

#include <memory>
#include <string>
#include <vector>

namespace zerocc {

/// Collectives among the ranks of one group (a mesh axis, or all). Calls queue work on a stream of the rank's
/// device. Contract: when the work is done in stream order, results are complete and no peer touches this
/// rank's buffers any more. All ranks make the same calls in the same order; a rank's collectives run in the
/// order of its calls, on whichever streams they are. A communicator outlives the work queued through it.
/// Sums are formed in f32 (f64 for f64) in rank order and rounded once.
class Communicator {
public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// recv[r * count …] = rank r's send[0 … count). In place when send == recv + rank * count.
  virtual void allGather(const void *send, void *recv, int64_t count, DType dtype, StreamId stream) = 0;
  /// recv[0 … count) = sum over ranks q of q's send[rank * count …]. In place when recv == send + rank *
  /// count.
  virtual void reduceScatter(const void *send, void *recv, int64_t count, DType dtype, StreamId stream) = 0;
  /// buffer[0 … count) = sum over ranks; reduce-scatter + all-gather; any count.
  virtual void allReduce(void *buffer, int64_t count, DType dtype, StreamId stream) = 0;
  /// Bytes this rank has received from other ranks so far, by kind.
  struct Received {
    int64_t allGather = 0, reduceScatter = 0, allReduce = 0;
    int64_t total() const { return allGather + reduceScatter + allReduce; }
  };
  virtual Received received() const = 0;
  /// Makes every present and future wait of all ranks of the group fail fast: a rank stopped. The first
  /// reason stays.
  virtual void abort(const std::string &reason) = 0;
  /// Why the group was aborted; empty when it was not. Results of collectives are undefined from then on.
  virtual std::string failure() const = 0;
};

/// The ranks of one process: `ranks` handles that share memory. devices[r] is rank r's device. A wait that
/// lasts longer than `timeoutSeconds` aborts the group and names the ranks that did not arrive: by `names`,
/// their numbers in the world, or else by their places in the group.
std::vector<std::unique_ptr<Communicator>> makeThreadCommunicators(const std::vector<Device *> &devices,
                                                                   int timeoutSeconds = 60,
                                                                   const std::vector<int> &names = {});

} // namespace zerocc
