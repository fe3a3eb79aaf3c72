#include "tests/fuzz/targets.h"

#include "runtime/data/megatron.h"

#include <cstdlib>
#include <cstring>

namespace zerocc {

void fuzzMegatron(const uint8_t *data, size_t size) {
  if (size < 8)
    return;
  int64_t binBytes = 0;
  std::memcpy(&binBytes, data, 8);
  if (binBytes < 0)
    return;
  auto index = parseMegatronIndex(Bytes(data + 8, size - 8), binBytes);
  if (index && index->tokens * byteSize(index->type) != binBytes) // a view of the tokens would leave the file
    std::abort();
}

} // namespace zerocc
