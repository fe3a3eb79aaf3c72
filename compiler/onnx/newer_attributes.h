#pragma once

#include <string>

namespace zerocc {

/// Whether ONNX has this attribute of an op of its own since opset 18, whose schemas the installed library may not have.
/// Attributes of earlier opsets are not listed.
bool isNewerAttribute(const std::string &op, const std::string &attribute, int64_t version);

} // namespace zerocc
