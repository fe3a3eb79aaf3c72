#pragma once

#include "compiler/support/dtype.h"
#include "compiler/support/expected.h"
#include "runtime/data/array.h"
#include "runtime/data/mapped_file.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace zerocc {

struct ModelWeightsOptions {
  /// Accept external data behind links and files with several names (caches of model hubs are made of these).
  bool followSymlinks = false;
};

/// An initializer of an ONNX model, or the value of a Constant node (by the name of its output).
struct ModelTensor {
  enum class Storage : uint8_t {
    raw,     // little-endian bytes in the model file
    typed,   // float_data, int32_data, …, of the message
    external // little-endian bytes in another file
  };
  std::string name;
  bool isConstantNode = false;
  int onnxType = 0;                // TensorProto.DataType
  std::optional<ElementType> type; // none: a type we do not read
  std::vector<int64_t> dims;
  int64_t elements = 0;
  Storage storage = Storage::raw;
  const unsigned char *data = nullptr; // raw, external: the first byte
  int64_t bytes = 0;                   // raw, external
  uint32_t typedField = 0;             // typed: its field number
  std::string location;                // external: file beside the model
  int64_t offset = 0;                  // external: in that file; raw: in the model file
  Bytes message;                       // the TensorProto in the model file
};

/// The weights of an ONNX file, found by stepping over its protobuf fields: the file is mapped, never loaded,
/// and a rank reads the ranges it owns. External data is opened beneath the model's own folder only. Reading
/// is safe from several threads. Checksums of external data are left to the compiler: they need the whole
/// file.
class ModelWeights {
public:
  static Expected<ModelWeights> open(const std::string &path, const ModelWeightsOptions &options = {});

  const std::vector<ModelTensor> &tensors() const { return tensors_; }
  const ModelTensor *find(const std::string &name) const;

  /// Writes elements [begin, end) of a tensor to `target` as `want`: floats from floats (rounded to nearest),
  /// integers and booleans from those that fit.
  Status read(const std::string &name, int64_t begin, int64_t end, DType want, void *target) const;

  const MappedFile &file() const { return *file_; }

private:
  friend class ModelScanner;
  Status readTyped(const ModelTensor &tensor, int64_t begin, int64_t end, DType want, void *target) const;

  std::shared_ptr<const MappedFile> file_;
  std::map<std::string, std::shared_ptr<const MappedFile>> externalFiles_; // by location
  std::vector<ModelTensor> tensors_;                                       // in file order
  std::map<std::string, size_t> byName_;
};

} // namespace zerocc
