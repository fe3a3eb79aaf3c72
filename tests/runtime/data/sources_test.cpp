// Patterns of files and mixtures of sources.

#include "runtime/data/data_set.h"
#include "runtime/data/npy.h"
#include "runtime/data/source.h"
#include "tests/runtime/data/temporary_folder.h"

#include <gtest/gtest.h>
#include <numeric>

namespace zerocc {
namespace {

std::string bytesOf(const auto &values) {
  return {reinterpret_cast<const char *>(values.data()), values.size() * sizeof values[0]};
}
std::vector<uint16_t> counting(int first, int count) {
  std::vector<uint16_t> values(count);
  std::iota(values.begin(), values.end(), first);
  return values;
}
std::vector<InputSpec> tokensAndLabels(int64_t batch, int64_t length, int64_t vocabulary = 30000) {
  InputSpec ids{.name = "ids", .dtype = DType::i64, .dims = {batch, length}, .role = "tokens"};
  ids.hasRange = true;
  ids.high = vocabulary;
  InputSpec labels = ids;
  labels.name = "labels", labels.role = "labels", labels.of = "ids", labels.shift = 1;
  return {ids, labels};
}
std::vector<int64_t> filled(const DataSet &data, const Batch &batch, int input, int64_t elements) {
  std::vector<int64_t> values(elements);
  Status status = data.fill(batch, input, values.data());
  EXPECT_TRUE(status) << status.error().text();
  return values;
}
std::string messageOf(const Expected<DataSet> &data) { return data ? "no error\n" : data.error().text(); }

// --- patterns ---

TEST(Pattern, FilesSortedByNameAreOneStream) {
  TemporaryFolder folder;
  // in the order of their names, not of their making; samples of 4 cross their ends, one file has a single token
  writeFile(folder / "s_2.bin", bytesOf(counting(11, 22)));
  writeFile(folder / "s_10.bin", bytesOf(counting(0, 10)));
  writeFile(folder / "s_11.bin", bytesOf(counting(10, 1)));
  writeFile(folder / "other.bin", bytesOf(counting(500, 8)));
  std::string whole = writeFile(folder / "whole.bin", bytesOf(counting(0, 33)));
  for (bool shuffle : {false, true})
    for (std::string range : {"", "[3:]", "[10%:90%]"}) {
      DataOptions options{.shuffle = shuffle, .seed = 5};
      auto parts = DataSet::open({(folder / "s_*.bin") + range}, tokensAndLabels(1, 4), {1, 1, 1}, options);
      auto one = DataSet::open({whole + range}, tokensAndLabels(1, 4), {1, 1, 1}, options);
      ASSERT_TRUE(parts && one) << messageOf(parts);
      ASSERT_EQ(parts->samples(), one->samples());
      for (int64_t step = 0; step < 20; ++step)
        for (int input : {0, 1})
          EXPECT_EQ(filled(*parts, {step}, input, 4), filled(*one, {step}, input, 4)) << step;
    }
}

TEST(Pattern, GoesForEveryKindOfFile) {
  TemporaryFolder folder;
  writeFile(folder / "a1.txt", "abcde");
  writeFile(folder / "a2.txt", "fgh");
  auto text = DataSet::open({"text:" + (folder / "a?.txt")}, tokensAndLabels(1, 7), {1, 1, 1});
  ASSERT_TRUE(text) << messageOf(text);
  EXPECT_EQ(filled(*text, {}, 1, 7), (std::vector<int64_t>{'b', 'c', 'd', 'e', 'f', 'g', 'h'}));

  InputSpec x{.name = "x", .dtype = DType::i64, .dims = {1, 2}, .role = "data"}, y = x;
  y.name = "y";
  auto array = [](std::vector<int64_t> &values) {
    ArrayView view;
    view.type = ElementType::i64;
    view.dims = {static_cast<int64_t>(values.size()) / 2, 2};
    view.elements = static_cast<int64_t>(values.size());
    view.data = reinterpret_cast<const unsigned char *>(values.data());
    return view;
  };
  std::vector<int64_t> first = {1, 2, 3, 4}, second = {5, 6};
  ASSERT_TRUE(writeNpy(folder / "b1.npy", array(first)) && writeNpy(folder / "b2.npy", array(second)));
  for (auto [name, values] : {std::pair("c1.npz", &first), {"c2.npz", &second}}) {
    auto archive = NpzWriter::create(folder / name);
    ASSERT_TRUE(archive);
    ASSERT_TRUE(archive->add("y", array(*values)) && archive->finish());
  }
  auto arrays = DataSet::open({"x=" + (folder / "b*.npy"), folder / "c*.npz"}, {x, y}, {1, 1, 1});
  ASSERT_TRUE(arrays) << messageOf(arrays);
  EXPECT_EQ(arrays->samples(), 3);
  for (int input : {0, 1}) {
    EXPECT_EQ(filled(*arrays, {.step = 1}, input, 2), (std::vector<int64_t>{3, 4}));
    EXPECT_EQ(filled(*arrays, {.step = 2}, input, 2), (std::vector<int64_t>{5, 6}));
  }
}

TEST(Pattern, SaysWhatDoesNotFitTogether) {
  TemporaryFolder folder;
  std::vector<int32_t> header(256), tokens(4, 1);
  header[0] = 20240801, header[1] = 7, header[2] = 4;
  writeFile(folder / "a.bin", bytesOf(counting(0, 40)));
  writeFile(folder / "b.bin", bytesOf(header) + bytesOf(tokens));
  const std::string pattern = folder / "?.bin";
  EXPECT_EQ(messageOf(DataSet::open({pattern}, tokensAndLabels(1, 4), {1, 1, 1})),
            "error: " + pattern + ": " + (folder / "b.bin") + ": holds u32, " + (folder / "a.bin") +
                " u16\n  hint: the files of one source are of one type\n");
  const std::string nothing = folder / "*.npy";
  EXPECT_EQ(messageOf(DataSet::open({nothing}, tokensAndLabels(1, 4), {1, 1, 1})),
            "error: " + nothing + ": matches no file\n  hint: quote the pattern, so that the shell leaves it alone\n");
  // a file of that very name wins
  writeFile(folder / "[x].bin", bytesOf(counting(7, 9)));
  auto literal = DataSet::open({folder / "[x].bin"}, tokensAndLabels(1, 4), {1, 1, 1});
  ASSERT_TRUE(literal) << messageOf(literal);
  EXPECT_EQ(filled(*literal, {}, 0, 4), (std::vector<int64_t>{7, 8, 9, 10}));
}

TEST(Pattern, ABadTokenIsFoundInItsFile) {
  TemporaryFolder folder;
  writeFile(folder / "a.bin", bytesOf(counting(0, 10)));
  writeFile(folder / "b.bin", bytesOf(counting(99, 10)));
  auto data = DataSet::open({folder / "*.bin"}, tokensAndLabels(1, 4, 101), {1, 1, 1});
  ASSERT_TRUE(data) << messageOf(data);
  int64_t values[4];
  Status status = data->fill({.step = 2}, 1, values);
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().text().find("b.bin: position 2 holds 101, input \"labels\" allows [0, 101)"), std::string::npos)
      << status.error().text();
}

// --- mixtures ---

TEST(Mixture, EverySourceHasItsExactShareAndItsSamplesInOrder) {
  for (const std::vector<int64_t> &weights :
       std::vector<std::vector<int64_t>>{{1}, {7, 3}, {1, 1}, {1, 999999}, {5, 3, 2}, {1, 2, 3, 4, 5, 6, 7}}) {
    int64_t all = std::accumulate(weights.begin(), weights.end(), int64_t(0)), levels = 0;
    while ((size_t(1) << levels) < weights.size())
      ++levels;
    for (uint64_t seed : {0, 1, 77}) {
      Mixture mixture(weights, seed);
      std::vector<int64_t> taken(weights.size());
      for (int64_t i = 0; i < 20000; ++i) {
        const auto [source, index] = mixture(i);
        ASSERT_EQ(index, taken[source]++) << "sample " << i;
        for (size_t s = 0; i % 97 == 0 && s < weights.size(); ++s)
          ASSERT_NEAR(double(taken[s]), double(i + 1) * double(weights[s]) / double(all), double(levels)) << i;
      }
    }
  }
}

TEST(Mixture, StartsWhereTheSeedSays) {
  auto sources = [](uint64_t seed) {
    Mixture mixture({7, 3}, seed);
    std::string text;
    for (int64_t i = 0; i < 40; ++i)
      text += static_cast<char>('a' + mixture(i).source);
    return text;
  };
  EXPECT_EQ(sources(1), sources(1));
  bool differs = false;
  for (uint64_t seed = 2; seed < 10; ++seed)
    differs |= sources(seed) != sources(1);
  EXPECT_TRUE(differs);
  const auto far = Mixture({7, 3}, 1)(int64_t(1) << 61); // no overflow
  EXPECT_LT(far.index, int64_t(1) << 61);
}

TEST(Mixture, SourcesAreTakenApart) {
  auto mixture = parseSource("ids=mix:0.7*a,b.bin[0%:90%],.3*text:c_*.txt,2*d.npz", {"ids"});
  ASSERT_TRUE(mixture) << mixture.error().text();
  EXPECT_EQ(mixture->input, "ids");
  ASSERT_EQ(mixture->parts.size(), 3u);
  EXPECT_EQ(mixture->parts[0].path, "a,b.bin");
  EXPECT_EQ(mixture->parts[0].range, "[0%:90%]");
  EXPECT_EQ(mixture->parts[1].path, "c_*.txt");
  EXPECT_EQ(mixture->parts[1].kind, SourceText::Kind::text);
  EXPECT_EQ(mixture->parts[2].text, "d.npz");
  EXPECT_EQ(mixture->parts[0].weight, 7);
  EXPECT_EQ(mixture->parts[1].weight, 3);
  EXPECT_EQ(mixture->parts[2].weight, 20);
  for (const char *bad : {"mix:", "mix:a.bin", "mix:0*a.bin", "mix:*a.bin", "mix:.*a.bin", "mix:1*", "mix:1*a.bin,2*",
                          "mix:-1*a.bin", "mix:1*a.txt", "mix:0.0000001*a.bin", "mix:1e3*a.bin", "mix:1000001*a.bin",
                          "mix:99999999999999999999*a.bin", "mix:1*mix:1*a.bin", "mix:1*pipe:x", "pipe:", "pipe: "})
    EXPECT_FALSE(parseSource(bad, {})) << bad;
  EXPECT_EQ(parseSource("mix:0.5*a.bin,1*pipe:b", {}).error().text(),
            "error: data source \"mix:0.5*a.bin,1*pipe:b\": pipe: cannot be part of a mixture\n"
            "  hint: write mix:0.7*A.bin,0.3*B.bin: weights above 0, with up to 6 decimals and at most 10^6\n");
}

TEST(Mixture, EverySplitSeesTheSameSamplesAndEachSourceHasItsOwnEpochs) {
  TemporaryFolder folder;
  writeFile(folder / "a.bin", bytesOf(counting(0, 41)));       // 10 samples
  writeFile(folder / "b1.bin", bytesOf(counting(1000, 5)));    // 3 samples in two files
  writeFile(folder / "b2.bin", bytesOf(counting(1005, 8)));
  const std::string source = "mix:0.75*" + (folder / "a.bin") + ",0.25*" + (folder / "b?.bin");
  for (bool shuffle : {false, true}) {
    std::vector<int64_t> expected;
    for (auto [microSteps, ranks] : {std::pair<int64_t, int64_t>(4, 1), {2, 2}, {1, 4}}) {
      auto data = DataSet::open({source}, tokensAndLabels(2, 4), {microSteps, ranks, 2}, {.shuffle = shuffle, .seed = 3});
      ASSERT_TRUE(data) << messageOf(data);
      std::vector<int64_t> seen;
      for (int64_t step = 0; step < 15; ++step)
        for (int64_t k = 0; k < microSteps; ++k)
          for (int64_t rank = 0; rank < ranks; ++rank)
            for (int64_t token : filled(*data, {step, k, rank}, 0, 8))
              seen.push_back(token);
      if (expected.empty())
        expected = seen;
      EXPECT_EQ(seen, expected);
    }
    // 120 samples: 90 of a, nine epochs of its ten; 30 of b, ten epochs of its three
    std::map<int64_t, int> counts;
    std::vector<int64_t> first; // of the samples of a
    for (size_t i = 0; i < expected.size(); i += 4) {
      ++counts[expected[i]];
      if (expected[i] < 1000)
        first.push_back(expected[i]);
    }
    EXPECT_EQ(counts.size(), 13u);
    for (auto [token, count] : counts)
      EXPECT_EQ(count, token < 1000 ? 9 : 10) << token;
    EXPECT_EQ(std::is_sorted(first.begin(), first.begin() + 10), !shuffle);
  }
}

TEST(Mixture, InputsOfOneMixtureStayTogether) {
  TemporaryFolder folder;
  auto write = [&](const char *name, int64_t base, int64_t rows) {
    std::vector<int64_t> x, y;
    for (int64_t r = 0; r < rows; ++r)
      x.push_back(base + r), y.push_back(10 * (base + r));
    auto view = [&](std::vector<int64_t> &values) {
      ArrayView array;
      array.type = ElementType::i64;
      array.dims = {rows, 1};
      array.elements = rows;
      array.data = reinterpret_cast<const unsigned char *>(values.data());
      return array;
    };
    auto archive = NpzWriter::create(folder / name);
    ASSERT_TRUE(archive && archive->add("x", view(x)) && archive->add("y", view(y)) && archive->finish());
  };
  write("a.npz", 0, 5);
  write("b.npz", 100, 7);
  InputSpec x{.name = "x", .dtype = DType::i64, .dims = {1, 1}, .role = "data"}, y = x;
  y.name = "y";
  auto data = DataSet::open({"mix:1*" + (folder / "a.npz") + ",2*" + (folder / "b.npz")}, {x, y}, {1, 1, 1}, {true, 9});
  ASSERT_TRUE(data) << messageOf(data);
  EXPECT_EQ(data->samples(), 0);
  int64_t ofB = 0;
  for (int64_t step = 0; step < 60; ++step) {
    const int64_t value = filled(*data, {step}, 0, 1)[0];
    EXPECT_EQ(filled(*data, {step}, 1, 1)[0], 10 * value);
    ofB += value >= 100;
  }
  EXPECT_EQ(ofB, 40);
  auto apart = DataSet::open({"x=mix:1*" + (folder / "a.npz") + ",2*" + (folder / "b.npz"),
                              "y=mix:2*" + (folder / "a.npz") + ",1*" + (folder / "b.npz")},
                             {x, y}, {1, 1, 1});
  EXPECT_NE(messageOf(apart).find("sample i of each must belong together"), std::string::npos) << messageOf(apart);
}

TEST(Digest, TellsDataApartByTheirBytesAndNotByTheirNames) {
  TemporaryFolder folder;
  auto digestOf = [&](const std::string &bytes, const std::string &name) {
    writeFile(folder / name, bytes);
    auto data = DataSet::open({"text:" + (folder / name)}, tokensAndLabels(1, 4), {1, 1, 1});
    EXPECT_TRUE(data) << messageOf(data);
    EXPECT_EQ(data->digests().size(), 1u); // of tokens and labels together
    EXPECT_EQ(data->digests()[0].bytes, int64_t(bytes.size()));
    return data->digests()[0].digest;
  };
  std::string bytes(20 << 20, 'x');
  const uint64_t digest = digestOf(bytes, "a");
  EXPECT_EQ(digestOf(bytes, "b"), digest);
  bytes.back() = 'y';
  EXPECT_NE(digestOf(bytes, "a"), digest);
  std::string small(70000, 'x'), other = small;
  other[35000] = 'y';
  EXPECT_NE(digestOf(small, "a"), digestOf(other, "a"));
}

} // namespace
} // namespace zerocc
