#pragma once

namespace zerocc {

/// The loss scale after a step that overflowed, or did not (Micikevicius et al., arXiv 1710.03740, section 3.2; the rule
/// is DeepSpeed's DynamicLossScaler with a factor of 2 and without consecutive hysteresis, but that the least scale is
/// kept where DeepSpeed ends the run: zero-run --max-skipped does that).
///
/// Reads and writes the kScalarLossScale… entries of the scalar block (scalars.h). A static scale stays as it is.
void moveLossScale(double *scalars, bool overflow);

/// Sets the scale and what it is moved by; the counts begin anew.
/// `scale` > 0; window, hysteresis >= 1, least > 0 are read where `dynamic`.
void writeLossScale(double scale, bool dynamic, double window, double hysteresis, double least, double *scalars);

} // namespace zerocc
