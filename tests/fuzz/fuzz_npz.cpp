#include "tests/fuzz/targets.h"

#include "runtime/data/npy.h"

namespace zerocc {

void fuzzNpz(const uint8_t *data, size_t size) {
  const std::string path = fileOf(data, size);
  for (int64_t checkedBytes : {int64_t(1) << 20, int64_t(0)}) { // 0: what lies behind the checksum of a stored array
    NpzLimits limits;
    limits.inflatedBytes = 1 << 20;
    limits.checkedBytes = checkedBytes;
    auto archive = NpzFile::open(path, limits);
    if (!archive)
      return;
    volatile unsigned sink = 0;
    for (const std::string &name : archive->names())
      if (auto array = archive->read(name)) {
        require(countElements(array->dims) == array->elements, "an array whose dims do not count its elements");
        sink = sink + touchArray(*array);
      }
  }
}

} // namespace zerocc
