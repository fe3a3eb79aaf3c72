#pragma once

#include "passes/pass.h"

namespace zerocc {

/// Makes the segment of an inference plan and the memory it needs: build_step without a step.
///
/// Before: graph `forward` yields the outputs; parameters lie in buckets.
/// After:  it is called `infer`, writes each output into a storage output:NAME and yields nothing; storages bI.param;
///         `init` writes its constants in place.
/// Here:   insert_fetch_release then gives it its fetches and releases.
///
///     yield logits = %y      becomes a storage @output:logits, and %y lies there; a value that has no bytes of its own
///                            (an input, a view, a second name of another output) is copied there
///
/// Tests: tests/passes/build_inference
Expected<PassReport> buildInference(Module &module, const Decisions &decisions);

} // namespace zerocc
