// Runs the ONNX project's own backend tests (one folder per case: model.onnx, test_data_set_*/{input,output}_*.pb) if
// the environment names a folder that holds them: ZEROCC_ONNX_BACKEND_TESTS. What is refused is refused; what is
// imported has to give the expected outputs. Operands that a compiler must know (shapes, axes) are graph inputs there:
// a case that is refused is tried again with its integer inputs as initializers.

#include "tests/onnx/evaluate.h"

#include "onnx/onnx_pb.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <unistd.h>

namespace zerocc {
namespace {

namespace fs = std::filesystem;

template <typename Proto> std::optional<Proto> readProto(const fs::path &path) {
  std::ifstream file(path, std::ios::binary);
  Proto proto;
  if (!file || !proto.ParseFromIstream(&file))
    return std::nullopt;
  return proto;
}

/// A tensor of the test data, read through the importer's own reader by way of a model that holds it.
std::optional<HostTensor> hostOf(onnx::TensorProto tensor, const fs::path &scratch) {
  onnx::ModelProto model;
  model.set_ir_version(8);
  tensor.set_name("t");
  *model.mutable_graph()->add_initializer() = tensor;
  std::ofstream(scratch, std::ios::binary) << model.SerializeAsString();
  auto weights = StoredWeights::open(scratch);
  if (!weights)
    return std::nullopt;
  auto stored = (*weights)->read("t");
  if (!stored)
    return std::nullopt;
  return HostTensor::fromBytes(stored->type, stored->bytes);
}

bool isClose(double got, double expected) {
  if (std::isnan(got) || std::isnan(expected))
    return std::isnan(got) && std::isnan(expected);
  if (std::isinf(got) || std::isinf(expected))
    return got == expected;
  return std::fabs(got - expected) <= 1e-5 + 1e-3 * std::fabs(expected);
}

enum class Outcome { passed, refused, wrong, unreadable };

class Runner {
public:
  Runner() : scratch_(fs::temp_directory_path() / ("zerocc-backend-" + std::to_string(::getpid()))) {
    fs::create_directories(scratch_);
  }
  ~Runner() { fs::remove_all(scratch_); }

  Outcome run(const fs::path &folder, std::string &why) {
    auto model = readProto<onnx::ModelProto>(folder / "model.onnx");
    if (!model)
      return Outcome::unreadable;
    fs::path data = folder / "test_data_set_0";
    std::map<std::string, HostTensor> inputs;
    std::map<std::string, onnx::TensorProto> tensors;
    for (int i = 0; i < model->graph().input_size(); ++i) {
      auto tensor = readProto<onnx::TensorProto>(data / ("input_" + std::to_string(i) + ".pb"));
      auto host = tensor ? hostOf(*tensor, scratch_ / "t.onnx") : std::nullopt;
      if (!host)
        return Outcome::unreadable;
      inputs[model->graph().input(i).name()] = *host;
      tensors[model->graph().input(i).name()] = *tensor;
    }
    fs::path path = scratch_ / "m.onnx";
    Expected<std::unique_ptr<Module>> module = import(*model, path);
    if (!module) {
      why = module.error().text();
      for (auto &[name, tensor] : tensors)
        if (!isFloat(inputs[name].type.dtype) || inputs[name].type.elements() == 1) {
          tensor.set_name(name);
          *model->mutable_graph()->add_initializer() = tensor;
        }
      module = import(*model, path);
      if (!module) {
        why = module.error().text();
        return Outcome::refused;
      }
    }
    for (const Input &input : (*module)->inputs) {
      if (input.role == "random") { // the expected numbers are those of NumPy's generator
        why = "draws random numbers";
        return Outcome::refused;
      }
      if (input.role == "training")
        inputs[input.value->name] = HostTensor::integer({DType::boolean, {}}, {1});
    }
    auto weights = StoredWeights::open(path);
    if (!weights)
      return Outcome::unreadable;
    auto outputs = evaluateModel(**module, weights->get(), inputs, {/*roundToDType=*/true});
    if (!outputs) {
      why = outputs.error().text();
      return Outcome::wrong;
    }
    for (int i = 0; i < model->graph().output_size(); ++i) {
      auto tensor = readProto<onnx::TensorProto>(data / ("output_" + std::to_string(i) + ".pb"));
      auto expected = tensor ? hostOf(*tensor, scratch_ / "t.onnx") : std::nullopt;
      if (!expected)
        return Outcome::unreadable;
      if (!matches((*outputs)[i], *expected, why))
        return Outcome::wrong;
    }
    return Outcome::passed;
  }

private:
  static Expected<std::unique_ptr<Module>> import(const onnx::ModelProto &model, const fs::path &path) {
    std::ofstream(path, std::ios::binary) << model.SerializeAsString();
    auto module = importOnnx(path, {});
    if (!module)
      return module;
    if (Status ok = checkModule(**module); !ok)
      ADD_FAILURE() << ok.error().text();
    return module;
  }

  static bool matches(const HostTensor &got, const HostTensor &expected, std::string &why) {
    if (!(got.type == expected.type)) {
      why = "got " + print(got.type) + ", expected " + print(expected.type);
      return false;
    }
    for (int64_t i = 0; i < got.type.elements(); ++i)
      if (!isClose(got.at(i), expected.at(i))) {
        why = "element " + std::to_string(i) + ": got " + std::to_string(got.at(i)) + ", expected " +
              std::to_string(expected.at(i));
        return false;
      }
    return true;
  }

  fs::path scratch_;
};

TEST(Backend, WhatIsImportedComputesWhatOnnxSays) {
  const char *root = std::getenv("ZEROCC_ONNX_BACKEND_TESTS");
  if (!root)
    GTEST_SKIP() << "ZEROCC_ONNX_BACKEND_TESTS is not set";
  std::vector<fs::path> folders;
  for (const auto &entry : fs::recursive_directory_iterator(root))
    if (entry.path().filename() == "model.onnx" && fs::exists(entry.path().parent_path() / "test_data_set_0"))
      folders.push_back(entry.path().parent_path());
  std::sort(folders.begin(), folders.end());
  std::map<Outcome, int> counts;
  Runner runner;
  bool verbose = std::getenv("ZEROCC_VERBOSE");
  for (const fs::path &folder : folders) {
    std::string why;
    Outcome outcome = runner.run(folder, why);
    ++counts[outcome];
    if (outcome == Outcome::wrong)
      ADD_FAILURE() << folder.filename().string() << ": " << why;
    else if (outcome == Outcome::refused && verbose)
      std::cout << "refused " << folder.filename().string() << ": " << why;
  }
  std::cout << "passed " << counts[Outcome::passed] << ", refused " << counts[Outcome::refused] << ", wrong "
            << counts[Outcome::wrong] << ", not readable here " << counts[Outcome::unreadable] << " of "
            << folders.size() << "\n";
  EXPECT_GT(counts[Outcome::passed], 0);
}

} // namespace
} // namespace zerocc
