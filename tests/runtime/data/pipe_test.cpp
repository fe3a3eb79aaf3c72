// Frames that a command writes: their form, how they are read, what becomes of the command.

#include "runtime/data/data_set.h"
#include "tests/runtime/data/temporary_folder.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fcntl.h>
#include <numeric>
#include <thread>
#include <unistd.h>

namespace zerocc {
namespace {

PipeFrame frameOf(uint64_t number, std::string token = "") {
  PipeFrame frame;
  frame.number = number;
  frame.token = std::move(token);
  frame.arrays = {{"ids", ElementType::i32, {2, 5}, 10}};
  return frame;
}

/// Frame `number` holds 10 number, 10 number + 1, … : tokens of 2 samples of 4 and one column more.
std::string bytesOf(const PipeFrame &frame) {
  std::vector<int32_t> values(10);
  std::iota(values.begin(), values.end(), static_cast<int32_t>(10 * frame.number));
  return pipeFrameHeader(frame) + std::string(reinterpret_cast<const char *>(values.data()), 40);
}

std::string frames(int count, bool tokens = false) {
  std::string all;
  for (int i = 0; i < count; ++i)
    all += bytesOf(frameOf(i, tokens ? "behind " + std::to_string(i) : ""));
  return all;
}

std::vector<InputSpec> inputs() {
  InputSpec ids{.name = "ids", .dtype = DType::i64, .dims = {2, 4}, .role = "tokens"};
  ids.hasRange = true;
  ids.high = 1000;
  InputSpec labels = ids;
  labels.name = "labels", labels.role = "labels", labels.of = "ids", labels.shift = 1;
  InputSpec mask{.name = "mask", .dtype = DType::f32, .dims = {2, 4}, .role = "ones"};
  return {ids, labels, mask};
}

std::vector<int64_t> filled(const DataSet &data, const Batch &batch, int input) {
  std::vector<int64_t> values(8);
  Status status = data.fill(batch, input, values.data());
  EXPECT_TRUE(status) << status.error().text();
  return values;
}
std::string messageOf(const auto &result) { return result ? "no error\n" : result.error().text(); }
std::string cat(const std::string &path) { return "pipe:cat " + path; }

Bytes bytes(const std::string &text) { return {reinterpret_cast<const unsigned char *>(text.data()), text.size()}; }

TEST(PipeFrame, IsReadAsItWasWritten) {
  PipeFrame frame = frameOf(7, "shard 3, line 12");
  frame.arrays.push_back({"x", ElementType::bf16, {1, 2, 3}, 6});
  frame.arrays.push_back({"empty", ElementType::boolean, {2, 0}, 0});
  const std::string header = pipeFrameHeader(frame);
  auto read = parsePipeFrame(bytes(header));
  ASSERT_TRUE(read) << read.error().text();
  EXPECT_EQ(read->number, 7u);
  EXPECT_EQ(read->token, frame.token);
  ASSERT_EQ(read->arrays.size(), 3u);
  EXPECT_EQ(read->arrays[1].name, "x");
  EXPECT_EQ(read->arrays[1].dims, (std::vector<int64_t>{1, 2, 3}));
  EXPECT_EQ(read->payloadBytes(), 40 + 12);
  EXPECT_EQ(pipeFrameHeader(*read), header);
}

TEST(PipeFrame, EveryFaultIsNamed) {
  const std::string good = pipeFrameHeader(frameOf(0, "t"));
  auto with = [&](size_t at, auto value) {
    std::string changed = good;
    std::memcpy(changed.data() + at, &value, sizeof value);
    return messageOf(parsePipeFrame(bytes(changed)));
  };
  auto expect = [](const std::string &message, const std::string &part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  EXPECT_EQ(with(0, 'Z'), "no error\n");
  expect(with(0, 'z'), "does not begin with ZPIP");
  expect(with(4, uint32_t(2)), "is of version 2, we read 1");
  expect(with(8, uint32_t(39)), "its headerBytes is 39, 40 to 65536 are allowed");
  expect(with(8, uint32_t(65537)), "its headerBytes is 65537");
  expect(with(8, uint32_t(good.size() - 1)), "there are " + std::to_string(good.size()));
  expect(with(12, uint32_t(0)), "its number of arrays is 0");
  expect(with(12, uint32_t(257)), "its number of arrays is 257");
  expect(with(12, uint32_t(2)), "array 1 reaches beyond the end of the header");
  expect(with(16, uint32_t(4097)), "its tokenBytes is 4097");
  expect(with(16, uint32_t(2)), "its token has 2 bytes, the header has room for 1");
  expect(with(16, uint32_t(0)), "its token has 0 bytes");
  expect(with(20, uint32_t(1)), "has 1 where there must be 0");
  expect(with(32, uint64_t(41)), "its payloadBytes is 41, its arrays have 40");
  expect(with(32, ~uint64_t(0)), "its payloadBytes is 18446744073709551615");
  expect(with(40, 'x'), "array 0 has type \"x4\"");
  expect(with(42, uint16_t(0)), "nameBytes is 0");
  expect(with(42, uint16_t(1025)), "nameBytes is 1025");
  expect(with(42, uint16_t(9)), "reaches beyond");
  expect(with(44, uint32_t(9)), "rank is 9");
  expect(with(48, int64_t(-1)), "impossible dims [-1,5]");
  expect(with(48, int64_t(1) << 61), "impossible dims");
  expect(with(64, uint64_t(44)), "says 44 bytes; i32[2,5] has 40");
  expect(with(good.size() - 1, '\n'), "not printable ASCII");
  PipeFrame twice = frameOf(0);
  twice.arrays.push_back(twice.arrays[0]);
  expect(messageOf(parsePipeFrame(bytes(pipeFrameHeader(twice)))), "array \"ids\" is there twice");
  for (size_t size = 0; size < good.size(); ++size)
    EXPECT_FALSE(parsePipeFrame(bytes(good.substr(0, size)))) << size;
}

TEST(Pipe, EverySplitSeesTheSameFrames) {
  TemporaryFolder folder;
  const std::string source = cat(writeFile(folder / "frames", frames(12)));
  std::vector<int64_t> expected;
  for (auto [microSteps, ranks] : {std::pair<int64_t, int64_t>(4, 1), {2, 2}, {1, 4}}) {
    auto data = DataSet::open({source}, inputs(), {microSteps, ranks, 2});
    ASSERT_TRUE(data) << messageOf(data);
    std::vector<int64_t> seen;
    for (int64_t step = 0; step < 3; ++step)
      for (int64_t k = 0; k < microSteps; ++k)
        for (int64_t rank = ranks - 1; rank >= 0; --rank) { // the last frame first: the others are kept
          const auto ids = filled(*data, {step, k, rank}, 0), labels = filled(*data, {step, k, rank}, 1);
          const int64_t first = 10 * ((step * microSteps + k) * ranks + rank);
          EXPECT_EQ(ids, (std::vector<int64_t>{first, first + 1, first + 2, first + 3, first + 5, first + 6, first + 7, first + 8}));
          for (int i = 0; i < 8; ++i)
            EXPECT_EQ(labels[i], ids[i] + 1);
        }
  }
}

TEST(Pipe, RanksReadFromManyThreads) {
  TemporaryFolder folder;
  auto data = DataSet::open({cat(writeFile(folder / "frames", frames(90)))}, inputs(), {3, 3, 2});
  ASSERT_TRUE(data) << messageOf(data);
  for (int64_t step = 0; step < 10; ++step) {
    std::vector<std::thread> threads;
    for (int64_t rank = 0; rank < 3; ++rank)
      threads.emplace_back([&, rank] {
        for (int64_t k = 0; k < 3; ++k)
          EXPECT_EQ(filled(*data, {step, k, rank}, 0)[0], 10 * ((step * 3 + k) * 3 + rank));
      });
    for (std::thread &thread : threads)
      thread.join();
  }
}

TEST(Pipe, GoesOnBehindATokenOrIsSkippedThrough) {
  TemporaryFolder folder;
  const std::string all = frames(8, true), file = writeFile(folder / "frames", all);
  auto data = DataSet::open({cat(file)}, inputs(), {2, 1, 2});
  ASSERT_TRUE(data) << messageOf(data);
  EXPECT_EQ(*data->resumeToken(0), "");
  filled(*data, {0, 1, 0}, 0);
  EXPECT_EQ(*data->resumeToken(4), "behind 1");
  EXPECT_EQ(*data->resumeToken(6), "behind 2"); // another process may have read it
  // with a token the command begins where it says: here at frame 4
  const std::string size = std::to_string(all.size() / 8 + 1);
  const std::string resumed =
      "pipe:[ \"$ZEROCC_PIPE_RESUME/$ZEROCC_PIPE_SAMPLES/$ZEROCC_PIPE_MICRO_BATCH/$ZEROCC_PIPE_SEED\" = 'behind 3/8/2/6' ] && "
      "tail -c +" + std::to_string(4 * (all.size() / 8) + 1) + " " + file;
  DataOptions options;
  options.seed = 6;
  options.pipe = {.samples = 8, .token = "behind 3"};
  data = DataSet::open({resumed}, inputs(), {2, 1, 2}, options);
  ASSERT_TRUE(data) << messageOf(data);
  EXPECT_EQ(*data->resumeToken(8), "behind 3");
  EXPECT_EQ(filled(*data, {2, 0, 0}, 0)[0], 40);
  EXPECT_EQ(*data->resumeToken(10), "behind 4");
  // without one it begins at the start
  options.pipe.token = "";
  data = DataSet::open({"pipe:[ -z \"$ZEROCC_PIPE_RESUME\" ] && cat " + file}, inputs(), {2, 1, 2}, options);
  ASSERT_TRUE(data) << messageOf(data);
  EXPECT_EQ(filled(*data, {2, 0, 0}, 0)[0], 40);
  options.pipe.samples = 7;
  EXPECT_NE(messageOf(DataSet::open({cat(file)}, inputs(), {2, 1, 2}, options)).find("7 samples, which is no whole number"),
            std::string::npos);
}

TEST(Pipe, BeginsAgainForEveryEvaluation) {
  TemporaryFolder folder;
  auto data = DataSet::open({cat(writeFile(folder / "frames", frames(5)))}, inputs(), {1, 2, 2});
  ASSERT_TRUE(data) << messageOf(data);
  for (int round = 0; round < 3; ++round) {
    ASSERT_TRUE(data->beginAgain());
    EXPECT_EQ(filled(*data, {0, 0, 1}, 0)[0], 10);
    EXPECT_EQ(filled(*data, {1, 0, 0}, 0)[0], 20);
  }
}

/// What opening, or the first three steps, say.
std::string runThree(const std::string &source, int seconds = 20) {
  DataOptions options;
  options.pipe.timeoutSeconds = seconds;
  auto data = DataSet::open({source}, inputs(), {1, 1, 2}, options);
  if (!data)
    return data.error().text();
  for (int64_t step = 0; step < 3; ++step) {
    int64_t values[8];
    if (Status status = data->fill({step}, 0, values); !status) {
      EXPECT_EQ(data->fill({step}, 0, values).error().text(), status.error().text()); // every rank is told the same
      return status.error().text();
    }
  }
  return "no error\n";
}

TEST(Pipe, SaysHowACommandHasFailed) {
  TemporaryFolder folder;
  const std::string three = writeFile(folder / "three", frames(3)), two = writeFile(folder / "two", frames(2));
  auto expect = [](const std::string &message, const std::string &part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  EXPECT_EQ(runThree(cat(three)), "no error\n");
  expect(runThree(cat(two)), ": frame 2: ends after 0 of 40 bytes; the command exited with status 0");
  expect(runThree(cat(two) + "; exit 3"), "the command exited with status 3");
  expect(runThree(cat(two) + "; kill -9 $$"), "the command was killed by signal 9");
  expect(runThree("pipe:head -c 100 " + two), "frame 0: ends after ");
  expect(runThree("pipe:no-such-program-here 2>&-"), "frame 0: ends after 0 of 40 bytes; the command exited with status 127");
  expect(runThree(cat(two) + "; sleep 100", 1), "frame 2: did not come within 1 seconds: the command stalls");
  expect(runThree("pipe:echo starting; cat " + three), "frame 0: does not begin with ZPIP");
  expect(runThree("pipe:cat " + two + "; echo done and more, so that there are forty bytes"), "frame 2: does not begin with ZPIP");
  expect(runThree("pipe:cat " + two + " " + two), "frame 2: has number 0, behind 1");
  PipeFrame other = frameOf(2);
  other.arrays[0].dims = {5, 2};
  expect(runThree("pipe:cat " + two + " " + writeFile(folder / "other", bytesOf(other))),
         "frame 2: its arrays are not those of the first frame");
  other.arrays[0].dims = {2, 5};
  other.arrays[0].name = "idz";
  other.number = 0;
  expect(runThree(cat(writeFile(folder / "name", bytesOf(other)))),
         "its frames hold \"idz\", which is no input of the plan\n  hint: the inputs are: ids, labels, mask");
  other.arrays[0] = {"ids", ElementType::i32, {2, 4}, 8};
  expect(runThree(cat(writeFile(folder / "narrow", bytesOf(other)))), "takes [2,5] of each frame, there are [2,4]");
  other.arrays[0] = {"ids", ElementType::f32, {2, 5}, 10};
  expect(runThree(cat(writeFile(folder / "float", bytesOf(other)))), "cannot be made from f32[2,5]");
  PipeFrame foreign = frameOf(300); // tokens from 3000 on
  expect(runThree(cat(writeFile(folder / "foreign", bytesOf(foreign)))),
         "micro-batch 0, sample 0, element 0 holds 3000, input \"ids\" allows [0, 1000)");
}

TEST(Pipe, IsTheOnlySourceAndInItsOwnOrder) {
  TemporaryFolder folder;
  const std::string source = cat(writeFile(folder / "frames", frames(3)));
  EXPECT_NE(messageOf(DataSet::open({source, source}, inputs(), {1, 1, 2})).find("a pipe is the only source"), std::string::npos);
  EXPECT_NE(messageOf(DataSet::open({"ids=" + source}, inputs(), {1, 1, 2})).find("leave ids= out"), std::string::npos);
  EXPECT_NE(messageOf(DataSet::open({source}, inputs(), {1, 1, 2}, {.shuffle = true})).find("--shuffle: the order of pipe:cat"),
            std::string::npos);
}

TEST(Pipe, TheWholeGroupEndsWithTheRun) {
  TemporaryFolder folder;
  const std::string file = writeFile(folder / "frames", frames(1)), mark = folder / "mark";
  {
    // a child in the background that does not mind SIGTERM, with a write end of a fifo that tells when it is gone
    ASSERT_EQ(::system(("mkfifo " + mark).c_str()), 0);
    auto data = DataSet::open({"pipe:(trap '' TERM; sleep 60 > " + mark + ") & cat " + file + "; wait"}, inputs(), {1, 1, 2});
    ASSERT_TRUE(data) << messageOf(data);
    const int end = ::open(mark.c_str(), O_RDONLY);
    ASSERT_GE(end, 0);
    data = DataSet::open({}, {}, {1, 1, 2}); // ends the command
    char byte;
    EXPECT_EQ(::read(end, &byte, 1), 0) << "a process of the group still holds its end";
    ::close(end);
  }
}

} // namespace
} // namespace zerocc
