#pragma once

#include "compiler/onnx/importer.h"
#include "compiler/onnx/inliner.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace zerocc {

/// Where a node reads: operand `input` of `node`.
using Slot = std::pair<const FlatNode *, int>;

/// Which initializers are parameters, under which names, and who reads which.
struct ParameterTable {
  struct Entry {
    ImportedParameter report;
    bool isVector = false; // of the module, though exporters may give it dims of 1
    bool tied = false; // several readers of one initializer with varied content, or re-tied copies
  };
  std::vector<Entry> entries; // in the order of the file

  /// The entry a reader of initializer `name` at `slot` gets: index and whether it is to be transposed; -1: a constant.
  struct Use {
    int entry = -1;
    bool transposed = false;
  };
  Use find(const std::string &name, Slot slot) const;

  std::map<Slot, int> bySlot;             // readers of split initializers; -1: a constant here
  std::map<std::string, Use> byName;      // whole initializers and their copies
};

/// Decides by the exporter's tag, else by the places an initializer is read at (weight slots), and mends what exporters
/// do to parameters:
///   - false ties: initializers filled with one value that several modules read become one parameter each;
///   - lost ties: an exporter-named matrix with the values of another parameter, or of its transpose, becomes that one;
///   - lost names: "onnx::MatMul_12" and "val_3" are named after the module that reads them.
/// Every repair is written to the report. Fails on patterns that match nothing and on ties of unequal tensors.
Expected<ParameterTable> findParameters(const LoadedModel &model, const FlatModel &flat, const ImportOptions &options,
                                        ImportReport &report);

} // namespace zerocc
