// Tensors on the host: rounding to a dtype, and little-endian bytes.

#include "compiler/ops/interpreter.h"

#include "llvm/ADT/StringRef.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace zerocc {
namespace {

static_assert(std::endian::native == std::endian::little, "tensor bytes are little-endian");

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// The nearest (ties to even) number with `mantissaBits` bits behind the leading one and exponents in
/// [minExponent, maxExponent]; smaller ones are subnormal, larger ones infinite.
double roundToFormat(double v, int mantissaBits, int minExponent, int maxExponent) {
  if (v == 0 || !std::isfinite(v))
    return v;
  int exponent = std::max(std::ilogb(v), minExponent);
  double rounded =
      std::ldexp(std::nearbyint(std::ldexp(v, mantissaBits - exponent)), exponent - mantissaBits);
  return std::ilogb(rounded) > maxExponent ? std::copysign(kInfinity, v) : rounded;
}

uint16_t bf16Bits(double v) {
  uint32_t bits = std::bit_cast<uint32_t>(static_cast<float>(roundToDType(v, DType::bf16)));
  return static_cast<uint16_t>(bits >> 16) | (std::isnan(v) ? 0x40 : 0);
}

double bf16Value(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

uint16_t f16Bits(double v) {
  uint16_t sign = std::signbit(v) ? 0x8000 : 0;
  if (std::isnan(v))
    return sign | 0x7e00;
  v = std::fabs(roundToDType(v, DType::f16));
  if (std::isinf(v))
    return sign | 0x7c00;
  if (v < std::ldexp(1.0, -14)) // subnormal: multiples of 2^-24
    return sign | static_cast<uint16_t>(std::ldexp(v, 24));
  int exponent = std::ilogb(v);
  auto mantissa = static_cast<uint16_t>(std::ldexp(v, 10 - exponent)); // 1024 … 2047
  return sign | static_cast<uint16_t>(((exponent + 15) << 10) + (mantissa - 1024));
}

double f16Value(uint16_t bits) {
  int exponent = (bits >> 10) & 31;
  int mantissa = bits & 1023;
  double magnitude = exponent == 31  ? (mantissa ? kNan : kInfinity)
                     : exponent == 0 ? std::ldexp(mantissa, -24)
                                     : std::ldexp(1024 + mantissa, exponent - 25);
  return bits & 0x8000 ? -magnitude : magnitude;
}

/// `Stored` in the bytes, `Lane` in the tensor.
template <typename Stored, typename Lane>
void unpack(llvm::StringRef bytes, std::vector<Lane> &lanes, Lane (*convert)(Stored)) {
  for (size_t i = 0; i < lanes.size(); ++i) {
    Stored stored;
    std::memcpy(&stored, bytes.data() + i * sizeof(Stored), sizeof(Stored));
    lanes[i] = convert(stored);
  }
}

template <typename Stored, typename Lane>
void pack(const std::vector<Lane> &lanes, std::string &bytes, Stored (*convert)(Lane)) {
  for (size_t i = 0; i < lanes.size(); ++i) {
    Stored stored = convert(lanes[i]);
    std::memcpy(bytes.data() + i * sizeof(Stored), &stored, sizeof(Stored));
  }
}

template <typename To, typename From> To convertTo(From v) { return static_cast<To>(v); }

} // namespace

double roundToDType(double v, DType dtype) {
  switch (dtype) {
  case DType::f32:
    return static_cast<float>(v);
  case DType::f16:
    return roundToFormat(v, 10, -14, 15);
  case DType::bf16:
    return roundToFormat(v, 7, -126, 127);
  default:
    return v;
  }
}

int64_t wrapToDType(int64_t v, DType dtype) {
  switch (dtype) {
  case DType::i32:
    return static_cast<int32_t>(v);
  case DType::i8:
    return static_cast<int8_t>(v);
  case DType::u8:
    return static_cast<uint8_t>(v);
  case DType::i16:
    return static_cast<int16_t>(v);
  case DType::u16:
    return static_cast<uint16_t>(v);
  case DType::u32:
    return static_cast<uint32_t>(v);
  case DType::boolean:
    return v != 0;
  default:
    return v;
  }
}

HostTensor HostTensor::zeros(const TensorType &type) {
  HostTensor out;
  out.type = type;
  if (isFloat(type.dtype))
    out.reals.assign(type.elements(), 0);
  else
    out.integers.assign(type.elements(), 0);
  return out;
}

HostTensor HostTensor::real(TensorType type, std::vector<double> values) {
  assert(isFloat(type.dtype) && static_cast<int64_t>(values.size()) == type.elements() &&
         "values do not fit type");
  HostTensor out;
  out.type = std::move(type);
  out.reals = std::move(values);
  return out;
}

HostTensor HostTensor::integer(TensorType type, std::vector<int64_t> values) {
  assert(!isFloat(type.dtype) && static_cast<int64_t>(values.size()) == type.elements() &&
         "values do not fit type");
  HostTensor out;
  out.type = std::move(type);
  out.integers = std::move(values);
  return out;
}

HostTensor HostTensor::fromBytes(TensorType type, llvm::StringRef bytes) {
  assert(static_cast<int64_t>(bytes.size()) == type.bytes() && "bytes do not fit type");
  HostTensor out = zeros(type);
  switch (type.dtype) {
  case DType::f64:
    unpack<double, double>(bytes, out.reals, convertTo<double, double>);
    break;
  case DType::f32:
    unpack<float, double>(bytes, out.reals, convertTo<double, float>);
    break;
  case DType::f16:
    unpack<uint16_t, double>(bytes, out.reals, f16Value);
    break;
  case DType::bf16:
    unpack<uint16_t, double>(bytes, out.reals, bf16Value);
    break;
  case DType::i64:
    unpack<int64_t, int64_t>(bytes, out.integers, convertTo<int64_t, int64_t>);
    break;
  case DType::i32:
    unpack<int32_t, int64_t>(bytes, out.integers, convertTo<int64_t, int32_t>);
    break;
  case DType::i8:
    unpack<int8_t, int64_t>(bytes, out.integers, convertTo<int64_t, int8_t>);
    break;
  case DType::u8:
    unpack<uint8_t, int64_t>(bytes, out.integers, convertTo<int64_t, uint8_t>);
    break;
  case DType::i16:
    unpack<int16_t, int64_t>(bytes, out.integers, convertTo<int64_t, int16_t>);
    break;
  case DType::u16:
    unpack<uint16_t, int64_t>(bytes, out.integers, convertTo<int64_t, uint16_t>);
    break;
  case DType::u32:
    unpack<uint32_t, int64_t>(bytes, out.integers, convertTo<int64_t, uint32_t>);
    break;
  case DType::u64:
    unpack<uint64_t, int64_t>(bytes, out.integers, convertTo<int64_t, uint64_t>);
    break;
  case DType::boolean:
    unpack<uint8_t, int64_t>(bytes, out.integers, [](uint8_t v) { return int64_t(v != 0); });
    break;
  }
  return out;
}

std::string HostTensor::toBytes() const {
  std::string bytes(type.bytes(), '\0');
  switch (type.dtype) {
  case DType::f64:
    pack<double, double>(reals, bytes, convertTo<double, double>);
    break;
  case DType::f32:
    pack<float, double>(reals, bytes, convertTo<float, double>);
    break;
  case DType::f16:
    pack<uint16_t, double>(reals, bytes, f16Bits);
    break;
  case DType::bf16:
    pack<uint16_t, double>(reals, bytes, bf16Bits);
    break;
  case DType::i64:
    pack<int64_t, int64_t>(integers, bytes, convertTo<int64_t, int64_t>);
    break;
  case DType::i32:
    pack<int32_t, int64_t>(integers, bytes, convertTo<int32_t, int64_t>);
    break;
  case DType::i16:
  case DType::u16:
    pack<uint16_t, int64_t>(integers, bytes, convertTo<uint16_t, int64_t>);
    break;
  case DType::u32:
    pack<uint32_t, int64_t>(integers, bytes, convertTo<uint32_t, int64_t>);
    break;
  case DType::u64:
    pack<uint64_t, int64_t>(integers, bytes, convertTo<uint64_t, int64_t>);
    break;
  case DType::i8:
  case DType::u8:
    pack<uint8_t, int64_t>(integers, bytes, convertTo<uint8_t, int64_t>);
    break;
  case DType::boolean:
    pack<uint8_t, int64_t>(integers, bytes, [](int64_t v) { return uint8_t(v != 0); });
    break;
  }
  return bytes;
}

} // namespace zerocc
