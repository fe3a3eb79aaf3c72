#include "runtime/data/pipe_frame.h"

#include <algorithm>
#include <cstring>

namespace zerocc {
namespace {

constexpr char kMagic[4] = {'Z', 'P', 'I', 'P'};
constexpr uint32_t kVersion = 1;
constexpr int64_t kMostArrays = 256, kMostRank = 8, kMostNameBytes = 1024, kMostPayloadBytes = int64_t(1) << 40;

struct TypeCode {
  char code[3];
  ElementType type;
};
constexpr TypeCode kTypes[] = {{"f2", ElementType::f16}, {"bf", ElementType::bf16}, {"f4", ElementType::f32},
                               {"f8", ElementType::f64}, {"i1", ElementType::i8},   {"i2", ElementType::i16},
                               {"i4", ElementType::i32}, {"i8", ElementType::i64},  {"u1", ElementType::u8},
                               {"u2", ElementType::u16}, {"u4", ElementType::u32},  {"u8", ElementType::u64},
                               {"b1", ElementType::boolean}};

template <typename T> T valueAt(Bytes bytes, int64_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

template <typename T> void append(std::string &out, T value) {
  out.append(reinterpret_cast<const char *>(&value), sizeof value);
}

std::string beyond(const std::string &what, uint64_t value, int64_t least, int64_t most) {
  return "its " + what + " is " + std::to_string(value) + ", " + std::to_string(least) + " to " + std::to_string(most) +
         " are allowed";
}

/// Walks through the header behind the head; every read is checked against its end.
class HeaderReader {
public:
  explicit HeaderReader(Bytes header) : header_(header) {}

  template <typename T> bool read(T &value) {
    if (left() < static_cast<int64_t>(sizeof value))
      return false;
    value = valueAt<T>(header_, at_);
    at_ += sizeof value;
    return true;
  }
  bool read(std::string &text, int64_t bytes) {
    if (left() < bytes)
      return false;
    text.assign(reinterpret_cast<const char *>(header_.data()) + at_, static_cast<size_t>(bytes));
    at_ += bytes;
    return true;
  }
  int64_t left() const { return static_cast<int64_t>(header_.size()) - at_; }

private:
  Bytes header_;
  int64_t at_ = PipeHead::kBytes;
};

Expected<PipeArray> readArray(HeaderReader &reader, int64_t index) {
  const std::string who = "array " + std::to_string(index);
  const Error cut(who + " reaches beyond the end of the header", "headerBytes counts all before the payload");
  char kind = 0, size = 0;
  uint16_t nameBytes = 0;
  uint32_t rank = 0;
  if (!reader.read(kind) || !reader.read(size) || !reader.read(nameBytes) || !reader.read(rank))
    return cut;
  PipeArray array;
  const auto *type = std::ranges::find_if(kTypes, [&](const TypeCode &known) { return kind == known.code[0] && size == known.code[1]; });
  if (type == std::end(kTypes))
    return Error(who + " has type \"" + std::string{kind, size} + "\"", "types are f2 bf f4 f8 i1 i2 i4 i8 u1 u2 u4 u8 b1");
  array.type = type->type;
  if (rank < 1 || rank > kMostRank)
    return Error(who + ": " + beyond("rank", rank, 1, kMostRank));
  if (nameBytes < 1 || nameBytes > kMostNameBytes)
    return Error(who + ": " + beyond("nameBytes", nameBytes, 1, kMostNameBytes));
  uint64_t bytes = 0;
  for (uint32_t d = 0; d < rank; ++d)
    if (int64_t dim = 0; reader.read(dim))
      array.dims.push_back(dim);
    else
      return cut;
  if (!reader.read(bytes) || !reader.read(array.name, nameBytes))
    return cut;
  const std::optional<int64_t> elements = countElements(array.dims);
  if (!elements)
    return Error(who + ", \"" + array.name + "\", has impossible dims " + dimsText(array.dims));
  array.elements = *elements;
  if (bytes != static_cast<uint64_t>(array.bytes()))
    return Error(who + ", \"" + array.name + "\", says " + std::to_string(bytes) + " bytes; " +
                 std::string(elementTypeName(array.type)) + dimsText(array.dims) + " has " + std::to_string(array.bytes()));
  return array;
}

} // namespace

int64_t PipeFrame::payloadBytes() const {
  int64_t bytes = 0;
  for (const PipeArray &array : arrays)
    bytes += array.bytes();
  return bytes;
}

bool isPipeToken(std::string_view token) {
  return token.size() <= PipeHead::kMostTokenBytes && std::ranges::all_of(token, [](char c) { return c >= ' ' && c <= '~'; });
}

Expected<PipeHead> parsePipeHead(Bytes bytes) {
  if (bytes.size() < PipeHead::kBytes || std::memcmp(bytes.data(), kMagic, sizeof kMagic) != 0)
    return Error("does not begin with ZPIP",
                 "standard output is for frames alone; what is to be read by people goes to standard error");
  if (const auto version = valueAt<uint32_t>(bytes, 4); version != kVersion)
    return Error("is of version " + std::to_string(version) + ", we read " + std::to_string(kVersion));
  const auto headerBytes = valueAt<uint32_t>(bytes, 8), arrays = valueAt<uint32_t>(bytes, 12),
             tokenBytes = valueAt<uint32_t>(bytes, 16), zero = valueAt<uint32_t>(bytes, 20);
  const auto payloadBytes = valueAt<uint64_t>(bytes, 32);
  if (headerBytes < PipeHead::kBytes || headerBytes > PipeHead::kMostHeaderBytes)
    return Error(beyond("headerBytes", headerBytes, PipeHead::kBytes, PipeHead::kMostHeaderBytes));
  if (arrays < 1 || arrays > kMostArrays)
    return Error(beyond("number of arrays", arrays, 1, kMostArrays));
  if (tokenBytes > PipeHead::kMostTokenBytes)
    return Error(beyond("tokenBytes", tokenBytes, 0, PipeHead::kMostTokenBytes));
  if (zero != 0)
    return Error("has " + std::to_string(zero) + " where there must be 0");
  if (payloadBytes > kMostPayloadBytes)
    return Error(beyond("payloadBytes", payloadBytes, 0, kMostPayloadBytes));
  return PipeHead{headerBytes, arrays, tokenBytes, valueAt<uint64_t>(bytes, 24), static_cast<int64_t>(payloadBytes)};
}

Expected<PipeFrame> parsePipeFrame(Bytes header) {
  ZEROCC_ASSIGN(PipeHead head, parsePipeHead(header));
  if (static_cast<int64_t>(header.size()) != head.headerBytes)
    return Error("its headerBytes is " + std::to_string(head.headerBytes) + ", there are " + std::to_string(header.size()));
  PipeFrame frame;
  frame.number = head.number;
  HeaderReader reader(header);
  int64_t payload = 0;
  for (int64_t i = 0; i < head.arrays; ++i) {
    ZEROCC_ASSIGN(PipeArray array, readArray(reader, i));
    for (const PipeArray &other : frame.arrays)
      if (other.name == array.name)
        return Error("array \"" + array.name + "\" is there twice");
    if (array.bytes() > kMostPayloadBytes - payload)
      return Error("its arrays have more than " + std::to_string(kMostPayloadBytes) + " bytes");
    payload += array.bytes();
    frame.arrays.push_back(std::move(array));
  }
  if (payload != head.payloadBytes)
    return Error("its payloadBytes is " + std::to_string(head.payloadBytes) + ", its arrays have " + std::to_string(payload));
  if (reader.left() != head.tokenBytes || !reader.read(frame.token, head.tokenBytes))
    return Error("its token has " + std::to_string(head.tokenBytes) + " bytes, the header has room for " +
                     std::to_string(reader.left()),
                 "headerBytes counts all before the payload");
  if (!isPipeToken(frame.token))
    return Error("its token holds what is not printable ASCII", "write it in hex or base64");
  return frame;
}

std::string pipeFrameHeader(const PipeFrame &frame) {
  std::string arrays;
  for (const PipeArray &array : frame.arrays) {
    const auto *type = std::ranges::find_if(kTypes, [&](const TypeCode &known) { return array.type == known.type; });
    arrays.append(type->code, 2);
    append(arrays, static_cast<uint16_t>(array.name.size()));
    append(arrays, static_cast<uint32_t>(array.dims.size()));
    for (int64_t dim : array.dims)
      append(arrays, dim);
    append(arrays, static_cast<uint64_t>(array.bytes()));
    arrays += array.name;
  }
  std::string header(kMagic, sizeof kMagic);
  append(header, kVersion);
  append(header, static_cast<uint32_t>(PipeHead::kBytes + arrays.size() + frame.token.size()));
  append(header, static_cast<uint32_t>(frame.arrays.size()));
  append(header, static_cast<uint32_t>(frame.token.size()));
  append(header, uint32_t(0));
  append(header, frame.number);
  append(header, static_cast<uint64_t>(frame.payloadBytes()));
  return header + arrays + frame.token;
}

} // namespace zerocc
