#pragma once

#include "passes/pass.h"

namespace zerocc {

/// Recognizes ops that exporters write out in small pieces and for which there is a core op with a kernel of its own.
///
/// Before: graph `forward` as imported.
/// After:  every gelu in it, in its tanh and its erf form, is one `gelu` node; nodes that nothing reads any more are gone.
/// Here:   before hoisting of constants, cloning of eval and autodiff, so that eval and backward gain as well.
///
///     0.5 x (1 + tanh(√(2/π) (x + 0.044715 x³)))  becomes  gelu x {approximate="tanh"}
///     0.5 x (1 + erf(x / √2))                     becomes  gelu x {approximate="none"}
///
/// The form is compared as a polynomial, so any order of factors, x³ as a power or as products, and constants multiplied
/// out are all recognized; constants may be off by 0.1 %, as half precision has them. Other tanh and erf stay.
/// Tests: tests/passes/fuse_patterns
Expected<PassReport> fusePatterns(Module &module, const Decisions &decisions);

} // namespace zerocc
