#include "runtime/weights/wire.h"

namespace zerocc {

bool takeVarint(Bytes &bytes, uint64_t &value) {
  value = 0;
  for (size_t i = 0; i < bytes.size() && i < 10; ++i) {
    value |= uint64_t(bytes[i] & 0x7f) << (7 * i);
    if (bytes[i] < 0x80) {
      if (i == 9 && bytes[i] > 1) // beyond 64 bits
        return false;
      bytes = bytes.subspan(i + 1);
      return true;
    }
  }
  return false;
}

WireReader::Next WireReader::next(WireField &field) {
  if (rest_.empty())
    return Next::end;
  Bytes start = rest_;
  uint64_t tag;
  if (!takeVarint(rest_, tag) || tag >> 3 == 0 || tag >> 3 > 0x1fffffff)
    return Next::damaged;
  field.number = static_cast<uint32_t>(tag >> 3);
  field.type = static_cast<WireField::Type>(tag & 7);
  field.payload = {};
  field.value = 0;
  uint64_t length = 0;
  switch (tag & 7) {
  case WireField::varint:
    if (!takeVarint(rest_, field.value))
      return Next::damaged;
    break;
  case WireField::fixed64:
    length = 8;
    break;
  case WireField::fixed32:
    length = 4;
    break;
  case WireField::bytes:
    if (!takeVarint(rest_, length))
      return Next::damaged;
    break;
  default:
    return Next::damaged;
  }
  if (length > rest_.size())
    return Next::damaged;
  field.payload = rest_.first(length);
  rest_ = rest_.subspan(length);
  field.whole = start.first(start.size() - rest_.size());
  return Next::field;
}

void putVarint(std::string &out, uint64_t value) {
  while (value >= 0x80) {
    out += static_cast<char>(value | 0x80);
    value >>= 7;
  }
  out += static_cast<char>(value);
}

void putTag(std::string &out, uint32_t number, WireField::Type type) { putVarint(out, number << 3 | type); }

void putLength(std::string &out, uint32_t number, uint64_t bytes) {
  putTag(out, number, WireField::bytes);
  putVarint(out, bytes);
}

void putBytes(std::string &out, uint32_t number, const std::string &bytes) {
  putLength(out, number, bytes.size());
  out += bytes;
}

} // namespace zerocc
