#pragma once

#include <algorithm>
#include <cstdint>
#include <map>

namespace zerocc {

/// Something known about every byte of a region: an ordered map of intervals that are split where accesses begin and
/// end, and become one again where they are overwritten as one. Bytes never met hold `unknown`.
template <typename Content> class ByteMap {
public:
  explicit ByteMap(Content unknown = Content()) : unknown_(unknown) {}

  struct Interval {
    int64_t end;
    Content content;
  };

  /// Calls visit(begin, end, Content &) for intervals that together are exactly [begin, end), in order.
  template <typename Visit> void visit(int64_t begin, int64_t end, Visit visit) {
    split(begin);
    split(end);
    auto entry = intervals_.lower_bound(begin);
    for (int64_t at = begin; at < end;) {
      if (entry == intervals_.end() || entry->first > at) { // a hole: nothing is known here yet
        int64_t next = entry == intervals_.end() ? end : std::min(end, entry->first);
        entry = intervals_.emplace_hint(entry, at, Interval{next, unknown_});
      }
      visit(at, entry->second.end, entry->second.content);
      at = entry->second.end;
      ++entry;
    }
  }

  void overwrite(int64_t begin, int64_t end, const Content &content) {
    split(begin);
    split(end);
    intervals_.erase(intervals_.lower_bound(begin), intervals_.lower_bound(end));
    intervals_.emplace(begin, Interval{end, content});
  }

  template <typename Visit> void visitAll(Visit visit) {
    for (auto &[begin, interval] : intervals_)
      visit(begin, interval.end, interval.content);
  }

  void clear() { intervals_.clear(); }

private:
  void split(int64_t at) {
    auto behind = intervals_.lower_bound(at);
    if (behind == intervals_.begin())
      return;
    auto entry = std::prev(behind);
    if (entry->second.end <= at)
      return;
    intervals_.emplace_hint(behind, at, Interval{entry->second.end, entry->second.content});
    entry->second.end = at;
  }

  Content unknown_;
  std::map<int64_t, Interval> intervals_;
};

} // namespace zerocc
