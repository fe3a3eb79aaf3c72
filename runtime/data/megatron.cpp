#include "runtime/data/megatron.h"

#include <cstring>

namespace zerocc {
namespace {

constexpr char kMagic[] = "MMIDIDX\0"; // and the literal's own zero: 9 bytes
constexpr char kOldMagic[] = "TNTIDX\0";
constexpr int64_t kHeaderBytes = sizeof kMagic + 8 + 1 + 8 + 8;

template <typename T> T valueAt(const unsigned char *base, int64_t index) {
  T value;
  std::memcpy(&value, base + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

std::optional<ElementType> tokenType(uint8_t code) {
  switch (code) {
  case 1:
    return ElementType::u8;
  case 2:
    return ElementType::i8;
  case 3:
    return ElementType::i16;
  case 4:
    return ElementType::i32;
  case 5:
    return ElementType::i64;
  case 8:
    return ElementType::u16;
  default:
    return std::nullopt;
  }
}

} // namespace

Expected<MegatronIndex> parseMegatronIndex(Bytes index, int64_t binBytes) {
  const auto size = static_cast<int64_t>(index.size());
  if (size >= static_cast<int64_t>(sizeof kOldMagic) && std::memcmp(index.data(), kOldMagic, sizeof kOldMagic) == 0)
    return Error("is an index of the kind before Megatron's own (TNTIDX)",
                 "prepare the data with --dataset-impl mmap");
  if (size < kHeaderBytes || std::memcmp(index.data(), kMagic, sizeof kMagic) != 0)
    return Error("is no Megatron index: it does not begin with MMIDIDX", "rename it if the .bin is not Megatron's");
  const unsigned char *header = index.data() + sizeof kMagic;
  if (uint64_t version = valueAt<uint64_t>(header, 0); version != 1)
    return Error("is a Megatron index of version " + std::to_string(version) + ", we read 1");
  const uint8_t code = header[8];
  const std::optional<ElementType> type = tokenType(code);
  if (!type)
    return Error("holds elements of dtype code " + std::to_string(code) + ", which are no tokens",
                 "codes 1 to 5 and 8 are whole numbers");
  const auto sequences = valueAt<uint64_t>(header + 9, 0), bounds = valueAt<uint64_t>(header + 9, 1);
  const auto left = static_cast<uint64_t>(size - kHeaderBytes);
  if (sequences > left / 12 || bounds > left / 8 || bounds < 1 ||
      (sequences * 12 + bounds * 8 != left && sequences * 13 + bounds * 8 != left))
    return Error("its header says " + std::to_string(sequences) + " sequences and " + std::to_string(bounds) +
                     " document bounds, which do not fill its " + std::to_string(size) + " bytes",
                 "the file was cut off or appended to: prepare it again");
  MegatronIndex result;
  result.type = *type;
  result.sequences = static_cast<int64_t>(sequences);
  result.documents = static_cast<int64_t>(bounds) - 1;
  const unsigned char *lengths = index.data() + kHeaderBytes, *pointers = lengths + sequences * 4,
                      *documents = pointers + sequences * 8;
  const int64_t tokenBytes = byteSize(*type), most = binBytes / tokenBytes;
  for (int64_t i = 0; i < result.sequences; ++i) {
    const int64_t length = valueAt<int32_t>(lengths, i), pointer = valueAt<int64_t>(pointers, i);
    if (length < 0 || length > most - result.tokens)
      return Error("sequence " + std::to_string(i) + " has " + std::to_string(length) +
                   " tokens, which do not fit in the .bin's " + std::to_string(binBytes) + " bytes");
    if (pointer != result.tokens * tokenBytes)
      return Error("sequence " + std::to_string(i) + " begins at byte " + std::to_string(pointer) + ", the one before ends at " +
                   std::to_string(result.tokens * tokenBytes));
    result.tokens += length;
  }
  if (result.tokens * tokenBytes != binBytes)
    return Error("its sequences hold " + std::to_string(result.tokens) + " tokens, " +
                     std::to_string(result.tokens * tokenBytes) + " bytes; the .bin has " + std::to_string(binBytes),
                 "the two files are not of one data set, or one was cut off");
  int64_t before = 0;
  for (int64_t d = 0; d <= result.documents; ++d) {
    const int64_t first = valueAt<int64_t>(documents, d);
    if (first < before || first > result.sequences || (d == 0 && first != 0) ||
        (d == result.documents && first != result.sequences))
      return Error("document bound " + std::to_string(d) + " is " + std::to_string(first) + ", behind " +
                   std::to_string(before) + " there are " + std::to_string(result.sequences) + " sequences");
    before = first;
  }
  return result;
}

} // namespace zerocc
