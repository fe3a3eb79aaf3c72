#pragma once

#include "runtime/data/array.h"
#include "runtime/data/mapped_file.h"

namespace zerocc {

/// What a Megatron-LM index (FILE.idx) says of the tokens in FILE.bin.
struct MegatronIndex {
  ElementType type = ElementType::i32;
  int64_t tokens = 0, sequences = 0, documents = 0;
};

/// Reads an index, little-endian without padding (Megatron-LM, indexed_dataset.py):
///
///     char magic[9] = "MMIDIDX\0\0"; u64 version = 1; u8 dtype; u64 sequences; u64 documents + 1
///     i32 lengths[sequences]; i64 pointers[sequences] (bytes); i64 firstSequence[documents + 1]; [i8 modes[sequences]]
///
/// dtype: 1 u8, 2 i8, 3 i16, 4 i32, 5 i64, 8 u16, the same in all releases; 6 and 7 are floats (which is which has
/// changed) and no tokens. The whole index is checked against itself and against the size of FILE.bin: sequences lie one
/// behind the other and fill it.
Expected<MegatronIndex> parseMegatronIndex(Bytes index, int64_t binBytes);

} // namespace zerocc
