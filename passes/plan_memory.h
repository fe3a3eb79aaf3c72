#pragma once

#include "passes/pass.h"

namespace zerocc {

/// Gives every value and every workspace its bytes.
///
/// Before: storages, constants and inputs have no offset; results are roots or aliases (place, op table).
/// After:  every storage, constant and input, and every root result of a node, has a place in a region; nodes
///         with a workspace carry `workspace=OFFSET` (bytes in the arena); Module::regionBytes is set; the
///         facts `peak.at` and `peak.KIND` say what fills the memory at the fullest node, and
///         `arena_lower_bound` how small the arena could be at best.
/// Here:   needs the final order of nodes: a value lives from the first node that writes any alias of it to
///         the last node that reads one. What an asynchronous start reads lives until its wait.
///
///     %a = relu %x                 becomes      %a = relu %x      place=arena+0
///     %b = exp %a                               %b = exp %a       place=arena+1024
///
/// Fails when a graph yields a value that lies in no storage (its bytes would be gone), and when a result is
/// to lie elsewhere than the operand it overwrites.
/// Tests: tests/passes/plan_memory
Expected<PassReport> planMemory(Module &module, const Decisions &decisions);

/// Bytes alive at each node of the list, as planMemory would count them: the lower bound of any packing.
std::vector<int64_t> liveProfile(const Graph &graph);
/// The greatest of liveProfile.
int64_t estimatePeak(const Graph &graph);

} // namespace zerocc
