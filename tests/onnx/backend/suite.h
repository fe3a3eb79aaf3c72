#pragma once

#include "compiler/ops/interpreter.h"

#include "onnx/onnx_pb.h"

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace zerocc {

/// The folder with ONNX's test data: where ZEROCC_ONNX_BACKEND_TESTS says, else unpacked (once) from the
/// archive beside the checkout into the build folder; empty, with the reason, when there is neither.
std::filesystem::path findSuite(std::string &why);

/// One folder of the suite: model.onnx and test_data_set_*.
struct SuiteCase {
  std::string set, name; // node, test_abs
  std::filesystem::path folder;
};
/// By set and name. The light models are not among them.
std::vector<SuiteCase> listCases(const std::filesystem::path &root);
/// light_NAME.onnx files.
std::vector<SuiteCase> listLightModels(const std::filesystem::path &root);

/// A model and what it has to compute. Lists and optional values are made from tensors inside the model, so
/// all inputs and outputs are tensors here.
struct SuiteData {
  onnx::ModelProto model;
  std::map<std::string, onnx::TensorProto> inputs;
  std::vector<onnx::TensorProto> outputs; // in the order of the graph's
  double relative = 1e-3, absolute = 1e-7;
};
Expected<SuiteData> readCase(const SuiteCase &suiteCase, int dataSet);
int countDataSets(const SuiteCase &suiteCase);
Expected<SuiteData> readLightModel(const SuiteCase &suiteCase);

/// The model with weights in place of the nodes that fill them; big ones have a shape, but no values.
onnx::ModelProto withWeights(onnx::ModelProto model);

/// Nullopt for types that have no HostTensor (strings, float8, …).
std::optional<HostTensor> hostOf(const onnx::TensorProto &tensor);

/// Why `got` is not what the suite expects; empty when it is. bf16 is compared to two of its units, as the
/// suite does.
std::string difference(const HostTensor &got, const HostTensor &expected, const SuiteData &data);

} // namespace zerocc
