#include "compiler/support/expected.h"

namespace zerocc {

std::string escapeForTerminal(const std::string &text) {
  static const char *digits = "0123456789abcdef";
  std::string out;
  for (unsigned char c : text) {
    if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7f) {
      out += "\\x";
      out += digits[c >> 4];
      out += digits[c & 15];
    } else {
      out += static_cast<char>(c);
    }
  }
  return out;
}

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
