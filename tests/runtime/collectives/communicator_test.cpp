#include "tests/runtime/collectives/communicator_suite.h"

#include "runtime/collectives/half.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <thread>

// What every communicator does, whatever it is made of. Numbers are small integers in floats: sums are exact
// in every dtype, so one expectation holds for all orders of summation.

namespace zerocc {

namespace {

/// What rank r holds at element i: up to 24, so that five ranks' sums are exact in bf16 too.
int valueOf(int rank, int64_t i) { return static_cast<int>((i * 7 + rank * 5 + i / 31) % 25); }

/// A buffer of any float dtype, read and written as numbers.
class Numbers {
public:
  Numbers(int64_t count, DType dtype) : dtype_(dtype), bytes_(count * byteSize(dtype) + 1) {}

  void *at(int64_t i) { return bytes_.data() + i * byteSize(dtype_); }
  void set(int64_t i, double value) {
    switch (dtype_) {
    case DType::f32:
      return store(i, static_cast<float>(value));
    case DType::f64:
      return store(i, value);
    case DType::bf16:
      return store(i, toBf16(static_cast<float>(value)));
    case DType::f16:
      return store(i, toF16(static_cast<float>(value)));
    default:
      return store(i, static_cast<int64_t>(value));
    }
  }
  double get(int64_t i) {
    switch (dtype_) {
    case DType::f32:
      return load<float>(i);
    case DType::f64:
      return load<double>(i);
    case DType::bf16:
      return fromBf16(load<uint16_t>(i));
    case DType::f16:
      return fromF16(load<uint16_t>(i));
    default:
      return static_cast<double>(load<int64_t>(i));
    }
  }

private:
  template <typename T> void store(int64_t i, T value) { std::memcpy(at(i), &value, sizeof value); }
  template <typename T> T load(int64_t i) {
    T value;
    std::memcpy(&value, at(i), sizeof value);
    return value;
  }
  DType dtype_;
  std::vector<char> bytes_;
};

class CommunicatorTest : public testing::TestWithParam<int> {
protected:
  int ranks() const { return GetParam(); }
  TestWorld make(int groups = 1, int maxDelayMicros = 0) {
    return communicatorKind().make(ranks(), groups, maxDelayMicros);
  }

  int sumOf(int64_t i) const {
    int sum = 0;
    for (int r = 0; r < ranks(); ++r)
      sum += valueOf(r, i);
    return sum;
  }
};

constexpr int64_t kCounts[] = {0, 1, 31, 32, 5003};
constexpr DType kDTypes[] = {DType::f32, DType::f64, DType::bf16, DType::f16, DType::i64};

TEST_P(CommunicatorTest, AllGatherPutsRankRsPartAtR) {
  for (bool inPlace : {false, true})
    for (DType dtype : kDTypes)
      for (int64_t count : kCounts) {
        TestWorld world = make();
        onHostThreads(ranks(), [&](int rank) {
          Communicator &communicator = *world.groups[0][rank];
          EXPECT_EQ(communicator.rank(), rank);
          EXPECT_EQ(communicator.size(), ranks());
          Numbers part(count, dtype), whole(ranks() * count, dtype);
          for (int64_t i = 0; i < count; ++i)
            (inPlace ? whole : part).set(inPlace ? rank * count + i : i, valueOf(rank, i));
          communicator.allGather(inPlace ? whole.at(rank * count) : part.at(0), whole.at(0), count, dtype,
                                 TestWorld::kStreamA);
          world.devices[rank]->synchronize(TestWorld::kStreamA);
          for (int r = 0; r < ranks(); ++r)
            for (int64_t i = 0; i < count; ++i)
              ASSERT_EQ(whole.get(r * count + i), valueOf(r, i)) << dtypeName(dtype) << " count " << count;
          EXPECT_EQ(communicator.received().allGather, (ranks() - 1) * count * byteSize(dtype));
          EXPECT_EQ(communicator.received().total(), communicator.received().allGather);
        });
      }
}

TEST_P(CommunicatorTest, ReduceScatterLeavesTheSumOfPartRAtRankR) {
  for (bool inPlace : {false, true})
    for (DType dtype : kDTypes)
      for (int64_t count : kCounts) {
        TestWorld world = make();
        onHostThreads(ranks(), [&](int rank) {
          Communicator &communicator = *world.groups[0][rank];
          Numbers whole(ranks() * count, dtype), part(count, dtype);
          for (int64_t i = 0; i < ranks() * count; ++i)
            whole.set(i, valueOf(rank, i));
          communicator.reduceScatter(whole.at(0), inPlace ? whole.at(rank * count) : part.at(0), count, dtype,
                                     TestWorld::kStreamA);
          world.devices[rank]->synchronize(TestWorld::kStreamA);
          for (int64_t i = 0; i < count; ++i)
            ASSERT_EQ(inPlace ? whole.get(rank * count + i) : part.get(i), sumOf(rank * count + i))
                << dtypeName(dtype) << " count " << count;
          for (int64_t i = 0; i < ranks() * count; ++i) // the other parts are still what they were
            if (!inPlace || i / count != rank) {
              ASSERT_EQ(whole.get(i), valueOf(rank, i));
            }
          EXPECT_EQ(communicator.received().reduceScatter, (ranks() - 1) * count * byteSize(dtype));
          EXPECT_EQ(communicator.received().total(), communicator.received().reduceScatter);
        });
      }
}

TEST_P(CommunicatorTest, AllReduceSumsAnyCount) {
  for (DType dtype : kDTypes)
    for (int64_t count : kCounts) {
      TestWorld world = make();
      std::vector<int64_t> received(ranks());
      onHostThreads(ranks(), [&](int rank) {
        Communicator &communicator = *world.groups[0][rank];
        Numbers buffer(count, dtype);
        for (int64_t i = 0; i < count; ++i)
          buffer.set(i, valueOf(rank, i));
        communicator.allReduce(buffer.at(0), count, dtype, TestWorld::kStreamA);
        world.devices[rank]->synchronize(TestWorld::kStreamA);
        for (int64_t i = 0; i < count; ++i)
          ASSERT_EQ(buffer.get(i), sumOf(i)) << dtypeName(dtype) << " count " << count;
        received[rank] = communicator.received().allReduce;
      });
      gatherFromRanks(received);
      int64_t total = 0;
      for (int64_t bytes : received)
        total += bytes;
      EXPECT_EQ(total, 2 * (ranks() - 1) * count * byteSize(dtype)) << count;
    }
}

TEST_P(CommunicatorTest, ResultsAreCompleteAndOwnedWhenTheWorkIsDone) {
  // Every round overwrites what it sent and received right behind the collective, in stream order: a peer
  // that still read would see the next round's numbers. Nothing is synchronised with the host in between.
  struct Fill {
    float *from, *whole;
    int64_t count;
    int ranks, rank, round;
    bool good = true;
    static void run(void *argument) {
      Fill &self = *static_cast<Fill *>(argument);
      for (int r = 0; r < self.ranks && self.round > 0; ++r)
        for (int64_t i = 0; i < self.count; ++i)
          self.good &= self.whole[r * self.count + i] == static_cast<float>(valueOf(r, i) + self.round - 1);
      for (int64_t i = 0; i < self.count; ++i)
        self.from[i] = static_cast<float>(valueOf(self.rank, i) + self.round);
      std::memset(self.whole, 0xff, self.ranks * self.count * sizeof(float));
    }
  };
  constexpr int kRounds = 40;
  constexpr int64_t kCount = 700;
  for (int delay : {0, 200}) {
    TestWorld world = make(1, delay);
    onHostThreads(ranks(), [&](int rank) {
      std::vector<float> part(kCount), whole(ranks() * kCount);
      std::vector<Fill> fills;
      for (int round = 0; round <= kRounds; ++round)
        fills.push_back({part.data(), whole.data(), kCount, ranks(), rank, round});
      Device &device = *world.devices[rank];
      for (int round = 0; round < kRounds; ++round) {
        device.enqueue(TestWorld::kStreamA, Fill::run, &fills[round]);
        world.groups[0][rank]->allGather(part.data(), whole.data(), kCount, DType::f32, TestWorld::kStreamA);
      }
      device.enqueue(TestWorld::kStreamA, Fill::run, &fills[kRounds]);
      device.synchronize(TestWorld::kStreamA);
      for (const Fill &fill : fills)
        EXPECT_TRUE(fill.good) << "round " << fill.round;
    });
  }
}

TEST_P(CommunicatorTest, SeveralCommunicatorsWorkAtOnce) {
  constexpr int kRounds = 100; // two queues that know nothing of each other
  constexpr int64_t kCount = 96;
  for (int delay : {0, 100}) {
    TestWorld world = make(2, delay);
    onHostThreads(ranks(), [&](int rank) {
      std::vector<float> part(kCount), whole(ranks() * kCount), sums(ranks() * kCount);
      for (int64_t i = 0; i < kCount; ++i)
        part[i] = static_cast<float>(valueOf(rank, i));
      std::fill(sums.begin(), sums.end(), 1.0f);
      for (int round = 0; round < kRounds; ++round) {
        world.groups[0][rank]->allGather(part.data(), whole.data(), kCount, DType::f32, TestWorld::kStreamA);
        if (round % 10 == 0)
          world.groups[1][rank]->allReduce(sums.data(), ranks() * kCount, DType::f32, TestWorld::kStreamB);
      }
      world.devices[rank]->synchronize(TestWorld::kStreamA);
      world.devices[rank]->synchronize(TestWorld::kStreamB);
      double expected = 1;
      for (int round = 0; round < kRounds; round += 10)
        expected *= ranks();
      for (int64_t i = 0; i < ranks() * kCount; ++i) {
        ASSERT_EQ(whole[i], valueOf(static_cast<int>(i / kCount), i % kCount));
        ASSERT_EQ(sums[i], expected);
      }
    });
  }
}

TEST_P(CommunicatorTest, CallsRunInOrderWhicheverStreamsTheyAreOn) {
  constexpr int kRounds = 60;
  TestWorld world = make(1, 100);
  onHostThreads(ranks(), [&](int rank) {
    std::vector<std::vector<float>> wholes;
    const float mine = static_cast<float>(rank);
    for (int round = 0; round < kRounds; ++round) {
      wholes.emplace_back(ranks(), -1.0f);
      // The ranks choose different streams.
      world.groups[0][rank]->allGather(&mine, wholes.back().data(), 1, DType::f32, (round + rank) % 2);
    }
    world.devices[rank]->synchronize(TestWorld::kStreamA);
    world.devices[rank]->synchronize(TestWorld::kStreamB);
    for (const std::vector<float> &whole : wholes)
      for (int r = 0; r < ranks(); ++r)
        ASSERT_EQ(whole[r], r);
  });
}

TEST_P(CommunicatorTest, MoreCallsCanBeQueuedThanAnyRingHolds) {
  TestWorld world = make();
  onHostThreads(ranks(), [&](int rank) {
    int64_t sum = 1; // wraps, as unsigned numbers do
    uint64_t expected = 1;
    for (int round = 0; round < 1500; ++round) {
      world.groups[0][rank]->allReduce(&sum, 1, DType::i64, TestWorld::kStreamA);
      expected *= ranks();
    }
    world.devices[rank]->synchronize(TestWorld::kStreamA);
    EXPECT_EQ(static_cast<uint64_t>(sum), expected);
  });
}

TEST_P(CommunicatorTest, AbortEndsQueuedAndFutureCollectives) {
  TestWorld world = make();
  onHostThreads(ranks(), [&](int rank) {
    Communicator &communicator = *world.groups[0][rank];
    EXPECT_EQ(communicator.failure(), "");
    std::vector<float> buffer(64, 1.0f);
    if (rank == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100)); // the others are waiting by now
      communicator.abort("rank 0 had enough");
      communicator.abort("a second reason");
    } else {
      for (int i = 0; i < 3; ++i)
        communicator.allReduce(buffer.data(), 64, DType::f32, TestWorld::kStreamA);
    }
    world.devices[rank]->synchronize(TestWorld::kStreamA);
    communicator.allReduce(buffer.data(), 64, DType::f32, TestWorld::kStreamA);
    world.devices[rank]->synchronize(TestWorld::kStreamA);
    EXPECT_EQ(communicator.failure(), "rank 0 had enough");
  });
}

INSTANTIATE_TEST_SUITE_P(All, CommunicatorTest, testing::ValuesIn(communicatorKind().ranks), [](const auto &info) {
  return communicatorKind().name + std::to_string(info.param);
});

} // namespace
} // namespace zerocc
