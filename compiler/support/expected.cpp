#include "compiler/support/expected.h"

namespace zerocc {

std::string Error::text() const {
  std::string out;
  for (const Diagnostic &finding : findings_) {
    out += "error: " + escapeForTerminal(finding.message) + "\n";
    if (!finding.hint.empty())
      out += "  hint: " + escapeForTerminal(finding.hint) + "\n";
  }
  return out;
}

Error Error::in(const std::string &where) const {
  std::vector<Diagnostic> findings = findings_;
  for (Diagnostic &finding : findings)
    finding.message = where + ": " + finding.message;
  return Error(std::move(findings));
}

} // namespace zerocc
