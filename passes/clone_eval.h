#pragma once

#include "passes/pass.h"

namespace zerocc {

/// Before: "forward" with its loss, which may choose by the input of role `training`. After: beside it "eval", the same
/// with that input false, without the writes to buffers; "forward" with it true; the input is gone.
Expected<PassReport> cloneEval(Module &module, const Decisions &decisions);

/// Every choice of `graph` by the input of role `training` becomes the alternative that `training` takes. The input
/// stays. Returns how many there were.
int64_t settleTraining(Module &module, Graph &graph, bool training);

} // namespace zerocc
