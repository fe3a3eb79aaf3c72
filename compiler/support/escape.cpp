#include "compiler/support/escape_json.h"
#include "compiler/support/expected.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>

namespace zerocc {

/// Length of the UTF-8 character at `at`, and what it is; 0 where there is none.
static size_t characterAt(const std::string &text, size_t at, uint32_t &character) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const unsigned char first = byte(0);
  const size_t length = first < 0x80                    ? 1
                        : first >= 0xc2 && first < 0xe0 ? 2
                        : first >= 0xe0 && first < 0xf0 ? 3
                        : first >= 0xf0 && first < 0xf5 ? 4
                                                        : 0;
  if (length == 0 || length > text.size() - at)
    return 0;
  character = length == 1 ? first : first & (0x7f >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80)
      return 0;
    character = character << 6 | (byte(i) & 0x3f);
  }
  const bool tooLong = (length == 3 && character < 0x800) || (length == 4 && character < 0x10000);
  return tooLong || character > 0x10ffff || (character >= 0xd800 && character < 0xe000) ? 0 : length;
}

/// Characters that act on a terminal, or on the order of the text around them, without being seen.
static bool isHidden(uint32_t c) {
  return (c < 0x20 && c != '\n' && c != '\t') || (c >= 0x7f && c < 0xa0) || (c >= 0x200b && c <= 0x200f) ||
         (c >= 0x2028 && c <= 0x202e) || (c >= 0x2060 && c <= 0x206f) || c == 0xfeff;
}

std::string escapeForTerminal(const std::string &text) {
  static const char *digits = "0123456789abcdef";
  std::string out;
  for (size_t at = 0; at < text.size();) {
    uint32_t character = 0;
    const size_t length = characterAt(text, at, character), taken = length > 0 ? length : 1;
    const bool shown = length > 0 && !isHidden(character);
    for (size_t i = 0; i < taken; ++i) {
      const unsigned char byte = static_cast<unsigned char>(text[at + i]);
      out +=
          shown ? std::string(1, text[at + i]) : std::string("\\x") + digits[byte >> 4] + digits[byte & 15];
    }
    at += taken;
  }
  return out;
}

std::string escapeInJson(const std::string &json) {
  std::string out;
  for (size_t at = 0; at < json.size();) {
    uint32_t character = 0;
    const size_t length = std::max<size_t>(1, characterAt(json, at, character));
    if (length > 1 || json[at] == 0x7f) { // what is below is escaped by every writer, or stands between values
      if (isHidden(character)) {
        char escape[8];
        std::snprintf(escape, sizeof escape, "\\u%04x", character); // none is above U+FFFF
        out += escape;
        at += length;
        continue;
      }
    }
    out.append(json, at, length);
    at += length;
  }
  return out;
}

} // namespace zerocc
