#pragma once

#include "passes/pass.h"

namespace zerocc {

/// --precision bf16 | f16: products are computed on operands rounded to that dtype, summed in f32 and rounded once, as
/// torch.autocast has it. Every other op, norms, softmaxes and losses among them, stays in f32, and so do parameters,
/// gradients and optimizer states: the f32 parameters are the master weights.
///
/// Before: segment @forward, no gradients. After: the operands and result of each f32 matmul have 16 bits; those of
/// each f32 conv and conv_data_grad are f32 and hold values that 16 bits have. Each conversion is a cast node, made once per
/// value, in front of views of it (a broadcast is not written out); the result of a product that is only read by
/// products is not widened in between. f32: nothing changes. f64 products stay as they are.
/// Counters: products, casts.
/// Tests: tests/passes/mixed_precision, tests/e2e/precision_test.cpp
Expected<PassReport> mixedPrecision(Module &module, const Decisions &decisions);

} // namespace zerocc
