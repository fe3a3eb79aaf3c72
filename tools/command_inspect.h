#pragma once

#include "runtime/plan/plan.pb.h"
#include "tools/command.h"

#include <string>

namespace zerocc {

/// `zerocc inspect`: everything it prints is computed from the plan file alone.
struct InspectCommand {
  static void add(CLI::App &app, Run &run);
};

/// What `inspect --summary` prints.
std::string planSummary(const plan::Plan &plan, bool withNotes = true);
/// What `inspect --json` prints: the object of INTERFACE.md.
std::string planJson(const plan::Plan &plan);

} // namespace zerocc
