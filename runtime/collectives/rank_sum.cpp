#include "runtime/collectives/rank_sum.h"

#include "runtime/collectives/half.h"

#include <algorithm>
#include <cassert>

namespace zerocc {
namespace {

// Sums are formed in blocks that stay in the first-level cache, so that the loops over elements are plain
// ones which the compiler vectorises, whatever the number of ranks.
constexpr int64_t kBlock = 2048;

template <typename T> struct Plain {
  using Stored = T;
  using Sum = T;
  static T widen(T value) { return value; }
  static T narrow(T value) { return value; }
};
struct Bf16 {
  using Stored = uint16_t;
  using Sum = float;
  static float widen(uint16_t bits) { return fromBf16(bits); }
  static uint16_t narrow(float value) { return toBf16(value); }
};
struct F16 {
  using Stored = uint16_t;
  using Sum = float;
  static float widen(uint16_t bits) { return fromF16(bits); }
  static uint16_t narrow(float value) { return toF16(value); }
};

template <typename Format> void sum(void *to, const void *const *from, int ranks, int64_t count) {
  using Stored = typename Format::Stored;
  using Sum = typename Format::Sum;
  alignas(64) Sum sums[kBlock];
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t n = std::min(kBlock, count - begin);
    const Stored *first = static_cast<const Stored *>(from[0]) + begin;
    for (int64_t i = 0; i < n; ++i)
      sums[i] = Format::widen(first[i]);
    for (int rank = 1; rank < ranks; ++rank) {
      const Stored *next = static_cast<const Stored *>(from[rank]) + begin;
      for (int64_t i = 0; i < n; ++i)
        sums[i] += Format::widen(next[i]);
    }
    Stored *out = static_cast<Stored *>(to) + begin;
    for (int64_t i = 0; i < n; ++i)
      out[i] = Format::narrow(sums[i]);
  }
}

} // namespace

void sumInRankOrder(void *to, const void *const *from, int ranks, int64_t count, DType dtype) {
  switch (dtype) {
  case DType::f32:
    return sum<Plain<float>>(to, from, ranks, count);
  case DType::f64:
    return sum<Plain<double>>(to, from, ranks, count);
  case DType::bf16:
    return sum<Bf16>(to, from, ranks, count);
  case DType::f16:
    return sum<F16>(to, from, ranks, count);
  case DType::i64: // unsigned: sums wrap
    return sum<Plain<uint64_t>>(to, from, ranks, count);
  case DType::i32:
    return sum<Plain<uint32_t>>(to, from, ranks, count);
  default:
    break;
  }
  assert(false && "no sums of this dtype");
}

} // namespace zerocc
