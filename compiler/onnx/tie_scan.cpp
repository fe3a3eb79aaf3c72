// Transposed tensors are compared by hashes: row j of the copy is column j of the original, so one pass over
// the original with a hash per column, and one over the copy, tell whether all of them agree, without either
// in memory. Before that, a corner of both is compared element by element.

#include "compiler/onnx/tie_scan.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace zerocc {
namespace {

constexpr int64_t kBlock = int64_t(1) << 20; // bytes read at once
constexpr int64_t kCorner = 16;              // rows and columns

/// Calls look(bytes) for the blocks of a tensor, until it gives false.
template <typename F>
Status eachBlock(const LoadedModel &model, const onnx::TensorProto &tensor, const TensorType &type, F look) {
  const int64_t size = type.bytes();
  for (int64_t offset = 0; offset < size; offset += kBlock) {
    ZEROCC_ASSIGN(std::string block, model.bytesOf(tensor, offset, std::min(kBlock, size - offset)));
    if (!look(block))
      break;
  }
  return success();
}

/// Order matters: the same elements in another order give another hash.
uint64_t hashed(uint64_t before, uint64_t bits) {
  uint64_t mixed = (before << 7 | before >> 57) ^ (bits * 0x9e3779b97f4a7c15);
  mixed ^= mixed >> 29;
  return mixed * 0xbf58476d1ce4e5b9 + 1;
}

Expected<bool> equalInOrder(const LoadedModel &model, const onnx::TensorProto &copy, const TensorType &type,
                            const onnx::TensorProto &original) {
  const int64_t size = type.bytes();
  for (int64_t offset = 0; offset < size; offset += kBlock) {
    const int64_t length = std::min(kBlock, size - offset);
    ZEROCC_ASSIGN(std::string ours, model.bytesOf(copy, offset, length));
    ZEROCC_ASSIGN(std::string theirs, model.bytesOf(original, offset, length));
    if (ours != theirs)
      return false;
  }
  return true;
}

/// The last rows of the copy beside the last columns of the original.
Expected<bool> cornersAgree(const LoadedModel &model, const onnx::TensorProto &copy, const TensorType &type,
                            const onnx::TensorProto &original) {
  const int64_t rows = type.dims[0], columns = type.dims[1], elementBytes = byteSize(type.dtype);
  const int64_t height = std::min(rows, kCorner), width = std::min(columns, kCorner);
  std::vector<std::string> ours;
  for (int64_t row = rows - height; row < rows; ++row) {
    const int64_t first = row * columns + columns - width;
    ZEROCC_ASSIGN(std::string piece, model.bytesOf(copy, first * elementBytes, width * elementBytes));
    ours.push_back(piece);
  }
  for (int64_t column = 0; column < width; ++column) {
    const int64_t first = (columns - width + column) * rows + rows - height;
    ZEROCC_ASSIGN(std::string theirs, model.bytesOf(original, first * elementBytes, height * elementBytes));
    for (int64_t row = 0; row < height; ++row)
      if (theirs.compare(row * elementBytes, elementBytes, ours[row], column * elementBytes, elementBytes) !=
          0)
        return false;
  }
  return true;
}

template <typename Bits>
Expected<bool> columnsAgree(const LoadedModel &model, const onnx::TensorProto &copy, const TensorType &type,
                            const onnx::TensorProto &original) {
  const int64_t rows = type.dims[0], columns = type.dims[1];
  auto bitsAt = [](const std::string &block, size_t at) {
    Bits bits;
    std::memcpy(&bits, block.data() + at, sizeof(Bits));
    return static_cast<uint64_t>(bits);
  };
  std::vector<uint64_t> hashes(rows, 0); // of the columns of the original, [columns, rows]
  int64_t column = 0;
  ZEROCC_TRY(eachBlock(model, original, type, [&](const std::string &block) {
    for (size_t at = 0; at < block.size(); at += sizeof(Bits)) {
      hashes[column] = hashed(hashes[column], bitsAt(block, at));
      column = column + 1 == rows ? 0 : column + 1;
    }
    return true;
  }));
  uint64_t hash = 0;
  int64_t row = 0, left = columns;
  bool agree = true;
  ZEROCC_TRY(eachBlock(model, copy, type, [&](const std::string &block) {
    for (size_t at = 0; at < block.size() && agree; at += sizeof(Bits)) {
      hash = hashed(hash, bitsAt(block, at));
      if (--left > 0)
        continue;
      agree = hash == hashes[row++];
      hash = 0;
      left = columns;
    }
    return agree;
  }));
  return agree;
}

Expected<bool> equalTransposed(const LoadedModel &model, const onnx::TensorProto &copy,
                               const TensorType &type, const onnx::TensorProto &original) {
  ZEROCC_ASSIGN(bool corners, cornersAgree(model, copy, type, original));
  if (!corners)
    return false;
  switch (byteSize(type.dtype)) {
  case 1:
    return columnsAgree<uint8_t>(model, copy, type, original);
  case 2:
    return columnsAgree<uint16_t>(model, copy, type, original);
  case 4:
    return columnsAgree<uint32_t>(model, copy, type, original);
  default:
    return columnsAgree<uint64_t>(model, copy, type, original);
  }
}

} // namespace

Expected<bool> isFilledWithOneValue(const LoadedModel &model, const onnx::TensorProto &tensor,
                                    const TensorType &type) {
  const int64_t size = type.bytes(), elementBytes = byteSize(type.dtype);
  std::string first;
  bool isFilled = true;
  for (int64_t offset = 0, length = 4096; offset < size && isFilled; offset += length, length = kBlock) {
    ZEROCC_ASSIGN(std::string block, model.bytesOf(tensor, offset, std::min(length, size - offset)));
    if (first.empty())
      first = block.substr(0, elementBytes);
    // Each element equals the one before, and the first of the block the first of all.
    isFilled = block.compare(0, elementBytes, first) == 0 &&
               std::memcmp(block.data(), block.data() + elementBytes, block.size() - elementBytes) == 0;
  }
  return isFilled;
}

Expected<bool> equalContents(const LoadedModel &model, const onnx::TensorProto &copy, const TensorType &type,
                             const onnx::TensorProto &original, bool transposing) {
  return type.elements() == 0 ? Expected<bool>(true)
         : transposing        ? equalTransposed(model, copy, type, original)
                              : equalInOrder(model, copy, type, original);
}

} // namespace zerocc
