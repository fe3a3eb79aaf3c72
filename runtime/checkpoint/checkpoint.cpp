#include "runtime/checkpoint/checkpoint.h"

#include "runtime/data/array.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

namespace zerocc {

constexpr int64_t kMostIndexBytes = int64_t(1) << 30;

Error fileError(const std::string &path, const char *what, int64_t result) {
  return Error(path + ": " + what + ": " + std::generic_category().message(static_cast<int>(-result)));
}

Status writeAll(Files &files, int file, const std::string &path, const void *bytes, int64_t count) {
  for (const char *at = static_cast<const char *>(bytes); count > 0;) {
    const int64_t taken = files.write(file, at, count);
    if (taken == -EINTR)
      continue;
    if (taken <= 0)
      return fileError(path, "cannot be written", taken == 0 ? -ENOSPC : taken);
    at += taken;
    count -= taken;
  }
  return success();
}

/// `count` bytes or an error.
static Status readFully(Files &files, int file, const std::string &path, unsigned char *target, int64_t count,
                        int64_t offset) {
  while (count > 0) {
    const int64_t got = files.readAt(file, target, count, offset);
    if (got == -EINTR)
      continue;
    if (got < 0)
      return fileError(path, "cannot be read", got);
    if (got == 0)
      return Error(path + ": has become shorter while it was read");
    target += got;
    offset += got;
    count -= got;
  }
  return success();
}

Expected<std::string> readSmallFile(Files &files, const std::string &path, int64_t most) {
  const int file = files.open(path);
  if (file == -ENOENT)
    return Error(path + ": is missing");
  if (file < 0)
    return fileError(path, "cannot be read", file);
  const int64_t size = files.size(file);
  std::string text;
  Status status = success();
  if (size < 0)
    status = fileError(path, "cannot be read", size);
  else if (size > most)
    status = Error(path + ": is " + std::to_string(size) + " bytes long, at most " + std::to_string(most) +
                   " are read");
  if (status) {
    text.resize(static_cast<size_t>(size));
    status = readFully(files, file, path, reinterpret_cast<unsigned char *>(text.data()), size, 0);
  }
  files.close(file);
  return status ? Expected<std::string>(std::move(text)) : status.error();
}

// --- one checkpoint

Expected<std::shared_ptr<const Checkpoint>> Checkpoint::open(Files &files, const std::string &path) {
  std::shared_ptr<Checkpoint> checkpoint(new Checkpoint(files, path));
  const std::string indexPath = path + "/" + kIndexName;
  ZEROCC_ASSIGN(std::string text, readSmallFile(files, indexPath, kMostIndexBytes));
  ZEROCC_ASSIGN(checkpoint->index_, parseIndex(text, indexPath));
  std::vector<Diagnostic> findings;
  for (const CheckpointFile &file : checkpoint->index_.files) {
    const std::string name = path + "/" + file.name;
    const int descriptor = files.open(name);
    checkpoint->descriptors_.push_back(descriptor);
    if (descriptor == -ENOENT) {
      findings.push_back({name + ": is missing", ""});
      continue;
    }
    const int64_t size = descriptor < 0 ? descriptor : files.size(descriptor);
    if (size < 0)
      findings.push_back(fileError(name, "cannot be read", size).findings().front());
    else if (size != file.bytes)
      findings.push_back({name + ": is cut short or was changed: it has " + std::to_string(size) + " bytes, " +
                              std::to_string(file.bytes) + " were saved",
                          ""});
  }
  if (!findings.empty())
    return Error(std::move(findings));
  return std::shared_ptr<const Checkpoint>(std::move(checkpoint));
}

Checkpoint::~Checkpoint() {
  for (int descriptor : descriptors_)
    if (descriptor >= 0)
      files_.close(descriptor);
}

Status Checkpoint::loadBlock(Cursor &cursor, int64_t file, int64_t number) const {
  if (cursor.file_ == file && cursor.number_ == number)
    return success();
  const CheckpointFile &entry = index_.files[file];
  const std::string name = path_ + "/" + entry.name;
  const int64_t offset = number * kChecksumBlockBytes, bytes = std::min(kChecksumBlockBytes, entry.bytes - offset);
  cursor.file_ = -1;
  cursor.block_.resize(static_cast<size_t>(bytes));
  ZEROCC_TRY(readFully(files_, descriptors_[file], name, cursor.block_.data(), bytes, offset));
  const uint64_t sum = blockChecksum(cursor.block_.data(), bytes);
  if (sum != entry.checksums[number])
    return Error(name + ": is damaged between byte " + std::to_string(offset) + " and " +
                 std::to_string(offset + bytes) + ": the checksum there is " + hex16(sum) + ", " +
                 hex16(entry.checksums[number]) + " was saved");
  cursor.file_ = file;
  cursor.number_ = number;
  return success();
}

Status Checkpoint::readBytes(Cursor &cursor, int64_t file, int64_t offset, int64_t count,
                             unsigned char *target) const {
  while (count > 0) {
    const int64_t number = offset / kChecksumBlockBytes, inside = offset % kChecksumBlockBytes;
    ZEROCC_TRY(loadBlock(cursor, file, number));
    const int64_t bytes = std::min(count, static_cast<int64_t>(cursor.block_.size()) - inside);
    std::memcpy(target, cursor.block_.data() + inside, static_cast<size_t>(bytes));
    target += bytes;
    offset += bytes;
    count -= bytes;
  }
  return success();
}

Status Checkpoint::read(Cursor &cursor, const CheckpointTensor &tensor, int64_t begin, int64_t end, DType dtype,
                        void *target) const {
  const ElementType type = elementType(tensor.dtype);
  if (tensor.dtype != dtype && !isConvertible(type, dtype))
    return Error(path_ + ": tensor \"" + tensor.name + "\" is " + std::string(dtypeName(tensor.dtype)) +
                 ", the plan keeps it as " + std::string(dtypeName(dtype)));
  auto piece = std::upper_bound(tensor.pieces.begin(), tensor.pieces.end(), begin,
                                [](int64_t element, const CheckpointPiece &each) { return element < each.end; });
  const int64_t size = byteSize(tensor.dtype);
  constexpr int64_t kChunk = 4096; // elements converted at once
  unsigned char chunk[kChunk * 8];
  auto *to = static_cast<unsigned char *>(target);
  for (int64_t at = begin; at < end; ++piece) {
    const int64_t last = std::min(end, piece->end);
    int64_t offset = piece->offset + (at - piece->begin) * size;
    if (tensor.dtype == dtype) {
      ZEROCC_TRY(readBytes(cursor, piece->file, offset, (last - at) * size, to));
      to += (last - at) * size;
      at = last;
      continue;
    }
    while (at < last) {
      const int64_t count = std::min(kChunk, last - at);
      ZEROCC_TRY(readBytes(cursor, piece->file, offset, count * size, chunk));
      if (convert(type, chunk, count, dtype, to) >= 0)
        return Error(path_ + ": tensor \"" + tensor.name + "\" has a value that " + std::string(dtypeName(dtype)) +
                     " does not hold");
      at += count;
      offset += count * size;
      to += count * byteSize(dtype);
    }
  }
  return success();
}

Status Checkpoint::verify() const {
  Cursor cursor;
  for (size_t file = 0; file < index_.files.size(); ++file)
    for (size_t number = 0; number < index_.files[file].checksums.size(); ++number)
      ZEROCC_TRY(loadBlock(cursor, static_cast<int64_t>(file), static_cast<int64_t>(number)));
  return success();
}

// --- a folder of them

int64_t checkpointNumber(const std::string &name) {
  const std::string middle = "-step-";
  const size_t dash = name.find(middle);
  auto isNumber = [](const std::string &text) {
    return !text.empty() && text.size() < 18 && text.find_first_not_of("0123456789") == std::string::npos;
  };
  if (dash == std::string::npos || !isNumber(name.substr(0, dash)) || !isNumber(name.substr(dash + middle.size())))
    return 0;
  return std::stoll(name.substr(0, dash));
}

std::vector<std::string> listCheckpoints(Files &files, const std::string &folder) {
  std::vector<std::string> names, found;
  if (files.list(folder, names) < 0)
    return {};
  for (const std::string &name : names)
    if (checkpointNumber(name) > 0)
      found.push_back(name);
  std::stable_sort(found.begin(), found.end(), [](const std::string &a, const std::string &b) {
    return checkpointNumber(a) < checkpointNumber(b);
  });
  return found;
}

static std::string withoutSlash(std::string path) {
  while (path.size() > 1 && path.back() == '/')
    path.pop_back();
  return path;
}

Expected<std::string> findCheckpoint(Files &files, const std::string &given) {
  const std::string path = withoutSlash(given);
  std::vector<std::string> names;
  const int listed = files.list(path, names);
  if (listed < 0)
    return fileError(path, "cannot be read", listed);
  const std::string own = path.substr(path.rfind('/') + 1);
  if (checkpointNumber(own) > 0 || std::count(names.begin(), names.end(), kIndexName))
    return path;
  std::vector<std::string> checkpoints = listCheckpoints(files, path);
  if (checkpoints.empty())
    return Error(path + ": holds no checkpoint", "checkpoints are written by zero-run --save DIR");
  return path + "/" + checkpoints.back();
}

std::optional<std::string> lastWholeCheckpoint(Files &files, const std::string &given, const std::string &except) {
  const std::string path = withoutSlash(given);
  const size_t slash = path.rfind('/');
  const std::string folder = checkpointNumber(path.substr(slash + 1)) == 0 ? path
                             : slash == std::string::npos                  ? "."
                                                                           : path.substr(0, slash);
  std::vector<std::string> checkpoints = listCheckpoints(files, folder);
  for (auto name = checkpoints.rbegin(); name != checkpoints.rend(); ++name) {
    const std::string candidate = folder + "/" + *name;
    if (candidate == except || *name == except)
      continue;
    auto checkpoint = Checkpoint::open(files, candidate);
    if (checkpoint && (*checkpoint)->verify())
      return candidate;
  }
  return std::nullopt;
}

} // namespace zerocc
