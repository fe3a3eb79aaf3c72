// Content is read only for vectors and matrices with several readers, and for nameless matrices that have the
// dims of a parameter and its first and last element.

#include "compiler/onnx/ties.h"

#include "compiler/onnx/tie_scan.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

#include <map>

namespace zerocc {

Expected<bool> Ties::isFilled(const Candidate &candidate) const {
  return model_.hasBytes(*candidate.tensor) ? isFilledWithOneValue(model_, *candidate.tensor, candidate.type)
                                            : Expected<bool>(false);
}

Status Ties::split() {
  for (Candidate &candidate : candidates_) {
    if (candidate.readers.size() < 2)
      continue;
    bool untie = patterns_.matches(options_.untie, candidate.name);
    bool tie = patterns_.matches(options_.tie, candidate.name);
    if (tie && !untie) {
      candidate.tied = true;
      continue;
    }
    ZEROCC_ASSIGN(bool filled, isFilled(candidate));
    if (untie || (filled && !model_.trained))
      splitByReader(candidate, untie);
    else {
      candidate.tied = true;
      noteKept(candidate);
    }
  }
  return success();
}

/// Equal values that are not one value: tied in the module, or copied and never trained apart. Names tell
/// only that it had several.
void Ties::noteKept(const Candidate &candidate) {
  std::set<std::string> others;
  for (const Slot &slot : candidate.readers)
    if (slot.first->op == "Identity" && slot.first->domain.empty() &&
        namedLikeParameter(slot.first->outputs[0]) && slot.first->outputs[0] != candidate.name)
      others.insert("\"" + slot.first->outputs[0] + "\"");
  if (!others.empty())
    report_.notes.push_back("\"" + candidate.name + "\" stays tied to " + llvm::join(others, ", ") +
                            ", which have its values (--untie " + candidate.name + " trains them apart)");
}

void Ties::splitByReader(Candidate &candidate, bool onRequest) {
  std::vector<Candidate::Part> parts;
  std::map<std::string, size_t> partOf;
  for (const Slot &slot : candidate.readers) {
    std::string name = readers_.recoveredName(slot);
    auto [found, isNew] = partOf.emplace(name.empty() ? describe(slot) : name, parts.size());
    if (isNew)
      parts.push_back({name, {}});
    parts[found->second].readers.push_back(slot);
  }
  if (parts.size() < 2) {
    candidate.tied = candidate.readers.size() > 1;
    return;
  }
  // The initializer's own name stays with the reader it belongs to, else with the first nameless one.
  bool ownNameGiven = llvm::any_of(parts, [&](const auto &part) { return part.name == candidate.name; });
  int number = 0;
  for (Candidate::Part &part : parts) {
    bool isTaken = part.name != candidate.name && !part.name.empty() && taken_.count(part.name);
    if (part.name.empty() || isTaken) {
      if (!ownNameGiven) {
        part.name = candidate.name;
        ownNameGiven = true;
        continue;
      }
      do
        part.name = candidate.name + "#" + std::to_string(++number);
      while (taken_.count(part.name));
    }
    taken_.insert(part.name);
  }
  std::string names;
  for (const Candidate::Part &part : parts)
    names += (names.empty() ? "" : ", ") + part.name;
  report_.repairs.push_back("untied \"" + candidate.name + "\" (" + print(candidate.type) +
                            (onRequest ? ", on request" : ", all elements equal") +
                            "), which the exporter shared: " + std::to_string(parts.size()) +
                            " parameters, " + names);
  candidate.parts = std::move(parts);
}

Expected<bool> Ties::repeats(const Candidate &copy, const Candidate &original, bool transposing) const {
  const Dims &a = copy.type.dims, &b = original.type.dims;
  bool fits = copy.type.dtype == original.type.dtype &&
              (transposing ? a.size() == 2 && b.size() == 2 && a[0] == b[1] && a[1] == b[0] : a == b);
  if (!fits || !model_.hasBytes(*copy.tensor) || !model_.hasBytes(*original.tensor))
    return false;
  // First and last element tell most pairs apart before anything big is read.
  int64_t elementBytes = byteSize(copy.type.dtype);
  for (int64_t offset : {int64_t(0), copy.type.bytes() - elementBytes}) {
    ZEROCC_ASSIGN(std::string ours, model_.bytesOf(*copy.tensor, offset, elementBytes));
    ZEROCC_ASSIGN(std::string theirs, model_.bytesOf(*original.tensor, offset, elementBytes));
    if (ours != theirs)
      return false;
  }
  return equalContents(model_, *copy.tensor, copy.type, *original.tensor, transposing);
}

Status Ties::retie() {
  if (model_.trained)
    return success();
  for (Candidate &copy : candidates_) {
    if (!copy.isNameless || copy.type.rank() < 2 || !copy.parts.empty() ||
        patterns_.matches(options_.untie, copy.name))
      continue;
    for (size_t i = 0; i < candidates_.size() && copy.copyOf < 0; ++i) {
      Candidate &original = candidates_[i];
      if (original.isNameless || !original.parts.empty() || original.copyOf >= 0)
        continue;
      for (bool transposing : {false, true}) {
        ZEROCC_ASSIGN(bool same, repeats(copy, original, transposing));
        if (!same)
          continue;
        ZEROCC_ASSIGN(bool filled, isFilled(copy));
        if (filled) // equal by chance
          continue;
        makeCopy(copy, i, transposing);
        break;
      }
    }
  }
  return success();
}

void Ties::makeCopy(Candidate &copy, size_t original, bool transposing) {
  copy.copyOf = static_cast<int>(original);
  copy.copyTransposed = transposing;
  candidates_[original].tied = true;
  report_.repairs.push_back("tied \"" + copy.name + "\" to \"" + candidates_[original].name +
                            "\", which it repeats" + (transposing ? " transposed" : "") +
                            ": one parameter of " + std::to_string(copy.type.bytes()) +
                            " bytes instead of two");
}

Status Ties::tieOnRequest(std::vector<Diagnostic> &findings) {
  for (const std::string &pattern : options_.tie) {
    int first = -1;
    for (size_t i = 0; i < candidates_.size(); ++i) {
      Candidate &candidate = candidates_[i];
      ZEROCC_ASSIGN(bool matched, patterns_.matchesOne(pattern, candidate.name));
      if (!matched || candidate.copyOf >= 0 || !candidate.parts.empty())
        continue;
      if (first < 0) {
        first = static_cast<int>(i);
        continue;
      }
      Candidate &original = candidates_[first];
      if (!model_.hasBytes(*candidate.tensor) || !model_.hasBytes(*original.tensor)) {
        findings.push_back({"--tie " + pattern + ": the model has no weights, so \"" + candidate.name +
                                "\" and \"" + original.name + "\" cannot be compared",
                            "use the model with its weights"});
        continue;
      }
      ZEROCC_ASSIGN(bool same, repeats(candidate, original, false));
      ZEROCC_ASSIGN(bool turned, repeats(candidate, original, true));
      if (!same && !turned)
        findings.push_back({"--tie " + pattern + ": \"" + candidate.name + "\" (" + print(candidate.type) +
                                ") and \"" + original.name + "\" (" + print(original.type) + ") differ",
                            "only tensors with equal values, or equal after transposing, can be tied"});
      else
        makeCopy(candidate, first, !same);
    }
  }
  return success();
}

} // namespace zerocc
