#pragma once

#include "compiler/support/expected.h"

#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace zerocc {

using Bytes = std::span<const unsigned char>;

/// A regular file, mapped read-only: pages are read when touched, so a rank that looks at its own part reads
/// its own part. A file that another program shortens meanwhile ends this program with SIGBUS, as for every
/// mapping.
class MappedFile {
public:
  /// Opens a file the user named. Links are followed.
  static Expected<std::shared_ptr<const MappedFile>> open(const std::string &path);

  /// Opens a file that another file names (external data of a model), which is not trusted: `name` must be a
  /// plain relative path that stays inside `directory`, without links, and lead to a regular file with one
  /// name only. `byComponents`: do it as on kernels without openat2 (for tests).
  static Expected<std::shared_ptr<const MappedFile>>
  openBeneath(const std::string &directory, const std::string &name, bool byComponents = false);

  /// The same by leave of the user to follow links, wherever they lead; `name` itself must stay inside.
  static Expected<std::shared_ptr<const MappedFile>> openThroughLinks(const std::string &directory,
                                                                      const std::string &name);

  MappedFile(const MappedFile &) = delete;
  ~MappedFile();

  Bytes bytes() const { return {data_, static_cast<size_t>(size_)}; }
  int64_t size() const { return size_; }
  const std::string &path() const { return path_; }

private:
  MappedFile() = default;
  static Expected<std::shared_ptr<const MappedFile>> map(int file, std::string path, bool oneNameOnly);

  std::string path_;
  const unsigned char *data_ = nullptr;
  int64_t size_ = 0;
};

} // namespace zerocc
