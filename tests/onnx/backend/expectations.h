#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace zerocc {

/// What a case that does not pass is expected to do, and why.
///   out-of-scope  refused, and will be
///   not-yet       refused for now
///   random        imported; only the types of its results are compared
struct Expectation {
  std::string kind, reason;
  bool operator==(const Expectation &) const = default;
  bool operator<(const Expectation &other) const {
    return std::tie(kind, reason) < std::tie(other.kind, other.reason);
  }
};

/// The checked-in list: lines `PATTERN KIND: REASON`, `*` matches any text, the first line that matches
/// counts.
class Expectations {
public:
  /// Empty with `why` when a line cannot be read.
  static std::optional<Expectations> read(const std::filesystem::path &path, std::string &why);

  /// Null: the case has to pass.
  const Expectation *of(const std::string &name) const;
  /// Patterns that match none of these names.
  std::vector<std::string> unusedPatterns(const std::vector<std::string> &names) const;

  /// Writes a list that gives exactly these expectations; a name without one passes. Lines of this list that
  /// are still right for all they match stay; the others give way to whole names and `prefix_*`.
  void write(const std::filesystem::path &path,
             const std::map<std::string, std::optional<Expectation>> &cases) const;

private:
  std::vector<std::pair<std::string, Expectation>> lines_;
};

} // namespace zerocc
