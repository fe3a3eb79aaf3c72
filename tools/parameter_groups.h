#pragma once

#include "compiler/ir/module.h"

#include <optional>
#include <string>
#include <vector>

namespace zerocc {

/// One --group NAME=PATTERN[:key=value,…]: parameters with a rate and a weight decay of their own.
struct GroupFlag {
  std::string name;
  std::vector<std::string> patterns; // globs over parameter names, of all flags with this name
  double lrFactor = 1;               // lr-factor: times the learning rate
  std::optional<double> weightDecay; // weight-decay: of all members; none: as outside of groups, vectors do not decay
  bool frozen = false;               // frozen: as --freeze
};

/// Reads the flags' texts. A name may come again with another pattern; what it is given, it is given once.
/// Errors: the form, a name that is taken, an unknown key, a value out of range.
Expected<std::vector<GroupFlag>> parseGroups(const std::vector<std::string> &texts);

/// The parameter groups of a plan: names, and for each the run-time values' defaults.
struct PlanGroups {
  struct Group {
    std::string name;
    double weightDecay = 0, lrFactor = 1;
    bool followsDecay = false; // --set weight-decay reaches it
  };
  std::vector<Group> groups;
};

/// Puts each trainable parameter of `module` into its group: the first whose pattern its name matches, else "decay" or
/// "no-decay" (vectors), as the importer has done. A group without a weight decay of its own keeps vectors apart, as
/// NAME.no-decay. Groups "decay" and "no-decay" are always the first two.
/// Errors: a pattern that no trainable parameter outside of earlier groups has; more groups than the scalar block holds.
Expected<PlanGroups> assignGroups(const std::vector<GroupFlag> &flags, double weightDecay, double vectorDecay,
                                  Module &module);

} // namespace zerocc
