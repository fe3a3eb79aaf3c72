// The suite as processes of mpirun: each runs all tests, as its own rank.

#include "tests/runtime/collectives/communicator_suite.h"

#include "runtime/collectives/mpi/mpi_world.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <unistd.h>

namespace zerocc {

static MpiLibrary &library() {
  static MpiLibrary *loaded = [] {
    auto library = MpiLibrary::load();
    if (!library) {
      std::fputs(library.error().text().c_str(), stderr);
      std::exit(1);
    }
    return *library;
  }();
  return *loaded;
}

void onHostThreads(int, const std::function<void(int)> &rank) { rank(library().rank()); }

static TestWorld makeMpiWorld(int ranks, int groups, int maxDelayMicros) {
  const int own = library().rank();
  auto made = MpiWorld::create(library());
  EXPECT_TRUE(made);
  TestWorld world;
  std::shared_ptr<MpiWorld> mpi = std::move(*made);
  world.keep = mpi;
  world.devices.resize(ranks);
  world.devices[own] = makeCpuDevice({.maxDelayMicros = maxDelayMicros, .delaySeed = static_cast<uint64_t>(own)});
  world.devices[own]->createStream("a");
  world.devices[own]->createStream("b");
  for (int g = 0; g < groups; ++g) {
    world.groups.emplace_back(ranks);
    auto group = mpi->group(0, *world.devices[own]);
    EXPECT_TRUE(group);
    world.groups.back()[own] = std::move(*group);
  }
  return world;
}

void gatherFromRanks(std::vector<int64_t> &values) {
  auto world = MpiWorld::create(library());
  ASSERT_TRUE(world);
  auto processes = (*world)->processes();
  ASSERT_TRUE(processes);
  EXPECT_TRUE((*processes)->allGather(&values[library().rank()], sizeof(int64_t), values.data()));
}

CommunicatorKind communicatorKind() { return {"mpi", {library().size()}, makeMpiWorld}; }

TEST(MpiWorld, GroupsOfColoursKnowOnlyTheirOwn) {
  auto world = MpiWorld::create(library());
  ASSERT_TRUE(world);
  auto device = makeCpuDevice();
  device->createStream("a");
  const int own = (*world)->rank(), size = (*world)->size();
  auto group = (*world)->group(own % 2, *device);
  ASSERT_TRUE(group);
  EXPECT_EQ((*group)->size(), own % 2 ? size / 2 : (size + 1) / 2);
  EXPECT_EQ((*group)->rank(), own / 2);
  std::vector<int32_t> ranks((*group)->size(), -1);
  (*group)->allGather(&own, ranks.data(), 1, DType::i32, 0);
  device->synchronize(0);
  for (size_t i = 0; i < ranks.size(); ++i)
    EXPECT_EQ(ranks[i], own % 2 + 2 * static_cast<int>(i));
}

TEST(MpiWorld, HostsAgree) {
  auto world = MpiWorld::create(library());
  ASSERT_TRUE(world);
  auto processes = (*world)->processes();
  ASSERT_TRUE(processes);
  const int own = (*world)->rank(), size = (*world)->size();
  auto texts = gatherTexts(**processes, std::string(own * 100, 'a' + own));
  ASSERT_TRUE(texts);
  for (int r = 0; r < size; ++r)
    EXPECT_EQ((*texts)[r], std::string(r * 100, 'a' + r));
  EXPECT_FALSE(*anyOf(**processes, false));
  EXPECT_TRUE(*anyOf(**processes, own == size - 1));
  EXPECT_TRUE(agree(**processes, success()));
  Status common = agree(**processes, Error("the disk is full", "make room"));
  ASSERT_FALSE(common);
  EXPECT_EQ(common.error().text(), "error: the disk is full\n  hint: make room\n");
  Status one = agree(**processes, own == size - 1 ? Status(Error("no memory")) : success());
  ASSERT_FALSE(one);
  EXPECT_EQ(one.error().text(), size == 1 ? "error: no memory\n" : "error: rank " + std::to_string(size - 1) + ": no memory\n");
  int told = own == 0 ? 42 : 0;
  EXPECT_TRUE((*processes)->broadcast(0, &told, sizeof told));
  EXPECT_EQ(told, 42);
}

TEST(MpiWorld, ARankThatDoesNotComeIsNamedWithItsPlace) {
  if (library().size() < 2)
    return; // nobody to wait for; three other sizes run this
  auto world = MpiWorld::create(library(), {.timeoutSeconds = 1});
  ASSERT_TRUE(world);
  const int own = (*world)->rank(), size = (*world)->size();
  const bool isLate = own == size - 1;
  (*world)->setWhereabouts([isLate] { return Whereabouts{!isLate, isLate ? "step 3, a walk" : "a meeting"}; });
  auto device = makeCpuDevice();
  device->createStream("a");
  auto group = (*world)->group(0, *device);
  ASSERT_TRUE(group);
  std::vector<float> buffer(8);
  if (isLate)
    while ((*world)->failure().empty())
      usleep(1000);
  else
    (*group)->allReduce(buffer.data(), 8, DType::f32, 0);
  device->synchronize(0);
  EXPECT_EQ((*world)->failure(), "rank " + std::to_string(size - 1) + " did not arrive at all-reduce of 8 f32 within 1 s; rank " +
                                     std::to_string(size - 1) + " is at step 3, a walk");
}

} // namespace zerocc

int main(int argc, char **argv) {
  (void)zerocc::library();
  testing::InitGoogleTest(&argc, argv);
  const int result = RUN_ALL_TESTS();
  zerocc::library().finalize();
  return result;
}
