#pragma once

#include <atomic>
#include <cstdint>

namespace zerocc {

/// A number that only grows, and threads that sleep until it has reached a value. It may wrap: values are
/// compared by their distance, so a target must lie less than 2^31 away.
///
/// Waiting does not spin: there are more threads than cores when ranks are threads. No call allocates.
class Milestone {
public:
  uint32_t value() const { return value_.load(std::memory_order_acquire); }
  bool hasReached(uint32_t target) const { return static_cast<int32_t>(value() - target) >= 0; }

  /// Adds and wakes everyone who waits.
  void advance(uint32_t by = 1) {
    advanceQuietly(by);
    wake();
  }
  /// Adds; returns the new value. Who knows that nobody is waiting for it may leave out wake().
  uint32_t advanceQuietly(uint32_t by = 1) { return value_.fetch_add(by) + by; }
  void wake();

  /// Sleeps until `target` is reached; what was written before the advance is visible then. False when
  /// `timeoutMicros` (-1: none) have passed first.
  bool await(uint32_t target, int64_t timeoutMicros = -1);

private:
  // One side writes value_ and then reads sleepers_, the other the reverse, both sequentially consistent: at
  // least one of them sees the other.
  std::atomic<uint32_t> value_{0};
  std::atomic<uint32_t> sleepers_{0};
};

} // namespace zerocc
