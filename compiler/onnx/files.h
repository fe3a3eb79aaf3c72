#pragma once

#include "compiler/support/expected.h"

#include "llvm/ADT/StringRef.h"

#include <cstdint>
#include <memory>
#include <string>

namespace zerocc {

/// What leads to a file that a model names: nothing but folders and the file itself, or links too.
enum class Links { refused, followed };
inline Links linksOf(bool followLinks) { return followLinks ? Links::followed : Links::refused; }

/// A regular file open for reading.
class ReadOnlyFile {
public:
  /// A file the user names: links are followed.
  static Expected<std::unique_ptr<ReadOnlyFile>> open(const std::string &path);
  /// A file that a model names: it must lie in `directory` or below, no link may lead there, and it has no second name
  /// (a hard link may be to a file from elsewhere). `directory` is the user's, so it may be a link itself.
  /// With Links::followed only the name is checked: it has no "..", but links may lead anywhere.
  static Expected<std::unique_ptr<ReadOnlyFile>> openBeneath(const std::string &directory, const std::string &relative,
                                                             Links links = Links::refused);
  ~ReadOnlyFile();
  ReadOnlyFile(const ReadOnlyFile &) = delete;

  int64_t size() const { return size_; }
  /// `length` bytes at `offset`; fails when the file ends before.
  Expected<std::string> read(int64_t offset, int64_t length) const;
  /// The whole file, mapped until this object ends.
  Expected<llvm::StringRef> map();

private:
  ReadOnlyFile(int descriptor, int64_t size) : descriptor_(descriptor), size_(size) {}
  static Expected<std::unique_ptr<ReadOnlyFile>> adopt(int descriptor, Links links);

  int descriptor_;
  int64_t size_;
  void *mapping_ = nullptr;
};

/// The directory part of a path, never empty.
std::string directoryOf(const std::string &path);

} // namespace zerocc
