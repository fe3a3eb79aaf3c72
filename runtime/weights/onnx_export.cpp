#include "runtime/weights/onnx_export.h"

#include "runtime/data/atomic_file.h"
#include "runtime/weights/onnx_fields.h"
#include "runtime/weights/wire.h"

#include <filesystem>
#include <map>

// A message is as long as its parts, and says so before them. So the new file is first laid out as a list of
// pieces - ranges of the old file, new tags and lengths, payloads of tensors - whose sizes are known without
// the weights; then the pieces are written in order, and each tensor's bytes are asked for as they come up.

namespace zerocc {

using namespace onnx_fields;

// protobuf reads no more
constexpr int64_t kMaxModelBytes = int64_t(1) << 31;
// ONNX's advice, so that external tensors can be mapped
constexpr int64_t kExternalAlignment = 4096;

namespace {

struct Piece {
  Bytes old;                           // of the old file, or
  std::string text;                    // new bytes, or
  const ModelTensor *tensor = nullptr; // the payload of a tensor
};

/// A message in the making.
struct Layout {
  std::vector<Piece> pieces;
  int64_t bytes = 0;

  void addOld(Bytes old) {
    bytes += static_cast<int64_t>(old.size());
    if (!pieces.empty() && pieces.back().old.data() &&
        pieces.back().old.data() + pieces.back().old.size() == old.data())
      pieces.back().old = {pieces.back().old.data(), pieces.back().old.size() + old.size()};
    else if (!old.empty())
      pieces.push_back({.old = old});
  }
  void addText(std::string text) {
    bytes += static_cast<int64_t>(text.size());
    pieces.push_back({.text = std::move(text)});
  }
  void addPayload(const ModelTensor &tensor, int64_t payloadBytes) {
    bytes += payloadBytes;
    pieces.push_back({.tensor = &tensor});
  }
  void addMessage(uint32_t number, Layout message) {
    std::string head;
    putLength(head, number, static_cast<uint64_t>(message.bytes));
    addText(std::move(head));
    bytes += message.bytes;
    for (Piece &piece : message.pieces)
      pieces.push_back(std::move(piece));
  }
};

int64_t payloadBytes(const ModelTensor &tensor) { return tensor.elements * byteSize(*tensor.type); }

class Exporter {
public:
  Exporter(const ModelWeights &model, const std::string &path, const OnnxExportOptions &options)
      : model_(model), path_(path), options_(options) {}

  Status run(const std::vector<std::string> &names, const TensorBytes &bytes) {
    ZEROCC_TRY(choose(names));
    Layout layout = rewrite(model_.file().bytes());
    if (layout.bytes >= kMaxModelBytes)
      return Error(path_ + ": would have " + std::to_string(layout.bytes) + " bytes; protobuf ends at 2 GiB",
                   "export as .safetensors");
    ZEROCC_ASSIGN(AtomicFile file, AtomicFile::create(path_));
    if (!external_.empty())
      ZEROCC_TRY(writeDataFile(bytes));
    for (const Piece &piece : layout.pieces) {
      if (piece.tensor) {
        ZEROCC_TRY(writePayload(file, *piece.tensor, bytes));
      } else {
        ZEROCC_TRY(file.write(piece.old)); // one of the two is empty
        ZEROCC_TRY(file.write(piece.text));
      }
    }
    return file.commit();
  }

private:
  /// Which tensors are written anew, and which of them into a file beside the model.
  Status choose(const std::vector<std::string> &names) {
    std::vector<Diagnostic> findings;
    for (const std::string &name : names) {
      const ModelTensor *tensor = model_.find(name);
      if (!tensor)
        findings.push_back({path_ + ": the model has no tensor \"" + name + "\" to replace"});
      else if (!tensor->type)
        findings.push_back({path_ + ": tensor \"" + name + "\" is of ONNX type " +
                            std::to_string(tensor->onnxType) + ", which is not written"});
      else
        replaced_[tensor->message.data()] = tensor;
    }
    if (!findings.empty())
      return Error(std::move(findings));
    int64_t total = model_.file().size();
    for (const ModelTensor &tensor : model_.tensors()) {
      if (tensor.storage != ModelTensor::Storage::external)
        continue;
      if (!tensor.type)
        return Error(path_ + ": tensor \"" + tensor.name + "\" of ONNX type " +
                         std::to_string(tensor.onnxType) + " lies in external data, and such are not moved",
                     "export as .safetensors");
      rewritten_[tensor.message.data()] = &tensor;
      total += tensor.bytes;
    }
    int64_t offset = 0;
    if (total > options_.inlineBytes)
      for (const auto &[position, tensor] : rewritten_) { // external ones alone, so far
        offset = (offset + kExternalAlignment - 1) / kExternalAlignment * kExternalAlignment;
        external_[position] = {tensor, offset};
        offset += tensor->bytes;
      }
    rewritten_.insert(replaced_.begin(), replaced_.end());
    return success();
  }

  /// The fields of `message`, with every message that holds a rewritten tensor laid out anew. The scanner
  /// found the tensors at a fixed depth, so this ends at the same.
  Layout rewrite(Bytes message) {
    Layout layout;
    WireReader reader(message);
    WireField field;
    while (reader.next(field) == WireReader::Next::field) {
      const ModelTensor *tensor = field.type == WireField::bytes ? firstInside(field.payload) : nullptr;
      if (!tensor)
        layout.addOld(field.whole);
      else if (tensor->message.data() == field.payload.data() &&
               tensor->message.size() == field.payload.size())
        layout.addMessage(field.number, rewriteTensor(*tensor));
      else
        layout.addMessage(field.number, rewrite(field.payload));
    }
    return layout;
  }

  /// A rewritten tensor whose message lies in `range`, or null.
  const ModelTensor *firstInside(Bytes range) const {
    auto at = rewritten_.lower_bound(range.data());
    return at != rewritten_.end() && at->first < range.data() + range.size() ? at->second : nullptr;
  }

  Layout rewriteTensor(const ModelTensor &tensor) {
    Layout layout;
    WireReader reader(tensor.message);
    WireField field;
    while (reader.next(field) == WireReader::Next::field) {
      switch (field.number) {
      case tensor::kFloatData:
      case tensor::kInt32Data:
      case tensor::kStringData:
      case tensor::kInt64Data:
      case tensor::kRawData:
      case tensor::kDoubleData:
      case tensor::kUint64Data:
      case tensor::kExternalData:
      case tensor::kDataLocation:
        break;
      default:
        layout.addOld(field.whole);
      }
    }
    if (auto at = external_.find(tensor.message.data()); at != external_.end()) {
      layout.addText(externalFields(tensor, at->second.offset));
      return layout;
    }
    std::string head;
    putLength(head, tensor::kRawData, static_cast<uint64_t>(payloadBytes(tensor)));
    layout.addText(std::move(head));
    layout.addPayload(tensor, payloadBytes(tensor));
    return layout;
  }

  std::string dataPath() const { return path_ + ".data"; }

  std::string externalFields(const ModelTensor &tensor, int64_t offset) const {
    std::string fields;
    auto put = [&](const std::string &key, const std::string &value) {
      std::string entry;
      putBytes(entry, entry::kKey, key);
      putBytes(entry, entry::kValue, value);
      putBytes(fields, tensor::kExternalData, entry);
    };
    put("location", std::filesystem::path(dataPath()).filename());
    put("offset", std::to_string(offset));
    put("length", std::to_string(tensor.bytes));
    putTag(fields, tensor::kDataLocation, WireField::varint);
    putVarint(fields, 1);
    return fields;
  }

  Status writeDataFile(const TensorBytes &bytes) {
    ZEROCC_ASSIGN(AtomicFile file, AtomicFile::create(dataPath()));
    for (const auto &[position, target] : external_) {
      ZEROCC_TRY(file.write(std::string(target.offset - file.written(), '\0')));
      ZEROCC_TRY(writePayload(file, *target.tensor, bytes));
    }
    return file.commit();
  }

  Status writePayload(AtomicFile &file, const ModelTensor &tensor, const TensorBytes &bytes) {
    if (!replaced_.count(tensor.message.data())) // external data that moves
      return file.write(Bytes(tensor.data, tensor.bytes));
    ZEROCC_ASSIGN(Bytes payload, bytes(tensor.name));
    if (int64_t(payload.size()) != payloadBytes(tensor))
      return Error(path_ + ": tensor \"" + tensor.name + "\" came with " + std::to_string(payload.size()) +
                   " bytes, " + std::string(elementTypeName(*tensor.type)) + dimsText(tensor.dims) +
                   " needs " + std::to_string(payloadBytes(tensor)));
    return file.write(payload);
  }

  const ModelWeights &model_;
  std::string path_;
  OnnxExportOptions options_;
  // keyed by where a tensor's message lies, so in file order
  template <typename T> using ByPosition = std::map<const unsigned char *, T>;
  struct Target {
    const ModelTensor *tensor;
    int64_t offset; // in the data file
  };
  ByPosition<const ModelTensor *> replaced_, rewritten_;
  ByPosition<Target> external_;
};

} // namespace

Status exportOnnx(const ModelWeights &model, const std::string &path, const std::vector<std::string> &names,
                  const TensorBytes &bytes, const OnnxExportOptions &options) {
  return Exporter(model, path, options).run(names, bytes);
}

} // namespace zerocc
