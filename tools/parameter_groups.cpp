#include "tools/parameter_groups.h"

#include "compiler/onnx/name_patterns.h"
#include "runtime/plan/scalars.h"

#include "llvm/ADT/StringRef.h"

#include <algorithm>
#include <cmath>

namespace zerocc {
namespace {

using llvm::StringRef;

constexpr const char *kForm = "write --group NAME=PATTERN:lr-factor=0.1,weight-decay=0 (keys: lr-factor, weight-decay, frozen)";

Status readKey(StringRef entry, GroupFlag &group) {
  auto [key, text] = entry.split('=');
  if (key == "frozen" && text.empty()) {
    group.frozen = true;
    return success();
  }
  if (key != "lr-factor" && key != "weight-decay")
    return Error("--group " + group.name + ": there is no key \"" + key.str() + "\"", kForm);
  double value = 0;
  if (text.getAsDouble(value) || !std::isfinite(value) || value < 0)
    return Error("--group " + group.name + ": " + key.str() + " \"" + text.str() + "\" is not a number of at least 0");
  if (key == "lr-factor")
    group.lrFactor = value;
  else
    group.weightDecay = value;
  return success();
}

bool isName(StringRef name) {
  return !name.empty() && name != "decay" && name != "no-decay" && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
}

} // namespace

Expected<std::vector<GroupFlag>> parseGroups(const std::vector<std::string> &texts) {
  std::vector<GroupFlag> groups;
  for (const std::string &text : texts) {
    auto [name, rest] = StringRef(text).split('=');
    if (!isName(name))
      return Error("--group \"" + text + "\": \"" + name.str() + "\" cannot be a group's name",
                   std::string("names have letters, digits, - and _, and are not decay or no-decay; ") + kForm);
    auto [pattern, keys] = rest.contains(':') ? rest.rsplit(':') : std::pair(rest, StringRef());
    if (pattern.empty())
      return Error("--group \"" + text + "\" has no pattern", kForm);
    auto known = std::ranges::find_if(groups, [&, name = name](const GroupFlag &group) { return group.name == name; });
    if (known == groups.end()) {
      groups.push_back({name.str(), {}, 1, std::nullopt, false});
      known = groups.end() - 1;
    } else if (!keys.empty()) {
      return Error("--group " + name.str() + " is given twice with values", "give its values with its first pattern");
    }
    known->patterns.push_back(pattern.str());
    while (!keys.empty()) {
      auto [entry, others] = keys.split(',');
      ZEROCC_TRY(readKey(entry, *known));
      keys = others;
    }
  }
  return groups;
}

Expected<PlanGroups> assignGroups(const std::vector<GroupFlag> &flags, double weightDecay, double vectorDecay,
                                  Module &module) {
  PlanGroups out;
  out.groups = {{"decay", weightDecay, 1, true}, {"no-decay", vectorDecay, 1, false}};
  std::vector<Diagnostic> findings;
  for (const GroupFlag &flag : flags) {
    if (flag.frozen) // the importer has frozen them
      continue;
    NamePatterns patterns;
    bool hasMatrices = false, hasVectors = false;
    for (Parameter &parameter : module.parameters) {
      const bool isVector = parameter.group == "no-decay";
      if (!parameter.trainable || (!isVector && parameter.group != "decay") || !patterns.matches(flag.patterns, parameter.value->name))
        continue; // frozen, or an earlier group's
      const bool isApart = isVector && !flag.weightDecay;
      parameter.group = isApart ? flag.name + ".no-decay" : flag.name;
      (isApart ? hasVectors : hasMatrices) = true;
    }
    patterns.checkUsed(flag.patterns, ("--group " + flag.name).c_str(), findings);
    if (hasMatrices)
      out.groups.push_back({flag.name, flag.weightDecay.value_or(weightDecay), flag.lrFactor, !flag.weightDecay});
    if (hasVectors)
      out.groups.push_back({flag.name + ".no-decay", vectorDecay, flag.lrFactor, false});
  }
  if (!findings.empty())
    return Error(std::move(findings));
  if (out.groups.size() > kMaxGroups)
    return Error("--group: " + std::to_string(out.groups.size()) + " parameter groups, at most " +
                     std::to_string(kMaxGroups) + " are possible",
                 "give groups of equal values one name");
  return out;
}

} // namespace zerocc
