#include "runtime/data/data_set.h"

#include "runtime/data/megatron.h"
#include "runtime/data/npy.h"
#include "runtime/data/shuffle.h"
#include "runtime/data/source.h"
#include "tests/runtime/data/temporary_folder.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <numeric>

namespace zerocc {
namespace {

std::string bytesOf(const auto &values) {
  return {reinterpret_cast<const char *>(values.data()), values.size() * sizeof values[0]};
}

template <typename T>
std::string writeArray(const std::string &path, ElementType type, std::vector<int64_t> dims,
                       const std::vector<T> &values) {
  return writeFile(path, npyHeader(type, dims) + bytesOf(values));
}

std::vector<uint16_t> upTo(int count) {
  std::vector<uint16_t> values(count);
  std::iota(values.begin(), values.end(), 0);
  return values;
}

/// A language model of `length` tokens: ids, labels one ahead, positions, mask.
std::vector<InputSpec> languageModel(int64_t batch, int64_t length, int64_t vocabulary = 1000) {
  InputSpec ids{.name = "input_ids", .dtype = DType::i64, .dims = {batch, length}, .role = "tokens"};
  ids.hasRange = true;
  ids.high = vocabulary;
  InputSpec labels = ids;
  labels.name = "labels";
  labels.role = "labels";
  labels.of = "input_ids";
  labels.shift = 1;
  labels.hasIgnore = true;
  InputSpec positions{.name = "position_ids", .dtype = DType::i64, .dims = {1, length}, .role = "iota"};
  InputSpec mask{.name = "mask", .dtype = DType::f32, .dims = {batch, length}, .role = "ones"};
  return {ids, labels, positions, mask};
}

template <typename T = int64_t>
std::vector<T> filled(const DataSet &data, const Batch &batch, int input, int64_t elements) {
  std::vector<T> values(elements);
  Status status = data.fill(batch, input, values.data());
  EXPECT_TRUE(status) << status.error().text();
  return values;
}

std::string messageOf(const Expected<DataSet> &data) { return data ? "no error\n" : data.error().text(); }

// --- Megatron ---

template <typename T> void append(std::string &bytes, T value) {
  bytes.append(reinterpret_cast<const char *>(&value), sizeof value);
}

/// The index of sequences of these lengths, one behind the other; `firsts`: where documents begin, and the end.
std::string megatronIndex(uint8_t code, int64_t tokenBytes, const std::vector<int32_t> &lengths,
                          const std::vector<int64_t> &firsts) {
  std::string bytes("MMIDIDX\0\0", 9);
  append<uint64_t>(bytes, 1);
  append<uint8_t>(bytes, code);
  append<uint64_t>(bytes, lengths.size());
  append<uint64_t>(bytes, firsts.size());
  bytes += bytesOf(lengths);
  int64_t at = 0;
  for (int32_t length : lengths) {
    append<int64_t>(bytes, at);
    at += length * tokenBytes;
  }
  return bytes + bytesOf(firsts);
}

std::string megatronError(std::string index, int64_t binBytes = 20) {
  auto parsed = parseMegatronIndex(Bytes(reinterpret_cast<const unsigned char *>(index.data()), index.size()), binBytes);
  return parsed ? "no error" : parsed.error().text();
}

TEST(Megatron, DocumentsAreOneStreamOfTheirDtype) {
  TemporaryFolder folder;
  const std::vector<int32_t> tokens = {70000, 1, 2, 3, 4, 5, 6, 7, 8};
  writeFile(folder / "a.bin", bytesOf(tokens));
  writeFile(folder / "a.idx", megatronIndex(4, 4, {4, 0, 5}, {0, 1, 3}));
  auto data = DataSet::open({folder / "a.bin"}, languageModel(1, 4, 100000), {1, 1, 1});
  ASSERT_TRUE(data) << data.error().text();
  EXPECT_EQ(data->samples(), 2);
  EXPECT_EQ(filled(*data, {0, 0, 0}, 0, 4), (std::vector<int64_t>{70000, 1, 2, 3}));
  EXPECT_EQ(filled(*data, {1, 0, 0}, 1, 4), (std::vector<int64_t>{5, 6, 7, 8}));
}

TEST(Megatron, ReadsU16AndRefusesWhatDoesNotFit) {
  const std::vector<int32_t> lengths = {3, 7};
  const std::string good = megatronIndex(8, 2, lengths, {0, 1, 2});
  EXPECT_EQ(megatronError(good), "no error");
  EXPECT_EQ(megatronError(good + std::string(2, '\0')), "no error") << "a mode for each sequence";
  EXPECT_NE(megatronError(good, 22).find("hold 10 tokens, 20 bytes; the .bin has 22"), std::string::npos);
  EXPECT_NE(megatronError(good, 18).find("sequence 1 has 7 tokens, which do not fit"), std::string::npos);
  EXPECT_NE(megatronError(good.substr(0, good.size() - 1)).find("do not fill its"), std::string::npos);
  EXPECT_NE(megatronError(good + "x").find("do not fill its"), std::string::npos);
  EXPECT_NE(megatronError("MMIDIDX").find("does not begin with MMIDIDX"), std::string::npos);
  EXPECT_NE(megatronError(std::string("TNTIDX\0\0", 8)).find("TNTIDX"), std::string::npos);
  EXPECT_NE(megatronError(megatronIndex(6, 2, lengths, {0, 1, 2})).find("dtype code 6"), std::string::npos);
  EXPECT_NE(megatronError(megatronIndex(8, 4, lengths, {0, 1, 2})).find("sequence 1 begins at byte 12"), std::string::npos);
  EXPECT_NE(megatronError(megatronIndex(8, 2, lengths, {0, 3, 2})).find("document bound 1 is 3"), std::string::npos);
  EXPECT_NE(megatronError(megatronIndex(8, 2, lengths, {0, 1})).find("document bound 1 is 1"), std::string::npos);
  EXPECT_NE(megatronError(megatronIndex(8, 2, {-1, 11}, {0, 2})).find("has -1 tokens"), std::string::npos);
  std::string counts = good;
  std::fill_n(counts.begin() + 18, 8, '\xff');
  EXPECT_NE(megatronError(counts).find("18446744073709551615 sequences"), std::string::npos);
  std::string version = good;
  version[9] = 2;
  EXPECT_NE(megatronError(version).find("version 2, we read 1"), std::string::npos);
}

TEST(Megatron, TheErrorNamesTheIndex) {
  TemporaryFolder folder;
  writeFile(folder / "a.bin", "abcd");
  writeFile(folder / "a.idx", "no index");
  auto data = DataSet::open({folder / "a.bin"}, languageModel(1, 1), {1, 1, 1});
  EXPECT_NE(messageOf(data).find("a.idx: is no Megatron index"), std::string::npos) << messageOf(data);
}

// --- sources ---

TEST(Source, TakesNameKindAndRangeApart) {
  auto parsed = [](const std::string &text) { return *parseSource(text, {"ids", "ids=2", "a:b"}); };
  EXPECT_EQ(parsed("text:a b.txt").path, "a b.txt");
  EXPECT_EQ(parsed("text:x=y.txt").path, "x=y.txt");
  EXPECT_EQ(parsed("./x=y.npy").path, "./x=y.npy");
  EXPECT_EQ(parsed("ids=x.npy").input, "ids");
  EXPECT_EQ(parsed("ids=2=x.npy").input, "ids=2");
  EXPECT_EQ(parsed("a:b=x.npy").input, "a:b");
  SourceText source = parsed("ids=train.bin[0%:97.5%]");
  EXPECT_EQ(source.kind, SourceText::Kind::bin);
  EXPECT_EQ(source.path, "train.bin");
  EXPECT_EQ(source.range, "[0%:97.5%]");
  EXPECT_EQ(parsed("text:notes[1]").path, "notes[1]");
  EXPECT_EQ(parsed("text:notes[1:]").path, "notes");

  EXPECT_EQ(
      parseSource("idz=x.npy", {"ids", "labels"}).error().text(),
      "error: data source \"idz=x.npy\": there is no input \"idz\"\n  hint: the inputs are: ids, labels\n");
  EXPECT_FALSE(parseSource("corpus.txt", {}));
  EXPECT_FALSE(parseSource("text:", {}));
}

TEST(Source, RangesCountOrArePercent) {
  auto range = [](const std::string &text, int64_t count) {
    Expected<IndexRange> found = resolveRange(text, count);
    return found ? std::pair(found->begin, found->end) : std::pair<int64_t, int64_t>(-1, -1);
  };
  using Pair = std::pair<int64_t, int64_t>;
  EXPECT_EQ(range("", 10), Pair(0, 10));
  EXPECT_EQ(range("[:]", 10), Pair(0, 10));
  EXPECT_EQ(range("[2:5]", 10), Pair(2, 5));
  EXPECT_EQ(range("[2:]", 10), Pair(2, 10));
  EXPECT_EQ(range("[:90%]", 11), Pair(0, 9));
  EXPECT_EQ(range("[90%:]", 11), Pair(9, 11));
  EXPECT_EQ(range("[12.5%:100.000000%]", 8), Pair(1, 8));
  EXPECT_EQ(range("[0%:100%]", int64_t(1) << 60), Pair(0, int64_t(1) << 60));
  for (const char *bad : {"[5:2]", "[0:11]", "[0%:101%]", "[.%:]", "[%:]", "[1.5:]", "[1..5%:]",
                          "[1.1234567%:]", "[0:99999999999999999999]", "[0%:100.1%]"})
    EXPECT_EQ(range(bad, 10), Pair(-1, -1)) << bad;
}

TEST(Source, ReadsTokenFiles) {
  TemporaryFolder folder;
  auto tokens = [&](const std::string &bytes) {
    return readTokens({SourceText::Kind::bin, "", writeFile(folder / "t.bin", bytes), ""});
  };
  Expected<ArrayView> plain = tokens(bytesOf(upTo(7)));
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->elements, 7);
  EXPECT_EQ(plain->type, ElementType::u16);
  EXPECT_FALSE(tokens("odd"));

  std::vector<int32_t> header(256);
  header[0] = 20240520, header[1] = 1, header[2] = 7;
  Expected<ArrayView> gpt2 = tokens(bytesOf(header) + bytesOf(upTo(7)));
  ASSERT_TRUE(gpt2) << gpt2.error().text();
  EXPECT_EQ(elementAsInteger(gpt2->type, gpt2->data, 6), 6);

  header[0] = 20240801, header[1] = 7;
  Expected<ArrayView> llama = tokens(bytesOf(header) + bytesOf(std::vector<uint32_t>(7, 128000)));
  ASSERT_TRUE(llama) << llama.error().text();
  EXPECT_EQ(elementAsInteger(llama->type, llama->data, 6), 128000);

  std::string file = bytesOf(header) + bytesOf(std::vector<uint32_t>(7, 128000));
  for (size_t bytes = 4; bytes < file.size(); ++bytes)
    EXPECT_FALSE(tokens(file.substr(0, bytes))) << bytes;
  header[1] = 8;
  EXPECT_FALSE(tokens(bytesOf(header)));
  header[1] = 7, header[2] = -1;
  EXPECT_FALSE(tokens(bytesOf(header)));
  header[0] = 20240522; // an evaluation file of llm.c
  EXPECT_FALSE(tokens(bytesOf(header)));
}

// --- samples ---

TEST(DataSet, FeedsAStreamOfTokens) {
  TemporaryFolder folder;
  std::string source = writeFile(folder / "t.bin", bytesOf(upTo(33)));
  Expected<DataSet> data =
      DataSet::open({source}, languageModel(2, 4), {.microSteps = 1, .ranks = 2, .microBatch = 2});
  ASSERT_TRUE(data) << data.error().text();
  EXPECT_EQ(data->samples(), 8);             // (33 - 1) / 4
  Batch batch{.step = 1, .k = 0, .rank = 1}; // samples 6 and 7
  EXPECT_EQ(filled(*data, batch, 0, 8), (std::vector<int64_t>{24, 25, 26, 27, 28, 29, 30, 31}));
  EXPECT_EQ(filled(*data, batch, 1, 8), (std::vector<int64_t>{25, 26, 27, 28, 29, 30, 31, 32}));
  EXPECT_EQ(filled(*data, batch, 2, 4), (std::vector<int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(filled<float>(*data, batch, 3, 8), std::vector<float>(8, 1.0f));
  EXPECT_EQ(filled(*data, {.step = 2}, 0, 8), filled(*data, {.step = 0}, 0, 8));
}

TEST(DataSet, EverySplitSeesTheSameSamples) {
  TemporaryFolder folder;
  std::string source = writeFile(folder / "t.bin", bytesOf(upTo(64 * 4 + 1)));
  for (bool shuffle : {false, true}) {
    std::vector<int64_t> expected;
    for (auto [microSteps, ranks] : {std::pair<int64_t, int64_t>(4, 1), {2, 2}, {1, 4}}) {
      Expected<DataSet> data = DataSet::open({source}, languageModel(2, 4), {microSteps, ranks, 2},
                                             {.shuffle = shuffle, .seed = 3});
      ASSERT_TRUE(data) << data.error().text();
      std::vector<int64_t> seen;
      for (int64_t step = 0; step < 20; ++step)
        for (int64_t k = 0; k < microSteps; ++k)
          for (int64_t rank = 0; rank < ranks; ++rank) {
            std::vector<int64_t> part = filled(*data, {step, k, rank}, 0, 8);
            seen.insert(seen.end(), part.begin(), part.end());
          }
      if (expected.empty())
        expected = seen;
      EXPECT_EQ(seen, expected);
      // an epoch is 8 steps of 8 samples: every token once
      std::vector<int64_t> epoch(seen.begin() + 256, seen.begin() + 512);
      EXPECT_EQ(std::is_sorted(epoch.begin(), epoch.end()), !shuffle);
      EXPECT_EQ(std::equal(epoch.begin(), epoch.end(), seen.begin()), !shuffle);
      std::sort(epoch.begin(), epoch.end());
      for (int64_t i = 0; i < 256; ++i)
        EXPECT_EQ(epoch[i], i);
    }
  }
}

TEST(DataSet, BatchesWrapInTheirMiddle) {
  TemporaryFolder folder;
  std::string source = writeFile(folder / "t.bin", bytesOf(upTo(13))); // 3 samples of 4
  Expected<DataSet> data = DataSet::open({source}, languageModel(2, 4), {1, 1, 2});
  ASSERT_TRUE(data);
  EXPECT_EQ(filled(*data, {.step = 1}, 0, 8), (std::vector<int64_t>{8, 9, 10, 11, 0, 1, 2, 3}));
  int64_t far = int64_t(1) << 60; // 2^61 mod 3 = 2
  EXPECT_EQ(filled(*data, {.step = far}, 0, 8), (std::vector<int64_t>{8, 9, 10, 11, 0, 1, 2, 3}));
}

TEST(DataSet, TextIsBytesAndRangesSplitIt) {
  TemporaryFolder folder;
  std::string file = writeFile(folder / "t.txt", "abcdefghijklmnopqrstuvwxyz");
  Expected<DataSet> train = DataSet::open({"text:" + file + "[:50%]"}, languageModel(1, 4), {1, 1, 1});
  Expected<DataSet> eval = DataSet::open({"text:" + file + "[50%:]"}, languageModel(1, 4), {1, 1, 1});
  ASSERT_TRUE(train && eval);
  EXPECT_EQ(train->samples(), 3); // (13 - 1) / 4
  EXPECT_EQ(filled(*train, {.step = 2}, 1, 4), (std::vector<int64_t>{'j', 'k', 'l', 'm'}));
  EXPECT_EQ(filled(*eval, {.step = 0}, 0, 4), (std::vector<int64_t>{'n', 'o', 'p', 'q'}));
  EXPECT_NE(train->fingerprint(), eval->fingerprint());
}

TEST(DataSet, ArraysGoToTheInputsOfTheirNames) {
  TemporaryFolder folder;
  std::string path = folder / "d.npz";
  std::vector<int64_t> ids(12), labels(12, -100), other(3);
  std::iota(ids.begin(), ids.end(), 0);
  labels[5] = 7;
  {
    ArrayView view;
    view.type = ElementType::i64;
    view.dims = {3, 4};
    view.elements = 12;
    Expected<NpzWriter> writer = NpzWriter::create(path);
    view.data = reinterpret_cast<const unsigned char *>(ids.data());
    ASSERT_TRUE(writer->add("input_ids", view));
    view.data = reinterpret_cast<const unsigned char *>(labels.data());
    ASSERT_TRUE(writer->add("labels", view));
    ASSERT_TRUE(writer->add("spare", view));
    ASSERT_TRUE(writer->finish());
  }
  Expected<DataSet> data = DataSet::open({path}, languageModel(1, 4), {1, 1, 1});
  ASSERT_TRUE(data) << data.error().text();
  EXPECT_EQ(data->samples(), 3);
  EXPECT_EQ(filled(*data, {.step = 1}, 0, 4), (std::vector<int64_t>{4, 5, 6, 7}));
  EXPECT_EQ(filled(*data, {.step = 1}, 1, 4), (std::vector<int64_t>{-100, 7, -100, -100})); // already aligned
  EXPECT_EQ(data->describe(),
            (std::vector<std::string>{"input_ids i64[1,4]: " + path + ", samples of i64, 3 samples",
                                      "labels i64[1,4]: " + path + ", samples of i64, 3 samples",
                                      "position_ids i64[1,4]: 0, 1, 2, … along the last dim",
                                      "mask f32[1,4]: ones", "not used: array \"spare\" of " + path}));

  // what is named wins over the array of the archive
  std::string file =
      writeArray<int64_t>(folder / "l.npy", ElementType::i64, {3, 4}, std::vector<int64_t>(12, 9));
  data = DataSet::open({path, "labels=" + file}, languageModel(1, 4), {1, 1, 1});
  ASSERT_TRUE(data) << data.error().text();
  EXPECT_EQ(filled(*data, {.step = 1}, 1, 4), std::vector<int64_t>(4, 9));
}

TEST(DataSet, ColumnsBehindASampleAreItsLabels) {
  TemporaryFolder folder;
  std::string file = writeArray<uint16_t>(folder / "t.npy", ElementType::u16, {3, 5}, upTo(15));
  Expected<DataSet> data = DataSet::open({file}, languageModel(1, 4), {1, 1, 1});
  ASSERT_TRUE(data) << data.error().text();
  EXPECT_EQ(filled(*data, {.step = 1}, 0, 4), (std::vector<int64_t>{5, 6, 7, 8}));
  EXPECT_EQ(filled(*data, {.step = 1}, 1, 4), (std::vector<int64_t>{6, 7, 8, 9}));

  std::string aligned = writeArray<uint16_t>(folder / "a.npy", ElementType::u16, {3, 4}, upTo(12));
  EXPECT_EQ(messageOf(DataSet::open({aligned}, languageModel(1, 4), {1, 1, 1})),
            "error: " + aligned +
                ": samples [4] of input \"input_ids\" hold no tokens behind their end for \"labels\" "
                "(1 ahead)\n"
                "  hint: store 1 more column(s), or one long array of tokens, or give --data "
                "labels=FILE.npy, aligned with "
                "the logits\n");
}

TEST(DataSet, FloatsAreRoundedAndNeverMadeOfIntegers) {
  TemporaryFolder folder;
  std::vector<InputSpec> inputs = {{.name = "x", .dtype = DType::f32, .dims = {2, 2}},
                                   {.name = "labels", .dtype = DType::i64, .dims = {2}, .role = "labels"}};
  std::string x = writeArray<double>(folder / "x.npy", ElementType::f64, {2, 2}, {0.1, 0.2, 0.3, 0.4});
  std::string labels = writeArray<uint8_t>(folder / "l.npy", ElementType::u8, {2}, {4, 5});
  Expected<DataSet> data = DataSet::open({"x=" + x, "labels=" + labels}, inputs, {1, 1, 2});
  ASSERT_TRUE(data) << data.error().text();
  EXPECT_EQ(filled<float>(*data, {}, 0, 4), (std::vector<float>{0.1f, 0.2f, 0.3f, 0.4f}));
  EXPECT_EQ(filled(*data, {}, 1, 2), (std::vector<int64_t>{4, 5}));
  EXPECT_EQ(messageOf(DataSet::open({"x=" + labels, "labels=" + labels}, inputs, {1, 1, 2})),
            "error: x=" + labels +
                ": input \"x\" (f32[2,2]) cannot be made from u8[2]\n"
                "  hint: store it with array.astype(numpy.float32)\n");
}

TEST(DataSet, AnInputWithoutSamplesTakesAWholeArray) {
  TemporaryFolder folder;
  std::vector<InputSpec> inputs = {{.name = "bias", .dtype = DType::f32, .dims = {3}},
                                   {.name = "past", .dtype = DType::f32, .dims = {2, 0, 8}},
                                   {.name = "nothing", .dtype = DType::i32, .dims = {2, 2}, .role = "zeros"}};
  std::string file = writeArray<float>(folder / "b.npy", ElementType::f32, {3}, {1, 2, 3});
  Expected<DataSet> data = DataSet::open({"bias=" + file}, inputs, {1, 1, 2});
  ASSERT_TRUE(data) << data.error().text();
  EXPECT_EQ(filled<float>(*data, {.step = 5}, 0, 3), (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(filled<int32_t>(*data, {.step = 5}, 2, 4), std::vector<int32_t>(4, 0));
  EXPECT_TRUE(data->fill({}, 1, nullptr));
  EXPECT_EQ(data->samples(), 0);
}

// --- refusals ---

TEST(DataSet, NamesEveryInputWithoutData) {
  EXPECT_EQ(messageOf(DataSet::open({}, languageModel(2, 4), {1, 1, 2})),
            "error: input \"input_ids\" (i64[2,4], tokens) has no data\n"
            "  hint: --data text:FILE (bytes as tokens), --data FILE.bin, or --data input_ids=FILE.npy\n"
            "error: input \"labels\" (i64[2,4], labels) has no data\n"
            "  hint: give \"input_ids\" a source of tokens, and these are taken from it; or --data "
            "labels=FILE.npy\n");
}

TEST(DataSet, SaysWhatDoesNotFit) {
  TemporaryFolder folder;
  std::string few = writeFile(folder / "few.bin", bytesOf(upTo(16)));
  EXPECT_EQ(
      messageOf(DataSet::open({few}, languageModel(2, 4), {1, 2, 2})),
      "error: " + few +
          ": has 3 samples, one step takes 4 (2 ranks x 1 micro-steps x micro-batch 2)\n"
          "  hint: give more data, or compile with fewer ranks, micro-steps or a smaller --micro-batch\n");
  std::string wide = writeArray<uint16_t>(folder / "w.npy", ElementType::u16, {2, 8}, upTo(16));
  EXPECT_EQ(messageOf(DataSet::open({"input_ids=" + wide}, languageModel(2, 4), {1, 1, 2})),
            "error: input_ids=" + wide +
                ": input \"input_ids\" (i64[2,4]) takes samples of [5], there are 2 of [8]\n"
                "  hint: reshape the data, or compile with the dims it has (--dim NAME=VALUE)\n");
  std::string labels = writeArray<uint16_t>(folder / "l.npy", ElementType::u16, {4, 4}, upTo(16));
  EXPECT_EQ(messageOf(DataSet::open({few, "labels=" + labels}, languageModel(2, 4), {1, 1, 2})),
            "no error\n");
  labels = writeArray<uint16_t>(folder / "l.npy", ElementType::u16, {2, 4}, upTo(8));
  EXPECT_EQ(messageOf(DataSet::open({few, "labels=" + labels}, languageModel(2, 4), {1, 1, 2})),
            "error: inputs have different numbers of samples: \"input_ids\" 4 (" + few +
                "), \"labels\" 2 (labels=" + labels + ")\n  hint: sample i of each must belong together\n");
  EXPECT_EQ(messageOf(DataSet::open({few, few}, languageModel(2, 4), {1, 1, 2})),
            "error: " + few + ": no input is left to take this\n  hint: bind it by name: --data NAME=" + few +
                "\n");
  EXPECT_EQ(messageOf(DataSet::open({"labels=" + few, "labels=" + few, few}, languageModel(2, 4), {1, 1, 2})),
            "error: input \"labels\" has two sources: labels=" + few + " and labels=" + few +
                "\n  hint: give one of them\n");
  std::vector<InputSpec> two = languageModel(2, 4);
  two.push_back(two[0]);
  two.back().name = "decoder_ids";
  EXPECT_EQ(messageOf(DataSet::open({few}, two, {1, 1, 2})),
            "error: " + few +
                ": could go to any of the inputs input_ids, decoder_ids\n"
                "  hint: say which: --data input_ids=" +
                few + "\n");
}

TEST(DataSet, ChecksEveryInteger) {
  TemporaryFolder folder;
  std::string file = writeFile(folder / "t.txt", "abcdefghiJklmnop");
  Expected<DataSet> data = DataSet::open({"text:" + file}, languageModel(1, 4, 'j'), {1, 1, 1});
  ASSERT_TRUE(data);
  std::vector<int64_t> target(4);
  EXPECT_TRUE(data->fill({.step = 1}, 0, target.data()));
  EXPECT_EQ(data->fill({.step = 2}, 0, target.data()).error().text(),
            "error: text:" + file +
                ": position 10 holds 107, input \"input_ids\" allows [0, 106)\n"
                "  hint: the model's vocabulary has 106 entries: give data of its tokenizer, or train a "
                "model with a larger "
                "vocabulary\n");
  std::string labels = writeArray<int64_t>(folder / "l.npy", ElementType::i64, {3, 4},
                                           {-100, 1, 2, 3, 4, 5, 6, 7, 8, 9, -1, 11});
  data = DataSet::open({"text:" + file, "labels=" + labels}, languageModel(1, 4, 'j'), {1, 1, 1});
  EXPECT_FALSE(data); // 4 samples of 4 tokens, 3 of labels
  data = DataSet::open({"text:" + file + "[:12]", "labels=" + labels}, languageModel(1, 4, 'j'), {1, 1, 1});
  ASSERT_TRUE(data) << data.error().text();
  EXPECT_EQ(filled(*data, {.step = 0}, 1, 4), (std::vector<int64_t>{-100, 1, 2, 3}));
  EXPECT_EQ(data->fill({.step = 2}, 1, target.data()).error().text(),
            "error: labels=" + labels +
                ": sample 2, element 2 holds -1, input \"labels\" allows [0, 106) and -100\n"
                "  hint: labels are class numbers; -100 leaves a position out of the loss\n");
}

TEST(DataSet, RefusesImpossibleInputs) {
  for (std::vector<int64_t> dims : {std::vector<int64_t>{2, -1}, {2, int64_t(1) << 62}}) {
    std::vector<InputSpec> inputs = languageModel(2, 4);
    inputs[0].dims = dims;
    EXPECT_FALSE(DataSet::open({}, inputs, {1, 1, 2}));
  }
  std::vector<InputSpec> inputs = languageModel(2, 4);
  inputs[1].shift = std::numeric_limits<int64_t>::max();
  EXPECT_FALSE(DataSet::open({}, inputs, {1, 1, 2}));
  EXPECT_FALSE(DataSet::open({}, languageModel(2, 4), {1, 0, 2}));
  EXPECT_FALSE(DataSet::open({}, languageModel(2, 4), {int64_t(1) << 40, 1, 2}));
}

TEST(DataSet, ReadsTheDataOfTheModels) {
  Expected<DataSet> data = DataSet::open({ZEROCC_SOURCE_DIR "/models/gpt2_torchscript.data.npz"},
                                         languageModel(2, 32, 96), {1, 2, 2});
  ASSERT_TRUE(data) << data.error().text();
  EXPECT_EQ(data->samples(), 80);
  for (int64_t step = 0; step < 20; ++step)
    for (int64_t rank = 0; rank < 2; ++rank)
      for (int input : {0, 1})
        filled(*data, {step, 0, rank}, input, 64);
}

// --- order ---

TEST(Shuffle, IsAPermutationForEveryCount) {
  for (uint64_t count : {1, 2, 3, 4, 5, 15, 16, 17, 63, 64, 65, 1000, 4097}) {
    Shuffle order(7, 1, count);
    std::vector<bool> seen(count);
    for (uint64_t i = 0; i < count; ++i) {
      uint64_t at = order(i);
      ASSERT_LT(at, count);
      ASSERT_FALSE(seen[at]);
      seen[at] = true;
    }
  }
}

TEST(Shuffle, DependsOnSeedAndEpochAndMixes) {
  constexpr int kCount = 10000;
  Shuffle a(1, 0, kCount), b(2, 0, kCount), c(1, 1, kCount), again(1, 0, kCount);
  int sameSeed = 0, sameEpoch = 0, neighbours = 0;
  double correlation = 0;
  for (int i = 0; i < kCount; ++i) {
    EXPECT_EQ(a(i), again(i));
    sameSeed += a(i) == b(i);
    sameEpoch += a(i) == c(i);
    neighbours += i > 0 && a(i) == a(i - 1) + 1;
    correlation += (double(i) / kCount - 0.5) * (double(a(i)) / kCount - 0.5) * 12 / kCount;
  }
  EXPECT_LT(sameSeed, 12); // one is expected
  EXPECT_LT(sameEpoch, 12);
  EXPECT_LT(neighbours, 12);
  EXPECT_LT(std::abs(correlation), 0.05);
}

} // namespace
} // namespace zerocc
