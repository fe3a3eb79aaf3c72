#pragma once

#include "runtime/weights/onnx_fields.h"
#include "runtime/weights/wire.h"

#include <string>
#include <vector>

namespace zerocc {

/// Builds ONNX files field by field, the wrong ones too.
inline std::string bytesOf(const auto &values) {
  return {reinterpret_cast<const char *>(values.data()), values.size() * sizeof values[0]};
}

struct TinyTensor {
  std::string message;

  TinyTensor(const std::string &name, int type, const std::vector<int64_t> &dims) {
    using namespace onnx_fields;
    for (int64_t dim : dims)
      varint(tensor::kDims, dim);
    varint(tensor::kDataType, type);
    bytes(tensor::kName, name);
  }
  TinyTensor &varint(uint32_t number, int64_t value) {
    putTag(message, number, WireField::varint);
    putVarint(message, static_cast<uint64_t>(value));
    return *this;
  }
  TinyTensor &bytes(uint32_t number, const std::string &value) {
    putBytes(message, number, value);
    return *this;
  }
  TinyTensor &raw(const auto &values) { return bytes(onnx_fields::tensor::kRawData, bytesOf(values)); }
  TinyTensor &entry(const std::string &key, const std::string &value) {
    std::string entry;
    putBytes(entry, onnx_fields::entry::kKey, key);
    putBytes(entry, onnx_fields::entry::kValue, value);
    return bytes(onnx_fields::tensor::kExternalData, entry);
  }
  TinyTensor &external(const std::string &location, const std::string &offset, const std::string &length) {
    entry("location", location).entry("offset", offset).entry("length", length);
    return varint(onnx_fields::tensor::kDataLocation, 1);
  }
};

struct TinyModel {
  std::string graph;

  TinyModel &initializer(const TinyTensor &tensor) {
    putBytes(graph, onnx_fields::graph::kInitializer, tensor.message);
    return *this;
  }
  TinyModel &constant(const std::string &output, const TinyTensor &tensor) {
    std::string attribute, node;
    putBytes(attribute, onnx_fields::attribute::kName, "value");
    putBytes(attribute, onnx_fields::attribute::kTensor, tensor.message);
    putBytes(node, onnx_fields::node::kOutput, output);
    putBytes(node, onnx_fields::node::kOpType, "Constant");
    putBytes(node, onnx_fields::node::kAttribute, attribute);
    putBytes(graph, onnx_fields::graph::kNode, node);
    return *this;
  }
  std::string file() const {
    std::string out;
    putTag(out, 1, WireField::varint); // ir_version
    putVarint(out, 8);
    putBytes(out, 2, "tests"); // producer_name
    putBytes(out, onnx_fields::model::kGraph, graph);
    putBytes(out, 8, "\x10\x11"); // opset_import { version: 17 }
    return out;
  }
};

} // namespace zerocc
