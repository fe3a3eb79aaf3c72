#include "tests/plan/mutations.h"

#include "compiler/ops/op_kind.h"
#include "compiler/support/dtype.h"
#include "runtime/plan/optimizers.h"

#include <algorithm>

namespace zerocc {
namespace {

/// SplitMix64: the same numbers on every machine.
class Dice {
public:
  explicit Dice(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  int below(int n) { return static_cast<int>(next() % static_cast<uint64_t>(n)); }

private:
  uint64_t state_;
};

constexpr uint32_t kArena = 2;

OpKind opOf(const plan::Instruction &instruction) { return static_cast<OpKind>(instruction.op()); }
bool isWait(OpKind op) { return op == OpKind::FetchWait || op == OpKind::ReduceWait; }
bool isCollective(OpKind op) {
  return op == OpKind::FetchStart || op == OpKind::ReduceStart || op == OpKind::AllReduceStart ||
         op == OpKind::AllGatherStart || op == OpKind::ExchangeStart;
}

int64_t elementsOf(const plan::Operand &operand) {
  int64_t elements = 1;
  for (int64_t d : operand.dims())
    elements *= d;
  return elements;
}

/// One place in a plan.
struct Spot {
  int segment, instruction;
};

class Mutator {
public:
  Mutator(plan::Plan &plan, Dice &dice) : plan_(plan), dice_(dice) {}

  std::optional<std::string> dropWait() {
    auto spot = pick([](const plan::Instruction &i) { return i.wait_size() > 0; });
    if (!spot)
      return std::nullopt;
    plan::Instruction &instruction = at(*spot);
    int k = dice_.below(instruction.wait_size());
    uint32_t event = instruction.wait(k);
    instruction.mutable_wait()->erase(instruction.wait().begin() + k);
    return "dropped the wait for event " + std::to_string(event) + " at " + name(*spot);
  }

  std::optional<std::string> moveWait() {
    auto spot = pick([](const plan::Instruction &i) { return i.wait_size() > 0; });
    if (!spot)
      return std::nullopt;
    plan::Instruction &from = at(*spot);
    int k = dice_.below(from.wait_size());
    uint32_t event = from.wait(k);
    std::vector<int> later;
    for (int i = spot->instruction + 1; i < segment(*spot).instructions_size() && later.size() < 6; ++i)
      if (segment(*spot).instructions(i).stream() == from.stream())
        later.push_back(i);
    if (later.empty())
      return std::nullopt;
    Spot to{spot->segment, later[dice_.below(static_cast<int>(later.size()))]};
    from.mutable_wait()->erase(from.wait().begin() + k);
    at(to).add_wait(event);
    return "moved the wait for event " + std::to_string(event) + " from " + name(*spot) + " to " + name(to);
  }

  std::optional<std::string> retargetWait() {
    auto spot = pick([](const plan::Instruction &i) { return i.wait_size() > 0; });
    if (!spot)
      return std::nullopt;
    std::vector<uint32_t> recorded;
    for (int i = 0; i < spot->instruction; ++i)
      if (uint32_t event = segment(*spot).instructions(i).record())
        recorded.push_back(event);
    plan::Instruction &instruction = at(*spot);
    int k = dice_.below(instruction.wait_size());
    uint32_t event = recorded[dice_.below(static_cast<int>(recorded.size()))];
    if (event == instruction.wait(k))
      return std::nullopt;
    std::string what = "waits for event " + std::to_string(event) + " instead of " +
                       std::to_string(instruction.wait(k)) + " at " + name(*spot);
    instruction.set_wait(k, event);
    return what;
  }

  std::optional<std::string> dropRelease() {
    return drop([](const plan::Instruction &i) { return opOf(i) == OpKind::Release; });
  }

  std::optional<std::string> moveRelease() {
    auto spot = pick([](const plan::Instruction &i) { return opOf(i) == OpKind::Release; });
    if (!spot || spot->instruction == 0)
      return std::nullopt;
    int to = std::max(0, spot->instruction - 1 - dice_.below(20));
    std::string what = "moved " + name(*spot) + " to " + std::to_string(to);
    move(spot->segment, spot->instruction, to);
    return what;
  }

  std::optional<std::string> dropInstruction() {
    return drop([](const plan::Instruction &) { return true; });
  }

  std::optional<std::string> dropUpdate() {
    return drop([](const plan::Instruction &i) { return isOptimizer(opOf(i)); });
  }

  std::optional<std::string> dropCollective() {
    auto spot = pick([](const plan::Instruction &i) { return isCollective(opOf(i)); });
    if (!spot)
      return std::nullopt;
    std::string what = "dropped " + name(*spot);
    int wait = findWait(*spot);
    if (wait >= 0) {
      what += " and " + name({spot->segment, wait});
      erase({spot->segment, wait});
    }
    erase(*spot);
    return what;
  }

  std::optional<std::string> repeatReduction() {
    auto spot = pick([](const plan::Instruction &i) {
      return opOf(i) == OpKind::ReduceStart || opOf(i) == OpKind::AllReduceStart;
    });
    if (!spot)
      return std::nullopt;
    std::string what = "repeated " + name(*spot);
    int wait = findWait(*spot);
    plan::Instruction start = at(*spot);
    start.set_record(0);
    plan::Segment &of = segment(*spot);
    *of.add_instructions() = start;
    if (wait >= 0) {
      plan::Instruction join = at({spot->segment, wait});
      join.set_record(0);
      *of.add_instructions() = join;
    }
    return what;
  }

  std::optional<std::string> shiftOperand() {
    auto spot = pick([](const plan::Instruction &) { return true; });
    if (!spot)
      return std::nullopt;
    plan::Instruction &instruction = at(*spot);
    int operands = instruction.inputs_size() + instruction.results_size();
    int k = dice_.below(operands + 1);
    bool isNear = dice_.below(2) == 0;
    bool isUp = dice_.below(2) == 0;
    if (k == operands) {
      if (instruction.workspace_bytes() == 0)
        return std::nullopt;
      instruction.set_workspace_offset(instruction.workspace_offset() + (isUp ? 64 : -64));
      return "shifted the workspace of " + name(*spot);
    }
    bool isInput = k < instruction.inputs_size();
    plan::Operand &operand = isInput ? *instruction.mutable_inputs(k)
                                     : *instruction.mutable_results(k - instruction.inputs_size());
    if (elementsOf(operand) == 0)
      return std::nullopt;
    int64_t by = isNear ? byteSize(static_cast<DType>(operand.dtype())) : 64;
    if (!isUp && operand.offset() < static_cast<uint64_t>(by))
      return std::nullopt;
    operand.set_offset(operand.offset() + (isUp ? by : -by));
    return "shifted " + std::string(isInput ? "operand " : "result ") +
           std::to_string(isInput ? k : k - instruction.inputs_size()) + " of " + name(*spot) + " by " +
           std::to_string(isUp ? by : -by) + " bytes";
  }

  /// Gives a result the place of another one, and everything that reads it too, until its bytes are written
  /// anew.
  std::optional<std::string> aliasBuffers() {
    auto hasArenaResult = [](const plan::Instruction &i) {
      return i.results_size() == 1 && i.results(0).region() == kArena && elementsOf(i.results(0)) > 0 &&
             !isWait(opOf(i)) && inPlaceOperand(opOf(i), 0) < 0;
    };
    auto spot = pick(hasArenaResult), other = pick(hasArenaResult);
    if (!spot || !other || spot->segment != other->segment)
      return std::nullopt;
    plan::Operand was = at(*spot).results(0);
    uint64_t to = at(*other).results(0).offset();
    if (was.offset() == to)
      return std::nullopt;
    uint64_t begin = was.offset();
    uint64_t end = begin + elementsOf(was) * byteSize(static_cast<DType>(was.dtype()));
    auto isInside = [&](const plan::Operand &o) {
      return o.region() == kArena && o.offset() >= begin && o.offset() < end;
    };
    at(*spot).mutable_results(0)->set_offset(to);
    plan::Segment &of = segment(*spot);
    for (int i = spot->instruction + 1; i < of.instructions_size(); ++i) {
      plan::Instruction &reader = *of.mutable_instructions(i);
      bool isOverwritten = false;
      for (plan::Operand &input : *reader.mutable_inputs())
        if (isInside(input))
          input.set_offset(input.offset() - begin + to);
      for (int r = 0; r < reader.results_size(); ++r) {
        plan::Operand &result = *reader.mutable_results(r);
        if (!isInside(result))
          continue;
        if (inPlaceOperand(opOf(reader), r) >= 0)
          result.set_offset(result.offset() - begin + to);
        else
          isOverwritten = true;
      }
      if (isOverwritten)
        break;
    }
    return "put the result of " + name(*spot) + " where that of " + name(*other) + " lies";
  }

  std::optional<std::string> shiftStorage() {
    if (plan_.storages_size() == 0)
      return std::nullopt;
    plan::Storage &storage = *plan_.mutable_storages(dice_.below(plan_.storages_size()));
    storage.set_offset(storage.offset() + 64);
    return "shifted storage " + storage.name();
  }

  std::optional<std::string> wrongCount() {
    plan_.mutable_facts()->set_static_count(plan_.facts().static_count() * (dice_.below(2) ? 2 : 0.5));
    return "changed the static label count";
  }

  std::optional<std::string> swapCollectives() {
    auto spot = pick([](const plan::Instruction &i) { return isCollective(opOf(i)); });
    if (!spot)
      return std::nullopt;
    for (int i = spot->instruction + 1; i < segment(*spot).instructions_size(); ++i) {
      const plan::Instruction &other = segment(*spot).instructions(i);
      if (!isCollective(opOf(other)) || other.stream() != at(*spot).stream())
        continue;
      std::string what = "swapped " + name(*spot) + " and " + name({spot->segment, i});
      segment(*spot).mutable_instructions()->SwapElements(spot->instruction, i);
      return what;
    }
    return std::nullopt;
  }

  std::optional<std::string> swapNeighbours() {
    auto spot = pick([](const plan::Instruction &) { return true; });
    if (!spot || spot->instruction + 1 == segment(*spot).instructions_size())
      return std::nullopt;
    segment(*spot).mutable_instructions()->SwapElements(spot->instruction, spot->instruction + 1);
    return "swapped " + name(*spot) + " and the one before it";
  }

  std::optional<std::string> moveInstruction() {
    auto spot = pick([](const plan::Instruction &) { return true; });
    if (!spot)
      return std::nullopt;
    int to = dice_.below(segment(*spot).instructions_size());
    std::string what = "moved " + name(*spot) + " to " + std::to_string(to);
    move(spot->segment, spot->instruction, to);
    return what;
  }

  std::optional<std::string> changeRegion() {
    plan::RegionSize &region = *plan_.mutable_regions(dice_.below(plan_.regions_size()));
    bool grows = dice_.below(2) == 0;
    if (!grows && region.bytes() < 64)
      return std::nullopt;
    region.set_bytes(region.bytes() + (grows ? 64 : -64));
    return std::string(grows ? "grew" : "shrank") + " region " + region.name();
  }

  std::optional<std::string> changeRange() {
    plan::Bucket &bucket = *plan_.mutable_buckets(dice_.below(plan_.buckets_size()));
    plan::Range &range = *bucket.mutable_ranges(dice_.below(bucket.ranges_size()));
    switch (dice_.below(4)) {
    case 0:
      range.set_begin(range.begin() + 32);
      break;
    case 1:
      range.set_end(range.end() - 1);
      break;
    case 2:
      range.set_end(range.end() + 1);
      break;
    default:
      range.set_parameter((range.parameter() + 1) % plan_.parameters_size());
      if (plan_.parameters_size() == 1)
        return std::nullopt;
    }
    return "changed a range of bucket " + bucket.name();
  }

  std::optional<std::string> changeBucket() {
    auto spot = pick([](const plan::Instruction &i) { return i.bucket() >= 0; });
    if (!spot || plan_.buckets_size() < 2)
      return std::nullopt;
    plan::Instruction &instruction = at(*spot);
    // Joins and releases name their bucket for readers only.
    if (isWait(opOf(instruction)) || opOf(instruction) == OpKind::Release)
      return std::nullopt;
    int to = (instruction.bucket() + 1 + dice_.below(plan_.buckets_size() - 1)) % plan_.buckets_size();
    instruction.set_bucket(to);
    return "gave bucket " + plan_.buckets(to).name() + " to " + name(*spot);
  }

  std::optional<std::string> changeStream() {
    auto spot = pick([](const plan::Instruction &) { return true; });
    if (!spot)
      return std::nullopt;
    plan::Instruction &instruction = at(*spot);
    instruction.set_stream((instruction.stream() + 1 + dice_.below(2)) % 3);
    return "put " + name(*spot) + " on stream " + std::to_string(instruction.stream());
  }

  std::optional<std::string> changeState() {
    plan::Segment &of = *plan_.mutable_segments(dice_.below(plan_.segments_size()));
    if (of.bucket_states_size() == 0)
      return std::nullopt;
    plan::BucketState &state = *of.mutable_bucket_states(dice_.below(of.bucket_states_size()));
    auto flip = [](const std::string &was) { return was == "whole" ? "owner" : "whole"; };
    if (dice_.below(2))
      state.set_entry(flip(state.entry()));
    else
      state.set_exit(flip(state.exit()));
    return "changed a bucket state of segment " + of.name();
  }

  std::optional<std::string> changeField() {
    plan::Bucket &bucket = *plan_.mutable_buckets(dice_.below(plan_.buckets_size()));
    if (!bucket.trainable())
      return std::nullopt;
    switch (dice_.below(3)) {
    case 0:
      bucket.set_parameters(bucket.parameters() == "whole" ? "refetched" : "whole");
      break;
    case 1:
      bucket.set_gradients(bucket.gradients() == "boundary" ? "micro-step" : "boundary");
      break;
    default:
      bucket.set_states(bucket.states() == "whole" ? "sharded" : "whole");
    }
    return "changed a field of bucket " + bucket.name();
  }

  std::optional<std::string> changeDtype() {
    auto spot = pick([](const plan::Instruction &i) { return i.inputs_size() > 0 && i.results_size() > 0; });
    if (!spot)
      return std::nullopt;
    plan::Instruction &instruction = at(*spot);
    plan::Operand &operand = dice_.below(2)
                                 ? *instruction.mutable_inputs(dice_.below(instruction.inputs_size()))
                                 : *instruction.mutable_results(dice_.below(instruction.results_size()));
    if (elementsOf(operand) == 0 || operand.dtype() != static_cast<uint32_t>(DType::f32))
      return std::nullopt;
    operand.set_dtype(static_cast<uint32_t>(DType::i32));
    return "made an operand of " + name(*spot) + " i32";
  }

  std::optional<std::string> swapOptimizerOperands() {
    auto spot = pick([](const plan::Instruction &i) { return isOptimizer(opOf(i)); });
    if (!spot)
      return std::nullopt;
    plan::Instruction &instruction = at(*spot);
    int a = dice_.below(instruction.inputs_size()), b = dice_.below(instruction.inputs_size());
    if (a == b)
      return std::nullopt;
    instruction.mutable_inputs()->SwapElements(a, b);
    return "swapped operands " + std::to_string(a) + " and " + std::to_string(b) + " of " + name(*spot);
  }

  std::optional<std::string> changeOptimizerKind() {
    auto spot = pick([](const plan::Instruction &i) { return isOptimizer(opOf(i)); });
    if (!spot)
      return std::nullopt;
    plan::Instruction &instruction = at(*spot);
    const char *kinds[] = {"adam", "adamw", "lion", "rmsprop", "adagrad", "none"};
    const std::string kind = kinds[dice_.below(6)];
    const Optimizer *before = optimizerOf(opOf(instruction), "");
    if (before && before->name == kind)
      return std::nullopt; // says what the op says
    plan::Attribute &attribute = *instruction.add_attributes();
    attribute.set_name("kind");
    attribute.set_text(kind);
    return "made " + name(*spot) + " of kind " + kind;
  }

  std::optional<std::string> shrinkCollective() {
    auto spot = pick([](const plan::Instruction &i) { return isCollective(opOf(i)); });
    if (!spot)
      return std::nullopt;
    plan::Instruction &instruction = at(*spot);
    plan::Operand &operand =
        dice_.below(2) ? *instruction.mutable_inputs(0) : *instruction.mutable_results(0);
    if (operand.dims_size() == 0 || operand.dims(0) < 2)
      return std::nullopt;
    operand.set_dims(0, operand.dims(0) / 2);
    return "halved an operand of " + name(*spot);
  }

private:
  plan::Segment &segment(Spot spot) { return *plan_.mutable_segments(spot.segment); }
  plan::Instruction &at(Spot spot) { return *segment(spot).mutable_instructions(spot.instruction); }

  std::string name(Spot spot) {
    const plan::Instruction &instruction = at(spot);
    return segment(spot).name() + "[" + std::to_string(spot.instruction) + "] " +
           std::string(opText(opOf(instruction))) +
           (instruction.location().empty() ? "" : " \"" + instruction.location() + "\"");
  }

  template <typename Suits> std::optional<Spot> pick(Suits suits) {
    std::vector<Spot> spots;
    for (int s = 0; s < plan_.segments_size(); ++s)
      for (int i = 0; i < plan_.segments(s).instructions_size(); ++i)
        if (suits(plan_.segments(s).instructions(i)))
          spots.push_back({s, i});
    if (spots.empty())
      return std::nullopt;
    return spots[dice_.below(static_cast<int>(spots.size()))];
  }

  template <typename Suits> std::optional<std::string> drop(Suits suits) {
    auto spot = pick(suits);
    if (!spot)
      return std::nullopt;
    std::string what = "dropped " + name(*spot);
    erase(*spot);
    return what;
  }

  /// Takes an instruction out, and its event from those who wait for it.
  void erase(Spot spot) {
    plan::Segment &of = segment(spot);
    uint32_t event = at(spot).record();
    of.mutable_instructions()->DeleteSubrange(spot.instruction, 1);
    if (event == 0)
      return;
    for (plan::Instruction &instruction : *of.mutable_instructions()) {
      auto *waits = instruction.mutable_wait();
      waits->erase(std::remove(waits->begin(), waits->end(), event), waits->end());
    }
  }

  void move(int s, int from, int to) {
    auto *list = plan_.mutable_segments(s)->mutable_instructions();
    for (; from < to; ++from)
      list->SwapElements(from, from + 1);
    for (; from > to; --from)
      list->SwapElements(from, from - 1);
  }

  /// The wait that joins a collective: the next one that names the bytes of its result; -1: none.
  int findWait(Spot start) {
    const plan::Operand &result = at(start).results(0);
    for (int i = start.instruction + 1; i < segment(start).instructions_size(); ++i) {
      const plan::Instruction &instruction = segment(start).instructions(i);
      if (isWait(opOf(instruction)) && instruction.inputs(0).region() == result.region() &&
          instruction.inputs(0).offset() == result.offset())
        return i;
    }
    return -1;
  }

  plan::Plan &plan_;
  Dice &dice_;
};

struct MutationKind {
  const char *name;
  std::optional<std::string> (Mutator::*apply)();
};
constexpr MutationKind kKinds[] = {
    {"drop-wait", &Mutator::dropWait},
    {"move-wait", &Mutator::moveWait},
    {"retarget-wait", &Mutator::retargetWait},
    {"drop-release", &Mutator::dropRelease},
    {"move-release", &Mutator::moveRelease},
    {"drop-instruction", &Mutator::dropInstruction},
    {"drop-update", &Mutator::dropUpdate},
    {"drop-collective", &Mutator::dropCollective},
    {"repeat-reduction", &Mutator::repeatReduction},
    {"shift-operand", &Mutator::shiftOperand},
    {"alias-buffers", &Mutator::aliasBuffers},
    {"shift-storage", &Mutator::shiftStorage},
    {"wrong-count", &Mutator::wrongCount},
    {"swap-collectives", &Mutator::swapCollectives},
    {"swap-neighbours", &Mutator::swapNeighbours},
    {"move-instruction", &Mutator::moveInstruction},
    {"change-region", &Mutator::changeRegion},
    {"change-range", &Mutator::changeRange},
    {"change-bucket", &Mutator::changeBucket},
    {"change-stream", &Mutator::changeStream},
    {"change-state", &Mutator::changeState},
    {"change-field", &Mutator::changeField},
    {"change-dtype", &Mutator::changeDtype},
    {"swap-optimizer-operands", &Mutator::swapOptimizerOperands},
    {"change-optimizer-kind", &Mutator::changeOptimizerKind},
    {"shrink-collective", &Mutator::shrinkCollective},
};

} // namespace

std::vector<std::string> mutationKinds() {
  std::vector<std::string> names;
  for (const MutationKind &kind : kKinds)
    names.push_back(kind.name);
  return names;
}

std::optional<std::string> mutatePlan(plan::Plan &plan, uint64_t seed, const std::string &kind) {
  Dice dice(seed);
  for (const MutationKind &candidate : kKinds)
    if (kind == candidate.name)
      return (Mutator(plan, dice).*candidate.apply)();
  return std::nullopt;
}

std::optional<std::string> mutatePlan(plan::Plan &plan, uint64_t seed) {
  Dice dice(seed);
  const MutationKind &kind = kKinds[dice.below(static_cast<int>(std::size(kKinds)))];
  return mutatePlan(plan, dice.next(), kind.name);
}

} // namespace zerocc
