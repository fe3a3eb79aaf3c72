#pragma once

#include "runtime/kernels/cpu/prepare.h"

#include <algorithm>

namespace zerocc {

/// A stretch of a bucket: elements [begin, end), counted from the bucket's first.
struct Stretch {
  int64_t begin = 0, end = 0;
};

inline int64_t partElements(const BucketLayout &bucket) { return bucket.paddedElements / bucket.shardSize; }

/// This rank's own part.
inline Stretch ownPart(const BucketLayout &bucket) {
  return {bucket.shardIndex * partElements(bucket), (bucket.shardIndex + 1) * partElements(bucket)};
}

/// What a flat view holds: the whole bucket or this rank's part; nullopt when its size is neither's.
inline std::optional<Stretch> heldBy(const TensorView &view, const BucketLayout &bucket) {
  if (view.elements() == bucket.paddedElements)
    return Stretch{0, bucket.paddedElements};
  if (view.elements() == partElements(bucket))
    return ownPart(bucket);
  return std::nullopt;
}

/// Refuses unless the call has a bucket and `view` is flat and holds the bucket or the own part.
inline Expected<Stretch> expectHeld(const KernelCall &call, const TensorView &view, DType dtype) {
  if (!call.bucket)
    return refuse(call, "internal error: no bucket layout");
  std::optional<Stretch> held = heldBy(view, *call.bucket);
  if (view.dtype != dtype || !view.contiguous() || !held)
    return refuse(call, describe(view) + " should be a contiguous " + std::string(dtypeName(dtype)) + " of " +
                            std::to_string(call.bucket->paddedElements) + " elements, or " +
                            std::to_string(partElements(*call.bucket)));
  return *held;
}

/// Calls visit(begin, end, range) for each member range that meets `stretch`, ascending.
template <typename F> void forRanges(const BucketLayout &bucket, Stretch stretch, F visit) {
  for (const MemberRange &range : bucket.ranges) {
    int64_t begin = std::max(range.begin, stretch.begin), end = std::min(range.end, stretch.end);
    if (begin < end)
      visit(begin, end, range);
  }
}

} // namespace zerocc
