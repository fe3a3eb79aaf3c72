#include "tests/fuzz/targets.h"

#include "runtime/data/npy.h"

#include <memory>

namespace zerocc {

/// Reads every byte of an array: under a sanitizer a view outside the file shows.
static unsigned touch(const ArrayView &array) {
  unsigned sum = 0;
  if (auto count = countElements(array.dims))
    for (int64_t i = 0; i < *count * byteSize(array.type); ++i)
      sum += array.data[i];
  return sum;
}

void fuzzNpy(const uint8_t *data, size_t size) {
  volatile unsigned sink = 0;
  auto copy = std::make_shared<std::vector<unsigned char>>(data, data + size);
  if (auto array = parseNpy(Bytes(copy->data(), copy->size()), copy))
    sink = sink + touch(*array);
  NpzLimits limits;
  limits.inflatedBytes = 1 << 20;
  if (auto archive = NpzFile::open(fileOf(data, size), limits))
    for (const std::string &name : archive->names())
      if (auto array = archive->read(name))
        sink = sink + touch(*array);
}

} // namespace zerocc
