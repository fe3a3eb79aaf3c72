// A libFuzzer program of one target: ZEROCC_FUZZ_TARGET names it.

#include "tests/fuzz/targets.h"

#include <cstring>

static const zerocc::FuzzTarget &target() {
  for (const zerocc::FuzzTarget &candidate : zerocc::fuzzTargets())
    if (std::strcmp(candidate.name, ZEROCC_FUZZ_TARGET) == 0)
      return candidate;
  __builtin_trap();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  target().run(data, size);
  return 0;
}

extern "C" size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t capacity);

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t capacity, unsigned seed) {
  return seed % 3 == 0 ? LLVMFuzzerMutate(data, size, capacity) : target().mutate(data, size, capacity, seed);
}
