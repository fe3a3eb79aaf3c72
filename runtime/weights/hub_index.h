#pragma once

#include "compiler/support/expected.h"

#include <set>
#include <string>
#include <string_view>

namespace zerocc {

/// Names of the files in a model.safetensors.index.json, each once. The text is not trusted; `name` stands in messages.
Expected<std::set<std::string>> filesOfHubIndex(std::string_view text, const std::string &name);

} // namespace zerocc
