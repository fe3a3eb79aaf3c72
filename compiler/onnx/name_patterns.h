#pragma once

#include "compiler/support/expected.h"

#include <set>
#include <string>
#include <vector>

namespace zerocc {

/// The globs of --freeze, --trainable, --tie and --untie, and which of them have met a name.
class NamePatterns {
public:
  bool matches(const std::vector<std::string> &patterns, const std::string &name);
  Expected<bool> matchesOne(const std::string &pattern, const std::string &name);
  /// Adds a finding for each pattern of `flag` that is no glob or has met nothing.
  void checkUsed(const std::vector<std::string> &patterns, const char *flag,
                 std::vector<Diagnostic> &findings) const;

private:
  std::set<std::string> used_;
};

} // namespace zerocc
