#include "compiler/ir/text.h"

#include "compiler/ops/interpreter.h"

#include "llvm/ADT/StringSet.h"

#include <charconv>
#include <cmath>

namespace zerocc {

bool isNameCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         llvm::StringRef("_./:#~-").contains(c);
}

bool isAllDigits(llvm::StringRef text) {
  return !text.empty() && text.find_first_not_of("0123456789") == text.npos;
}

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

std::string decodeElement(DType dtype, llvm::StringRef bytes) {
  const HostTensor tensor = HostTensor::fromBytes({dtype, {}}, bytes);
  if (dtype == DType::f64)
    return shortest(tensor.reals[0]);
  if (isFloat(dtype)) // every half is a float, so the text that tells floats apart tells halves apart
    return shortest(static_cast<float>(tensor.reals[0]));
  if (dtype == DType::boolean)
    return tensor.integers[0] ? "true" : "false";
  return std::to_string(tensor.integers[0]);
}

std::string encodeElement(DType dtype, double value) {
  if (!isFloat(dtype))
    return encodeElement(dtype, static_cast<int64_t>(value));
  return HostTensor::real({dtype, {}}, {value}).toBytes();
}

std::string encodeElement(DType dtype, int64_t value) {
  if (isFloat(dtype))
    return encodeElement(dtype, static_cast<double>(value));
  return HostTensor::integer({dtype, {}}, {value}).toBytes();
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
      if (names_.count(result)) // of a node that stands twice, which the structural check will say
        continue;
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
