#include "tests/plan/oracle.h"

#include "compiler/ops/op_kind.h"
#include "compiler/support/dtype.h"
#include "runtime/plan/plan.h"

#include <algorithm>
#include <map>

namespace zerocc {
namespace {

constexpr uint32_t kArena = 2;

struct Range {
  uint32_t region;
  int64_t begin, end;
};

Range rangeOf(const plan::Operand &operand, int64_t shard) {
  int64_t size = byteSize(static_cast<DType>(operand.dtype())), low = 0, high = 0, contiguous = 1;
  for (int d = operand.dims_size() - 1; d >= 0; --d) {
    if (operand.dims(d) == 0)
      return {operand.region(), 0, 0};
    int64_t stride = operand.strides_size() ? operand.strides(d) : contiguous;
    contiguous *= operand.dims(d);
    (stride < 0 ? low : high) += stride * (operand.dims(d) - 1);
  }
  int64_t offset = static_cast<int64_t>(operand.offset());
  return {operand.region(), offset + low * size,
          offset + (high + 1) * size + static_cast<int64_t>(operand.rank_stride()) * (shard - 1)};
}

uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t z = (a ^ (b + 0x9e3779b97f4a7c15 + (a << 6) + (a >> 2))) * 0xff51afd7ed558ccd;
  return z ^ (z >> 33);
}
uint64_t mix(uint64_t a, const std::string &text) {
  for (unsigned char c : text)
    a = mix(a, c);
  return mix(a, text.size());
}

/// Bytes as formulas: [begin, end) are bytes `from`… of the value with this hash.
class Memory {
public:
  struct Piece {
    int64_t end;
    uint64_t hash;
    int64_t from;
  };

  void write(int64_t begin, int64_t end, uint64_t hash, int64_t from = 0) {
    if (begin == end)
      return;
    split(begin);
    split(end);
    pieces_.erase(pieces_.lower_bound(begin), pieces_.lower_bound(end));
    pieces_[begin] = {end, hash, from};
  }

  uint64_t read(int64_t begin, int64_t end) {
    split(begin);
    split(end);
    uint64_t hash = 1;
    int64_t at = begin, runBegin = begin;
    const Piece *last = nullptr; // pieces that continue each other count as one
    auto finish = [&] {
      if (last)
        hash = mix(mix(mix(hash, last->hash), static_cast<uint64_t>(last->from)),
                   static_cast<uint64_t>(at - runBegin));
    };
    Piece run{};
    for (auto entry = pieces_.lower_bound(begin); entry != pieces_.end() && entry->first < end; ++entry) {
      const Piece &piece = entry->second;
      bool continues =
          last && entry->first == at && piece.hash == run.hash && piece.from - run.from == at - runBegin;
      if (!continues) {
        finish();
        if (entry->first != at)
          hash = mix(hash, 0xdead); // unwritten
        run = piece;
        last = &run;
        runBegin = entry->first;
      }
      at = piece.end;
    }
    finish();
    return at == end ? hash : mix(hash, 0xdead);
  }

private:
  void split(int64_t at) {
    auto behind = pieces_.lower_bound(at);
    if (behind == pieces_.begin())
      return;
    auto entry = std::prev(behind);
    Piece &piece = entry->second;
    if (piece.end <= at)
      return;
    pieces_[at] = {piece.end, piece.hash, piece.from + at - entry->first};
    piece.end = at;
  }
  std::map<int64_t, Piece> pieces_;
};

/// The three fields say how the instructions came to be, not what they do.
void clearFields(plan::Bucket &bucket) {
  bucket.clear_parameters();
  bucket.clear_gradients();
  bucket.clear_states();
}

uint64_t hashOf(plan::Bucket bucket) {
  clearFields(bucket);
  return mix(7, bucket.SerializeAsString());
}

uint64_t shapeHash(const plan::Operand &operand) {
  uint64_t hash = mix(operand.dtype(), operand.rank_stride() != 0);
  for (int64_t d : operand.dims())
    hash = mix(hash, static_cast<uint64_t>(d));
  for (int64_t s : operand.strides())
    hash = mix(hash, static_cast<uint64_t>(s));
  return mix(hash, static_cast<uint64_t>(operand.dims_size()));
}

uint64_t meaningOf(const plan::Plan &plan, const plan::Segment &segment) {
  int64_t shard = static_cast<int64_t>(plan.mesh().shard());
  Memory memory[4];
  for (uint32_t region : {0u, 1u, 3u})
    memory[region].write(0, static_cast<int64_t>(plan.regions(static_cast<int>(region)).bytes()),
                         mix(99, region));
  for (const plan::Instruction &instruction : segment.instructions()) {
    OpKind op = static_cast<OpKind>(instruction.op());
    if (op == OpKind::FetchWait || op == OpKind::ReduceWait || op == OpKind::Release)
      continue;
    uint64_t hash = mix(5, instruction.op());
    for (const plan::Attribute &attribute : instruction.attributes())
      hash = mix(hash, attribute.SerializeAsString());
    if (instruction.bucket() >= 0)
      hash = mix(hash, hashOf(plan.buckets(instruction.bucket())));
    if (op == OpKind::ClearPadding) {
      Range range = rangeOf(instruction.inputs(0), shard);
      int64_t size = byteSize(static_cast<DType>(instruction.inputs(0).dtype())), end = range.begin;
      for (const plan::Range &of : plan.buckets(instruction.bucket()).ranges()) {
        memory[range.region].write(end, range.begin + static_cast<int64_t>(of.begin()) * size, 0x9ad);
        end = range.begin + static_cast<int64_t>(of.end()) * size;
      }
      memory[range.region].write(end, range.end, 0x9ad);
      continue;
    }
    for (const plan::Operand &operand : instruction.inputs()) {
      Range range = rangeOf(operand, shard);
      hash = mix(mix(hash, shapeHash(operand)), memory[range.region].read(range.begin, range.end));
    }
    int64_t workspace = static_cast<int64_t>(instruction.workspace_offset());
    memory[kArena].write(workspace, workspace + static_cast<int64_t>(instruction.workspace_bytes()), 0xbad);
    int number = 0;
    for (const plan::Operand &result : instruction.results()) {
      Range range = rangeOf(result, shard);
      memory[range.region].write(range.begin, range.end,
                                 mix(mix(hash, shapeHash(result)), static_cast<uint64_t>(++number)));
    }
  }
  uint64_t hash = mix(3, segment.name());
  for (uint32_t region : {0u, 1u})
    hash = mix(hash,
               memory[region].read(0, static_cast<int64_t>(plan.regions(static_cast<int>(region)).bytes())));
  return hash;
}

/// Everything but the instructions that says what the step means.
std::string tablesOf(const plan::Plan &plan) {
  plan::Plan tables = plan;
  tables.clear_segments();
  tables.clear_regions();
  tables.clear_provenance();
  tables.mutable_facts()->clear_peak_kinds();
  for (plan::Bucket &bucket : *tables.mutable_buckets())
    clearFields(bucket);
  return tables.SerializeAsString();
}

/// before[i][j]: instruction j is done when i starts.
std::vector<std::vector<bool>> happensBefore(const plan::Segment &segment) {
  int n = segment.instructions_size();
  std::vector<std::vector<bool>> before(n, std::vector<bool>(n, false));
  std::map<uint32_t, int> lastOfStream, recorder;
  for (int i = 0; i < n; ++i) {
    const plan::Instruction &instruction = segment.instructions(i);
    auto follow = [&](int j) {
      before[i][j] = true;
      for (int k = 0; k < n; ++k)
        if (before[j][k])
          before[i][k] = true;
    };
    if (lastOfStream.count(instruction.stream()))
      follow(lastOfStream[instruction.stream()]);
    for (uint32_t event : instruction.wait())
      if (recorder.count(event))
        follow(recorder[event]);
    lastOfStream[instruction.stream()] = i;
    if (instruction.record())
      recorder[instruction.record()] = i;
  }
  return before;
}

} // namespace

std::vector<uint64_t> meaningOf(const plan::Plan &plan) {
  std::vector<uint64_t> meaning{mix(1, tablesOf(plan))};
  for (const plan::Segment &segment : plan.segments())
    meaning.push_back(meaningOf(plan, segment));
  return meaning;
}

std::string findRace(const plan::Plan &plan) {
  int64_t shard = static_cast<int64_t>(plan.mesh().shard());
  for (const plan::Segment &segment : plan.segments()) {
    struct Accesses {
      std::vector<Range> reads, writes;
    };
    std::vector<Accesses> accesses(segment.instructions_size());
    for (int i = 0; i < segment.instructions_size(); ++i) {
      const plan::Instruction &instruction = segment.instructions(i);
      OpKind op = static_cast<OpKind>(instruction.op());
      if (op == OpKind::Release)
        continue;
      for (const plan::Operand &input : instruction.inputs())
        accesses[i].reads.push_back(rangeOf(input, shard));
      if (op == OpKind::FetchWait || op == OpKind::ReduceWait)
        continue;
      for (const plan::Operand &result : instruction.results())
        accesses[i].writes.push_back(rangeOf(result, shard));
      int64_t workspace = static_cast<int64_t>(instruction.workspace_offset());
      accesses[i].writes.push_back(
          {kArena, workspace, workspace + static_cast<int64_t>(instruction.workspace_bytes())});
    }
    auto meet = [](const std::vector<Range> &a, const std::vector<Range> &b) {
      return std::any_of(a.begin(), a.end(), [&](const Range &x) {
        return std::any_of(b.begin(), b.end(), [&](const Range &y) {
          return x.region == y.region && std::max(x.begin, y.begin) < std::min(x.end, y.end);
        });
      });
    };
    auto before = happensBefore(segment);
    for (int i = 0; i < segment.instructions_size(); ++i)
      for (int j = 0; j < i; ++j)
        if (!before[i][j] &&
            (meet(accesses[i].writes, accesses[j].writes) || meet(accesses[i].writes, accesses[j].reads) ||
             meet(accesses[i].reads, accesses[j].writes)))
          return segment.name() + "[" + std::to_string(j) + "] and [" + std::to_string(i) + "]";
  }
  return "";
}

bool areEquivalent(const plan::Plan &original, const plan::Plan &mutant) {
  return meaningOf(original) == meaningOf(mutant) && findRace(mutant).empty();
}

} // namespace zerocc
