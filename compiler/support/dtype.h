#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace zerocc {

/// Element types. The numbers are written into plans: never renumber.
enum class DType : uint8_t {
  f32 = 0,
  f64 = 1,
  f16 = 2,
  bf16 = 3,
  i64 = 4,
  i32 = 5,
  i8 = 6,
  u8 = 7,
  boolean = 8,
  i16 = 9,
  u16 = 10,
  u32 = 11,
  u64 = 12
};
constexpr int kDTypes = 13;

inline int64_t byteSize(DType dtype) {
  switch (dtype) {
  case DType::f64:
  case DType::i64:
  case DType::u64:
    return 8;
  case DType::f32:
  case DType::i32:
  case DType::u32:
    return 4;
  case DType::f16:
  case DType::bf16:
  case DType::i16:
  case DType::u16:
    return 2;
  case DType::i8:
  case DType::u8:
  case DType::boolean:
    return 1;
  }
  return 0;
}

inline bool isFloat(DType dtype) { return dtype <= DType::bf16; }
inline bool isInteger(DType dtype) { return !isFloat(dtype) && dtype != DType::boolean; }
inline bool isUnsigned(DType dtype) {
  return dtype == DType::u8 || dtype == DType::u16 || dtype == DType::u32 || dtype == DType::u64;
}

inline std::string_view dtypeName(DType dtype) {
  constexpr std::string_view names[] = {"f32", "f64", "f16", "bf16", "i64", "i32", "i8", "u8", "bool",
                                        "i16", "u16", "u32", "u64"};
  return names[static_cast<int>(dtype)];
}

inline std::optional<DType> dtypeFromName(std::string_view name) {
  for (int i = 0; i < kDTypes; ++i)
    if (dtypeName(static_cast<DType>(i)) == name)
      return static_cast<DType>(i);
  return std::nullopt;
}

} // namespace zerocc
