#include "compiler/ir/text.h"

#include "llvm/ADT/StringSet.h"

#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

namespace zerocc {

bool isNameCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         llvm::StringRef("_./:#~-").contains(c);
}

bool isAllDigits(llvm::StringRef text) { return !text.empty() && text.find_first_not_of("0123456789") == text.npos; }

std::string quote(llvm::StringRef text) {
  static const char *digits = "0123456789abcdef";
  std::string out = "\"";
  for (unsigned char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c < 0x20 || c == 0x7f) {
      out += "\\x";
      out += digits[c >> 4];
      out += digits[c & 15];
    } else {
      out += static_cast<char>(c);
    }
  }
  return out + "\"";
}

std::string printName(char sigil, llvm::StringRef name) {
  bool bare = !name.empty() && llvm::all_of(name, isNameCharacter) && !(sigil == '%' && isAllDigits(name));
  return sigil + (bare ? name.str() : quote(name));
}

/// Shortest decimal text that reads back as the same float or double.
template <typename T> static std::string shortest(T value) {
  if (std::isnan(value))
    return "nan";
  if (std::isinf(value))
    return value < 0 ? "-inf" : "inf";
  char buffer[64];
  std::string text(buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr);
  return text.find_first_of(".e") == text.npos ? text + ".0" : text;
}

std::string printReal(double value) { return shortest(value); }

std::string printAttribute(const AttributeValue &value) {
  if (auto *integer = std::get_if<int64_t>(&value))
    return std::to_string(*integer);
  if (auto *real = std::get_if<double>(&value))
    return printReal(*real);
  if (auto *text = std::get_if<std::string>(&value))
    return quote(*text);
  std::string out = "[";
  for (int64_t element : std::get<std::vector<int64_t>>(value))
    out += (out.size() > 1 ? "," : "") + std::to_string(element);
  return out + "]";
}

/// Bits of a 16-bit float with so many mantissa bits, rounded to nearest even.
static uint16_t encodeHalf(double value, int mantissaBits) {
  const int bias = (1 << (14 - mantissaBits)) - 1;
  const int infinity = ((1 << (15 - mantissaBits)) - 1) << mantissaBits;
  const int sign = std::signbit(value) ? 0x8000 : 0;
  if (std::isnan(value))
    return static_cast<uint16_t>(sign | infinity | (1 << (mantissaBits - 1)));
  if (std::isinf(value))
    return static_cast<uint16_t>(sign | infinity);
  int exponent = 0;
  std::frexp(value, &exponent);
  exponent = std::max(exponent - 1, 1 - bias);
  if (exponent > bias)
    return static_cast<uint16_t>(sign | infinity);
  // The leading bit of the quotient raises the exponent field by one; subnormal values have none.
  auto quotient = static_cast<int>(std::nearbyint(std::ldexp(std::fabs(value), mantissaBits - exponent)));
  return static_cast<uint16_t>(sign | std::min(infinity, quotient + ((exponent + bias - 1) << mantissaBits)));
}

static float decodeHalf(uint16_t bits, int mantissaBits) {
  const int bias = (1 << (14 - mantissaBits)) - 1;
  const int mantissa = bits & ((1 << mantissaBits) - 1), exponent = (bits & 0x7fff) >> mantissaBits;
  float magnitude;
  if (exponent == (1 << (15 - mantissaBits)) - 1)
    magnitude = mantissa ? std::numeric_limits<float>::quiet_NaN() : std::numeric_limits<float>::infinity();
  else if (exponent == 0)
    magnitude = std::ldexp(static_cast<float>(mantissa), 1 - bias - mantissaBits);
  else
    magnitude = std::ldexp(static_cast<float>(mantissa + (1 << mantissaBits)), exponent - bias - mantissaBits);
  return bits & 0x8000 ? -magnitude : magnitude;
}

template <typename T> static std::string bytesOf(T value) {
  return std::string(reinterpret_cast<const char *>(&value), sizeof value);
}

template <typename T> static T valueOf(llvm::StringRef bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

std::string decodeElement(DType dtype, llvm::StringRef bytes) {
  switch (dtype) {
  case DType::f32:
    return shortest(valueOf<float>(bytes));
  case DType::f64:
    return shortest(valueOf<double>(bytes));
  case DType::f16:
    return shortest(decodeHalf(valueOf<uint16_t>(bytes), 10));
  case DType::bf16:
    return shortest(decodeHalf(valueOf<uint16_t>(bytes), 7));
  case DType::i64:
    return std::to_string(valueOf<int64_t>(bytes));
  case DType::i32:
    return std::to_string(valueOf<int32_t>(bytes));
  case DType::i8:
    return std::to_string(valueOf<int8_t>(bytes));
  case DType::u8:
    return std::to_string(valueOf<uint8_t>(bytes));
  case DType::boolean:
    return bytes[0] ? "true" : "false";
  }
  return "";
}

std::string encodeElement(DType dtype, double value) {
  switch (dtype) {
  case DType::f32:
    return bytesOf(static_cast<float>(value));
  case DType::f64:
    return bytesOf(value);
  case DType::f16:
    return bytesOf(encodeHalf(value, 10));
  case DType::bf16:
    return bytesOf(encodeHalf(value, 7));
  case DType::boolean:
    return bytesOf<uint8_t>(value != 0);
  default:
    return encodeElement(dtype, static_cast<int64_t>(value));
  }
}

std::string encodeElement(DType dtype, int64_t value) {
  switch (dtype) {
  case DType::i64:
    return bytesOf(value);
  case DType::i32:
    return bytesOf(static_cast<int32_t>(value));
  case DType::i8:
    return bytesOf(static_cast<int8_t>(value));
  case DType::u8:
    return bytesOf(static_cast<uint8_t>(value));
  case DType::boolean:
    return bytesOf<uint8_t>(value != 0);
  default:
    return encodeElement(dtype, static_cast<double>(value));
  }
}

ValueNames::ValueNames(const Graph &graph) {
  llvm::StringSet<> taken;
  llvm::StringMap<int> copies;
  int64_t number = 0;
  for (const Node *node : graph.nodes)
    for (const Value *result : node->results)
      if (!result->name.empty())
        taken.insert(result->name);
  llvm::StringSet<> used;
  for (const Node *node : graph.nodes) {
    for (const Value *result : node->results) {
      std::string name = result->name;
      if (name.empty()) {
        names_[result] = "%" + std::to_string(number++);
        continue;
      }
      // Only a repeated name is changed, and never into one that another value bears.
      if (!used.insert(name).second) {
        int &copy = copies.try_emplace(result->name, 1).first->second;
        do
          name = result->name + "~" + std::to_string(++copy);
        while (!taken.insert(name).second);
      }
      names_[result] = printName('%', name);
    }
  }
}

std::string ValueNames::operator()(const Value *value) const {
  if (!value)
    return "%?";
  if (value->isGlobal())
    return printName('@', value->name);
  auto found = names_.find(value);
  return found == names_.end() ? "%?" : found->second;
}

} // namespace zerocc
