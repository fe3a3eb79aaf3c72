#include "compiler/onnx/name_patterns.h"

#include "llvm/Support/GlobPattern.h"

namespace zerocc {

static Expected<bool> globMatches(const std::string &pattern, const std::string &name) {
  llvm::Expected<llvm::GlobPattern> glob = llvm::GlobPattern::create(pattern);
  if (!glob) {
    std::string why = llvm::toString(glob.takeError());
    return Error("pattern \"" + pattern + "\": " + why);
  }
  return glob->match(name);
}

bool NamePatterns::matches(const std::vector<std::string> &patterns, const std::string &name) {
  bool any = false;
  for (const std::string &pattern : patterns) {
    Expected<bool> matched = matchesOne(pattern, name);
    any |= matched && *matched;
  }
  return any;
}

Expected<bool> NamePatterns::matchesOne(const std::string &pattern, const std::string &name) {
  Expected<bool> matched = globMatches(pattern, name);
  if (matched && *matched)
    used_.insert(pattern);
  return matched;
}

void NamePatterns::checkUsed(const std::vector<std::string> &patterns, const char *flag,
                             std::vector<Diagnostic> &findings) const {
  for (const std::string &pattern : patterns) {
    Expected<bool> valid = globMatches(pattern, "");
    if (!valid)
      findings.push_back({std::string(flag) + ": " + valid.error().findings().front().message, ""});
    else if (!used_.count(pattern))
      findings.push_back({std::string(flag) + " " + pattern + ": no parameter has such a name",
                          "`zerocc check` lists the parameters"});
  }
}

} // namespace zerocc
