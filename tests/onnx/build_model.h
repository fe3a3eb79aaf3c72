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

} // namespace zerocc
