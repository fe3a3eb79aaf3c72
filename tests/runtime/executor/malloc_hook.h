#pragma once

#include <cstdint>
#include <string>

namespace zerocc {

/// Counts the allocations of this process between two points: link malloc_hook.cpp into a test and malloc,
/// free, new, delete, … of the whole process go through it. Under a sanitizer, which has hooks of its own, it
/// counts nothing; allocationCounterWorks() says so.
///
/// A call is ours when it comes from the test's executable, zerocc being linked in statically, or from
/// libstdc++ on our behalf; and a library's when it comes from any other shared object (OpenBLAS, oneDNN,
/// Protobuf, …).
struct AllocationCounts {
  int64_t ours = 0, ourBytes = 0;
  int64_t libraries = 0, libraryBytes = 0;
  int64_t largest = 0; // bytes of the largest single call
  /// `12 calls, 960 B: 48 B from step+0x41 (bin/x); …`: the first few, for failure messages.
  std::string text;
};

bool allocationCounterWorks();
void startCountingAllocations();
AllocationCounts stopCountingAllocations();

} // namespace zerocc
