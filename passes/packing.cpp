// Offsets by a portfolio of greedy orders.
//
// Each run takes the buffers in one order and puts each one into a gap between the buffers placed before that
// are alive at the same time: into the lowest gap, or into the tightest one ("best"). No order is good
// everywhere: size and area win on training steps, contention on tight sets, start and end on chains; so all
// are tried, and the smallest result is kept. Reaching the bound (most bytes alive at one time) proves a
// result optimal and ends the search. What is not tried: moving a placed buffer, and exact search.
//
// The question "which bytes are taken during [l, r)" must not walk all placed buffers: a step has 10^4 of
// them and the portfolio asks 20 times per buffer. Times are first reduced to the ranks of the distinct
// starts (two lifetimes meet only if they meet at a start). Over these a segment tree keeps two sets of taken
// byte intervals per tree node: `own`, of the buffers whose lifetime was split to exactly this node, and
// `under`, of all buffers in the subtree. A lifetime is O(log n) tree nodes; the bytes taken during it are
// the `under` of these and the `own` of their ancestors. Touching intervals are merged, so that the sets stay
// short where the packing is dense, which is where it matters. A run costs O(n log^2 n) plus the gaps looked
// at.
#include "passes/packing.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <limits>
#include <numeric>

namespace zerocc {
namespace {

int64_t roundUp(int64_t value, int64_t to) { return (value + to - 1) / to * to; }

/// Byte intervals that are taken: sorted, disjoint, never touching.
class Taken {
public:
  struct Interval {
    int64_t begin, end;
  };

  void add(int64_t begin, int64_t end) {
    auto first = firstEndingAtOrAfter(begin);
    auto last = first;
    for (; last != intervals_.end() && last->begin <= end; ++last) {
      begin = std::min(begin, last->begin);
      end = std::max(end, last->end);
    }
    if (first == last) {
      intervals_.insert(first, {begin, end});
      return;
    }
    *first = {begin, end};
    intervals_.erase(first + 1, last);
  }
  /// Index of the first interval that ends behind `offset`.
  size_t firstBehind(int64_t offset) const {
    return std::upper_bound(intervals_.begin(), intervals_.end(), offset,
                            [](int64_t o, const Interval &i) { return o < i.end; }) -
           intervals_.begin();
  }
  const std::vector<Interval> &intervals() const { return intervals_; }
  void clear() { intervals_.clear(); }

private:
  std::vector<Interval>::iterator firstEndingAtOrAfter(int64_t offset) {
    return std::lower_bound(intervals_.begin(), intervals_.end(), offset,
                            [](const Interval &i, int64_t o) { return i.end < o; });
  }
  std::vector<Interval> intervals_;
};

enum class Fit : uint8_t { lowest, best };

/// The bytes taken so far, over time (ranks of starts, half open).
class Board {
public:
  explicit Board(int times) {
    while (leaves_ < times)
      leaves_ *= 2;
    own_.resize(2 * leaves_);
    under_.resize(2 * leaves_);
  }
  void clear() {
    for (Taken &taken : own_)
      taken.clear();
    for (Taken &taken : under_)
      taken.clear();
  }

  void take(int lower, int upper, int64_t begin, int64_t end) {
    forEachPart(lower, upper, [&](int part) {
      own_[part].add(begin, end);
      for (int at = part; at >= 1; at /= 2)
        under_[at].add(begin, end);
    });
  }

  int64_t findOffset(int lower, int upper, int64_t size, int64_t alignment, Fit fit) {
    collect(lower, upper);
    return fit == Fit::lowest ? lowestGap(size, alignment) : tightestGap(size, alignment);
  }

private:
  template <typename F> void forEachPart(int lower, int upper, F visit) const {
    for (int l = lower + leaves_, r = upper + leaves_; l < r; l /= 2, r /= 2) {
      if (l & 1)
        visit(l++);
      if (r & 1)
        visit(--r);
    }
  }

  /// The sets whose union is taken during [lower, upper).
  void collect(int lower, int upper) {
    sets_.clear();
    forEachPart(lower, upper, [&](int part) { addSet(under_[part]); });
    int left = (lower + leaves_) / 2, right = (upper - 1 + leaves_) / 2;
    for (; left >= 1; left /= 2, right /= 2) {
      // An ancestor of the first time that lies inside the lifetime is covered by `under` of a part; its own
      // set again does no harm.
      addSet(own_[left]);
      if (right != left)
        addSet(own_[right]);
    }
  }
  void addSet(const Taken &taken) {
    if (!taken.intervals().empty())
      sets_.push_back(&taken);
  }

  int64_t lowestGap(int64_t size, int64_t alignment) const {
    int64_t offset = 0;
    // Every round in which a set objects moves the offset up behind one of its intervals.
    for (size_t agreed = 0, at = 0; agreed < sets_.size(); at = (at + 1) % sets_.size()) {
      const auto &intervals = sets_[at]->intervals();
      size_t i = sets_[at]->firstBehind(offset);
      int64_t before = offset;
      while (i < intervals.size() && intervals[i].begin < offset + size)
        offset = roundUp(intervals[i++].end, alignment);
      agreed = offset == before ? agreed + 1 : 1;
    }
    return offset;
  }

  int64_t tightestGap(int64_t size, int64_t alignment) {
    merged_.clear();
    for (const Taken *set : sets_)
      merged_.insert(merged_.end(), set->intervals().begin(), set->intervals().end());
    std::sort(merged_.begin(), merged_.end(),
              [](const Taken::Interval &a, const Taken::Interval &b) { return a.begin < b.begin; });
    int64_t top = 0, tightest = std::numeric_limits<int64_t>::max(), found = -1;
    for (const Taken::Interval &interval : merged_) {
      int64_t offset = roundUp(top, alignment), gap = interval.begin - top;
      if (offset + size <= interval.begin && gap < tightest) {
        tightest = gap;
        found = offset;
      }
      top = std::max(top, interval.end);
    }
    return found >= 0 ? found : roundUp(top, alignment);
  }

  int leaves_ = 1;
  std::vector<Taken> own_, under_;
  std::vector<const Taken *> sets_;
  std::vector<Taken::Interval> merged_;
};

/// What the orders sort by.
struct Traits {
  int lower, upper; // ranks of starts
  int64_t size;     // rounded up to the alignment
  int64_t length;
  int64_t contention; // most bytes alive at one time of its life
  int64_t degree;     // lifetimes that meet its own
};

using Key = std::array<__int128, 3>; // sorted descending, then by index

struct Order {
  const char *name;
  Key (*key)(const Traits &);
};

constexpr Order kOrders[] = {
    {"size",
     [](const Traits &t) {
       return Key{t.size, t.length, 0};
     }},
    {"area",
     [](const Traits &t) {
       return Key{__int128(t.size) * t.length, t.size, 0};
     }},
    {"contention-size",
     [](const Traits &t) {
       return Key{t.contention, t.size, t.length};
     }},
    {"contention-length",
     [](const Traits &t) {
       return Key{t.contention, t.length, t.size};
     }},
    {"contention-area",
     [](const Traits &t) {
       return Key{t.contention, __int128(t.size) * t.length, 0};
     }},
    {"length",
     [](const Traits &t) {
       return Key{t.length, t.size, 0};
     }},
    {"degree",
     [](const Traits &t) {
       return Key{t.degree, t.size, 0};
     }},
    {"start",
     [](const Traits &t) {
       return Key{-t.lower, t.size, t.length};
     }},
    {"end",
     [](const Traits &t) {
       return Key{t.upper, t.size, t.length};
     }},
    {"size-start",
     [](const Traits &t) {
       return Key{t.size, -t.lower, 0};
     }},
    {"length-area",
     [](const Traits &t) {
       return Key{t.length, __int128(t.size) * t.length, t.contention};
     }},
};
constexpr int kQuickOrders = 3;

struct Problem {
  std::vector<Traits> traits;
  std::vector<int64_t> alignments;
  std::vector<int> needed; // indices of buffers with bytes and a lifetime
  int times = 0;
  int64_t lowerBound = 0;
};

/// Greatest value of each window [lower, upper), by doubling.
class WindowMaximum {
public:
  explicit WindowMaximum(std::vector<int64_t> values) {
    levels_.push_back(std::move(values));
    for (size_t width = 1; 2 * width <= levels_[0].size(); width *= 2) {
      const std::vector<int64_t> &below = levels_.back();
      std::vector<int64_t> level(levels_[0].size() - 2 * width + 1);
      for (size_t i = 0; i < level.size(); ++i)
        level[i] = std::max(below[i], below[i + width]);
      levels_.push_back(std::move(level));
    }
  }
  int64_t of(int lower, int upper) const {
    int level = 0;
    while ((2 << level) <= upper - lower)
      ++level;
    return std::max(levels_[level][lower], levels_[level][upper - (1 << level)]);
  }

private:
  std::vector<std::vector<int64_t>> levels_;
};

Problem describe(const std::vector<PackBuffer> &buffers) {
  Problem problem;
  std::vector<int64_t> starts, ends;
  for (size_t i = 0; i < buffers.size(); ++i) {
    assert(buffers[i].alignment > 0 && buffers[i].size >= 0 && "buffer without a size or an alignment");
    if (buffers[i].size == 0 || buffers[i].lower >= buffers[i].upper)
      continue;
    problem.needed.push_back(static_cast<int>(i));
    starts.push_back(buffers[i].lower);
    ends.push_back(buffers[i].upper);
  }
  std::sort(starts.begin(), starts.end());
  std::sort(ends.begin(), ends.end());
  std::vector<int64_t> distinct = starts;
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  problem.times = static_cast<int>(distinct.size());

  auto rank = [](const std::vector<int64_t> &sorted, int64_t value) {
    return static_cast<int>(std::lower_bound(sorted.begin(), sorted.end(), value) - sorted.begin());
  };
  problem.traits.resize(buffers.size());
  problem.alignments.resize(buffers.size());
  std::vector<int64_t> live(problem.times + 1, 0);
  for (int i : problem.needed) {
    const PackBuffer &buffer = buffers[i];
    Traits &t = problem.traits[i];
    t.lower = rank(distinct, buffer.lower);
    t.upper = rank(distinct, buffer.upper);
    t.size = roundUp(buffer.size, buffer.alignment);
    t.length = buffer.upper - buffer.lower;
    int64_t endedBefore = std::upper_bound(ends.begin(), ends.end(), buffer.lower) - ends.begin();
    t.degree = rank(starts, buffer.upper) - endedBefore;
    problem.alignments[i] = buffer.alignment;
    live[t.lower] += t.size;
    live[t.upper] -= t.size;
  }
  std::partial_sum(live.begin(), live.end(), live.begin());
  live.pop_back();
  if (live.empty())
    return problem;
  problem.lowerBound = *std::max_element(live.begin(), live.end());
  WindowMaximum maximum(std::move(live));
  for (int i : problem.needed)
    problem.traits[i].contention = maximum.of(problem.traits[i].lower, problem.traits[i].upper);
  return problem;
}

std::vector<int> sortedBy(const Problem &problem, const Order &order) {
  std::vector<Key> keys(problem.traits.size());
  for (int i : problem.needed)
    keys[i] = order.key(problem.traits[i]);
  std::vector<int> sorted = problem.needed;
  std::stable_sort(sorted.begin(), sorted.end(), [&](int a, int b) { return keys[a] > keys[b]; });
  return sorted;
}

/// Places the buffers in the given order; gives up (returns false) once the result cannot be below `limit`.
bool place(const Problem &problem, const std::vector<int> &order, Fit fit, int64_t limit, Board &board,
           std::vector<int64_t> &offsets, int64_t &peak) {
  board.clear();
  peak = 0;
  for (int i : order) {
    const Traits &t = problem.traits[i];
    int64_t offset = board.findOffset(t.lower, t.upper, t.size, problem.alignments[i], fit);
    if (offset + t.size >= limit)
      return false;
    board.take(t.lower, t.upper, offset, offset + t.size);
    offsets[i] = offset;
    peak = std::max(peak, offset + t.size);
  }
  return true;
}

} // namespace

Packing pack(const std::vector<PackBuffer> &buffers, PackEffort effort) {
  Problem problem = describe(buffers);
  Packing best;
  best.offsets.assign(buffers.size(), 0);
  best.lowerBound = problem.lowerBound;
  best.order = "none";
  if (problem.needed.empty())
    return best;
  best.peak = std::numeric_limits<int64_t>::max();

  Board board(problem.times);
  std::vector<int64_t> offsets(buffers.size(), 0);
  int orders = effort == PackEffort::quick ? kQuickOrders : static_cast<int>(std::size(kOrders));
  for (int o = 0; o < orders; ++o) {
    std::vector<int> order = sortedBy(problem, kOrders[o]);
    for (Fit fit : {Fit::lowest, Fit::best}) {
      int64_t peak = 0;
      if (!place(problem, order, fit, best.peak, board, offsets, peak))
        continue;
      best.peak = peak;
      best.offsets = offsets;
      best.order = std::string(kOrders[o].name) + (fit == Fit::lowest ? "/lowest" : "/best");
      if (best.peak == best.lowerBound)
        return best;
    }
  }
  return best;
}

} // namespace zerocc
