#pragma once

#include "runtime/kernels/kernel.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace zerocc {

using StreamId = int;
using EventId = int;

/// One rank's device: memory, in-order streams, events, kernels. All calls come from the rank's host thread and
/// return at once (work is queued), but for allocate, release, copies and synchronize.
/// Nothing is allocated after `seal()`.
class Device {
public:
  virtual ~Device() = default;

  /// `bytes` of zeroed memory aligned to 4096, or null. Counted in mappedBytes().
  virtual void *allocate(int64_t bytes) = 0;
  virtual int64_t mappedBytes() const = 0;

  virtual StreamId createStream(const std::string &name) = 0;
  virtual EventId createEvent() = 0;
  virtual Status prepare(KernelCall &call) = 0;

  virtual void launch(StreamId stream, const KernelCall *call) = 0;
  /// Runs `task(argument)` in stream order. The task must not allocate. Used by communicators and checks.
  virtual void enqueue(StreamId stream, void (*task)(void *), void *argument) = 0;
  virtual void record(StreamId stream, EventId event) = 0;
  virtual void wait(StreamId stream, EventId event) = 0;
  /// Blocks the host until all work queued on `stream` so far is done.
  virtual void synchronize(StreamId stream) = 0;
  virtual void copyToDevice(void *to, const void *from, int64_t bytes) = 0;
  virtual void copyToHost(void *to, const void *from, int64_t bytes) = 0;
  virtual void seal() = 0;
};

/// Options of the CPU device.
struct CpuDeviceOptions {
  /// When set: before each queued command sleep up to this many microseconds, pseudo-randomly from delaySeed. Shows
  /// missing waits in tests.
  int maxDelayMicros = 0;
  uint64_t delaySeed = 0;
};
std::unique_ptr<Device> makeCpuDevice(const CpuDeviceOptions &options = {});

} // namespace zerocc
