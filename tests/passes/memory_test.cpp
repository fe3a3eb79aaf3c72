// Offset packing alone, and plan_memory's counts. What plan_memory and insert_sync do to a module is in their text
// tests; here are the properties that need many or large instances.

#include "passes/packing.h"
#include "passes/packing_csv.h"
#include "passes/plan_memory.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

namespace zerocc {
namespace {

CsvBuffers readInstance(const std::string &name) {
  std::string path = std::string(ZEROCC_SOURCE_DIR) + "/tests/passes/packing/" + name;
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  auto csv = parseCsvBuffers(text.str(), name);
  EXPECT_TRUE(csv) << path;
  return csv ? *csv : CsvBuffers();
}

int64_t roundUp(int64_t value, int64_t to) { return (value + to - 1) / to * to; }

bool meet(int64_t begin, int64_t end, int64_t otherBegin, int64_t otherEnd) {
  return std::max(begin, otherBegin) < std::min(end, otherEnd);
}

/// No two buffers alive together share a byte, offsets are aligned, peak and bound are what they say.
void expectValid(const std::vector<PackBuffer> &buffers, const Packing &packing) {
  ASSERT_EQ(packing.offsets.size(), buffers.size());
  int64_t peak = 0;
  for (size_t i = 0; i < buffers.size(); ++i) {
    const PackBuffer &a = buffers[i];
    int64_t offset = packing.offsets[i];
    if (a.size == 0 || a.lower >= a.upper) {
      EXPECT_EQ(offset, 0);
      continue;
    }
    ASSERT_GE(offset, 0);
    ASSERT_EQ(offset % a.alignment, 0) << "buffer " << i;
    peak = std::max(peak, offset + roundUp(a.size, a.alignment));
    for (size_t j = 0; j < i; ++j) {
      const PackBuffer &b = buffers[j];
      if (meet(a.lower, a.upper, b.lower, b.upper)) {
        ASSERT_FALSE(meet(offset, offset + a.size, packing.offsets[j], packing.offsets[j] + b.size))
            << "buffers " << j << " and " << i;
      }
    }
  }
  EXPECT_EQ(packing.peak, peak);
  int64_t bound = 0; // some buffer starts where most are alive
  for (const PackBuffer &at : buffers) {
    int64_t live = 0;
    for (const PackBuffer &b : buffers)
      if (b.lower <= at.lower && at.lower < b.upper)
        live += roundUp(b.size, b.alignment);
    bound = std::max(bound, live);
  }
  EXPECT_EQ(packing.lowerBound, bound);
  EXPECT_GE(packing.peak, packing.lowerBound);
}

double ratio(const Packing &packing) {
  return static_cast<double>(packing.peak) / static_cast<double>(packing.lowerBound);
}

TEST(Packing, OfNothingIsEmpty) {
  Packing packing = pack({});
  EXPECT_EQ(packing.peak, 0);
  EXPECT_EQ(packing.lowerBound, 0);
  EXPECT_TRUE(packing.offsets.empty());
}

TEST(Packing, ReusesBytesAtHalfOpenBorders) {
  std::vector<PackBuffer> buffers = {{0, 2, 100, 1}, {2, 4, 100, 1}};
  Packing packing = pack(buffers);
  EXPECT_EQ(packing.peak, 100);
  buffers[1].lower = 1;
  EXPECT_EQ(pack(buffers).peak, 200);
}

TEST(Packing, RoundsSizesUpToTheAlignment) {
  std::vector<PackBuffer> buffers = {{0, 1, 1, 64}, {0, 1, 65, 64}};
  Packing packing = pack(buffers);
  expectValid(buffers, packing);
  EXPECT_EQ(packing.peak, 192);
}

TEST(Packing, GivesEmptyBuffersOffsetZero) {
  std::vector<PackBuffer> buffers = {{0, 5, 10, 1}, {1, 2, 0, 64}, {3, 3, 10, 1}};
  Packing packing = pack(buffers);
  expectValid(buffers, packing);
  EXPECT_EQ(packing.peak, 10);
}

TEST(Packing, OfRandomBuffersIsValid) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed);
    auto below = [&](int n) { return static_cast<int64_t>(random() % static_cast<unsigned>(n)); };
    std::vector<PackBuffer> buffers;
    int64_t count = below(120), times = 1 + below(60);
    for (int64_t i = 0; i < count; ++i) {
      int64_t lower = below(static_cast<int>(times));
      buffers.push_back({lower, lower + below(20), below(300), int64_t(1) << below(8)});
    }
    SCOPED_TRACE("seed " + std::to_string(seed));
    expectValid(buffers, pack(buffers));
    expectValid(buffers, pack(buffers, PackEffort::quick));
    Packing again = pack(buffers);
    EXPECT_EQ(pack(buffers).offsets, again.offsets);
  }
}

TEST(Packing, OfATrainingStepIsNearTheBound) {
  CsvBuffers csv = readInstance("resnet50_training.csv");
  Packing packing = pack(csv.buffers);
  expectValid(csv.buffers, packing);
  EXPECT_EQ(packing.lowerBound, 1515472556);
  EXPECT_LE(ratio(packing), 1.0031) << packing.order;
}

TEST(Packing, OfATightInstanceIsWhatGreedyOrdersReach) {
  CsvBuffers csv = readInstance("minimalloc_a.csv");
  Packing packing = pack(csv.buffers);
  expectValid(csv.buffers, packing);
  EXPECT_EQ(packing.lowerBound, 1048576);
  EXPECT_LE(ratio(packing), 1.2901) << packing.order;
}

// Layers as training has them: activations that live from forward to backward, transients, workspaces.
std::vector<PackBuffer> trainingStep(int layers, int perLayer) {
  std::mt19937 random(1);
  std::vector<PackBuffer> buffers;
  int64_t turn = int64_t(layers) * perLayer;
  for (int64_t i = 0; i < turn; ++i) {
    bool isKept = i % 3 == 0;
    int64_t size = 64 * static_cast<int64_t>(1 + random() % 1000);
    int64_t life = 2 + static_cast<int64_t>(random() % 3);
    buffers.push_back({i, isKept ? 2 * turn - i : i + life, size, 64});
    buffers.push_back({2 * turn - i, 2 * turn - i + life, size, 64});
  }
  return buffers;
}

TEST(Packing, TakesTwentyThousandBuffersInSeconds) {
  std::vector<PackBuffer> buffers = trainingStep(500, 20);
  ASSERT_EQ(buffers.size(), 20000u);
  auto begin = std::chrono::steady_clock::now();
  Packing packing = pack(buffers);
  double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  EXPECT_LE(ratio(packing), 1.001) << packing.order;
  EXPECT_LT(seconds, 20) << "1.6 s on one idle core; the limit leaves room for a loaded machine";
}

TEST(PackingCsv, PrintsWhatItReadsWithOffsets) {
  auto csv = parseCsvBuffers("size,id,lower,upper,note\n10,a,0,2,x\n\n20, b ,1,3,y\n", "t.csv");
  ASSERT_TRUE(csv);
  Packing packing = pack(csv->buffers);
  EXPECT_EQ(packing.peak, 30);
  EXPECT_EQ(printCsvPacking(*csv, packing), "id,lower,upper,size,offset\na,0,2,10,20\nb,1,3,20,0\n");
}

TEST(PackingCsv, RefusesWhatIsNoTable) {
  auto message = [](const std::string &text) {
    auto csv = parseCsvBuffers(text, "t.csv");
    return csv ? "accepted" : csv.error().findings()[0].message;
  };
  EXPECT_EQ(message(""), "t.csv: first line is \"\", expected columns id, lower, upper, size");
  EXPECT_EQ(message("id,lower,size\n"),
            "t.csv: first line is \"id,lower,size\", expected columns id, lower, upper, size");
  EXPECT_EQ(message("id,lower,upper,size\na,0,1\n"), "t.csv, line 2: has 3 columns, expected at least 4");
  EXPECT_EQ(message("id,lower,upper,size\na,0,1,-4\n"),
            "t.csv, line 2, size: \"-4\" is not a whole number from 0 to 1125899906842624");
  EXPECT_EQ(message("id,lower,upper,size\na,0,1,99999999999999999999\n"),
            "t.csv, line 2, size: \"99999999999999999999\" is not a whole number from 0 to 1125899906842624");
}

TEST(PackingCsv, WritesAFile) {
  std::string output = testing::TempDir() + "zerocc_packing_test.csv";
  auto packed = packCsv(std::string(ZEROCC_SOURCE_DIR) + "/tests/passes/packing/minimalloc_a.csv", output);
  ASSERT_TRUE(packed);
  EXPECT_EQ(packed->buffers, 154);
  EXPECT_EQ(packed->lowerBound, 1048576);
  std::ifstream file(output);
  std::string header;
  std::getline(file, header);
  EXPECT_EQ(header, "id,lower,upper,size,offset");
  std::filesystem::remove(output);
  EXPECT_FALSE(packCsv("/does/not/exist.csv", ""));
}

const char *const kChain = R"(module @m {
  input @x : f32[64] role=data
  storage @out : f32[64] region=carried
  segment @only {
    %a : f32[64] = exp @x
    %b : f32[64] = exp %a
    %c : f32[64] = add %a, %b
    %d : f32[64] = copy %c place=@out+0
  }
}
)";

TEST(PlanMemory, ProfileIsWhatThePackingIsBoundBy) {
  auto module = parseModule(kChain);
  ASSERT_TRUE(module) << module.error().text();
  const Graph &graph = *(*module)->graph("only");
  EXPECT_EQ(liveProfile(graph), (std::vector<int64_t>{256, 512, 768, 256}));
  EXPECT_EQ(estimatePeak(graph), 768);
  auto report = planMemory(**module, Decisions());
  ASSERT_TRUE(report);
  EXPECT_EQ(report->counters["arenaBytes"], 768);
  EXPECT_EQ(report->counters["arenaLowerBound"], 768);
  EXPECT_EQ(report->counters["buffers"], 3);
  EXPECT_EQ(report->counters["peakNode"], 2);
}

TEST(PlanMemory, PlansAPlannedModuleTheSameWay) {
  auto module = parseModule(kChain);
  ASSERT_TRUE(module);
  ASSERT_TRUE(planMemory(**module, Decisions()));
  std::string once = print(**module);
  ASSERT_TRUE(planMemory(**module, Decisions()));
  EXPECT_EQ(print(**module), once);
}

TEST(PlanMemory, KindsAddUpToTheRegions) {
  auto module = parseModule(kChain);
  ASSERT_TRUE(module);
  ASSERT_TRUE(planMemory(**module, Decisions()));
  int64_t kinds = 0, regions = 0;
  for (const Attributes::Entry &entry : (*module)->facts.entries())
    if (const int64_t *bytes = std::get_if<int64_t>(&entry.second);
        bytes && entry.first.rfind("peak.", 0) == 0)
      kinds += *bytes;
  for (int64_t bytes : (*module)->regionBytes)
    regions += bytes;
  EXPECT_EQ(kinds, regions);
  EXPECT_EQ((*module)->facts.getInt("peak.activations"), 768);
}

} // namespace
} // namespace zerocc
