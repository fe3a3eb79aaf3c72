#include "runtime/weights/safetensors.h"

#include "tests/runtime/data/temporary_folder.h"

#include <cstring>
#include <gtest/gtest.h>

namespace zerocc {
namespace {

std::string withHeader(std::string header, const std::string &data) {
  uint64_t bytes = header.size();
  return std::string(reinterpret_cast<const char *>(&bytes), 8) + header + data;
}

std::string smallFile(const std::string &path) {
  static const std::string kBytes = "abcdefghijklmnopqrstuvwxyz";
  std::vector<SafetensorsEntry> entries = {{"b", ElementType::u8, {3}},
                                           {"a\n\"\\é", ElementType::f32, {2, 2}},
                                           {"scalar", ElementType::i64, {}},
                                           {"empty", ElementType::f32, {0, 4}}};
  Status status =
      writeSafetensors(path, entries, {{"format", "pt"}}, [&](const std::string &name) -> Expected<Bytes> {
        size_t count = name == "b" ? 3 : name == "scalar" ? 8 : name == "empty" ? 0 : 16;
        return Bytes(reinterpret_cast<const unsigned char *>(kBytes.data()), count);
      });
  EXPECT_TRUE(status) << status.error().text();
  return readFile(path);
}

TEST(Safetensors, ReadsWhatItWrites) {
  TemporaryFolder folder;
  std::string file = smallFile(folder / "s.safetensors");
  Expected<SafetensorsFile> read = SafetensorsFile::open(folder / "s.safetensors");
  ASSERT_TRUE(read) << read.error().text();
  EXPECT_EQ(read->names(),
            (std::vector<std::string>{"scalar", "a\n\"\\é", "empty", "b"})); // larger elements first
  EXPECT_EQ(read->metadata().at("format"), "pt");
  const ArrayView *a = read->find("a\n\"\\é");
  ASSERT_TRUE(a);
  EXPECT_EQ(a->dims, (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(std::memcmp(a->data, "abcdefghijklmnop", 16), 0);
  EXPECT_EQ(read->find("scalar")->elements, 1);
  EXPECT_EQ(read->find("nothing"), nullptr);
  uint64_t headerBytes;
  std::memcpy(&headerBytes, file.data(), 8);
  EXPECT_EQ(headerBytes % 8, 0u);
}

TEST(Safetensors, EveryTruncationIsAnError) {
  TemporaryFolder folder;
  std::string file = smallFile(folder / "s.safetensors"), path = folder / "cut";
  for (size_t bytes = 0; bytes < file.size(); ++bytes)
    EXPECT_FALSE(SafetensorsFile::open(writeFile(path, file.substr(0, bytes)))) << bytes;
  EXPECT_FALSE(SafetensorsFile::open(writeFile(path, file + "x")));
  for (size_t at = 0; at < file.size(); ++at)
    for (int change : {0x01, 0x02, 0x20, 0x80}) {
      std::string copy = file;
      copy[at] = static_cast<char>(copy[at] ^ change);
      Expected<SafetensorsFile> read = SafetensorsFile::open(writeFile(path, copy));
      for (const std::string &name : read ? read->names() : std::vector<std::string>())
        EXPECT_LE(read->find(name)->bytes(), 16);
    }
}

TEST(Safetensors, ReadsOnlyStrictHeaders) {
  TemporaryFolder folder;
  auto reads = [&](const std::string &header, const std::string &data = "12345678") {
    return bool(SafetensorsFile::open(writeFile(folder / "h", withHeader(header, data))));
  };
  const std::string good = R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  EXPECT_TRUE(reads(good));
  EXPECT_TRUE(reads(good + "   "));
  EXPECT_TRUE(reads("{}", ""));
  EXPECT_TRUE(reads(R"({ "__metadata__" : { "a" : "\u00e9\ud83d\ude00\/" } })", ""));
  for (
      const std::string &bad : std::vector<std::string>{
          "",
          " " + good,
          good + "x",
          good + "\n}",
          R"({"w":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", // size
          R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", // bytes behind the end
          R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", // a hole
          R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})",
          R"({"w":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}})", // beyond the end
          R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"w":{"dtype":"F32","shape":[0],"data_offsets":[8,8]}})",
          R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"v":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
          R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"more":[]}})",
          R"({"w":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
          R"({"w":{"dtype":"F32","shape":[2]}})",
          R"({"w":{"dtype":"F33","shape":[2],"data_offsets":[0,8]}})",
          R"({"w":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})",
          R"({"w":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})",
          R"({"w":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]}})",
          R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,99999999999999999999]}})",
          R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},})",
          R"({"__metadata__":{"a":1},"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
          R"({"__metadata__":{"a":"\ud800"},"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
          R"([{"w":1}])"})
    EXPECT_FALSE(reads(bad)) << bad;
  EXPECT_FALSE(reads("{" + std::string(100000, '['))); // deep nesting does not reach the stack
  writeFile(folder / "h", std::string("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10));
  EXPECT_FALSE(SafetensorsFile::open(folder / "h"));
}

} // namespace
} // namespace zerocc
