#pragma once

#include "compiler/onnx/importer.h"
#include "compiler/onnx/inliner.h"

namespace zerocc {

/// Says in report.notes and report.advice what an exporter has done to the model that cannot be seen in its
/// parameters, and what can be done about it: batch norm folded into convolutions or put into inference mode,
/// dropout left out, label smoothing lost, weights of 16 bits, caches, experts.
void reportDamage(const FlatModel &flat, const ImportOptions &options, ImportReport &report);

/// How many Dropouts are active, which is known after lowering.
void reportDropouts(const Module &module, ImportReport &report);

} // namespace zerocc
