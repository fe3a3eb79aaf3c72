// `zerocc check`, whole: tests/e2e/check/NAME.golden begins with the command line and holds the exit code,
// what went to stdout and what went to stderr. UPDATE_GOLDEN=1 rewrites it.

#include "tests/e2e/cli.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace zerocc::e2e {
namespace {

namespace fs = std::filesystem;

std::string withoutFolder(std::string text) {
  const std::string folder = source("");
  for (size_t at = 0; (at = text.find(folder, at)) != std::string::npos;)
    text.erase(at, folder.size());
  return text;
}

std::vector<std::string> goldens() {
  std::vector<std::string> names;
  for (const auto &entry : fs::directory_iterator(source("tests/e2e/check")))
    if (entry.path().extension() == ".golden")
      names.push_back(entry.path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

class Check : public testing::TestWithParam<std::string> {};

TEST_P(Check, SaysAllOfThis) {
  const std::string path = source("tests/e2e/check/" + GetParam() + ".golden");
  const std::string golden = readFile(path);
  const std::string line = golden.substr(0, golden.find('\n'));
  std::istringstream words(line);
  std::vector<std::string> arguments;
  for (std::string word; words >> word;)
    arguments.push_back(fs::exists(source(word)) && word.find('/') != std::string::npos ? source(word)
                                                                                        : word);
  ASSERT_EQ(arguments.at(0), "zerocc");
  arguments.erase(arguments.begin());
  CliResult result = cli("zerocc", arguments);
  std::string got = line + "\nexit " + std::to_string(result.exitCode) + "\n" + withoutFolder(result.out);
  if (!result.error.empty())
    got += "--- stderr\n" + withoutFolder(result.error);
  if (std::getenv("UPDATE_GOLDEN"))
    std::ofstream(path, std::ios::binary) << got;
  else
    EXPECT_EQ(got, golden);
}

INSTANTIATE_TEST_SUITE_P(Goldens, Check, testing::ValuesIn(goldens()));

} // namespace
} // namespace zerocc::e2e
