// Files that lie: truncated, damaged, too deep, too many, pointing elsewhere. None may crash, hang or be believed.

#include "compiler/onnx/dims.h"
#include "compiler/onnx/importer.h"
#include "compiler/onnx/wire_scan.h"
#include "tests/onnx/build_model.h"

#include <random>
#include <sys/stat.h>

namespace zerocc {
namespace {

namespace fs = std::filesystem;

const char *const kLinear = R"(
g (float[B, 4] x) => (float[B, 2] y)
<float[4, 2] w = {1, 2, 3, 4, 5, 6, 7, 8}, float[2] b = {1, 2}>
{
  p = MatMul (x, w)
  y = Add (p, b)
})";

std::string errorOf(const std::string &path) {
  auto module = importOnnx(path, {});
  if (module)
    return "imported";
  // Scratch folders have other names every time.
  std::string text = module.error().text(), folder = path + ": ";
  for (size_t at; (at = text.find(folder)) != std::string::npos;)
    text.erase(at, folder.size());
  return text;
}

/// The weight of the linear model as external data, with the given entries.
onnx::ModelProto externalModel(const std::map<std::string, std::string> &entries) {
  onnx::ModelProto model = modelFromText(kLinear);
  onnx::TensorProto &weight = *model.mutable_graph()->mutable_initializer(0);
  weight.clear_float_data();
  weight.set_data_location(onnx::TensorProto::EXTERNAL);
  for (const auto &[key, value] : entries) {
    onnx::StringStringEntryProto &entry = *weight.add_external_data();
    entry.set_key(key);
    entry.set_value(value);
  }
  return model;
}

std::string floatBytes(int count) {
  std::string bytes;
  for (int i = 0; i < count; ++i) {
    float value = static_cast<float>(i);
    bytes.append(reinterpret_cast<const char *>(&value), 4);
  }
  return bytes;
}

TEST(Loader, ReadsRawAndTypedWeights) {
  ScratchFolder folder;
  onnx::ModelProto model = modelFromText(kLinear);
  onnx::TensorProto &weight = *model.mutable_graph()->mutable_initializer(0);
  weight.clear_float_data();
  weight.set_raw_data(floatBytes(8));
  std::string path = folder.write(model);
  EXPECT_EQ(errorOf(path), "imported");
  auto weights = StoredWeights::open(path);
  ASSERT_TRUE(weights);
  EXPECT_EQ((*weights)->read("w")->bytes, floatBytes(8));
  EXPECT_EQ((*weights)->read("b")->bytes.size(), 8u);
  EXPECT_FALSE((*weights)->read("nothing"));
}

TEST(Loader, LeavesBigWeightsInTheFile) {
  ScratchFolder folder;
  onnx::ModelProto model = modelFromText("g (float[B, 64] x) => (float[B, 64] y) { y = MatMul (x, w) }");
  onnx::TensorProto &weight = *model.mutable_graph()->add_initializer();
  weight.set_name("w");
  weight.set_data_type(onnx::TensorProto::FLOAT);
  weight.add_dims(64);
  weight.add_dims(64);
  weight.set_raw_data(floatBytes(64 * 64));
  std::string bytes = model.SerializeAsString();
  auto reduced = scanModel(bytes);
  ASSERT_TRUE(reduced);
  ASSERT_EQ(reduced->payloads.size(), 1u);
  EXPECT_LT(reduced->bytes.size(), 300u);
  EXPECT_EQ(bytes.substr(reduced->payloads[0].offset, reduced->payloads[0].length), weight.raw_data());
  std::string path = folder.write(model);
  auto weights = StoredWeights::open(path);
  ASSERT_TRUE(weights);
  EXPECT_EQ((*weights)->read("w")->bytes, floatBytes(64 * 64));
}

TEST(Loader, DoesNotBelieveAMarkOfItsOwnInAFile) {
  ScratchFolder folder;
  onnx::ModelProto model = modelFromText(kLinear);
  onnx::TensorProto &weight = *model.mutable_graph()->mutable_initializer(0);
  weight.clear_float_data();
  weight.GetReflection()->MutableUnknownFields(&weight)->AddVarint(kPayloadField, 0);
  EXPECT_EQ(errorOf(folder.write(model)), "error: initializer \"w\": 0 stored elements for f32[4,2], which has 8\n");
}

TEST(Loader, SurvivesTruncation) {
  ScratchFolder folder;
  std::string bytes = modelFromText(kLinear).SerializeAsString();
  for (size_t length = 0; length < bytes.size(); ++length)
    EXPECT_NE(errorOf(folder.write("model.onnx", bytes.substr(0, length))), "imported") << length;
}

TEST(Loader, SurvivesDamage) {
  ScratchFolder folder;
  std::string bytes = modelFromText(kLinear).SerializeAsString();
  std::mt19937 random(1);
  for (int round = 0; round < 500; ++round) {
    std::string damaged = bytes;
    for (int i = 0; i < 1 + round % 4; ++i)
      damaged[random() % damaged.size()] = static_cast<char>(random());
    errorOf(folder.write("model.onnx", damaged));
  }
}

TEST(Loader, RefusesWhatIsNoModel) {
  ScratchFolder folder;
  EXPECT_EQ(errorOf(folder.write("model.onnx", "")),
            "error: IR version 0 is older than the oldest known one, 3\n"
            "  hint: is this an ONNX model? If so, export it again\n"
            "error: the model imports no opset\n"
            "error: the model has no graph\n");
  EXPECT_EQ(errorOf(folder.write("model.onnx", "This is not a model, it only looks like one.")),
            "error: not a valid ONNX file: wire type 4 at byte 1\n"
            "  hint: the file is damaged or not ONNX; export it again\n");
  EXPECT_EQ(errorOf(folder.path / "nothing.onnx"), "error: cannot be opened: No such file or directory\n");
  EXPECT_EQ(errorOf(folder.path), "error: is not a regular file\n");
  EXPECT_EQ(errorOf("/dev/zero"), "error: is not a regular file\n");
}

TEST(Loader, RefusesDeepNesting) {
  ScratchFolder folder;
  onnx::GraphProto inner;
  inner.set_name("inner");
  for (int i = 0; i < 40; ++i) {
    onnx::GraphProto outer;
    onnx::NodeProto &node = *outer.add_node();
    node.set_op_type("If");
    onnx::AttributeProto &attribute = *node.add_attribute();
    attribute.set_name("then_branch");
    attribute.set_type(onnx::AttributeProto::GRAPH);
    *attribute.mutable_g() = inner;
    inner = outer;
  }
  onnx::ModelProto model = modelFromText(kLinear);
  *model.mutable_graph() = inner;
  std::string text = errorOf(folder.write(model));
  EXPECT_EQ(text.substr(0, 66), "error: not a valid ONNX file: messages are nested deeper than 100 ");
}

TEST(Loader, RefusesDeepText) {
  std::string text = "g (float[B] x) => (float[B] y) ";
  for (int i = 0; i < 100000; ++i)
    text += "{ y = If (x) < a = b () => (float c) ";
  auto module = importOnnxText(text, {});
  ASSERT_FALSE(module);
  EXPECT_EQ(module.error().text(), "error: brackets are nested deeper than 64\n");
}

onnx::FunctionProto functionCalling(int number, int callee, int times) {
  onnx::FunctionProto function;
  function.set_name("f" + std::to_string(number));
  function.set_domain("local");
  function.add_input("v");
  function.add_output("r");
  for (const char *domain : {"", "local"}) {
    onnx::OperatorSetIdProto &import = *function.add_opset_import();
    import.set_domain(domain);
    import.set_version(domain[0] ? 1 : 17);
  }
  for (int i = 0; i < times; ++i) {
    onnx::NodeProto &node = *function.add_node();
    node.set_op_type(callee < 0 ? "Neg" : "f" + std::to_string(callee));
    node.set_domain(callee < 0 ? "" : "local");
    node.add_input(i == 0 ? "v" : "t" + std::to_string(i - 1));
    node.add_output(i + 1 == times ? "r" : "t" + std::to_string(i));
  }
  return function;
}

onnx::ModelProto modelOfFunctions(int count, int calls) {
  onnx::ModelProto model = modelFromText("g (float[B] x) => (float[B] y) { y = Relu (x) }");
  onnx::OperatorSetIdProto &import = *model.add_opset_import();
  import.set_domain("local");
  import.set_version(1);
  for (int i = 0; i < count; ++i)
    *model.add_functions() = functionCalling(i, i - 1, i == 0 ? 1 : calls);
  model.mutable_graph()->mutable_node(0)->set_domain("local");
  model.mutable_graph()->mutable_node(0)->set_op_type("f" + std::to_string(count - 1));
  return model;
}

TEST(Loader, RefusesFunctionsThatExplode) {
  ScratchFolder folder;
  EXPECT_EQ(errorOf(folder.write(modelOfFunctions(10, 2))), "imported");
  EXPECT_EQ(errorOf(folder.write(modelOfFunctions(60, 2))),
            "error: inlining the model's functions makes more than 200000 nodes\n"
            "  hint: export without functions\n");
  EXPECT_EQ(errorOf(folder.write(modelOfFunctions(100, 1))), "imported");
  EXPECT_EQ(errorOf(folder.write(modelOfFunctions(101, 1))), "error: function calls are nested deeper than 100\n");
}

TEST(Loader, RefusesAttributesThatContradictThemselves) {
  ScratchFolder folder;
  onnx::ModelProto model = modelFromText("g (float[B, 4] x) => (float[B, 4] y) { y = Softmax <axis = 1> (x) }");
  onnx::NodeProto &node = *model.mutable_graph()->mutable_node(0);
  *node.add_attribute() = node.attribute(0);
  node.mutable_attribute(0)->set_type(onnx::AttributeProto::FLOAT);
  node.add_attribute()->set_name("other");
  node.mutable_attribute(2)->set_ref_attr_name("outer");
  EXPECT_EQ(errorOf(folder.write(model)),
            "error: node of \"y\" (Softmax): attribute \"axis\" holds a value of another kind than it says\n"
            "error: node of \"y\" (Softmax): attribute \"axis\" is given twice\n"
            "error: node of \"y\" (Softmax): attribute \"other\" refers to an attribute of a function, but stands outside "
            "of one\n");
}

TEST(Loader, RefusesNodesWithoutOutputs) {
  ScratchFolder folder;
  onnx::ModelProto model = modelFromText("g (float[B, 4] x) => (float[B, 4] y) { n = Neg (x) y = Exp (x) }");
  onnx::NodeProto &node = *model.mutable_graph()->mutable_node(0);
  node.set_name("idle");
  node.clear_output();
  EXPECT_EQ(errorOf(folder.write(model)), "error: node \"idle\" (Neg) has no outputs\n");
}

TEST(Loader, RefusesPayloadsThatDoNotFit) {
  ScratchFolder folder;
  auto with = [&](auto change) {
    onnx::ModelProto model = modelFromText(kLinear);
    change(*model.mutable_graph()->mutable_initializer(0));
    return errorOf(folder.write(model));
  };
  EXPECT_EQ(with([](onnx::TensorProto &w) { w.set_raw_data(floatBytes(8)); }),
            "error: initializer \"w\": it has both raw and typed data\n");
  EXPECT_EQ(with([](onnx::TensorProto &w) {
              w.clear_float_data();
              w.set_raw_data(floatBytes(7));
            }),
            "error: initializer \"w\": raw data of 28 bytes for f32[4,2], which takes 32\n");
  EXPECT_EQ(with([](onnx::TensorProto &w) {
              w.clear_float_data();
              w.set_raw_data(floatBytes(2000));
            }),
            "error: initializer \"w\": raw data of 8000 bytes for f32[4,2], which takes 32\n");
  EXPECT_EQ(with([](onnx::TensorProto &w) { w.set_data_type(onnx::TensorProto::INT64); }),
            "error: initializer \"w\": it has data in a field of another type than int64\n");
  EXPECT_EQ(with([](onnx::TensorProto &w) { w.set_dims(0, -4); }), "error: initializer \"w\": negative dimension -4\n");
  EXPECT_EQ(with([](onnx::TensorProto &w) { w.set_data_type(onnx::TensorProto::STRING); }).substr(0, 73),
            "error: initializer \"w\": tensors of string are not supported\n");
}

TEST(Loader, ReadsExternalDataBelowTheModel) {
  ScratchFolder folder;
  fs::create_directories(folder.path / "weights");
  std::string bytes = floatBytes(12);
  folder.write("weights/w.bin", bytes);
  std::string path = folder.write(externalModel({{"location", "weights/w.bin"}, {"offset", "16"}, {"length", "32"}}));
  EXPECT_EQ(errorOf(path), "imported");
  auto weights = StoredWeights::open(path);
  ASSERT_TRUE(weights);
  EXPECT_EQ((*weights)->read("w")->bytes, bytes.substr(16));
}

TEST(Loader, RefusesExternalDataElsewhere) {
  ScratchFolder folder;
  fs::path inside = folder.path / "model";
  fs::create_directories(inside / "real");
  folder.write("secret", floatBytes(8));
  folder.write("model/real/w.bin", floatBytes(8));
  fs::create_symlink(folder.path / "secret", inside / "link");
  fs::create_symlink("real", inside / "folder");
  ASSERT_EQ(::mkfifo((inside / "pipe").c_str(), 0600), 0);
  auto at = [&](const std::string &location) {
    std::string path = folder.write("model/model.onnx", externalModel({{"location", location}}).SerializeAsString());
    std::string text = errorOf(path);
    return text.substr(0, text.find("\n"));
  };
  EXPECT_EQ(at("real/w.bin"), "imported");
  EXPECT_EQ(at("./real/w.bin"), "imported");
  EXPECT_EQ(at("../secret"), "error: initializer \"w\": location \"../secret\" is not allowed: it leads out of the model's folder");
  EXPECT_EQ(at("real/../../secret"),
            "error: initializer \"w\": location \"real/../../secret\" is not allowed: it leads out of the model's folder");
  EXPECT_EQ(at("/etc/passwd"), "error: initializer \"w\": location \"/etc/passwd\" is not allowed: it is absolute");
  EXPECT_EQ(at("c:w.bin"), "error: initializer \"w\": location \"c:w.bin\" is not allowed: it starts with a drive");
  EXPECT_EQ(at("real\\w.bin"), "error: initializer \"w\": location \"real\\w.bin\" is not allowed: it holds a backslash");
  EXPECT_EQ(at("link"), "error: initializer \"w\": external data \"link\" cannot be opened: it is, or lies behind, a symbolic link");
  EXPECT_EQ(at("folder/w.bin"),
            "error: initializer \"w\": external data \"folder/w.bin\" cannot be opened: it is, or lies behind, a symbolic link");
  EXPECT_EQ(at("pipe"), "error: initializer \"w\": external data \"pipe\" is not a regular file");
  EXPECT_EQ(at("real"), "error: initializer \"w\": external data \"real\" is not a regular file");
  EXPECT_EQ(at("none"), "error: initializer \"w\": external data \"none\" cannot be opened: No such file or directory");
}

TEST(Loader, DoesWithoutTheFilesOfAModelMarkedWeightless) {
  ScratchFolder folder;
  auto with = [&](const std::map<std::string, std::string> &entries, const std::string &mark) {
    onnx::ModelProto model = externalModel(entries);
    onnx::StringStringEntryProto &entry = *model.add_metadata_props();
    entry.set_key("zerocc.weightless");
    entry.set_value(mark);
    return folder.write(model);
  };
  std::string path = with({{"location", "none"}, {"offset", "8589934592"}, {"length", "32"}}, "true");
  ImportReport report;
  ASSERT_TRUE(importOnnx(path, {}, &report));
  EXPECT_EQ(report.notes, std::vector<std::string>{"the model is weightless: nothing was compared to find ties; train it "
                                                   "with zero-run --init"});
  EXPECT_EQ((*StoredWeights::open(path))->read("w").error().text(),
            "error: tensor \"w\" has no values: the model is weightless\n");
  EXPECT_EQ((*StoredWeights::open(path))->read("b")->bytes.size(), 8u);
  EXPECT_EQ(errorOf(with({{"location", "none"}}, "false")),
            "error: initializer \"w\": external data \"none\" cannot be opened: No such file or directory\n");
  EXPECT_EQ(errorOf(with({{"location", "none"}, {"length", "16"}}, "true")),
            "error: initializer \"w\": external data of 16 bytes for f32[4,2], which takes 32\n");
}

TEST(Loader, RefusesExternalRangesOutsideTheFile) {
  ScratchFolder folder;
  folder.write("w.bin", floatBytes(8));
  auto with = [&](std::map<std::string, std::string> entries) {
    entries["location"] = "w.bin";
    return errorOf(folder.write(externalModel(entries)));
  };
  EXPECT_EQ(with({{"offset", "4"}}),
            "error: initializer \"w\": external data [4, +32) lies outside \"w.bin\" of 32 bytes\n");
  EXPECT_EQ(with({{"offset", "9223372036854775807"}}), "error: initializer \"w\": external data [9223372036854775807, +32) "
                                                       "lies outside \"w.bin\" of 32 bytes\n");
  EXPECT_EQ(with({{"offset", "-4"}}), "error: initializer \"w\": external data: offset \"-4\" is not a byte count\n");
  EXPECT_EQ(with({{"offset", "99999999999999999999"}}),
            "error: initializer \"w\": external data: offset \"99999999999999999999\" is not a byte count\n");
  EXPECT_EQ(with({{"length", "16"}}),
            "error: initializer \"w\": external data of 16 bytes for f32[4,2], which takes 32\n");
  EXPECT_EQ(with({{"password", "x"}}), "error: initializer \"w\": external data: unknown key \"password\"\n");
}

TEST(Loader, EscapesNamesInMessages) {
  ScratchFolder folder;
  onnx::ModelProto model = modelFromText("g (float[B, 4] x) => (float[B, 4] y) { y = Unknown (x) }");
  model.mutable_graph()->mutable_node(0)->set_name("\x1b[31mred\n");
  EXPECT_EQ(errorOf(folder.write(model)).substr(0, 55), "error: node \"\\x1b[31mred\\x0a\" (Unknown): op Unknown is ");
}

TEST(Dims, EvaluateExpressions) {
  DimBindings bindings{{"past", 3}, {"s16", 5}, {"whole thing", 7}};
  EXPECT_EQ(*evaluateDim("past + s16", bindings), 8);
  EXPECT_EQ(*evaluateDim("2*(past - 1)//3 + s16 % 2", bindings), 2);
  EXPECT_EQ(*evaluateDim("-past + 4", bindings), 1);
  EXPECT_EQ(*evaluateDim("whole thing", bindings), 7);
  EXPECT_EQ(evaluateDim("past + other", bindings).error().text(),
            "error: dimension \"past + other\": \"other\" is not bound\n");
  EXPECT_EQ(evaluateDim("past // (s16 - 5)", bindings).error().text(),
            "error: dimension \"past // (s16 - 5)\": division by zero\n");
  EXPECT_EQ(evaluateDim("past * 9223372036854775807", bindings).error().text(),
            "error: dimension \"past * 9223372036854775807\" is not bound\n");
  EXPECT_EQ(evaluateDim("not (an", bindings).error().text(), "error: dimension \"not (an\" is not bound\n");
  EXPECT_FALSE(evaluateDim(std::string(1000, '('), bindings));
  EXPECT_EQ(dimNames("past + 2 * s16"), (std::set<std::string>{"past", "s16"}));
  EXPECT_EQ(dimNames("batch size"), (std::set<std::string>{"batch size"}));
}

} // namespace
} // namespace zerocc
