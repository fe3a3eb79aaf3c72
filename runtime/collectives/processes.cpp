#include "runtime/collectives/processes.h"

#include <algorithm>
#include <cstring>

namespace zerocc {
namespace {

class OneProcess : public Processes {
public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  Status allGather(const void *mine, int64_t bytes, void *all) override {
    if (mine != all)
      std::memcpy(all, mine, static_cast<size_t>(bytes));
    return success();
  }
  Status broadcast(int, void *, int64_t) override { return success(); }
  Expected<std::unique_ptr<Processes>> another() override { return oneProcess(); }
};

// Findings as one text: message, 1, hint, 2.
std::string pack(const Status &status) {
  std::string text;
  if (!status)
    for (const Diagnostic &finding : status.error().findings())
      text += finding.message + '\1' + finding.hint + '\2';
  return text;
}

void unpack(const std::string &text, const std::string &prefix, std::vector<Diagnostic> &findings) {
  for (size_t at = 0; at < text.size();) {
    const size_t middle = std::min(text.find('\1', at), text.size());
    const size_t end = std::min(text.find('\2', middle), text.size());
    findings.push_back({prefix + text.substr(at, middle - at), text.substr(std::min(middle + 1, end), end - std::min(middle + 1, end))});
    at = end + 1;
  }
}

} // namespace

std::unique_ptr<Processes> oneProcess() { return std::make_unique<OneProcess>(); }

Expected<std::vector<std::string>> gatherTexts(Processes &processes, const std::string &mine) {
  const auto count = static_cast<int64_t>(mine.size());
  std::vector<int64_t> counts(processes.size());
  ZEROCC_TRY(processes.allGather(&count, sizeof count, counts.data()));
  const int64_t widest = *std::max_element(counts.begin(), counts.end());
  std::string padded = mine, all(static_cast<size_t>(widest) * counts.size(), '\0');
  padded.resize(static_cast<size_t>(widest));
  if (widest > 0)
    ZEROCC_TRY(processes.allGather(padded.data(), widest, all.data()));
  std::vector<std::string> texts;
  for (size_t r = 0; r < counts.size(); ++r)
    texts.push_back(all.substr(r * static_cast<size_t>(widest), static_cast<size_t>(counts[r])));
  return texts;
}

Expected<bool> anyOf(Processes &processes, bool mine) {
  constexpr int kAtOnce = 1024; // on the stack: this is called in every step
  char yes[kAtOnce] = {};
  const char own = mine;
  if (processes.size() > kAtOnce)
    return Error("more than " + std::to_string(kAtOnce) + " processes");
  ZEROCC_TRY(processes.allGather(&own, 1, yes));
  return std::any_of(yes, yes + processes.size(), [](char one) { return one != 0; });
}

Status agree(Processes &processes, const Status &mine) {
  if (processes.size() == 1)
    return mine;
  ZEROCC_ASSIGN(auto texts, gatherTexts(processes, pack(mine)));
  const bool isCommon = std::all_of(texts.begin(), texts.end(), [&](const std::string &text) { return text == texts[0]; });
  std::vector<Diagnostic> findings;
  for (size_t r = 0; r < texts.size(); ++r)
    if (r == 0 || !isCommon)
      unpack(texts[r], isCommon ? "" : "rank " + std::to_string(r) + ": ", findings);
  return findings.empty() ? success() : Status(Error(std::move(findings)));
}

} // namespace zerocc
