#pragma once

#include "compiler/ops/op_kind.h"
#include "compiler/support/expected.h"

#include "runtime/plan/plan.pb.h"

#include <set>
#include <string>
#include <vector>

namespace zerocc {

/// What a verifier found wrong. Each text is kept once; a hundred are enough to see the cause.
class Findings {
public:
  void add(const std::string &message) {
    if (!isFull() && seen_.insert(message).second)
      list_.push_back({message, ""});
  }
  bool empty() const { return list_.empty(); }
  bool isFull() const { return list_.size() >= 100; }
  std::vector<Diagnostic> take() { return std::move(list_); }

private:
  std::set<std::string> seen_;
  std::vector<Diagnostic> list_;
};

/// `segment only, instruction 12 (matmul "/h.3/MatMul")`
inline std::string whereIs(const plan::Segment &segment, int index) {
  const plan::Instruction &instruction = segment.instructions(index);
  std::string op = instruction.op() < static_cast<uint32_t>(kOpKinds)
                       ? std::string(opText(static_cast<OpKind>(instruction.op())))
                       : "op " + std::to_string(instruction.op());
  std::string location = instruction.location().empty() ? "" : " \"" + instruction.location() + "\"";
  return "segment " + segment.name() + ", instruction " + std::to_string(index) + " (" + op + location + ")";
}

} // namespace zerocc
