#pragma once

#include "runtime/data/array.h"
#include "runtime/data/atomic_file.h"
#include "runtime/data/mapped_file.h"

#include <map>

namespace zerocc {

/// NumPy's array file, versions 1 to 3: little-endian numbers and booleans in C order. Nothing else: no
/// objects (pickles run code), no strings, no records, no Fortran order. The view points into `file`.
Expected<ArrayView> parseNpy(Bytes file, std::shared_ptr<const void> owner);
Expected<ArrayView> readNpy(const std::string &path);

struct NpzLimits {
  /// A deflated array is inflated whole, in memory: larger ones are refused.
  int64_t inflatedBytes = int64_t(8) << 30;
  /// Stored arrays up to this size have their checksum verified; larger ones are read in parts, where used.
  int64_t checkedBytes = int64_t(16) << 20;
};

/// NumPy's archive: a zip of .npy files, stored (read in place) or deflated, zip64 too. Opening reads the
/// directory only; arrays are read when asked for.
class NpzFile {
public:
  static Expected<NpzFile> open(const std::string &path, const NpzLimits &limits = {});

  /// Names without ".npy", sorted. Members that are no .npy are not listed.
  std::vector<std::string> names() const;
  bool has(const std::string &name) const { return members_.count(name) != 0; }
  Expected<ArrayView> read(const std::string &name) const;
  const std::string &path() const { return file_->path(); }

private:
  struct Member {
    uint64_t offset = 0; // of the local header
    uint64_t packed = 0, size = 0;
    uint32_t checksum = 0;
    bool deflated = false;
  };
  Status readDirectory();
  Expected<ArrayView> readMember(const Member &member) const;

  std::shared_ptr<const MappedFile> file_;
  NpzLimits limits_;
  std::map<std::string, Member> members_;
};

/// The whole .npy header of an array, padded to 64 bytes.
std::string npyHeader(ElementType type, const std::vector<int64_t> &dims);
Status writeNpy(const std::string &path, const ArrayView &array);

/// Writes an archive with stored members, one after the other.
class NpzWriter {
public:
  static Expected<NpzWriter> create(const std::string &path);
  Status add(const std::string &name, const ArrayView &array);
  Status finish();

private:
  explicit NpzWriter(AtomicFile file) : file_(std::move(file)) {}

  AtomicFile file_;
  std::string directory_;
  uint64_t count_ = 0;
};

} // namespace zerocc
