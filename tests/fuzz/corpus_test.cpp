// The fuzz targets on their corpora, and on a fixed number of mutations of each file: bounded, the same every
// time. tools/fuzz runs them for long.

#include "tests/fuzz/targets.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace zerocc {
namespace {

constexpr int kMutations = 120; // of each file
constexpr size_t kCapacity = 1 << 16;

class Corpus : public testing::TestWithParam<int> {};

TEST_P(Corpus, EveryInputAndItsMutationsComeBack) {
  const FuzzTarget &target = fuzzTargets()[GetParam()];
  std::vector<std::filesystem::path> files;
  for (const auto &entry : std::filesystem::directory_iterator(
           std::string(ZEROCC_SOURCE_DIR "/tests/fuzz/corpus/") + target.name))
    files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  ASSERT_FALSE(files.empty());
  for (const auto &file : files) {
    std::ostringstream content;
    content << std::ifstream(file, std::ios::binary).rdbuf();
    const std::string original = content.str();
    SCOPED_TRACE(file.filename().string());
    target.run(reinterpret_cast<const uint8_t *>(original.data()), original.size());
    std::vector<uint8_t> input(original.begin(), original.end());
    for (unsigned i = 0; i < kMutations; ++i) {
      if (i % 8 == 0) // a chain of up to eight mutations
        input.assign(original.begin(), original.end());
      const size_t size = input.size();
      input.resize(std::max(kCapacity, size));
      input.resize(target.mutate(input.data(), size, input.size(), 7919 * i + 13));
      target.run(input.data(), input.size());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Fuzz, Corpus, testing::Range(0, static_cast<int>(fuzzTargets().size())),
                         [](const testing::TestParamInfo<int> &info) {
                           return fuzzTargets()[info.param].name;
                         });

} // namespace
} // namespace zerocc
