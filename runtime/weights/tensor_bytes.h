#pragma once

#include "compiler/support/expected.h"
#include "runtime/data/mapped_file.h"

#include <functional>
#include <string>

namespace zerocc {

/// Hands out the bytes of a tensor, row-major in its own element type, when a writer comes to it: once for
/// each, and valid until the next call, so that one tensor at a time is in memory.
using TensorBytes = std::function<Expected<Bytes>(const std::string &name)>;

} // namespace zerocc
