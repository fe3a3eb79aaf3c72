#include "runtime/device.h"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <thread>
#include <vector>

namespace zerocc {
namespace {

struct Append {
  std::vector<int> *to;
  int value;
  int sleepMicros = 0;

  static void run(void *argument) {
    Append &self = *static_cast<Append *>(argument);
    if (self.sleepMicros > 0)
      std::this_thread::sleep_for(std::chrono::microseconds(self.sleepMicros));
    self.to->push_back(self.value);
  }
};

TEST(CpuDevice, MemoryIsZeroedAlignedAndCountedAsAskedFor) {
  auto device = makeCpuDevice();
  auto *a = static_cast<char *>(device->allocate(1000));
  auto *b = static_cast<char *>(device->allocate(5'000'000));
  ASSERT_TRUE(a && b);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a) % 4096, 0u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(b) % 4096, 0u);
  for (int64_t i = 0; i < 5'000'000; i += 999)
    ASSERT_EQ(b[i], 0);
  EXPECT_EQ(device->mappedBytes(), 5'001'000);
}

TEST(CpuDevice, SaysSoWhenThereIsNoMemory) {
  auto device = makeCpuDevice();
  EXPECT_EQ(device->allocate(int64_t{1} << 60), nullptr);
  EXPECT_EQ(device->allocate(0), nullptr);
  EXPECT_EQ(device->mappedBytes(), 0);
}

TEST(CpuDevice, AStreamRunsItsWorkInOrder) {
  auto device = makeCpuDevice();
  const StreamId stream = device->createStream("s");
  device->seal();
  constexpr int kTasks = 20'000; // several times the ring
  std::vector<int> order;
  std::vector<Append> tasks(kTasks);
  for (int i = 0; i < kTasks; ++i) {
    tasks[i] = {&order, i};
    device->enqueue(stream, Append::run, &tasks[i]);
  }
  device->synchronize(stream);
  ASSERT_EQ(order.size(), size_t{kTasks});
  for (int i = 0; i < kTasks; ++i)
    ASSERT_EQ(order[i], i);
}

TEST(CpuDevice, LaunchRunsThePreparedCall) {
  auto device = makeCpuDevice();
  const StreamId stream = device->createStream("s");
  int64_t seen = 0;
  KernelCall call;
  call.workspace = &seen;
  call.workspaceBytes = 7;
  call.run = [](const KernelCall &of) { *static_cast<int64_t *>(of.workspace) = of.workspaceBytes; };
  device->launch(stream, &call);
  device->synchronize(stream);
  EXPECT_EQ(seen, 7);
}

TEST(CpuDevice, AWaitIsForTheLatestRecordQueuedBeforeIt) {
  // Two streams in turn append to one unguarded vector, again and again with the same two events.
  for (uint64_t seed = 0; seed < 3; ++seed) {
    auto device = makeCpuDevice({.maxDelayMicros = seed == 0 ? 0 : 20, .delaySeed = seed});
    const StreamId a = device->createStream("a"), b = device->createStream("b");
    const EventId aDone = device->createEvent(), bDone = device->createEvent();
    std::vector<int> order;
    std::vector<Append> tasks;
    const int rounds = seed == 0 ? 3000 : 200;
    for (int i = 0; i < 2 * rounds; ++i)
      tasks.push_back({&order, i});
    for (int i = 0; i < rounds; ++i) {
      device->wait(a, bDone); // of the round before; the first one waits for nothing
      device->enqueue(a, Append::run, &tasks[2 * i]);
      device->record(a, aDone);
      device->wait(b, aDone);
      device->enqueue(b, Append::run, &tasks[2 * i + 1]);
      device->record(b, bDone);
    }
    device->synchronize(b);
    ASSERT_EQ(order.size(), size_t(2 * rounds));
    for (int i = 0; i < 2 * rounds; ++i)
      ASSERT_EQ(order[i], i);
  }
}

TEST(CpuDevice, AWaitDoesNotHoldUpOtherStreams) {
  auto device = makeCpuDevice();
  const StreamId slow = device->createStream("slow"), waiting = device->createStream("waiting"),
                 free = device->createStream("free");
  const EventId slowDone = device->createEvent();
  std::vector<int> slowOrder, freeOrder;
  Append first{&slowOrder, 1, 50'000}, second{&slowOrder, 2}, other{&freeOrder, 3};
  device->enqueue(slow, Append::run, &first);
  device->record(slow, slowDone);
  device->wait(waiting, slowDone);
  device->enqueue(waiting, Append::run, &second);
  const auto start = std::chrono::steady_clock::now();
  device->enqueue(free, Append::run, &other);
  device->synchronize(free);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(45));
  device->synchronize(waiting);
  EXPECT_EQ(slowOrder, (std::vector<int>{1, 2}));
}

TEST(CpuDevice, FinishesQueuedWorkBeforeItGoes) {
  std::vector<int> order;
  std::array<Append, 2> tasks = {Append{&order, 1, 5000}, Append{&order, 2}};
  {
    auto device = makeCpuDevice();
    const StreamId late = device->createStream("late"), early = device->createStream("early");
    const EventId event = device->createEvent();
    device->enqueue(early, Append::run, &tasks[0]);
    device->record(early, event);
    device->wait(late, event);
    device->enqueue(late, Append::run, &tasks[1]);
  }
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
}

TEST(CpuDevice, CopiesToAndFromTheHost) {
  auto device = makeCpuDevice();
  void *memory = device->allocate(16);
  const std::array<int, 4> sent = {1, 2, 3, 4};
  std::array<int, 4> back = {};
  device->copyToDevice(memory, sent.data(), 16);
  device->copyToHost(back.data(), memory, 16);
  EXPECT_EQ(sent, back);
}

} // namespace
} // namespace zerocc
