#pragma once

#include "compiler/support/expected.h"

#include "llvm/ADT/StringRef.h"

#include "google/protobuf/message.h"

namespace zerocc {

bool isUtf8(llvm::StringRef text);

/// Fails on the first text of a message, or of one in it, that is no UTF-8, as ONNX asks; names go from here into plans,
/// JSON and file names. Documentation is not read, and not checked. Cost: linear in the message, without its numbers.
Status checkUtf8(const google::protobuf::Message &message);

} // namespace zerocc
