// Vector clocks: per stream, how far each stream is known to have come when the next instruction of this one starts.
// Per byte the last writer and, per stream, the last reader since are enough: whoever came before is ordered before
// the writer, or has been reported. Segments begin with all streams joined, so each is judged alone.
//
// An operand that lies at another place on each rank counts with the places of all ranks: peers read and write each
// other's memory in collectives, and one plan serves all.
#include "runtime/plan/verify_order.h"

#include "runtime/plan/byte_map.h"
#include "runtime/plan/verify_structure.h"

#include <array>
#include <vector>

namespace zerocc {
namespace {

constexpr int kStreamCount = 3;
constexpr const char *kStreamNames[] = {"compute", "gather", "reduce"};
constexpr const char *kRegionNames[] = {"persistent", "carried", "arena", "inputs"};
constexpr uint32_t kArena = 2;
constexpr int kNobody = -1;
using Clock = std::array<int, kStreamCount>; // last instruction of each stream that is done

struct LastAccess {
  int writer = kNobody;
  Clock readers{kNobody, kNobody, kNobody};
};

class SegmentOrder {
public:
  SegmentOrder(const plan::Plan &plan, const plan::Segment &segment, Findings &findings)
      : segment_(segment), findings_(findings), shard_(static_cast<int64_t>(plan.mesh().shard())),
        events_(segment.events() + 1) {
    clocks_.fill({kNobody, kNobody, kNobody});
  }

  void run() {
    for (int i = 0; i < segment_.instructions_size() && !findings_.isFull(); ++i) {
      const plan::Instruction &instruction = segment_.instructions(i);
      Clock &now = clocks_[instruction.stream()];
      for (uint32_t event : instruction.wait())
        for (int s = 0; s < kStreamCount; ++s)
          now[s] = std::max(now[s], events_[event][s]);
      verifyAccesses(i, instruction, now);
      now[instruction.stream()] = i;
      if (instruction.record() != 0)
        events_[instruction.record()] = now;
    }
  }

private:
  void verifyAccesses(int i, const plan::Instruction &instruction, const Clock &now) {
    OpKind op = static_cast<OpKind>(instruction.op());
    if (op == OpKind::Release)
      return; // ends a lifetime, touches nothing
    for (const plan::Operand &operand : instruction.inputs())
      read(i, extentOf(operand, shard_), now);
    if (op == OpKind::FetchWait || op == OpKind::ReduceWait)
      return; // joins what its start wrote
    for (const plan::Operand &result : instruction.results())
      write(i, extentOf(result, shard_), now);
    int64_t workspace = static_cast<int64_t>(instruction.workspace_offset());
    int64_t workspaceEnd = workspace + static_cast<int64_t>(instruction.workspace_bytes());
    write(i, {kArena, workspace, workspaceEnd, workspaceEnd}, now);
  }

  void read(int i, const Extent &extent, const Clock &now) {
    if (extent.isEmpty())
      return;
    int stream = static_cast<int>(segment_.instructions(i).stream());
    bytes_[extent.region].visit(extent.begin, extent.end, [&](int64_t begin, int64_t end, LastAccess &last) {
      verifyBehind(last.writer, "which writes them", i, "reads", extent.region, begin, end, now);
      last.readers[stream] = i;
    });
  }

  void write(int i, const Extent &extent, const Clock &now) {
    if (extent.isEmpty())
      return;
    bytes_[extent.region].visit(extent.begin, extent.end, [&](int64_t begin, int64_t end, LastAccess &last) {
      verifyBehind(last.writer, "which writes them", i, "writes", extent.region, begin, end, now);
      for (int reader : last.readers)
        verifyBehind(reader, "which reads them", i, "writes", extent.region, begin, end, now);
    });
    LastAccess last;
    last.writer = i;
    bytes_[extent.region].overwrite(extent.begin, extent.end, last);
  }

  void verifyBehind(int other, const char *itDoes, int i, const char *does, uint32_t region, int64_t begin,
                    int64_t end, const Clock &now) {
    if (other == kNobody || other == i)
      return;
    uint32_t stream = segment_.instructions(other).stream();
    if (stream == segment_.instructions(i).stream() || now[stream] >= other)
      return;
    findings_.add(whereIs(segment_, i) + ": " + does + " bytes [" + std::to_string(begin) + ", " +
                  std::to_string(end) + ") of region " + kRegionNames[region] +
                  " without waiting for instruction " + std::to_string(other) + " on stream " +
                  kStreamNames[stream] + ", " + itDoes);
  }

  const plan::Segment &segment_;
  Findings &findings_;
  int64_t shard_;
  std::array<Clock, kStreamCount> clocks_;
  std::vector<Clock> events_;
  ByteMap<LastAccess> bytes_[4];
};

} // namespace

void verifyOrder(const plan::Plan &plan, Findings &findings) {
  for (const plan::Segment &segment : plan.segments())
    SegmentOrder(plan, segment, findings).run();
}

} // namespace zerocc
