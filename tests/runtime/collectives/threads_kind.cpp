#include "tests/runtime/collectives/communicator_suite.h"

#include <thread>

namespace zerocc {

void onHostThreads(int ranks, const std::function<void(int)> &rank) {
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r)
    threads.emplace_back([&rank, r] { rank(r); });
  for (std::thread &thread : threads)
    thread.join();
}

void gatherFromRanks(std::vector<int64_t> &) {}

static TestWorld makeThreadWorld(int ranks, int groups, int maxDelayMicros) {
  TestWorld world;
  std::vector<Device *> devices;
  for (int r = 0; r < ranks; ++r) {
    world.devices.push_back(
        makeCpuDevice({.maxDelayMicros = maxDelayMicros, .delaySeed = static_cast<uint64_t>(r)}));
    devices.push_back(world.devices.back().get());
    devices.back()->createStream("a");
    devices.back()->createStream("b");
  }
  for (int g = 0; g < groups; ++g)
    world.groups.push_back(makeThreadCommunicators(devices));
  return world;
}

CommunicatorKind communicatorKind() { return {"threads", {1, 2, 3, 4, 5}, makeThreadWorld}; }

} // namespace zerocc
