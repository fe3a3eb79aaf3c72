#pragma once

#include "compiler/support/expected.h"

#include "llvm/ADT/StringRef.h"

namespace zerocc {

/// Writes a file that appears whole or not at all: beside its place, then renamed. On failure nothing remains, and what
/// was there before stays. Fails where the folder is missing or not writable, or the disk is full.
Status writeWholeFile(const std::string &path, llvm::StringRef bytes);

} // namespace zerocc
