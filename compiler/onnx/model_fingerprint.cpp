#include "compiler/onnx/model_fingerprint.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/xxhash.h"

namespace zerocc {
namespace {

/// Of a text that is never whole in memory: what has come so far is folded into its hash now and then.
class Hash {
public:
  uint64_t value() const { return llvm::xxHash64(bytes_); }

  void add(const onnx::GraphProto &graph) {
    number(graph.node_size());
    for (const onnx::NodeProto &node : graph.node())
      add(node);
    for (const onnx::TensorProto &tensor : graph.initializer())
      add(tensor);
    for (const onnx::ValueInfoProto &output : graph.output())
      text(output.name());
  }
  void add(const onnx::NodeProto &node) {
    text(node.op_type());
    text(node.domain() == "ai.onnx" ? "" : node.domain());
    texts(node.input());
    texts(node.output());
    number(node.attribute_size());
    for (const onnx::AttributeProto &attribute : node.attribute())
      add(attribute);
  }
  template <typename List> void texts(const List &list) {
    number(list.size());
    for (const std::string &each : list)
      text(each);
  }
  void text(const std::string &value) {
    number(static_cast<int64_t>(value.size()));
    append(value.data(), value.size());
  }
  void number(int64_t value) { append(reinterpret_cast<const char *>(&value), sizeof value); }

private:
  void add(const onnx::AttributeProto &attribute) {
    text(attribute.name());
    text(attribute.s());
    number(attribute.i());
    real(attribute.f());
    number(attribute.ints_size());
    for (int64_t value : attribute.ints())
      number(value);
    number(attribute.floats_size());
    for (float value : attribute.floats())
      real(value);
    texts(attribute.strings());
    if (attribute.has_t())
      add(attribute.t());
    if (attribute.has_g())
      add(attribute.g());
    for (const onnx::TensorProto &tensor : attribute.tensors())
      add(tensor);
    for (const onnx::GraphProto &graph : attribute.graphs())
      add(graph);
  }
  void real(float value) { append(reinterpret_cast<const char *>(&value), sizeof value); }
  /// Integers are structure (axes, shapes, indices), but for those too many for that.
  void add(const onnx::TensorProto &tensor) {
    text(tensor.name());
    number(tensor.data_type());
    for (int64_t dim : tensor.dims())
      number(dim);
    const bool isInteger = tensor.data_type() == onnx::TensorProto::INT64 || tensor.data_type() == onnx::TensorProto::INT32;
    if (isInteger && tensor.raw_data().size() <= 4096)
      text(tensor.raw_data());
    if (isInteger)
      for (int64_t value : tensor.int64_data())
        number(value);
  }

  void append(const char *bytes, size_t count) {
    bytes_.append(bytes, count);
    if (bytes_.size() < 1 << 16)
      return;
    const uint64_t folded = value();
    bytes_.assign(reinterpret_cast<const char *>(&folded), sizeof folded);
  }

  std::string bytes_;
};

} // namespace

std::string modelFingerprint(const onnx::ModelProto &model) {
  Hash hash;
  hash.add(model.graph());
  for (const onnx::FunctionProto &function : model.functions()) {
    hash.text(function.domain() + "." + function.name());
    hash.texts(function.input());
    hash.texts(function.output());
    for (const onnx::NodeProto &node : function.node())
      hash.add(node);
  }
  return llvm::utohexstr(hash.value(), /*LowerCase=*/true);
}

} // namespace zerocc
