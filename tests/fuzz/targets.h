#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace zerocc {

struct ArrayView;

/// One way into the program for bytes from outside. `run` must come back, whatever they are; `mutate` changes
/// input of this form in place so that much of it stays well-formed, and gives its new size.
struct FuzzTarget {
  const char *name;
  void (*run)(const uint8_t *data, size_t size);
  size_t (*mutate)(uint8_t *data, size_t size, size_t capacity, unsigned seed);
};

const std::vector<FuzzTarget> &fuzzTargets();

// fuzz_import.cpp: a serialized ModelProto, through loading, checks, inlining, folding and lowering.
void fuzzImport(const uint8_t *data, size_t size);
size_t mutateImport(uint8_t *data, size_t size, size_t capacity, unsigned seed);
// fuzz_plan.cpp: a serialized plan, through the verifier, and (with and without a right head) through the
// loader.
void fuzzPlan(const uint8_t *data, size_t size);
size_t mutatePlan(uint8_t *data, size_t size, size_t capacity, unsigned seed);
// fuzz_npy.cpp: a .npy file.
void fuzzNpy(const uint8_t *data, size_t size);
// fuzz_npz.cpp: an archive of such files, its checksums heeded and not.
void fuzzNpz(const uint8_t *data, size_t size);
// fuzz_pipe.cpp: what the command of a pipe: writes.
void fuzzPipe(const uint8_t *data, size_t size);
// fuzz_megatron.cpp: the size of a .bin (8 bytes), then its .idx.
void fuzzMegatron(const uint8_t *data, size_t size);
// fuzz_safetensors.cpp
void fuzzSafetensors(const uint8_t *data, size_t size);
size_t mutateSafetensors(uint8_t *data, size_t size, size_t capacity, unsigned seed);
// fuzz_checkpoint.cpp: the index of a checkpoint (without its checksum, and as a file).
void fuzzCheckpoint(const uint8_t *data, size_t size);
size_t mutateCheckpoint(uint8_t *data, size_t size, size_t capacity, unsigned seed);
// fuzz_ds_config.cpp: a DeepSpeed configuration.
void fuzzDsConfig(const uint8_t *data, size_t size);
size_t mutateDsConfig(uint8_t *data, size_t size, size_t capacity, unsigned seed);
/// Changes single bytes, copies and drops stretches.
size_t mutateBytes(uint8_t *data, size_t size, size_t capacity, unsigned seed);

/// Ends the program when a target's promise is broken: the fuzzer keeps the input.
void require(bool holds, const char *what);

/// Reads every byte of an array: under a sanitizer a view outside of its file shows.
unsigned touchArray(const ArrayView &array);

/// A file in memory that holds the bytes; its path is good until the next one.
std::string fileOf(const uint8_t *data, size_t size);

} // namespace zerocc
