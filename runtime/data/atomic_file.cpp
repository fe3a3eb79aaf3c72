#include "runtime/data/atomic_file.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <system_error>
#include <unistd.h>

namespace zerocc {

static Error systemError(const std::string &path, const char *what) {
  return Error(path + ": " + what + ": " + std::generic_category().message(errno));
}

Expected<AtomicFile> AtomicFile::create(const std::string &path) {
  // Two writers of one process or of several must not meet in one temporary file.
  for (int attempt = 0; attempt < 1000; ++attempt) {
    std::string temporary = path + ".tmp." + std::to_string(::getpid()) + "." + std::to_string(attempt);
    int file = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file >= 0)
      return AtomicFile(path, std::move(temporary), file);
    if (errno != EEXIST)
      break;
  }
  return systemError(path, "cannot be written");
}

AtomicFile::AtomicFile(AtomicFile &&other) noexcept
    : path_(std::move(other.path_)), temporary_(std::move(other.temporary_)), file_(other.file_),
      written_(other.written_) {
  other.file_ = -1;
}

AtomicFile::~AtomicFile() {
  if (file_ < 0)
    return;
  ::close(file_);
  ::unlink(temporary_.c_str());
}

Status AtomicFile::write(Bytes bytes) {
  while (!bytes.empty()) {
    // write() takes at most 2 GiB - 4 KiB at once
    ssize_t count = ::write(file_, bytes.data(), std::min<size_t>(bytes.size(), size_t(1) << 30));
    if (count < 0 && errno == EINTR)
      continue;
    if (count <= 0)
      return systemError(path_, "cannot be written");
    written_ += count;
    bytes = bytes.subspan(count);
  }
  return success();
}

Status AtomicFile::commit() {
  if (::fsync(file_) != 0)
    return systemError(path_, "cannot be flushed to disk");
  if (::rename(temporary_.c_str(), path_.c_str()) != 0)
    return systemError(path_, "cannot be put into place");
  ::close(file_);
  file_ = -1;
  // The rename itself is on disk once its folder is; some file systems refuse that, and lose nothing we hold.
  std::string folder = std::filesystem::path(path_).parent_path();
  int directory = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory >= 0) {
    ::fsync(directory);
    ::close(directory);
  }
  return success();
}

} // namespace zerocc
