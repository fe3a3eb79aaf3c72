#include "compiler/onnx/generate.h"

#include "compiler/onnx/loader.h"

#include "llvm/Support/MathExtras.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <tuple>
#include <vector>

namespace zerocc {
namespace {

constexpr int64_t kMaxLayers = 20000; // their nodes stay below kMaxNodes
constexpr int64_t kMaxSize = (int64_t(1) << 31) - 1;
constexpr int64_t kWeightAlignment = 4096; // what ONNX advises, so that files can be mapped

/// Writes nodes with the names an exporter gives: "/h.3/attn/qkv/MatMul", "/h.3/attn/Reshape_1", results with
/// "_output_0" behind.
class GraphWriter {
public:
  explicit GraphWriter(std::string weightsFile) : weightsFile_(std::move(weightsFile)) {
    model_.set_ir_version(8);
    model_.set_producer_name("zerocc generate");
    model_.set_doc_string("weightless: the external data does not exist");
    onnx::StringStringEntryProto &mark = *model_.add_metadata_props();
    mark.set_key(kWeightlessKey);
    mark.set_value("true");
    onnx::OperatorSetIdProto &opset = *model_.add_opset_import();
    opset.set_domain("");
    opset.set_version(17);
    graph_ = model_.mutable_graph();
    graph_->set_name("main_graph");
  }

  std::string input(const std::string &name, int32_t dataType, int64_t columns) {
    describe(*graph_->add_input(), name, dataType, {columns});
    return name;
  }
  void output(const std::string &name, const std::vector<int64_t> &dimsBehindBatch) {
    describe(*graph_->add_output(), name, onnx::TensorProto::FLOAT, dimsBehindBatch);
  }

  std::string parameter(const std::string &name, const std::vector<int64_t> &dims) {
    onnx::TensorProto &tensor = addInitializer(name, onnx::TensorProto::FLOAT, dims);
    int64_t elements = 1, bytes = 0, end = 0, paddedEnd = 0;
    for (int64_t dim : dims)
      tooLarge_ |= llvm::MulOverflow(elements, dim, elements) != 0;
    tooLarge_ |= llvm::MulOverflow(elements, int64_t(4), bytes) ||
                 llvm::AddOverflow(weightsEnd_, bytes, end) ||
                 llvm::AddOverflow(end, kWeightAlignment - 1, paddedEnd);
    tensor.set_data_location(onnx::TensorProto::EXTERNAL);
    auto entry = [&](const char *key, const std::string &value) {
      onnx::StringStringEntryProto &added = *tensor.add_external_data();
      added.set_key(key);
      added.set_value(value);
    };
    entry("location", weightsFile_);
    entry("offset", std::to_string(weightsEnd_));
    entry("length", std::to_string(bytes));
    if (!tooLarge_) {
      weightsEnd_ = paddedEnd / kWeightAlignment * kWeightAlignment;
      parameterElements_ += elements;
    }
    return name;
  }

  std::string number(float value) { return constant<float>(onnx::TensorProto::FLOAT, {}, {value}); }
  std::string integer(int64_t value) { return constant<int64_t>(onnx::TensorProto::INT64, {}, {value}); }
  std::string integers(const std::vector<int64_t> &values) {
    return constant<int64_t>(onnx::TensorProto::INT64, {static_cast<int64_t>(values.size())}, values);
  }

  /// Adds a node of the module at path `module` and returns it; outputOf() names its result.
  onnx::NodeProto &node(const std::string &module, const std::string &op,
                        const std::vector<std::string> &inputs, int outputs = 1) {
    onnx::NodeProto &node = *graph_->add_node();
    std::string path = module + "/" + op;
    if (int number = timesUsed_[path]++)
      path += "_" + std::to_string(number);
    node.set_name(path);
    node.set_op_type(op);
    for (const std::string &input : inputs)
      node.add_input(input);
    for (int i = 0; i < outputs; ++i)
      node.add_output(path + "_output_" + std::to_string(i));
    return node;
  }
  std::string op(const std::string &module, const std::string &type, const std::vector<std::string> &inputs) {
    return node(module, type, inputs).output(0);
  }

  std::string transpose(const std::string &module, const std::string &x,
                        const std::vector<int64_t> &permutation) {
    onnx::NodeProto &made = node(module, "Transpose", {x});
    onnx::AttributeProto &attribute = *made.add_attribute();
    attribute.set_name("perm");
    attribute.set_type(onnx::AttributeProto::INTS);
    for (int64_t axis : permutation)
      attribute.add_ints(axis);
    return made.output(0);
  }

  /// A matrix product and a bias: the module "/h.3/mlp/up" has the parameters "h.3.mlp.up.weight" and
  /// ".bias".
  std::string linear(const std::string &module, const std::string &x, int64_t inputs, int64_t outputs) {
    std::string product = op(module, "MatMul", {x, parameter(nameIn(module, "weight"), {inputs, outputs})});
    return op(module, "Add", {product, parameter(nameIn(module, "bias"), {outputs})});
  }

  std::string layerNorm(const std::string &module, const std::string &x, int64_t features) {
    std::string scale = parameter(nameIn(module, "weight"), {features});
    onnx::NodeProto &made =
        node(module, "LayerNormalization", {x, scale, parameter(nameIn(module, "bias"), {features})});
    setInt(made, "axis", -1);
    onnx::AttributeProto &epsilon = *made.add_attribute();
    epsilon.set_name("epsilon");
    epsilon.set_type(onnx::AttributeProto::FLOAT);
    epsilon.set_f(1e-5f);
    return made.output(0);
  }

  static void setInt(onnx::NodeProto &node, const char *name, int64_t value) {
    onnx::AttributeProto &attribute = *node.add_attribute();
    attribute.set_name(name);
    attribute.set_type(onnx::AttributeProto::INT);
    attribute.set_i(value);
  }

  /// The last node gives an output of the model.
  void nameResult(const std::string &name) {
    graph_->mutable_node(graph_->node_size() - 1)->set_output(0, name);
  }

  Expected<GeneratedModel> finish() const {
    if (tooLarge_)
      return Error("the weights take more than 2^63 bytes");
    return GeneratedModel{model_.SerializeAsString(), graph_->node_size(), parameterElements_};
  }

private:
  static std::string nameIn(const std::string &module, const char *part) {
    std::string name = module.substr(1) + "." + part;
    std::replace(name.begin(), name.end(), '/', '.');
    return name;
  }

  static void describe(onnx::ValueInfoProto &info, const std::string &name, int32_t dataType,
                       const std::vector<int64_t> &dimsBehindBatch) {
    info.set_name(name);
    onnx::TypeProto::Tensor &tensor = *info.mutable_type()->mutable_tensor_type();
    tensor.set_elem_type(dataType);
    tensor.mutable_shape()->add_dim()->set_dim_param("batch");
    for (int64_t dim : dimsBehindBatch)
      tensor.mutable_shape()->add_dim()->set_dim_value(dim);
  }

  onnx::TensorProto &addInitializer(const std::string &name, int32_t dataType,
                                    const std::vector<int64_t> &dims) {
    onnx::TensorProto &tensor = *graph_->add_initializer();
    tensor.set_name(name);
    tensor.set_data_type(dataType);
    for (int64_t dim : dims)
      tensor.add_dims(dim);
    return tensor;
  }

  /// One initializer per value, however often it is read.
  template <typename T>
  std::string constant(int32_t dataType, const std::vector<int64_t> &dims, const std::vector<T> &values) {
    std::string bytes(values.size() * sizeof(T), '\0');
    std::memcpy(bytes.data(), values.data(), bytes.size()); // ONNX is little-endian, as this machine is
    std::string &name = constants_[{dataType, dims, bytes}];
    if (name.empty()) {
      name = "/Constant_" + std::to_string(constants_.size() - 1) + "_output_0";
      addInitializer(name, dataType, dims).set_raw_data(bytes);
    }
    return name;
  }

  std::string weightsFile_;
  onnx::ModelProto model_;
  onnx::GraphProto *graph_;
  std::map<std::string, int> timesUsed_; // by module and op
  std::map<std::tuple<int32_t, std::vector<int64_t>, std::string>, std::string> constants_;
  int64_t weightsEnd_ = 0, parameterElements_ = 0;
  bool tooLarge_ = false;
};

class GptWriter {
public:
  GptWriter(const GptShape &shape, const std::string &weightsFile) : shape_(shape), w_(weightsFile) {}

  Expected<GeneratedModel> run() {
    std::string ids = w_.input("input_ids", onnx::TensorProto::INT64, shape_.sequence);
    std::string tokens = w_.parameter("wte.weight", {shape_.vocab, shape_.hidden});
    std::string places = w_.parameter("wpe.weight", {shape_.sequence, shape_.hidden});
    std::string positions = w_.op("", "Range", {w_.integer(0), w_.integer(shape_.sequence), w_.integer(1)});
    std::string x = w_.op("/wte", "Gather", {tokens, ids});
    x = w_.op("", "Add", {x, w_.op("/wpe", "Gather", {places, positions})});
    // Computed from positions, so that no sequence x sequence table is stored.
    std::string columns = w_.op("", "Unsqueeze", {positions, w_.integers({0})});
    std::string rows = w_.op("", "Unsqueeze", {positions, w_.integers({1})});
    causal_ = w_.op("", "LessOrEqual", {columns, rows});
    for (int64_t i = 0; i < shape_.layers; ++i)
      x = layer("/h." + std::to_string(i), x);
    x = w_.layerNorm("/ln_f", x, shape_.hidden);
    w_.op("/lm_head", "MatMul", {x, w_.transpose("/lm_head", tokens, {1, 0})});
    w_.nameResult("logits");
    w_.output("logits", {shape_.sequence, shape_.vocab});
    return w_.finish();
  }

private:
  std::string layer(const std::string &path, const std::string &x) {
    std::string attended = attention(path + "/attn", w_.layerNorm(path + "/ln_1", x, shape_.hidden));
    std::string y = w_.op(path, "Add", {x, attended});
    std::string up = w_.linear(path + "/mlp/up", w_.layerNorm(path + "/ln_2", y, shape_.hidden),
                               shape_.hidden, 4 * shape_.hidden);
    std::string down =
        w_.linear(path + "/mlp/down", gelu(path + "/mlp/act", up), 4 * shape_.hidden, shape_.hidden);
    return w_.op(path, "Add", {y, down});
  }

  std::string attention(const std::string &path, const std::string &x) {
    int64_t perHead = shape_.hidden / shape_.heads;
    std::string qkv = w_.linear(path + "/qkv", x, shape_.hidden, 3 * shape_.hidden);
    onnx::NodeProto &split = w_.node(path, "Split", {qkv}, 3);
    GraphWriter::setInt(split, "axis", 2);
    std::string parts[] = {split.output(0), split.output(1), split.output(2)};
    auto heads = [&](const std::string &part, const std::vector<int64_t> &permutation) {
      // 0: the dim stays as it is.
      std::string apart = w_.op(path, "Reshape", {part, w_.integers({0, 0, shape_.heads, perHead})});
      return w_.transpose(path, apart, permutation);
    };
    std::string q = heads(parts[0], {0, 2, 1, 3}), k = heads(parts[1], {0, 2, 3, 1}),
                v = heads(parts[2], {0, 2, 1, 3});
    q = w_.op(path, "Mul", {q, w_.number(static_cast<float>(1 / std::sqrt(static_cast<double>(perHead))))});
    std::string scores = w_.op(path, "MatMul", {q, k});
    scores = w_.op(path, "Where", {causal_, scores, w_.number(-std::numeric_limits<float>::infinity())});
    onnx::NodeProto &softmax = w_.node(path, "Softmax", {scores});
    GraphWriter::setInt(softmax, "axis", -1);
    std::string weighted = w_.op(path, "MatMul", {softmax.output(0), v});
    std::string together = w_.transpose(path, weighted, {0, 2, 1, 3});
    together = w_.op(path, "Reshape", {together, w_.integers({0, 0, shape_.hidden})});
    return w_.linear(path + "/proj", together, shape_.hidden, shape_.hidden);
  }

  // 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))): Gelu is an op from opset 20 on.
  std::string gelu(const std::string &path, const std::string &x) {
    std::string cube = w_.op(path, "Pow", {x, w_.number(3)});
    std::string inner = w_.op(path, "Add", {x, w_.op(path, "Mul", {cube, w_.number(0.044715f)})});
    std::string t = w_.op(path, "Tanh", {w_.op(path, "Mul", {inner, w_.number(0.7978845608028654f)})});
    std::string half = w_.op(path, "Mul", {x, w_.number(0.5f)});
    return w_.op(path, "Mul", {half, w_.op(path, "Add", {t, w_.number(1)})});
  }

  const GptShape shape_;
  GraphWriter w_;
  std::string causal_; // [sequence, sequence], true where a position may be read
};

void checkSize(const char *name, int64_t value, int64_t most, std::vector<Diagnostic> &findings) {
  if (value < 1 || value > most)
    findings.push_back(
        {std::string(name) + " is " + std::to_string(value) + ", not in [1, " + std::to_string(most) + "]",
         ""});
}

} // namespace

Expected<GeneratedModel> generateGpt(const GptShape &shape, const std::string &weightsFile) {
  std::vector<Diagnostic> findings;
  checkSize("layers", shape.layers, kMaxLayers, findings);
  checkSize("hidden", shape.hidden, kMaxSize / 4, findings);
  checkSize("heads", shape.heads, kMaxSize, findings);
  checkSize("vocab", shape.vocab, kMaxSize, findings);
  checkSize("sequence", shape.sequence, kMaxSize, findings);
  if (findings.empty() && shape.hidden % shape.heads != 0)
    findings.push_back({"hidden " + std::to_string(shape.hidden) + " is not divisible by heads " +
                            std::to_string(shape.heads),
                        "each head takes hidden / heads features"});
  if (!findings.empty())
    return Error(std::move(findings));
  return GptWriter(shape, weightsFile).run();
}

Expected<GeneratedModel> generateMlp(const MlpShape &shape, const std::string &weightsFile) {
  std::vector<Diagnostic> findings;
  checkSize("layers", shape.layers, kMaxLayers, findings);
  checkSize("hidden", shape.hidden, kMaxSize, findings);
  checkSize("inputs", shape.inputs, kMaxSize, findings);
  checkSize("outputs", shape.outputs, kMaxSize, findings);
  if (!findings.empty())
    return Error(std::move(findings));
  GraphWriter w(weightsFile);
  std::string x = w.input("x", onnx::TensorProto::FLOAT, shape.inputs);
  for (int64_t i = 0; i < shape.layers; ++i) {
    std::string path = "/layers." + std::to_string(i);
    bool isLast = i + 1 == shape.layers;
    x = w.linear(path, x, i == 0 ? shape.inputs : shape.hidden, isLast ? shape.outputs : shape.hidden);
    if (!isLast)
      x = w.op(path, "Relu", {x});
  }
  w.nameResult("y");
  w.output("y", {shape.outputs});
  return w.finish();
}

} // namespace zerocc
