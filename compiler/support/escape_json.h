#pragma once

#include <string>

namespace zerocc {

/// For a finished JSON text of valid UTF-8: characters that act on a terminal, or on the order of the text around them,
/// become \uNNNN, which means the same.
std::string escapeInJson(const std::string &json);

} // namespace zerocc
