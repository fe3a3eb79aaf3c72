#include "compiler/support/write_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

namespace zerocc {
namespace {

namespace fs = std::filesystem;

std::string contentOf(const fs::path &path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

class WriteWholeFile : public testing::Test {
protected:
  fs::path folder = fs::path(testing::TempDir()) / "write_whole_file";
  void SetUp() override { fs::create_directories(folder); }
  void TearDown() override { fs::remove_all(folder); }
  int64_t files() const { return std::distance(fs::directory_iterator(folder), fs::directory_iterator()); }
};

TEST_F(WriteWholeFile, ReplacesWhatWasThere) {
  const fs::path path = folder / "a";
  ASSERT_TRUE(writeWholeFile(path, "first, and longer"));
  ASSERT_TRUE(writeWholeFile(path, llvm::StringRef("new\0bytes", 9)));
  EXPECT_EQ(contentOf(path), std::string("new\0bytes", 9));
  EXPECT_EQ(files(), 1);
}

TEST_F(WriteWholeFile, LeavesNothingWhenItFails) {
  Status missing = writeWholeFile(folder / "none" / "a", "x");
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().text().find("none/a: cannot be written"), std::string::npos) << missing.error().text();
  fs::create_directories(folder / "taken" / "by");
  EXPECT_FALSE(writeWholeFile(folder / "taken", "x")) << "a folder cannot be replaced by a file";
  EXPECT_EQ(files(), 1);
}

} // namespace
} // namespace zerocc
