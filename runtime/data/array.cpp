#include "runtime/data/array.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>

static_assert(std::endian::native == std::endian::little, "files are little-endian and are read as they are");

namespace zerocc {

int64_t byteSize(ElementType type) {
  switch (type) {
  case ElementType::f64:
  case ElementType::i64:
  case ElementType::u64:
    return 8;
  case ElementType::f32:
  case ElementType::i32:
  case ElementType::u32:
    return 4;
  case ElementType::f16:
  case ElementType::bf16:
  case ElementType::i16:
  case ElementType::u16:
    return 2;
  case ElementType::i8:
  case ElementType::u8:
  case ElementType::boolean:
    return 1;
  }
  return 0;
}

std::string_view elementTypeName(ElementType type) {
  constexpr std::string_view names[] = {"f16", "bf16", "f32", "f64", "i8",  "i16", "i32",
                                        "i64", "u8",   "u16", "u32", "u64", "bool"};
  return names[static_cast<int>(type)];
}

ElementType elementType(DType dtype) {
  constexpr ElementType types[] = {ElementType::f32,  ElementType::f64, ElementType::f16,
                                   ElementType::bf16, ElementType::i64, ElementType::i32,
                                   ElementType::i8,   ElementType::u8,  ElementType::boolean,
                                   ElementType::i16,  ElementType::u16, ElementType::u32,
                                   ElementType::u64};
  static_assert(std::size(types) == kDTypes);
  return types[static_cast<int>(dtype)];
}

std::optional<DType> dtypeOf(ElementType type) { return dtypeFromName(elementTypeName(type)); }

std::optional<int64_t> countElements(const std::vector<int64_t> &dims) {
  int64_t product = 1;
  bool empty = false;
  for (int64_t dim : dims) {
    if (dim < 0 || __builtin_mul_overflow(product, std::max<int64_t>(dim, 1), &product))
      return std::nullopt;
    empty |= dim == 0;
  }
  if (product > std::numeric_limits<int64_t>::max() / 8)
    return std::nullopt;
  return empty ? 0 : product;
}

std::string dimsText(const std::vector<int64_t> &dims) {
  std::string text = "[";
  for (size_t i = 0; i < dims.size(); ++i)
    text += (i ? "," : "") + std::to_string(dims[i]);
  return text + "]";
}

// --- 16-bit floats
// ---------------------------------------------------------------------------------------------------

struct Half {
  uint16_t bits;
};
struct BFloat {
  uint16_t bits;
};
struct Bool {
  uint8_t bits;
};

static float toFloat(Half half) {
  uint32_t sign = uint32_t(half.bits & 0x8000) << 16, exponent = (half.bits >> 10) & 31,
           fraction = half.bits & 1023;
  if (exponent == 31)
    return std::bit_cast<float>(sign | 0x7f800000 | fraction << 13);
  if (exponent == 0) { // zero and subnormal: fraction * 2^-24, exact in f32
    float value = static_cast<float>(fraction) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(value));
  }
  return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
}

static Half toHalf(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) // NaN: quiet, upper payload kept
    return {static_cast<uint16_t>(sign | 0x7e00 | (magnitude >> 13 & 0x3ff))};
  if (magnitude >= 0x477ff000) // rounds to 65536 or more
    return {static_cast<uint16_t>(sign | 0x7c00)};
  if (magnitude < 0x38800000) { // below 2^-14: adding 1/2 makes the sum's last bit 2^-24 and rounds there
    float sum = std::bit_cast<float>(magnitude) + 0.5f;
    return {static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(sum) - 0x3f000000))};
  }
  uint32_t rounded = magnitude - (112u << 23) + 0xfff + (magnitude >> 13 & 1);
  return {static_cast<uint16_t>(sign | rounded >> 13)};
}

static float toFloat(BFloat value) { return std::bit_cast<float>(uint32_t(value.bits) << 16); }

static BFloat toBFloat(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000)
    return {static_cast<uint16_t>(bits >> 16 | 0x40)};
  return {static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}

// --- conversion
// ------------------------------------------------------------------------------------------------------

template <typename T> static T load(const void *source, int64_t index) {
  T value;
  std::memcpy(&value, static_cast<const char *>(source) + index * int64_t(sizeof(T)), sizeof(T));
  return value;
}

template <typename T> static void store(void *target, int64_t index, T value) {
  std::memcpy(static_cast<char *>(target) + index * int64_t(sizeof(T)), &value, sizeof(T));
}

static float asFloat(Half value) { return toFloat(value); }
static float asFloat(BFloat value) { return toFloat(value); }
static float asFloat(float value) { return value; }
static float asFloat(double value) { return static_cast<float>(value); }
static double asDouble(Half value) { return toFloat(value); }
static double asDouble(BFloat value) { return toFloat(value); }
static double asDouble(double value) { return value; }

static int64_t asInteger(Bool value) { return value.bits != 0; }
/// A u64 beyond the largest i64 reads as negative; `convert` refuses negative values of u64 arrays.
template <typename T> static int64_t asInteger(T value) { return static_cast<int64_t>(value); }

/// Calls `use(T())` with the C++ type of an element.
template <typename Use> static auto withType(ElementType type, Use use) {
  switch (type) {
  case ElementType::f16:
    return use(Half());
  case ElementType::bf16:
    return use(BFloat());
  case ElementType::f32:
    return use(float());
  case ElementType::f64:
    return use(double());
  case ElementType::i8:
    return use(int8_t());
  case ElementType::i16:
    return use(int16_t());
  case ElementType::i32:
    return use(int32_t());
  case ElementType::i64:
    return use(int64_t());
  case ElementType::u8:
    return use(uint8_t());
  case ElementType::u16:
    return use(uint16_t());
  case ElementType::u32:
    return use(uint32_t());
  case ElementType::u64:
    return use(uint64_t());
  case ElementType::boolean:
    return use(Bool());
  }
  return use(Bool());
}

template <typename T>
constexpr bool kIsFloat = std::is_same_v<T, Half> || std::is_same_v<T, BFloat> || std::is_floating_point_v<T>;

bool isConvertible(ElementType from, DType to) { return isFloat(from) == isFloat(to); }

template <typename From, typename To>
static int64_t convertIntegers(const void *source, int64_t count, void *target, IntegerRange range) {
  for (int64_t i = 0; i < count; ++i) {
    int64_t value = asInteger(load<From>(source, i));
    if ((value < range.least || value > range.greatest) && range.ignored != value)
      return i;
    store(target, i, static_cast<To>(value));
  }
  return -1;
}

template <typename To> static IntegerRange clipped(IntegerRange range) {
  auto fits = [](int64_t value) { return int64_t(static_cast<To>(value)) == value; };
  constexpr int64_t least = std::numeric_limits<To>::min(), greatest = std::numeric_limits<To>::max();
  range.least = std::max(range.least, least);
  range.greatest = std::min(range.greatest, greatest);
  if (range.ignored && !fits(*range.ignored))
    range.ignored.reset();
  return range;
}

template <typename From>
static void convertFloats(const void *source, int64_t count, DType to, void *target) {
  for (int64_t i = 0; i < count; ++i) {
    From value = load<From>(source, i);
    switch (to) {
    case DType::f64:
      store(target, i, static_cast<double>(asDouble(value)));
      break;
    case DType::f32:
      store(target, i, asFloat(value));
      break;
    case DType::f16:
      store(target, i, toHalf(asFloat(value)));
      break;
    default:
      store(target, i, toBFloat(asFloat(value)));
      break;
    }
  }
}

int64_t convert(ElementType from, const void *source, int64_t count, DType to, void *target,
                const IntegerRange &range) {
  assert(isConvertible(from, to) && "conversion between floats and integers");
  if (from == elementType(to) && isFloat(to)) {
    if (count > 0)
      std::memcpy(target, source, count * byteSize(to));
    return -1;
  }
  IntegerRange allowed = range;
  if (from == ElementType::u64) // see asInteger
    allowed.least = std::max<int64_t>(allowed.least, 0), allowed.ignored.reset();
  return withType(from, [&](auto zero) -> int64_t {
    using From = decltype(zero);
    if constexpr (kIsFloat<From>) {
      convertFloats<From>(source, count, to, target);
      return -1;
    } else {
      switch (to) {
      case DType::i64:
        return convertIntegers<From, int64_t>(source, count, target, allowed);
      case DType::i32:
        return convertIntegers<From, int32_t>(source, count, target, clipped<int32_t>(allowed));
      case DType::i8:
        return convertIntegers<From, int8_t>(source, count, target, clipped<int8_t>(allowed));
      case DType::u8:
        return convertIntegers<From, uint8_t>(source, count, target, clipped<uint8_t>(allowed));
      case DType::i16:
        return convertIntegers<From, int16_t>(source, count, target, clipped<int16_t>(allowed));
      case DType::u16:
        return convertIntegers<From, uint16_t>(source, count, target, clipped<uint16_t>(allowed));
      case DType::u32:
        return convertIntegers<From, uint32_t>(source, count, target, clipped<uint32_t>(allowed));
      case DType::u64: // up to 2^63, as asInteger reads them
        allowed.least = std::max<int64_t>(allowed.least, 0);
        return convertIntegers<From, uint64_t>(source, count, target, allowed);
      default: // booleans are the integers 0 and 1
        allowed.least = std::max<int64_t>(allowed.least, 0);
        allowed.greatest = std::min<int64_t>(allowed.greatest, 1);
        allowed.ignored.reset();
        return convertIntegers<From, uint8_t>(source, count, target, allowed);
      }
    }
  });
}

double elementAsDouble(ElementType type, const void *source, int64_t index) {
  return withType(type, [&](auto zero) -> double {
    auto value = load<decltype(zero)>(source, index);
    if constexpr (kIsFloat<decltype(zero)>)
      return asDouble(value);
    else
      return static_cast<double>(asInteger(value));
  });
}

int64_t elementAsInteger(ElementType type, const void *source, int64_t index) {
  return withType(type, [&](auto zero) -> int64_t {
    if constexpr (kIsFloat<decltype(zero)>)
      return 0;
    else
      return asInteger(load<decltype(zero)>(source, index));
  });
}

} // namespace zerocc
