#pragma once

#include "compiler/onnx/name_patterns.h"
#include "compiler/onnx/weight_slots.h"

namespace zerocc {

/// An initializer that is a parameter.
struct Candidate {
  std::string name; // initializer
  const onnx::TensorProto *tensor = nullptr;
  TensorType type;
  std::string reason;
  std::vector<Slot> readers; // direct
  std::string parameterName; // when not split
  struct Part {
    std::string name;
    std::vector<Slot> readers;
  };
  std::vector<Part> parts; // when split
  bool isNameless = false; // its name is made up by the exporter
  bool tied = false;
  int copyOf = -1; // index of the candidate whose values this repeats
  bool copyTransposed = false;
};

/// Unties what exporters tied and ties what they tore apart.
class Ties {
public:
  Ties(const LoadedModel &model, const Readers &readers, const ImportOptions &options, NamePatterns &patterns,
       std::vector<Candidate> &candidates, std::set<std::string> &taken, ImportReport &report)
      : model_(model), readers_(readers), options_(options), patterns_(patterns), candidates_(candidates),
        taken_(taken), report_(report) {}

  /// Initializers filled with one value that several modules read become one parameter each.
  Status split();
  /// A nameless matrix with the values of another parameter, or of its transpose, becomes that one.
  Status retie();
  /// --tie PATTERN over several initializers makes them one; they must be equal.
  Status tieOnRequest(std::vector<Diagnostic> &findings);

private:
  Expected<bool> isFilled(const Candidate &candidate) const;
  void splitByReader(Candidate &candidate, bool onRequest);
  void noteKept(const Candidate &candidate);
  Expected<bool> repeats(const Candidate &copy, const Candidate &original, bool transposing) const;
  void makeCopy(Candidate &copy, size_t original, bool transposing);

  const LoadedModel &model_;
  const Readers &readers_;
  const ImportOptions &options_;
  NamePatterns &patterns_;
  std::vector<Candidate> &candidates_;
  std::set<std::string> &taken_; // names of parameters
  ImportReport &report_;
};

} // namespace zerocc
