// Per segment: (1) find the positions at which each bucket's parameters are read, through views; (2) group them into
// one or two clusters: a refetched bucket is released in the largest gap between its readers (from forward to
// backward, or from the embedding to the tied output) if another bucket is fetched in that gap, so at most twice per
// micro-step; (3) find for each bucket where its first gradient is written and its last one is complete; (4) write
// the list anew with the inserted nodes. Linear in nodes plus readers, but for sorting the readers.
//
// What a bucket's reduction looks like depends on its fields and on the segment only (see `Reduction`):
//   direct     the first micro-step writes straight into the carried whole buffer, when there is one
//   boundary   later micro-steps add their whole buffer to the carried one; the last reduces the sum
//   micro-step each micro-step reduces its buffer; later ones add their part to the carried part
// After the last: all-reduce of the part over the replicate axis; all-gather when states are whole (stage 0).

#include "passes/insert_fetch_release.h"

#include "compiler/ir/views.h"
#include "compiler/ops/ops.h"
#include "passes/build_step.h"

#include <algorithm>

namespace zerocc {
namespace {

/// Nodes to be put in front of or behind positions of the old list.
struct Insertions {
  std::vector<std::vector<Node *>> before, after;
  explicit Insertions(size_t nodes) : before(nodes + 1), after(nodes + 1) {}
};

class Segment {
public:
  Segment(Module &module, Graph &graph, PassReport &report)
      : module_(module), graph_(graph), report_(report), insertions_(graph.nodes.size()) {}

  void run() {
    old_ = std::move(graph_.nodes);
    graph_.nodes.clear();
    if (hasBackward())
      for (int b = 0; b < static_cast<int>(module_.buckets.size()); ++b)
        if (module_.buckets[b].trainable)
          reduceGradients(b);
    findReaders();
    for (int b = 0; b < static_cast<int>(module_.buckets.size()); ++b)
      if (!readers_[b].empty())
        fetchParameters(b);
    for (size_t i = 0; i <= old_.size(); ++i) {
      append(insertions_.before[i]);
      if (i < old_.size())
        graph_.nodes.push_back(old_[i]);
      append(insertions_.after[i]);
    }
    graph_.results.clear();
  }

private:
  struct Reader {
    int64_t position = 0;
    Node *node = nullptr;
    int operand = 0;
    int parameter = 0;
    bool isView = false;
    bool operator<(const Reader &other) const {
      return std::pair(position, operand) < std::pair(other.position, other.operand);
    }
  };

  bool hasBackward() const { return graph_.name != "eval" && graph_.name != "infer"; }

  void append(const std::vector<Node *> &nodes) { graph_.nodes.insert(graph_.nodes.end(), nodes.begin(), nodes.end()); }

  // Nodes that `build` appends to the graph, taken off it again.
  template <typename Build> std::vector<Node *> capture(Build build) {
    assert(graph_.nodes.empty() && "capture() inside capture()");
    GraphBuilder g(module_, graph_);
    build(g);
    return std::exchange(graph_.nodes, {});
  }

  // --- parameters

  void findReaders() {
    readers_.resize(module_.buckets.size());
    llvm::DenseMap<const Value *, int> viewOf; // value -> parameter it is a view of
    llvm::DenseMap<const Value *, int> parameters;
    for (int i = 0; i < static_cast<int>(module_.parameters.size()); ++i)
      parameters[module_.parameters[i].value.get()] = i;
    int64_t position = 0;
    for (Node *node : old_) {
      for (int i = 0; i < static_cast<int>(node->inputs.size()); ++i) {
        auto direct = parameters.find(node->input(i));
        auto through = viewOf.find(node->input(i));
        if (direct == parameters.end() && through == viewOf.end())
          continue;
        int parameter = direct != parameters.end() ? direct->second : through->second;
        bool isView = isViewNode(*node);
        if (isView)
          viewOf[node->result()] = parameter;
        readers_[module_.parameters[parameter].bucket].push_back({position, node, i, parameter, isView});
      }
      ++position;
    }
    for (int b = 0; b < static_cast<int>(readers_.size()); ++b)
      if (module_.buckets[b].parameters != ParameterField::whole)
        for (const Reader &reader : readers_[b])
          fetchedReads_.push_back({reader.position, b});
    std::sort(fetchedReads_.begin(), fetchedReads_.end());
  }

  bool anotherBucketReadsBetween(int bucket, int64_t from, int64_t to) const {
    auto at = std::upper_bound(fetchedReads_.begin(), fetchedReads_.end(), std::pair(from, INT32_MAX));
    for (; at != fetchedReads_.end() && at->first < to; ++at)
      if (at->second != bucket)
        return true;
    return false;
  }

  // Where the second cluster of readers begins, or readers.size() for one cluster.
  size_t findSplit(int b) {
    const std::vector<Reader> &readers = readers_[b];
    Bucket &bucket = module_.buckets[b];
    if (bucket.parameters != ParameterField::refetched)
      return readers.size();
    size_t split = readers.size();
    int64_t widest = 0;
    for (size_t i = 1; i < readers.size(); ++i) {
      int64_t gap = readers[i].position - readers[i - 1].position;
      if (gap > widest && anotherBucketReadsBetween(b, readers[i - 1].position, readers[i].position)) {
        widest = gap;
        split = i;
      }
    }
    if (split == readers.size() && hasBackward())
      bucket.parameters = ParameterField::kept; // one fetch serves forward and backward
    return split;
  }

  // The state in which a segment finds a bucket's whole parameters: after an update only the owner's part is new.
  bool mustGatherInPlace(const Bucket &bucket) const {
    bool parametersMoved = bucket.trainable && bucket.states == StateField::sharded && isSharded(module_);
    return bucket.parameters == ParameterField::whole && parametersMoved && graph_.name != "middle" &&
           graph_.name != "last";
  }

  void fetchParameters(int b) {
    std::vector<Reader> &readers = readers_[b];
    std::sort(readers.begin(), readers.end());
    const Bucket &bucket = module_.buckets[b];
    Value *storage = module_.global(storageName(bucket, "param"));
    size_t split = findSplit(b);
    for (auto [begin, end] : {std::pair<size_t, size_t>(0, split), std::pair<size_t, size_t>(split, readers.size())}) {
      if (begin == end)
        continue;
      Value *whole = storage;
      bool outOfShard = bucket.parameters != ParameterField::whole;
      llvm::DenseMap<int, Value *> members;
      auto nodes = capture([&](GraphBuilder &g) {
        g.location = readers[begin].node->location;
        if (outOfShard || mustGatherInPlace(bucket)) {
          Node *start = g.make(OpKind::FetchStart, {storage},
                               outOfShard ? Attributes{} : Attributes{{"in_place", int64_t{1}}}, b);
          start->stream = Stream::gather;
          whole = g.make(OpKind::FetchWait, {start->result()}, {}, b)->result();
          ++report_.counters["fetches"];
        }
        for (size_t i = begin; i < end; ++i)
          if (Value *&member = members[readers[i].parameter]; !member)
            member = makeMember(g, whole, readers[i].parameter, b);
      });
      auto &before = insertions_.before[readers[begin].position];
      before.insert(before.end(), nodes.begin(), nodes.end());
      for (size_t i = begin; i < end; ++i)
        if (readers[i].node->input(readers[i].operand)->isGlobal())
          readers[i].node->inputs[readers[i].operand] = members[readers[i].parameter];
      if (outOfShard) {
        auto release = capture([&](GraphBuilder &g) {
          g.location = readers[end - 1].node->location;
          g.make(OpKind::Release, {whole}, {}, b);
        });
        auto &after = insertions_.after[readers[end - 1].position];
        after.insert(after.begin(), release.begin(), release.end());
        ++report_.counters["releases"];
      }
    }
  }

  Value *makeMember(GraphBuilder &g, Value *whole, int parameterIndex, int b) {
    const Parameter &parameter = module_.parameters[parameterIndex];
    const Dims &dims = parameter.value->type.dims;
    Value *member = g.make(OpKind::Member, {whole},
                           {{"offset", parameter.bucketOffset},
                            {"shape", std::vector<int64_t>(dims.begin(), dims.end())}},
                           b)
                        ->result();
    member->name = parameter.value->name;
    return member;
  }

  // --- gradients

  struct Member {
    Value *gradient = nullptr;
    int64_t offset = 0;
    int64_t position = 0;
  };

  // The value whose node writes the gradient's bytes, if it can write them straight into the bucket; else null.
  Value *writableInPlace(Value *gradient) {
    if (gradient->isGlobal() || countUses(gradient) != 0)
      return nullptr;
    while (gradient->definition->op == OpKind::Reshape && !gradient->definition->input(0)->isGlobal() &&
           countUses(gradient->definition->input(0)) == 1)
      gradient = gradient->definition->input(0);
    bool ownBytes = opAlias(gradient->definition->op) == Alias::None && gradient->place.kind == Place::Kind::none;
    return ownBytes ? gradient : nullptr;
  }

  int64_t countUses(const Value *value) {
    if (!counted_) {
      for (const Node *node : old_)
        for (const Value *input : node->inputs)
          ++uses_[input];
      int64_t position = 0;
      for (const Node *node : old_)
        position_[node] = position++;
      for (const auto &[name, result] : graph_.results)
        ++yields_[result];
      for (const auto &[name, result] : graph_.results)
        gradients_[name] = result;
      counted_ = true;
    }
    return uses_.lookup(value) + std::max(0, yields_.lookup(value) - 1);
  }

  void reduceGradients(int b) {
    const Bucket &bucket = module_.buckets[b];
    countUses(nullptr);
    bool first = graph_.name == "only" || graph_.name == "first";
    bool last = graph_.name == "only" || graph_.name == "last";
    Value *carried = module_.global(storageName(bucket, "grad"));
    bool carriesWhole = keepsWholeGradient(module_, bucket);
    bool direct = carriesWhole && first;

    // Where the first member is written and the last is complete.
    std::vector<Member> members;
    int64_t begin = static_cast<int64_t>(old_.size()), end = 0;
    for (const BucketRange &range : bucket.ranges) {
      Value *gradient = gradients_.at("grad:" + module_.parameters[range.parameter].value->name);
      Member member{gradient, range.begin, 0};
      if (Value *written = writableInPlace(gradient)) {
        member.gradient = written;
        member.position = position_.lookup(written->definition);
      } else {
        member.position = gradient->isGlobal() ? 0 : position_.lookup(gradient->definition);
        auto copy = capture([&](GraphBuilder &g) { member.gradient = g.make(OpKind::Copy, {gradient})->result(); });
        copy[0]->location = gradient->isGlobal() ? "gradient" : gradient->definition->location;
        auto &after = insertions_.after[member.position];
        after.insert(after.end(), copy.begin(), copy.end());
        ++report_.counters["copies"];
      }
      begin = std::min(begin, member.position);
      end = std::max(end, member.position);
      members.push_back(member);
    }

    Value *buffer = carried;
    if (!direct) {
      auto nodes = capture([&](GraphBuilder &g) {
        g.location = "gradient";
        buffer = g.make(OpKind::Buffer, {}, {}, b)->result();
      });
      insertions_.before[begin].push_back(nodes[0]);
    }
    for (Member &member : members)
      member.gradient->place = {Place::Kind::value, buffer, Region::arena, member.offset};

    auto nodes = capture([&](GraphBuilder &g) {
      g.location = "gradient";
      finishBucket(g, b, buffer, members, direct, first, last);
    });
    auto &after = insertions_.after[end];
    after.insert(after.end(), nodes.begin(), nodes.end());
  }

  void finishBucket(GraphBuilder &g, int b, Value *buffer, const std::vector<Member> &members, bool direct, bool first,
                    bool last) {
    const Bucket &bucket = module_.buckets[b];
    Value *carried = module_.global(storageName(bucket, "grad"));
    bool carriesWhole = keepsWholeGradient(module_, bucket);
    bool boundary = bucket.gradients == GradientField::boundary || !isSharded(module_);
    if (bucket.elements != bucket.paddedElements)
      buffer = g.make(OpKind::ClearPadding, {buffer}, {}, b)->result();

    Value *whole = buffer; // what the micro-step's gradient is added into
    if (boundary && !first)
      whole = g.make(OpKind::Accumulate, {carried, buffer}, {}, b)->result();
    if (boundary && !last)
      return;

    Value *part = whole;
    bool pending = false; // queued on the reduce stream, not waited for
    if (isSharded(module_)) {
      llvm::SmallVector<Value *, 8> operands;
      operands.push_back(whole);
      if (whole == buffer)
        for (const Member &member : members)
          operands.push_back(member.gradient);
      bool inPlace = carriesWhole ? (boundary || direct || !first) : !first;
      Node *start = g.make(OpKind::ReduceStart, operands, {{"in_place", static_cast<int64_t>(inPlace)}}, b);
      start->stream = Stream::reduce;
      part = start->result();
      if (!inPlace)
        part->place = {Place::Kind::value, carried, Region::arena, 0};
      pending = true;
      ++report_.counters["reductions"];
      if (!boundary && !first) {
        part = g.make(OpKind::ReduceWait, {part}, {}, b)->result();
        part = g.make(OpKind::Accumulate, {ownPart(module_, graph_, carried, b), part}, {}, b)->result();
        pending = false;
      }
    } else if (!direct && first) {
      // One rank on the shard axis and no whole carried buffer does not happen: states are whole then.
      assert(false && "an unsharded bucket carries its whole gradient");
    }
    if (last && module_.mesh.replicate > 1) {
      Node *start = g.make(OpKind::AllReduceStart, {part}, {}, b);
      start->stream = Stream::reduce;
      part = start->result();
      pending = true;
    }
    if (last && isSharded(module_) && bucket.states == StateField::whole) {
      Node *start = g.make(OpKind::AllGatherStart, {carried}, {{"in_place", int64_t{1}}}, b);
      start->stream = Stream::reduce;
      part = start->result();
      pending = true;
    }
    if (pending)
      g.make(OpKind::ReduceWait, {part}, {}, b);
  }

  Module &module_;
  Graph &graph_;
  PassReport &report_;
  std::vector<Node *> old_;
  Insertions insertions_;
  std::vector<std::vector<Reader>> readers_; // by bucket
  std::vector<std::pair<int64_t, int>> fetchedReads_;
  bool counted_ = false;
  llvm::DenseMap<const Value *, int64_t> uses_;
  llvm::DenseMap<const Value *, int> yields_;
  llvm::DenseMap<const Node *, int64_t> position_;
  std::map<std::string, Value *> gradients_;
};

} // namespace

Expected<PassReport> insertFetchRelease(Module &module, const Decisions &) {
  PassReport report;
  for (auto &graph : module.graphs)
    if (graph->name != "init" && graph->name != "update")
      Segment(module, *graph, report).run();
  report.changed = true;
  return report;
}

} // namespace zerocc
