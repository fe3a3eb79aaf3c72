#pragma once

#include "hwy/targets.h"

namespace zerocc {

/// Settles which instruction set HWY_DYNAMIC_DISPATCH picks, so that the pointer it gives is the function
/// itself.
inline void chooseTarget() { hwy::GetChosenTarget().Update(hwy::SupportedTargets()); }

} // namespace zerocc
