// Imported models compute what ONNX's reference evaluator does: tests/onnx/values/X.onnxtxt with the inputs and outputs
// recorded beside it (record.py).

#include "tests/onnx/evaluate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace zerocc {
namespace {

namespace fs = std::filesystem;

struct Recording {
  std::map<std::string, HostTensor> inputs;
  std::vector<std::pair<std::string, HostTensor>> outputs;
};

// "f32[2,3]"
TensorType parseType(const std::string &text) {
  TensorType type{*dtypeFromName(text.substr(0, text.find('['))), {}};
  std::istringstream dims(text.substr(text.find('[') + 1));
  for (std::string dim; std::getline(dims, dim, ',') && dim != "]";)
    type.dims.push_back(std::stoll(dim));
  return type;
}

Recording readRecording(const fs::path &path) {
  Recording recording;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string kind, name, type, word;
    words >> kind >> name >> type;
    HostTensor tensor = HostTensor::zeros(parseType(type));
    for (int64_t i = 0; words >> word; ++i)
      if (isFloat(tensor.type.dtype))
        tensor.reals[i] = std::stod(word);
      else
        tensor.integers[i] = std::stoll(word);
    if (kind == "input")
      recording.inputs[name] = std::move(tensor);
    else
      recording.outputs.push_back({name, std::move(tensor)});
  }
  return recording;
}

std::vector<std::string> allModels() {
  std::vector<std::string> names;
  for (const auto &entry : fs::directory_iterator(fs::path(ZEROCC_SOURCE_DIR) / "tests" / "onnx" / "values"))
    if (entry.path().extension() == ".onnxtxt")
      names.push_back(entry.path().stem());
  std::sort(names.begin(), names.end());
  return names;
}

class OnnxValues : public testing::TestWithParam<std::string> {};

TEST_P(OnnxValues, AreThoseOfTheReference) {
  fs::path base = fs::path(ZEROCC_SOURCE_DIR) / "tests" / "onnx" / "values" / GetParam();
  std::string path = base.string() + ".onnxtxt";
  Recording recording = readRecording(base.string() + ".values");
  ASSERT_FALSE(recording.outputs.empty()) << "nothing is recorded";
  ImportOptions options;
  options.microBatch = 2;
  auto module = importOnnx(path, options);
  ASSERT_TRUE(module) << module.error().text();
  auto weights = StoredWeights::open(path);
  ASSERT_TRUE(weights) << weights.error().text();
  auto outputs = evaluateModel(**module, weights->get(), recording.inputs);
  ASSERT_TRUE(outputs) << outputs.error().text();
  ASSERT_EQ(outputs->size(), recording.outputs.size());
  for (size_t k = 0; k < outputs->size(); ++k) {
    const auto &[name, expected] = recording.outputs[k];
    const HostTensor &got = (*outputs)[k];
    EXPECT_EQ((*module)->graph("forward")->results[k].first, name);
    ASSERT_EQ(print(got.type), print(expected.type)) << name;
    for (int64_t i = 0; i < got.type.elements(); ++i) // the reference computes in f32
      ASSERT_NEAR(got.at(i), expected.at(i), 2e-6 * std::max(1.0, std::fabs(expected.at(i)))) << name << "[" << i << "]";
  }
}

INSTANTIATE_TEST_SUITE_P(Onnx, OnnxValues, testing::ValuesIn(allModels()),
                         [](const testing::TestParamInfo<std::string> &info) { return info.param; });

} // namespace
} // namespace zerocc
