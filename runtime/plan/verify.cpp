#include "runtime/plan/verify.h"

#include "runtime/plan/verify_flow.h"
#include "runtime/plan/verify_order.h"
#include "runtime/plan/verify_structure.h"

namespace zerocc {

std::vector<Diagnostic> verifyPlan(const plan::Plan &plan) {
  Findings findings;
  verifyStructure(plan, findings);
  if (findings.empty()) { // the others calculate with offsets and follow references
    verifyOrder(plan, findings);
    verifyFlow(plan, findings);
  }
  return findings.take();
}

} // namespace zerocc
