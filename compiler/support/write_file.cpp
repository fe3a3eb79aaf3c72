#include "compiler/support/write_file.h"

#include "llvm/Support/FileUtilities.h"

namespace zerocc {

Status writeWholeFile(const std::string &path, llvm::StringRef bytes) {
  if (llvm::Error failed = llvm::writeFileAtomically(path + ".partial-%%%%%%%%", path, bytes)) {
    std::string reason = llvm::toString(std::move(failed));
    return Error(path + ": cannot be written: " + reason, "check that the folder is there, and the disk has room");
  }
  return success();
}

} // namespace zerocc
