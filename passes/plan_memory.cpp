// Lifetimes on the list order, then offsets by passes/packing.
//
// A buffer is a root value with everything that aliases it, or the workspace of one node. Its lifetime
// reaches from the first to the last node of the list that names any alias, as result or operand. Kernels of
// other streams may still run when the list has passed them; two rules keep that safe:
//   - `fetch.wait`, `reduce.wait` and `release` name the bytes of the work they join, so they extend
//     lifetimes; operands of an asynchronous start that are not its result's bytes are extended to the wait;
//   - whatever else reuses bytes of another stream's work gets a wait from `insert_sync`, which looks at
//     bytes.
// Segments run one after the other, so that each is packed alone from offset 0, and the arena is as large as
// the largest. Parameters, states and constants are not packed: they live all the time.
//
// Sizes count rounded up to 64 bytes: the bound and the peak are then comparable to the byte.
#include "passes/plan_memory.h"

#include "compiler/ops/ops.h"
#include "passes/aliases.h"
#include "passes/packing.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringRef.h"

#include <algorithm>
#include <numeric>

namespace zerocc {
namespace {

constexpr int64_t kAlignment = 64;

int64_t roundUp(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

/// What fills memory, for reports. The names are those of `inspect --json`.
enum class Kind : uint8_t { // clang-format off
  parameters, gradients, optimizer, fetched, activations, workspace, inputs, constants, buffers
}; // clang-format on
constexpr const char *kKindNames[] = {"parameters", "gradients", "optimizer", "fetched", "activations",
                                      "workspace",  "inputs",    "constants", "buffers"};
constexpr int kKinds = std::size(kKindNames);

struct Buffer {
  const Value *root = nullptr;  // null: the workspace of the node at `lower`
  int64_t lower = 0, upper = 0; // node positions, half open
  int64_t bytes = 0;
  Kind kind = Kind::activations;
};

/// Collects the arena buffers of one graph.
class Lifetimes {
public:
  explicit Lifetimes(const Graph &graph) : graph_(graph) {
    for (size_t i = 0; i < graph.nodes.size(); ++i)
      visit(*graph.nodes[i], static_cast<int64_t>(i));
    for (auto &[root, buffer] : buffers_)
      list_.push_back(buffer);
    list_.insert(list_.end(), workspaces_.begin(), workspaces_.end());
  }

  llvm::ArrayRef<Buffer> buffers() const { return list_; }

  std::vector<int64_t> liveProfile() const {
    std::vector<int64_t> live(graph_.nodes.size() + 1, 0);
    for (const Buffer &buffer : list_) {
      live[buffer.lower] += roundUp(buffer.bytes);
      live[buffer.upper] -= roundUp(buffer.bytes);
    }
    live.pop_back();
    std::partial_sum(live.begin(), live.end(), live.begin());
    return live;
  }

private:
  void visit(const Node &node, int64_t position) {
    for (const Value *input : node.inputs)
      touch(input, position);
    for (const Value *result : node.results)
      classify(node, touch(result, position));
    if (isAsyncWait(node.op))
      extendOperands(node.input(0)->definition, position);
    if (int64_t bytes = workspaceBytes(node); bytes > 0)
      workspaces_.push_back({nullptr, position, position + 1, bytes, Kind::workspace});
  }

  /// The buffer of `value`, alive at `position`; null when it lies in module-level memory.
  Buffer *touch(const Value *value, int64_t position) {
    const Value *root = aliases_.rootOf(value);
    if (root->isGlobal())
      return nullptr;
    auto [entry, isNew] = buffers_.insert({root, Buffer{root, position, position + 1, root->type.bytes()}});
    Buffer &buffer = entry->second;
    buffer.lower = std::min(buffer.lower, position);
    buffer.upper = std::max(buffer.upper, position + 1);
    return &buffer;
  }

  /// Keeps what the starts behind a wait read alive until the wait. Starts may follow one another without a
  /// wait (a reduce-scatter, then an all-reduce of the part).
  void extendOperands(const Node *start, int64_t position) {
    while (start && isAsyncStart(start->op)) {
      for (const Value *input : start->inputs)
        touch(input, position);
      start = start->input(0)->definition;
    }
  }

  static void classify(const Node &node, Buffer *buffer) {
    if (!buffer)
      return;
    if (node.op == OpKind::FetchStart || node.op == OpKind::AllGatherStart)
      buffer->kind = Kind::fetched;
    else if ((node.op == OpKind::Buffer && node.bucket >= 0) || node.op == OpKind::ReduceStart ||
             node.op == OpKind::ExchangeStart)
      buffer->kind = Kind::gradients;
  }

  const Graph &graph_;
  AliasMap aliases_;
  llvm::MapVector<const Value *, Buffer> buffers_;
  std::vector<Buffer> workspaces_, list_;
};

/// Checks what nobody else can: yielded values survive the segment, in-place results lie on their operands.
void checkGraph(const Graph &graph, std::vector<Diagnostic> &findings) {
  AliasMap aliases;
  for (const Node *node : graph.nodes)
    for (const Value *result : node->results) {
      int operand = inPlaceOperand(node->op, result->resultIndex);
      if (operand < 0)
        continue;
      ByteRange is = aliases.rangeOf(result), must = aliases.rangeOf(node->input(operand));
      if (is.root != must.root || is.offset != must.offset)
        findings.push_back({"segment " + graph.name + ": result " + std::to_string(result->resultIndex) +
                                " of " + std::string(opText(node->op)) + " (\"" + node->location +
                                "\") has a place of its own, but overwrites operand " +
                                std::to_string(operand),
                            "give both the same place"});
    }
  for (const auto &[name, value] : graph.results)
    if (!aliases.rootOf(value)->isGlobal())
      findings.push_back({"segment " + graph.name + ": yielded value \"" + name +
                              "\" lies in no storage, and its bytes are reused after the segment",
                          "let it alias a storage"});
}

/// Lays the module-level values out, in declared order.
class GlobalLayout {
public:
  explicit GlobalLayout(Module &module) : module_(module) {
    std::fill(std::begin(module.regionBytes), std::end(module.regionBytes), 0);
    for (Storage &storage : module.storages)
      add(*storage.value, storage.region, kindOfStorage(storage));
    for (Constant &constant : module.constants)
      add(*constant.value, Region::persistent, Kind::constants);
    for (Input &input : module.inputs)
      add(*input.value, Region::inputs, Kind::inputs);
  }
  const int64_t (&bytesByKind() const)[kKinds] { return bytesByKind_; }

private:
  void add(Value &value, Region region, Kind kind) {
    if (value.place.kind == Place::Kind::value)
      return; // lies in another module-level value
    int64_t &end = module_.regionBytes[static_cast<int>(region)];
    value.place = Place{Place::Kind::region, nullptr, region, end};
    end += roundUp(value.type.bytes());
    bytesByKind_[static_cast<int>(kind)] += value.type.bytes();
  }

  static Kind kindOfStorage(const Storage &storage) {
    if (storage.isBuffer())
      return Kind::buffers;
    if (llvm::StringRef(storage.value->name).startswith("output:"))
      return Kind::activations;
    llvm::StringRef role = llvm::StringRef(storage.value->name).rsplit('.').second;
    if (role == "param")
      return Kind::parameters;
    if (role == "grad")
      return Kind::gradients;
    if (role == "m" || role == "v" || role == "master")
      return Kind::optimizer;
    return Kind::buffers;
  }

  Module &module_;
  int64_t bytesByKind_[kKinds] = {};
};

/// The arena of one segment, packed.
struct PackedGraph {
  Graph *graph = nullptr;
  Packing packing;
  std::vector<Buffer> buffers;
  std::vector<int64_t> live;
  int64_t fullestNode() const {
    return live.empty() ? 0 : std::max_element(live.begin(), live.end()) - live.begin();
  }
};

PackedGraph packGraph(Graph &graph) {
  Lifetimes lifetimes(graph);
  PackedGraph packed;
  packed.graph = &graph;
  packed.buffers = lifetimes.buffers();
  packed.live = lifetimes.liveProfile();
  std::vector<PackBuffer> shapes;
  for (const Buffer &buffer : packed.buffers)
    shapes.push_back({buffer.lower, buffer.upper, buffer.bytes, kAlignment});
  packed.packing = pack(shapes);
  return packed;
}

void writePlaces(const PackedGraph &packed) {
  for (size_t i = 0; i < packed.buffers.size(); ++i) {
    const Buffer &buffer = packed.buffers[i];
    Node &node = *packed.graph->nodes[buffer.lower];
    if (!buffer.root) {
      node.attributes.set("workspace", packed.packing.offsets[i]);
      continue;
    }
    Value *root = buffer.root->definition->results[buffer.root->resultIndex];
    root->place = Place{Place::Kind::region, nullptr, Region::arena, packed.packing.offsets[i]};
  }
}

/// Writes the facts `peak.at` and `peak.KIND`: what is alive at the fullest node of the largest segment.
void writePeakFacts(Module &module, const PackedGraph *largest, const int64_t (&globalBytes)[kKinds]) {
  int64_t bytes[kKinds];
  std::copy(std::begin(globalBytes), std::end(globalBytes), bytes);
  std::string at;
  if (largest && !largest->live.empty()) {
    int64_t position = largest->fullestNode();
    for (const Buffer &buffer : largest->buffers)
      if (buffer.lower <= position && position < buffer.upper)
        bytes[static_cast<int>(buffer.kind)] += buffer.bytes;
    const Node &node = *largest->graph->nodes[position];
    at = node.location.empty() ? largest->graph->name + ": " + std::string(opText(node.op)) : node.location;
  }
  int64_t unused = std::accumulate(std::begin(module.regionBytes), std::end(module.regionBytes), int64_t(0));
  for (int kind = 0; kind < kKinds; ++kind) {
    module.facts.set(std::string("peak.") + kKindNames[kind], bytes[kind]);
    unused -= bytes[kind];
  }
  module.facts.set("peak.unused", unused);
  module.facts.set("peak.at", at);
}

} // namespace

std::vector<int64_t> liveProfile(const Graph &graph) { return Lifetimes(graph).liveProfile(); }

int64_t estimatePeak(const Graph &graph) {
  std::vector<int64_t> live = liveProfile(graph);
  return live.empty() ? 0 : *std::max_element(live.begin(), live.end());
}

Expected<PassReport> planMemory(Module &module, const Decisions &) {
  std::vector<Diagnostic> findings;
  for (const auto &graph : module.graphs)
    checkGraph(*graph, findings);
  if (!findings.empty())
    return Error(std::move(findings));

  PassReport report;
  report.changed = true;
  GlobalLayout globals(module);
  int64_t &arenaBytes = module.regionBytes[static_cast<int>(Region::arena)];
  std::vector<PackedGraph> packed;
  for (const auto &graph : module.graphs)
    packed.push_back(packGraph(*graph));

  const PackedGraph *largest = nullptr;
  int64_t lowerBound = 0;
  for (const PackedGraph &segment : packed) {
    writePlaces(segment);
    report.counters["buffers"] += static_cast<int64_t>(segment.buffers.size());
    lowerBound = std::max(lowerBound, segment.packing.lowerBound);
    if (!largest || segment.packing.peak > arenaBytes)
      largest = &segment;
    arenaBytes = std::max(arenaBytes, segment.packing.peak);
  }
  writePeakFacts(module, largest, globals.bytesByKind());
  module.facts.set("arena_lower_bound", lowerBound);
  report.counters["arenaBytes"] = arenaBytes;
  report.counters["arenaLowerBound"] = lowerBound;
  report.counters["peakNode"] = largest ? largest->fullestNode() : 0;
  return report;
}

} // namespace zerocc
