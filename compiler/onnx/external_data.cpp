// Tensors whose bytes lie in other files: what the model says of them, and whether these files agree.

#include "compiler/onnx/external_data.h"

#include "compiler/onnx/loader.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/SHA1.h"

#include <algorithm>

namespace zerocc {

bool isExternal(const onnx::TensorProto &tensor) {
  return tensor.has_data_location() && tensor.data_location() == onnx::TensorProto::EXTERNAL;
}

Expected<ExternalRange> externalRange(const onnx::TensorProto &tensor) {
  ExternalRange range;
  for (const onnx::StringStringEntryProto &entry : tensor.external_data()) {
    auto number = [&]() -> Expected<int64_t> {
      int64_t value = 0;
      if (llvm::StringRef(entry.value()).getAsInteger(10, value) || value < 0)
        return Error("external data: " + entry.key() + " \"" + entry.value() + "\" is not a byte count");
      return value;
    };
    if (entry.key() == "location") {
      range.location = entry.value();
    } else if (entry.key() == "offset") {
      ZEROCC_ASSIGN(range.offset, number());
    } else if (entry.key() == "length") {
      ZEROCC_ASSIGN(int64_t length, number());
      range.length = length;
    } else if (entry.key() == "checksum") {
      range.checksum = llvm::StringRef(entry.value()).lower();
      if (range.checksum.size() != 40 ||
          range.checksum.find_first_not_of("0123456789abcdef") != std::string::npos)
        return Error("external data: checksum \"" + entry.value() + "\" is not a SHA-1 in hexadecimal");
    } else if (entry.key() != "basepath") {
      return Error("external data: unknown key \"" + entry.key() + "\"");
    }
  }
  if (range.location.empty())
    return Error("external data without a location");
  return range;
}

Expected<const ReadOnlyFile *> LoadedModel::externalFile(const std::string &location) {
  std::unique_ptr<ReadOnlyFile> &file = externalFiles_[location];
  if (!file) {
    if (!file_)
      return Error("a model given as text cannot have external data");
    ZEROCC_ASSIGN(file, ReadOnlyFile::openBeneath(directoryOf(path), location, links));
  }
  return static_cast<const ReadOnlyFile *>(file.get());
}

/// Of the whole file, as ONNX defines it: read once, however many tensors lie there.
Status LoadedModel::checkSum(const std::string &location, const std::string &checksum) {
  std::string &found = checksums_[location];
  if (found.empty()) {
    ZEROCC_ASSIGN(const ReadOnlyFile *file, externalFile(location));
    constexpr int64_t kStep = int64_t(1) << 20;
    llvm::SHA1 hash;
    for (int64_t at = 0; at < file->size(); at += kStep) {
      ZEROCC_ASSIGN(std::string bytes, file->read(at, std::min(kStep, file->size() - at)));
      hash.update(bytes);
    }
    found = llvm::toHex(hash.final(), true);
  }
  if (found != checksum)
    return Error("external data \"" + location + "\" has checksum " + found + ", the model says " + checksum,
                 "the file was changed or belongs to another model");
  return success();
}

Status LoadedModel::checkExternal(const onnx::TensorProto &tensor, const TensorType &type) {
  const int64_t bytes = type.bytes();
  ZEROCC_ASSIGN(ExternalRange range, externalRange(tensor));
  if (range.length && *range.length != bytes)
    return Error("external data of " + std::to_string(*range.length) + " bytes for " + print(type) +
                 ", which takes " + std::to_string(bytes));
  if (!hasBytes(tensor))
    return success();
  ZEROCC_ASSIGN(const ReadOnlyFile *file, externalFile(range.location));
  if (range.offset > file->size() || bytes > file->size() - range.offset)
    return Error("external data [" + std::to_string(range.offset) + ", +" + std::to_string(bytes) +
                 ") lies outside \"" + range.location + "\" of " + std::to_string(file->size()) + " bytes");
  if (!range.checksum.empty())
    ZEROCC_TRY(checkSum(range.location, range.checksum));
  if (bytes > 0)
    externalUses_[range.location].push_back({tensor.name(), range.offset, range.offset + bytes});
  return success();
}

std::vector<std::string> LoadedModel::sharedBytes() const {
  constexpr size_t kShown = 8;
  std::vector<std::string> notes;
  size_t hidden = 0;
  for (const auto &[location, uses] : externalUses_) {
    std::vector<ExternalUse> sorted = uses;
    std::stable_sort(sorted.begin(), sorted.end(),
                     [](const auto &a, const auto &b) { return a.begin < b.begin; });
    const ExternalUse *farthest = nullptr; // of those before, the one that ends last
    for (const ExternalUse &use : sorted) {
      if (farthest && use.begin < farthest->end) {
        if (notes.size() < kShown)
          notes.push_back("\"" + farthest->tensor + "\" and \"" + use.tensor + "\" share bytes of \"" +
                          location + "\": each starts from them and is trained by itself, unless tied");
        else
          ++hidden;
      }
      if (!farthest || use.end > farthest->end)
        farthest = &use;
    }
  }
  if (hidden > 0)
    notes.push_back("and " + std::to_string(hidden) + " more tensors that share bytes of external data");
  return notes;
}

} // namespace zerocc
