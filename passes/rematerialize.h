#pragma once

#include "passes/pass.h"

namespace zerocc {

/// Computes values that come from parameters and constants alone anew where they are read.
///
/// Before: a forward node may compute something from parameters only (a transpose, a cast, a scaled weight) that
///         forward and backward nodes far apart read.
/// After:  every reader of such a value has the chain that makes it directly in front of it, so that the value
///         is never kept from forward to backward, and a fetched parameter can be let go after its last reader.
/// Here:   after autodiff (the backward has its readers), before insert_fetch_release (which counts readers).
///
///     %t = transpose @w; %y = matmul %x, %t; …; %dx = matmul %dy, %t     becomes
///     %t = transpose @w; %y = matmul %x, %t; …; %t2 = transpose @w; %dx = matmul %dy, %t2
///
/// Readers with no other node between them share one chain.
/// Tests: tests/passes/rematerialize
Expected<PassReport> rematerialize(Module &module, const Decisions &decisions);

} // namespace zerocc
