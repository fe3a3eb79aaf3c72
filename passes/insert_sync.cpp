// Vector clocks over byte intervals.
//
// One walk over the list of each segment. Per stream a clock says, for each stream, up to which node
// (position in the list) all work is known to be finished before the next node of this stream starts. Per
// byte interval the walk knows the last writer, and per stream the last reader since. A node that reads needs
// the last writer of its bytes; one that writes needs the last writer and all last readers. Earlier accesses
// need no memory: every writer was itself put behind them.
//
// Needs on the own stream are met by the order of the stream. Of the rest, per other stream only the latest
// node counts, and only when the clock has not reached it; of two that remain, one is dropped when the
// other's clock (at its end) covers it. What remains becomes `after`, and the clocks are joined. The result
// is the transitive reduction of (stream order + hazards), which is unique: no smaller set of waits orders
// the same hazards.
//
// Intervals live in an ordered map per region and are split at the ends of accesses and merged by writes, so
// that a walk costs O(accesses log n) but for splits.
//
// Conservative on purpose: where the bytes depend on the rank (the own slot of a bucket in an in-place
// reduction) or are strided, the node counts as touching the whole range they may fall in.
#include "passes/insert_sync.h"

#include "compiler/ops/ops.h"
#include "passes/aliases.h"

#include "llvm/ADT/DenseSet.h"

#include <algorithm>
#include <array>

namespace zerocc {
namespace {

constexpr int kNone = -1; // before the first node
using Clock = std::array<int, kStreams>;
constexpr Clock kStart = [] {
  Clock clock{};
  clock.fill(kNone);
  return clock;
}();

/// Who touched an interval of bytes last.
struct Access {
  int writer = kNone; // position in the list
  Clock readers = kStart;
};

/// Last accesses by byte interval of one region.
class AccessMap {
public:
  /// Calls visit(Access &) for intervals that together are exactly [begin, end).
  template <typename F> void forEach(int64_t begin, int64_t end, F visit) {
    split(begin);
    split(end);
    int64_t at = begin;
    auto entry = intervals_.lower_bound(begin);
    while (at < end) {
      int64_t next = entry == intervals_.end() ? end : std::min(end, entry->first);
      if (at < next) // nobody touched these bytes yet
        entry = intervals_.emplace_hint(entry, at, Interval{next, {}});
      visit(entry->second.access);
      at = entry->second.end;
      ++entry;
    }
  }
  /// Makes [begin, end) one interval.
  void replace(int64_t begin, int64_t end, const Access &access) {
    split(begin);
    split(end);
    auto first = intervals_.lower_bound(begin), last = intervals_.lower_bound(end);
    intervals_.erase(first, last);
    intervals_.emplace(begin, Interval{end, access});
  }

private:
  struct Interval {
    int64_t end;
    Access access;
  };
  void split(int64_t at) {
    auto entry = intervals_.lower_bound(at);
    if (entry == intervals_.begin())
      return;
    --entry;
    if (entry->second.end <= at)
      return;
    intervals_.emplace_hint(std::next(entry), at, Interval{entry->second.end, entry->second.access});
    entry->second.end = at;
  }
  std::map<int64_t, Interval> intervals_;
};

struct Bytes {
  Region region;
  int64_t begin, end;
};

class SegmentSync {
public:
  SegmentSync(Graph &graph, PassReport &report) : graph_(graph), report_(report) {
    clocks_.fill(kStart);
    clockAtEnd_.resize(graph.nodes.size(), kStart);
  }

  Status run() {
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      Node &node = *graph_.nodes[i];
      node.after.clear();
      if (touchesNothing(node))
        continue;
      Reads reads;
      Writes writes;
      ZEROCC_TRY(collect(node, reads, writes));
      addWaits(node, needsOf(node, reads, writes));
      finish(static_cast<int>(i), reads, writes);
    }
    report_.counters["events"] += static_cast<int64_t>(awaited_.size());
    return success();
  }

private:
  using Reads = llvm::SmallVector<Bytes, 4>;
  using Writes = llvm::SmallVector<Bytes, 4>;

  Status collect(const Node &node, Reads &reads, Writes &writes) {
    for (const Value *input : node.inputs)
      ZEROCC_TRY(addBytes(node, input, reads));
    if (isAsyncWait(node.op))
      return success(); // reads on its own stream, so that the wait for the event is attached here
    for (const Value *result : node.results)
      ZEROCC_TRY(addBytes(node, result, writes));
    if (int64_t bytes = workspaceBytes(node); bytes > 0) {
      int64_t offset = node.attributes.getInt("workspace");
      writes.push_back({Region::arena, offset, offset + bytes});
    }
    return success();
  }

  Status addBytes(const Node &node, const Value *value, llvm::SmallVectorImpl<Bytes> &list) {
    ByteRange range = aliases_.rangeOf(value);
    if (range.bytes == 0)
      return success();
    const Place &place = range.root->place;
    if (place.kind != Place::Kind::region)
      return Error("segment " + graph_.name + ": " + std::string(opText(node.op)) + " (\"" + node.location +
                       "\") names a value without a place" +
                       (range.root->name.empty() ? "" : ", \"" + range.root->name + "\""),
                   "run plan-memory first");
    int64_t begin = place.offset + range.offset;
    list.push_back({place.region, begin, begin + range.bytes});
    return success();
  }

  /// Per stream the latest node that must have finished before `node` starts.
  Clock needsOf(const Node &node, const Reads &reads, const Writes &writes) {
    Clock needs = kStart;
    auto need = [&](int position) {
      if (position == kNone)
        return;
      int stream = streamOf(position);
      if (stream != static_cast<int>(node.stream))
        needs[stream] = std::max(needs[stream], position);
    };
    for (const Bytes &bytes : reads)
      map(bytes).forEach(bytes.begin, bytes.end, [&](Access &access) { need(access.writer); });
    for (const Bytes &bytes : writes)
      map(bytes).forEach(bytes.begin, bytes.end, [&](Access &access) {
        need(access.writer);
        for (int reader : access.readers)
          need(reader);
      });
    return needs;
  }

  void addWaits(Node &node, const Clock &needs) {
    Clock &clock = clocks_[static_cast<int>(node.stream)];
    auto isCovered = [&](int stream) {
      if (needs[stream] <= clock[stream])
        return true;
      for (int other = 0; other < kStreams; ++other)
        if (other != stream && needs[other] != kNone && clockAtEnd_[needs[other]][stream] >= needs[stream])
          return true;
      return false;
    };
    Clock joined = clock;
    for (int stream = 0; stream < kStreams; ++stream) {
      if (needs[stream] == kNone)
        continue;
      if (isCovered(stream)) {
        ++report_.counters["waitsElided"];
        continue;
      }
      ++report_.counters["waits"];
      Node *awaited = graph_.nodes[needs[stream]];
      awaited_.insert(awaited);
      node.after.push_back(awaited);
      for (int s = 0; s < kStreams; ++s)
        joined[s] = std::max(joined[s], clockAtEnd_[needs[stream]][s]);
    }
    clock = joined;
  }

  void finish(int position, const Reads &reads, const Writes &writes) {
    int stream = streamOf(position);
    clocks_[stream][stream] = position;
    clockAtEnd_[position] = clocks_[stream];
    for (const Bytes &bytes : reads)
      map(bytes).forEach(bytes.begin, bytes.end, [&](Access &access) { access.readers[stream] = position; });
    for (const Bytes &bytes : writes) {
      Access access;
      access.writer = position;
      map(bytes).replace(bytes.begin, bytes.end, access);
    }
  }

  int streamOf(int position) const { return static_cast<int>(graph_.nodes[position]->stream); }
  AccessMap &map(const Bytes &bytes) { return maps_[static_cast<int>(bytes.region)]; }

  Graph &graph_;
  PassReport &report_;
  AliasMap aliases_;
  AccessMap maps_[kRegions];
  std::array<Clock, kStreams> clocks_;
  std::vector<Clock> clockAtEnd_;
  llvm::DenseSet<const Node *> awaited_;
};

} // namespace

Expected<PassReport> insertSync(Module &module, const Decisions &) {
  PassReport report;
  report.changed = true;
  for (const char *counter : {"events", "waits", "waitsElided"})
    report.counters[counter] = 0;
  for (const auto &graph : module.graphs)
    ZEROCC_TRY(SegmentSync(*graph, report).run());
  return report;
}

} // namespace zerocc
