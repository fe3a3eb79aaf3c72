#pragma once

#include "passes/pass.h"

namespace zerocc {

/// Decides who holds what: puts every parameter at an offset of one bucket, and sets the bucket's three fields.
///
/// Before: parameters have no bucket.
/// After:  each parameter lies in exactly one bucket at a start aligned to 32 elements; a bucket is padded to
///         32 * ranks elements; its fields say where parameters, gradients and states are whole or sharded.
/// Here:   after autodiff, which freezes unreached parameters; build_step makes storages of the buckets.
///
/// The ZeRO stage is a preset of the three fields and is not asked for anywhere else. The grouping itself does not
/// depend on the stage, so that all stages share one layout (and thereby one numerics key).
/// Tests: tests/passes/partition
Expected<PassReport> partition(Module &module, const Decisions &decisions);

/// The part of a parameter's name that names its layer: up to and including the first component that is a number
/// ("transformer.h.0" of "transformer.h.0.ln_1.weight"); empty when there is none.
std::string layerOf(const std::string &parameterName);

} // namespace zerocc
