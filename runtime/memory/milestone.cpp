#include "runtime/memory/milestone.h"

#include <chrono>
#include <climits>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace zerocc {

static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t), "the kernel compares the plain word");

void Milestone::wake() {
  if (sleepers_.load() != 0)
    syscall(SYS_futex, &value_, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

bool Milestone::await(uint32_t target, int64_t timeoutMicros) {
  if (hasReached(target))
    return true;
  using Clock = std::chrono::steady_clock;
  const Clock::time_point deadline =
      Clock::now() + std::chrono::microseconds(timeoutMicros < 0 ? 0 : timeoutMicros);
  sleepers_.fetch_add(1);
  bool reached = true;
  for (;;) {
    uint32_t seen = value_.load();
    if (static_cast<int32_t>(seen - target) >= 0)
      break;
    timespec rest{};
    if (timeoutMicros >= 0) {
      int64_t nanos = std::chrono::duration_cast<std::chrono::nanoseconds>(deadline - Clock::now()).count();
      if (nanos <= 0) {
        reached = false;
        break;
      }
      rest.tv_sec = nanos / 1'000'000'000;
      rest.tv_nsec = nanos % 1'000'000'000;
    }
    // Returns at once when the value has changed since it was read.
    syscall(SYS_futex, &value_, FUTEX_WAIT_PRIVATE, seen, timeoutMicros >= 0 ? &rest : nullptr, nullptr, 0);
  }
  sleepers_.fetch_sub(1);
  return reached;
}

} // namespace zerocc
