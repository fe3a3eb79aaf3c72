#include "runtime/executor/executor.h"

#include "runtime/executor/poison.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <vector>

// create() resolves every instruction to a Step: addresses, a prepared kernel call or a collective, events.
// Running a segment is then a loop that queues waits, work and record of each step on its stream.
//
// Streams join on the device, not on the host: each records an event that all others wait for. So a whole
// step of several segments can be queued at once. Event numbers are those of a segment, and can be used again
// by the next one because of that join.
//
// A collective does not say that it failed; its communicator does, and is asked right behind it, in stream
// order. The first instruction that sees a failure is where this rank stands.

namespace zerocc {
namespace {

enum class Work : uint8_t { none, kernel, allGather, reduceScatter, allReduce, exchange };

Work workOf(OpKind op) {
  switch (op) {
  case OpKind::Reshape:
  case OpKind::Transpose:
  case OpKind::Broadcast:
  case OpKind::Slice:
  case OpKind::Member:
  case OpKind::Buffer:
  case OpKind::FetchWait:
  case OpKind::Release:
  case OpKind::ReduceWait:
    return Work::none;
  case OpKind::FetchStart:
  case OpKind::AllGatherStart:
    return Work::allGather;
  case OpKind::ReduceStart:
    return Work::reduceScatter;
  case OpKind::AllReduceStart:
    return Work::allReduce;
  case OpKind::ExchangeStart:
    return Work::exchange;
  default:
    return Work::kernel;
  }
}

int64_t nowNanos() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// Bytes to overwrite in stream order.
struct PoisonTask {
  char *begin = nullptr;
  int64_t bytes = 0;

  static void run(void *self) {
    const PoisonTask &task = *static_cast<PoisonTask *>(self);
    std::memset(task.begin, kPoisonByte, task.bytes);
  }
};

struct Collective {
  Communicator *communicator = nullptr;
  const void *send = nullptr;
  void *receive = nullptr;
  int64_t count = 0;
  DType dtype = DType::f32;
};

/// An instruction, ready to be queued.
struct Step {
  Work work = Work::none;
  StreamId stream = 0;
  std::vector<EventId> waits;
  EventId record = -1;
  KernelCall call;
  Collective collective;
  std::vector<PoisonTask> poisonBefore, poisonAfter;
  InstructionTime *time = nullptr;
  Executor *executor = nullptr;
  std::atomic<Step *> *stoodAt = nullptr; // the first step of the executor that saw a failure
  int segment = 0, index = 0;
};

struct PreparedSegment {
  std::string name;
  std::vector<Step> steps;
  std::vector<InstructionTime> times;
  std::vector<PoisonTask> poisonAtEntry;
};

void noteStart(void *time) { static_cast<InstructionTime *>(time)->startNanos = nowNanos(); }
void noteEnd(void *time) { static_cast<InstructionTime *>(time)->endNanos = nowNanos(); }

void noteFailure(void *argument) {
  Step &step = *static_cast<Step *>(argument);
  const std::string reason = step.collective.communicator->failure();
  Step *nowhere = nullptr;
  if (!reason.empty() && step.stoodAt->compare_exchange_strong(nowhere, &step))
    step.executor->abort(reason); // now, not when the host comes: peers in other groups wait for this rank
}

class PlanExecutor : public Executor {
public:
  PlanExecutor(const plan::Plan &plan, int rank, Device &device, const RankCommunicators &communicators,
               const ExecutorOptions &options)
      : plan_(plan), rank_(rank), shard_(static_cast<int>(plan.mesh().shard())), device_(device),
        communicators_(communicators), options_(options) {}
  ~PlanExecutor() override { synchronize(); }

  Status prepare() {
    ZEROCC_TRY(checkRank());
    ZEROCC_TRY(allocateRegions());
    makeBucketLayouts();
    makeStreams();
    ZEROCC_TRY(checkTables());
    segments_.resize(plan_.segments_size());
    for (int i = 0; i < plan_.segments_size(); ++i)
      ZEROCC_TRY(prepareSegment(i));
    device_.seal();
    return success();
  }

  Status queueSegment(std::string_view name) override {
    PreparedSegment *segment = findSegment(name);
    if (!segment)
      return Error("the plan has no segment \"" + std::string(name) + "\"");
    if (failed())
      return failureError();
    joinStreams();
    if (!segment->poisonAtEntry.empty()) {
      for (PoisonTask &task : segment->poisonAtEntry)
        device_.enqueue(kComputeStream, PoisonTask::run, &task);
      joinStreams();
    }
    for (Step &step : segment->steps)
      queue(step);
    return success();
  }

  Status join() override {
    synchronize();
    if (!failed())
      return success();
    return failureError();
  }

  bool hasSegment(std::string_view name) const override {
    return const_cast<PlanExecutor *>(this)->findSegment(name) != nullptr;
  }
  bool failed() const override { return !failureReason().empty(); }
  void abort(const std::string &reason) override {
    for (Communicator *communicator : groups())
      communicator->abort(reason);
  }

  int rank() const override { return rank_; }
  int shardIndex() const override { return rank_ % shard_; }
  int replicateIndex() const override { return rank_ / shard_; }

  char *address(uint32_t region, uint64_t offset) const override { return regions_[region] + offset; }
  int64_t regionBytes(uint32_t region) const override {
    return static_cast<int64_t>(plan_.regions(region).bytes());
  }

  std::optional<TensorView> input(std::string_view name) const override {
    for (const plan::Input &input : plan_.inputs())
      if (input.name() == name)
        return viewOf(inputOperand(input));
    return std::nullopt;
  }
  std::optional<TensorView> storage(std::string_view name) const override {
    for (const plan::Storage &storage : plan_.storages())
      if (storage.name() == name)
        return viewOf(storageOperand(storage));
    return std::nullopt;
  }
  Status copyIn(std::string_view name, const void *data, int64_t bytes) override {
    ZEROCC_ASSIGN(void *to, wholeOf("input", name, input(name), bytes));
    device_.copyToDevice(to, data, bytes);
    return success();
  }
  Status writeStorage(std::string_view name, const void *data, int64_t bytes) override {
    ZEROCC_ASSIGN(void *to, wholeOf("storage", name, storage(name), bytes));
    device_.copyToDevice(to, data, bytes);
    return success();
  }
  Status readStorage(std::string_view name, void *data, int64_t bytes) override {
    ZEROCC_ASSIGN(void *from, wholeOf("storage", name, storage(name), bytes));
    device_.copyToHost(data, from, bytes);
    return success();
  }

  std::span<const InstructionTime> times(std::string_view name) const override {
    const PreparedSegment *segment = const_cast<PlanExecutor *>(this)->findSegment(name);
    return segment ? std::span<const InstructionTime>(segment->times) : std::span<const InstructionTime>();
  }
  Traffic traffic() const override {
    Traffic traffic;
    for (const Communicator *communicator :
         {communicators_.gather, communicators_.reduce, communicators_.replicate}) {
      const Communicator::Received received = communicator->received();
      traffic.allGather += received.allGather;
      traffic.reduceScatter += received.reduceScatter;
      traffic.allReduce += received.allReduce;
    }
    traffic.exchange = communicators_.world->received().total();
    return traffic;
  }

private:
  // --- setting up

  Status checkRank() const {
    const uint64_t shard = plan_.mesh().shard(), replicate = plan_.mesh().replicate();
    if (shard == 0 || replicate == 0 || shard > 1 << 20 || replicate > 1 << 20)
      return Error("mesh of the plan is shard " + std::to_string(shard) + ", replicate " +
                   std::to_string(replicate));
    if (rank_ < 0 || static_cast<uint64_t>(rank_) >= shard * replicate)
      return Error("rank " + std::to_string(rank_) + " does not exist, the plan is for " +
                   std::to_string(shard * replicate));
    ZEROCC_TRY(checkGroup("gather", communicators_.gather, shard, shardIndex()));
    ZEROCC_TRY(checkGroup("reduce", communicators_.reduce, shard, shardIndex()));
    ZEROCC_TRY(checkGroup("replicate", communicators_.replicate, replicate, replicateIndex()));
    return checkGroup("world", communicators_.world, shard * replicate, rank_);
  }
  static Status checkGroup(const char *name, const Communicator *communicator, uint64_t size, int place) {
    if (!communicator)
      return Error(std::string("there is no communicator \"") + name + "\"");
    if (static_cast<uint64_t>(communicator->size()) != size || communicator->rank() != place)
      return Error(std::string("communicator \"") + name + "\" is place " +
                   std::to_string(communicator->rank()) + " of " + std::to_string(communicator->size()) +
                   ", the plan wants place " + std::to_string(place) + " of " + std::to_string(size));
    return success();
  }

  Status allocateRegions() {
    for (const plan::RegionSize &region : plan_.regions()) {
      regions_.push_back(nullptr);
      if (region.bytes() == 0)
        continue;
      if (region.bytes() < uint64_t{1} << 62)
        regions_.back() = static_cast<char *>(device_.allocate(static_cast<int64_t>(region.bytes())));
      if (!regions_.back())
        return Error("rank " + std::to_string(rank_) + ": no memory for region " + region.name() + " of " +
                         std::to_string(region.bytes()) + " B",
                     "compile with a smaller --memory-budget, or for more ranks");
    }
    return success();
  }

  void makeBucketLayouts() {
    for (const plan::Bucket &bucket : plan_.buckets()) {
      BucketLayout &layout = buckets_.emplace_back();
      for (const plan::Range &range : bucket.ranges())
        layout.ranges.push_back({static_cast<int64_t>(range.begin()), static_cast<int64_t>(range.end()),
                                 static_cast<int>(range.group()), static_cast<int>(range.parameter())});
      layout.paddedElements = static_cast<int64_t>(bucket.padded_elements());
      layout.shardIndex = shardIndex();
      layout.shardSize = shard_;
    }
  }

  void makeStreams() {
    uint32_t streams = 1, events = 0;
    for (const plan::Segment &segment : plan_.segments()) {
      events = std::max(events, segment.events());
      for (const plan::Instruction &instruction : segment.instructions())
        streams = std::max(streams, std::min<uint32_t>(instruction.stream() + 1, kMaxStreams));
    }
    constexpr const char *names[] = {"compute", "gather", "reduce"};
    for (uint32_t i = 0; i < streams; ++i) {
      const std::string name = i < std::size(names) ? names[i] : "stream" + std::to_string(i);
      streams_.push_back(device_.createStream("r" + std::to_string(rank_) + "-" + name));
      joinEvents_.push_back(device_.createEvent());
    }
    for (uint32_t i = 0; i < std::min(events, kMaxEvents); ++i)
      events_.push_back(device_.createEvent());
  }

  static plan::Operand inputOperand(const plan::Input &input) {
    plan::Operand operand;
    operand.set_region(kInputsRegion);
    operand.set_offset(input.offset());
    operand.set_dtype(input.dtype());
    *operand.mutable_dims() = input.dims();
    return operand;
  }
  static plan::Operand storageOperand(const plan::Storage &storage) {
    plan::Operand operand;
    operand.set_region(storage.region());
    operand.set_offset(storage.offset());
    operand.set_dtype(storage.dtype());
    operand.add_dims(static_cast<int64_t>(storage.elements()));
    return operand;
  }
  /// Inputs and storages lie inside their regions, so that their views can be given out.
  Status checkTables() const {
    for (const plan::Input &input : plan_.inputs())
      if (auto range = operandBytes(plan_, inputOperand(input), 0); !range)
        return range.error().in("input " + input.name());
    for (const plan::Storage &storage : plan_.storages())
      if (auto range = operandBytes(plan_, storageOperand(storage), 0); !range)
        return range.error().in("storage " + storage.name());
    return success();
  }

  Status prepareSegment(int number) {
    const plan::Segment &source = plan_.segments(number);
    PreparedSegment &segment = segments_[number];
    segment.name = source.name();
    segment.steps = std::vector<Step>(source.instructions_size()); // steps keep their addresses
    if (options_.profile)
      segment.times.resize(source.instructions_size());
    std::vector<bool> recorded(events_.size() + 1, false);
    for (int i = 0; i < source.instructions_size(); ++i) {
      Step &step = segment.steps[i];
      step.segment = number;
      step.index = i;
      step.executor = this;
      step.stoodAt = &stoodAt_;
      if (auto status = prepareStep(source.instructions(i), step, recorded); !status)
        return status.error().in(instructionText(plan_, source, i));
      if (options_.profile && step.work != Work::none)
        step.time = &segment.times[i];
    }
    return options_.checkMemory ? preparePoison(source, segment) : success();
  }

  Status prepareStep(const plan::Instruction &instruction, Step &step, std::vector<bool> &recorded) {
    if (instruction.op() >= static_cast<uint32_t>(kOpKinds))
      return Error("op " + std::to_string(instruction.op()) + " does not exist");
    if (instruction.stream() >= streams_.size())
      return Error("stream " + std::to_string(instruction.stream()) + " does not exist");
    step.stream = streams_[instruction.stream()];
    for (uint32_t event : instruction.wait()) {
      if (event == 0 || event > events_.size() || !recorded[event])
        return Error("waits for event " + std::to_string(event) + ", which no instruction before it records");
      step.waits.push_back(events_[event - 1]);
    }
    if (const uint32_t event = instruction.record(); event != 0) {
      if (event > events_.size())
        return Error("records event " + std::to_string(event) + ", the segment has " +
                     std::to_string(events_.size()));
      recorded[event] = true;
      step.record = events_[event - 1];
    }
    step.call.op = static_cast<OpKind>(instruction.op());
    step.work = workOf(step.call.op);
    if (step.work == Work::none)
      return success();
    ZEROCC_TRY(resolveOperands(instruction, step.call));
    return step.work == Work::kernel ? prepareKernel(instruction, step.call)
                                     : prepareCollective(instruction, step);
  }

  Status resolveOperands(const plan::Instruction &instruction, KernelCall &call) const {
    for (const plan::Operand &operand : instruction.inputs()) {
      ZEROCC_TRY(operandBytes(plan_, operand, shardIndex()));
      call.inputs.push_back(viewOf(operand));
    }
    for (const plan::Operand &operand : instruction.results()) {
      ZEROCC_TRY(operandBytes(plan_, operand, shardIndex()));
      call.results.push_back(viewOf(operand));
    }
    return success();
  }
  /// A checked operand as a tensor in this rank's memory.
  TensorView viewOf(const plan::Operand &operand) const {
    TensorView view;
    char *base = regions_[operand.region()];
    view.data = base ? base + operand.offset() + operand.rank_stride() * shardIndex() : nullptr;
    view.dtype = static_cast<DType>(operand.dtype());
    view.rank = operand.dims_size();
    int64_t stride = 1;
    for (int i = view.rank - 1; i >= 0; --i) {
      view.dims[i] = operand.dims(i);
      view.strides[i] = operand.strides_size() ? operand.strides(i) : stride;
      stride *= view.dims[i];
    }
    return view;
  }

  Status prepareKernel(const plan::Instruction &instruction, KernelCall &call) {
    call.attributes = attributesOf(instruction);
    if (instruction.workspace_bytes() > 0) {
      plan::Operand workspace;
      workspace.set_region(kArenaRegion);
      workspace.set_offset(instruction.workspace_offset());
      workspace.set_dtype(static_cast<uint32_t>(DType::u8));
      workspace.add_dims(static_cast<int64_t>(instruction.workspace_bytes()));
      if (auto range = operandBytes(plan_, workspace, 0); !range)
        return range.error().in("workspace");
      call.workspace = regions_[kArenaRegion] + instruction.workspace_offset();
      call.workspaceBytes = static_cast<int64_t>(instruction.workspace_bytes());
    }
    if (instruction.bucket() >= 0) {
      if (instruction.bucket() >= plan_.buckets_size())
        return Error("bucket " + std::to_string(instruction.bucket()) + " does not exist");
      call.bucket = &buckets_[instruction.bucket()];
    }
    return device_.prepare(call);
  }

  Status prepareCollective(const plan::Instruction &instruction, Step &step) const {
    if (step.call.inputs.empty() || step.call.results.size() != 1)
      return Error("a collective has at least one operand and one result, this one has " +
                   std::to_string(step.call.inputs.size()) + " and " +
                   std::to_string(step.call.results.size()));
    const TensorView &from = step.call.inputs[0], &to = step.call.results[0];
    if (!from.contiguous() || !to.contiguous())
      return Error("operands of a collective are contiguous");
    if (from.dtype != to.dtype)
      return Error("operand is " + std::string(dtypeName(from.dtype)) + ", result is " +
                   std::string(dtypeName(to.dtype)));
    Collective &collective = step.collective;
    collective.dtype = to.dtype;
    collective.send = from.data;
    collective.receive = to.data;
    switch (step.work) {
    case Work::allGather:
      collective.communicator =
          instruction.stream() == kReduceStream ? communicators_.reduce : communicators_.gather;
      collective.count = to.elements() / shard_;
      return resolvePart(from, to, collective.send);
    case Work::reduceScatter: {
      collective.communicator =
          instruction.stream() == kGatherStream ? communicators_.gather : communicators_.reduce;
      collective.count = from.elements() / shard_;
      const void *own = collective.receive;
      ZEROCC_TRY(resolvePart(to, from, own));
      collective.receive = const_cast<void *>(own);
      return success();
    }
    case Work::allReduce:
      collective.communicator = communicators_.replicate;
      collective.count = to.elements();
      if (from.data != to.data || from.elements() != to.elements())
        return Error("an all-reduce is in place");
      return success();
    default:
      collective.communicator = communicators_.world;
      collective.count = from.elements();
      if (to.elements() != from.elements() * collective.communicator->size())
        return elementsError(from, to);
      return success();
    }
  }
  /// One side of a shard-axis collective is a whole buffer, the other a part of it, or the same buffer: then
  /// the part is this rank's own in it.
  Status resolvePart(const TensorView &part, const TensorView &whole, const void *&own) const {
    if (whole.elements() % shard_ != 0)
      return elementsError(part, whole);
    if (part.elements() == whole.elements() / shard_)
      return success();
    if (part.elements() != whole.elements() || part.data != whole.data)
      return elementsError(part, whole);
    own = static_cast<const char *>(whole.data) +
          shardIndex() * (whole.elements() / shard_) * byteSize(whole.dtype);
    return success();
  }
  Status elementsError(const TensorView &part, const TensorView &whole) const {
    return Error("part of " + std::to_string(part.elements()) + " elements does not fit whole of " +
                 std::to_string(whole.elements()));
  }

  Status preparePoison(const plan::Segment &source, PreparedSegment &segment) const {
    ZEROCC_ASSIGN(PoisonSchedule schedule, schedulePoison(plan_, source, shardIndex()));
    for (size_t i = 0; i < segment.steps.size(); ++i) {
      segment.steps[i].poisonBefore = poisonTasks(kArenaRegion, schedule.instructions[i].before);
      segment.steps[i].poisonAfter = poisonTasks(kArenaRegion, schedule.instructions[i].after);
    }
    if (plan_.regions_size() > static_cast<int>(kArenaRegion))
      segment.poisonAtEntry = poisonTasks(kArenaRegion, {{0, regionBytes(kArenaRegion)}});
    for (const UndefinedAtEntry &undefined : undefinedAtEntry(plan_, source, shardIndex()))
      for (const PoisonTask &task : poisonTasks(undefined.region, {undefined.range}))
        segment.poisonAtEntry.push_back(task);
    return success();
  }
  std::vector<PoisonTask> poisonTasks(uint32_t region, const std::vector<ByteRange> &ranges) const {
    std::vector<PoisonTask> tasks;
    for (const ByteRange &range : ranges)
      if (!range.empty())
        tasks.push_back({regions_[region] + range.begin, range.bytes()});
    return tasks;
  }

  // --- running

  PreparedSegment *findSegment(std::string_view name) {
    for (PreparedSegment &segment : segments_)
      if (segment.name == name)
        return &segment;
    return nullptr;
  }

  /// Whatever is queued from here on, on any stream, comes behind all that is queued already.
  void joinStreams() {
    for (size_t i = 0; i < streams_.size(); ++i)
      device_.record(streams_[i], joinEvents_[i]);
    for (StreamId stream : streams_)
      for (size_t i = 0; i < streams_.size(); ++i)
        if (streams_[i] != stream)
          device_.wait(stream, joinEvents_[i]);
  }

  void queue(Step &step) {
    for (EventId event : step.waits)
      device_.wait(step.stream, event);
    for (PoisonTask &task : step.poisonBefore)
      device_.enqueue(step.stream, PoisonTask::run, &task);
    if (step.time)
      device_.enqueue(step.stream, noteStart, step.time);
    queueWork(step);
    if (step.time)
      device_.enqueue(step.stream, noteEnd, step.time);
    for (PoisonTask &task : step.poisonAfter)
      device_.enqueue(step.stream, PoisonTask::run, &task);
    if (step.record >= 0)
      device_.record(step.stream, step.record);
  }

  void queueWork(Step &step) {
    const Collective &of = step.collective;
    switch (step.work) {
    case Work::none:
      return;
    case Work::kernel:
      device_.launch(step.stream, &step.call);
      return;
    case Work::allGather:
    case Work::exchange:
      of.communicator->allGather(of.send, of.receive, of.count, of.dtype, step.stream);
      break;
    case Work::reduceScatter:
      of.communicator->reduceScatter(of.send, of.receive, of.count, of.dtype, step.stream);
      break;
    case Work::allReduce:
      of.communicator->allReduce(of.receive, of.count, of.dtype, step.stream);
      break;
    }
    device_.enqueue(step.stream, noteFailure, &step);
  }

  void synchronize() {
    for (StreamId stream : streams_)
      device_.synchronize(stream);
  }

  std::array<Communicator *, 4> groups() const {
    return {communicators_.gather, communicators_.reduce, communicators_.replicate, communicators_.world};
  }
  std::string failureReason() const {
    for (const Communicator *communicator : groups())
      if (std::string reason = communicator->failure(); !reason.empty())
        return reason;
    return "";
  }
  Error failureError() {
    const std::string reason = failureReason();
    abort(reason);
    std::string where = "rank " + std::to_string(rank_);
    if (const Step *step = stoodAt_.load())
      where += ", " + instructionText(plan_, plan_.segments(step->segment), step->index);
    return Error(reason).in(where);
  }

  /// Where the bytes of an input or storage are, once nothing that is queued uses them any more.
  Expected<void *> wholeOf(const char *kind, std::string_view name, const std::optional<TensorView> &view,
                           int64_t bytes) {
    if (!view)
      return Error("the plan has no " + std::string(kind) + " \"" + std::string(name) + "\"");
    const int64_t needed = view->elements() * byteSize(view->dtype);
    if (bytes != needed)
      return Error(std::string(kind) + " \"" + std::string(name) + "\" has " + std::to_string(needed) +
                   " B, not " + std::to_string(bytes));
    synchronize();
    return view->data;
  }

  static constexpr uint32_t kMaxEvents = 1 << 24;

  const plan::Plan &plan_;
  int rank_, shard_;
  Device &device_;
  RankCommunicators communicators_;
  ExecutorOptions options_;
  std::vector<char *> regions_;
  std::deque<BucketLayout> buckets_; // kernel calls point at them
  std::vector<StreamId> streams_;
  std::vector<EventId> joinEvents_; // by stream
  std::vector<EventId> events_;     // of the running segment: event e is events_[e - 1]
  std::vector<PreparedSegment> segments_;
  std::atomic<Step *> stoodAt_{nullptr};
};

} // namespace

Expected<std::unique_ptr<Executor>> Executor::create(const plan::Plan &plan, int rank, Device &device,
                                                     const RankCommunicators &communicators,
                                                     const ExecutorOptions &options) {
  auto executor = std::make_unique<PlanExecutor>(plan, rank, device, communicators, options);
  ZEROCC_TRY(executor->prepare());
  return std::unique_ptr<Executor>(std::move(executor));
}

} // namespace zerocc
