#pragma once

#include "runtime/data/mapped_file.h"

#include <cstdint>
#include <string>

namespace zerocc {

/// One field of a protobuf message as it lies in the file.
struct WireField {
  enum Type : uint8_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };
  uint32_t number = 0;
  Type type = varint;
  uint64_t value = 0; // varint
  Bytes payload;      // of bytes, fixed32, fixed64: without tag and length
  Bytes whole;        // tag and length included
};

/// Steps through the fields of a protobuf message without copying or trusting it. Groups are refused.
class WireReader {
public:
  explicit WireReader(Bytes message) : rest_(message) {}

  enum class Next : uint8_t { field, end, damaged };
  Next next(WireField &field);

private:
  Bytes rest_;
};

/// Takes one varint off the front of `bytes`; false when there is none.
bool takeVarint(Bytes &bytes, uint64_t &value);

void putVarint(std::string &out, uint64_t value);
void putTag(std::string &out, uint32_t number, WireField::Type type);
/// Tag and length of a field of `bytes` bytes.
void putLength(std::string &out, uint32_t number, uint64_t bytes);
void putBytes(std::string &out, uint32_t number, const std::string &bytes);

} // namespace zerocc
