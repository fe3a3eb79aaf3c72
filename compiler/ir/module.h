#pragma once

#include "compiler/ops/op_kind.h"
#include "compiler/support/attributes.h"
#include "compiler/support/dtype.h"
#include "compiler/support/expected.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace zerocc {

using Dims = llvm::SmallVector<int64_t, 4>;

/// Dtype and static shape of a value.
struct TensorType {
  DType dtype = DType::f32;
  Dims dims;

  int64_t elements() const {
    int64_t n = 1;
    for (int64_t d : dims)
      n *= d;
    return n;
  }
  int64_t bytes() const { return elements() * byteSize(dtype); }
  int64_t rank() const { return static_cast<int64_t>(dims.size()); }
  bool operator==(const TensorType &) const = default;
};

struct Value;
struct Node;

/// The memory of one rank is divided into regions; every transient byte has an offset in one.
/// persistent: parameters, optimizer states, constants, scalars. carried: alive across a segment's end.
/// arena: alive inside one segment; all segments share the bytes. inputs: filled by the host before a segment.
enum class Region : uint8_t { persistent = 0, carried = 1, arena = 2, inputs = 3 };
constexpr int kRegions = 4;
const char *regionName(Region region);

/// Where a value lies: `offset` elements behind the start of another value (`base`), which it thereby aliases,
/// or `offset` bytes into a region.
/// Set by `partition`/`build_step` for bucket members, by `plan_memory` for every other root value.
struct Place {
  enum class Kind : uint8_t { none, value, region } kind = Kind::none;
  const Value *base = nullptr;
  Region region = Region::arena;
  int64_t offset = 0;
};

/// How a rank's value relates to the other ranks' along one mesh axis.
/// replicated: the same everywhere; varying: each rank's own data; partial: to be summed; sharded: a part.
enum class Spread : uint8_t { replicated, varying, partial, sharded };

/// In-order queues of work. Collectives of the gather and of the reduce communicators have queues of their own.
enum class Stream : uint8_t { compute = 0, gather = 1, reduce = 2 };
constexpr int kStreams = 3;
const char *streamName(Stream stream);

/// One SSA value: a result of a node, or (when `definition` is null) a module-level value: parameter, input,
/// constant, storage.
struct Value {
  TensorType type;
  std::string name;           // without % or @; empty = numbered when printed
  Node *definition = nullptr; // null for module-level values
  int resultIndex = 0;
  Place place;

  bool isGlobal() const { return definition == nullptr; }
};

/// One operation. Inputs and results are in the op table's order.
struct Node {
  OpKind op;
  llvm::SmallVector<Value *, 4> inputs;
  llvm::SmallVector<Value *, 1> results;
  Attributes attributes;
  int bucket = -1; // index into Module::buckets, for collective and update ops
  Stream stream = Stream::compute;
  llvm::SmallVector<Node *, 1> after; // nodes of other streams that must have finished first (insert_sync)
  std::string location;               // the ONNX node this comes from; "~" behind it: its backward

  Value *input(int i) const { return inputs[i]; }
  Value *result(int i = 0) const { return results[i]; }
};

/// A list of nodes in execution order, and the values it hands out by name.
class Graph {
public:
  explicit Graph(std::string name) : name(std::move(name)) {}
  Graph(const Graph &) = delete;

  std::string name;
  std::vector<Node *> nodes;                                // execution order; every node is owned by this graph
  std::vector<std::pair<std::string, Value *>> results;     // "loss", "count", … ; printed as the last line, `yield`

  /// Makes a node (not yet in `nodes`) with results of the given types.
  Node *create(OpKind op, llvm::ArrayRef<Value *> inputs, llvm::ArrayRef<TensorType> resultTypes,
               Attributes attributes = {}, std::string location = "");
  /// create() and append to `nodes`.
  Node *append(OpKind op, llvm::ArrayRef<Value *> inputs, llvm::ArrayRef<TensorType> resultTypes,
               Attributes attributes = {}, std::string location = "");

private:
  std::deque<std::unique_ptr<Node>> nodeStore_;
  std::deque<std::unique_ptr<Value>> valueStore_;
};

/// Replaces every use of `from` in `graph` (inputs, results, places) by `to`.
void replaceUses(Graph &graph, llvm::DenseMap<const Value *, Value *> replacements);

/// Where the bytes of a module-level constant or parameter come from.
/// inline: `bytes`. initializer: raw little-endian bytes in a file, at offset/length; typed data of the protobuf
/// (float_data …) is read by the reader of the model, by name.
struct DataSource {
  enum class Kind : uint8_t { none, inlineBytes, initializer } kind = Kind::none;
  std::string bytes;       // inlineBytes: little-endian, row-major
  std::string initializer; // name of the ONNX initializer
};

/// A trainable or frozen tensor of the model. `value` has the type compute nodes read.
struct Parameter {
  std::unique_ptr<Value> value;
  DataSource source;
  bool trainable = true;
  std::string group = "decay"; // parameter group: "decay" or "no-decay" by default (vectors do not decay)
  bool tiedNote = false;       // several uses; kept as one parameter
  int bucket = -1;             // set by partition
  int64_t bucketOffset = 0;    // elements, in the bucket
};

/// What the data feeds into an input.
/// tokens: integer ids; labels: class ids aligned with logits (`shift` 1: next token of `of`); iota, ones, zeros:
/// generated; data: a named source; random: i64[3], the seed, step and micro-batch at hand; training: bool[], true in the
/// micro-steps and false in eval (clone-eval settles it: no plan has such an input).
struct Input {
  std::unique_ptr<Value> value;
  std::string role = "data"; // tokens | labels | iota | ones | zeros | data | random | training
  std::string of;            // labels: the tokens input they are shifted from, empty = own source
  int64_t shift = 0;
  bool hasRange = false; // integers: valid range [low, high), checked when read
  int64_t low = 0, high = 0;
  bool hasIgnore = false; // labels: a value outside the range that is allowed
  int64_t ignoreIndex = -100;
};

/// A constant: inline data, a non-trainable initializer (weights by reference), or computed by segment `init`.
struct Constant {
  std::unique_ptr<Value> value;
  DataSource source; // kind none: written by the graph `init`, which yields a result of this name
};

/// Persistent or carried memory of the step: a bucket's parameters, states, gradient parts, scalar block, …; or, with
/// a source of its first value, a *buffer* of the model (a running statistic), which a micro-step reads and writes.
struct Storage {
  std::unique_ptr<Value> value;
  Region region = Region::persistent;
  DataSource source;
  bool isBuffer() const { return source.kind != DataSource::Kind::none; }
};

enum class ParameterField : uint8_t { whole, kept, refetched };
enum class GradientField : uint8_t { boundary, microStep };
enum class StateField : uint8_t { whole, sharded };
const char *fieldName(ParameterField field);
const char *fieldName(GradientField field);
const char *fieldName(StateField field);

/// One member of a bucket: elements [begin, end) hold the parameter `parameter` (index into Module::parameters).
struct BucketRange {
  int parameter = 0;
  int64_t begin = 0, end = 0;
};

/// The unit of fetch, release, reduction and update (DESIGN.md, "Buckets").
/// Rank r of the shard axis owns elements [r, r+1) * paddedElements / shard.
struct Bucket {
  std::string name;
  DType fetchDtype = DType::f32, gradientDtype = DType::f32;
  bool trainable = true;
  ParameterField parameters = ParameterField::whole;
  GradientField gradients = GradientField::boundary;
  StateField states = StateField::whole;
  std::vector<BucketRange> ranges; // ascending, disjoint
  int64_t elements = 0;            // sum of the parameters' elements
  int64_t paddedElements = 0;      // multiple of 32 * shard * replicate
};

struct Mesh {
  int64_t shard = 1, replicate = 1;
  int64_t ranks() const { return shard * replicate; }
};

/// The one program of the compiler, from import to plan.
/// Graph names: "forward" until autodiff; then "micro_step" and "eval"; after build_step the segments
/// "init", "only" | "first"/"middle"/"last", "update", "eval".
class Module {
public:
  std::string name;
  Mesh mesh;
  int64_t microSteps = 1; // K, gradient accumulation
  std::vector<Input> inputs;
  std::vector<Constant> constants;
  std::vector<Parameter> parameters;
  std::vector<Storage> storages;
  std::vector<Bucket> buckets;
  std::vector<std::unique_ptr<Graph>> graphs;
  /// Facts that later passes and the plan need (optimizer kind, static label count, clip, …); printed as a table.
  Attributes facts;
  /// Bytes per region, after plan_memory.
  int64_t regionBytes[kRegions] = {0, 0, 0, 0};

  Graph *graph(llvm::StringRef name) const;
  Graph &addGraph(std::string name);
  Value *addInput(std::string name, TensorType type);
  Value *addConstant(std::string name, TensorType type, DataSource source);
  /// Inline constant from host values; f32 and i64 scalars are what passes need most.
  Value *scalarF32(float v);
  /// The inline scalar constant of that dtype and value (rounded to the dtype); one per pair, made when missing.
  Value *scalar(DType dtype, double v);
  Value *addParameter(std::string name, TensorType type, DataSource source);
  Value *addStorage(std::string name, TensorType type, Region region, DataSource source = {});
  /// The module-level value of that name, or null.
  Value *global(llvm::StringRef name) const;
  Parameter *parameterOf(const Value *value) const;
  Constant *constantOf(const Value *value) const;
  Storage *storageOf(const Value *value) const;
  Input *inputOf(const Value *value) const;

  /// Rebuilds the look-up tables after parameters/constants/… were erased or renamed.
  void reindex();

private:
  enum class Table : uint8_t { inputs, constants, parameters, storages };
  std::map<std::string, Value *, std::less<>> globals_;
  llvm::DenseMap<const Value *, std::pair<Table, int>> where_;
};

/// A deep copy of `graph` under a new name inside the same module; module-level values are shared.
/// `map`, when given, receives old value -> new value.
Graph &cloneGraph(Module &module, const Graph &graph, std::string name,
                  llvm::DenseMap<const Value *, Value *> *map = nullptr);
/// A deep copy of everything (the snapshot the driver repeats the ladder from).
std::unique_ptr<Module> cloneModule(const Module &module);

/// The text form (compiler/ir/README.md has the grammar). print(parse(print(m))) == print(m).
std::string print(const Module &module);
Expected<std::unique_ptr<Module>> parseModule(llvm::StringRef text, const std::string &fileName = "<text>");
std::string print(const TensorType &type);

/// Structural check: SSA, uses after definitions, operand counts and result types as the op table's shape rule
/// computes them. Lists all findings.
Status checkModule(const Module &module);

/// How often each value is used, and by whom, in one graph. A node that reads a value twice is listed twice.
class Uses {
public:
  explicit Uses(const Graph &graph);
  llvm::ArrayRef<Node *> of(const Value *value) const;
  bool isYielded(const Value *value) const { return yielded_.count(value) != 0; }

private:
  llvm::DenseMap<const Value *, std::vector<Node *>> users_;
  llvm::DenseMap<const Value *, int> yielded_;
};

} // namespace zerocc
