#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdlib.h>
#include <string>

namespace zerocc {

/// A folder of its own for one test, gone with it.
class TemporaryFolder {
public:
  TemporaryFolder() {
    // in memory where there is such a place: some tests write thousands of tiny files
    std::filesystem::path parent = "/dev/shm";
    if (!std::filesystem::is_directory(parent))
      parent = std::filesystem::temp_directory_path();
    std::string name = (parent / "zerocc-test-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  TemporaryFolder(const TemporaryFolder &) = delete;
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }

  std::string operator/(const std::string &name) const { return path_ + "/" + name; }
  const std::string &path() const { return path_; }

private:
  std::string path_;
};

inline std::string writeFile(const std::string &path, const std::string &bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

inline std::string readFile(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

} // namespace zerocc
