#pragma once

#include "compiler/support/expected.h"

#include "runtime/plan/plan.pb.h"

#include <string>

namespace zerocc {

/// Operand::value of what the host or segment `init` writes: constant c is kConstantValue + c, input i is
/// kInputValue + i.
constexpr uint32_t kConstantValue = uint32_t(1) << 31, kInputValue = kConstantValue + (uint32_t(1) << 30);

/// Raised with every change of plan.proto.
constexpr uint32_t kPlanVersion = 5;

/// A plan of the forward pass alone: segment `infer` (and `init`), storages of kind OUTPUT, nothing that is trained.
inline bool isInference(const plan::Plan &plan) {
  for (const plan::Segment &segment : plan.segments())
    if (segment.name() == "infer")
      return true;
  return false;
}

/// Reads a plan file: 8 bytes of magic, 16 bytes of XXH3-128 of the rest, the protobuf message.
/// Refuses what is not a plan, what is damaged, what another version wrote, what is absurdly large. The
/// content is not judged here: see verify.h.
Expected<plan::Plan> loadPlan(const std::string &path);

/// Writes a plan file beside `path` and renames it, so that `path` is never half a plan. Equal plans give
/// equal bytes.
Status savePlan(const plan::Plan &plan, const std::string &path);

/// The same two without a file. `name` stands in messages.
std::string encodePlan(const plan::Plan &plan);
Expected<plan::Plan> decodePlan(const std::string &bytes, const std::string &name);

/// XXH3-128, in hex, of everything but run-time defaults and provenance: ranks with equal fingerprints do the
/// same.
std::string planFingerprint(const plan::Plan &plan);

} // namespace zerocc
