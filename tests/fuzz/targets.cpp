#include "tests/fuzz/targets.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <sys/mman.h>
#include <unistd.h>

namespace zerocc {

const std::vector<FuzzTarget> &fuzzTargets() {
  static const std::vector<FuzzTarget> targets = {{"import", fuzzImport, mutateImport},
                                                  {"plan", fuzzPlan, mutatePlan},
                                                  {"npy", fuzzNpy, mutateBytes},
                                                  {"npz", fuzzNpz, mutateBytes},
                                                  {"pipe", fuzzPipe, mutateBytes},
                                                  {"megatron", fuzzMegatron, mutateBytes},
                                                  {"safetensors", fuzzSafetensors, mutateSafetensors},
                                                  {"checkpoint", fuzzCheckpoint, mutateCheckpoint},
                                                  {"ds_config", fuzzDsConfig, mutateDsConfig}};
  return targets;
}

std::string fileOf(const uint8_t *data, size_t size) {
  static int descriptor = memfd_create("fuzz", 0);
  if (descriptor < 0 || ftruncate(descriptor, 0) != 0 ||
      pwrite(descriptor, data, size, 0) != static_cast<ssize_t>(size))
    std::abort();
  return "/proc/self/fd/" + std::to_string(descriptor);
}

size_t mutateBytes(uint8_t *data, size_t size, size_t capacity, unsigned seed) {
  std::minstd_rand random(seed);
  const size_t changes = 1 + random() % 4;
  for (size_t i = 0; i < changes; ++i) {
    if (size == 0 && capacity > 0)
      data[size++] = static_cast<uint8_t>(random());
    if (size == 0)
      return 0;
    const size_t at = random() % size, length = 1 + random() % 8;
    switch (random() % 5) {
    case 0:
      data[at] = static_cast<uint8_t>(random());
      break;
    case 1:
      data[at] ^= static_cast<uint8_t>(1u << random() % 8);
      break;
    case 2: { // an extreme number
      const uint64_t numbers[] = {0, ~uint64_t(0), uint64_t(1) << 63, uint64_t(1) << 31, 0x7fffffffffffffff};
      const uint64_t number = numbers[random() % 5];
      std::memcpy(data + at, &number, std::min<size_t>(8, size - at));
      break;
    }
    case 3: // drop
      if (at + length < size) {
        std::memmove(data + at, data + at + length, size - at - length);
        size -= length;
      }
      break;
    default: // repeat
      if (size + length <= capacity && at + length <= size) {
        std::memmove(data + at + length, data + at, size - at);
        size += length;
      }
    }
  }
  return size;
}

void require(bool holds, const char *what) {
  if (holds)
    return;
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

} // namespace zerocc
