#include "tests/fuzz/targets.h"

#include "runtime/checkpoint/checkpoint.h"

#include <cstring>
#include <random>
#include <string>

namespace zerocc {

/// What is accepted can be followed: every piece lies in its file, the pieces are the tensor, and the same index is written
/// and read again.
void fuzzCheckpoint(const uint8_t *data, size_t size) {
  const std::string text(reinterpret_cast<const char *>(data), size);
  (void)parseIndex(text, "fuzz");
  auto index = parseIndexBody(text, "fuzz");
  if (!index)
    return;
  for (const CheckpointTensor &tensor : index->tensors) {
    int64_t elements = 1, at = 0;
    for (int64_t dim : tensor.dims)
      elements *= dim;
    for (const CheckpointPiece &piece : tensor.pieces) {
      require(piece.file >= 0 && piece.file < static_cast<int64_t>(index->files.size()), "a piece without a file");
      const CheckpointFile &file = index->files[piece.file];
      const int64_t last = piece.offset + (piece.end - piece.begin) * byteSize(tensor.dtype);
      require(piece.offset >= 0 && last <= file.bytes, "a piece outside of its file");
      require(last == 0 || static_cast<size_t>((last - 1) / kChecksumBlockBytes) < file.checksums.size(),
              "bytes without a checksum");
      require(piece.begin == at && piece.end > at, "a hole");
      at = piece.end;
    }
    require(at == elements, "elements without a piece");
    require(index->find(tensor.name) == &tensor, "a tensor that is not found");
  }
  const std::string written = writeIndex(*index);
  auto again = parseIndex(written, "again");
  require(static_cast<bool>(again), "what was written is not read");
  require(writeIndex(*again) == written, "what is read is written otherwise");
}

/// Numbers become other numbers, so that the JSON stays whole most of the time.
size_t mutateCheckpoint(uint8_t *data, size_t size, size_t capacity, unsigned seed) {
  std::minstd_rand random(seed + 7);
  std::string text(reinterpret_cast<const char *>(data), size);
  if (seed % 3 == 0 || text.find_first_of("0123456789") == std::string::npos)
    return mutateBytes(data, size, capacity, seed);
  for (unsigned i = 0, changes = 1 + random() % 3; i < changes; ++i) {
    size_t begin = text.find_first_of("0123456789", random() % (text.size() + 1));
    if (begin == std::string::npos)
      continue;
    const size_t end = std::min(text.find_first_not_of("0123456789", begin), text.size());
    const char *numbers[] = {"0", "1", "2", "7", "64", "1048576", "1048577", "9223372036854775807", "4611686018427387904", "-1", "1e3"};
    text.replace(begin, end - begin, numbers[random() % std::size(numbers)]);
  }
  if (text.size() > capacity)
    return mutateBytes(data, size, capacity, seed);
  std::memcpy(data, text.data(), text.size());
  return text.size();
}

} // namespace zerocc
