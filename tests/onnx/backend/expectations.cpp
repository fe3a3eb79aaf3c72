#include "tests/onnx/backend/expectations.h"

#include <algorithm>
#include <fstream>

namespace zerocc {

static bool matchesGlob(const std::string &pattern, const std::string &name, size_t p = 0, size_t n = 0) {
  for (; p < pattern.size(); ++p, ++n) {
    if (pattern[p] == '*') {
      for (size_t rest = n; rest <= name.size(); ++rest)
        if (matchesGlob(pattern, name, p + 1, rest))
          return true;
      return false;
    }
    if (n >= name.size() || pattern[p] != name[n])
      return false;
  }
  return n == name.size();
}

std::optional<Expectations> Expectations::read(const std::filesystem::path &path, std::string &why) {
  Expectations out;
  std::ifstream file(path);
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    if (line.empty() || line[0] == '#')
      continue;
    size_t space = line.find(' '), kind = line.find_first_not_of(' ', space), colon = line.find(": ", kind);
    std::string word = colon == std::string::npos ? "" : line.substr(kind, colon - kind);
    if (word != "out-of-scope" && word != "not-yet" && word != "random") {
      why = path.filename().string() + ":" + std::to_string(number) +
            ": a line is PATTERN, then out-of-scope, not-yet or random, then a colon and the reason";
      return std::nullopt;
    }
    out.lines_.push_back({line.substr(0, space), {word, line.substr(colon + 2)}});
  }
  return out;
}

const Expectation *Expectations::of(const std::string &name) const {
  for (const auto &[pattern, expectation] : lines_)
    if (matchesGlob(pattern, name))
      return &expectation;
  return nullptr;
}

std::vector<std::string> Expectations::unusedPatterns(const std::vector<std::string> &names) const {
  std::vector<std::string> unused;
  for (const auto &[pattern, expectation] : lines_)
    if (std::none_of(names.begin(), names.end(),
                     [&](const std::string &name) { return matchesGlob(pattern, name); }))
      unused.push_back(pattern);
  return unused;
}

namespace {

using Entry = std::pair<std::string, std::optional<Expectation>>;
using Range = std::pair<std::vector<Entry>::const_iterator, std::vector<Entry>::const_iterator>;

/// Lines for the sorted names of `range`, which all begin with `prefix`.
void writeLines(Range range, size_t prefix, std::map<Expectation, std::vector<std::string>> &lines) {
  auto [begin, end] = range;
  while (begin != end) {
    const std::string &name = begin->first;
    size_t word = name.find('_', prefix);
    if (word == std::string::npos) {
      if (begin->second)
        lines[*begin->second].push_back(name);
      ++begin;
      continue;
    }
    std::string stem = name.substr(0, word + 1);
    auto last = std::find_if(begin, end, [&](const Entry &entry) { return !entry.first.starts_with(stem); });
    bool isUniform =
        std::all_of(begin, last, [&](const Entry &entry) { return entry.second == begin->second; });
    if (!isUniform)
      writeLines({begin, last}, word + 1, lines);
    else if (begin->second)
      lines[*begin->second].push_back(last - begin == 1 ? name : stem + "*");
    begin = last;
  }
}

} // namespace

void Expectations::write(const std::filesystem::path &path,
                         const std::map<std::string, std::optional<Expectation>> &cases) const {
  std::vector<Entry> entries(cases.begin(), cases.end());
  // By words: else "a_b" would stand between "a" and "a1", and a stem's names would not be neighbours.
  std::sort(entries.begin(), entries.end(), [](const Entry &a, const Entry &b) {
    std::string left = a.first, right = b.first;
    std::replace(left.begin(), left.end(), '_', '\1');
    std::replace(right.begin(), right.end(), '_', '\1');
    return left < right;
  });
  std::ofstream file(path);
  file << "# Cases of ONNX's backend tests that do not pass: PATTERN KIND: REASON. Every other case has to "
          "pass; the first\n"
          "# line that matches counts. out-of-scope and not-yet: refused. random: imported, only types are "
          "compared.\n"
          "# ZEROCC_BACKEND_UPDATE=1 onnx_backend_test brings the patterns up to date and keeps the "
          "reasons.\n";
  for (const auto &[pattern, expectation] : lines_) {
    bool isUsed = false, isRight = true;
    for (const Entry &entry : entries)
      if (matchesGlob(pattern, entry.first)) {
        isUsed = true;
        isRight &= entry.second == expectation;
      }
    if (!isUsed || !isRight)
      continue;
    file << pattern << " " << expectation.kind << ": " << expectation.reason << "\n";
    std::erase_if(entries,
                  [&, &pattern = pattern](const Entry &entry) { return matchesGlob(pattern, entry.first); });
  }
  std::map<Expectation, std::vector<std::string>> lines;
  writeLines({entries.begin(), entries.end()}, 0, lines);
  for (const auto &[expectation, patterns] : lines)
    for (const std::string &pattern : patterns)
      file << pattern << " " << expectation.kind << ": " << expectation.reason << "\n";
}

} // namespace zerocc
