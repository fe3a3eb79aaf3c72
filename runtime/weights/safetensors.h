#pragma once

#include "runtime/data/array.h"
#include "runtime/weights/tensor_bytes.h"

#include <map>
#include <vector>

namespace zerocc {

struct SafetensorsEntry {
  std::string name;
  ElementType type = ElementType::f32;
  std::vector<int64_t> dims;
};

/// Hugging Face's tensor file: u64 length, JSON header, bytes. Written in the usual order (larger elements
/// first, then by name), whole or not at all. A tensor of two names is stored once; tell the other in the
/// metadata.
Status writeSafetensors(const std::string &path, std::vector<SafetensorsEntry> entries,
                        const std::map<std::string, std::string> &metadata, const TensorBytes &bytes);

/// Reads such a file in place. Strict, as the format asks: no hole, no overlap, no key twice, nothing behind
/// the end.
class SafetensorsFile {
public:
  static Expected<SafetensorsFile> open(const std::string &path);

  /// In the order of the file's bytes.
  const std::vector<std::string> &names() const { return names_; }
  const ArrayView *find(const std::string &name) const;
  const std::map<std::string, std::string> &metadata() const { return metadata_; }

private:
  Status readHeader(const std::shared_ptr<const MappedFile> &file);

  std::vector<std::string> names_;
  std::map<std::string, ArrayView> tensors_;
  std::map<std::string, std::string> metadata_;
};

} // namespace zerocc
