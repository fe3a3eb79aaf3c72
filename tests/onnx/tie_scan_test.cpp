// Tied tensors are found by their content alone, wherever two differ, block by block.

#include "compiler/onnx/tie_scan.h"
#include "tests/onnx/build_model.h"

#include <random>

namespace zerocc {
namespace {

struct Pair {
  int64_t rows, columns, elementBytes;
  bool transposing, typed;
};

onnx::TensorProto tensorOf(const Pair &pair, int64_t rows, int64_t columns, const std::string &bytes) {
  onnx::TensorProto tensor;
  tensor.set_name("t");
  tensor.add_dims(rows);
  tensor.add_dims(columns);
  tensor.set_data_type(pair.elementBytes == 2 ? onnx::TensorProto::FLOAT16 : onnx::TensorProto::FLOAT);
  if (!pair.typed) {
    tensor.set_raw_data(bytes);
    return tensor;
  }
  for (size_t at = 0; at < bytes.size(); at += 4) {
    float value = 0;
    std::memcpy(&value, &bytes[at], 4);
    tensor.add_float_data(value);
  }
  return tensor;
}

std::string transposed(const Pair &pair, const std::string &bytes) {
  std::string out(bytes.size(), '\0');
  for (int64_t r = 0; r < pair.rows; ++r)
    for (int64_t c = 0; c < pair.columns; ++c)
      std::memcpy(&out[(c * pair.rows + r) * pair.elementBytes],
                  &bytes[(r * pair.columns + c) * pair.elementBytes], pair.elementBytes);
  return out;
}

TEST(TieScan, FindsEqualTensorsAndEverySingleDifference) {
  std::mt19937 random(5);
  for (const Pair &pair :
       {Pair{3, 5, 4, true, false}, Pair{700, 800, 4, true, false}, Pair{800, 700, 2, true, false},
        Pair{1, 900, 4, true, false}, Pair{700, 800, 4, false, false}, Pair{60, 50, 4, true, true},
        Pair{900, 1, 2, false, false}}) {
    const int64_t elements = pair.rows * pair.columns;
    std::string bytes(elements * pair.elementBytes, '\0');
    for (char &byte : bytes)
      byte = static_cast<char>(random() & 0x3f); // no NaN
    const std::string same = pair.transposing ? transposed(pair, bytes) : bytes;
    const LoadedModel model;
    const TensorType type{pair.elementBytes == 2 ? DType::f16 : DType::f32, {pair.rows, pair.columns}};
    const onnx::TensorProto copy = tensorOf(pair, pair.rows, pair.columns, bytes);
    auto compare = [&](const std::string &other) {
      const int64_t rows = pair.transposing ? pair.columns : pair.rows;
      auto equal =
          equalContents(model, copy, type, tensorOf(pair, rows, elements / rows, other), pair.transposing);
      EXPECT_TRUE(equal) << equal.error().text();
      return equal && *equal;
    };
    EXPECT_TRUE(compare(same)) << print(type);
    for (int64_t place : {int64_t(0), elements / 2, elements / 3, elements - 1}) {
      std::string other = same;
      other[place * pair.elementBytes] ^= 1;
      EXPECT_FALSE(compare(other)) << print(type) << " at " << place;
    }
    if (pair.rows > 1 && pair.columns > 1) { // two rows change places
      std::string other = same;
      const int64_t rowBytes = elements / (pair.transposing ? pair.columns : pair.rows) * pair.elementBytes;
      for (int64_t i = 0; i < rowBytes; ++i)
        std::swap(other[i], other[rowBytes + i]);
      EXPECT_FALSE(compare(other)) << print(type);
    }
  }
}

TEST(TieScan, FindsFilledTensorsAndEverySingleDifference) {
  const Pair pair{700, 800, 4, false, false};
  const int64_t elements = pair.rows * pair.columns;
  std::string bytes;
  for (int64_t i = 0; i < elements; ++i)
    bytes += std::string("\x00\x01\x02\x3f", 4);
  const LoadedModel model;
  const TensorType type{DType::f32, {pair.rows, pair.columns}};
  auto filled = isFilledWithOneValue(model, tensorOf(pair, pair.rows, pair.columns, bytes), type);
  EXPECT_TRUE(filled && *filled);
  for (int64_t place : {int64_t(0), int64_t(1), int64_t(1023), int64_t(1024), elements / 2, elements - 1}) {
    std::string other = bytes;
    other[place * 4 + 1] ^= 1;
    filled = isFilledWithOneValue(model, tensorOf(pair, pair.rows, pair.columns, other), type);
    EXPECT_TRUE(filled && !*filled) << place;
  }
}

} // namespace
} // namespace zerocc
