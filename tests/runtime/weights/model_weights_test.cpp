#include "runtime/weights/model_weights.h"

#include "tests/runtime/data/temporary_folder.h"
#include "tests/runtime/weights/tiny_model.h"

#include <bit>
#include <cstring>
#include <gtest/gtest.h>

namespace zerocc {
namespace {

using namespace onnx_fields;

class ModelWeightsTest : public testing::Test {
protected:
  TemporaryFolder folder_;
  Expected<ModelWeights> open(const std::string &file, const ModelWeightsOptions &options = {}) {
    return ModelWeights::open(writeFile(folder_ / "m.onnx", file), options);
  }
  Expected<ModelWeights> open(const TinyModel &model) { return open(model.file()); }
  Expected<ModelWeights> open(const TinyTensor &tensor) { return open(TinyModel().initializer(tensor)); }

  /// What is wrong, without the file's name.
  std::string whyNot(const TinyTensor &tensor) {
    Expected<ModelWeights> weights = open(tensor);
    if (weights)
      return "nothing";
    std::string text = weights.error().findings()[0].message, prefix = folder_ / "m.onnx: ";
    return text.starts_with(prefix) ? text.substr(prefix.size()) : text;
  }

  template <typename T>
  std::vector<T> read(const ModelWeights &weights, const std::string &name, int64_t begin, int64_t end,
                      DType want) {
    std::vector<T> values(end - begin);
    Status status = weights.read(name, begin, end, want, values.data());
    EXPECT_TRUE(status) << status.error().text();
    return values;
  }
};

TEST_F(ModelWeightsTest, FindsInitializersAndConstants) {
  std::vector<float> w = {1, 2, 3, 4, 5, 6};
  std::vector<int64_t> shape = {7, -1};
  TinyModel model;
  model.initializer(TinyTensor("w", 1, {2, 3}).raw(w)).constant("shape", TinyTensor("", 7, {2}).raw(shape));
  Expected<ModelWeights> weights = open(model);
  ASSERT_TRUE(weights) << weights.error().text();
  ASSERT_EQ(weights->tensors().size(), 2u);
  const ModelTensor *found = weights->find("w");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->type, ElementType::f32);
  EXPECT_EQ(found->dims, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(found->storage, ModelTensor::Storage::raw);
  EXPECT_EQ(readFile(folder_ / "m.onnx").substr(found->offset, 24), bytesOf(w));
  EXPECT_EQ(read<float>(*weights, "w", 2, 5, DType::f32), (std::vector<float>{3, 4, 5}));
  EXPECT_TRUE(weights->read("w", 6, 6, DType::f32, nullptr));
  EXPECT_TRUE(weights->find("shape")->isConstantNode);
  EXPECT_EQ(read<int64_t>(*weights, "shape", 0, 2, DType::i64), shape);
}

TEST_F(ModelWeightsTest, RefusesWrongRequests) {
  Expected<ModelWeights> weights = open(TinyTensor("w", 1, {2}).raw(std::vector<float>{1, 2}));
  ASSERT_TRUE(weights);
  float values[8];
  EXPECT_EQ(weights->read("v", 0, 1, DType::f32, values).error().text(),
            "error: " + (folder_ / "m.onnx") +
                ": tensor \"v\" is not in the model\n"
                "  hint: is it the model the plan was compiled from?\n");
  for (auto [begin, end] : {std::pair<int64_t, int64_t>{0, 3}, {-1, 1}, {2, 1}, {3, 3}})
    EXPECT_FALSE(weights->read("w", begin, end, DType::f32, values));
  EXPECT_FALSE(weights->read("w", 0, 1, DType::i64, values));
}

TEST_F(ModelWeightsTest, ReadsTypedData) {
  std::string packed;
  for (int64_t value : {3, -4, 500})
    putVarint(packed, static_cast<uint64_t>(value));
  std::vector<float> floats = {0.5f, 1.5f, 2.5f, 3.5f};
  TinyTensor mixed("f", 1, {4}); // packed, single, packed
  mixed.bytes(tensor::kFloatData, bytesOf(std::vector<float>{0.5f, 1.5f}));
  putTag(mixed.message, tensor::kFloatData, WireField::fixed32);
  mixed.message += bytesOf(std::vector<float>{2.5f});
  mixed.bytes(tensor::kFloatData, bytesOf(std::vector<float>{3.5f}));
  TinyTensor halves("h", 10, {2});
  halves.varint(tensor::kInt32Data, 0x3c00).varint(tensor::kInt32Data, 0xc000);
  TinyTensor bools("b", 9, {2});
  bools.varint(tensor::kInt32Data, 1).varint(tensor::kInt32Data, 0);
  TinyModel model;
  model.initializer(mixed)
      .initializer(halves)
      .initializer(bools)
      .initializer(TinyTensor("i", 7, {3}).bytes(tensor::kInt64Data, packed))
      .initializer(TinyTensor("j", 6, {3}).bytes(tensor::kInt32Data, packed))
      .initializer(TinyTensor("d", 11, {1}).bytes(tensor::kDoubleData, bytesOf(std::vector<double>{0.1})))
      .initializer(TinyTensor("u", 12, {1}).varint(tensor::kUint64Data, 0xffffffff))
      .initializer(TinyTensor("s", 3, {3}).bytes(tensor::kInt32Data, packed));
  Expected<ModelWeights> weights = open(model);
  ASSERT_TRUE(weights) << weights.error().text();
  for (int64_t begin = 0; begin <= 4; ++begin)
    for (int64_t end = begin; end <= 4; ++end)
      EXPECT_EQ(read<float>(*weights, "f", begin, end, DType::f32),
                std::vector<float>(floats.begin() + begin, floats.begin() + end));
  EXPECT_EQ(read<float>(*weights, "h", 0, 2, DType::f32), (std::vector<float>{1, -2}));
  EXPECT_EQ(read<uint8_t>(*weights, "b", 0, 2, DType::boolean), (std::vector<uint8_t>{1, 0}));
  EXPECT_EQ(read<int64_t>(*weights, "i", 1, 3, DType::i64), (std::vector<int64_t>{-4, 500}));
  EXPECT_EQ(read<int32_t>(*weights, "j", 0, 3, DType::i32), (std::vector<int32_t>{3, -4, 500}));
  EXPECT_EQ(read<float>(*weights, "d", 0, 1, DType::f32), std::vector<float>{0.1f});
  EXPECT_EQ(read<int64_t>(*weights, "u", 0, 1, DType::i64), std::vector<int64_t>{0xffffffff});
  EXPECT_EQ(read<int8_t>(*weights, "s", 0, 2, DType::i8), (std::vector<int8_t>{3, -4}));
  int8_t values[3];
  EXPECT_EQ(weights->read("s", 0, 3, DType::i8, values).error().text(),
            "error: " + (folder_ / "m.onnx") + ": tensor \"s\": element 2 holds 500, which is no i8\n");
}

TEST_F(ModelWeightsTest, ConvertsFloatsAndChecksIntegers) {
  TinyModel model;
  model.initializer(TinyTensor("bf", 16, {2}).raw(std::vector<uint16_t>{0x3f80, 0x4000}))
      .initializer(TinyTensor("f", 1, {1}).raw(std::vector<float>{1.0f + 0x1p-9f}))
      .initializer(TinyTensor("i", 7, {2}).raw(std::vector<int64_t>{1, int64_t(1) << 40}));
  Expected<ModelWeights> weights = open(model);
  ASSERT_TRUE(weights) << weights.error().text();
  EXPECT_EQ(read<float>(*weights, "bf", 0, 2, DType::f32), (std::vector<float>{1, 2}));
  EXPECT_EQ(read<uint16_t>(*weights, "bf", 1, 2, DType::bf16), std::vector<uint16_t>{0x4000});
  EXPECT_EQ(read<uint16_t>(*weights, "f", 0, 1, DType::bf16), std::vector<uint16_t>{0x3f80});
  EXPECT_EQ(read<int32_t>(*weights, "i", 0, 1, DType::i32), std::vector<int32_t>{1});
  int32_t values[2];
  EXPECT_FALSE(weights->read("i", 0, 2, DType::i32, values));
}

TEST_F(ModelWeightsTest, SaysWhyItRefusesATensor) {
  std::vector<float> two = {1, 2};
  EXPECT_EQ(whyNot(TinyTensor("w", 1, {3}).raw(two)),
            "initializer \"w\": has 8 bytes of data, f32[3] needs 12");
  EXPECT_EQ(whyNot(TinyTensor("w", 1, {2})), "initializer \"w\": has 0 bytes of data, f32[2] needs 8");
  EXPECT_EQ(whyNot(TinyTensor("w", 1, {-2}).raw(two)), "initializer \"w\": has impossible dims [-2]");
  EXPECT_EQ(whyNot(TinyTensor("w", 1, {int64_t(1) << 40, int64_t(1) << 40}).raw(two)),
            "initializer \"w\": has impossible dims [1099511627776,1099511627776]");
  EXPECT_EQ(whyNot(TinyTensor("w", 1, {2}).raw(two).bytes(tensor::kFloatData, bytesOf(two))),
            "initializer \"w\": has its data in more than one place");
  EXPECT_EQ(whyNot(TinyTensor("w", 7, {2}).bytes(tensor::kFloatData, bytesOf(two))),
            "initializer \"w\": is i64, but has its data in the field of another type (field 4)");
  EXPECT_EQ(whyNot(TinyTensor("w", 7, {2}).varint(tensor::kInt64Data, 1)),
            "initializer \"w\": has 1 elements, i64[2] needs 2");
  EXPECT_EQ(whyNot(TinyTensor("w", 1, std::vector<int64_t>(100, 1)).raw(std::vector<float>{1})),
            "initializer \"\": has more than 64 dims");
  EXPECT_EQ(whyNot(TinyTensor("w", 1, {2}).raw(two).bytes(tensor::kSegment, "")),
            "initializer \"w\": is stored in segments, a form that was never used");
  EXPECT_EQ(whyNot(TinyTensor("w", 1, {0})), "nothing");
  EXPECT_EQ(whyNot(TinyTensor("w", 1, {}).raw(std::vector<float>{1})), "nothing");
  EXPECT_EQ(whyNot(TinyTensor("s", 8, {1}).bytes(tensor::kStringData, "text")),
            "nothing"); // there, but not readable
  EXPECT_FALSE(open(TinyModel()
                        .initializer(TinyTensor("w", 1, {2}).raw(two))
                        .initializer(TinyTensor("w", 1, {2}).raw(two))));
  EXPECT_EQ(open(std::string("")).error().findings()[0].message, (folder_ / "m.onnx") + ": has no graph");
}

TEST_F(ModelWeightsTest, ReadsExternalDataBeneathTheModel) {
  std::filesystem::create_directories(folder_ / "sub");
  writeFile(folder_ / "sub/w.data", std::string(64, '\0') + bytesOf(std::vector<float>{1, 2, 3}));
  Expected<ModelWeights> weights = open(TinyTensor("w", 1, {3}).external("sub/w.data", "64", "12"));
  ASSERT_TRUE(weights) << weights.error().text();
  EXPECT_EQ(weights->find("w")->storage, ModelTensor::Storage::external);
  EXPECT_EQ(read<float>(*weights, "w", 1, 3, DType::f32), (std::vector<float>{2, 3}));

  EXPECT_EQ(whyNot(TinyTensor("w", 1, {3}).external("sub/w.data", "68", "12")),
            "initializer \"w\": external data: bytes 68 to 68+12 are beyond the end of " + folder_.path() +
                "/sub/w.data, which has 76");
  EXPECT_EQ(whyNot(TinyTensor("w", 1, {3}).external("sub/w.data", "9223372036854775807", "12")).substr(0, 39),
            "initializer \"w\": external data: bytes 9");
  EXPECT_EQ(whyNot(TinyTensor("w", 1, {3}).external("sub/w.data", "64", "8")),
            "initializer \"w\": has 8 bytes of external data, f32[3] needs 12");
  EXPECT_EQ(whyNot(TinyTensor("w", 1, {3}).external("sub/w.data", "-4", "12")),
            "initializer \"w\": external data has offset \"-4\", not a number");
  EXPECT_EQ(whyNot(TinyTensor("w", 1, {3}).external("sub/w.data", "99999999999999999999", "12")),
            "initializer \"w\": external data has offset \"99999999999999999999\", not a number");
  EXPECT_EQ(whyNot(TinyTensor("w", 1, {3}).external("sub/w.data", "64", "12").entry("command", "x")),
            "initializer \"w\": external data has an unknown key \"command\"");
  EXPECT_EQ(whyNot(TinyTensor("w", 1, {3}).external("../w.data", "64", "12")),
            "initializer \"w\": external data: file name \"../w.data\" leads out of the folder by '..'");
  EXPECT_EQ(whyNot(TinyTensor("w", 1, {3}).external("", "64", "12")),
            "initializer \"w\": external data: file name \"\" is empty");
  EXPECT_EQ(whyNot(TinyTensor("w", 1, {3}).entry("location", "sub/w.data")),
            "initializer \"w\": names external data, but says its data is in the model");
}

TEST_F(ModelWeightsTest, FollowsLinksOnlyWhenTold) {
  std::filesystem::create_directories(folder_ / "cache");
  writeFile(folder_ / "cache/blob", bytesOf(std::vector<float>{1, 2, 3}));
  std::filesystem::create_symlink(folder_ / "cache/blob", folder_ / "w.data");
  std::string file = TinyModel().initializer(TinyTensor("w", 1, {3}).external("w.data", "0", "12")).file();
  EXPECT_FALSE(open(file));
  Expected<ModelWeights> weights = open(file, {.followSymlinks = true});
  ASSERT_TRUE(weights) << weights.error().text();
  EXPECT_EQ(read<float>(*weights, "w", 0, 3, DType::f32), (std::vector<float>{1, 2, 3}));
}

/// Opens a model and reads all of it.
bool isReadable(const std::string &path) {
  Expected<ModelWeights> weights = ModelWeights::open(path);
  if (!weights)
    return false;
  bool readable = !weights->tensors().empty();
  for (const ModelTensor &tensor : weights->tensors()) {
    if (!tensor.type)
      continue;
    DType want = dtypeOf(*tensor.type).value_or(DType::i64);
    std::vector<char> values(tensor.elements * byteSize(want));
    readable &= bool(weights->read(tensor.name, 0, tensor.elements, want, values.data()));
  }
  return readable;
}

std::string smallModel() {
  TinyTensor typed("i", 7, {2});
  typed.varint(tensor::kInt64Data, 300).bytes(tensor::kInt64Data, "\x05");
  TinyModel model;
  model.initializer(TinyTensor("w", 1, {2, 1}).raw(std::vector<float>{1, 2}))
      .initializer(typed)
      .constant("c", TinyTensor("", 9, {1}).varint(tensor::kInt32Data, 1));
  return model.file();
}

TEST_F(ModelWeightsTest, TruncatedAndChangedFilesNeverCrash) {
  std::string file = smallModel(), path = folder_ / "t.onnx";
  ASSERT_TRUE(isReadable(writeFile(path, file)));
  size_t graphEnd = file.size() - 4; // what follows is opset_import
  for (size_t bytes = 0; bytes < graphEnd; ++bytes)
    EXPECT_FALSE(isReadable(writeFile(path, file.substr(0, bytes)))) << bytes;
  for (size_t at = 0; at < file.size(); ++at)
    for (int change : {0x01, 0x02, 0x08, 0x41, 0x80, 0xff}) {
      std::string copy = file;
      copy[at] = static_cast<char>(copy[at] ^ change);
      isReadable(writeFile(path, copy));
    }
}

TEST_F(ModelWeightsTest, ReadsTheModelsOfTheRepository) {
  int models = 0;
  for (const auto &entry : std::filesystem::directory_iterator(ZEROCC_SOURCE_DIR "/models"))
    if (entry.path().extension() == ".onnx") {
      EXPECT_TRUE(isReadable(entry.path())) << entry.path();
      ++models;
    }
  EXPECT_GE(models, 7);
  Expected<ModelWeights> inside = ModelWeights::open(ZEROCC_SOURCE_DIR "/models/gpt2_dynamo.onnx");
  Expected<ModelWeights> outside = ModelWeights::open(ZEROCC_SOURCE_DIR "/models/gpt2_external.onnx");
  ASSERT_TRUE(inside && outside);
  int external = 0;
  for (const ModelTensor &tensor : outside->tensors()) {
    const ModelTensor *same = inside->find(tensor.name);
    if (tensor.storage != ModelTensor::Storage::external || !same || same->dims != tensor.dims)
      continue;
    ++external;
    EXPECT_EQ(std::memcmp(tensor.data, same->data, tensor.bytes), 0) << tensor.name;
  }
  EXPECT_GE(external, 10);
}

} // namespace
} // namespace zerocc
