#pragma once

#include "runtime/plan/findings.h"

namespace zerocc {

/// Everything about a plan that can be judged without following the instructions: ranges, references, tables.
/// What verify_flow does relies on it.
void verifyStructure(const plan::Plan &plan, Findings &findings);

/// The bytes of a region that an operand touches. `end` includes the parts of all ranks on the shard axis;
/// `ownEnd` is the end for the first rank. Empty operands have begin == end.
struct Extent {
  uint32_t region = 0;
  int64_t begin = 0, ownEnd = 0, end = 0;
  bool isEmpty() const { return begin == end; }
};

/// Extent of an operand that verifyStructure has passed.
Extent extentOf(const plan::Operand &operand, int64_t shard);

/// Row-major without holes.
bool isContiguous(const plan::Operand &operand);
int64_t elementsOf(const plan::Operand &operand);

} // namespace zerocc
