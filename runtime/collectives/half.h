#pragma once

#include <bit>
#include <cstdint>

namespace zerocc {

/// 16-bit floats as bits. Widening is exact; narrowing rounds to nearest even, NaN stays NaN.
inline float fromBf16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

inline uint16_t toBf16(float value) {
  // Both cases are computed, so that loops over this vectorise.
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = bits + 0x7fff + ((bits >> 16) & 1);
  const uint32_t quiet = bits | 0x400000; // also when the payload lies in the lost bits
  return static_cast<uint16_t>(((bits & 0x7fffffff) > 0x7f800000 ? quiet : rounded) >> 16);
}

inline float fromF16(uint16_t bits) {
  // The fraction and exponent moved into place are the value times 2^-112, subnormals included.
  float scaled = std::bit_cast<float>(static_cast<uint32_t>(bits & 0x7fff) << 13) * 0x1p112f;
  uint32_t magnitude = std::bit_cast<uint32_t>(scaled);
  if (scaled >= 65536.0f) // infinity or NaN
    magnitude |= 0x7f800000;
  return std::bit_cast<float>(magnitude | static_cast<uint32_t>(bits & 0x8000) << 16);
}

inline uint16_t toF16(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  uint32_t sign = bits & 0x80000000, magnitude = bits ^ sign, half;
  if (magnitude > 0x7f800000) {
    half = 0x7e00;
  } else if (magnitude >= 0x47800000) { // 65536 and above; from 65520 on the last case rounds up to infinity
    half = 0x7c00;
  } else if (magnitude < 0x38800000) { // below 2^-14: adding 0.5 lets the adder shift and round
    half = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000;
  } else {
    half = (magnitude + 0xfff + ((magnitude >> 13) & 1) - 0x38000000) >> 13;
  }
  return static_cast<uint16_t>(half | sign >> 16);
}

} // namespace zerocc
