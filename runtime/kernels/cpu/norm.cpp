// clear_padding and norm_partial: the bucket kernels of the gradient.
//
// norm_partial's order of sums: the rank's part is cut into blocks of kNormBlock elements, counted from the
// part's first element; in a block, element i goes to partial sum i mod kLanes, elements outside members
// count as zeros; blocks are added in order. So a whole bucket and a part give the same bits.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/kernels/cpu/norm.cpp"
#include "hwy/foreach_target.h"

#include "hwy/highway.h"

#include "runtime/kernels/cpu/bucket_walk.h"
#include "runtime/kernels/cpu/prepare.h"
#include "runtime/kernels/cpu/rows-inl.h"
#include "runtime/kernels/cpu/targets.h"

#include <cmath>

HWY_BEFORE_NAMESPACE();
namespace zerocc {
namespace HWY_NAMESPACE {
namespace {

constexpr int64_t kNormBlock = 4096;
static_assert(kNormBlock % kLanes == 0);

bool isFinite(float x) { return std::fabs(x) <= std::numeric_limits<float>::max(); }

/// The first of n elements that is not finite, or n.
int64_t firstNonFinite(const float *x, int64_t n) {
  int32_t count = 0; // n is at most kNormBlock
  for (int64_t i = 0; i < n; ++i)
    count += !isFinite(x[i]);
  if (count == 0) // as it is in nearly all blocks, found without a branch per element
    return n;
  int64_t first = 0;
  while (isFinite(x[first]))
    ++first;
  return first;
}

/// Adds the squares of block elements [begin, end), counted from the block's first element.
HWY_INLINE void addSquares(RowSum &sum, const float *block, int64_t begin, int64_t end) {
  while (begin < end) {
    int64_t group = begin - begin % kLanes;
    if (group == begin && end - begin >= kLanes) {
      int64_t whole = (end - begin) / kLanes * kLanes;
      const float *const inputs[2] = {block + begin, block + begin};
      sum.add(inputs, whole, Product());
      begin += whole;
      continue;
    }
    int64_t stop = HWY_MIN(end, group + kLanes);
    HWY_ALIGN float padded[kLanes] = {};
    std::memcpy(padded + (begin - group), block + begin, static_cast<size_t>(stop - begin) * sizeof(float));
    const float *const inputs[2] = {padded, padded};
    sum.add(inputs, kLanes, Product());
    begin = stop;
  }
}

// norm_partial      [Σ g², 1 + element of the bucket that is the first not to be finite, or 0] over the members'
//                   elements in the rank's part
void runNormPartial(const KernelCall &call) {
  const BucketLayout &bucket = *call.bucket;
  Stretch part = ownPart(bucket);
  const float *x = pointer<const float>(call.inputs[0]) +
                   (call.inputs[0].elements() == bucket.paddedElements ? part.begin : 0); // the part's first
  double squares = 0;
  int64_t bad = -1;
  size_t first = 0; // ranges before it end before the block
  for (int64_t begin = part.begin; begin < part.end; begin += kNormBlock) {
    int64_t end = HWY_MIN(begin + kNormBlock, part.end);
    const float *block = x + (begin - part.begin);
    RowSum sum;
    while (first < bucket.ranges.size() && bucket.ranges[first].end <= begin)
      ++first;
    for (size_t i = first; i < bucket.ranges.size() && bucket.ranges[i].begin < end; ++i) {
      int64_t from = HWY_MAX(bucket.ranges[i].begin, begin) - begin,
              to = HWY_MIN(bucket.ranges[i].end, end) - begin;
      addSquares(sum, block, from, to);
      if (int64_t at = bad < 0 ? firstNonFinite(block + from, to - from) : to - from; at < to - from)
        bad = begin + from + at;
    }
    squares += sum.total();
  }
  double *out = pointer<double>(call.results[0]);
  out[0] = squares;
  out[1] = static_cast<double>(bad + 1);
}

} // namespace
} // namespace HWY_NAMESPACE
} // namespace zerocc
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zerocc {
HWY_EXPORT(runNormPartial);

static Status prepareNormPartial(KernelCall &call) {
  ZEROCC_TRY(expectCounts(call, 1, 1));
  ZEROCC_TRY(expectHeld(call, call.inputs[0], DType::f32));
  const TensorView &result = call.results[0];
  if (result.dtype != DType::f64 || result.elements() != 2 || !result.contiguous())
    return refuse(call, "the result must be f64[2], is " + describe(result));
  chooseTarget();
  call.run = HWY_DYNAMIC_DISPATCH(runNormPartial);
  return success();
}

/// Zeroes what lies between the members, in all of the buffer.
static void runClearPadding(const KernelCall &call) {
  const BucketLayout &bucket = *call.bucket;
  Stretch held = *heldBy(call.results[0], bucket);
  int64_t bytes = byteSize(call.results[0].dtype);
  int64_t next = held.begin;
  auto clearUpTo = [&](int64_t end) {
    std::memset(pointer<char>(call.results[0]) + (next - held.begin) * bytes, 0,
                static_cast<size_t>((end - next) * bytes));
  };
  forRanges(bucket, held, [&](int64_t begin, int64_t end, const MemberRange &) {
    clearUpTo(begin);
    next = end;
  });
  clearUpTo(held.end);
}

static Status prepareClearPadding(KernelCall &call) {
  ZEROCC_TRY(expectCounts(call, 1, 1));
  ZEROCC_TRY(expectHeld(call, call.inputs[0], call.inputs[0].dtype));
  if (call.results[0].data != call.inputs[0].data)
    return refuse(call, "the result must lie on operand 0");
  call.run = runClearPadding;
  return success();
}

extern const CpuKernel normPartialKernels = {prepareNormPartial};
extern const CpuKernel clearPaddingKernels = {prepareClearPadding};

} // namespace zerocc
#endif
