#include "tests/onnx/backend/suite.h"

#include "compiler/onnx/dims.h"
#include "compiler/onnx/loader.h"

#include "onnx/onnx-data_pb.h"

#include "llvm/Support/JSON.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <unistd.h>

namespace zerocc {

namespace fs = std::filesystem;

// ---------------------------------------------------------------------------------------------------------------
// Where the data is

static bool unpack(const fs::path &archive, const fs::path &folder) {
  fs::path fresh = folder.string() + "." + std::to_string(::getpid());
  fs::create_directories(fresh);
  std::string command = "tar -xf '" + archive.string() + "' -C '" + fresh.string() + "'";
  std::error_code error;
  if (std::system(command.c_str()) == 0)
    fs::rename(fresh, folder, error); // fails when another run was faster
  fs::remove_all(fresh, error);
  return fs::exists(folder);
}

fs::path findSuite(std::string &why) {
  if (const char *given = std::getenv("ZEROCC_ONNX_BACKEND_TESTS"))
    return given;
  const fs::path source = ZEROCC_SOURCE_DIR, inShared = "shared/data/onnx/backend-tests-1.22.tar.xz";
  const fs::path folder = fs::path(ZEROCC_BIN_DIR).parent_path() / "backend-tests-1.22";
  if (fs::exists(folder))
    return folder;
  for (const fs::path &archive : {source / inShared, source.parent_path() / inShared})
    if (fs::exists(archive)) {
      if (unpack(archive, folder))
        return folder;
      why = "tar could not unpack " + archive.filename().string();
      return {};
    }
  why = "there is no " + inShared.string() +
        " in the checkout or beside it, and ZEROCC_ONNX_BACKEND_TESTS is not set";
  return {};
}

std::vector<SuiteCase> listCases(const fs::path &root) {
  std::vector<SuiteCase> cases;
  for (const auto &entry : fs::recursive_directory_iterator(root))
    if (entry.path().filename() == "model.onnx" &&
        fs::exists(entry.path().parent_path() / "test_data_set_0")) {
      fs::path folder = entry.path().parent_path();
      cases.push_back({folder.parent_path().filename(), folder.filename(), folder});
    }
  std::sort(cases.begin(), cases.end(), [](const SuiteCase &a, const SuiteCase &b) {
    return std::tie(a.set, a.name) < std::tie(b.set, b.name);
  });
  return cases;
}

std::vector<SuiteCase> listLightModels(const fs::path &root) {
  std::vector<SuiteCase> cases;
  for (const auto &entry : fs::recursive_directory_iterator(root))
    if (entry.path().extension() == ".onnx" && entry.path().stem().string().starts_with("light_"))
      cases.push_back({"light", entry.path().stem(), entry.path().parent_path()});
  std::sort(cases.begin(), cases.end(),
            [](const SuiteCase &a, const SuiteCase &b) { return a.name < b.name; });
  return cases;
}

int countDataSets(const SuiteCase &suiteCase) {
  int count = 0;
  while (fs::exists(suiteCase.folder / ("test_data_set_" + std::to_string(count))))
    ++count;
  return count;
}

// ---------------------------------------------------------------------------------------------------------------
// Tensors

/// Little-endian bytes of a tensor whose values may lie in any of the fields.
static std::optional<std::string> bytesOf(const onnx::TensorProto &tensor, int64_t elementBytes) {
  if (tensor.has_raw_data())
    return tensor.raw_data();
  std::string bytes;
  auto append = [&](const auto &values) {
    for (auto value : values) // the low bytes are the value: little-endian
      bytes.append(reinterpret_cast<const char *>(&value), static_cast<size_t>(elementBytes));
  };
  switch (tensor.data_type()) {
  case onnx::TensorProto::FLOAT:
    append(tensor.float_data());
    return bytes;
  case onnx::TensorProto::DOUBLE:
    append(tensor.double_data());
    return bytes;
  case onnx::TensorProto::INT64:
    append(tensor.int64_data());
    return bytes;
  case onnx::TensorProto::UINT32:
  case onnx::TensorProto::UINT64:
    append(tensor.uint64_data());
    return bytes;
  default:
    append(tensor.int32_data());
    return bytes;
  }
}

std::optional<HostTensor> hostOf(const onnx::TensorProto &tensor) {
  std::optional<DType> dtype = dtypeFromOnnx(tensor.data_type());
  if (!dtype)
    return std::nullopt;
  TensorType type{*dtype, Dims(tensor.dims().begin(), tensor.dims().end())};
  std::optional<std::string> bytes = bytesOf(tensor, byteSize(*dtype));
  if (!bytes || static_cast<int64_t>(bytes->size()) != type.bytes())
    return std::nullopt;
  return HostTensor::fromBytes(type, *bytes);
}

static std::string valueText(const HostTensor &tensor, int64_t i) {
  std::ostringstream text;
  text.precision(9);
  if (isFloat(tensor.type.dtype))
    text << tensor.reals[i];
  else
    text << tensor.integers[i];
  return text.str();
}

std::string difference(const HostTensor &got, const HostTensor &expected, const SuiteData &data) {
  if (!(got.type == expected.type))
    return "got " + print(got.type) + ", expected " + print(expected.type);
  double relative = got.type.dtype == DType::bf16 ? std::max(data.relative, 0x1p-6) : data.relative;
  // The suite's numbers are rounded themselves, by a few units in the last place of what was summed: of the
  // largest.
  double largest = 0;
  for (double value : expected.reals)
    largest = std::isfinite(value) ? std::max(largest, std::fabs(value)) : largest;
  const double rounding = got.type.dtype == DType::f32 ? 0x1p-22 * largest : 0;
  auto isClose = [&](int64_t i) {
    if (!isFloat(got.type.dtype))
      return std::fabs(static_cast<double>(got.integers[i]) - static_cast<double>(expected.integers[i])) <=
             data.absolute + relative * std::fabs(static_cast<double>(expected.integers[i]));
    double a = got.reals[i], b = expected.reals[i];
    if (std::isnan(a) || std::isnan(b))
      return std::isnan(a) && std::isnan(b);
    if (std::isinf(a) || std::isinf(b))
      return a == b;
    return std::fabs(a - b) <= data.absolute + rounding + relative * std::fabs(b);
  };
  for (int64_t i = 0; i < got.type.elements(); ++i)
    if (!isClose(i))
      return "element " + std::to_string(i) + ": got " + valueText(got, i) + ", expected " +
             valueText(expected, i);
  return "";
}

// ---------------------------------------------------------------------------------------------------------------
// Models

template <typename Proto> static Expected<Proto> readProto(const fs::path &path) {
  std::ifstream file(path, std::ios::binary);
  Proto proto;
  if (!file || !proto.ParseFromIstream(&file))
    return Error(path.filename().string() + " cannot be read");
  return proto;
}

/// Puts the values of a data set in place of the model's inputs and outputs.
class Rewriter {
public:
  Rewriter(SuiteData &data, fs::path folder) : data_(data), folder_(std::move(folder)) {
    old_ = graph();
    graph().clear_input();
    graph().clear_node();
    graph().clear_output();
  }

  Status run() {
    for (int i = 0; i < old_.input_size(); ++i)
      ZEROCC_TRY(makeInput(old_.input(i), folder_ / ("input_" + std::to_string(i) + ".pb")));
    graph().mutable_node()->MergeFrom(old_.node());
    for (int i = 0; i < old_.output_size(); ++i)
      ZEROCC_TRY(makeOutput(old_.output(i), folder_ / ("output_" + std::to_string(i) + ".pb")));
    return success();
  }

private:
  onnx::GraphProto &graph() { return *data_.model.mutable_graph(); }

  Status makeInput(const onnx::ValueInfoProto &input, const fs::path &path) {
    if (!fs::exists(path)) { // its value is an initializer, as opsets before 9 want it
      *graph().add_input() = input;
      return success();
    }
    if (input.type().has_sequence_type()) {
      ZEROCC_ASSIGN(onnx::SequenceProto list, readProto<onnx::SequenceProto>(path));
      makeList(input.name(), list, input.type());
    } else if (input.type().has_optional_type()) {
      ZEROCC_ASSIGN(onnx::OptionalProto optional, readProto<onnx::OptionalProto>(path));
      makeOptional(input.name(), optional, input.type());
    } else {
      ZEROCC_ASSIGN(onnx::TensorProto tensor, readProto<onnx::TensorProto>(path));
      makeTensor(input.name(), tensor);
    }
    return success();
  }

  void makeTensor(const std::string &name, const onnx::TensorProto &tensor) {
    for (int i = 0; i < graph().initializer_size(); ++i)
      if (graph().initializer(i).name() == name)
        graph().mutable_initializer()->DeleteSubrange(i, 1);
    addInfo(*graph().add_input(), name, tensor);
    data_.inputs[name] = tensor;
  }

  /// A tensor's type with the dims it has.
  static void addInfo(onnx::ValueInfoProto &info, const std::string &name, const onnx::TensorProto &tensor) {
    info.set_name(name);
    onnx::TypeProto::Tensor &type = *info.mutable_type()->mutable_tensor_type();
    type.set_elem_type(tensor.data_type());
    type.mutable_shape();
    for (int64_t dim : tensor.dims())
      type.mutable_shape()->add_dim()->set_dim_value(dim);
  }

  onnx::NodeProto &addNode(const std::string &op, const std::vector<std::string> &inputs,
                           const std::string &output) {
    onnx::NodeProto &node = *graph().add_node();
    node.set_op_type(op);
    node.set_name("suite/" + output);
    for (const std::string &input : inputs)
      node.add_input(input);
    node.add_output(output);
    return node;
  }

  void makeList(const std::string &name, const onnx::SequenceProto &list, const onnx::TypeProto &type) {
    std::vector<std::string> parts;
    for (const onnx::TensorProto &tensor : list.tensor_values()) {
      parts.push_back(name + "." + std::to_string(parts.size()));
      makeTensor(parts.back(), tensor);
    }
    if (!parts.empty()) {
      addNode("SequenceConstruct", parts, name);
      return;
    }
    onnx::AttributeProto &dtype = *addNode("SequenceEmpty", {}, name).add_attribute();
    dtype.set_name("dtype");
    dtype.set_type(onnx::AttributeProto::INT);
    dtype.set_i(type.sequence_type().elem_type().tensor_type().elem_type());
  }

  void makeOptional(const std::string &name, const onnx::OptionalProto &optional,
                    const onnx::TypeProto &type) {
    const onnx::TypeProto &element = type.optional_type().elem_type();
    std::string inner = name + ".value";
    if (optional.has_sequence_value())
      makeList(inner, optional.sequence_value(), element);
    else if (optional.has_tensor_value())
      makeTensor(inner, optional.tensor_value());
    bool isEmpty = !optional.has_sequence_value() && !optional.has_tensor_value();
    onnx::NodeProto &node =
        addNode("Optional", isEmpty ? std::vector<std::string>{} : std::vector{inner}, name);
    if (isEmpty) {
      onnx::AttributeProto &attribute = *node.add_attribute();
      attribute.set_name("type");
      attribute.set_type(onnx::AttributeProto::TYPE_PROTO);
      *attribute.mutable_tp() = element;
    }
  }

  void expect(const std::string &name, const onnx::TensorProto &tensor) {
    addInfo(*graph().add_output(), name, tensor);
    data_.outputs.push_back(tensor);
  }

  Status makeOutput(const onnx::ValueInfoProto &output, const fs::path &path) {
    if (output.type().has_sequence_type()) {
      ZEROCC_ASSIGN(onnx::SequenceProto list, readProto<onnx::SequenceProto>(path));
      takeList(output.name(), list);
    } else if (output.type().has_optional_type()) {
      ZEROCC_ASSIGN(onnx::OptionalProto optional, readProto<onnx::OptionalProto>(path));
      std::string inner = output.name() + ".value";
      bool isEmpty = !optional.has_sequence_value() && !optional.has_tensor_value();
      addNode("OptionalHasElement", {output.name()}, output.name() + ".has");
      expect(output.name() + ".has", boolean(!isEmpty));
      if (!isEmpty)
        addNode("OptionalGetElement", {output.name()}, inner);
      if (optional.has_sequence_value())
        takeList(inner, optional.sequence_value());
      else if (optional.has_tensor_value())
        expect(inner, optional.tensor_value());
    } else {
      ZEROCC_ASSIGN(onnx::TensorProto tensor, readProto<onnx::TensorProto>(path));
      expect(output.name(), tensor);
    }
    return success();
  }

  void takeList(const std::string &name, const onnx::SequenceProto &list) {
    addNode("SequenceLength", {name}, name + ".length");
    expect(name + ".length", integer(list.tensor_values_size()));
    for (int i = 0; i < list.tensor_values_size(); ++i) {
      std::string part = name + "." + std::to_string(i);
      onnx::TensorProto index = integer(i);
      index.set_name(part + ".index");
      *graph().add_initializer() = index;
      addNode("SequenceAt", {name, index.name()}, part);
      expect(part, list.tensor_values(i));
    }
  }

  static onnx::TensorProto integer(int64_t value) {
    onnx::TensorProto tensor;
    tensor.set_data_type(onnx::TensorProto::INT64);
    tensor.add_int64_data(value);
    return tensor;
  }
  static onnx::TensorProto boolean(bool value) {
    onnx::TensorProto tensor;
    tensor.set_data_type(onnx::TensorProto::BOOL);
    tensor.add_int32_data(value);
    return tensor;
  }

  SuiteData &data_;
  fs::path folder_;
  onnx::GraphProto old_;
};

static Status readTolerances(const fs::path &path, SuiteData &data) {
  std::ifstream file(path);
  if (!file)
    return success();
  std::stringstream text;
  text << file.rdbuf();
  llvm::Expected<llvm::json::Value> json = llvm::json::parse(text.str());
  if (!json || !json->getAsObject()) {
    llvm::consumeError(json.takeError());
    return Error("data.json cannot be read");
  }
  data.relative = json->getAsObject()->getNumber("rtol").getValueOr(data.relative);
  data.absolute = json->getAsObject()->getNumber("atol").getValueOr(data.absolute);
  return success();
}

Expected<SuiteData> readCase(const SuiteCase &suiteCase, int dataSet) {
  SuiteData data;
  ZEROCC_TRY(readTolerances(suiteCase.folder / "data.json", data));
  ZEROCC_ASSIGN(data.model, readProto<onnx::ModelProto>(suiteCase.folder / "model.onnx"));
  Rewriter rewriter(data, suiteCase.folder / ("test_data_set_" + std::to_string(dataSet)));
  ZEROCC_TRY(rewriter.run());
  return data;
}

/// The input the suite makes for models that have none: i / n, symbolic dims 1.
static onnx::TensorProto rampOf(const onnx::ValueInfoProto &input) {
  onnx::TensorProto tensor;
  tensor.set_data_type(onnx::TensorProto::FLOAT);
  int64_t elements = 1;
  for (const auto &dim : input.type().tensor_type().shape().dim()) {
    tensor.add_dims(dim.has_dim_value() ? dim.dim_value() : 1);
    elements *= tensor.dims(tensor.dims_size() - 1);
  }
  for (int64_t i = 0; i < elements; ++i)
    tensor.add_float_data(static_cast<float>(static_cast<double>(i) / static_cast<double>(elements)));
  return tensor;
}

/// SqueezeNet's scores are equal and about 2^33: the softmax of equal scores, if a kernel rounds one of them by a unit in
/// its last place (1024) more, is 1 there and 0 elsewhere. Scaled to about 1, which a softmax of equal scores does not
/// see, such a unit counts as little as it should.
static void scaleScores(onnx::GraphProto &graph) {
  const int count = graph.node_size();
  if (count == 0 || graph.node(count - 1).op_type() != "Softmax")
    return;
  onnx::TensorProto &factor = *graph.add_initializer();
  factor.set_name("suite/scale");
  factor.set_data_type(onnx::TensorProto::FLOAT);
  factor.add_float_data(0x1p-33F);
  const onnx::NodeProto softmax = graph.node(count - 1);
  onnx::NodeProto &scale = *graph.mutable_node(count - 1);
  scale.Clear();
  scale.set_op_type("Mul");
  scale.add_input(softmax.input(0));
  scale.add_input(factor.name());
  scale.add_output("suite/scores");
  *graph.add_node() = softmax;
  graph.mutable_node(count)->set_input(0, scale.output(0));
}

Expected<SuiteData> readLightModel(const SuiteCase &suiteCase) {
  SuiteData data;
  data.relative = suiteCase.name == "light_densenet121" ? 2e-3 : 1e-3; // as the suite's runner has it
  ZEROCC_ASSIGN(data.model, readProto<onnx::ModelProto>(suiteCase.folder / (suiteCase.name + ".onnx")));
  onnx::GraphProto &graph = *data.model.mutable_graph();
  if (suiteCase.name == "light_squeezenet")
    scaleScores(graph);
  for (onnx::ValueInfoProto &input : *graph.mutable_input()) {
    bool isStored =
        std::any_of(graph.initializer().begin(), graph.initializer().end(),
                    [&](const onnx::TensorProto &tensor) { return tensor.name() == input.name(); });
    if (isStored)
      continue;
    onnx::TensorProto ramp = rampOf(input);
    for (int i = 0; i < ramp.dims_size(); ++i)
      input.mutable_type()->mutable_tensor_type()->mutable_shape()->mutable_dim(i)->set_dim_value(
          ramp.dims(i));
    data.inputs[input.name()] = std::move(ramp);
  }
  for (int i = 0; i < graph.output_size(); ++i) {
    std::string file = suiteCase.name + "_output_" + std::to_string(i) + ".pb";
    ZEROCC_ASSIGN(onnx::TensorProto tensor, readProto<onnx::TensorProto>(suiteCase.folder / file));
    data.outputs.push_back(std::move(tensor));
  }
  return data;
}

onnx::ModelProto withWeights(onnx::ModelProto model) {
  constexpr int64_t kStoredElements = 1 << 14; // statistics are constants, whose values import wants to see
  onnx::GraphProto &graph = *model.mutable_graph();
  std::map<std::string, HostTensor> shapes;
  for (const onnx::TensorProto &tensor : graph.initializer())
    if (tensor.data_type() == onnx::TensorProto::INT64)
      if (std::optional<HostTensor> host = hostOf(tensor))
        shapes[tensor.name()] = std::move(*host);
  onnx::GraphProto old = graph;
  graph.clear_node();
  for (const onnx::NodeProto &node : old.node()) {
    auto shape = node.op_type() == "ConstantOfShape" ? shapes.find(node.input(0)) : shapes.end();
    if (shape == shapes.end()) {
      *graph.add_node() = node;
      continue;
    }
    onnx::TensorProto &weight = *graph.add_initializer();
    weight.set_name(node.output(0));
    weight.set_data_type(onnx::TensorProto::FLOAT);
    int64_t elements = 1;
    for (int64_t dim : shape->second.integers) {
      weight.add_dims(dim);
      elements *= dim;
    }
    if (elements > kStoredElements) {
      weight.set_data_location(onnx::TensorProto::EXTERNAL);
      onnx::StringStringEntryProto &location = *weight.add_external_data();
      location.set_key("location");
      location.set_value("weights");
      continue;
    }
    for (int64_t i = 0; i < elements; ++i)
      weight.add_float_data(1);
  }
  onnx::StringStringEntryProto &mark = *model.add_metadata_props();
  mark.set_key(kWeightlessKey);
  mark.set_value("true");
  return model;
}

} // namespace zerocc
