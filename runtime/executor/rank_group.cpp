#include "runtime/executor/rank_group.h"

#include "runtime/executor/process_rank.h"
#include "runtime/memory/milestone.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <thread>

// Host threads live as long as the group and sleep between calls: starting threads would allocate in every
// step.
//
// Work given to them is numbered by `calls_`; each thread runs call n when calls_ reaches n, and adds itself
// to `returns_`, which is ranks * n once all are back.

namespace zerocc {
namespace {

class ThreadRankGroup : public RankGroup {
public:
  ThreadRankGroup(const plan::Plan &plan, const RankGroupOptions &options) : plan_(plan), options_(options) {}
  ~ThreadRankGroup() override {
    stop_ = true;
    calls_.advance();
    for (std::thread &thread : hosts_)
      thread.join();
    // No rank's memory or communicator goes while a peer may still use it.
    for (auto &executor : executors_)
      if (executor)
        (void)executor->join();
  }

  Status prepare() {
    const uint64_t shard = plan_.mesh().shard(), replicate = plan_.mesh().replicate();
    if (shard == 0 || replicate == 0 || shard > kMaxRanks || replicate > kMaxRanks ||
        shard * replicate > kMaxRanks)
      return Error("mesh shard=" + std::to_string(shard) + ", replicate=" + std::to_string(replicate) +
                   " cannot run as threads of one process, of which there may be " +
                   std::to_string(kMaxRanks));
    const int ranks = static_cast<int>(shard * replicate);
    for (int rank = 0; rank < ranks; ++rank) {
      CpuDeviceOptions device = options_.device;
      device.delaySeed = device.delaySeed * kMaxRanks + rank;
      devices_.push_back(makeCpuDevice(device));
    }
    communicators_.resize(ranks);
    makeCommunicators(static_cast<int>(shard), static_cast<int>(replicate));
    executors_.resize(ranks);
    errors_.resize(ranks);
    for (int rank = 0; rank < ranks; ++rank)
      hosts_.emplace_back([this, rank] { host(rank); });
    // On the ranks' own threads: memory and primitives are made in parallel.
    return onEachHost([this](int rank) -> Status {
      ZEROCC_ASSIGN(executors_[rank],
                    Executor::create(plan_, rank, *devices_[rank], communicators_[rank], options_.executor));
      return success();
    });
  }

  int ranks() const override { return static_cast<int>(executors_.size()); }
  Processes &processes() override { return *processes_; }
  Executor &executor(int rank) override { return *executors_[rank]; }
  Device &device(int rank) override { return *devices_[rank]; }

  Status forEachRank(const std::function<Status(Executor &)> &work) override {
    // By reference: two words, which std::function keeps in itself.
    return onEachHost([this, &work](int rank) { return work(*executors_[rank]); });
  }
  Status runSegment(std::string_view name) override {
    return forEachRank([name](Executor &executor) { return executor.runSegment(name); });
  }

  bool rankFailed() const override {
    std::lock_guard lock(mutex_);
    return hasThrown_ || (std::any_of(errors_.begin(), errors_.end(), [](const auto &error) { return error.has_value(); }) &&
                          std::all_of(errors_.begin(), errors_.end(), [](const auto &error) { return !error || error->follows; }));
  }
  int64_t mappedBytes() const override {
    int64_t bytes = 0;
    for (const auto &device : devices_)
      bytes += device->mappedBytes();
    return bytes;
  }
  Traffic traffic() const override {
    Traffic total;
    for (const auto &executor : executors_) {
      const Traffic one = executor->traffic();
      total.allGather += one.allGather;
      total.reduceScatter += one.reduceScatter;
      total.allReduce += one.allReduce;
      total.exchange += one.exchange;
    }
    return total;
  }

private:
  static constexpr uint64_t kMaxRanks = 1024;

  /// Communicators of the ranks first, first + step, …; `place` says which of a rank's communicators they
  /// are.
  void makeGroup(int first, int step, int size, Communicator *RankCommunicators::*place) {
    std::vector<Device *> devices;
    std::vector<int> names;
    for (int i = 0; i < size; ++i) {
      names.push_back(first + i * step);
      devices.push_back(devices_[names.back()].get());
    }
    auto handles = makeThreadCommunicators(devices, options_.timeoutSeconds, names);
    for (int i = 0; i < size; ++i) {
      communicators_[names[i]].*place = handles[i].get();
      handles_.push_back(std::move(handles[i]));
    }
  }
  void makeCommunicators(int shard, int replicate) {
    for (int row = 0; row < replicate; ++row) {
      makeGroup(row * shard, 1, shard, &RankCommunicators::gather);
      makeGroup(row * shard, 1, shard, &RankCommunicators::reduce);
    }
    for (int column = 0; column < shard; ++column)
      makeGroup(column, shard, replicate, &RankCommunicators::replicate);
    makeGroup(0, 1, shard * replicate, &RankCommunicators::world);
  }

  void host(int rank) {
    for (uint32_t call = 1;; ++call) {
      calls_.await(call);
      if (stop_)
        return;
      if (Status status = guarded(rank); !status)
        fail(rank, status.error());
      returns_.advance();
    }
  }
  Status guarded(int rank) {
    try {
      return (*work_)(rank);
    } catch (const std::exception &exception) { // of libraries; std::bad_alloc
      std::lock_guard lock(mutex_);
      hasThrown_ = true;
      return Error("rank " + std::to_string(rank) + ": " + exception.what());
    }
  }
  /// A rank that failed because its group was aborted follows another one.
  void fail(int rank, const Error &error) {
    const bool follows = executors_[rank] && executors_[rank]->failed();
    {
      std::lock_guard lock(mutex_);
      errors_[rank] = Failure{error, follows};
    }
    const std::string reason =
        "rank " + std::to_string(rank) + " stopped: " + error.findings().front().message;
    for (auto &handle : handles_)
      handle->abort(reason);
  }

  Status onEachHost(const std::function<Status(int)> &work) {
    if (!failures().empty())
      return Error(failures());
    work_ = &work;
    calls_.advance();
    returnsExpected_ += static_cast<uint32_t>(hosts_.size());
    awaitReturns();
    work_ = nullptr;
    if (!failures().empty())
      return Error(failures());
    return success();
  }
  void awaitReturns() {
    bool failed = false, told = !options_.onHang;
    while (!returns_.await(returnsExpected_, told ? -1 : int64_t{options_.timeoutSeconds} * 1'000'000)) {
      const std::vector<Diagnostic> findings = failures();
      if (failed) { // a whole time-out ago
        options_.onHang(Error(findings));
        told = true;
      }
      failed = !findings.empty();
    }
  }
  /// Findings of the ranks that failed by themselves, each text once; without such ones the first follower's.
  std::vector<Diagnostic> failures() const {
    std::lock_guard lock(mutex_);
    std::vector<Diagnostic> own, following;
    for (const std::optional<Failure> &failure : errors_) {
      if (!failure)
        continue;
      std::vector<Diagnostic> &list = failure->follows ? following : own;
      for (const Diagnostic &finding : failure->error.findings()) {
        auto same = [&](const Diagnostic &other) { return other.message == finding.message; };
        if (std::none_of(list.begin(), list.end(), same))
          list.push_back(finding);
      }
    }
    if (own.empty() && !following.empty())
      own.push_back(following.front());
    return own;
  }

  struct Failure {
    Error error;
    bool follows;
  };
  const plan::Plan &plan_;
  RankGroupOptions options_;
  std::unique_ptr<Processes> processes_ = oneProcess();
  // Destroyed from the last to the first: executors wait for work that uses communicators and devices.
  std::vector<std::unique_ptr<Device>> devices_;
  std::vector<std::unique_ptr<Communicator>> handles_;
  std::vector<RankCommunicators> communicators_;
  std::vector<std::unique_ptr<Executor>> executors_;
  mutable std::mutex mutex_; // guards errors_ and hasThrown_
  bool hasThrown_ = false;
  std::vector<std::optional<Failure>> errors_;
  const std::function<Status(int)> *work_ = nullptr;
  bool stop_ = false;
  Milestone calls_, returns_;
  uint32_t returnsExpected_ = 0;
  std::vector<std::thread> hosts_;
};

} // namespace

Expected<std::unique_ptr<RankGroup>> RankGroup::create(const plan::Plan &plan,
                                                       const RankGroupOptions &options) {
  if (options.world)
    return makeProcessRank(plan, options);
  auto group = std::make_unique<ThreadRankGroup>(plan, options);
  ZEROCC_TRY(group->prepare());
  return std::unique_ptr<RankGroup>(std::move(group));
}

} // namespace zerocc
