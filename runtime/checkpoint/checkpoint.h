#pragma once

#include "runtime/checkpoint/files.h"
#include "runtime/checkpoint/index.h"

#include <memory>
#include <optional>

namespace zerocc {

/// A saved checkpoint, a folder NUMBER-step-STEP: its index is read and its files are there with the right sizes. What
/// is read is checked block by block. May be read from several threads, each with a cursor of its own.
class Checkpoint {
public:
  /// Reports everything that is missing or cut short, by name.
  static Expected<std::shared_ptr<const Checkpoint>> open(Files &files, const std::string &path);
  ~Checkpoint();
  Checkpoint(const Checkpoint &) = delete;

  const CheckpointIndex &index() const { return index_; }
  const std::string &path() const { return path_; }

  /// One checked block.
  class Cursor {
    friend class Checkpoint;
    std::vector<unsigned char> block_;
    int64_t file_ = -1, number_ = -1;
  };
  /// Elements [begin, end) of a tensor of the index to `target`, as `dtype`: floats are rounded to nearest.
  Status read(Cursor &cursor, const CheckpointTensor &tensor, int64_t begin, int64_t end, DType dtype,
              void *target) const;
  /// Reads all of it.
  Status verify() const;

private:
  Checkpoint(Files &files, std::string path) : files_(files), path_(std::move(path)) {}
  Status loadBlock(Cursor &cursor, int64_t file, int64_t number) const;
  Status readBytes(Cursor &cursor, int64_t file, int64_t offset, int64_t count, unsigned char *target) const;

  Files &files_;
  std::string path_;
  CheckpointIndex index_;
  std::vector<int> descriptors_;
};

/// Names of the checkpoints in a folder, in the order they were saved. Unfinished ones are none.
std::vector<std::string> listCheckpoints(Files &files, const std::string &folder);
/// The number a checkpoint's name begins with; 0: not such a name.
int64_t checkpointNumber(const std::string &name);

/// `path` itself when it is a checkpoint, else the last one in it.
Expected<std::string> findCheckpoint(Files &files, const std::string &path);
/// The path of the last one that can be read to its end, `except` left out, beside or in `path`.
std::optional<std::string> lastWholeCheckpoint(Files &files, const std::string &path, const std::string &except);

/// "PATH: WHAT: No space left on device", from a result of Files.
Error fileError(const std::string &path, const char *what, int64_t result);
/// A whole small file.
Expected<std::string> readSmallFile(Files &files, const std::string &path, int64_t most);
/// Writes all bytes, whatever a call takes.
Status writeAll(Files &files, int file, const std::string &path, const void *bytes, int64_t count);

} // namespace zerocc
