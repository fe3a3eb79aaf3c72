// Runs every tests/onnx/<topic>/*.onnxtxt: `# import: OPTION …`, a model in ONNX's textual syntax, then `--- expect` with
// the whole module that comes out, behind the repairs and notes of the report, or `--- error` with the whole message.
// Options: micro-batch=N dim:NAME=N input:NAME=ROLE freeze=P trainable=P tie=P untie=P inference compute-f32.
// UPDATE_GOLDEN=1 rewrites the expected part.

#include "compiler/onnx/importer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace zerocc {
namespace {

namespace fs = std::filesystem;

struct TextCase {
  std::string head; // everything up to the expectation: also the model, whose # lines are comments to ONNX
  std::vector<std::string> settings;
  std::string expected;
  bool expectsError = false;
};

TextCase readCase(const fs::path &path) {
  std::ifstream file(path);
  TextCase test;
  std::string line;
  bool inExpectation = false;
  while (std::getline(file, line)) {
    if (line == "--- expect" || line == "--- error") {
      test.expectsError = line == "--- error";
      inExpectation = true;
      continue;
    }
    (inExpectation ? test.expected : test.head) += line + "\n";
    if (!inExpectation && line.rfind("# import:", 0) == 0) {
      std::istringstream words(line.substr(9));
      for (std::string word; words >> word;)
        test.settings.push_back(word);
    }
  }
  return test;
}

ImportOptions optionsOf(const TextCase &test) {
  ImportOptions options;
  for (const std::string &setting : test.settings) {
    auto [name, value] = llvm::StringRef(setting).split('=');
    if (name == "micro-batch")
      options.microBatch = std::stoll(value.str());
    else if (name.consume_front("dim:"))
      options.dims[name.str()] = std::stoll(value.str());
    else if (name.consume_front("input:"))
      options.inputRoles[name.str()] = value.str();
    else if (name == "freeze")
      options.freeze.push_back(value.str());
    else if (name == "trainable")
      options.trainable.push_back(value.str());
    else if (name == "tie")
      options.tie.push_back(value.str());
    else if (name == "untie")
      options.untie.push_back(value.str());
    else if (name == "compute-f32")
      options.computeF32 = true;
    else if (name == "inference")
      options.inference = true;
    else
      ADD_FAILURE() << "unknown setting " << setting;
  }
  return options;
}

std::string runCase(const TextCase &test, bool &failed) {
  ImportReport report;
  auto module = importOnnxText(test.head, optionsOf(test), &report);
  failed = !module;
  if (!module)
    return module.error().text();
  if (Status ok = checkModule(**module); !ok)
    return ok.error().text();
  std::string text;
  for (const std::string &repair : report.repairs)
    text += "repair: " + repair + "\n";
  for (const std::string &note : report.notes)
    text += "note: " + note + "\n";
  return text + print(**module);
}

fs::path folder() { return fs::path(ZEROCC_SOURCE_DIR) / "tests" / "onnx"; }

std::vector<std::string> allCases() {
  std::vector<std::string> names;
  for (const auto &entry : fs::recursive_directory_iterator(folder()))
    if (entry.path().extension() == ".onnxtxt" && entry.path().parent_path().filename() != "values")
      names.push_back(fs::relative(entry.path(), folder()).string());
  std::sort(names.begin(), names.end());
  return names;
}

class OnnxText : public testing::TestWithParam<std::string> {};

TEST_P(OnnxText, ImportsAsExpected) {
  fs::path path = folder() / GetParam();
  TextCase test = readCase(path);
  bool failed = false;
  std::string got = runCase(test, failed);
  if (std::getenv("UPDATE_GOLDEN")) {
    std::ofstream(path) << test.head << (failed ? "--- error\n" : "--- expect\n") << got;
    return;
  }
  EXPECT_EQ(failed, test.expectsError);
  EXPECT_EQ(got, test.expected);
}

std::string testName(const testing::TestParamInfo<std::string> &info) {
  std::string name = info.param.substr(0, info.param.find('.'));
  std::replace_if(name.begin(), name.end(), [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Onnx, OnnxText, testing::ValuesIn(allCases()), testName);

} // namespace
} // namespace zerocc
