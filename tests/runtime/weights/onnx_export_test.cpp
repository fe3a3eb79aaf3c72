#include "runtime/weights/onnx_export.h"

#include "tests/runtime/data/temporary_folder.h"
#include "tests/runtime/weights/tiny_model.h"

#include <gtest/gtest.h>

namespace zerocc {
namespace {

using namespace onnx_fields;

/// Hands out the tensors of `model`, every byte of them changed.
TensorBytes inverted(const ModelWeights &model, std::string &buffer) {
  return [&](const std::string &name) -> Expected<Bytes> {
    const ModelTensor *tensor = model.find(name);
    DType type = *dtypeOf(*tensor->type);
    buffer.resize(tensor->elements * byteSize(type));
    ZEROCC_TRY(model.read(name, 0, tensor->elements, type, buffer.data()));
    for (char &c : buffer)
      c = static_cast<char>(~c);
    return Bytes(reinterpret_cast<const unsigned char *>(buffer.data()), buffer.size());
  };
}

/// `written` has the tensors of `model`, those of `names` inverted.
void expectInverted(const ModelWeights &model, const std::string &path,
                    const std::vector<std::string> &names) {
  Expected<ModelWeights> written = ModelWeights::open(path);
  ASSERT_TRUE(written) << written.error().text();
  ASSERT_EQ(written->tensors().size(), model.tensors().size());
  for (size_t i = 0; i < model.tensors().size(); ++i) {
    const ModelTensor &before = model.tensors()[i], &after = written->tensors()[i];
    EXPECT_EQ(before.name, after.name);
    EXPECT_EQ(before.dims, after.dims);
    if (!before.type)
      continue;
    DType type = *dtypeOf(*before.type);
    std::string a(before.elements * byteSize(type), '\0'), b = a;
    ASSERT_TRUE(model.read(before.name, 0, before.elements, type, a.data()));
    ASSERT_TRUE(written->read(before.name, 0, before.elements, type, b.data()));
    if (std::find(names.begin(), names.end(), before.name) != names.end())
      for (char &c : a)
        c = static_cast<char>(~c);
    EXPECT_EQ(a, b) << before.name;
  }
}

TEST(OnnxExport, ReplacesBytesInEveryModelOfTheRepository) {
  TemporaryFolder folder;
  for (const char *name : {"char_gpt", "gpt2_torchscript", "gpt2_dynamo", "gpt2_external", "mlp"}) {
    std::string path = std::string(ZEROCC_SOURCE_DIR "/models/") + name + ".onnx", out = folder / "out.onnx";
    Expected<ModelWeights> model = ModelWeights::open(path);
    ASSERT_TRUE(model) << model.error().text();
    std::vector<std::string> names;
    bool isExternal = false;
    for (const ModelTensor &tensor : model->tensors()) {
      if (tensor.type == ElementType::f32 && names.size() % 3 != 2)
        names.push_back(tensor.name);
      isExternal |= tensor.storage == ModelTensor::Storage::external;
    }
    std::string buffer;
    ASSERT_TRUE(exportOnnx(*model, out, names, inverted(*model, buffer)));
    expectInverted(*model, out, names);
    EXPECT_FALSE(std::filesystem::exists(out + ".data"));
    // raw data of equal size: nothing but the weights moves
    EXPECT_EQ(std::filesystem::file_size(out) == std::filesystem::file_size(path), !isExternal);

    // and beyond the limit, what was external stays external
    Status status = exportOnnx(*model, out, names, inverted(*model, buffer), {.inlineBytes = 1000});
    ASSERT_TRUE(status) << status.error().text();
    expectInverted(*model, out, names);
    EXPECT_EQ(std::filesystem::exists(out + ".data"), isExternal);
    std::filesystem::remove(out + ".data");
  }
}

TEST(OnnxExport, WithoutNamesNothingChanges) {
  TemporaryFolder folder;
  std::string path = ZEROCC_SOURCE_DIR "/models/gpt2_torchscript.onnx";
  Expected<ModelWeights> model = ModelWeights::open(path);
  ASSERT_TRUE(model);
  std::string buffer;
  ASSERT_TRUE(exportOnnx(*model, folder / "out.onnx", {}, inverted(*model, buffer)));
  EXPECT_TRUE(readFile(folder / "out.onnx") == readFile(path));
}

TEST(OnnxExport, TypedDataBecomesRawAndConstantsAreFound) {
  TemporaryFolder folder;
  TinyTensor typed("t", 7, {2});
  typed.varint(tensor::kInt64Data, 5).varint(tensor::kInt64Data, 6);
  TinyModel model;
  model.initializer(typed)
      .initializer(TinyTensor("kept", 1, {1}).bytes(tensor::kFloatData, "abcd"))
      .constant("c", TinyTensor("inner", 1, {1}).raw(std::vector<float>{1}));
  std::string path = writeFile(folder / "m.onnx", model.file());
  Expected<ModelWeights> weights = ModelWeights::open(path);
  ASSERT_TRUE(weights) << weights.error().text();
  std::string buffer;
  ASSERT_TRUE(exportOnnx(*weights, path, {"t", "c"}, inverted(*weights, buffer))); // over itself
  expectInverted(*weights, path, {"t", "c"});
  EXPECT_EQ(ModelWeights::open(path)->find("kept")->storage, ModelTensor::Storage::typed);
}

TEST(OnnxExport, RefusesWhatItCannotDoAndLeavesNothing) {
  TemporaryFolder folder;
  TinyModel tiny;
  tiny.initializer(TinyTensor("w", 1, {2}).raw(std::vector<float>{1, 2}))
      .initializer(TinyTensor("text", 8, {1}).bytes(tensor::kStringData, "x"));
  Expected<ModelWeights> model = ModelWeights::open(writeFile(folder / "m.onnx", tiny.file()));
  ASSERT_TRUE(model);
  std::string out = folder / "out.onnx";
  TensorBytes tooFew = [](const std::string &) -> Expected<Bytes> { return Bytes(); };
  EXPECT_EQ(exportOnnx(*model, out, {"v", "text"}, tooFew).error().text(),
            "error: " + out +
                ": the model has no tensor \"v\" to replace\n"
                "error: " +
                out + ": tensor \"text\" is of ONNX type 8, which is not written\n");
  EXPECT_EQ(exportOnnx(*model, out, {"w"}, tooFew).error().text(),
            "error: " + out + ": tensor \"w\" came with 0 bytes, f32[2] needs 8\n");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

} // namespace
} // namespace zerocc
