// An abstract run of the plan. Every byte of the four regions knows which value was written there last, or
// that it was never written, was released, or holds a gradient of the step before. A value knows who wrote
// it, where it begins and ends, its dtype and number, and what matters for training:
//
//   role        plain | parameter | gradient (reduced) | padding
//   part        holds this rank's part only: in a storage of that size, or in its slot of a whole buffer
//   reduced     summed over the shard axis;  allReduced: over the replicate axis
//   microSteps  which micro-steps of the step are in the sum, one bit each
//   pending     its start has not been joined
//
// Compute ops give plain values; copy, cast and accumulate keep what their operands were; collectives and the
// optimizer change it. A bucket filled by several kernels is read as tiles: each parameter's range one value,
// the padding cleared. The chain  init, eval, step, update, step, update, eval, step, update  shows each
// segment every predecessor it can have; four micro-steps stand for any greater number.
#include "runtime/plan/verify_flow.h"

#include "compiler/support/dtype.h"
#include "runtime/plan/byte_map.h"
#include "runtime/plan/optimizers.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/verify_structure.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

namespace zerocc {
namespace {

constexpr uint32_t kPersistent = 0, kCarried = 1, kArena = 2, kInputs = 3;
constexpr const char *kRegionNames[] = {"persistent", "carried", "arena", "inputs"};
constexpr uint64_t kEvalBit = uint64_t(1) << 63;

/// Contents of bytes that no value is in.
enum : int32_t { kUnwritten = -1, kReleased = -2, kStale = -3 };

enum class Role : uint8_t { plain, parameter, gradient, padding };

struct Written {
  int instruction = -1; // of the running segment; -1: before it, or by the host
  uint32_t region = 0;
  int64_t begin = 0, end = 0;
  uint32_t dtype = 0, number = 0;
  uint64_t microSteps = 0;
  int bucket = -1;
  Role role = Role::plain;
  bool part = false, slot = false; // slot: the part lies in its slot of a whole buffer, [begin, end)
  bool reduced = false, allReduced = false;
  bool pending = false;
  bool wasRead = false; // in a micro-step: by compute, or as part of a bucket
  bool fetched = false; // must be released
};

/// Content of a range of bytes.
struct Seen {
  int32_t value = kUnwritten;
  int32_t other = kUnwritten;
  bool isOne = true; // one value, or one reason for none
  bool isValue() const { return isOne && value >= 0; }
};

class FlowVerifier {
public:
  FlowVerifier(const plan::Plan &plan, Findings &findings)
      : plan_(plan), findings_(findings), shard_(static_cast<int64_t>(plan.mesh().shard())),
        replicate_(static_cast<int64_t>(plan.mesh().replicate())) {
    indexStorages();
  }

  void run() {
    writeByHost();
    walk("init", 0);
    walk("infer", kEvalBit);
    walk("infer", kEvalBit);
    walk("eval", kEvalBit);
    for (int step = 0; step < 3; ++step) {
      walkStep();
      walk("update", 0);
      if (step == 1)
        walk("eval", kEvalBit);
    }
  }

private:
  // --- storages

  /// What lies at an address outside the arena.
  struct Resident {
    int64_t end;
    const plan::Storage *storage; // null: a constant
    uint32_t number;              // constants only
  };

  void indexStorages() {
    for (const plan::Storage &storage : plan_.storages()) {
      int64_t begin = static_cast<int64_t>(storage.offset());
      int64_t bytes =
          static_cast<int64_t>(storage.elements()) * byteSize(static_cast<DType>(storage.dtype()));
      if (bytes > 0)
        residents_[storage.region()][begin] = {begin + bytes, &storage, 0};
      bucketStorages_[{storage.bucket(), storage.kind()}] = &storage;
    }
    for (int c = 0; c < plan_.constants_size(); ++c)
      if (auto [begin, end] = rangeOf(plan_.constants(c)); begin < end)
        residents_[kPersistent][begin] = {end, nullptr, kConstantValue + c};
  }

  template <typename Table> std::pair<int64_t, int64_t> rangeOf(const Table &row) const {
    int64_t elements = 1;
    for (int64_t d : row.dims())
      elements *= d;
    int64_t begin = static_cast<int64_t>(row.offset());
    return {begin, begin + elements * byteSize(static_cast<DType>(row.dtype()))};
  }

  /// The storage or constant at an address of persistent or carried; null: none (an input).
  const Resident *residentAt(uint32_t region, int64_t at) const {
    auto behind = residents_[region].upper_bound(at);
    return behind == residents_[region].begin() ? nullptr : &std::prev(behind)->second;
  }
  const plan::Storage *storageAt(uint32_t region, int64_t at) const {
    const Resident *resident = region == kPersistent || region == kCarried ? residentAt(region, at) : nullptr;
    return resident ? resident->storage : nullptr;
  }
  const plan::Storage *storageOf(int bucket, plan::Storage::Kind kind) const {
    auto found = bucketStorages_.find({bucket, kind});
    return found == bucketStorages_.end() ? nullptr : found->second;
  }

  // --- what the host writes before the first step

  void writeByHost() {
    for (const plan::Storage &storage : plan_.storages()) {
      bool byHost = storage.kind() == plan::Storage::PARAMETER || storage.kind() == plan::Storage::MOMENT1 ||
                    storage.kind() == plan::Storage::MOMENT2 || storage.kind() == plan::Storage::SCALARS ||
                    storage.kind() == plan::Storage::BUFFER;
      if (byHost)
        put(hostValue(storage));
    }
    isWhole_.assign(plan_.buckets_size(), false);
    for (int b = 0; b < plan_.buckets_size(); ++b) {
      const plan::Bucket &bucket = plan_.buckets(b);
      // A rank reads its own part of the weights; it needs all of them where it updates all, or never
      // updates.
      isWhole_[b] = bucket.parameters() == "whole" && (bucket.states() == "whole" || !bucket.trainable());
    }
    for (int c = 0; c < plan_.constants_size(); ++c) {
      const plan::Constant &constant = plan_.constants(c);
      if (!constant.inline_data().empty() || !constant.initializer().empty())
        putRange(kPersistent, rangeOf(constant), constant.dtype(), kConstantValue + c);
    }
    for (int i = 0; i < plan_.inputs_size(); ++i)
      putRange(kInputs, rangeOf(plan_.inputs(i)), plan_.inputs(i).dtype(), kInputValue + i);
  }

  Written hostValue(const plan::Storage &storage) const {
    Written written;
    written.region = storage.region();
    written.begin = static_cast<int64_t>(storage.offset());
    written.end = written.begin +
                  static_cast<int64_t>(storage.elements()) * byteSize(static_cast<DType>(storage.dtype()));
    written.dtype = storage.dtype();
    written.bucket = storage.bucket();
    written.part = storage.sharded() && shard_ > 1;
    if (storage.kind() == plan::Storage::PARAMETER)
      written.role = Role::parameter;
    return written;
  }
  void putRange(uint32_t region, std::pair<int64_t, int64_t> range, uint32_t dtype, uint32_t number) {
    Written written;
    written.region = region;
    std::tie(written.begin, written.end) = range;
    written.dtype = dtype;
    written.number = number;
    put(written);
  }

  int32_t put(const Written &written) {
    int32_t id = static_cast<int32_t>(values_.size());
    values_.push_back(written);
    if (written.begin < written.end)
      bytes_[written.region].overwrite(written.begin, written.end, id);
    return id;
  }

  // --- segments

  void walkStep() {
    int64_t steps = std::min<int64_t>(plan_.micro_steps(), 4);
    allMicroSteps_ = (uint64_t(1) << steps) - 1;
    for (int64_t k = 0; k < steps; ++k)
      walk(steps == 1 ? "only" : k == 0 ? "first" : k == steps - 1 ? "last" : "middle", uint64_t(1) << k);
  }

  void walk(const std::string &name, uint64_t microStep) {
    for (const plan::Segment &segment : plan_.segments())
      if (segment.name() == name && !findings_.isFull())
        walk(segment, microStep);
  }

  void walk(const plan::Segment &segment, uint64_t microStep) {
    segment_ = &segment;
    microStep_ = microStep;
    bytes_[kArena].clear();
    forgetInstructions();
    isUsed_.assign(segment.instructions_size(), false);
    pending_.clear();
    unreleased_.clear();
    reductions_.assign(plan_.buckets_size(), 0);
    updates_.assign(plan_.buckets_size(), 0);
    norms_.assign(plan_.buckets_size(), 0);
    stepScalars_ = 0;
    enterStates();
    if (segment.name() == "only" || segment.name() == "first")
      forgetGradients();
    if (isNamed("infer"))
      forgetOutputs();
    for (at_ = 0; at_ < segment.instructions_size() && !findings_.isFull(); ++at_)
      step(segment.instructions(at_));
    verifyJoined();
    verifyUsed();
    verifyCounts();
    verifyOutputs();
    leaveStates();
  }

  /// Values that outlive their segment are nobody's result in the next one.
  void forgetInstructions() {
    for (uint32_t region : {kPersistent, kCarried})
      bytes_[region].visitAll([&](int64_t, int64_t, int32_t &content) {
        if (content < 0)
          return;
        Written &value = values_[content];
        const Resident *resident = residentAt(region, value.begin);
        value.instruction = -1;
        value.number = resident ? resident->number : 0;
      });
  }

  void forgetGradients() {
    for (const plan::Storage &storage : plan_.storages()) {
      if (storage.kind() != plan::Storage::GRADIENT && storage.kind() != plan::Storage::LOSS)
        continue;
      Written range = hostValue(storage);
      bytes_[range.region].visit(range.begin, range.end, [&](int64_t, int64_t, int32_t &content) {
        if (content >= 0 && values_[content].role != Role::padding)
          content = kStale;
      });
    }
  }

  void forgetOutputs() {
    for (const plan::Storage &storage : plan_.storages())
      if (storage.kind() == plan::Storage::OUTPUT) {
        Written range = hostValue(storage);
        if (range.begin < range.end)
          bytes_[range.region].overwrite(range.begin, range.end, kStale);
      }
  }

  /// What `infer` gives back was written by it, as one whole value of that dtype.
  void verifyOutputs() {
    if (!isNamed("infer"))
      return;
    for (const plan::Storage &storage : plan_.storages()) {
      Written range = hostValue(storage);
      if (storage.kind() != plan::Storage::OUTPUT || range.begin == range.end)
        continue;
      Seen seen = look(range.region, range.begin, range.end);
      if (!seen.isValue() || values_[seen.value].instruction < 0)
        failSegment("leaves storage " + storage.name() + " undefined");
      else if (values_[seen.value].dtype != storage.dtype() || values_[seen.value].part ||
               values_[seen.value].begin != range.begin || values_[seen.value].end != range.end)
        failSegment("leaves something else in storage " + storage.name());
    }
  }

  void enterStates() {
    for (const plan::BucketState &state : segment_->bucket_states()) {
      const plan::Storage *storage = storageOf(static_cast<int>(state.bucket()), plan::Storage::PARAMETER);
      if (shard_ == 1 || !storage)
        continue;
      if (storage->sharded()) {
        if (state.entry() != "owner" || state.exit() != "owner")
          failSegment("bucket " + bucketName(state.bucket()) + " is sharded, but stated to be whole");
        continue;
      }
      if (state.entry() == "whole" && !isWhole_[state.bucket()])
        failSegment("expects parameters of bucket " + bucketName(state.bucket()) +
                    " whole, but the segment before leaves the owner's part only");
      Written written = hostValue(*storage);
      written.part = written.slot = state.entry() == "owner";
      put(written);
    }
  }

  void leaveStates() {
    for (const plan::BucketState &state : segment_->bucket_states()) {
      const plan::Storage *storage = storageOf(static_cast<int>(state.bucket()), plan::Storage::PARAMETER);
      if (shard_ == 1 || !storage || storage->sharded())
        continue;
      isWhole_[state.bucket()] = state.exit() == "whole";
      Written range = hostValue(*storage);
      Seen seen = look(range.region, range.begin, range.end);
      if (range.begin == range.end)
        continue;
      if (!seen.isValue() || values_[seen.value].role != Role::parameter)
        failSegment("leaves parameters of bucket " + bucketName(state.bucket()) + " undefined");
      else if (state.exit() == "whole" && values_[seen.value].part)
        failSegment("is to leave parameters of bucket " + bucketName(state.bucket()) +
                    " whole, but leaves the owner's part only");
    }
  }

  bool isMicroStep() const { return microStep_ != 0 && microStep_ != kEvalBit; }
  bool isNamed(const char *name) const { return segment_->name() == name; }

  void verifyJoined() {
    for (auto [value, instruction] : pending_)
      fail(instruction, "is never waited for");
    for (auto [value, instruction] : unreleased_)
      fail(instruction, "fetches parameters that are never released");
  }

  void verifyUsed() {
    for (int i = 0; i < segment_->instructions_size(); ++i) {
      const plan::Instruction &instruction = segment_->instructions(i);
      bool mustBeRead = static_cast<OpKind>(instruction.op()) != OpKind::ClearPadding && !isUsed_[i];
      bool writesBytes = false;
      for (const plan::Operand &result : instruction.results()) {
        writesBytes |= elementsOf(result) > 0;
        mustBeRead &= result.region() == kArena;
      }
      if (mustBeRead && writesBytes)
        fail(i, "has no result that anybody reads");
    }
  }

  void verifyCounts() {
    bool reducesSums = isNamed("only") || isNamed("last");
    for (int b = 0; b < plan_.buckets_size(); ++b) {
      const plan::Bucket &bucket = plan_.buckets(b);
      bool reducesHere = bucket.trainable() && shard_ > 1 && isMicroStep() &&
                         (reducesSums || bucket.gradients() == "micro-step");
      if (reductions_[b] != reducesHere)
        failSegment("reduces gradients of bucket " + bucket.name() + " " + std::to_string(reductions_[b]) +
                    " times, expected " + std::to_string(int(reducesHere)));
      int updates = isNamed("update") && bucket.trainable();
      if (updates_[b] != updates)
        failSegment("updates bucket " + bucket.name() + " " + std::to_string(updates_[b]) +
                    " times, expected " + std::to_string(updates));
      if (norms_[b] != updates)
        failSegment("takes the gradient norm of bucket " + bucket.name() + " " + std::to_string(norms_[b]) +
                    " times, expected " + std::to_string(updates));
    }
    int scalars = isNamed("update");
    if (stepScalars_ != scalars)
      failSegment("computes the scalar block " + std::to_string(stepScalars_) + " times, expected " +
                  std::to_string(scalars));
  }

  // --- one instruction

  void step(const plan::Instruction &instruction) {
    instruction_ = &instruction;
    op_ = static_cast<OpKind>(instruction.op());
    verifyOverlaps();
    if (instruction.bucket() >= 0)
      verifyBucketOfStorages();
    switch (op_) {
    case OpKind::FetchWait:
    case OpKind::ReduceWait:
      return wait();
    case OpKind::Release:
      return release();
    case OpKind::ClearPadding:
      return clearPadding();
    case OpKind::FetchStart:
    case OpKind::AllGatherStart:
      return gather();
    case OpKind::ReduceStart:
      return reduce();
    case OpKind::AllReduceStart:
      return allReduce();
    case OpKind::ExchangeStart:
      return exchange();
    case OpKind::AdamW:
    case OpKind::OnnxAdam:
    case OpKind::Sgd:
    case OpKind::Adagrad:
      return update();
    case OpKind::NormPartial:
      return norm();
    case OpKind::Accumulate:
      return accumulate();
    default:
      return compute();
    }
  }

  Extent input(int k) const { return extentOf(instruction_->inputs(k), shard_); }
  Extent result(int k) const { return extentOf(instruction_->results(k), shard_); }

  static bool meet(const Extent &a, const Extent &b) {
    return a.region == b.region && a.begin < b.end && b.begin < a.end;
  }
  static bool isSame(const Extent &a, const Extent &b) {
    return a.region == b.region && a.begin == b.begin && a.end == b.end && a.ownEnd == b.ownEnd;
  }
  bool isCollective() const { return opAlias(op_) == Alias::Collective; }

  /// A kernel may not write what it reads, but for the operands the op table says it overwrites.
  void verifyOverlaps() {
    Extent workspace{kArena, static_cast<int64_t>(instruction_->workspace_offset()), 0, 0};
    workspace.end = workspace.ownEnd =
        workspace.begin + static_cast<int64_t>(instruction_->workspace_bytes());
    for (int r = 0; r < instruction_->results_size(); ++r) {
      int overwritten = inPlaceOperand(op_, r);
      for (int k = 0; k < instruction_->inputs_size(); ++k) {
        if (k == overwritten) {
          if (!isSame(result(r), input(k)) ||
              instruction_->results(r).dtype() != instruction_->inputs(k).dtype())
            fail("result " + std::to_string(r) + " must lie on operand " + std::to_string(k) +
                 ", which it overwrites");
        } else if (meet(result(r), input(k)) && !isInPlaceCollective(r, k)) {
          fail("result " + std::to_string(r) + " overlaps operand " + std::to_string(k));
        }
      }
      for (int other = 0; other < r; ++other)
        if (meet(result(r), result(other)))
          fail("results " + std::to_string(other) + " and " + std::to_string(r) + " overlap");
      if (meet(result(r), workspace))
        fail("workspace overlaps result " + std::to_string(r));
    }
    for (int k = 0; k < instruction_->inputs_size(); ++k)
      if (meet(input(k), workspace))
        fail("workspace overlaps operand " + std::to_string(k));
  }

  void verifyBucketOfStorages() {
    auto verify = [&](const plan::Operand &operand) {
      const plan::Storage *storage = storageAt(operand.region(), static_cast<int64_t>(operand.offset()));
      if (storage && storage->bucket() >= 0 && storage->bucket() != instruction_->bucket())
        fail("works on bucket " + bucketName(instruction_->bucket()) + ", but is given storage " +
             storage->name());
    };
    for (const plan::Operand &operand : instruction_->inputs())
      verify(operand);
    for (const plan::Operand &operand : instruction_->results())
      verify(operand);
  }

  /// The part lies in its slot of the whole buffer, or is given as the whole buffer.
  bool isInPlaceCollective(int r, int k) const {
    Extent a = result(r), b = input(k);
    return isCollective() && k == 0 && a.region == b.region && a.begin == b.begin && a.end == b.end;
  }

  // --- reading

  Seen look(uint32_t region, int64_t begin, int64_t end) {
    Seen seen;
    bool isFirst = true;
    bytes_[region].visit(begin, end, [&](int64_t, int64_t, int32_t &content) {
      if (isFirst)
        seen.value = content;
      else if (content != seen.value && seen.isOne) {
        seen.isOne = false;
        seen.other = content;
      }
      isFirst = false;
    });
    return seen;
  }

  /// Says why [begin, end), seen to be no single value, cannot be read.
  void failRead(const std::string &what, const Extent &extent, const Seen &seen) {
    std::string bytes = what + " reads bytes [" + std::to_string(extent.begin) + ", " +
                        std::to_string(extent.end) + ") of region " + kRegionNames[extent.region] + ", ";
    int32_t reason = std::min(seen.value, seen.isOne ? seen.value : seen.other);
    if (reason == kUnwritten)
      fail(bytes + "which were not written");
    else if (reason == kReleased)
      fail(bytes + "which were released");
    else if (reason == kStale)
      fail(bytes + "which hold a sum of the step before");
    else
      fail(bytes + "which hold two values: of " + writerOf(seen.value) + " and of " + writerOf(seen.other));
  }

  std::string writerOf(int32_t value) const {
    int instruction = values_[value].instruction;
    return instruction < 0 ? "an earlier segment or the host" : "instruction " + std::to_string(instruction);
  }

  std::string operandName(int k) const { return "operand " + std::to_string(k); }

  void markUsed(int32_t value) {
    if (int instruction = values_[value].instruction; instruction >= 0)
      isUsed_[instruction] = true;
  }

  /// What must hold of any value that operand k reads. False after a finding.
  bool verifyValue(int k, int32_t value, bool mayBePending) {
    const Written &v = values_[value];
    const plan::Operand &operand = instruction_->inputs(k);
    markUsed(value);
    if (v.pending && !mayBePending) {
      fail(operandName(k) + " reads what " + writerOf(value) + " has started and nobody has waited for");
      return false;
    }
    if (v.pending)
      pending_.erase(value); // joined through the collective that follows it
    if (v.dtype != operand.dtype()) {
      fail(operandName(k) + " is " + dtypeText(operand.dtype()) + ", but " + writerOf(value) +
           " has written " + dtypeText(v.dtype));
      return false;
    }
    return verifyNumber(k, value);
  }
  bool verifyNumber(int k, int32_t value) {
    uint32_t number = instruction_->inputs(k).value();
    if (number == 0 || number == values_[value].number)
      return true;
    fail(operandName(k) + " is to be value " + std::to_string(number) + ", but its bytes hold value " +
         std::to_string(values_[value].number) + " of " + writerOf(value));
    return false;
  }
  static std::string dtypeText(uint32_t dtype) { return std::string(dtypeName(static_cast<DType>(dtype))); }

  /// The single value operand k reads, or null after a finding (or when it is empty).
  const Written *readValue(int k) {
    Extent extent = input(k);
    if (extent.isEmpty())
      return nullptr;
    Seen seen = look(extent.region, extent.begin, extent.end);
    if (!seen.isValue()) {
      failRead(operandName(k), extent, seen);
      return nullptr;
    }
    values_[seen.value].wasRead = true;
    return verifyValue(k, seen.value, false) ? &values_[seen.value] : nullptr;
  }

  /// Content of a bucket's buffer, or of the rank's part of it.
  struct BucketContent {
    bool isKnown = false; // false: a finding was made
    bool isPart = false;
    Role role = Role::plain;
    bool reduced = false, allReduced = false;
    uint64_t microSteps = 0;
  };

  int64_t paddedElements(int b) const { return static_cast<int64_t>(plan_.buckets(b).padded_elements()); }
  int64_t partElements(int b) const { return paddedElements(b) / shard_; }

  /// Operand k as buffer of the instruction's bucket. `ownSlot`: of a whole buffer only the rank's slot is
  /// read.
  BucketContent readBucket(int k, bool mayBePending = false, bool ownSlot = false) {
    BucketContent content;
    const plan::Operand &operand = instruction_->inputs(k);
    int b = instruction_->bucket();
    if (b < 0) {
      fail("names no bucket");
      return content;
    }
    int64_t elements = elementsOf(operand);
    if ((elements != paddedElements(b) && elements != partElements(b)) || !isContiguous(operand)) {
      fail(operandName(k) + " has " + std::to_string(elements) + " elements, bucket " + bucketName(b) +
           " has " + std::to_string(paddedElements(b)) + ", a part " + std::to_string(partElements(b)));
      return content;
    }
    Extent extent = input(k);
    if (extent.isEmpty()) {
      content.isKnown = true;
      return content;
    }
    Seen seen = look(extent.region, extent.begin, extent.end);
    bool isWholeBuffer = elements == paddedElements(b) || operand.rank_stride() != 0;
    if (!seen.isValue())
      return isWholeBuffer ? readTiles(k, mayBePending) : (failRead(operandName(k), extent, seen), content);
    const Written v = values_[seen.value];
    if (!verifyValue(k, seen.value, mayBePending))
      return content;
    if (v.begin != extent.begin || v.end != extent.end) {
      fail(operandName(k) + " is not all of what " + writerOf(seen.value) + " has written");
      return content;
    }
    if (v.role != Role::plain && v.bucket != b) {
      fail(operandName(k) + " belongs to bucket " + bucketName(v.bucket) + ", not to " + bucketName(b));
      return content;
    }
    if (v.role == Role::plain && isMicroStep() && !verifyReadOnce(operandName(k), seen.value))
      return content;
    bool readsWhole = elements == paddedElements(b) && !ownSlot && shard_ > 1;
    if (v.part && readsWhole) {
      fail(operandName(k) + " reads the whole of bucket " + bucketName(b) +
           ", of which only the own part is defined");
      return content;
    }
    content = {true, v.part, v.role, v.reduced, v.allReduced, v.microSteps};
    return content;
  }

  /// A buffer that several kernels have filled: one value per parameter.
  BucketContent readTiles(int k, bool mayBePending) {
    BucketContent content;
    const plan::Operand &operand = instruction_->inputs(k);
    const plan::Bucket &bucket = plan_.buckets(instruction_->bucket());
    Extent extent = input(k);
    int64_t size = byteSize(static_cast<DType>(operand.dtype())), end = extent.begin;
    bool isFirst = true;
    for (const plan::Range &range : bucket.ranges()) {
      int64_t tileBegin = extent.begin + static_cast<int64_t>(range.begin()) * size;
      int64_t tileEnd = extent.begin + static_cast<int64_t>(range.end()) * size;
      if (!verifyPadding(k, end, tileBegin))
        return content;
      end = tileEnd;
      if (tileBegin == tileEnd)
        continue;
      std::string what =
          operandName(k) + ", gradient of \"" + plan_.parameters(range.parameter()).name() + "\",";
      Seen seen = look(extent.region, tileBegin, tileEnd);
      if (!seen.isValue()) {
        failRead(what, {extent.region, tileBegin, tileEnd, tileEnd}, seen);
        return content;
      }
      const Written &v = values_[seen.value];
      if (v.begin != tileBegin || v.end != tileEnd || v.role == Role::padding) {
        fail(what + " is not what " + writerOf(seen.value) + " has written");
        return content;
      }
      markUsed(seen.value);
      if (v.pending && !mayBePending) {
        fail(what + " has not been waited for");
        return content;
      }
      if (v.dtype != operand.dtype()) {
        fail(what + " was written as " + dtypeText(v.dtype) + ", is read as " + dtypeText(operand.dtype()));
        return content;
      }
      if (isMicroStep() && !verifyReadOnce(what, seen.value))
        return content;
      if (!isFirst &&
          (v.role != content.role || v.reduced != content.reduced || v.allReduced != content.allReduced)) {
        fail(what + " is reduced otherwise than the rest of the bucket");
        return content;
      }
      content.role = v.role;
      content.reduced = v.reduced;
      content.allReduced = v.allReduced;
      content.microSteps = isFirst ? v.microSteps : content.microSteps & v.microSteps;
      isFirst = false;
    }
    content.isKnown = verifyPadding(k, end, extent.begin + paddedElements(instruction_->bucket()) * size);
    return content;
  }

  /// A gradient goes into one sum and nowhere else: bytes that somebody has read already are left over from a
  /// value that lay there before.
  bool verifyReadOnce(const std::string &what, int32_t value) {
    if (values_[value].wasRead)
      fail(what + " was read before: it is not the gradient, but what " + writerOf(value) +
           " has left there");
    bool isGradient = !values_[value].wasRead;
    values_[value].wasRead = true;
    return isGradient;
  }

  bool verifyPadding(int k, int64_t begin, int64_t end) {
    if (begin == end)
      return true;
    Seen seen = look(input(k).region, begin, end);
    if (seen.isOne && seen.value >= 0 && values_[seen.value].role == Role::padding)
      return true;
    fail(operandName(k) + " has padding [" + std::to_string(begin) + ", " + std::to_string(end) +
         ") that was not cleared");
    return false;
  }

  // --- writing

  /// Result r holds `written` from now on.
  void write(int r, Written written) {
    Extent extent = result(r);
    const plan::Operand &operand = instruction_->results(r);
    written.instruction = at_;
    written.region = extent.region;
    written.begin = extent.begin;
    written.end = extent.end;
    written.dtype = operand.dtype();
    written.number = operand.value();
    if (operand.rank_stride() != 0 && shard_ > 1)
      written.part = written.slot = true;
    if (extent.isEmpty())
      return;
    verifyMayWrite(extent);
    verifyOverwritten(extent, isOnOperand(extent));
    int32_t id = put(written);
    if (written.pending)
      pending_[id] = at_;
    if (written.fetched && !written.pending)
      unreleased_[id] = at_;
  }

  bool isOnOperand(const Extent &extent) const {
    for (int k = 0; k < instruction_->inputs_size(); ++k)
      if (meet(extent, input(k)))
        return true;
    return false;
  }

  void verifyOverwritten(const Extent &extent, bool isInPlace) {
    bool isSum = false;
    if (const plan::Storage *storage = storageAt(extent.region, extent.begin))
      isSum = storage->kind() == plan::Storage::GRADIENT || storage->kind() == plan::Storage::LOSS;
    bytes_[extent.region].visit(extent.begin, extent.end, [&](int64_t, int64_t, int32_t &content) {
      if (content < 0 || isInPlace)
        return;
      if (values_[content].pending)
        fail("overwrites what " + writerOf(content) + " has started and nobody has waited for");
      else if (unreleased_.count(content))
        fail("overwrites parameters fetched by " + writerOf(content) + " that were not released");
      else if (isSum && isMicroStep() && values_[content].microSteps != 0)
        fail("overwrites a sum that " + writerOf(content) + " has begun");
    });
  }

  void verifyMayWrite(const Extent &extent) {
    if (extent.region == kArena)
      return;
    if (extent.region == kInputs)
      return fail("writes to an input");
    const plan::Storage *storage = storageAt(extent.region, extent.begin);
    if (!storage) {
      if (!isNamed("init"))
        fail("writes to a constant");
      return;
    }
    bool isUpdate = isOptimizer(op_);
    bool mayWrite = true;
    switch (storage->kind()) {
    case plan::Storage::PARAMETER:
      mayWrite = isUpdate || op_ == OpKind::FetchStart || op_ == OpKind::AllGatherStart;
      break;
    case plan::Storage::MOMENT1:
    case plan::Storage::MOMENT2:
      mayWrite = isUpdate;
      break;
    case plan::Storage::SCALARS:
      mayWrite = op_ == OpKind::StepScalars;
      break;
    case plan::Storage::GRADIENT:
      mayWrite = isMicroStep();
      break;
    case plan::Storage::BUFFER:
      mayWrite = op_ == OpKind::Assign && (isMicroStep() || isNamed("update"));
      break;
    case plan::Storage::OUTPUT:
      mayWrite = isNamed("infer");
      break;
    default:
      break;
    }
    if (!mayWrite)
      fail("writes to storage " + storage->name());
  }

  void fail(const std::string &message) { fail(at_, message); }
  void fail(int instruction, const std::string &message) {
    findings_.add(whereIs(*segment_, instruction) + ": " + message);
  }
  void failSegment(const std::string &message) {
    findings_.add("segment " + segment_->name() + " " + message);
  }
  std::string bucketName(int64_t b) const {
    return b >= 0 && b < plan_.buckets_size() ? plan_.buckets(static_cast<int>(b)).name() : std::to_string(b);
  }

  // --- compute

  Written plain() const {
    Written written;
    written.microSteps = microStep_;
    return written;
  }

  void compute() {
    const bool copies = op_ == OpKind::Copy || op_ == OpKind::Cast;
    Written written = plain();
    for (int k = 0; k < instruction_->inputs_size(); ++k) {
      const Written *v = readValue(k);
      if (!v)
        continue;
      // What is copied out of one parameter of a bucket is a value as any other, no bucket.
      const bool isOneParameter = v->role == Role::parameter && !v->part && isInsideParameter(k, *v);
      const bool keepsMeaning = copies && !isOneParameter;
      verifyComputeOperand(k, *v, keepsMeaning);
      if (keepsMeaning)
        written = meaningOf(*v);
    }
    stepScalars_ += op_ == OpKind::StepScalars;
    writeAll(written);
  }

  void writeAll(const Written &written) {
    for (int r = 0; r < instruction_->results_size(); ++r) {
      if (instruction_->results(r).rank_stride() != 0 && shard_ > 1 && !written.part)
        fail("result " + std::to_string(r) + " lies elsewhere on each rank, but is no part of a bucket");
      write(r, written);
    }
  }

  static Written meaningOf(const Written &v) {
    Written written;
    written.microSteps = v.microSteps;
    written.bucket = v.bucket;
    written.role = v.role;
    written.part = v.part;
    written.reduced = v.reduced;
    written.allReduced = v.allReduced;
    return written;
  }

  void verifyComputeOperand(int k, const Written &v, bool keepsMeaning) {
    const plan::Operand &operand = instruction_->inputs(k);
    bool isOwnPart = operand.rank_stride() != 0 && shard_ > 1;
    if ((v.part || isOwnPart) && !keepsMeaning)
      return fail(operandName(k) + " is the rank's own part, read as if it were whole");
    if (v.slot && !isOwnPart)
      return fail(operandName(k) + " reads the parts of other ranks, which are undefined");
    if (v.role == Role::gradient && !keepsMeaning)
      return fail(operandName(k) + " is a reduced gradient, which only the update may read");
    if (v.role == Role::parameter && !v.part && !isInsideParameter(k, v))
      return fail(operandName(k) + " does not lie inside one parameter of bucket " + bucketName(v.bucket));
    const plan::Storage *storage = storageAt(v.region, v.begin);
    if (storage && storage->kind() == plan::Storage::LOSS && isNamed("update") &&
        v.microSteps != allMicroSteps_)
      return fail(operandName(k) + " is a loss without all micro-steps");
  }

  bool isInsideParameter(int k, const Written &v) const {
    Extent extent = input(k);
    int64_t size = byteSize(static_cast<DType>(v.dtype));
    const plan::Bucket &bucket = plan_.buckets(v.bucket);
    auto behind = std::upper_bound(bucket.ranges().begin(), bucket.ranges().end(), extent.begin - v.begin,
                                   [&](int64_t at, const plan::Range &range) {
                                     return at < static_cast<int64_t>(range.begin()) * size;
                                   });
    return behind != bucket.ranges().begin() &&
           extent.end - v.begin <= static_cast<int64_t>(std::prev(behind)->end()) * size;
  }

  void accumulate() {
    if (instruction_->bucket() >= 0)
      return accumulateBucket();
    const Written *first = readValue(0), *second = readValue(1);
    Written written = plain();
    if (first && second) {
      written = meaningOf(*first);
      written.microSteps |= second->microSteps;
      verifySameKind(first->role == second->role && first->reduced == second->reduced &&
                     first->allReduced == second->allReduced && first->part == second->part);
    }
    writeAll(written);
  }

  void accumulateBucket() {
    BucketContent first = readBucket(0), second = readBucket(1);
    Written written = plain();
    if (first.isKnown && second.isKnown) {
      written.bucket = first.role == Role::plain ? -1 : instruction_->bucket();
      written.role = first.role;
      written.part = first.isPart;
      written.reduced = first.reduced;
      written.allReduced = first.allReduced;
      written.microSteps = first.microSteps | second.microSteps;
      verifySameKind(first.role == second.role && first.reduced == second.reduced &&
                     first.allReduced == second.allReduced && first.isPart == second.isPart);
      if (isMicroStep() && (first.microSteps & second.microSteps) != 0)
        fail("adds the same micro-step twice");
    }
    writeAll(written);
  }

  void verifySameKind(bool isSame) {
    if (!isSame)
      fail("adds sums of which one is reduced and the other is not");
  }

  // --- collectives

  void wait() {
    Extent extent = input(0);
    if (extent.isEmpty())
      return;
    Seen seen = look(extent.region, extent.begin, extent.end);
    if (!seen.isValue() || !values_[seen.value].pending || values_[seen.value].begin != extent.begin ||
        values_[seen.value].end != extent.end)
      return fail("waits for bytes that no collective before it is writing");
    markUsed(seen.value);
    verifyNumber(0, seen.value);
    pending_.erase(seen.value);
    Written joined = values_[seen.value];
    joined.pending = false;
    joined.instruction = at_;
    joined.number = instruction_->results(0).value();
    int32_t id = put(joined);
    if (joined.fetched)
      unreleased_[id] = at_;
  }

  void release() {
    Extent extent = input(0);
    if (extent.isEmpty())
      return;
    Seen seen = look(extent.region, extent.begin, extent.end);
    bool isFetched = seen.isValue() && unreleased_.count(seen.value) &&
                     values_[seen.value].begin == extent.begin && values_[seen.value].end == extent.end;
    if (!isFetched)
      return fail("releases bytes that hold no fetched parameters");
    verifyNumber(0, seen.value);
    unreleased_.erase(seen.value);
    bytes_[extent.region].overwrite(extent.begin, extent.end, kReleased);
  }

  void clearPadding() {
    int b = instruction_->bucket();
    if (b < 0 || elementsOf(instruction_->inputs(0)) != paddedElements(b))
      return fail("is not given the buffer of a bucket");
    Extent extent = input(0);
    if (extent.isEmpty())
      return;
    verifyMayWrite(extent);
    int64_t size = byteSize(static_cast<DType>(instruction_->inputs(0).dtype())), end = extent.begin;
    auto clear = [&](int64_t begin, int64_t to) {
      if (begin == to)
        return;
      Written padding = plain();
      padding.instruction = at_;
      padding.region = extent.region;
      padding.begin = begin;
      padding.end = to;
      padding.dtype = instruction_->inputs(0).dtype();
      padding.role = Role::padding;
      put(padding);
    };
    for (const plan::Range &range : plan_.buckets(b).ranges()) {
      clear(end, extent.begin + static_cast<int64_t>(range.begin()) * size);
      end = extent.begin + static_cast<int64_t>(range.end()) * size;
    }
    clear(end, extent.end);
  }

  void gather() {
    int b = instruction_->bucket();
    BucketContent content = readBucket(0, true, true);
    if (b < 0)
      return;
    Written written = plain();
    written.pending = true;
    written.bucket = b;
    written.role = Role::parameter;
    if (content.isKnown) {
      written.role = content.role;
      written.reduced = content.reduced;
      written.allReduced = content.allReduced;
      written.microSteps = content.microSteps;
      bool isGradient = content.role == Role::gradient && op_ == OpKind::AllGatherStart;
      if (content.role != Role::parameter && !isGradient)
        fail("gathers what is neither a parameter nor a reduced gradient");
    }
    const plan::Operand &to = instruction_->results(0);
    if (elementsOf(to) != paddedElements(b))
      fail("gathers into " + std::to_string(elementsOf(to)) + " elements, bucket " + bucketName(b) + " has " +
           std::to_string(paddedElements(b)));
    if (to.dtype() != instruction_->inputs(0).dtype())
      fail("gathers " + dtypeText(instruction_->inputs(0).dtype()) + " as " + dtypeText(to.dtype()));
    if (op_ == OpKind::FetchStart && to.dtype() != plan_.buckets(b).fetch_dtype())
      fail("fetches " + dtypeText(to.dtype()) + ", bucket " + bucketName(b) + " is fetched as " +
           dtypeText(plan_.buckets(b).fetch_dtype()));
    written.fetched = to.region() == kArena && written.role == Role::parameter;
    write(0, written);
  }

  void reduce() {
    int b = instruction_->bucket();
    BucketContent content = readBucket(0);
    if (b < 0)
      return;
    const plan::Bucket &bucket = plan_.buckets(b);
    ++reductions_[b];
    if (!bucket.trainable())
      fail("reduces gradients of bucket " + bucket.name() + ", which is frozen");
    if (content.isKnown && content.role == Role::parameter)
      fail("reduces parameters");
    if (content.isKnown && content.reduced)
      fail("reduces gradients of bucket " + bucket.name() + " a second time");
    const plan::Operand &from = instruction_->inputs(0), &to = instruction_->results(0);
    if (elementsOf(from) != paddedElements(b) || elementsOf(to) != partElements(b))
      fail("reduces " + std::to_string(elementsOf(from)) + " elements to " + std::to_string(elementsOf(to)) +
           ", expected " + std::to_string(paddedElements(b)) + " to " + std::to_string(partElements(b)));
    if (from.dtype() != bucket.gradient_dtype() || to.dtype() != bucket.gradient_dtype())
      fail("reduces " + dtypeText(from.dtype()) + " to " + dtypeText(to.dtype()) + ", gradients of bucket " +
           bucket.name() + " are " + dtypeText(bucket.gradient_dtype()));
    Written written = plain();
    written.pending = true;
    written.bucket = b;
    written.role = Role::gradient;
    written.part = shard_ > 1;
    written.reduced = true;
    written.microSteps = content.microSteps;
    write(0, written);
  }

  void allReduce() {
    Written written = plain();
    written.pending = true;
    if (instruction_->bucket() < 0) {
      readValue(0);
      return write(0, written);
    }
    BucketContent content = readBucket(0, true);
    written.bucket = instruction_->bucket();
    written.role = Role::gradient;
    written.reduced = written.allReduced = true;
    if (content.isKnown) {
      written.part = content.isPart;
      written.reduced = content.reduced;
      written.microSteps = content.microSteps;
      if (content.role == Role::parameter)
        fail("all-reduces parameters");
      if (shard_ > 1 && !content.reduced)
        fail("all-reduces a gradient that is not reduced over the shard axis");
      if (content.allReduced)
        fail("reduces gradients of bucket " + bucketName(written.bucket) + " a second time");
    }
    write(0, written);
  }

  void exchange() {
    if (const Written *v = readValue(0))
      verifyComputeOperand(0, *v, false);
    int64_t expected = elementsOf(instruction_->inputs(0)) * shard_ * replicate_;
    if (elementsOf(instruction_->results(0)) != expected)
      fail("exchanges into " + std::to_string(elementsOf(instruction_->results(0))) + " elements, expected " +
           std::to_string(expected));
    Written written = plain();
    written.pending = true;
    write(0, written);
  }

  // --- the update

  void norm() {
    if (instruction_->bucket() >= 0)
      ++norms_[instruction_->bucket()];
    verifyGradient(readBucket(0));
    write(0, plain());
  }

  /// A gradient that an update may use.
  void verifyGradient(const BucketContent &content) {
    if (!content.isKnown)
      return;
    if (content.role == Role::parameter)
      return fail("takes parameters for a gradient");
    if ((shard_ > 1 && !content.reduced) || (replicate_ > 1 && !content.allReduced))
      return fail("takes a gradient of bucket " + bucketName(instruction_->bucket()) +
                  " that is not reduced over all ranks");
    if (content.microSteps != allMicroSteps_)
      fail("takes a gradient of bucket " + bucketName(instruction_->bucket()) + " without all micro-steps");
  }

  void update() {
    int b = instruction_->bucket();
    if (b < 0)
      return fail("names no bucket");
    ++updates_[b];
    const Optimizer *optimizer = optimizerOf(op_, kindOf(*instruction_));
    if (!optimizer || optimizer->name != plan_.facts().optimizer())
      fail("is not the optimizer of the plan, " + plan_.facts().optimizer());
    int last = instruction_->inputs_size() - 1, states = last - 2;
    if (optimizer && (states < optimizer->leastStates || states > optimizer->mostStates))
      fail("has " + std::to_string(states) + " states, " + std::string(optimizer->name) + " keeps " +
           std::to_string(optimizer->mostStates));
    verifyIsStorage(0, b, plan::Storage::PARAMETER);
    verifyIsStorage(1, b, plan::Storage::GRADIENT);
    if (states >= 1)
      verifyIsStorage(2, b, plan::Storage::MOMENT1);
    if (states >= 2)
      verifyIsStorage(3, b, plan::Storage::MOMENT2);
    BucketContent parameters = readBucket(0);
    if (parameters.isKnown && parameters.role != Role::parameter)
      fail("updates what is no parameter");
    verifyGradient(readBucket(1));
    for (int k = 2; k < last; ++k)
      readBucket(k);
    verifyScalars(last);
    int64_t expected = plan_.buckets(b).states() == "whole" ? paddedElements(b) : partElements(b);
    if (elementsOf(instruction_->inputs(0)) != expected)
      fail("updates " + std::to_string(elementsOf(instruction_->inputs(0))) + " elements of bucket " +
           bucketName(b) + ", expected " + std::to_string(expected));
    for (int r = 0; r < instruction_->results_size(); ++r) {
      Written written;
      written.bucket = b;
      written.role = r == 0 ? Role::parameter : Role::plain;
      written.part = expected != paddedElements(b);
      write(r, written);
    }
  }

  static std::string_view kindOf(const plan::Instruction &instruction) {
    for (const plan::Attribute &attribute : instruction.attributes())
      if (attribute.name() == "kind")
        return attribute.text();
    return {};
  }

  /// Operand k is the bucket's storage of that kind, or the own slot of it.
  void verifyIsStorage(int k, int b, plan::Storage::Kind kind) {
    const plan::Storage *storage = storageOf(b, kind);
    Extent extent = input(k);
    if (!storage)
      return fail("updates bucket " + bucketName(b) + ", which has no such storage");
    Written range = hostValue(*storage);
    if (extent.region != range.region || extent.begin != range.begin || extent.end != range.end)
      fail(operandName(k) + " is not storage " + storage->name());
  }

  void verifyScalars(int k) {
    const Written *v = readValue(k);
    if (v && v->instruction < 0)
      fail(operandName(k) + " reads the scalar block of the step before");
  }

  const plan::Plan &plan_;
  Findings &findings_;
  const int64_t shard_, replicate_;
  std::map<int64_t, Resident> residents_[2];                            // persistent, carried; by begin
  std::map<std::pair<int, int>, const plan::Storage *> bucketStorages_; // bucket, kind

  // what the bytes hold
  std::vector<Written> values_;
  ByteMap<int32_t> bytes_[4] = {ByteMap<int32_t>(kUnwritten), ByteMap<int32_t>(kUnwritten),
                                ByteMap<int32_t>(kUnwritten), ByteMap<int32_t>(kUnwritten)};
  std::vector<bool> isWhole_; // by bucket: its parameters at this border of segments
  uint64_t allMicroSteps_ = 0;

  // the running segment
  const plan::Segment *segment_ = nullptr;
  const plan::Instruction *instruction_ = nullptr;
  OpKind op_ = OpKind::Copy;
  int at_ = 0;
  uint64_t microStep_ = 0;
  std::vector<bool> isUsed_;                      // by instruction: somebody reads a result
  std::map<int32_t, int> pending_;                // value -> its start
  std::map<int32_t, int> unreleased_;             // value -> its wait
  std::vector<int> reductions_, updates_, norms_; // by bucket
  int stepScalars_ = 0;
};

} // namespace

void verifyFlow(const plan::Plan &plan, Findings &findings) { FlowVerifier(plan, findings).run(); }

} // namespace zerocc
