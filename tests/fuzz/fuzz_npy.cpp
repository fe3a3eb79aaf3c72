#include "tests/fuzz/targets.h"

#include "runtime/data/npy.h"

#include <memory>

namespace zerocc {

unsigned touchArray(const ArrayView &array) {
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
    sink = sink + touchArray(*array);
}

} // namespace zerocc
