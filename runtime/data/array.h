#pragma once

#include "compiler/support/dtype.h"

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace zerocc {

/// Element types found in files: more than the compiler computes with.
enum class ElementType : uint8_t { f16, bf16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, boolean };

int64_t byteSize(ElementType type);
std::string_view elementTypeName(ElementType type);
inline bool isFloat(ElementType type) { return type <= ElementType::f64; }
ElementType elementType(DType dtype);
/// None for the types only files know.
std::optional<DType> dtypeOf(ElementType type);

/// Number of elements, or nothing when a dim is negative or the product times 8 leaves 63 bits.
std::optional<int64_t> countElements(const std::vector<int64_t> &dims);
/// "[80,32]"
std::string dimsText(const std::vector<int64_t> &dims);

/// An array as it lies in a file: little-endian, row-major, at any alignment. `owner` keeps the bytes alive.
struct ArrayView {
  ElementType type = ElementType::f32;
  std::vector<int64_t> dims;
  int64_t elements = 0;
  const unsigned char *data = nullptr;
  std::shared_ptr<const void> owner;

  int64_t bytes() const { return elements * byteSize(type); }
};

/// Integers that may be read, both ends included; `ignored` is allowed besides.
struct IntegerRange {
  int64_t least = std::numeric_limits<int64_t>::min();
  int64_t greatest = std::numeric_limits<int64_t>::max();
  std::optional<int64_t> ignored;
};

/// Whether `convert` can make `to` from `from`: integers and booleans from integers and booleans (each value
/// is checked to fit), floats from floats (rounded to nearest, ties to even). Never one kind from the other.
bool isConvertible(ElementType from, DType to);

/// Converts `count` elements. Returns the index of the first integer that is out of `range` or does not fit
/// `to`, at which it stops; otherwise -1. A float to 16 bits goes through f32.
int64_t convert(ElementType from, const void *source, int64_t count, DType to, void *target,
                const IntegerRange &range = {});

/// One element, for messages and comparisons.
double elementAsDouble(ElementType type, const void *source, int64_t index);
int64_t elementAsInteger(ElementType type, const void *source, int64_t index);

} // namespace zerocc
