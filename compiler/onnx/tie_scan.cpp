#include "compiler/onnx/tie_scan.h"

#include <algorithm>
#include <cstring>

namespace zerocc {
namespace {

constexpr int64_t kBlock = int64_t(1) << 20; // bytes read at once

/// Is every element of the block the first one of the tensor?
class Uniformity {
public:
  explicit Uniformity(int64_t elementBytes) : elementBytes_(elementBytes) {}
  void look(const std::string &block) {
    if (first_.empty())
      first_ = block.substr(0, elementBytes_);
    for (size_t at = 0; isUniform_ && at + elementBytes_ <= block.size(); at += elementBytes_)
      isUniform_ = std::memcmp(block.data() + at, first_.data(), elementBytes_) == 0;
  }
  bool isUniform() const { return isUniform_; }

private:
  int64_t elementBytes_;
  std::string first_;
  bool isUniform_ = true;
};

/// The starts of what is read of `total` units of `unitBytes`, `perStep` at a time: all, or evenly spread ones of at most
/// `budget` bytes.
std::vector<int64_t> startsOf(int64_t total, int64_t perStep, int64_t unitBytes, int64_t budget = kTieScanBytes) {
  const int64_t steps = (total + perStep - 1) / perStep;
  const int64_t affordable = std::max<int64_t>(2, budget / std::max<int64_t>(1, perStep * unitBytes));
  std::vector<int64_t> starts;
  for (int64_t i = 0; i < std::min(steps, affordable); ++i)
    starts.push_back(steps <= affordable ? i * perStep
                                         : static_cast<int64_t>(static_cast<__int128>(i) * (total - perStep) /
                                                                (affordable - 1)));
  return starts;
}

Expected<bool> equalInOrder(const LoadedModel &model, const onnx::TensorProto &copy, const TensorType &type,
                            const onnx::TensorProto &original) {
  const int64_t size = type.bytes(), elementBytes = byteSize(type.dtype);
  Uniformity uniformity(elementBytes);
  for (int64_t start : startsOf(size / elementBytes, kBlock / elementBytes, elementBytes)) {
    const int64_t offset = start * elementBytes, length = std::min(kBlock, size - offset);
    ZEROCC_ASSIGN(std::string ours, model.bytesOf(copy, offset, length));
    ZEROCC_ASSIGN(std::string theirs, model.bytesOf(original, offset, length));
    if (ours != theirs)
      return false;
    uniformity.look(ours);
  }
  return !uniformity.isUniform();
}

/// A strip of rows of `copy` lies in columns of `original`: of each row of that, one short piece.
Expected<bool> equalTransposed(const LoadedModel &model, const onnx::TensorProto &copy,
                               const TensorType &type, const onnx::TensorProto &original) {
  const int64_t rows = type.dims[0], columns = type.dims[1], elementBytes = byteSize(type.dtype);
  const int64_t rowBytes = columns * elementBytes;
  // Strips of at least 16 rows, so that the pieces are worth reading.
  const int64_t strip = std::min(rows, std::max<int64_t>(16, kBlock / std::max<int64_t>(1, rowBytes)));
  Uniformity uniformity(elementBytes);
  for (int64_t start : startsOf(rows, strip, rowBytes)) {
    const int64_t height = std::min(strip, rows - start);
    ZEROCC_ASSIGN(std::string ours, model.bytesOf(copy, start * rowBytes, height * rowBytes));
    uniformity.look(ours);
    // All rows of the original; of large tensors evenly spread ones.
    const int64_t budget = type.bytes() <= kTieScanBytes ? height * rowBytes : kBlock;
    for (int64_t column : startsOf(columns, 1, height * elementBytes, budget)) {
      ZEROCC_ASSIGN(std::string piece,
                    model.bytesOf(original, (column * rows + start) * elementBytes, height * elementBytes));
      for (int64_t r = 0; r < height; ++r)
        if (std::memcmp(piece.data() + r * elementBytes, ours.data() + r * rowBytes + column * elementBytes,
                        elementBytes) != 0)
          return false;
    }
  }
  return !uniformity.isUniform();
}

} // namespace

Expected<bool> equalContents(const LoadedModel &model, const onnx::TensorProto &copy, const TensorType &type,
                             const onnx::TensorProto &original, bool transposing) {
  if (type.elements() == 0)
    return false;
  return transposing ? equalTransposed(model, copy, type, original)
                     : equalInOrder(model, copy, type, original);
}

} // namespace zerocc
