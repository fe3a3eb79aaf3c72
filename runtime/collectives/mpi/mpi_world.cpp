#include "runtime/collectives/mpi/mpi_world.h"

#include "runtime/collectives/rank_sum.h"
#include "runtime/memory/milestone.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <list>
#include <optional>
#include <thread>

// A collective is made of sends and receives between pairs, on the stream's own thread: whoever waits polls its requests
// under the library's mutex, so that MPI needs no threads of its own and a wait can be given up. A sum is an all-to-all
// into a staging buffer, a stretch at a time, and the sum in rank order that `threads` forms: the same bits.
//
// A send is complete when MPI has its bytes, a receive when they are here; with both waited for, no peer touches this
// rank's buffers any more.
//
// The watching thread has a communicator of its own. Its messages: ask (are you there, and where), answer, abort (with
// the reason), conclude (this process is over). In a step that goes well none is sent.

namespace zerocc {
namespace {

using Clock = std::chrono::steady_clock;
using Millis = std::chrono::milliseconds;

constexpr int64_t kStagingBytes = 256 << 10; // of one peer's stretch
constexpr int64_t kMostBytes = 1 << 30;      // of one message
constexpr Millis kAnswerTime(3000), kHurriedAnswerTime(350), kGrace(400), kFlushTime(1000), kTick(20);

enum class MessageKind : int32_t { ask, answer, abort, conclude };
struct Message {
  MessageKind kind = MessageKind::ask;
  int32_t from = 0, number = 0, isWaiting = 0, exitCode = 0;
  char text[1004] = {};

  void setText(const std::string &from) {
    const size_t count = std::min(from.size(), sizeof text - 1);
    std::memcpy(text, from.data(), count);
    text[count] = 0;
  }
};

std::string listRanks(const std::vector<int> &ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i)
    text += (i ? ", " : "") + std::to_string(ranks[i]);
  return text;
}

/// What a thread waits for, and says when it takes too long.
struct Waiting {
  bool isHost = false; // of hosts: a process that answers is waited for
  const char *what = "";
  int64_t count = 0;
  DType dtype = DType::u8;
  const std::vector<int> *ranks = nullptr; // of the group, in the world
  const int *peerOf = nullptr;             // by request, place in the group

  std::string text() const {
    return isHost ? std::string(what) : std::string(what) + " of " + std::to_string(count) + " " + std::string(dtypeName(dtype));
  }
};

class World : public MpiWorld {
public:
  World(MpiLibrary &library, const MpiWorldOptions &options)
      : library_(library), options_(options), answers_(library.size()), farewells_(library.size()) {}
  ~World() override {
    if (!watcher_.joinable())
      return;
    {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, kFlushTime, [&] { return outgoing_.empty(); });
      stop_ = true;
    }
    changed_.notify_all();
    watcher_.join();
    if (!outgoing_.empty()) // MPI may still read them
      new std::list<Outgoing>(std::move(outgoing_));
    std::lock_guard lock(library_.mutex());
    library_.call().cancel(&incomingRequest_);
    if (!aborted())
      for (int communicator : made_)
        library_.call().freeCommunicator(communicator);
  }

  Status begin() {
    ZEROCC_ASSIGN(control_, split(0));
    std::lock_guard lock(library_.mutex());
    listen();
    watcher_ = std::thread([this] { watch(); });
    return success();
  }

  int rank() const override { return library_.rank(); }
  int size() const override { return library_.size(); }
  Expected<std::unique_ptr<Communicator>> group(int colour, Device &device) override;
  Expected<std::unique_ptr<Processes>> processes() override;

  void setWhereabouts(std::function<Whereabouts()> whereabouts) override {
    std::lock_guard lock(whereMutex_);
    whereabouts_ = std::move(whereabouts);
  }
  void abort(const std::string &reason) override {
    if (!setReason(reason))
      return;
    Message message;
    message.kind = MessageKind::abort;
    message.setText(reason);
    sendToAll(message);
  }
  bool aborted() const { return aborted_.load(std::memory_order_acquire); }
  std::string failure() const override {
    if (!aborted())
      return "";
    std::lock_guard lock(mutex_);
    return reason_;
  }
  int64_t stagingBytes() const override { return stagingBytes_; }
  void addStaging(int64_t bytes) { stagingBytes_ += bytes; }
  MpiLibrary &library() { return library_; }

  Farewell conclude(int exitCode, const std::string &error) override {
    Message message;
    message.kind = MessageKind::conclude;
    message.exitCode = exitCode;
    message.setText(error);
    sendToAll(message);
    std::unique_lock lock(mutex_);
    farewells_[rank()] = message;
    auto allConcluded = [&] {
      return std::all_of(farewells_.begin(), farewells_.end(), [](const auto &one) { return one.has_value(); });
    };
    if (error.empty())
      while (!changed_.wait_for(lock, std::chrono::seconds(options_.timeoutSeconds), [&] { return allConcluded() || aborted(); }))
        stuck_ = Stuck{true, "the end of the run", {}};
    else
      changed_.wait_for(lock, kFlushTime, allConcluded);
    changed_.wait_for(lock, kFlushTime, [&] { return outgoing_.empty(); });
    Farewell farewell;
    farewell.allAlike = allConcluded();
    for (int r = 0; r < size(); ++r) {
      farewell.allAlike &= farewells_[r] && farewells_[r]->exitCode == exitCode;
      if (r < rank() && farewells_[r] && std::strcmp(farewells_[r]->text, message.text) == 0)
        farewell.isNews = false;
    }
    return farewell;
  }

  Expected<int> split(int colour) {
    std::lock_guard lock(library_.mutex());
    int made = -1;
    if (int code = library_.call().split(colour, rank(), &made))
      return Error("MPI_Comm_split: " + library_.errorText(code));
    made_.push_back(made);
    return made;
  }

  /// Polls until all requests are done; false when the world is given up.
  bool wait(uint64_t *requests, int count, const Waiting &waiting) {
    const Clock::time_point begin = Clock::now();
    Clock::time_point told = begin;
    for (int turn = 0;; ++turn) {
      int done = 0, code = 0;
      {
        std::lock_guard lock(library_.mutex());
        for (int isDone = 1; done < count && code == 0; done += isDone) {
          code = library_.call().test(&requests[done], &isDone);
          if (!isDone)
            break;
        }
      }
      if (code != 0) {
        abort("rank " + std::to_string(rank()) + ", " + waiting.text() + ": " + library_.errorText(code));
        return false;
      }
      if (done == count)
        return true;
      if (aborted())
        return false;
      if (turn < 200)
        std::this_thread::yield();
      else
        std::this_thread::sleep_for(std::chrono::microseconds(turn < 2000 ? 20 : 200));
      if (turn % 64 != 63 || Clock::now() - told < std::chrono::seconds(options_.timeoutSeconds))
        continue;
      told = Clock::now();
      tellStuck(requests, count, waiting);
    }
  }

private:
  struct Stuck {
    bool isHost = false;
    std::string text;
    std::vector<int> missing;
  };

  void tellStuck(uint64_t *requests, int count, const Waiting &waiting) {
    Stuck stuck{waiting.isHost, waiting.text(), {}};
    {
      std::lock_guard lock(library_.mutex());
      for (int i = 0; i < count; ++i) {
        int isDone = 0;
        library_.call().test(&requests[i], &isDone);
        if (isDone || !waiting.peerOf || !waiting.ranks)
          continue;
        const int missing = (*waiting.ranks)[waiting.peerOf[i]];
        if (std::find(stuck.missing.begin(), stuck.missing.end(), missing) == stuck.missing.end())
          stuck.missing.push_back(missing);
      }
    }
    {
      std::lock_guard lock(mutex_);
      if (!stuck_ || stuck_->isHost)
        stuck_ = std::move(stuck);
    }
    changed_.notify_all();
  }

  bool setReason(const std::string &reason) {
    {
      std::lock_guard lock(mutex_);
      if (aborted())
        return false;
      reason_ = reason;
      aborted_.store(true, std::memory_order_release);
    }
    changed_.notify_all();
    return true;
  }
  void sendToAll(Message message) {
    message.from = rank();
    {
      std::lock_guard lock(mutex_);
      for (int to = 0; to < size(); ++to)
        if (to != rank())
          outgoing_.push_back({to, false, 0, message});
    }
    changed_.notify_all();
  }

  // --- the watching thread

  struct Outgoing {
    int to = 0;
    bool isUnderWay = false;
    uint64_t request = 0;
    Message message;
  };

  void listen() {
    library_.call().irecv(&incoming_, sizeof incoming_, -1, 0, control_, &incomingRequest_);
  }

  void watch() {
    while (true) {
      {
        std::unique_lock lock(mutex_);
        changed_.wait_for(lock, kTick, [&] { return stop_ || hasNewWork(); });
        if (stop_)
          return;
      }
      send();
      receive();
      attend();
    }
  }
  bool hasNewWork() const {
    return std::any_of(outgoing_.begin(), outgoing_.end(), [](const Outgoing &one) { return !one.isUnderWay; });
  }

  void send() {
    bool isAllSent = false;
    {
      std::lock_guard lock(mutex_);
      std::lock_guard turn(library_.mutex());
      for (auto one = outgoing_.begin(); one != outgoing_.end();) {
        if (!one->isUnderWay) {
          one->isUnderWay = true;
          library_.call().isend(&one->message, sizeof one->message, one->to, 0, control_, &one->request);
        }
        int done = 0;
        if (library_.call().test(&one->request, &done) || done)
          one = outgoing_.erase(one);
        else
          ++one;
      }
      isAllSent = outgoing_.empty();
    }
    if (isAllSent)
      changed_.notify_all();
  }

  void receive() {
    while (true) {
      Message message;
      {
        std::lock_guard turn(library_.mutex());
        int done = 0;
        if (library_.call().test(&incomingRequest_, &done) || !done)
          return;
        message = incoming_;
        listen();
      }
      message.text[sizeof message.text - 1] = 0;
      if (message.from >= 0 && message.from < size())
        handle(message);
    }
  }

  void handle(const Message &message) {
    switch (message.kind) {
    case MessageKind::ask: {
      Message answer;
      answer.kind = MessageKind::answer;
      answer.from = rank();
      answer.number = message.number;
      const Whereabouts here = whereabouts();
      answer.isWaiting = here.isWaiting;
      answer.setText(here.text);
      std::lock_guard lock(mutex_);
      outgoing_.push_back({message.from, false, 0, answer});
      return;
    }
    case MessageKind::answer:
      if (message.number == probe_.number)
        answers_[message.from] = message;
      return;
    case MessageKind::abort:
      setReason(message.text);
      return;
    case MessageKind::conclude: {
      {
        std::lock_guard lock(mutex_);
        farewells_[message.from] = message;
        if (message.text[0] && !badFarewell_)
          badFarewell_ = std::make_pair(Clock::now(), message);
      }
      changed_.notify_all();
      return;
    }
    }
  }
  Whereabouts whereabouts() {
    std::lock_guard lock(whereMutex_);
    return whereabouts_ ? whereabouts_() : Whereabouts();
  }

  /// Begins, ends and draws the conclusions of asking around.
  void attend() {
    const Clock::time_point now = Clock::now();
    if (aborted()) {
      std::unique_lock lock(mutex_);
      if (!abortedAt_)
        abortedAt_ = now;
      if (hasHung_ || farewells_[rank()] || now - *abortedAt_ < std::chrono::seconds(options_.timeoutSeconds))
        return;
      hasHung_ = true;
      lock.unlock();
      if (options_.onHang)
        options_.onHang(failure());
      return;
    }
    {
      std::unique_lock lock(mutex_);
      // A process that refuses what all of them refuse is no failure: the others have a moment to come to it themselves.
      if (badFarewell_ && !farewells_[rank()] && now - badFarewell_->first > kGrace) {
        const Message message = badFarewell_->second;
        lock.unlock();
        setReason("rank " + std::to_string(message.from) + " stopped: " + message.text);
        return;
      }
    }
    if (!probe_.isActive) {
      std::unique_lock lock(mutex_);
      const bool isHurried = options_.stopSignal && options_.stopSignal->load() != 0 && !hasHurried_ && !farewells_[rank()];
      if (!stuck_ && !isHurried)
        return;
      hasHurried_ |= isHurried;
      probe_ = {true, probe_.number + 1, now + (stuck_ ? kAnswerTime : kHurriedAnswerTime), stuck_.value_or(Stuck{true, "", {}})};
      stuck_.reset();
      answers_.assign(size(), std::nullopt);
      lock.unlock();
      Message message;
      message.kind = MessageKind::ask;
      message.number = probe_.number;
      sendToAll(message);
      return;
    }
    std::vector<int> silent;
    {
      std::lock_guard lock(mutex_);
      for (int r = 0; r < size(); ++r)
        if (r != rank() && !answers_[r] && !farewells_[r])
          silent.push_back(r);
    }
    if (!silent.empty() && now < probe_.deadline)
      return;
    probe_.isActive = false;
    if (!silent.empty())
      abort(silentText(silent));
    else if (!probe_.stuck.isHost)
      abort(lateText());
  }
  std::string silentText(const std::vector<int> &silent) const {
    std::string text = listRanks(silent) + (silent.size() == 1 ? " does" : " do") + " not answer: killed, stopped or cut off";
    if (!probe_.stuck.text.empty())
      text += "; rank " + std::to_string(rank()) + " waited in " + probe_.stuck.text + " for " +
              std::to_string(options_.timeoutSeconds) + " s";
    return text;
  }
  /// All are alive. At fault are those that wait for nobody; without such ones, those that this rank misses.
  std::string lateText() const {
    std::vector<int> late;
    for (int r = 0; r < size(); ++r)
      if (r != rank() && answers_[r] && !answers_[r]->isWaiting)
        late.push_back(r);
    if (late.empty())
      late = probe_.stuck.missing;
    std::string text = listRanks(late) + " did not arrive at " + probe_.stuck.text + " within " +
                       std::to_string(options_.timeoutSeconds) + " s";
    for (int r : late)
      if (answers_[r] && answers_[r]->text[0])
        text += "; rank " + std::to_string(r) + " is at " + answers_[r]->text;
    return text;
  }

  struct Probe {
    bool isActive = false;
    int number = 0;
    Clock::time_point deadline;
    Stuck stuck;
  };

  MpiLibrary &library_;
  MpiWorldOptions options_;
  int control_ = -1;
  std::vector<int> made_;
  std::atomic<int64_t> stagingBytes_{0};

  mutable std::mutex mutex_; // guards what follows; taken before the library's
  std::condition_variable changed_;
  bool stop_ = false, hasHurried_ = false, hasHung_ = false;
  std::optional<Clock::time_point> abortedAt_;
  std::string reason_;
  std::atomic<bool> aborted_{false};
  std::list<Outgoing> outgoing_; // messages keep their places while they are under way
  std::optional<Stuck> stuck_;
  // Of the watching thread.
  std::vector<std::optional<Message>> answers_;
  Probe probe_;
  Message incoming_;
  uint64_t incomingRequest_ = 0;
  // Guarded by mutex_.
  std::vector<std::optional<Message>> farewells_;
  std::optional<std::pair<Clock::time_point, Message>> badFarewell_;

  std::mutex whereMutex_;
  std::function<Whereabouts()> whereabouts_;
  std::thread watcher_;
};

/// Pairs of one communicator: begins sends and receives, and waits for all of them. Calls of one object come from one
/// thread at a time.
class Exchange {
public:
  Exchange(World &world, int communicator) : world_(world), communicator_(communicator) {
    std::lock_guard lock(world.library().mutex());
    world.library().call().place(communicator, &rank_, &size_);
    requests_.resize(2 * size_);
    peers_.resize(2 * size_);
  }
  int rank() const { return rank_; }
  int size() const { return size_; }
  void setRanks(std::vector<int> ranks) { ranks_ = std::move(ranks); }

  void send(const void *bytes, int64_t count, int to) {
    add(to, [&](uint64_t *request, const ZeroccMpi &mpi) {
      return mpi.isend(bytes, static_cast<int>(count), to, 0, communicator_, request);
    });
  }
  void receive(void *bytes, int64_t count, int from) {
    add(from, [&](uint64_t *request, const ZeroccMpi &mpi) {
      return mpi.irecv(bytes, static_cast<int>(count), from, 0, communicator_, request);
    });
  }
  bool finish(Waiting waiting) {
    waiting.ranks = &ranks_;
    waiting.peerOf = peers_.data();
    const int count = count_;
    count_ = 0;
    if (error_ != 0) {
      world_.abort("rank " + std::to_string(world_.rank()) + ", " + waiting.text() + ": " + world_.library().errorText(error_));
      return false;
    }
    return world_.wait(requests_.data(), count, waiting);
  }

private:
  template <typename Begin> void add(int peer, Begin begin) {
    std::lock_guard lock(world_.library().mutex());
    peers_[count_] = peer;
    if (int code = begin(&requests_[count_], world_.library().call()))
      error_ = code;
    else
      ++count_;
  }

  World &world_;
  int communicator_, rank_ = 0, size_ = 1, count_ = 0, error_ = 0;
  std::vector<int> ranks_; // of the world, by place
  std::vector<uint64_t> requests_;
  std::vector<int> peers_; // by request
};

class MpiProcesses : public Processes {
public:
  MpiProcesses(World &world, int communicator) : world_(world), exchange_(world, communicator) {
    std::vector<int> ranks(world.size());
    for (int r = 0; r < world.size(); ++r)
      ranks[r] = r;
    exchange_.setRanks(std::move(ranks));
  }
  int rank() const override { return world_.rank(); }
  int size() const override { return world_.size(); }

  Status allGather(const void *mine, int64_t bytes, void *all) override {
    char *to = static_cast<char *>(all);
    if (to + rank() * bytes != mine)
      std::memcpy(to + rank() * bytes, mine, static_cast<size_t>(bytes));
    for (int64_t at = 0; at < bytes; at += kMostBytes) {
      const int64_t count = std::min(kMostBytes, bytes - at);
      for (int turn = 1; turn < size(); ++turn)
        exchange_.receive(to + (rank() + turn) % size() * bytes + at, count, (rank() + turn) % size());
      for (int turn = 1; turn < size(); ++turn)
        exchange_.send(to + rank() * bytes + at, count, (rank() + turn) % size());
      if (!exchange_.finish({.isHost = true, .what = "an agreement of all ranks"}))
        return failed();
    }
    return success();
  }
  Status broadcast(int from, void *bytes, int64_t total) override {
    for (int64_t at = 0; at < total; at += kMostBytes) {
      const int64_t count = std::min(kMostBytes, total - at);
      char *part = static_cast<char *>(bytes) + at;
      if (rank() != from)
        exchange_.receive(part, count, from);
      else
        for (int turn = 1; turn < size(); ++turn)
          exchange_.send(part, count, (rank() + turn) % size());
      if (!exchange_.finish({.isHost = true, .what = "what one rank tells the others"}))
        return failed();
    }
    return success();
  }
  Expected<std::unique_ptr<Processes>> another() override { return world_.processes(); }

private:
  Status failed() const { return Error(world_.failure()).in("rank " + std::to_string(rank())); }
  World &world_;
  Exchange exchange_;
};

enum class Kind : uint8_t { allGather, reduceScatter, allReduce };
const char *kindName(Kind kind) {
  constexpr const char *names[] = {"all-gather", "reduce-scatter", "all-reduce"};
  return names[static_cast<int>(kind)];
}

class MpiRank : public Communicator {
public:
  MpiRank(World &world, int communicator, Device &device) : world_(world), exchange_(world, communicator), device_(device) {
    stagingBytes_ = size() > 1 ? kStagingBytes : 0;
    staging_.reset(new char[static_cast<size_t>(stagingBytes_ * size())]);
    sources_.resize(size());
    world.addStaging(stagingBytes_ * size());
  }
  Exchange &exchange() { return exchange_; }

  int rank() const override { return exchange_.rank(); }
  int size() const override { return exchange_.size(); }
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
  void abort(const std::string &reason) override { world_.abort(reason); }
  std::string failure() const override { return world_.failure(); }

private:
  struct Call {
    MpiRank *self = nullptr;
    uint32_t number = 0;
    Kind kind = Kind::allGather;
    DType dtype = DType::f32;
    int64_t count = 0;
    const char *send = nullptr;
    char *receive = nullptr;
  };

  void queue(Kind kind, const void *send, void *recv, int64_t count, DType dtype, StreamId stream) {
    const uint32_t number = queued_++;
    done_.await(number + 1 - static_cast<uint32_t>(calls_.size())); // the ring is full
    Call &call = calls_[number % calls_.size()];
    call = {this, number, kind, dtype, count, static_cast<const char *>(send), static_cast<char *>(recv)};
    device_.enqueue(
        stream,
        [](void *argument) {
          Call &call = *static_cast<Call *>(argument);
          call.self->done_.await(call.number); // an earlier call may be on another stream
          if (!call.self->world_.aborted())
            call.self->run(call);
          call.self->done_.advance();
        },
        &call);
  }

  void run(const Call &call) {
    const int64_t width = byteSize(call.dtype);
    bool isDone = false;
    switch (call.kind) {
    case Kind::allGather:
      isDone = gather(call, call.send, call.receive, call.count * width, size() * call.count * width);
      count(call.kind, isDone ? (size() - 1) * call.count * width : 0);
      return;
    case Kind::reduceScatter:
      isDone = reduce(call, call.receive, call.count, size() * call.count);
      count(call.kind, isDone ? (size() - 1) * call.count * width : 0);
      return;
    case Kind::allReduce: {
      const int64_t part = (call.count + size() - 1) / size();
      const int64_t begin = std::min(rank() * part, call.count), end = std::min((rank() + 1) * part, call.count);
      isDone = reduce(call, call.receive + begin * width, part, call.count) &&
               gather(call, call.receive + begin * width, call.receive, part * width, call.count * width);
      count(call.kind, isDone ? ((size() - 1) * (end - begin) + call.count - (end - begin)) * width : 0);
      return;
    }
    }
  }
  Waiting waiting(const Call &call) const {
    return {.what = kindName(call.kind), .count = call.count, .dtype = call.dtype};
  }

  /// Part r of `to` becomes what rank r has, where parts have `part` bytes and all together `total`.
  bool gather(const Call &call, const char *own, char *to, int64_t part, int64_t total) {
    auto bytesOf = [&](int r) { return std::min((r + 1) * part, total) - std::min(r * part, total); };
    if (own != to + std::min(rank() * part, total) && bytesOf(rank()) > 0)
      std::memcpy(to + rank() * part, own, static_cast<size_t>(bytesOf(rank())));
    for (int64_t at = 0; at < std::max<int64_t>(part, 1); at += kMostBytes) { // a part of nothing is a meeting, too
      for (int turn = 1; turn < size(); ++turn) {
        const int peer = (rank() + size() - turn) % size();
        const int64_t bytes = bytesOf(peer);
        exchange_.receive(to + std::min(peer * part + at, total), std::clamp<int64_t>(bytes - at, 0, kMostBytes), peer);
      }
      for (int turn = 1; turn < size(); ++turn)
        exchange_.send(own + std::min(at, bytesOf(rank())), std::clamp<int64_t>(bytesOf(rank()) - at, 0, kMostBytes),
                       (rank() + turn) % size());
      if (!exchange_.finish(waiting(call)))
        return false;
    }
    return true;
  }

  /// `to` becomes the sum over the ranks of this rank's part of call.send, where parts have `part` elements and all
  /// together `total`. In place: nobody is sent this rank's own part.
  bool reduce(const Call &call, char *to, int64_t part, int64_t total) {
    const int64_t width = byteSize(call.dtype), stretch = kStagingBytes / width;
    auto countOf = [&](int r, int64_t at) {
      return std::clamp<int64_t>(std::min((r + 1) * part, total) - std::min(r * part + at, total), 0, stretch);
    };
    for (int64_t at = 0; at < std::max<int64_t>(part, 1); at += stretch) {
      const int64_t own = countOf(rank(), at);
      for (int turn = 1; turn < size(); ++turn) {
        const int peer = (rank() + size() - turn) % size();
        exchange_.receive(staging_.get() + peer * stagingBytes_, own * width, peer);
      }
      for (int turn = 1; turn < size(); ++turn) {
        const int peer = (rank() + turn) % size();
        exchange_.send(call.send + std::min(peer * part + at, total) * width, countOf(peer, at) * width, peer);
      }
      if (!exchange_.finish(waiting(call)))
        return false;
      for (int r = 0; r < size(); ++r)
        sources_[r] = r == rank() ? call.send + std::min(rank() * part + at, total) * width : staging_.get() + r * stagingBytes_;
      char *target = to + std::min(at, part) * width;
      if (own == 0)
        continue;
      if (size() == 1 && target != sources_[0])
        std::memcpy(target, sources_[0], static_cast<size_t>(own * width));
      else if (size() > 1)
        sumInRankOrder(target, sources_.data(), size(), own, call.dtype);
    }
    return true;
  }
  void count(Kind kind, int64_t bytes) {
    received_[static_cast<int>(kind)].fetch_add(bytes, std::memory_order_relaxed);
  }

  World &world_;
  Exchange exchange_;
  Device &device_;
  int64_t stagingBytes_ = 0;
  std::unique_ptr<char[]> staging_;
  std::vector<const void *> sources_;
  std::array<Call, 256> calls_; // a ring: queueing allocates nothing
  uint32_t queued_ = 0;
  Milestone done_;
  std::array<std::atomic<int64_t>, 3> received_{};
};

Expected<std::unique_ptr<Communicator>> World::group(int colour, Device &device) {
  ZEROCC_ASSIGN(int communicator, split(colour));
  auto made = std::make_unique<MpiRank>(*this, communicator, device);
  // Who is in it: every rank tells its number in the world.
  std::vector<int> ranks(made->size());
  const int own = rank();
  ranks[made->rank()] = own;
  Exchange &exchange = made->exchange();
  for (int r = 0; r < made->size(); ++r)
    if (r != made->rank()) {
      exchange.receive(&ranks[r], sizeof(int), r);
      exchange.send(&own, sizeof(int), r);
    }
  if (!exchange.finish({.isHost = true, .what = "the making of a group"}))
    return Error(failure());
  exchange.setRanks(std::move(ranks));
  return std::unique_ptr<Communicator>(std::move(made));
}

Expected<std::unique_ptr<Processes>> World::processes() {
  ZEROCC_ASSIGN(int communicator, split(0));
  return std::unique_ptr<Processes>(std::make_unique<MpiProcesses>(*this, communicator));
}

} // namespace

Expected<std::unique_ptr<MpiWorld>> MpiWorld::create(MpiLibrary &library, const MpiWorldOptions &options) {
  auto world = std::make_unique<World>(library, options);
  ZEROCC_TRY(world->begin());
  return std::unique_ptr<MpiWorld>(std::move(world));
}

} // namespace zerocc
