#include "compiler/onnx/files.h"

#include "llvm/ADT/SmallVector.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace zerocc {
namespace {

/// Closes a descriptor at the end of its scope.
struct Descriptor {
  int value = -1;
  ~Descriptor() {
    if (value >= 0)
      ::close(value);
  }
  int release() { return std::exchange(value, -1); }
};

std::string reasonOf(int error) {
  if (error == ELOOP)
    return "it is, or lies behind, a symbolic link";
  if (error == EXDEV)
    return "it leads out of the model's folder";
  return std::strerror(error);
}

/// openat2 refuses every step out of the folder and every link. Kernels before 5.6 and some sandboxes lack it (ENOSYS,
/// EPERM): then each component is opened by itself with O_NOFOLLOW.
int openComponents(int directory, llvm::StringRef relative) {
  llvm::SmallVector<llvm::StringRef, 8> parts;
  relative.split(parts, '/', -1, false);
  Descriptor at{::dup(directory)};
  for (size_t i = 0; i < parts.size() && at.value >= 0; ++i) {
    if (parts[i] == "." && i + 1 < parts.size())
      continue;
    if (parts[i] == "..") {
      errno = EXDEV;
      return -1;
    }
    int flags = O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | (i + 1 < parts.size() ? O_DIRECTORY : 0);
    int next = ::openat(at.value, parts[i].str().c_str(), flags);
    ::close(at.release());
    at.value = next;
  }
  return at.release();
}

int openBeneathDirectory(int directory, const std::string &relative) {
  open_how how{};
  how.flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  long opened = ::syscall(SYS_openat2, directory, relative.c_str(), &how, sizeof(how));
  if (opened >= 0 || (errno != ENOSYS && errno != EPERM))
    return static_cast<int>(opened);
  return openComponents(directory, relative);
}

/// Rules for names written in a model, before anything is opened.
const char *locationProblem(llvm::StringRef location) {
  if (location.empty())
    return "it is empty";
  if (location.contains('\0'))
    return "it holds a NUL byte";
  if (location.startswith("/"))
    return "it is absolute";
  if (location.contains('\\'))
    return "it holds a backslash";
  if (location.size() > 1 && location[1] == ':')
    return "it starts with a drive";
  llvm::SmallVector<llvm::StringRef, 8> parts;
  location.split(parts, '/');
  for (llvm::StringRef part : parts)
    if (part == "..")
      return "it leads out of the model's folder";
  return nullptr;
}

} // namespace

std::string directoryOf(const std::string &path) {
  size_t slash = path.find_last_of('/');
  if (slash == std::string::npos)
    return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

Expected<std::unique_ptr<ReadOnlyFile>> ReadOnlyFile::adopt(int descriptor, Links links) {
  Descriptor guard{descriptor};
  struct stat status {};
  if (::fstat(descriptor, &status) != 0)
    return Error(std::string("cannot be examined: ") + std::strerror(errno));
  if (!S_ISREG(status.st_mode))
    return Error("is not a regular file");
  if (links == Links::refused && status.st_nlink > 1)
    return Error("has " + std::to_string(status.st_nlink) + " names (hard links), so it may be a file from elsewhere",
                 "replace it by a copy of its own, or allow links by --follow-symlinks");
  return std::unique_ptr<ReadOnlyFile>(new ReadOnlyFile(guard.release(), status.st_size));
}

Expected<std::unique_ptr<ReadOnlyFile>> ReadOnlyFile::open(const std::string &path) {
  int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0)
    return Error(std::string("cannot be opened: ") + std::strerror(errno));
  return adopt(descriptor, Links::followed);
}

Expected<std::unique_ptr<ReadOnlyFile>> ReadOnlyFile::openBeneath(const std::string &directory,
                                                                  const std::string &relative, Links links) {
  if (const char *problem = locationProblem(relative))
    return Error("location \"" + relative + "\" is not allowed: " + problem,
                 "external data lies in the model's folder or below, named by a relative path");
  Descriptor base{::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (base.value < 0)
    return Error("folder \"" + directory + "\" cannot be opened: " + std::strerror(errno));
  int descriptor = links == Links::followed
                       ? ::openat(base.value, relative.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)
                       : openBeneathDirectory(base.value, relative);
  if (descriptor < 0)
    return Error("external data \"" + relative + "\" cannot be opened: " + reasonOf(errno),
                 errno == ELOOP ? "copy the file itself into the model's folder, or allow links by --follow-symlinks" : "");
  Expected<std::unique_ptr<ReadOnlyFile>> file = adopt(descriptor, links);
  if (!file)
    return Error("external data \"" + relative + "\" " + file.error().findings().front().message,
                 file.error().findings().front().hint);
  return file;
}

ReadOnlyFile::~ReadOnlyFile() {
  if (mapping_)
    ::munmap(mapping_, static_cast<size_t>(size_));
  ::close(descriptor_);
}

Expected<std::string> ReadOnlyFile::read(int64_t offset, int64_t length) const {
  if (offset < 0 || length < 0 || offset > size_ || length > size_ - offset)
    return Error("bytes [" + std::to_string(offset) + ", +" + std::to_string(length) + ") lie outside a file of " +
                 std::to_string(size_) + " bytes");
  std::string bytes(static_cast<size_t>(length), '\0');
  for (int64_t done = 0; done < length;) {
    ssize_t got = ::pread(descriptor_, bytes.data() + done, static_cast<size_t>(length - done), offset + done);
    if (got < 0 && errno == EINTR)
      continue;
    if (got <= 0)
      return Error(std::string("cannot be read: ") + (got < 0 ? std::strerror(errno) : "it became shorter"));
    done += got;
  }
  return bytes;
}

Expected<llvm::StringRef> ReadOnlyFile::map() {
  if (size_ == 0)
    return llvm::StringRef();
  if (!mapping_) {
    void *mapping = ::mmap(nullptr, static_cast<size_t>(size_), PROT_READ, MAP_PRIVATE, descriptor_, 0);
    if (mapping == MAP_FAILED)
      return Error(std::string("cannot be mapped: ") + std::strerror(errno));
    mapping_ = mapping;
  }
  return llvm::StringRef(static_cast<const char *>(mapping_), static_cast<size_t>(size_));
}

} // namespace zerocc
