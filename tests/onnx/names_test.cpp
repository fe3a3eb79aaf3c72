// What text cannot say: node names, metadata of the dynamo exporter, float16, defaults and overloads of functions.

#include "compiler/onnx/importer.h"
#include "tests/onnx/build_model.h"

namespace zerocc {
namespace {

constexpr int kValueInfoMetadata = 4, kNodeMetadata = 9, kFunctionAttributes = 11;

struct Imported {
  std::unique_ptr<Module> module;
  ImportReport report;
};

Imported import(const onnx::ModelProto &model, const ImportOptions &options = {}) {
  ScratchFolder folder;
  Imported result;
  auto module = importOnnx(folder.write(model), options, &result.report);
  EXPECT_TRUE(module) << module.error().text();
  if (module)
    result.module = std::move(*module);
  return result;
}

std::vector<std::string> parameterNames(const Imported &imported) {
  std::vector<std::string> names;
  for (const Parameter &parameter : imported.module->parameters)
    names.push_back(parameter.value->name);
  return names;
}

using Names = std::vector<std::string>;

void setScopes(onnx::ModelProto &model, int node, const std::string &module) {
  addMetadata(*model.mutable_graph()->mutable_node(node), kNodeMetadata, "pkg.torch.onnx.name_scopes",
              "['', '" + module + "', 'op']");
}

const char *const kTwoNorms = R"(
g (float[B, 2] x) => (float[B, 2] y)
<float[2] ones = {1, 1}>
{
  a = LayerNormalization (x, ones)
  y = LayerNormalization (a, ones)
})";

TEST(Names, OfUntiedParametersComeFromNodeNames) {
  onnx::ModelProto model = modelFromText(kTwoNorms);
  model.mutable_graph()->mutable_node(0)->set_name("/h.0/ln_1/LayerNormalization");
  model.mutable_graph()->mutable_node(1)->set_name("/ln_f/LayerNormalization");
  Imported imported = import(model);
  EXPECT_EQ(parameterNames(imported), (Names{"h.0.ln_1.weight", "ln_f.weight"}));
  EXPECT_EQ(imported.report.repairs,
            Names{"untied \"ones\" (f32[2], all elements equal), which the exporter shared: 2 parameters, "
                  "h.0.ln_1.weight, ln_f.weight"});
  EXPECT_EQ(imported.report.parameters[1].slots, Names{"/ln_f/LayerNormalization:1"});
  EXPECT_TRUE(imported.report.parameters[1].split);
  EXPECT_EQ(imported.module->parameters[1].source.initializer, "ones");
}

TEST(Names, OfOneModuleCalledTwiceKeepItOneParameter) {
  onnx::ModelProto model = modelFromText(kTwoNorms);
  model.mutable_graph()->mutable_node(0)->set_name("/ln/LayerNormalization");
  model.mutable_graph()->mutable_node(1)->set_name("/ln/LayerNormalization_1");
  Imported imported = import(model);
  EXPECT_EQ(parameterNames(imported), Names{"ones"});
  EXPECT_TRUE(imported.module->parameters[0].tiedNote);
  EXPECT_TRUE(imported.report.repairs.empty());
}

TEST(Names, OfUntiedParametersComeFromScopes) {
  onnx::ModelProto model = modelFromText(kTwoNorms);
  model.mutable_graph()->mutable_initializer(0)->set_name("h.1.ln.weight");
  for (int node : {0, 1}) {
    model.mutable_graph()->mutable_node(node)->set_input(1, "h.1.ln.weight");
    setScopes(model, node, node == 0 ? "h.0.ln" : "h.1.ln");
  }
  Imported imported = import(model);
  EXPECT_EQ(parameterNames(imported), (Names{"h.0.ln.weight", "h.1.ln.weight"}));
}

TEST(Names, ThatWereLostComeFromTheReader) {
  onnx::ModelProto model = modelFromText(R"(
    g (float[B, 2] x) => (float[B, 2] y)
    <float[2, 2] W = {1, 2, 3, 4}>
    { y = MatMul (x, W) })");
  model.mutable_graph()->mutable_initializer(0)->set_name("onnx::MatMul_12");
  model.mutable_graph()->mutable_node(0)->set_input(1, "onnx::MatMul_12");
  model.mutable_graph()->mutable_node(0)->set_name("/model/layers.0/q_proj/MatMul");
  Imported imported = import(model);
  EXPECT_EQ(parameterNames(imported), Names{"model.layers.0.q_proj.weight"});
  EXPECT_EQ(imported.module->parameters[0].source.initializer, "onnx::MatMul_12");
  EXPECT_EQ(imported.report.repairs,
            Names{"named \"onnx::MatMul_12\" \"model.layers.0.q_proj.weight\", after the module that reads it"});
}

TEST(Names, OfPartsOfACalledContainerDoNotRepeatIt) {
  onnx::ModelProto model = modelFromText(kTwoNorms);
  model.mutable_graph()->mutable_node(0)->set_name("/net/net.0/net.0.1/LayerNormalization");
  model.mutable_graph()->mutable_node(1)->set_name("/net/net.10/norm/LayerNormalization");
  EXPECT_EQ(parameterNames(import(model)), (Names{"net.0.1.weight", "net.10.norm.weight"}));
}

TEST(Names, ThatAreTakenAreNotGivenAgain) {
  onnx::ModelProto model = modelFromText(R"(
    g (float[B, 2] x) => (float[B, 2] y)
    <float[2, 2] V = {1, 2, 3, 4}, float[2, 2] W = {1, 2, 3, 5}>
    {
      a = MatMul (x, V)
      y = MatMul (a, W)
    })");
  model.mutable_graph()->mutable_initializer(0)->set_name("q.weight");
  model.mutable_graph()->mutable_initializer(1)->set_name("val_7");
  for (int node : {0, 1}) {
    model.mutable_graph()->mutable_node(node)->set_input(1, node == 0 ? "q.weight" : "val_7");
    setScopes(model, node, "q");
  }
  EXPECT_EQ(parameterNames(import(model)), (Names{"q.weight", "val_7"}));
}

TEST(Tags, DecideWhatIsAParameter) {
  onnx::ModelProto model = modelFromText(R"(
    g (float[B, 2] x) => (float[B, 2] y)
    <float[2, 2] w = {1, 2, 3, 4}, float[2, 2] rotation = {1, 2, 3, 5}, float[1, 2] shift = {1, 2}, float[2] folded = {3, 4}>
    {
      a = MatMul (x, w)
      b = MatMul (a, rotation)
      c = Add (b, shift)
      y = Add (c, folded)
    })");
  auto tag = [&](const std::string &name, const std::string &kind) {
    onnx::ValueInfoProto &info = *model.mutable_graph()->add_value_info();
    info.set_name(name);
    addMetadata(info, kValueInfoMetadata, "pkg.torch.export.graph_signature.InputSpec.kind", kind);
  };
  EXPECT_EQ(parameterNames(import(model)), (Names{"w", "rotation", "shift", "folded"}));
  tag("w", "PARAMETER");
  tag("rotation", "BUFFER");
  tag("shift", "CONSTANT_TENSOR");
  Imported imported = import(model);
  EXPECT_EQ(parameterNames(imported), Names{"w"}); // `folded` is what the exporter's folding left over
  EXPECT_EQ(imported.report.parameters[0].reason, "tagged by the exporter");
}

TEST(Float16, ParametersAreF32BehindACast) {
  onnx::ModelProto model = modelFromText("g (float16[B, 2] x) => (float16[B, 2] y) { t = Transpose (w)  y = MatMul (x, t) }");
  onnx::TensorProto &weight = *model.mutable_graph()->add_initializer();
  weight.set_name("w");
  weight.set_data_type(onnx::TensorProto::FLOAT16);
  for (int i : {0, 1})
    weight.add_dims(2 + 0 * i);
  for (int bits : {0x3c00, 0x4000, 0x4200, 0x4400})
    weight.add_int32_data(bits);
  ImportOptions options;
  options.microBatch = 3;
  EXPECT_EQ(print(*import(model, options).module), R"(module @g {
  fact model.nodes=2
  input @x : f16[3,2] role=data
  param @w : f32[2,2] = initializer("w") group=decay
  segment @forward {
    %0 : f16[2,2] = cast @w {to="f16"} loc("w")
    %1 : f16[3,2] = matmul @x, %0 {trans_b=1} loc("MatMul:y")
    yield y=%1
  }
}
)");
}

TEST(Functions, TakeDefaultsOfTheirAttributes) {
  onnx::ModelProto model = modelFromText("g (float[B, 2] x) => (float[B, 2] y, float[B, 2] z) { y = Neg (x)  z = Neg (y) }");
  onnx::OperatorSetIdProto &import_ = *model.add_opset_import();
  import_.set_domain("local");
  import_.set_version(1);
  onnx::FunctionProto &function = *model.add_functions();
  function.set_name("leaky");
  function.set_domain("local");
  function.add_input("v");
  function.add_output("w");
  *function.add_opset_import() = model.opset_import(0);
  onnx::NodeProto &inner = *function.add_node();
  inner.set_op_type("LeakyRelu");
  inner.set_name("body");
  inner.add_input("v");
  inner.add_output("w");
  onnx::AttributeProto &reference = *inner.add_attribute();
  reference.set_name("alpha");
  reference.set_type(onnx::AttributeProto::FLOAT);
  reference.set_ref_attr_name("slope");
  onnx::AttributeProto slope;
  slope.set_name("slope");
  slope.set_type(onnx::AttributeProto::FLOAT);
  slope.set_f(0.25f);
  function.GetReflection()->MutableUnknownFields(&function)->AddLengthDelimited(kFunctionAttributes,
                                                                               slope.SerializeAsString());
  for (int i : {0, 1}) {
    onnx::NodeProto &call = *model.mutable_graph()->mutable_node(i);
    call.set_op_type("leaky");
    call.set_domain("local");
    call.set_name("call" + std::to_string(i));
  }
  slope.set_f(0.5f);
  *model.mutable_graph()->mutable_node(1)->add_attribute() = slope;
  std::string text = print(*import(model).module);
  EXPECT_NE(text.find("broadcast @f32:0.25 {shape=[1,2]} loc(\"call0/body\")"), std::string::npos) << text;
  EXPECT_NE(text.find("broadcast @f32:0.5 {shape=[1,2]} loc(\"call1/body\")"), std::string::npos) << text;
}

TEST(Inputs, OfOldFilesMayListInitializers) {
  onnx::ModelProto model = modelFromText(R"(
    g (float[B, 2] x, float[2, 2] w) => (float[B, 2] y)
    { y = MatMul (x, w) })");
  onnx::TensorProto &weight = *model.mutable_graph()->add_initializer();
  weight.set_name("w");
  weight.set_data_type(onnx::TensorProto::FLOAT);
  weight.add_dims(2);
  weight.add_dims(2);
  for (int i = 0; i < 4; ++i)
    weight.add_float_data(1.5f);
  Imported imported = import(model);
  EXPECT_EQ(parameterNames(imported), Names{"w"});
  EXPECT_EQ(imported.module->inputs.size(), 1u);
}

TEST(Inputs, EvaluateDimExpressions) {
  onnx::ModelProto model = modelFromText("g (float[B, P] a, float[B, T] b) => (float[B, T] y) { y = Neg (b) }");
  model.mutable_graph()->mutable_input(1)->mutable_type()->mutable_tensor_type()->mutable_shape()->mutable_dim(1)
      ->set_dim_param("P + sequence");
  ImportOptions options;
  options.dims = {{"P", 0}, {"sequence", 5}};
  Imported imported = import(model, options);
  EXPECT_EQ(print(imported.module->inputs[0].value->type), "f32[1,5]");
  EXPECT_EQ(imported.report.dims.at("P + sequence"), Names{"b[1]"});
}

TEST(Report, NotesANewerIrVersion) {
  onnx::ModelProto model = modelFromText("g (float[B, 2] x) => (float[B, 2] y) { y = Neg (x) }");
  model.set_ir_version(15);
  EXPECT_EQ(import(model).report.notes, Names{"IR version 15 is newer than the newest known one, 14"});
}

TEST(Report, CountsFieldsThatOnnxDoesNotHave) {
  onnx::ModelProto model = modelFromText("g (float[B, 2] x) => (float[B, 2] y) { y = Neg (x) }");
  google::protobuf::UnknownFieldSet &unknown = *model.GetReflection()->MutableUnknownFields(&model);
  unknown.AddLengthDelimited(26, "");  // configurations of devices, which newer versions have
  EXPECT_EQ(import(model).report.notes, Names{});
  unknown.AddVarint(900, 7);           // a tag of 2 bytes and 1 byte
  unknown.AddLengthDelimited(30, "junk"); // a tag of 2 bytes, a length of 1 and 4 bytes
  unknown.AddVarint(900, 8);
  EXPECT_EQ(import(model).report.notes, Names{"3 fields of the file that ONNX does not have are not read: "
                                              "numbers 30, 900; 13 bytes"});
}

TEST(Report, SaysThatQuantizedWeightsKeepTheirValues) {
  onnx::ModelProto model = modelFromText("g (float[B, 2] x) => (float[B, 2] y)\n"
                                         "<float[2, 2] w = {0.1, 0.7, -0.3, 0.2}, float s = {0.25}>\n"
                                         "{ q = QuantizeLinear (w, s) d = DequantizeLinear (q, s) y = MatMul (x, d) }");
  Imported imported = import(model);
  EXPECT_TRUE(imported.report.parameters.empty());
  EXPECT_EQ(imported.report.advice,
            Names{"\"w\" (f32[2,2], read at QuantizeLinear:q:0) is quantized by the model, which no gradient passes: it "
                  "keeps its value; export the model before quantization to train it"});
}

TEST(Ops, AreListedOnceEachInOrder) {
  std::vector<ImportOp> ops = importedOps();
  EXPECT_GT(ops.size(), 90u);
  for (size_t i = 1; i < ops.size(); ++i)
    EXPECT_LT(std::tie(ops[i - 1].domain, ops[i - 1].name), std::tie(ops[i].domain, ops[i].name));
}

} // namespace
} // namespace zerocc
