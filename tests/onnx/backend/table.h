#pragma once

#include "tests/onnx/backend/expectations.h"
#include "tests/onnx/backend/run_case.h"

namespace zerocc {

/// The figures as Markdown: one line per set, then one per op of each set.
std::string tableOf(const std::vector<CaseResult> &results, const Expectations &expectations);

} // namespace zerocc
