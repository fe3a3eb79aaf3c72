#pragma once

#include "onnx/defs/parser.h"
#include "onnx/onnx_pb.h"

#include "google/protobuf/unknown_field_set.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <unistd.h>

namespace zerocc {

/// A folder that goes with the test.
class ScratchFolder {
public:
  ScratchFolder() {
    std::string name = testing::UnitTest::GetInstance()->current_test_info()->name();
    path = std::filesystem::temp_directory_path() / ("zerocc-onnx-" + std::to_string(::getpid()) + "-" + name);
    std::filesystem::create_directories(path);
  }
  ~ScratchFolder() { std::filesystem::remove_all(path); }

  std::string write(const std::string &name, const std::string &bytes) const {
    std::ofstream(path / name, std::ios::binary) << bytes;
    return path / name;
  }
  std::string write(const onnx::ModelProto &model) const { return write("model.onnx", model.SerializeAsString()); }

  std::filesystem::path path;
};

/// A model from ONNX's textual syntax, opset 17, to be changed into what text cannot say.
inline onnx::ModelProto modelFromText(const std::string &graph, int opset = 17) {
  std::string text = "<ir_version: 8, opset_import: [\"\" : " + std::to_string(opset) + "]>\n" + graph;
  onnx::ModelProto model;
  onnx::OnnxParser parser(text.c_str());
  auto status = parser.Parse(model);
  EXPECT_TRUE(status.IsOK()) << status.ErrorMessage();
  return model;
}

/// Adds an entry of metadata_props to a message whose class does not know the field.
inline void addMetadata(google::protobuf::Message &message, int field, const std::string &key, const std::string &value) {
  onnx::StringStringEntryProto entry;
  entry.set_key(key);
  entry.set_value(value);
  message.GetReflection()->MutableUnknownFields(&message)->AddLengthDelimited(field, entry.SerializeAsString());
}

/// An initializer whose bytes are as given, whatever the dims say.
inline onnx::TensorProto &addTensor(onnx::ModelProto &model, const std::string &name, int type,
                             std::vector<int64_t> dims, const std::string &raw) {
  onnx::TensorProto &tensor = *model.mutable_graph()->add_initializer();
  tensor.set_name(name);
  tensor.set_data_type(type);
  *tensor.mutable_dims() = {dims.begin(), dims.end()};
  tensor.set_raw_data(raw);
  return tensor;
}

/// A function "local::NAME" of one input v and one output r, without nodes.
inline onnx::FunctionProto functionOf(const std::string &name) {
  onnx::FunctionProto function;
  function.set_name(name);
  function.set_domain("local");
  function.add_input("v");
  function.add_output("r");
  for (const char *domain : {"", "local"}) {
    onnx::OperatorSetIdProto &import = *function.add_opset_import();
    import.set_domain(domain);
    import.set_version(domain[0] ? 1 : 17);
  }
  return function;
}

/// Ops called f… are such functions, others ONNX's.
inline onnx::NodeProto &addNode(onnx::FunctionProto &function, const std::string &op, const std::string &from,
                         const std::string &to) {
  onnx::NodeProto &node = *function.add_node();
  node.set_op_type(op);
  node.set_domain(op[0] == 'f' ? "local" : "");
  node.add_input(from);
  node.add_output(to);
  return node;
}

/// A model of one call.
inline onnx::ModelProto modelCalling(const std::string &function) {
  onnx::ModelProto model = modelFromText("g (float[B, 4] x) => (float[B, 4] y) { y = Relu (x) }");
  onnx::OperatorSetIdProto &import = *model.add_opset_import();
  import.set_domain("local");
  import.set_version(1);
  model.mutable_graph()->mutable_node(0)->set_domain("local");
  model.mutable_graph()->mutable_node(0)->set_op_type(function);
  return model;
}

} // namespace zerocc
