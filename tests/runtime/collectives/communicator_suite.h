#pragma once

#include "runtime/collectives/communicator.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace zerocc {

/// Ranks to test a communicator with: devices with two streams each, and one or more groups of all ranks.
struct TestWorld {
  std::vector<std::unique_ptr<Device>> devices;
  std::vector<std::vector<std::unique_ptr<Communicator>>> groups; // groups[g][rank]
  static constexpr StreamId kStreamA = 0, kStreamB = 1;
};

/// How one kind of communicator is made: each kind is one instance of the suite in communicator_test.cpp.
struct CommunicatorKind {
  std::string name;
  std::function<TestWorld(int ranks, int groups, int maxDelayMicros)> make;
};

/// Runs `rank(r)` for every rank on a thread of its own, as host threads do.
void onHostThreads(int ranks, const std::function<void(int)> &rank);

} // namespace zerocc
