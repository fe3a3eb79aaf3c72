// Bad input through the command line: a clear error (where, what, how to mend it), the right exit code, nothing written.

#include "tests/e2e/cli.h"

#include "llvm/Support/JSON.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <random>

namespace zerocc::e2e {
namespace {

namespace fs = std::filesystem;

class Errors : public testing::Test {
protected:
  std::string folder = scratch("errors");
  std::string plan = folder + "/out.zplan";

  void SetUp() override { fs::remove(plan); }

  void expectRefused(const CliResult &result, int exitCode, const std::vector<std::string> &texts) {
    EXPECT_EQ(result.exitCode, exitCode) << result.out << result.error;
    EXPECT_EQ(result.error.rfind("error: ", 0) != std::string::npos || result.error.find("\nerror: ") != std::string::npos,
              true)
        << result.error;
    for (const std::string &text : texts)
      EXPECT_NE(result.error.find(text), std::string::npos) << "no \"" << text << "\" in\n" << result.error;
    EXPECT_FALSE(fs::exists(plan)) << "a refused command left a plan behind";
    for (const auto &entry : fs::directory_iterator(folder))
      EXPECT_EQ(entry.path().filename().string().find(".tmp"), std::string::npos) << entry.path();
  }

  CliResult compileFile(const std::string &model, const std::vector<std::string> &more = {}) {
    std::vector<std::string> arguments = {"compile", model, "-o", plan, "--ranks", "2", "--stage", "3"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return cli("zerocc", arguments);
  }

  std::string textModel(const std::string &body) {
    std::string path = folder + "/model.onnxtxt";
    writeFile(path, "<ir_version: 8, opset_import: [\"\" : 17]>\n" + body);
    return path;
  }

  std::string goodPlan() {
    std::string path = scratch("good") + "/mlp.zplan";
    compile("mlp", path, {"--ranks", "2", "--stage", "3"});
    return path;
  }
};

TEST_F(Errors, MissingModel) { expectRefused(compileFile(folder + "/none.onnx"), 1, {"none.onnx"}); }

TEST_F(Errors, LoopsThatEndByData) {
  const std::string loop = "{ h = MatMul (x, w) top = ReduceMax <keepdims = 0> (x) goes = Greater (top, zero)\n"
                           "y = Loop (n, goes, h) <body = b (int64 i, bool c, float[B, 4] v) => (bool d, float[B, 4] u) "
                           "{ d = Identity (c) u = Tanh (v) }> }",
                    weights = "<float[4, 4] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7}, float zero = {0}, ";
  for (const char *steps : {"int64 n = {3}>\n", "int64 n = {0}>\n"}) {
    CliResult result = compileFile(
        textModel("g (float[B, 4] x) => (float[B, 4] y)\n" + weights + steps + loop), {"--loss", "mse:y"});
    if (std::string(steps).find("{0}") != std::string::npos) { // not asked whether it goes on
      EXPECT_EQ(result.exitCode, 0) << result.error;
      continue;
    }
    expectRefused(result, 1, {"node of \"y\" (Loop): whether step 0 is made depends on data", "hint: "});
  }
}

TEST_F(Errors, TruncatedModel) {
  std::string bytes = readFile(modelPath("gpt2_torchscript")), path = folder + "/cut.onnx";
  for (double part : {0.01, 0.3, 0.5, 0.9, 0.999}) {
    writeFile(path, bytes.substr(0, static_cast<size_t>(bytes.size() * part)));
    expectRefused(compileFile(path, {"--micro-batch", "2", "--dim", "sequence=32"}), 1, {"cut.onnx"});
  }
}

TEST_F(Errors, RandomBytes) {
  std::mt19937 random(3);
  std::string path = folder + "/random.onnx";
  for (int trial = 0; trial < 20; ++trial) {
    std::string bytes;
    for (int i = 0; i < 40 * (trial + 1); ++i)
      bytes += static_cast<char>(random());
    writeFile(path, bytes);
    expectRefused(compileFile(path), 1, {"random.onnx"});
  }
}

TEST_F(Errors, UnknownOperatorsAreListedAllAtOnce) {
  std::string model = textModel("m (float[batch, 4] x) => (float[batch, 4] y)\n{\n  a = Frobnicate(x)\n  b = Mystify(a)\n"
                                "  y = Relu(b)\n}\n");
  expectRefused(compileFile(model, {"--loss", "mse:y"}), 1, {"Frobnicate", "Mystify"});
}

TEST_F(Errors, UnboundDimension) {
  expectRefused(compileFile(modelPath("gpt2_torchscript"), {"--micro-batch", "2"}), 1, {"sequence", "--dim sequence="});
}

TEST_F(Errors, MismatchedShapes) {
  std::string model = textModel("m (float[batch, 4] x) => (float[batch, 3] y)\n"
                                "<float[5,3] w = {1,2,3,4,5,6,7,8,9,10,11,12,13,14,15}>\n{\n  y = MatMul(x, w)\n}\n");
  expectRefused(compileFile(model, {"--loss", "mse:y"}), 1, {"MatMul", "4", "5"});
}

TEST_F(Errors, ExternalDataShortOrOutside) {
  std::string model = folder + "/gpt2_external.onnx";
  fs::copy_file(modelPath("gpt2_external"), model, fs::copy_options::overwrite_existing);
  std::string data = readFile(source("models/gpt2_external.onnx.data"));
  writeFile(folder + "/gpt2_external.onnx.data", data.substr(0, data.size() / 2));
  std::vector<std::string> more = {"--micro-batch", "2", "--dim", "sequence=32", "--loss", "cross-entropy:logits"};
  expectRefused(compileFile(model, more), 1, {"gpt2_external.onnx"});
  fs::remove(folder + "/gpt2_external.onnx.data");
  expectRefused(compileFile(model, more), 1, {"gpt2_external.onnx.data"});
  // The same name, pointed out of the folder: a path of equal length keeps the file well-formed.
  std::string bytes = readFile(modelPath("gpt2_external")), name = "gpt2_external.onnx.data";
  for (size_t at = bytes.find(name); at != std::string::npos; at = bytes.find(name, at + 1))
    bytes.replace(at, name.size(), "../../../../etc/passwd\0", name.size());
  writeFile(model, bytes);
  expectRefused(compileFile(model, more), 1, {"gpt2_external.onnx"});
  fs::remove(model);
}

TEST_F(Errors, OverflowingSizes) {
  std::string model =
      textModel("m (float[batch, 4] x) => (float[batch, 4] y)\n{\n  y = Relu(x)\n}\n");
  expectRefused(compileFile(model, {"--loss", "mse:y", "--micro-batch", "4611686018427387904"}), 1, {"model.onnxtxt"});
}

TEST_F(Errors, LossThatDoesNotExist) {
  expectRefused(compileFile(modelPath("mlp"), {"--micro-batch", "2", "--loss", "mse:z"}), 1, {"no output \"z\"", "y f32"});
  expectRefused(compileFile(modelPath("mlp"), {"--micro-batch", "2"}), 1, {"--loss mse:"});
}

TEST_F(Errors, CorruptedOrForeignPlan) {
  std::string bytes = readFile(goodPlan()), path = folder + "/bad.zplan";
  for (size_t at : {size_t(0), size_t(9), bytes.size() / 2, bytes.size() - 1}) {
    std::string changed = bytes;
    changed[at] = static_cast<char>(changed[at] ^ 0x40);
    writeFile(path, changed);
    for (const CliResult &result :
         {cli("zerocc", {"verify", path}), cli("zerocc", {"inspect", path}),
          cli("zero-run", {path, "--model", modelPath("mlp"), "--data", source("models/mlp.data.npz"), "--steps", "1"})})
      expectRefused(result, 1, {"bad.zplan"});
  }
  writeFile(path, bytes.substr(0, bytes.size() / 2));
  expectRefused(cli("zerocc", {"verify", path}), 1, {"bad.zplan"});
  writeFile(path, "hello");
  expectRefused(cli("zerocc", {"verify", path}), 1, {"bad.zplan"});
  fs::remove(path);
}

TEST_F(Errors, DataTooShortOrMissing) {
  std::string path = folder + "/short.txt";
  writeFile(path, "short");
  std::string plan2 = scratch("good") + "/gpt.zplan";
  compile("char_gpt", plan2, {"--ranks", "2", "--stage", "1"});
  expectRefused(cli("zero-run", {plan2, "--model", modelPath("char_gpt"), "--data", "text:" + path, "--steps", "1"}), 1,
                {"short.txt"});
  expectRefused(cli("zero-run", {plan2, "--model", modelPath("char_gpt"), "--data", "text:" + folder + "/none.txt",
                                 "--steps", "1"}),
                1, {"none.txt"});
  fs::remove(path);
}

TEST_F(Errors, TokenOutsideTheVocabulary) {
  std::string path = folder + "/tokens.bin", bytes;
  for (int i = 0; i < 400; ++i) {
    bytes += static_cast<char>(i == 50 ? 96 : 5);
    bytes += '\0';
  }
  writeFile(path, bytes);
  std::string plan2 = scratch("good") + "/gpt2.zplan";
  compile("gpt2_torchscript", plan2, {"--ranks", "2", "--stage", "3"});
  expectRefused(
      cli("zero-run", {plan2, "--model", modelPath("gpt2_torchscript"), "--data", path, "--steps", "1"}), 1,
      {"tokens.bin", "96"});
  fs::remove(path);
}

TEST_F(Errors, WrongRankCount) {
  expectRefused(cli("zero-run", {goodPlan(), "--ranks", "4", "--model", modelPath("mlp"), "--data",
                                 source("models/mlp.data.npz"), "--steps", "1"}),
                1, {"2 ranks", "--ranks 4"});
}

TEST_F(Errors, WeightsMissing) {
  expectRefused(cli("zero-run", {goodPlan(), "--data", source("models/mlp.data.npz"), "--steps", "1"}), 1, {"--model"});
}

TEST_F(Errors, UnknownFlagsAndCommands) {
  for (const CliResult &result :
       {compileFile(modelPath("mlp"), {"--stagee", "3"}), cli("zerocc", {"frobnicate"}), cli("zerocc", {"verify"}),
        cli("zero-run", {goodPlan(), "--data", "x", "--steps", "-3"}), cli("zero-run", {})})
    expectRefused(result, 2, {"hint"});
}

TEST_F(Errors, ValuesThatAreNot) {
  std::vector<std::string> base = {"--micro-batch", "2", "--loss", "mse:y"};
  auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), base.begin(), base.end());
    return compileFile(modelPath("mlp"), more);
  };
  expectRefused(with({"--stage", "7"}), 1, {"stage"});
  expectRefused(with({"--reduce", "sometimes"}), 1, {"boundary"});
  expectRefused(with({"--memory-budget", "3 apples"}), 1, {"apples"});
  expectRefused(with({"--optimizer", "lamb"}), 1, {"lamb"});
  expectRefused(with({"--precision", "f8"}), 1, {"f32, bf16, f16"});
  expectRefused(with({"--target", "cuda"}), 1, {"--target cuda is not in this version"});
  expectRefused(with({"--dim", "sequence"}), 1, {"NAME=VALUE"});
}

/// A model whose names hold what a terminal would obey: an escape sequence, a bell, a line's end, a quote, and
/// a character that turns the order of text around.
std::string hostileModel(const std::string &folder) {
  std::string bytes = readFile(modelPath("mlp"));
  for (const auto &[plain, hostile] :
       {std::pair<std::string, std::string>{"fc1.weight", "\x1b[2J\a\"\n<b>"}, {"/fc2/Gemm", "\x1b]0;xy\a;\\"},
        {"/Tanh", "\x1b\r\t$("}, {"fc2.bias", "\xc2\x9b\xe2\x80\xae\x7f/b"}}) {
    EXPECT_EQ(plain.size(), hostile.size());
    for (size_t at = 0; (at = bytes.find(plain, at)) != std::string::npos; at += hostile.size())
      bytes.replace(at, plain.size(), hostile);
  }
  std::string path = folder + "/hostile.onnx";
  writeFile(path, bytes);
  return path;
}

/// What a terminal is given: lines of printable UTF-8.
void expectHarmless(const CliResult &result, const std::string &what) {
  for (const std::string &text : {result.out, result.error}) {
    EXPECT_TRUE(llvm::json::isUTF8(text)) << what;
    for (const char *direction : {"\xe2\x80\xae", "\xc2\x9b"})
      EXPECT_EQ(text.find(direction), std::string::npos) << what;
    for (unsigned char c : text)
      if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7f) {
        ADD_FAILURE() << what << " prints character " << static_cast<int>(c) << ":\n" << text;
        break;
      }
  }
}

TEST(HostileNames, AreEscapedByEveryCommand) {
  const std::string folder = scratch("hostile"), model = hostileModel(folder), plan = folder + "/h.zplan";
  const std::string data = source("models/mlp.data.npz"), metrics = folder + "/m.jsonl", trace = folder + "/t.json";
  auto run = [&](const char *program, std::vector<std::string> arguments, int exitCode = 0) {
    CliResult result = cli(program, arguments);
    const std::string what = program + (" " + arguments[0]) + " " + arguments.back();
    EXPECT_EQ(result.exitCode, exitCode) << what << "\n" << result.error;
    expectHarmless(result, what);
    return result;
  };
  auto expectJson = [&](const std::string &text, const char *what) {
    llvm::Expected<llvm::json::Value> value = llvm::json::parse(text);
    EXPECT_TRUE(static_cast<bool>(value)) << what << ": " << llvm::toString(value.takeError());
  };
  run("zerocc", {"check", model, "--micro-batch", "2"});
  expectJson(run("zerocc", {"check", model, "--micro-batch", "2", "--json"}).out, "check --json");
  run("zerocc", {"compile", model, "-o", plan, "--micro-batch", "2", "--loss", "mse:y", "--ranks", "2", "--stage", "3"});
  for (const char *view : {"--summary", "--schedule", "--memory", "--traffic", "--buckets", "--inputs", "--parameters"})
    run("zerocc", {"inspect", plan, view});
  for (const char *table : {"--memory", "--buckets"})
    run("zerocc", {"inspect", plan, table, "--csv"});
  expectJson(run("zerocc", {"inspect", plan, "--json"}).out, "inspect --json");
  run("zerocc", {"inspect", plan, "--trace", trace});
  expectJson(readFile(trace), "inspect --trace");
  run("zerocc", {"verify", plan});
  run("zerocc", {"export", plan, "--training-info", "--model", model, "-o", folder + "/out.onnx"});
  run("zero-run", {plan, "--model", model, "--data", data, "--steps", "2", "--metrics", metrics});
  run("zero-run", {plan, "--model", model, "--data", data, "--steps", "3", "--check-against",
                   source("models/mlp.ref.npz")}, 1); // the recording knows the tensors by their own names
  run("zero-run", {plan, "--model", modelPath("mlp"), "--data", data, "--steps", "1"}, 1); // other initializers
  run("zerocc", {"compile", model, "-o", plan, "--micro-batch", "2", "--loss", "mse:\x1b[2J"}, 1);
  run("zerocc", {"check", folder + "/\x1b[2J.onnx"}, 1);
}

TEST(Help, EveryCommandHasAnExample) {
  for (const char *command : {"check", "compile", "inspect", "export", "verify", "opt", "ops", "pack"}) {
    CliResult result = cli("zerocc", {command, "--help"});
    EXPECT_EQ(result.exitCode, 0);
    EXPECT_NE(result.out.find("Example"), std::string::npos) << command << "\n" << result.out;
  }
  CliResult result = cli("zero-run", {"--help"});
  EXPECT_EQ(result.exitCode, 0);
  EXPECT_NE(result.out.find("Example"), std::string::npos);
}

TEST(Check, ListsDimsParametersAndRepairs) {
  CliResult result = cli("zerocc", {"check", modelPath("gpt2_torchscript"), "--micro-batch", "2", "--dim", "sequence=32"});
  EXPECT_EQ(result.exitCode, 0) << result.error;
  for (const char *text : {"parameters: 28 tensors", "untied \"transformer", "tied \"onnx::MatMul", "can be trained:\n  zerocc compile "})
    EXPECT_NE(result.out.find(text), std::string::npos) << text << "\n" << result.out;
}

TEST(Check, SaysItAllInJson) {
  const std::string path = scratch("check") + "/m.onnxtxt";
  writeFile(path, "<ir_version: 8, opset_import: [\"\" : 17]>\n"
                  "g (float[B, 3] x, int64[B] t) => (float y)\n"
                  "<float[3, 4] fc_weight = {1,2,3,4,5,6,7,8,9,1,2,3}, float[4] fc_bias = {0,0,0,0}>\n"
                  "{ h = Gemm (x, fc_weight, fc_bias)\n  y = SoftmaxCrossEntropyLoss (h, t) }\n");
  CliResult result = cli("zerocc", {"check", path, "--json", "--micro-batch", "2", "--freeze", "*_bias"});
  EXPECT_EQ(result.exitCode, 0) << result.error;
  EXPECT_EQ(jsonNumber(result.out, "schema"), 1);
  EXPECT_EQ(jsonNumber(result.out, "all", "elements"), 16);
  EXPECT_EQ(jsonNumber(result.out, "trainable", "elements"), 12);
  for (const char *text : {"\"role\": \"labels\"", "\"name\": \"B\"", "--freeze '*_bias'", "no label smoothing",
                           "\"name\": \"Gemm\"", "\"supported\": true", "\"refusals\": []"})
    EXPECT_NE(result.out.find(text), std::string::npos) << text << "\n" << result.out;
}

TEST(Check, NamesEveryRefusedNodeInJsonToo) {
  const std::string path = scratch("check") + "/m.onnxtxt";
  writeFile(path, "<ir_version: 8, opset_import: [\"\" : 17]>\n"
                  "g (float[B, 3] x) => (int64[n, m] y)\n{ h = Relu (x)\n  y = NonZero (h) }\n");
  CliResult result = cli("zerocc", {"check", path, "--json"});
  EXPECT_EQ(result.exitCode, 1);
  EXPECT_NE(result.out.find("node of \\\"y\\\" (NonZero)"), std::string::npos) << result.out;
  EXPECT_NE(result.error.find("node of \"y\" (NonZero)"), std::string::npos) << result.error;
}

TEST(Check, TellsWhatExportersDo) {
  const std::string path = scratch("check") + "/m.onnxtxt";
  std::string convolutions = "<ir_version: 8, opset_import: [\"\" : 17]>\ng (float[B, 2, 5] x) => (float[B, 2, 5] y)\n"
                             "<float[2, 2, 1] w = {1,2,3,4}, float[2] b = {1,2}>\n"
                             "{ a = Conv (x, w, b)\n  c = Conv (a, w, b)\n  y = Conv (c, w, b) }\n";
  writeFile(path, convolutions);
  EXPECT_NE(cli("zerocc", {"check", path}).out.find("fold batch norm"), std::string::npos);
  writeFile(path, "<ir_version: 8, opset_import: [\"\" : 17]>\ng (float[B, 2, 5] x) => (float[B, 2, 5] y)\n"
                  "<float[2] s = {1,2}, float[2] b = {1,2}, float[2] m = {0,0}, float[2] v = {1,1}>\n"
                  "{ y = BatchNormalization (x, s, b, m, v) }\n");
  EXPECT_NE(cli("zerocc", {"check", path}).out.find("--train-batchnorm trains them"), std::string::npos);
  EXPECT_NE(cli("zerocc", {"check", path, "--train-batchnorm"}).out.find("(--train-batchnorm)"), std::string::npos);
}

TEST(Check, TellsOfTablesThatTheExporterHasComputedFromParameters) {
  // Position embeddings read at fixed positions, relative biases; not the cosines and sines of rotary embeddings.
  for (auto [model, name] : {std::pair{"bert_dynamo", "embedding_2"},
                             {"t5_dynamo", "unsqueeze_14"},
                             {"t5_dynamo", "unsqueeze_41"},
                             {"whisper_dynamo", "val_62"}}) {
    std::string advice = std::string("--trainable '") + name + "' trains it";
    EXPECT_NE(cli("zerocc", {"check", modelPath(model)}).out.find(advice), std::string::npos) << model;
    EXPECT_EQ(cli("zerocc", {"check", modelPath(model), "--trainable", name}).out.find(advice), std::string::npos);
  }
  for (const char *model : {"llama_dynamo", "llama_torchscript", "gpt2_dynamo", "unet_torchscript", "swin_dynamo"})
    EXPECT_EQ(cli("zerocc", {"check", modelPath(model)}).out.find("trains it"), std::string::npos) << model;
}

TEST(Opt, RunsPassesOnText) {
  std::string path = scratch("opt") + "/m.ir";
  writeFile(path, "module @m {\n  param @a : f32[64]\n}\n");
  CliResult result = cli("zerocc", {"opt", path, "--passes", "partition", "--set", "shard=2"});
  EXPECT_EQ(result.exitCode, 0) << result.error;
  EXPECT_NE(result.out.find("bucket #b0"), std::string::npos) << result.out;
  EXPECT_EQ(cli("zerocc", {"opt", path, "--passes", "nonsense"}).exitCode, 1);
}

TEST(Dump, WritesAFilePerPass) {
  std::string folder = scratch("dump");
  compile("mlp", folder + "/p.zplan", {"--ranks", "2", "--stage", "3", "--dump-dir", folder + "/ir", "--pass-timing"});
  EXPECT_TRUE(fs::exists(folder + "/ir/00-import.ir"));
  EXPECT_TRUE(fs::exists(folder + "/ir/12-insert-fetch-release.ir"));
  EXPECT_NE(readFile(folder + "/ir/12-insert-fetch-release.ir").find("fetch.start"), std::string::npos);
}

} // namespace
} // namespace zerocc::e2e
