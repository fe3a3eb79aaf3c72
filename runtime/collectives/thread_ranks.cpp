#include "runtime/collectives/communicator.h"
#include "runtime/collectives/rank_sum.h"
#include "runtime/memory/milestone.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cassert>
#include <cstring>
#include <mutex>

// A collective is a task on each rank's stream: post the pointers, meet, read from the peers' memory, meet
// again. Nothing is copied on the sender's side. It is safe in place because rank r writes part r of a buffer
// that it is summing into, or every part but r of a buffer that it is gathering into, while its peers read
// the other one.
//
// Meetings count arrivals: the k-th is over when ranks * k have arrived. Nobody can arrive at the next one
// before that, so one counter is enough.

namespace zerocc {
namespace {

enum class Kind : uint8_t { allGather, reduceScatter, allReduce };

const char *kindName(Kind kind) {
  constexpr const char *names[] = {"all-gather", "reduce-scatter", "all-reduce"};
  return names[static_cast<int>(kind)];
}

/// What a rank posts for its peers. `count` is as in the call.
struct Posting {
  Kind kind = Kind::allGather;
  DType dtype = DType::f32;
  int64_t count = 0;
  const char *send = nullptr;
  char *receive = nullptr;

  bool matches(const Posting &other) const {
    return kind == other.kind && dtype == other.dtype && count == other.count;
  }
  std::string text() const {
    return std::string(kindName(kind)) + " of " + std::to_string(count) + " " + std::string(dtypeName(dtype));
  }
};

/// What the ranks share.
class Group {
public:
  Group(int ranks, int timeoutSeconds, const std::vector<int> &names)
      : seats_(ranks), timeoutSeconds_(timeoutSeconds) {
    for (int rank = 0; rank < ranks; ++rank)
      seats_[rank].name = names.empty() ? rank : names[rank];
  }

  int ranks() const { return static_cast<int>(seats_.size()); }
  Posting &posting(int rank) { return seats_[rank].posting; }
  std::string name(int rank) const { return std::to_string(seats_[rank].name); }
  bool aborted() const { return aborted_.load(std::memory_order_acquire); }

  /// Waits until all ranks are here; false when the group is aborted.
  bool meet(int rank) {
    Seat &seat = seats_[rank];
    const uint32_t meeting = seat.meetings.load(std::memory_order_relaxed) + 1;
    seat.meetings.store(meeting, std::memory_order_relaxed);
    const uint32_t target = meeting * ranks();
    if (arrivals_.advanceQuietly() == target)
      arrivals_.wake();
    else if (!arrivals_.await(target, int64_t{timeoutSeconds_} * 1'000'000))
      abort(missingText(rank, meeting));
    return !aborted();
  }

  void abort(const std::string &reason) {
    std::lock_guard lock(mutex_);
    if (aborted())
      return;
    reason_ = reason;
    aborted_.store(true, std::memory_order_release);
    arrivals_.advance(1u << 30); // past every meeting that someone may be waiting for
  }
  std::string failure() const {
    if (!aborted())
      return "";
    std::lock_guard lock(mutex_);
    return reason_;
  }

private:
  struct alignas(64) Seat {
    Posting posting;
    int name = 0;
    std::atomic<uint32_t> meetings{0}; // come to so far
  };

  std::string missingText(int rank, uint32_t meeting) const {
    std::string missing;
    int count = 0;
    for (int other = 0; other < ranks(); ++other) {
      if (static_cast<int32_t>(seats_[other].meetings.load(std::memory_order_relaxed) - meeting) >= 0)
        continue;
      missing += (count++ ? ", " : "") + name(other);
    }
    return (count == 1 ? "rank " : "ranks ") + missing + " did not arrive at " + seats_[rank].posting.text() +
           " within " + std::to_string(timeoutSeconds_) + " s";
  }

  std::vector<Seat> seats_;
  int timeoutSeconds_;
  Milestone arrivals_;
  std::atomic<bool> aborted_{false};
  mutable std::mutex mutex_; // guards reason_
  std::string reason_;
};

class ThreadRank : public Communicator {
public:
  ThreadRank(std::shared_ptr<Group> group, int rank, Device &device)
      : group_(std::move(group)), rank_(rank), device_(device), sources_(group_->ranks()) {}

  int rank() const override { return rank_; }
  int size() const override { return group_->ranks(); }

  void allGather(const void *send, void *recv, int64_t count, DType dtype, StreamId stream) override {
    queue(Kind::allGather, send, recv, count, dtype, stream);
  }
  void reduceScatter(const void *send, void *recv, int64_t count, DType dtype, StreamId stream) override {
    queue(Kind::reduceScatter, send, recv, count, dtype, stream);
  }
  void allReduce(void *buffer, int64_t count, DType dtype, StreamId stream) override {
    queue(Kind::allReduce, buffer, buffer, count, dtype, stream);
  }
  Received received() const override {
    return {received_[0].load(std::memory_order_relaxed), received_[1].load(std::memory_order_relaxed),
            received_[2].load(std::memory_order_relaxed)};
  }
  void abort(const std::string &reason) override { group_->abort(reason); }
  std::string failure() const override { return group_->failure(); }

private:
  struct Call {
    ThreadRank *self = nullptr;
    uint32_t number = 0;
    Posting posting;
  };

  void queue(Kind kind, const void *send, void *recv, int64_t count, DType dtype, StreamId stream) {
    const uint32_t number = queued_++;
    done_.await(number + 1 - static_cast<uint32_t>(calls_.size())); // the ring is full
    Call &call = calls_[number % calls_.size()];
    call = {this, number, {kind, dtype, count, static_cast<const char *>(send), static_cast<char *>(recv)}};
    device_.enqueue(
        stream,
        [](void *argument) {
          Call &call = *static_cast<Call *>(argument);
          call.self->done_.await(call.number); // an earlier call may be on another stream
          call.self->run(call.posting);
          call.self->done_.advance();
        },
        &call);
  }

  void run(const Posting &mine) {
    if (group_->aborted())
      return;
    group_->posting(rank_) = mine;
    if (!group_->meet(rank_))
      return;
    for (int peer = 0; peer < size(); ++peer) {
      if (group_->posting(peer).matches(mine))
        continue;
      group_->abort("rank " + group_->name(rank_) + " is at " + mine.text() + ", rank " + group_->name(peer) +
                    " at " + group_->posting(peer).text());
      return;
    }
    const int64_t size = byteSize(mine.dtype);
    switch (mine.kind) {
    case Kind::allGather:
      gather(mine.receive, mine.count * size);
      count(mine.kind, (this->size() - 1) * mine.count * size);
      break;
    case Kind::reduceScatter:
      reduce(mine.receive, rank_ * mine.count, mine.count, mine.dtype);
      count(mine.kind, (this->size() - 1) * mine.count * size);
      break;
    case Kind::allReduce: {
      const int64_t part = (mine.count + this->size() - 1) / this->size();
      const auto [begin, end] = partOf(rank_, part, mine.count);
      reduce(mine.receive + begin * size, begin, end - begin, mine.dtype);
      if (!group_->meet(rank_))
        return;
      for (int turn = 1; turn < this->size(); ++turn) {
        const int peer = (rank_ + turn) % this->size();
        const auto [from, to] = partOf(peer, part, mine.count);
        copy(mine.receive + from * size, group_->posting(peer).send + from * size, (to - from) * size);
      }
      count(mine.kind, ((this->size() - 1) * (end - begin) + mine.count - (end - begin)) * size);
      break;
    }
    }
    group_->meet(rank_);
  }

  static std::pair<int64_t, int64_t> partOf(int rank, int64_t part, int64_t count) {
    return {std::min(rank * part, count), std::min((rank + 1) * part, count)};
  }

  /// Part r of `to` becomes what rank r sends. Each rank begins with its own, so that not all read from one.
  void gather(char *to, int64_t partBytes) {
    for (int turn = 0; turn < size(); ++turn) {
      const int peer = (rank_ + turn) % size();
      copy(to + peer * partBytes, group_->posting(peer).send, partBytes);
    }
  }
  static void copy(char *to, const char *from, int64_t bytes) {
    if (to != from && bytes > 0)
      std::memcpy(to, from, bytes);
  }

  /// `to` becomes the sum of elements [begin, begin + count) of what the ranks send.
  void reduce(char *to, int64_t begin, int64_t count, DType dtype) {
    for (int peer = 0; peer < size(); ++peer)
      sources_[peer] = group_->posting(peer).send + begin * byteSize(dtype);
    if (size() == 1)
      copy(to, static_cast<const char *>(sources_[0]), count * byteSize(dtype));
    else
      sumInRankOrder(to, sources_.data(), size(), count, dtype);
  }
  void count(Kind kind, int64_t bytes) {
    received_[static_cast<int>(kind)].fetch_add(bytes, std::memory_order_relaxed);
  }

  std::shared_ptr<Group> group_;
  int rank_;
  Device &device_;
  std::array<Call, 256> calls_; // a ring: queueing allocates nothing
  uint32_t queued_ = 0;
  Milestone done_;
  std::vector<const void *> sources_;
  std::array<std::atomic<int64_t>, 3> received_{};
};

} // namespace

std::vector<std::unique_ptr<Communicator>> makeThreadCommunicators(const std::vector<Device *> &devices,
                                                                   int timeoutSeconds,
                                                                   const std::vector<int> &names) {
  assert(!devices.empty() && "a group without ranks");
  assert((names.empty() || names.size() == devices.size()) && "one name for each rank");
  auto group = std::make_shared<Group>(static_cast<int>(devices.size()), timeoutSeconds, names);
  std::vector<std::unique_ptr<Communicator>> handles;
  for (size_t rank = 0; rank < devices.size(); ++rank)
    handles.push_back(std::make_unique<ThreadRank>(group, static_cast<int>(rank), *devices[rank]));
  return handles;
}

} // namespace zerocc
