#include "tests/runtime/collectives/communicator_suite.h"

#include <gtest/gtest.h>

#include <chrono>

namespace zerocc {
namespace {

struct World {
  explicit World(int ranks, int timeoutSeconds, const std::vector<int> &names = {}) {
    for (int r = 0; r < ranks; ++r) {
      devices.push_back(makeCpuDevice());
      devices.back()->createStream("s");
      pointers.push_back(devices.back().get());
    }
    communicators = makeThreadCommunicators(pointers, timeoutSeconds, names);
  }
  std::vector<std::unique_ptr<Device>> devices;
  std::vector<Device *> pointers;
  std::vector<std::unique_ptr<Communicator>> communicators;
};

TEST(ThreadRanks, ATimeoutNamesTheRanksThatDidNotArrive) {
  World world(4, 1);
  const auto start = std::chrono::steady_clock::now();
  std::vector<float> buffers(4 * 8);
  for (int rank : {0, 2}) {
    world.communicators[rank]->allReduce(&buffers[rank * 8], 8, DType::f32, 0);
    world.communicators[rank]->allReduce(&buffers[rank * 8], 8, DType::f32, 0);
  }
  for (int rank : {0, 2})
    world.devices[rank]->synchronize(0);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  for (auto &communicator : world.communicators)
    EXPECT_EQ(communicator->failure(), "ranks 1, 3 did not arrive at all-reduce of 8 f32 within 1 s");
  EXPECT_EQ(world.communicators[0]->received().total(), 0);
}

TEST(ThreadRanks, RanksAreNamedByTheirNumbersInTheWorld) {
  World world(2, 1, {4, 6});
  float value = 1;
  world.communicators[0]->allGather(&value, &value, 0, DType::f32, 0);
  world.devices[0]->synchronize(0);
  EXPECT_EQ(world.communicators[0]->failure(), "rank 6 did not arrive at all-gather of 0 f32 within 1 s");
}

TEST(ThreadRanks, DifferentCallsAreRefused) {
  World world(2, 10);
  std::vector<float> a(16), b(16);
  world.communicators[0]->allReduce(a.data(), 8, DType::f32, 0);
  world.communicators[1]->allReduce(b.data(), 9, DType::f32, 0);
  for (auto &device : world.devices)
    device->synchronize(0);
  const std::string failure = world.communicators[0]->failure();
  EXPECT_TRUE(failure == "rank 0 is at all-reduce of 8 f32, rank 1 at all-reduce of 9 f32" ||
              failure == "rank 1 is at all-reduce of 9 f32, rank 0 at all-reduce of 8 f32")
      << failure;
}

} // namespace
} // namespace zerocc
