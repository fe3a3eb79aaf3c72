#pragma once

#include "passes/pass.h"

namespace zerocc {

/// Makes the segments of a training step and the memory they share.
///
/// Before: graphs `micro_step` (loss, count, one `grad:NAME` per trainable parameter) and `eval` (loss, count);
///         parameters lie in buckets.
/// After:  storages bI.param, bI.grad, optimizer states, `scalars`, `loss`; graphs `only` (K = 1) or
///         `first`, `middle` (K > 2), `last`; `update`; `eval`; `init` writes its constants in place.
///         The loss pair of every micro-step lands in storage `loss`.
/// Here:   insert_fetch_release then gives each segment its gathers and reductions.
///
/// The update: one exchange of (loss, count, norm partials) among all ranks, one kernel for the scalar block
/// (learning rate, mean factor, clip, overflow), one optimizer node per bucket on the rank's own part.
/// Tests: tests/passes/build_step
Expected<PassReport> buildStep(Module &module, const Decisions &decisions);

/// Names of the storages of a bucket.
std::string storageName(const Bucket &bucket, const char *kind);

/// `init` computes straight into its constants.
void placeInitResults(Module &module);

/// True when storage bI.grad holds the whole bucket: states are whole, or gradients of several micro-steps are summed
/// before they are reduced. Else it holds the rank's part.
bool keepsWholeGradient(const Module &module, const Bucket &bucket);

/// The rank's part of a bucket storage that holds the whole; the storage itself when it is the part already.
/// (`member` with part=1: the offset is the rank's index times the part.)
Value *ownPart(Module &module, Graph &graph, Value *storage, int bucketIndex);

/// A reduction over the shard axis does something; where it does not, gradients are complete where they stand.
inline bool isSharded(const Module &module) { return module.mesh.shard > 1; }

} // namespace zerocc
