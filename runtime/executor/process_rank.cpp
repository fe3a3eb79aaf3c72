#include "runtime/executor/process_rank.h"

#include "runtime/collectives/mpi/mpi_world.h"

// Groups are made in one order by all processes. A rank's communicators are two of its row of the mesh (gather and
// reduce), its column and the world.

namespace zerocc {
namespace {

class ProcessRank : public RankGroup {
public:
  ProcessRank(const plan::Plan &plan, const RankGroupOptions &options)
      : plan_(plan), options_(options), world_(*options.world), device_(makeCpuDevice(options.device)) {}
  ~ProcessRank() override {
    world_.setWhereabouts({});
    if (world_.failure().empty())
      return;
    // The MPI may still write into memory that it was given: it stays until the process ends.
    for (auto &communicator : communicators_)
      (void)communicator.release();
    (void)executor_.release();
    (void)device_.release();
  }

  Status prepare() {
    const uint64_t shard = plan_.mesh().shard(), replicate = plan_.mesh().replicate();
    const auto size = static_cast<uint64_t>(world_.size());
    if (shard == 0 || shard > size || size % shard != 0 || size / shard != replicate)
      return Error("the plan is for " + std::to_string(shard * replicate) + " ranks, and " + std::to_string(size) +
                       (size == 1 ? " process runs" : " processes run"),
                   "start with mpirun -n " + std::to_string(shard * replicate) + ", or compile with --ranks " +
                       std::to_string(size));
    const int row = world_.rank() / static_cast<int>(shard), column = world_.rank() % static_cast<int>(shard);
    RankCommunicators groups;
    ZEROCC_TRY(addGroup(row, groups.gather));
    ZEROCC_TRY(addGroup(row, groups.reduce));
    ZEROCC_TRY(addGroup(column, groups.replicate));
    ZEROCC_TRY(addGroup(0, groups.world));
    ZEROCC_ASSIGN(processes_, world_.processes());
    Status made = [&]() -> Status {
      ZEROCC_ASSIGN(executor_, Executor::create(plan_, world_.rank(), *device_, groups, options_.executor));
      return success();
    }();
    return agree(*processes_, made);
  }

  int ranks() const override { return world_.size(); }
  int firstHere() const override { return world_.rank(); }
  int ranksHere() const override { return 1; }
  Executor &executor(int) override { return *executor_; }
  Device &device(int) override { return *device_; }
  Processes &processes() override { return *processes_; }

  Status forEachRank(const std::function<Status(Executor &)> &work) override {
    if (std::string reason = world_.failure(); !reason.empty())
      return Error(reason).in("rank " + std::to_string(world_.rank()));
    return guarded(work); // who fails says so when it concludes
  }
  Status runSegment(std::string_view name) override { return executor_->runSegment(name); }
  bool rankFailed() const override { return hasThrown_ || !world_.failure().empty(); }
  int64_t mappedBytes() const override { return device_->mappedBytes(); }
  Traffic traffic() const override { return executor_->traffic(); }

private:
  Status addGroup(int colour, Communicator *&place) {
    ZEROCC_ASSIGN(auto made, world_.group(colour, *device_));
    place = made.get();
    communicators_.push_back(std::move(made));
    return success();
  }
  Status guarded(const std::function<Status(Executor &)> &work) {
    try {
      return work(*executor_);
    } catch (const std::exception &exception) { // of libraries; std::bad_alloc
      hasThrown_ = true;
      return Error("rank " + std::to_string(world_.rank()) + ": " + exception.what());
    }
  }

  const plan::Plan &plan_;
  RankGroupOptions options_;
  MpiWorld &world_;
  bool hasThrown_ = false;
  // Destroyed from the last to the first: the executor waits for work that uses communicators and device.
  std::unique_ptr<Device> device_;
  std::vector<std::unique_ptr<Communicator>> communicators_;
  std::unique_ptr<Processes> processes_;
  std::unique_ptr<Executor> executor_;
};

} // namespace

Expected<std::unique_ptr<RankGroup>> makeProcessRank(const plan::Plan &plan, const RankGroupOptions &options) {
  auto rank = std::make_unique<ProcessRank>(plan, options);
  ZEROCC_TRY(rank->prepare());
  return std::unique_ptr<RankGroup>(std::move(rank));
}

} // namespace zerocc
