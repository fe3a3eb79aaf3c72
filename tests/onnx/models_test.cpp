// The models of models/ import, and their forward pass gives the loss that PyTorch recorded for the first step.

#include "runtime/data/npy.h"
#include "tests/onnx/evaluate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

namespace zerocc {
namespace {

std::string modelFile(const std::string &name) { return std::string(ZEROCC_SOURCE_DIR) + "/models/" + name; }

/// Samples [0, 4) of an array of X.data.npz: the first step.
HostTensor firstSamples(const NpzFile &file, const std::string &name) {
  auto array = file.read(name);
  EXPECT_TRUE(array) << array.error().text();
  TensorType type{*dtypeOf(array->type), Dims(array->dims.begin(), array->dims.end())};
  type.dims[0] = 4;
  return HostTensor::fromBytes(type, llvm::StringRef(reinterpret_cast<const char *>(array->data), type.bytes()));
}

double crossEntropy(const HostTensor &logits, const HostTensor &labels) {
  int64_t classes = logits.type.dims.back(), count = 0;
  double sum = 0;
  for (int64_t row = 0; row < labels.type.elements(); ++row) {
    if (labels.integers[row] == -100)
      continue;
    const double *x = &logits.reals[row * classes];
    double total = 0;
    for (int64_t c = 0; c < classes; ++c)
      total += std::exp(x[c]);
    sum += std::log(total) - x[labels.integers[row]];
    ++count;
  }
  return sum / static_cast<double>(count);
}

double meanSquare(const HostTensor &output, const HostTensor &target) {
  double sum = 0;
  for (int64_t i = 0; i < output.type.elements(); ++i)
    sum += (output.reals[i] - target.reals[i]) * (output.reals[i] - target.reals[i]);
  return sum / static_cast<double>(output.type.elements());
}

struct ModelCase {
  const char *name;
  int64_t sequence; // 0: no such dim
  size_t parameters;
  size_t repairs;
};

class Models : public testing::TestWithParam<ModelCase> {};

TEST_P(Models, GiveTheRecordedLoss) {
  const ModelCase &test = GetParam();
  std::string path = modelFile(std::string(test.name) + ".onnx");
  ImportOptions options;
  options.microBatch = 4;
  if (test.sequence)
    options.dims["sequence"] = test.sequence;
  ImportReport report;
  auto module = importOnnx(path, options, &report);
  ASSERT_TRUE(module) << module.error().text();
  Status ok = checkModule(**module);
  ASSERT_TRUE(ok) << ok.error().text();
  EXPECT_EQ((*module)->parameters.size(), test.parameters);
  EXPECT_EQ(report.repairs.size(), test.repairs);

  auto data = NpzFile::open(modelFile(std::string(test.name) + ".data.npz"));
  auto reference = NpzFile::open(modelFile(std::string(test.name) + ".ref.npz"));
  ASSERT_TRUE(data) << data.error().text();
  ASSERT_TRUE(reference) << reference.error().text();
  std::map<std::string, HostTensor> inputs;
  for (const Input &input : (*module)->inputs)
    inputs[input.value->name] = firstSamples(*data, input.value->name);
  auto weights = StoredWeights::open(path);
  ASSERT_TRUE(weights) << weights.error().text();
  auto outputs = evaluateModel(**module, weights->get(), inputs);
  ASSERT_TRUE(outputs) << outputs.error().text();
  const HostTensor &output = outputs->front();
  double loss = output.type.dims.empty() ? output.reals[0]
                : data->has("target")    ? meanSquare(output, firstSamples(*data, "target"))
                                         : crossEntropy(output, firstSamples(*data, "labels"));
  double recorded = 0;
  std::memcpy(&recorded, reference->read("loss")->data, sizeof recorded);
  EXPECT_NEAR(loss, recorded, 1e-6); // PyTorch computed in f32
}

constexpr ModelCase kModels[] = {
    {"mlp", 0, 6, 0},
    {"mlp_classifier", 0, 6, 0},
    {"mlp_own_loss", 0, 4, 0},
    {"gpt2_torchscript", 32, 28, 5}, // four untied initializers, one re-tied output layer
    {"gpt2_dynamo", 32, 20, 3},
    {"gpt2_external", 32, 20, 3},
};
INSTANTIATE_TEST_SUITE_P(Onnx, Models, testing::ValuesIn(kModels),
                         [](const testing::TestParamInfo<ModelCase> &info) { return std::string(info.param.name); });

TEST(CharGpt, ImportsWithOneMaskForAllLayers) {
  ImportOptions options;
  options.microBatch = 2;
  options.dims["sequence"] = 128;
  ImportReport report;
  auto module = importOnnx(modelFile("char_gpt.onnx"), options, &report);
  ASSERT_TRUE(module) << module.error().text();
  EXPECT_EQ((*module)->parameters.size(), 52u);
  EXPECT_TRUE(report.repairs.empty());
  int64_t masks = 0;
  for (const Node *node : (*module)->graph("forward")->nodes)
    masks += node->op == OpKind::Compare;
  EXPECT_EQ(masks, 1);
}

TEST(Import, IsTheSameEveryTime) {
  ImportOptions options;
  options.dims["sequence"] = 16;
  auto first = importOnnx(modelFile("gpt2_torchscript.onnx"), options), second = importOnnx(modelFile("gpt2_torchscript.onnx"), options);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(print(**first), print(**second));
}

} // namespace
} // namespace zerocc
