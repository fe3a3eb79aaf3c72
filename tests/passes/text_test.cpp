// Runs every tests/passes/<pass>/*.ir: `# run: PASS[,PASS…] NAME=VALUE …`, a module, then `--- expect` with the whole
// module that comes out, or `--- error` with the whole message. UPDATE_GOLDEN=1 rewrites the expected part.

#include "passes/pipeline.h"

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
  std::string head;   // everything up to the expectation
  std::string module; // the input, without # lines
  std::vector<std::string> passes, settings;
  std::string expected;
  bool expectsError = false;
};

TextCase readCase(const fs::path &path) {
  std::ifstream file(path);
  TextCase test;
  std::string line;
  std::string *into = nullptr;
  while (std::getline(file, line)) {
    if (line == "--- expect" || line == "--- error") {
      test.expectsError = line == "--- error";
      into = &test.expected;
      continue;
    }
    if (into) {
      *into += line + "\n";
      continue;
    }
    test.head += line + "\n";
    if (line.rfind("# run:", 0) == 0) {
      std::istringstream words(line.substr(6));
      std::string word, pass;
      words >> word;
      std::istringstream passes(word);
      while (std::getline(passes, pass, ','))
        test.passes.push_back(pass);
      while (words >> word)
        test.settings.push_back(word);
    } else if (line.rfind("#", 0) != 0) {
      test.module += line + "\n";
    }
  }
  return test;
}

// What the passes make of the module: its text, or the error's.
std::string runCase(const TextCase &test, bool &failed) {
  failed = true;
  Decisions decisions;
  for (const std::string &setting : test.settings) {
    auto [name, value] = llvm::StringRef(setting).split('=');
    if (Status ok = setDecision(decisions, name, value); !ok)
      return ok.error().text();
  }
  auto module = parseModule(test.module, "module");
  if (!module)
    return module.error().text();
  for (const std::string &name : test.passes) {
    const LadderRow *row = findPass(name);
    if (!row)
      return "error: there is no pass \"" + name + "\"\n";
    auto report = row->run(**module, decisions);
    if (!report)
      return report.error().text();
    if (Status ok = checkModule(**module); !ok)
      return ok.error().text();
  }
  failed = false;
  std::string text = print(**module);
  auto again = parseModule(text, "printed module");
  EXPECT_TRUE(again) << again.error().text() << text;
  if (again) {
    EXPECT_EQ(print(**again), text) << "printing and parsing changes the module";
  }
  return text;
}

class PassText : public testing::TestWithParam<std::string> {};

TEST_P(PassText, MakesTheExpectedText) {
  fs::path path = fs::path(ZEROCC_SOURCE_DIR) / "tests/passes" / GetParam();
  TextCase test = readCase(path);
  ASSERT_FALSE(test.passes.empty()) << path << " has no `# run:` line";
  bool failed = false;
  std::string got = runCase(test, failed);
  if (std::getenv("UPDATE_GOLDEN")) {
    std::ofstream(path) << test.head << (failed ? "--- error\n" : "--- expect\n") << got;
    return;
  }
  EXPECT_EQ(failed, test.expectsError) << got;
  EXPECT_EQ(got, test.expected) << "UPDATE_GOLDEN=1 rewrites " << path;
}

std::vector<std::string> allCases() {
  fs::path root = fs::path(ZEROCC_SOURCE_DIR) / "tests/passes";
  std::vector<std::string> cases;
  for (const auto &entry : fs::recursive_directory_iterator(root))
    if (entry.path().extension() == ".ir")
      cases.push_back(fs::relative(entry.path(), root).string());
  std::sort(cases.begin(), cases.end());
  return cases;
}

std::string caseName(const testing::TestParamInfo<std::string> &info) {
  std::string name = fs::path(info.param).replace_extension().string();
  for (char &c : name)
    if (!std::isalnum(static_cast<unsigned char>(c)))
      c = '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(Passes, PassText, testing::ValuesIn(allCases()), caseName);

} // namespace
} // namespace zerocc
