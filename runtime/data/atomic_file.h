#pragma once

#include "compiler/support/expected.h"
#include "runtime/data/mapped_file.h"

#include <cstdint>
#include <string>

namespace zerocc {

/// A file that appears whole or not at all: written beside its place, flushed to disk, renamed at `commit`.
/// Without a commit nothing remains.
class AtomicFile {
public:
  static Expected<AtomicFile> create(const std::string &path);
  AtomicFile(AtomicFile &&other) noexcept;
  AtomicFile &operator=(AtomicFile &&) = delete;
  ~AtomicFile();

  Status write(Bytes bytes);
  Status write(const std::string &bytes) {
    return write(Bytes(reinterpret_cast<const unsigned char *>(bytes.data()), bytes.size()));
  }
  int64_t written() const { return written_; }
  Status commit();

private:
  AtomicFile(std::string path, std::string temporary, int file)
      : path_(std::move(path)), temporary_(std::move(temporary)), file_(file) {}

  std::string path_, temporary_;
  int file_ = -1; // -1: committed or moved from
  int64_t written_ = 0;
};

} // namespace zerocc
