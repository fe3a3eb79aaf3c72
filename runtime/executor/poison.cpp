#include "runtime/executor/poison.h"

#include "compiler/ops/op_kind.h"

#include <algorithm>
#include <array>

// All operand borders together cut the arena into pieces that are accessed as wholes. For each piece, its
// accesses in list order are split into lives. Whether the end of a life is ordered behind its other accesses
// is asked of clocks: clock[i][s] is how many instructions of stream s have happened once instruction i has.
//
// Cost: instructions times the pieces each operand covers; meant for checking runs only.

namespace zerocc {
namespace {

struct Access {
  int instruction = 0;
  bool reads = false, writes = false, kills = false;
};

struct OperandAccess {
  ByteRange range;
  Access access;
};

using Clock = std::array<int, kMaxStreams>;

class Order {
public:
  explicit Order(const plan::Segment &segment) {
    std::vector<Clock> events(segment.events() + 1, Clock{});
    std::array<Clock, kMaxStreams> streams{};
    for (const plan::Instruction &instruction : segment.instructions()) {
      Clock &now = streams[instruction.stream()];
      for (uint32_t event : instruction.wait())
        for (size_t s = 0; s < now.size(); ++s)
          now[s] = std::max(now[s], events[event][s]);
      before_.push_back(now);
      ++now[instruction.stream()];
      place_.push_back({static_cast<int>(instruction.stream()), now[instruction.stream()]});
      if (instruction.record() != 0)
        events[instruction.record()] = now;
    }
  }
  /// `first` is done before the work of `second` begins.
  bool isBefore(int first, int second) const {
    return before_[second][place_[first].stream] >= place_[first].number;
  }

private:
  struct Place {
    int stream, number;
  };
  std::vector<Clock> before_;
  std::vector<Place> place_;
};

bool touchesNothing(OpKind op) {
  switch (op) {
  case OpKind::Buffer:
  case OpKind::FetchWait:
  case OpKind::ReduceWait:
    return true;
  default:
    return opAlias(op) == Alias::View;
  }
}

/// Every access to the arena, in list order.
Expected<std::vector<OperandAccess>> accessesOf(const plan::Plan &plan, const plan::Segment &segment,
                                                int64_t shardIndex) {
  std::vector<OperandAccess> accesses;
  for (int i = 0; i < segment.instructions_size(); ++i) {
    const plan::Instruction &instruction = segment.instructions(i);
    const OpKind op = static_cast<OpKind>(instruction.op());
    if (touchesNothing(op))
      continue;
    for (const plan::Operand &input : instruction.inputs()) {
      if (input.region() != kArenaRegion)
        continue;
      ZEROCC_ASSIGN(ByteRange range, operandBytes(plan, input, shardIndex));
      const bool kills = op == OpKind::Release;
      accesses.push_back({range, {i, !kills, false, kills}});
    }
    for (const plan::Operand &result : instruction.results()) {
      if (result.region() != kArenaRegion)
        continue;
      ZEROCC_ASSIGN(ByteRange range, operandBytes(plan, result, shardIndex));
      // Between the elements of a strided result lie bytes that keep their value.
      accesses.push_back({range, {i, !isRowMajor(result), true, false}});
    }
    if (instruction.workspace_bytes() > 0) {
      const int64_t begin = static_cast<int64_t>(instruction.workspace_offset());
      accesses.push_back(
          {{begin, begin + static_cast<int64_t>(instruction.workspace_bytes())}, {i, false, true, false}});
    }
  }
  return accesses;
}

/// Adds a range behind the last one; adjacent ranges become one.
void append(std::vector<ByteRange> &ranges, ByteRange range) {
  if (!ranges.empty() && ranges.back().end == range.begin)
    ranges.back().end = range.end;
  else
    ranges.push_back(range);
}

/// The lives of one piece. `accesses` is in list order, one entry per instruction.
void poisonDeadPiece(ByteRange piece, const std::vector<Access> &accesses, const Order &order,
                     PoisonSchedule &schedule) {
  for (size_t begin = 0, end; begin < accesses.size(); begin = end) {
    // A life is [begin, end).
    for (end = begin + 1; end < accesses.size(); ++end) {
      const Access &next = accesses[end];
      if (accesses[end - 1].kills || (next.writes && !next.reads))
        break;
    }
    // A release ends the life but touches nothing, so that no later writer waits for it: the bytes die with the
    // access before it, which later writers do wait for.
    size_t lastAccess = end - 1;
    while (lastAccess > begin && accesses[lastAccess].kills)
      --lastAccess;
    const int last = accesses[lastAccess].instruction;
    bool lastIsBehindAll = true, nextIsBehindAll = end < accesses.size();
    for (size_t i = begin; i < end; ++i) {
      const int at = accesses[i].instruction;
      lastIsBehindAll &= at == last || accesses[i].kills || order.isBefore(at, last);
      nextIsBehindAll = nextIsBehindAll && (accesses[i].kills || order.isBefore(at, accesses[end].instruction));
    }
    if (lastIsBehindAll)
      append(schedule.instructions[last].after, piece);
    else if (nextIsBehindAll && accesses[end].writes)
      append(schedule.instructions[accesses[end].instruction].before, piece);
  }
}

} // namespace

Expected<PoisonSchedule> schedulePoison(const plan::Plan &plan, const plan::Segment &segment,
                                        int64_t shardIndex) {
  PoisonSchedule schedule;
  schedule.instructions.resize(segment.instructions_size());
  ZEROCC_ASSIGN(std::vector<OperandAccess> accesses, accessesOf(plan, segment, shardIndex));

  std::vector<int64_t> borders;
  for (const OperandAccess &access : accesses) {
    borders.push_back(access.range.begin);
    borders.push_back(access.range.end);
  }
  std::sort(borders.begin(), borders.end());
  borders.erase(std::unique(borders.begin(), borders.end()), borders.end());

  std::vector<std::vector<Access>> pieces(borders.size()); // the last one stays empty
  for (const OperandAccess &access : accesses) {
    auto at = std::lower_bound(borders.begin(), borders.end(), access.range.begin);
    for (; at != borders.end() && *at < access.range.end; ++at) {
      std::vector<Access> &of = pieces[at - borders.begin()];
      if (of.empty() || of.back().instruction != access.access.instruction) {
        of.push_back(access.access);
        continue;
      }
      of.back().reads |= access.access.reads;
      of.back().writes |= access.access.writes;
    }
  }
  const Order order(segment);
  for (size_t i = 0; i + 1 < borders.size(); ++i)
    poisonDeadPiece({borders[i], borders[i + 1]}, pieces[i], order, schedule);
  return schedule;
}

std::vector<UndefinedAtEntry> undefinedAtEntry(const plan::Plan &plan, const plan::Segment &segment,
                                               int64_t shardIndex) {
  std::vector<UndefinedAtEntry> undefined;
  const int64_t shard = static_cast<int64_t>(plan.mesh().shard());
  for (const plan::BucketState &state : segment.bucket_states()) {
    if (state.entry() != "owner")
      continue;
    for (const plan::Storage &storage : plan.storages()) {
      if (storage.kind() != plan::Storage::PARAMETER || storage.sharded() ||
          storage.bucket() != static_cast<int32_t>(state.bucket()) || storage.region() == kArenaRegion)
        continue;
      const int64_t bytes =
          static_cast<int64_t>(storage.elements()) * byteSize(static_cast<DType>(storage.dtype()));
      const int64_t begin = static_cast<int64_t>(storage.offset()), part = bytes / shard;
      const int64_t own = begin + shardIndex * part;
      undefined.push_back({storage.region(), {begin, own}});
      undefined.push_back({storage.region(), {own + part, begin + bytes}});
    }
  }
  return undefined;
}

} // namespace zerocc
