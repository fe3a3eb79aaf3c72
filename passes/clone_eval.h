#pragma once

#include "passes/pass.h"

namespace zerocc {

/// Before: "forward" with its loss, which may choose by the input of role `training`. After: beside it "eval", the same
/// with that input false, without the writes to buffers; "forward" with it true; the input is gone.
Expected<PassReport> cloneEval(Module &module, const Decisions &decisions);

} // namespace zerocc
