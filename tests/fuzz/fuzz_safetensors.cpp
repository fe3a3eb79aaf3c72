#include "tests/fuzz/targets.h"

#include "runtime/weights/safetensors.h"

#include <cstring>

namespace zerocc {

void fuzzSafetensors(const uint8_t *data, size_t size) {
  auto file = SafetensorsFile::open(fileOf(data, size));
  if (!file)
    return;
  volatile unsigned sink = 0;
  for (const std::string &name : file->names()) {
    const ArrayView &array = *file->find(name);
    for (int64_t i = 0; i < *countElements(array.dims) * byteSize(array.type); ++i)
      sink = sink + array.data[i];
  }
}

/// The length in front is made right again most of the time, so that the header itself is reached.
size_t mutateSafetensors(uint8_t *data, size_t size, size_t capacity, unsigned seed) {
  if (size < 10 || seed % 8 == 0)
    return mutateBytes(data, size, capacity, seed);
  uint64_t length = 0;
  std::memcpy(&length, data, 8);
  const size_t before = size;
  const size_t header = std::min<uint64_t>(length, size - 8);
  const size_t changed = 8 + mutateBytes(data + 8, size - 8, capacity - 8, seed);
  const uint64_t now =
      header + changed > before ? header + changed - before : 0; // it grew or shrank in the header
  std::memcpy(data, &now, 8);
  return changed;
}

} // namespace zerocc
