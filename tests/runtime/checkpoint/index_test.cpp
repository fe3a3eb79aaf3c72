#include "runtime/checkpoint/index.h"

#include <gtest/gtest.h>

namespace zerocc {
namespace {

CheckpointIndex smallIndex() {
  CheckpointIndex index;
  index.step = 40;
  index.modelFile = "model.onnx";
  index.modelFingerprint = "5a";
  index.optimizer = "adamw";
  index.precision = "f32";
  index.shard = 2;
  index.data = {160, 4, ~uint64_t(0), true, "00ff"};
  index.eval = {1.0 / 3, 2};
  index.scalars = {"step", "lr"};
  index.files = {{"rank-0.safetensors", kChecksumBlockBytes + 100, {1, ~uint64_t(0)}}, {"rank-1.safetensors", 60, {7}}};
  index.tensors = {{"parameter/w", DType::f32, {5, 2}, {{0, 400, 0, 6}, {1, 16, 6, 10}}},
                   {"scalars", DType::f64, {2}, {{0, 100, 0, 2}}}};
  return index;
}

std::string bodyOf(const CheckpointIndex &index) {
  const std::string text = writeIndex(index);
  const size_t begin = text.find("\"checkpoint\":") + 13;
  return text.substr(begin, text.size() - begin - 2);
}

TEST(Index, IsReadAsItWasWritten) {
  const std::string text = writeIndex(smallIndex());
  auto read = parseIndex(text, "x");
  ASSERT_TRUE(read) << read.error().text();
  EXPECT_EQ(writeIndex(*read), text);
  EXPECT_EQ(read->data.seed, ~uint64_t(0));
  EXPECT_EQ(read->eval.bestLoss, 1.0 / 3);
  EXPECT_EQ(read->files[0].checksums[1], ~uint64_t(0));
  EXPECT_EQ(read->find("parameter/w")->pieces[1].begin, 6);
  EXPECT_EQ(read->find("parameter/v"), nullptr);
}

TEST(Index, EveryChangedByteIsSeen) {
  const std::string text = writeIndex(smallIndex());
  for (size_t i = 0; i < text.size(); ++i) {
    std::string changed = text;
    changed[i] ^= 1;
    EXPECT_FALSE(parseIndex(changed, "x")) << "byte " << i;
    EXPECT_FALSE(parseIndex(text.substr(0, i), "x")) << "cut at " << i;
  }
}

struct Fault {
  const char *what, *from, *to, *message;
};

class Refused : public testing::TestWithParam<Fault> {};

TEST_P(Refused, ByName) {
  std::string body = bodyOf(smallIndex());
  ASSERT_TRUE(parseIndexBody(body, "x"));
  const size_t at = body.find(GetParam().from);
  ASSERT_NE(at, std::string::npos) << GetParam().from << " in " << body;
  body.replace(at, std::string(GetParam().from).size(), GetParam().to);
  auto read = parseIndexBody(body, "x");
  ASSERT_FALSE(read);
  EXPECT_NE(read.error().text().find(GetParam().message), std::string::npos) << read.error().text();
}

INSTANTIATE_TEST_SUITE_P(
    Index, Refused,
    testing::Values(
        Fault{"schema", "checkpoint/1", "checkpoint/2", "is written as \"zerocc.checkpoint/2\""},
        Fault{"step", "\"step\":40", "\"step\":-1", "\"step\" is missing"},
        Fault{"stepText", "\"step\":40", "\"step\":\"40\"", "\"step\" is missing"},
        Fault{"mesh", "\"shard\":2", "\"shard\":0", "\"shard\" is missing"},
        Fault{"seed", "18446744073709551615", "18446744073709551616", "\"seed\" is not a number"},
        Fault{"shuffle", "\"shuffle\":true", "\"shuffle\":1", "\"shuffle\" is missing"},
        Fault{"eval", "\"best_loss\":\"0", "\"best_loss\":\"x", "\"best_loss\" is not a number"},
        Fault{"folder", "rank-1.safetensors", "../rank-1.safetensors", "is not a plain file name"},
        Fault{"slash", "rank-1.safetensors", "a/b", "is not a plain file name"},
        Fault{"twice", "rank-1.safetensors", "rank-0.safetensors", "is there twice"},
        Fault{"blocks", "\"bytes\":60", "\"bytes\":1048577", "has 16 digits of checksums"},
        Fault{"sum", "0000000000000007", "000000000000000z", "a checksum that is not a number"},
        Fault{"dtype", "\"dtype\":\"f32\"", "\"dtype\":\"f33\"", "of a dtype that is not known"},
        Fault{"dim", "[5,2]", "[5,-2]", "a dim that is not a number"},
        Fault{"dims", "[5,2]", "[4611686018427387904,4]", "has impossible dims"},
        Fault{"hole", "[1,16,6,10]", "[1,16,7,10]", "the one before it ends at 6 of 10"},
        Fault{"overlap", "[1,16,6,10]", "[1,16,5,10]", "the one before it ends at 6 of 10"},
        Fault{"short", "[1,16,6,10]", "[1,16,6,9]", "has pieces for 9 of its 10 elements"},
        Fault{"long", "[1,16,6,10]", "[1,16,6,11]", "of 10"},
        Fault{"empty", "[1,16,6,10]", "[1,16,6,6]", "a piece [6, 6)"},
        Fault{"file", "[1,16,6,10]", "[2,16,6,10]", "a piece that is not [file, offset, begin, end]"},
        Fault{"outside", "[1,16,6,10]", "[1,45,6,10]", "ends behind file \"rank-1.safetensors\""},
        Fault{"offset", "[1,16,6,10]", "[1,4611686018427387904,6,10]", "ends behind file"},
        Fault{"infinite", "[1,16,6,10]", "[1,9.223372036854775808e18,6,10]", "a piece that is not [file"},
        Fault{"three", "[1,16,6,10]", "[1,16,6]", "a piece that is not [file, offset, begin, end]"},
        Fault{"order", "parameter/w", "scalarx", "is there twice or out of order"},
        Fault{"scalars", "[\"step\",\"lr\"]", "[\"step\"]", "has not one number for each name"},
        Fault{"noJson", "{\"schema\"", "{schema", "is not JSON"}),
    [](const testing::TestParamInfo<Fault> &info) { return info.param.what; });

TEST(Index, DeepNestingIsRefusedBeforeItIsFollowed) {
  auto read = parseIndexBody(std::string(1000000, '['), "x");
  ASSERT_FALSE(read);
  EXPECT_NE(read.error().text().find("is not the index of a checkpoint"), std::string::npos);
}

} // namespace
} // namespace zerocc
