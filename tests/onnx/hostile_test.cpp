// Files made to harm: the classes of ONNX's published advisories and of its crash reports, and small files
// that ask for much. All are refused (or imported, where they are legal) in seconds and with little memory.

#include "compiler/onnx/importer.h"
#include "compiler/onnx/structure.h"
#include "compiler/support/escape_json.h"
#include "tests/onnx/build_model.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/SHA1.h"

namespace zerocc {
namespace {

namespace fs = std::filesystem;

std::string refusalOf(const onnx::ModelProto &model, const ImportOptions &options = {}) {
  ScratchFolder folder;
  const std::string path = folder.write(model);
  auto module = importOnnx(path, options);
  return module ? "imported" : module.error().findings().front().message.substr(path.size() + 2);
}

std::string refusalOf(const std::string &graph, int opset = 17) {
  return refusalOf(modelFromText(graph, opset));
}

// --- crash reports: each of these ended a program that called ONNX's own shape inference
// ---------------------------

TEST(Crash, RanksOfOperands) {
  EXPECT_EQ(
      refusalOf("g (float[1,1,4,4] x, float[1,1,2,2,2] w) => (float[a,b,c,d] y) { y = Conv (x, w) }"),
      "node of \"y\" (Conv): x and w need equal rank of at least 3: x is f32[1,1,4,4], w is f32[1,1,2,2,2]");
  EXPECT_NE(refusalOf("g (float[2,2] x, float b) => (float[a,c] y) { y = Gemm (x, b, b) }", 6), "imported");
  EXPECT_NE(refusalOf("g (float[2] x) => (float[a] y) { y = MaxPool <kernel_shape = [2, 2]> (x) }"),
            "imported");
  EXPECT_NE(refusalOf("g (float[2] x) => (float[a] y) { y = GlobalAveragePool (x) }"), "imported");
  for (const char *op : {"LSTM", "GRU", "RNN"})
    EXPECT_NE(refusalOf(std::string("g (float[2] x, float[2] w, float[2] r) => (float[a] y) { y = ") + op +
                        " <hidden_size = 2> (x, w, r) }"),
              "imported");
}

TEST(Crash, NumbersOfOperands) {
  const std::string weight = "<float[2, 1] w = {1, 2}>";
  EXPECT_EQ(refusalOf("g (float[2, 2] x) => (float[a, b] y) " + weight + " { y = MatMul (x, x, x, w) }"),
            "node of \"y\" (MatMul): has an operand 2, which the op does not have in opset 17");
  EXPECT_EQ(refusalOf("g (float[2, 2] x) => (float[a, b] y) { y = Relu <alpha = 0.5> (x) }"),
            "node of \"y\" (Relu): has an attribute \"alpha\", which the op does not have in opset 17");
  const std::string bodies = "<then_branch = a () => (float[2] t) { t = Neg (x) }, else_branch = b () => (float[2] e) { e = Abs (x) }";
  EXPECT_EQ(refusalOf("g (float[2] x) => (float[2] y) <bool c = {1}> { y = If (c, x) " + bodies + "> }"),
            "node of \"y\" (If): has an operand 1, which the op does not have in opset 17");
  EXPECT_EQ(refusalOf("g (float[2] x) => (float[2] y) <bool c = {1}> { y = If (c) " + bodies + ", axis = 1> }"),
            "node of \"y\" (If): has an attribute \"axis\", which the op does not have in opset 17");
  EXPECT_EQ(refusalOf("g (float[2, 2] x) => (float[a, b] y) { y = Gelu <scale = 0.5> (x) }", 20),
            "node of \"y\" (Gelu): has an attribute \"scale\", which the op does not have in opset 20");
  EXPECT_NE(refusalOf("g (float[2, 2] x) => (float[a, b] y) " + weight + " { y = MatMul (w) }"), "imported");
  // attributes without effect here, of opsets that the installed schemas may not have
  EXPECT_EQ(refusalOf("g (float[2, 2] x) => (float[a, b] y) { y = Cast <to = 1, saturate = 0> (x) }", 19), "imported");
  EXPECT_EQ(refusalOf("g (float[2, 2] x) => (float[a, b] y) { y = Cast <to = 1, saturate = 0> (x) }", 18),
            "node of \"y\" (Cast): has an attribute \"saturate\", which the op does not have in opset 18");
  EXPECT_EQ(refusalOf("g (float[2, 2] x) => (float[a, b] y) <float[2] s = {1, 2}> "
                      "{ y = RMSNormalization <stash_type = 1> (x, s) }",
                      23),
            "imported");
}

TEST(Crash, PayloadsSmallerThanTheirDims) {
  onnx::ModelProto model = modelFromText("g (float[B, 4] x) => (float[B, 4] y) { y = Reshape (x, s) }");
  addTensor(model, "s", onnx::TensorProto::INT64, {1000}, "abcd");
  EXPECT_EQ(refusalOf(model), "initializer \"s\": raw data of 4 bytes for i64[1000], which takes 8000");
  model = modelFromText("g (float[B, 4] x) => (float[B, 4] y) { y = Add (x, w) }");
  addTensor(model, "w", onnx::TensorProto::FLOAT, {-1, int64_t(1) << 62, 8}, "abcd");
  EXPECT_EQ(refusalOf(model), "initializer \"w\": negative dimension -1");
  model.mutable_graph()->mutable_initializer(0)->set_dims(0, 16);
  EXPECT_EQ(refusalOf(model), "initializer \"w\": its dimensions multiply to more than 2^63 bytes");
}

// --- advisories
// ------------------------------------------------------------------------------------------------------

constexpr const char *kAdd = "g (float[B, 2] x) => (float[B, 2] y) { a = Add (x, w) y = Add (a, v) }";

onnx::ModelProto externalModel(const std::vector<std::map<std::string, std::string>> &entriesOf) {
  onnx::ModelProto model = modelFromText(kAdd);
  for (size_t i = 0; i < entriesOf.size(); ++i) {
    onnx::TensorProto &tensor = addTensor(model, i == 0 ? "w" : "v", onnx::TensorProto::FLOAT, {2}, "");
    tensor.clear_raw_data();
    tensor.set_data_location(onnx::TensorProto::EXTERNAL);
    for (const auto &[key, value] : entriesOf[i]) {
      onnx::StringStringEntryProto &entry = *tensor.add_external_data();
      entry.set_key(key);
      entry.set_value(value);
    }
  }
  return model;
}

struct Imported {
  std::string text; // "imported", or the first finding
  std::vector<std::string> notes;
};
Imported importExternal(const ScratchFolder &folder,
                        const std::vector<std::map<std::string, std::string>> &entries,
                        bool followLinks = false) {
  ImportOptions options;
  options.followLinks = followLinks;
  ImportReport report;
  const std::string path = folder.write("model/model.onnx", externalModel(entries).SerializeAsString());
  auto module = importOnnx(path, options, &report);
  return {module ? "imported" : module.error().findings().front().message.substr(path.size() + 2),
          report.notes};
}

TEST(Advisory, LinksAreFollowedOnlyWhenAllowed) {
  ScratchFolder folder;
  fs::create_directories(folder.path / "model");
  fs::create_directories(folder.path / "cache");
  folder.write("cache/blob", std::string(16, 'x'));
  folder.write("model/own.bin", std::string(16, 'x'));
  fs::create_symlink("../cache/blob", folder.path / "model/soft.bin");
  fs::create_symlink("../cache", folder.path / "model/folder");
  fs::create_hard_link(folder.path / "cache/blob", folder.path / "model/hard.bin");
  auto at = [&](const char *location, bool follow) {
    return importExternal(folder, {{{"location", location}}, {{"location", "own.bin"}, {"offset", "8"}}},
                          follow)
        .text;
  };
  EXPECT_EQ(at("own.bin", false), "imported");
  EXPECT_EQ(at("soft.bin", false), "initializer \"w\": external data \"soft.bin\" cannot be opened: it is, "
                                   "or lies behind, a symbolic link");
  EXPECT_EQ(at("folder/blob", false), "initializer \"w\": external data \"folder/blob\" cannot be opened: it "
                                      "is, or lies behind, a symbolic link");
  EXPECT_EQ(at("hard.bin", false),
            "initializer \"w\": external data \"hard.bin\" has 2 names (hard links), so it may be "
            "a file from elsewhere");
  for (const char *location : {"own.bin", "soft.bin", "folder/blob", "hard.bin"})
    EXPECT_EQ(at(location, true), "imported") << location;
  EXPECT_EQ(
      at("../cache/blob", true),
      "initializer \"w\": location \"../cache/blob\" is not allowed: it leads out of the model's folder");
}

TEST(Advisory, ChecksumsAreCompared) {
  ScratchFolder folder;
  fs::create_directories(folder.path / "model");
  const std::string bytes(16, 'x');
  folder.write("model/w.bin", bytes);
  llvm::SHA1 hash;
  hash.update(bytes);
  const std::string right = llvm::toHex(hash.final(), true);
  auto with = [&](const std::string &checksum) {
    return importExternal(folder, {{{"location", "w.bin"}, {"checksum", checksum}},
                                   {{"location", "w.bin"}, {"offset", "8"}, {"checksum", right}}})
        .text;
  };
  EXPECT_EQ(with(right), "imported");
  EXPECT_EQ(with(llvm::StringRef(right).upper()), "imported");
  EXPECT_EQ(with(std::string(40, '0')), "initializer \"w\": external data \"w.bin\" has checksum " + right +
                                            ", the model says " + std::string(40, '0'));
  EXPECT_EQ(with("abc"), "initializer \"w\": external data: checksum \"abc\" is not a SHA-1 in hexadecimal");
}

TEST(Advisory, SharedBytesAreNoted) {
  ScratchFolder folder;
  fs::create_directories(folder.path / "model");
  folder.write("model/w.bin", std::string(8, 'x') + std::string(8, 'y'));
  auto notes = [&](const char *offset) {
    return importExternal(folder, {{{"location", "w.bin"}}, {{"location", "w.bin"}, {"offset", offset}}})
        .notes;
  };
  EXPECT_EQ(notes("8"), std::vector<std::string>{});
  EXPECT_EQ(notes("4"),
            std::vector<std::string>{"\"w\" and \"v\" share bytes of \"w.bin\": each starts from them and is "
                                     "trained by itself, unless tied"});
}

TEST(Advisory, FunctionsThatCallThemselves) {
  onnx::ModelProto model = modelCalling("f");
  onnx::FunctionProto &function = *model.add_functions() = functionOf("f");
  addNode(function, "f", "v", "r");
  EXPECT_EQ(refusalOf(model), "function \"local::f\" calls itself, directly or through others");

  model.clear_functions();
  onnx::FunctionProto &through = *model.add_functions() = functionOf("f");
  onnx::NodeProto &node = addNode(through, "If", "v", "r");
  for (const char *branch : {"then_branch", "else_branch"}) {
    onnx::AttributeProto &attribute = *node.add_attribute();
    attribute.set_name(branch);
    attribute.set_type(onnx::AttributeProto::GRAPH);
    onnx::NodeProto &call = *attribute.mutable_g()->add_node();
    call.set_op_type("f");
    call.set_domain("local");
    call.add_input("v");
    call.add_output(branch);
    attribute.mutable_g()->add_output()->set_name(branch);
  }
  EXPECT_EQ(refusalOf(model), "function \"local::f\" calls itself, directly or through others");
}

/// f0 is empty or one node; every other one calls the one before twice.
onnx::ModelProto doubling(int count, bool isEmpty) {
  onnx::ModelProto model = modelCalling("f" + std::to_string(count - 1));
  for (int i = 0; i < count; ++i) {
    onnx::FunctionProto &function = *model.add_functions() = functionOf("f" + std::to_string(i));
    if (i == 0 && isEmpty)
      function.set_output(0, "v");
    else if (i == 0)
      addNode(function, "Neg", "v", "r");
    for (int call = 0; i > 0 && call < 2; ++call)
      addNode(function, "f" + std::to_string(i - 1), call ? "t" : "v", call ? "r" : "t");
  }
  return model;
}

TEST(Advisory, FunctionsThatDouble) {
  const std::string tooMany =
      "inlining the model's functions makes more than " + std::to_string(kMaxInlined) + " nodes";
  for (bool isEmpty : {false, true}) { // a call counts also when there is nothing in it
    EXPECT_EQ(refusalOf(doubling(60, isEmpty)), tooMany);
    EXPECT_EQ(refusalOf(doubling(17, isEmpty)), "imported");
    EXPECT_EQ(refusalOf(doubling(18, isEmpty)), tooMany);
  }
}

TEST(Advisory, FunctionsThatMakeLongNames) {
  onnx::ModelProto model = doubling(15, false);
  const std::string name(20000, 'n');
  onnx::FunctionProto &function = *model.mutable_functions(0);
  function.mutable_node(0)->set_output(0, name);
  addNode(function, "Neg", name, "r");
  EXPECT_EQ(refusalOf(model), "inlining the model's functions makes names of more than " +
                                  std::to_string(kMaxFlatNameBytes) + " bytes");
}

TEST(Text, ThatIsNotUtf8IsRefused) {
  const std::string latin1 = "gr\xf6\xdf" "e";
  onnx::ModelProto model = modelFromText("g (float[B, 2] x) => (float[B, 2] y) { y = Neg (x) }");
  model.mutable_graph()->mutable_node(0)->set_doc_string(latin1); // never read
  EXPECT_EQ(refusalOf(model), "imported");
  auto with = [&](auto change) {
    onnx::ModelProto changed = model;
    change(*changed.mutable_graph());
    return refusalOf(changed);
  };
  EXPECT_EQ(with([&](onnx::GraphProto &graph) { graph.mutable_node(0)->set_name(latin1); }),
            "NodeProto.name \"" + latin1 + "\" is not UTF-8");
  EXPECT_EQ(with([&](onnx::GraphProto &graph) { graph.set_name(latin1); }),
            "GraphProto.name \"" + latin1 + "\" is not UTF-8");
  EXPECT_EQ(with([&](onnx::GraphProto &graph) {
              graph.mutable_input(0)->mutable_type()->mutable_tensor_type()->mutable_shape()->mutable_dim(0)->set_dim_param(
                  latin1);
            }),
            "Dimension.dim_param \"" + latin1 + "\" is not UTF-8");
}

TEST(Text, IsEscapedInJson) {
  EXPECT_EQ(escapeInJson("{\"a\": \"naïve 😀\"}\n"), "{\"a\": \"naïve 😀\"}\n");
  EXPECT_EQ(escapeInJson("\"\x7f\xc2\x9b\xe2\x80\xae\""), "\"\\u007f\\u009b\\u202e\"");
}

TEST(Lists, AreNoInputs) {
  onnx::ModelProto model = modelFromText("g (float[B, 2] x) => (float[B, 2] y) { y = Neg (x) }");
  onnx::TypeProto &type = *model.mutable_graph()->mutable_input(0)->mutable_type();
  const onnx::TypeProto tensor = type;
  *type.mutable_sequence_type()->mutable_elem_type() = tensor;
  EXPECT_EQ(refusalOf(model), "input \"x\" is a list of tensors");
  *type.mutable_optional_type()->mutable_elem_type() = tensor;
  EXPECT_EQ(refusalOf(model), "input \"x\" is an optional value");
}

/// What ONNX's textual form cannot say: operands in front that are left out.
TEST(Loops, WithoutCountOrCondition) {
  onnx::ModelProto model =
      modelFromText("g (float[B, 2] x) => (float[B, 2] y)\n<int64 n = {2}, bool yes = {1}, int64 one = {1}>\n"
                    "{ y = Loop (n, yes, x) <body = b (int64 i, bool c, float[B, 2] v) => (bool d, float[B, 2] w) "
                    "{ d = Less (i, one) w = Neg (v) }> }");
  onnx::NodeProto &loop = *model.mutable_graph()->mutable_node(0);
  EXPECT_EQ(refusalOf(model), "imported");
  loop.set_input(0, "");
  EXPECT_EQ(refusalOf(model), "imported"); // ends by its condition
  loop.set_input(1, "");
  EXPECT_EQ(refusalOf(model), "node of \"y\" (Loop): never ends: it has neither a trip count nor a condition");
  loop.set_input(0, "n");
  EXPECT_EQ(refusalOf(model), "imported");
  loop.set_input(2, "");
  EXPECT_EQ(refusalOf(model), "node of \"y\" (Loop): operand 2 is missing");
  loop.mutable_input()->RemoveLast();
  loop.mutable_input()->RemoveLast();
  loop.mutable_input()->RemoveLast();
  EXPECT_EQ(refusalOf(model), "node of \"y\" (Loop): its body has 3 inputs and 2 outputs, which do not fit 2 values and "
                              "1 results");
  loop.clear_attribute();
  EXPECT_EQ(refusalOf(model), "node of \"y\" (Loop): attribute \"body\" is missing");
}

TEST(Text, IsEscaped) {
  EXPECT_EQ(escapeForTerminal("plain, naïve, 権重, 😀\n\ttab"), "plain, naïve, 権重, 😀\n\ttab");
  EXPECT_EQ(escapeForTerminal("\x1b[2J\x07\r\x7f"), "\\x1b[2J\\x07\\x0d\\x7f");
  EXPECT_EQ(escapeForTerminal("\xc2\x9b"), "\\xc2\\x9b"); // CSI in one character
  EXPECT_EQ(escapeForTerminal("a\xe2\x80\xae"
                              "b"),
            "a\\xe2\\x80\\xae"
            "b"); // right-to-left override
  EXPECT_EQ(escapeForTerminal("\xff\xc0\xaf\xe2\x82"), "\\xff\\xc0\\xaf\\xe2\\x82");
  EXPECT_EQ(escapeForTerminal("\xed\xa0\x80"), "\\xed\\xa0\\x80"); // half of a surrogate pair
  EXPECT_EQ(escapeForTerminal(std::string("\0", 1)), "\\x00");
}

} // namespace
} // namespace zerocc
