#include "runtime/plan/report.h"

#include "compiler/ops/op_kind.h"
#include "compiler/support/dtype.h"
#include "runtime/plan/byte_map.h"
#include "runtime/plan/plan.h"

#include <algorithm>
#include <map>
#include <set>

namespace zerocc {
namespace {

constexpr uint32_t kArena = 2;
constexpr int64_t kAlignment = 64; // every buffer of the arena takes a multiple of it

// --- sums that saturate; all terms are at least 0

int64_t add(int64_t a, int64_t b) {
  int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? INT64_MAX : sum;
}
int64_t multiply(int64_t a, int64_t b) {
  int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}
int64_t toSigned(uint64_t value) { return static_cast<int64_t>(std::min<uint64_t>(value, INT64_MAX)); }
int64_t divideUp(int64_t a, int64_t b) { return a / b + (a % b != 0); }

int64_t shardOf(const plan::Plan &plan) { return std::max<int64_t>(1, toSigned(plan.mesh().shard())); }
int64_t replicateOf(const plan::Plan &plan) {
  return std::max<int64_t>(1, toSigned(plan.mesh().replicate()));
}
OpKind opOf(const plan::Instruction &instruction) { return static_cast<OpKind>(instruction.op()); }
int64_t sizeOf(uint32_t dtype) { return byteSize(static_cast<DType>(dtype)); }

bool isMicroStep(const plan::Segment &segment) {
  return segment.name() == "only" || segment.name() == "first" || segment.name() == "middle" ||
         segment.name() == "last" || segment.name() == "infer";
}

// --- the least traffic

/// Bytes times ranks: a rank's share of any number of elements without rounding.
using RankBytes = unsigned __int128;

struct LeastTraffic {
  RankBytes allGather = 0, reduceScatter = 0, allReduce = 0;
  void operator+=(const LeastTraffic &other) {
    allGather += other.allGather;
    reduceScatter += other.reduceScatter;
    allReduce += other.allReduce;
  }
  ReceivedBytes bytes(int64_t ranks) const {
    auto divide = [&](RankBytes value) {
      RankBytes result = (value + static_cast<RankBytes>(ranks) - 1) / static_cast<RankBytes>(ranks);
      return static_cast<int64_t>(std::min<RankBytes>(result, INT64_MAX));
    };
    return {divide(allGather), divide(reduceScatter), divide(allReduce), 0};
  }
};

// w, g: bytes of a parameter and of a gradient; e elements; S x R ranks; K micro-steps. Of w e bytes a rank
// receives (S-1)/S, which is w e (S-1) R in units of 1/(S R).
LeastTraffic leastTraffic(const plan::Plan &plan, const plan::Bucket &bucket) {
  RankBytes shard = shardOf(plan), replicate = replicateOf(plan), microSteps = plan.micro_steps();
  RankBytes elements = bucket.elements();
  RankBytes parameters = elements * sizeOf(bucket.fetch_dtype()) * (shard - 1) * replicate;
  RankBytes gradients = elements * sizeOf(bucket.gradient_dtype()) * (shard - 1) * replicate;
  LeastTraffic least;
  if (bucket.parameters() == "whole")
    least.allGather = bucket.trainable() && bucket.states() == "sharded" ? parameters : 0;
  else
    least.allGather = parameters * microSteps * (bucket.parameters() == "refetched" && !isInference(plan) ? 2 : 1);
  if (!bucket.trainable())
    return least;
  least.reduceScatter = gradients * (bucket.gradients() == "micro-step" ? microSteps : 1);
  if (bucket.states() == "whole")
    least.allGather += gradients;
  // An all-reduce of a part of e/S elements is a reduce-scatter and an all-gather among R ranks.
  least.allReduce = 2 * elements * sizeOf(bucket.gradient_dtype()) * (replicate - 1);
  return least;
}

/// Buckets that the micro-steps fetch or reduce. A frozen parameter that nothing reads needs no traffic.
std::set<int> bucketsMoved(const plan::Plan &plan) {
  std::set<int> moved;
  for (const plan::Segment &segment : plan.segments())
    if (isMicroStep(segment))
      for (const plan::Instruction &instruction : segment.instructions())
        if (receivedBytes(plan, instruction).total() > 0)
          moved.insert(instruction.bucket());
  return moved;
}

} // namespace

// --- traffic

int64_t ReceivedBytes::total() const { return add(add(allGather, reduceScatter), allReduceWithScalars()); }
int64_t ReceivedBytes::allReduceWithScalars() const { return add(allReduce, exchange); }

ReceivedBytes plus(const ReceivedBytes &a, const ReceivedBytes &b) {
  return {add(a.allGather, b.allGather), add(a.reduceScatter, b.reduceScatter), add(a.allReduce, b.allReduce),
          add(a.exchange, b.exchange)};
}

ReceivedBytes times(const ReceivedBytes &a, int64_t factor) {
  return {multiply(a.allGather, factor), multiply(a.reduceScatter, factor), multiply(a.allReduce, factor),
          multiply(a.exchange, factor)};
}

// The counts are those of runtime/executor (prepareCollective), the bytes those of runtime/collectives.
ReceivedBytes receivedBytes(const plan::Plan &plan, const plan::Instruction &instruction) {
  ReceivedBytes received;
  if (instruction.inputs().empty() || instruction.results().empty())
    return received;
  const plan::Operand &from = instruction.inputs(0), &to = instruction.results(0);
  int64_t shard = shardOf(plan), replicate = replicateOf(plan), size = sizeOf(to.dtype());
  switch (opOf(instruction)) {
  case OpKind::FetchStart:
  case OpKind::AllGatherStart:
    received.allGather = multiply(shard - 1, multiply(elementsOfDims(to.dims()) / shard, size));
    break;
  case OpKind::ReduceStart:
    received.reduceScatter = multiply(shard - 1, multiply(elementsOfDims(from.dims()) / shard, size));
    break;
  case OpKind::AllReduceStart: {
    int64_t count = elementsOfDims(to.dims()), own = divideUp(count, replicate);
    received.allReduce = multiply(add(multiply(replicate - 1, own), count - own), size);
    break;
  }
  case OpKind::ExchangeStart:
    received.exchange =
        multiply(multiply(shard, replicate) - 1, multiply(elementsOfDims(from.dims()), sizeOf(from.dtype())));
    break;
  default:
    break;
  }
  return received;
}

int64_t runsPerStep(const plan::Plan &plan, const plan::Segment &segment) {
  if (segment.name() == "middle")
    return std::max<int64_t>(0, int64_t(plan.micro_steps()) - 2);
  return isMicroStep(segment) || segment.name() == "update" ? 1 : 0;
}

TrafficReport reportTraffic(const plan::Plan &plan) {
  TrafficReport report;
  report.buckets.resize(plan.buckets_size());
  for (const plan::Segment &segment : plan.segments()) {
    SegmentTraffic traffic{segment.name(), runsPerStep(plan, segment), {}};
    for (const plan::Instruction &instruction : segment.instructions()) {
      ReceivedBytes received = receivedBytes(plan, instruction);
      traffic.once = plus(traffic.once, received);
      if (instruction.bucket() >= 0) {
        ReceivedBytes &bucket = report.buckets[instruction.bucket()].step;
        bucket = plus(bucket, times(received, traffic.runs));
      }
    }
    report.step = plus(report.step, times(traffic.once, traffic.runs));
    if (segment.name() == "eval")
      report.eval = traffic.once;
    report.segments.push_back(std::move(traffic));
  }
  std::set<int> moved = bucketsMoved(plan);
  int64_t ranks = multiply(shardOf(plan), replicateOf(plan));
  LeastTraffic least;
  for (int b = 0; b < plan.buckets_size(); ++b)
    if (moved.count(b)) {
      LeastTraffic ofBucket = leastTraffic(plan, plan.buckets(b));
      report.buckets[b].minimum = ofBucket.bytes(ranks);
      least += ofBucket;
    }
  report.minimum = least.bytes(ranks);
  report.minimum.exchange = report.step.exchange; // has no padding
  return report;
}

// --- memory

MemoryReport reportMemory(const plan::Plan &plan) {
  MemoryReport report;
  for (const plan::RegionSize &region : plan.regions())
    report.peak = add(report.peak, toSigned(region.bytes()));
  report.peakAt = plan.facts().peak_at();
  if (plan.regions_size() > static_cast<int>(kArena))
    report.arena = toSigned(plan.regions(kArena).bytes());
  report.arenaLowerBound = toSigned(plan.facts().arena_lower_bound());

  // Adam keeps two moments, momentum one; 16-bit parameters have f32 master weights beside them.
  std::set<int> moments;
  for (const plan::Storage &storage : plan.storages())
    if (storage.kind() == plan::Storage::MOMENT1 || storage.kind() == plan::Storage::MOMENT2)
      moments.insert(storage.kind());
  unsigned __int128 parameters = 0, gradients = 0, states = 0; // bytes times S
  for (const plan::Bucket &bucket : plan.buckets()) {
    unsigned __int128 elements = bucket.elements(), shard = shardOf(plan);
    int64_t fetchBytes = sizeOf(bucket.fetch_dtype());
    parameters += elements * fetchBytes * (bucket.parameters() == "whole" ? shard : 1);
    if (!bucket.trainable())
      continue;
    gradients +=
        elements * sizeOf(bucket.gradient_dtype()) * (bucket.gradients() == "micro-step" ? 1 : shard);
    int64_t stateBytes = 4 * static_cast<int64_t>(moments.size()) + (fetchBytes < 4 ? 4 : 0);
    states += elements * stateBytes * (bucket.states() == "sharded" ? 1 : shard);
  }
  auto perRank = [&](unsigned __int128 bytes) {
    unsigned __int128 shard = shardOf(plan);
    return static_cast<int64_t>(std::min<unsigned __int128>((bytes + shard - 1) / shard, INT64_MAX));
  };

  int64_t named = 0;
  const auto &byKind = plan.facts().peak_kinds();
  for (const char *name : {"parameters", "gradients", "optimizer", "fetched", "activations", "workspace",
                           "inputs", "constants", "buffers"}) {
    auto found = byKind.find(name);
    report.kinds.push_back({name, found == byKind.end() ? 0 : toSigned(found->second), {}});
    named = add(named, report.kinds.back().bytes);
  }
  report.kinds[0].textbook = perRank(parameters);
  report.kinds[1].textbook = perRank(gradients);
  report.kinds[2].textbook = perRank(states);
  for (const MemoryKind &kind : report.kinds)
    report.textbook = add(report.textbook, kind.textbook.value_or(0));
  report.kinds.push_back({"unused", report.peak - named, {}});
  return report;
}

// --- what is alive in the arena

namespace {

struct Span {
  int64_t begin = 0, end = 0;
  bool overlaps(const Span &other) const { return begin < other.end && other.begin < end; }
};

/// Bytes between the lowest and the highest element, on the first rank of the shard axis.
Span spanOf(const plan::Operand &operand) {
  int64_t begin = toSigned(operand.offset()), size = sizeOf(operand.dtype()), end = add(begin, size);
  int64_t elements = elementsOfDims(operand.dims());
  if (elements == 0)
    return {begin, begin};
  if (operand.strides().empty())
    return {begin, add(begin, multiply(elements, size))};
  for (int d = 0; d < operand.strides_size() && d < operand.dims_size(); ++d) {
    int64_t reach = multiply(multiply(operand.strides(d), operand.dims(d) - 1), size);
    if (reach >= 0)
      end = add(end, reach);
    else
      begin = add(begin, reach);
  }
  return {begin, end};
}

bool isStart(OpKind op) {
  return op == OpKind::FetchStart || op == OpKind::ReduceStart || op == OpKind::AllReduceStart ||
         op == OpKind::AllGatherStart || op == OpKind::ExchangeStart;
}
bool isWait(OpKind op) { return op == OpKind::FetchWait || op == OpKind::ReduceWait; }

/// One walk over a segment. The arena's bytes know the value that was written there last; an operand keeps it
/// alive. What a collective reads lives until its wait.
class ArenaWalk {
public:
  ArenaWalk(const plan::Plan &plan, const plan::Segment &segment) : plan_(plan), segment_(segment) {}

  std::vector<ArenaValue> run() {
    for (at_ = 0; at_ < segment_.instructions_size(); ++at_)
      visit(segment_.instructions(at_));
    values_.erase(std::remove_if(values_.begin(), values_.end(),
                                 [](const ArenaValue &value) { return value.bytes == 0; }),
                  values_.end());
    std::stable_sort(values_.begin(), values_.end(),
                     [](const ArenaValue &a, const ArenaValue &b) { return a.first < b.first; });
    return std::move(values_);
  }

private:
  struct Content {
    int value = -1;
    bool operator==(const Content &) const = default;
  };
  struct Pending {
    const plan::Instruction *start;
    Span result;
    uint32_t region;
  };

  void visit(const plan::Instruction &instruction) {
    OpKind op = opOf(instruction);
    for (const plan::Operand &input : instruction.inputs())
      read(instruction, input);
    if (isWait(op) && !instruction.inputs().empty())
      joinStarts(instruction.inputs(0));
    if (instruction.workspace_bytes() > 0)
      values_.push_back({ArenaValue::Kind::workspace, at_, at_, toSigned(instruction.workspace_offset()),
                         toSigned(instruction.workspace_bytes()), instruction.bucket()});
    for (const plan::Operand &result : instruction.results())
      write(instruction, result);
    if (isStart(op) && !instruction.results().empty())
      pending_.push_back({&instruction, spanOf(instruction.results(0)), instruction.results(0).region()});
  }

  void read(const plan::Instruction &instruction, const plan::Operand &operand) {
    if (operand.region() != kArena)
      return;
    Span span = spanOf(operand);
    if (isWholeBucket(instruction, operand))
      mergeMembers(instruction.bucket(), operand, span);
    touch(span);
  }

  void touch(const Span &span) {
    bytes_.visit(span.begin, span.end, [&](int64_t, int64_t, Content &content) {
      if (content.value >= 0)
        values_[content.value].last = at_;
    });
  }

  bool isWholeBucket(const plan::Instruction &instruction, const plan::Operand &operand) const {
    return instruction.bucket() >= 0 &&
           elementsOfDims(operand.dims()) == toSigned(plan_.buckets(instruction.bucket()).padded_elements());
  }

  // Gradients are written one by one into a bucket's buffer, which is then read as one. Bytes between them
  // may still hold something older.
  void mergeMembers(int bucket, const plan::Operand &operand, const Span &span) {
    int64_t size = sizeOf(operand.dtype());
    std::set<std::pair<int64_t, int64_t>> members; // offset, bytes
    for (const plan::Range &range : plan_.buckets(bucket).ranges())
      members.insert({add(span.begin, multiply(toSigned(range.begin()), size)),
                      multiply(toSigned(range.end() - range.begin()), size)});
    std::set<int> found;
    bool isOneValue = false;
    bytes_.visit(span.begin, span.end, [&](int64_t, int64_t, Content &content) {
      if (content.value < 0)
        return;
      const ArenaValue &value = values_[content.value];
      if (value.offset == span.begin && value.bytes == span.end - span.begin)
        isOneValue = true;
      else if (members.count({value.offset, value.bytes}))
        found.insert(content.value);
    });
    if (isOneValue)
      return;
    ArenaValue whole{ArenaValue::Kind::gradient, at_, at_, span.begin, span.end - span.begin, bucket};
    for (int value : found) {
      whole.first = std::min(whole.first, values_[value].first);
      values_[value].bytes = 0; // lives on in the whole
    }
    bytes_.overwrite(span.begin, span.end, {static_cast<int>(values_.size())});
    values_.push_back(whole);
  }

  void write(const plan::Instruction &instruction, const plan::Operand &result) {
    if (result.region() != kArena)
      return;
    Span span = spanOf(result);
    if (span.begin >= span.end)
      return;
    if (overwritesOperand(instruction, span))
      return touch(span);
    // What lay here is dead, all of it.
    std::set<int> dead;
    bytes_.visit(span.begin, span.end,
                 [&](int64_t, int64_t, Content &content) { dead.insert(content.value); });
    for (int value : dead)
      if (value >= 0)
        forget(value);
    bytes_.overwrite(span.begin, span.end, {static_cast<int>(values_.size())});
    OpKind op = opOf(instruction);
    ArenaValue::Kind kind =
        op == OpKind::FetchStart || op == OpKind::AllGatherStart   ? ArenaValue::Kind::fetched
        : op == OpKind::ReduceStart || op == OpKind::ExchangeStart ? ArenaValue::Kind::gradient
                                                                   : ArenaValue::Kind::activation;
    values_.push_back({kind, at_, at_, span.begin, span.end - span.begin, instruction.bucket()});
  }

  void forget(int value) {
    const ArenaValue &of = values_[value];
    bytes_.visit(of.offset, of.offset + of.bytes, [&](int64_t, int64_t, Content &content) {
      if (content.value == value)
        content.value = -1;
    });
  }

  bool overwritesOperand(const plan::Instruction &instruction, const Span &result) const {
    Alias alias = opAlias(opOf(instruction));
    if (alias == Alias::None || alias == Alias::View)
      return false;
    for (const plan::Operand &input : instruction.inputs())
      if (input.region() == kArena && spanOf(input).overlaps(result))
        return true;
    return false;
  }

  void joinStarts(const plan::Operand &awaited) {
    Span span = spanOf(awaited);
    auto isJoined = [&](const Pending &pending) {
      return pending.region == awaited.region() && pending.result.overlaps(span);
    };
    for (const Pending &pending : pending_)
      if (isJoined(pending))
        for (const plan::Operand &input : pending.start->inputs())
          if (input.region() == kArena)
            touch(spanOf(input));
    pending_.erase(std::remove_if(pending_.begin(), pending_.end(), isJoined), pending_.end());
  }

  const plan::Plan &plan_;
  const plan::Segment &segment_;
  int at_ = 0;
  ByteMap<Content> bytes_;
  std::vector<ArenaValue> values_;
  std::vector<Pending> pending_;
};

int64_t taken(const ArenaValue &value) { return multiply(divideUp(value.bytes, kAlignment), kAlignment); }

std::vector<int64_t> liveBytes(const std::vector<ArenaValue> &values, int instructions) {
  std::vector<int64_t> live(instructions + 1, 0);
  for (const ArenaValue &value : values) {
    live[value.first] = add(live[value.first], taken(value));
    live[value.last + 1] -= taken(value);
  }
  int64_t sum = 0;
  for (int64_t &bytes : live)
    bytes = sum = add(sum, bytes);
  live.pop_back();
  return live;
}

/// As plan_memory writes `peak_at`.
std::string placeOf(const plan::Segment &segment, const plan::Instruction &instruction) {
  return instruction.location().empty() ? segment.name() + ": " + std::string(opText(opOf(instruction)))
                                        : instruction.location();
}

} // namespace

std::vector<ArenaValue> arenaValues(const plan::Plan &plan, const plan::Segment &segment) {
  return ArenaWalk(plan, segment).run();
}

// The plan names the node at which the arena is fullest; among its instructions, or else among all, the
// fullest one is taken, the first of several.
FullestInstant findFullestInstant(const plan::Plan &plan) {
  FullestInstant best;
  bool bestIsNamed = false;
  for (int s = 0; s < plan.segments_size(); ++s) {
    const plan::Segment &segment = plan.segments(s);
    std::vector<int64_t> live = liveBytes(arenaValues(plan, segment), segment.instructions_size());
    for (int i = 0; i < segment.instructions_size(); ++i) {
      bool isNamed = placeOf(segment, segment.instructions(i)) == plan.facts().peak_at();
      if (std::pair(isNamed, live[i]) >
          std::pair(bestIsNamed, best.instruction < 0 ? int64_t(-1) : best.bytes)) {
        bestIsNamed = isNamed;
        best.segment = s;
        best.instruction = i;
        best.bytes = live[i];
      }
    }
  }
  if (best.segment < 0)
    return best;
  for (const ArenaValue &value : arenaValues(plan, plan.segments(best.segment)))
    if (value.first <= best.instruction && best.instruction <= value.last)
      best.alive.push_back(value);
  std::stable_sort(best.alive.begin(), best.alive.end(),
                   [](const ArenaValue &a, const ArenaValue &b) { return a.bytes > b.bytes; });
  return best;
}

// --- names and sizes

int64_t elementsOfDims(const google::protobuf::RepeatedField<int64_t> &dims) {
  int64_t elements = 1;
  for (int64_t dim : dims)
    elements = multiply(elements, std::max<int64_t>(0, dim));
  return elements;
}

int64_t parameterElements(const plan::Plan &plan) {
  int64_t elements = 0;
  for (const plan::Parameter &parameter : plan.parameters())
    elements = add(elements, elementsOfDims(parameter.dims()));
  return elements;
}

std::string layerOfName(const std::string &name) {
  for (size_t begin = 0; begin < name.size();) {
    size_t end = std::min(name.find_first_of("./", begin), name.size());
    bool isNumber = end > begin && name.find_first_not_of("0123456789", begin) >= end;
    if (isNumber)
      return name.substr(0, end);
    begin = end + 1;
  }
  return "";
}

// Buckets are filled from the last layer to the first; labels read in the order of use.
std::string bucketLabel(const plan::Plan &plan, int bucket) {
  const plan::Bucket &of = plan.buckets(bucket);
  std::vector<std::string> labels; // each once: layers, and parameters outside of layers
  std::string inLayer;
  for (auto range = of.ranges().rbegin(); range != of.ranges().rend(); ++range) {
    const std::string &name = plan.parameters(static_cast<int>(range->parameter())).name();
    std::string layer = layerOfName(name), label = layer.empty() || of.ranges_size() == 1 ? name : layer;
    if (labels.empty() || labels.back() != label)
      labels.push_back(label);
    inLayer += (inLayer.empty() ? "" : ", ") + name.substr(std::min(name.size(), layer.size() + 1));
  }
  if (labels.empty())
    return "";
  if (labels.size() > 1)
    return labels.front() + " … " + labels.back();
  constexpr int kNamedOnes = 3;
  if (of.ranges_size() == 1)
    return labels[0];
  return labels[0] + " (" +
         (of.ranges_size() <= kNamedOnes ? inLayer : std::to_string(of.ranges_size()) + " tensors") + ")";
}

} // namespace zerocc
