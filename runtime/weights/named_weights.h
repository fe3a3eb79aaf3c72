#pragma once

#include "runtime/weights/safetensors.h"

#include <string>
#include <vector>

namespace zerocc {

/// Weights by the names of a framework's state dict, as model hubs keep them: FILE.safetensors, or a folder with
/// model.safetensors or with model.safetensors.index.json and the files that it names. Files are mapped: who reads a part
/// reads that part.
class NamedWeights {
public:
  static Expected<NamedWeights> open(const std::string &path);

  const ArrayView *find(const std::string &name) const;
  const std::vector<std::string> &names() const { return names_; } // sorted
  /// Written by zero-run --export: tensors lie as in the ONNX model, not as in a state dict.
  bool isOriented() const { return isOriented_; }

  /// Optimizer states beside the weights: folder/optimizer.safetensors with tensors STATE/NAME (moment1/h.0.weight) and the
  /// number of updates in its metadata, "updates". Empty when there is no such file.
  static Expected<std::map<std::string, NamedWeights>> openStates(const std::string &folder, int64_t &updates);

private:
  Status add(const std::string &path);

  std::map<std::string, ArrayView> tensors_;
  std::vector<std::string> names_;
  bool isOriented_ = false;
};

/// In the metadata of files written by zero-run --export.
constexpr const char *kOrientationKey = "zerocc.orientation", *kOrientationOnnx = "onnx";

/// Which tensor holds a parameter.
struct BoundTensor {
  const ArrayView *view = nullptr;
  std::string name;
  bool isTransposed = false; // [in, out] is wanted, [out, in] is there
};

/// A parameter or buffer to be found.
struct WantedTensor {
  std::string name;
  std::vector<int64_t> dims;
  bool wasTransposed = false; // by the exporter: a state dict has it the other way around
  bool isTied = false;        // a state dict may have it under the name of another reader
};

/// Binds each wanted tensor to one of the same name. Names may differ by a prefix of whole parts that the one or the other
/// side has ("transformer.", "model."): that with which most are found is taken, the shortest first. `given` says a name
/// where they differ otherwise (wanted -> in the files). A tied one that is not found takes the only unused tensor of its
/// dims. Reports all that are missing or of other dims; `notes` says what was not plain, and what of the files is not used.
Expected<std::vector<BoundTensor>> bindWeights(const NamedWeights &weights, const std::vector<WantedTensor> &wanted,
                                               const std::map<std::string, std::string> &given,
                                               std::vector<std::string> &notes);

/// Elements [begin, end) of the tensor as wanted, row-major, in f32.
void readBound(const BoundTensor &bound, int64_t begin, int64_t end, float *target);

} // namespace zerocc
