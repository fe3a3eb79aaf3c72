#pragma once

#include "runtime/plan/plan.pb.h"

#include <string>

namespace zerocc {

struct ScheduleOptions {
  std::string segment; // empty: those of a step
  int limit = 0;       // instructions shown of each segment; 0: all
};

/// The instructions of a plan for people: when each bucket's parameters are not available, in flight and
/// available, from fetch to release, as a table per segment and between the instructions. At most 120 columns
/// wide.
std::string scheduleText(const plan::Plan &plan, const ScheduleOptions &options = {});

/// The same as a Chrome trace (chrome://tracing, ui.perfetto.dev) of one step. Every instruction takes one
/// unit (a microsecond of the trace), waits and releases none: it shows the order and what may overlap, not
/// how long it takes.
std::string scheduleTrace(const plan::Plan &plan);

} // namespace zerocc
