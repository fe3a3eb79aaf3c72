#include "runtime/checkpoint/files.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace zerocc {
namespace {

constexpr int64_t kMostAtOnce = int64_t(1) << 30; // read() and write() take less than 2 GiB

template <typename Result> Result orError(Result result) {
  return result < 0 ? static_cast<Result>(-errno) : result;
}

class SystemFiles : public Files {
public:
  int create(const std::string &path) override {
    return orError(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666));
  }
  int64_t write(int file, const void *bytes, int64_t count) override {
    return orError<int64_t>(::write(file, bytes, static_cast<size_t>(std::min(count, kMostAtOnce))));
  }
  int sync(int file) override { return orError(::fsync(file)); }
  int close(int file) override { return orError(::close(file)); }

  int open(const std::string &path) override {
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); // opening a pipe must not hang
    if (file < 0)
      return -errno;
    struct stat status;
    if (::fstat(file, &status) == 0 && S_ISREG(status.st_mode))
      return file;
    ::close(file);
    return -EINVAL;
  }
  int64_t size(int file) override {
    struct stat status;
    return ::fstat(file, &status) == 0 ? static_cast<int64_t>(status.st_size) : -errno;
  }
  int64_t readAt(int file, void *bytes, int64_t count, int64_t offset) override {
    return orError<int64_t>(::pread(file, bytes, static_cast<size_t>(std::min(count, kMostAtOnce)), offset));
  }

  int rename(const std::string &from, const std::string &to) override {
    return orError(::rename(from.c_str(), to.c_str()));
  }
  int remove(const std::string &path) override { return orError(::remove(path.c_str())); }
  int makeFolder(const std::string &path) override { return orError(::mkdir(path.c_str(), 0777)); }
  int syncFolder(const std::string &path) override {
    const int folder = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0)
      return -errno;
    const int result = orError(::fsync(folder));
    ::close(folder);
    return result == -EINVAL ? 0 : result; // some file systems have no such call, and nothing to lose
  }
  int list(const std::string &path, std::vector<std::string> &names) override {
    DIR *folder = ::opendir(path.c_str());
    if (!folder)
      return -errno;
    names.clear();
    while (const dirent *entry = ::readdir(folder))
      if (std::string name = entry->d_name; name != "." && name != "..")
        names.push_back(std::move(name));
    ::closedir(folder);
    std::sort(names.begin(), names.end());
    return 0;
  }
};

} // namespace

Files &systemFiles() {
  static SystemFiles files;
  return files;
}

} // namespace zerocc
