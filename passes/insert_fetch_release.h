#pragma once

#include "passes/pass.h"

namespace zerocc {

/// Makes a sharded parameter whole just before use, and a shard again right after; writes gradients into their bucket
/// and reduces each bucket once it is complete.
///
/// Before: compute nodes of the segments read parameters (@w) as if they were whole; micro-steps yield `grad:NAME`.
/// After:  no compute node reads a parameter or a shard; each fetch out of a shard has one release, after its last
///         reader; each gradient is a member of its bucket's buffer and reduced where the bucket's fields say.
/// Here:   needs the storages of build_step; schedule moves what this inserts.
///
///     %y = matmul %x, @w      becomes      %f  = fetch.start @b0.param   stream=gather
///                                          %bw = fetch.wait %f
///                                          %w  = member %bw {offset=…}
///                                          %y  = matmul %x, %w
///                                          release %bw
///
///     yield grad:w=%dw        becomes      %gb = buffer                                       (before %dw)
///                                          %dw = matmul … place=%gb+…
///                                          %r  = reduce.start %gb, %dw   stream=reduce        (after the last member)
///                                          %p  = reduce.wait %r
///
/// Counters: fetches, releases, reductions, copies (gradients that could not be written in place).
/// Tests: tests/passes/insert_fetch_release
Expected<PassReport> insertFetchRelease(Module &module, const Decisions &decisions);

} // namespace zerocc
