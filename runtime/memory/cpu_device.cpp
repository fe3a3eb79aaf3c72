#include "runtime/device.h"

#include "runtime/memory/milestone.h"

#include <cassert>
#include <cstring>
#include <deque>
#include <pthread.h>
#include <sys/mman.h>
#include <thread>
#include <vector>

// A stream is a thread and a ring of commands between it and the host thread. The ring never grows: a host
// that is kCommands ahead sleeps until half of them are done.
//
// An event is a counter. `record` adds one to it in stream order, and one to the number of records queued on
// the host side; `wait` carries that number as it was when the wait was queued. So every wait depends on
// commands queued before it only, and whatever has been queued can be finished without the host: a full ring
// cannot deadlock. With several ranks the same holds, as all ranks queue the same collectives in the same
// order.

namespace zerocc {
namespace {

constexpr uint32_t kCommands = 4096;

struct Event {
  Milestone records;          // done, advanced by streams
  uint32_t recordsQueued = 0; // host side
};

struct Command {
  enum class Kind : uint8_t { launch, task, record, wait, stop } kind = Kind::stop;
  const KernelCall *call = nullptr;
  void (*task)(void *) = nullptr;
  void *argument = nullptr;
  Event *event = nullptr;
  uint32_t records = 0; // wait: how many must be done
};

/// splitmix64: one multiplication chain per number, any seed is good.
uint64_t nextRandom(uint64_t &state) {
  uint64_t z = (state += 0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

class CpuStream {
public:
  CpuStream(const std::string &name, int maxDelayMicros, uint64_t delaySeed)
      : ring_(kCommands), maxDelayMicros_(maxDelayMicros), random_(delaySeed), thread_([this] { work(); }) {
    pthread_setname_np(thread_.native_handle(), name.substr(0, 15).c_str());
  }
  ~CpuStream() {
    push({});
    thread_.join();
  }

  void push(const Command &command) {
    uint32_t index = queued_.value();
    if (!done_.hasReached(index + 1 - kCommands))
      done_.await(index + 1 - kCommands / 2);
    ring_[index % kCommands] = command;
    queued_.advance();
  }
  void synchronize() { done_.await(queued_.value()); }

private:
  void work() {
    for (uint32_t next = 0;; ++next) {
      queued_.await(next + 1);
      const Command &command = ring_[next % kCommands];
      if (command.kind == Command::Kind::stop)
        return;
      if (maxDelayMicros_ > 0)
        std::this_thread::sleep_for(std::chrono::microseconds(nextRandom(random_) % (maxDelayMicros_ + 1)));
      run(command);
      done_.advance();
    }
  }
  static void run(const Command &command) {
    switch (command.kind) {
    case Command::Kind::launch:
      return command.call->run(*command.call);
    case Command::Kind::task:
      return command.task(command.argument);
    case Command::Kind::record:
      return command.event->records.advance();
    case Command::Kind::wait:
      command.event->records.await(command.records);
      return;
    case Command::Kind::stop:
      return;
    }
  }

  std::vector<Command> ring_;
  Milestone queued_, done_;
  int maxDelayMicros_;
  uint64_t random_;
  std::thread thread_; // last: it uses the others
};

class CpuDevice : public Device {
public:
  explicit CpuDevice(const CpuDeviceOptions &options) : options_(options) {}
  ~CpuDevice() override {
    // A stream may wait for an event of another one: let all finish before any is taken away.
    for (CpuStream &stream : streams_)
      stream.synchronize();
    streams_.clear();
    for (const Mapping &mapping : mappings_)
      munmap(mapping.address, mapping.bytes);
  }

  void *allocate(int64_t bytes) override {
    assert(!sealed_ && "memory is allocated before the first step");
    if (bytes <= 0)
      return nullptr;
    void *address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (address == MAP_FAILED)
      return nullptr;
    mappings_.push_back({address, bytes});
    mappedBytes_ += bytes;
    return address;
  }
  int64_t mappedBytes() const override { return mappedBytes_; }

  StreamId createStream(const std::string &name) override {
    assert(!sealed_ && "streams are made before the first step");
    uint64_t seed = options_.delaySeed * 0x100 + streams_.size();
    streams_.emplace_back(name, options_.maxDelayMicros, seed);
    return static_cast<StreamId>(streams_.size()) - 1;
  }
  EventId createEvent() override {
    assert(!sealed_ && "events are made before the first step");
    events_.emplace_back();
    return static_cast<EventId>(events_.size()) - 1;
  }
  Status prepare(KernelCall &call) override { return cpuKernel(call.op).prepare(call); }

  void launch(StreamId stream, const KernelCall *call) override {
    streams_[stream].push({.kind = Command::Kind::launch, .call = call});
  }
  void enqueue(StreamId stream, void (*task)(void *), void *argument) override {
    streams_[stream].push({.kind = Command::Kind::task, .task = task, .argument = argument});
  }
  void record(StreamId stream, EventId event) override {
    ++events_[event].recordsQueued;
    streams_[stream].push({.kind = Command::Kind::record, .event = &events_[event]});
  }
  void wait(StreamId stream, EventId event) override {
    Event &of = events_[event];
    streams_[stream].push({.kind = Command::Kind::wait, .event = &of, .records = of.recordsQueued});
  }
  void synchronize(StreamId stream) override { streams_[stream].synchronize(); }
  void copyToDevice(void *to, const void *from, int64_t bytes) override { std::memcpy(to, from, bytes); }
  void copyToHost(void *to, const void *from, int64_t bytes) override { std::memcpy(to, from, bytes); }
  void seal() override { sealed_ = true; }

private:
  struct Mapping {
    void *address;
    int64_t bytes;
  };
  CpuDeviceOptions options_;
  std::vector<Mapping> mappings_;
  int64_t mappedBytes_ = 0;
  std::deque<Event> events_; // deques: streams keep pointers to elements
  std::deque<CpuStream> streams_;
  bool sealed_ = false;
};

} // namespace

std::unique_ptr<Device> makeCpuDevice(const CpuDeviceOptions &options) {
  return std::make_unique<CpuDevice>(options);
}

} // namespace zerocc
