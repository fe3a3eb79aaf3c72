#include "runtime/data/mapped_file.h"

#include <cerrno>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string_view>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <system_error>
#include <unistd.h>
#include <vector>

namespace zerocc {

static std::string systemMessage() { return std::generic_category().message(errno); }

// O_NONBLOCK: opening a FIFO must not hang; it has no effect on regular files.
constexpr int kOpenFlags = O_RDONLY | O_CLOEXEC | O_NONBLOCK;

Expected<std::shared_ptr<const MappedFile>> MappedFile::map(int file, std::string path, bool oneNameOnly) {
  struct Closer {
    int file;
    ~Closer() { ::close(file); }
  } closer{file};
  struct stat status;
  if (::fstat(file, &status) != 0)
    return Error(path + ": cannot be examined: " + systemMessage());
  if (!S_ISREG(status.st_mode))
    return Error(path + ": is not a regular file");
  if (oneNameOnly && status.st_nlink != 1)
    return Error(path + ": has " + std::to_string(status.st_nlink) +
                     " names (hard links), so it may be a file from elsewhere",
                 "replace it by a copy of its own");
  std::shared_ptr<MappedFile> mapped(new MappedFile);
  mapped->path_ = std::move(path);
  mapped->size_ = status.st_size;
  if (status.st_size > 0) {
    void *data = ::mmap(nullptr, status.st_size, PROT_READ, MAP_SHARED, file, 0);
    if (data == MAP_FAILED) {
      mapped->size_ = 0;
      return Error(mapped->path_ + ": cannot be mapped: " + systemMessage());
    }
    mapped->data_ = static_cast<const unsigned char *>(data);
  }
  return std::shared_ptr<const MappedFile>(std::move(mapped));
}

MappedFile::~MappedFile() {
  if (data_)
    ::munmap(const_cast<unsigned char *>(data_), size_);
}

Expected<std::shared_ptr<const MappedFile>> MappedFile::open(const std::string &path) {
  int file = ::open(path.c_str(), kOpenFlags);
  if (file < 0)
    return Error(path + ": cannot be opened: " + systemMessage());
  return map(file, path, /*oneNameOnly=*/false);
}

static std::vector<std::string> components(std::string_view name) {
  std::vector<std::string> parts;
  while (!name.empty()) {
    size_t end = name.find('/');
    std::string_view part = name.substr(0, end);
    if (!part.empty() && part != ".")
      parts.emplace_back(part);
    name = end == std::string_view::npos ? std::string_view() : name.substr(end + 1);
  }
  return parts;
}

/// Why a path written in a file cannot be a plain file beneath a directory; null when it can.
static const char *whyNotBeneath(const std::string &name) {
  if (name.empty() || components(name).empty())
    return "is empty";
  if (name.find('\0') != std::string::npos)
    return "contains a NUL byte";
  if (name.find('\\') != std::string::npos)
    return "contains a backslash";
  if (name[0] == '/' || (name.size() > 1 && name[1] == ':'))
    return "is absolute";
  for (const std::string &part : components(name))
    if (part == "..")
      return "leads out of the folder by '..'";
  return nullptr;
}

/// For kernels and sandboxes without openat2: every component is opened by itself and must not be a link.
static int openByComponents(int directory, const std::string &name) {
  std::vector<std::string> parts = components(name);
  int at = ::fcntl(directory, F_DUPFD_CLOEXEC, 0);
  for (size_t i = 0; i < parts.size() && at >= 0; ++i) {
    int flags = kOpenFlags | O_NOFOLLOW | (i + 1 < parts.size() ? O_DIRECTORY : 0);
    int next = ::openat(at, parts[i].c_str(), flags);
    int error = errno;
    ::close(at);
    errno = error;
    at = next;
  }
  return at;
}

Expected<std::shared_ptr<const MappedFile>> MappedFile::openThroughLinks(const std::string &directory,
                                                                         const std::string &name) {
  if (const char *reason = whyNotBeneath(name))
    return Error("file name \"" + name + "\" " + reason, "it must be a plain path inside " + directory);
  return open(directory + "/" + name);
}

Expected<std::shared_ptr<const MappedFile>>
MappedFile::openBeneath(const std::string &directory, const std::string &name, bool byComponents) {
  std::string path = directory + "/" + name;
  if (const char *reason = whyNotBeneath(name))
    return Error("file name \"" + name + "\" " + reason, "it must be a plain path inside " + directory);
  int folder = ::open(directory.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECTORY);
  if (folder < 0)
    return Error(directory + ": cannot be opened: " + systemMessage());
  open_how how = {};
  how.flags = kOpenFlags;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  int file = -1;
  if (!byComponents)
    file = static_cast<int>(::syscall(SYS_openat2, folder, name.c_str(), &how, sizeof how));
  if (byComponents || (file < 0 && (errno == ENOSYS || errno == EPERM)))
    file = openByComponents(folder, name);
  int error = errno;
  ::close(folder);
  errno = error;
  if (file < 0 && (errno == ELOOP || errno == EXDEV || errno == ENOTDIR))
    return Error(path + ": is a link, or lies behind one", "put the file itself into " + directory);
  if (file < 0)
    return Error(path + ": cannot be opened: " + systemMessage());
  return map(file, std::move(path), /*oneNameOnly=*/true);
}

} // namespace zerocc
