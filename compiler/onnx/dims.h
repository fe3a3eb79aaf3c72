#pragma once

#include "compiler/support/expected.h"

#include <cstdint>
#include <map>
#include <set>
#include <string>

namespace zerocc {

using DimBindings = std::map<std::string, int64_t>;

/// The names in a dim_param: itself when it is one name, those of its terms in "past + sequence".
std::set<std::string> dimNames(const std::string &dimParam);
/// Its value. Terms are names and integers joined by + - * // % and parentheses, as exporters write them; a dim_param
/// that is bound as a whole, or that is no such expression, counts as one name. Names must be bound.
Expected<int64_t> evaluateDim(const std::string &dimParam, const DimBindings &bindings);

} // namespace zerocc
