#pragma once

#include "runtime/collectives/communicator.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace zerocc {

/// Ranks to test a communicator with: devices with two streams each, and one or more groups of all ranks.
struct TestWorld {
  std::shared_ptr<void> keep; // what the communicators are made of
  std::vector<std::unique_ptr<Device>> devices; // null: of another process
  std::vector<std::vector<std::unique_ptr<Communicator>>> groups; // groups[g][rank]
  static constexpr StreamId kStreamA = 0, kStreamB = 1;
};

/// How one kind of communicator is made. The suite in communicator_test.cpp is linked with one kind: threads_kind.cpp, or
/// mpi_kind.cpp, which runs in several processes.
struct CommunicatorKind {
  std::string name;
  std::vector<int> ranks; // to test with
  std::function<TestWorld(int ranks, int groups, int maxDelayMicros)> make;
};
CommunicatorKind communicatorKind();

/// Runs `rank(r)` for every rank of this process on a thread of its own, as host threads do.
void onHostThreads(int ranks, const std::function<void(int)> &rank);

/// Fills in the elements of the ranks of other processes: element r is rank r's.
void gatherFromRanks(std::vector<int64_t> &values);

} // namespace zerocc
