#pragma once

#include <string_view>

namespace zerocc {

/// Whether a JSON text nests deeper than `most`: parsers call themselves for every level, and a text from outside must not
/// use up the stack.
inline bool isJsonDeeper(std::string_view text, int most) {
  int depth = 0;
  bool inText = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (inText) {
      if (c == '\\')
        ++i;
      else if (c == '"')
        inText = false;
    } else if (c == '"') {
      inText = true;
    } else if (c == '[' || c == '{') {
      if (++depth > most)
        return true;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

} // namespace zerocc
