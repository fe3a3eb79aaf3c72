#include "compiler/ir/text.h"

#include "compiler/ops/op_table.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/StringSet.h"

namespace zerocc {
namespace {

/// Collects everything wrong with a module; a finding says where (table entry, or segment and node) and what.
class Checker {
public:
  explicit Checker(const Module &module) : module_(module) {}

  Status run() {
    if (module_.mesh.shard < 1 || module_.mesh.replicate < 1)
      report("mesh of " + std::to_string(module_.mesh.shard) + " x " +
             std::to_string(module_.mesh.replicate) + " has no ranks");
    checkGlobals();
    for (size_t i = 0; i < module_.buckets.size(); ++i)
      checkBucket(static_cast<int>(i));
    llvm::StringSet<> names;
    for (const std::unique_ptr<Graph> &graph : module_.graphs) {
      if (!names.insert(graph->name).second)
        report("two segments are called " + printName('@', graph->name));
      checkGraph(*graph);
    }
    checkInit();
    if (findings_.empty())
      return success();
    return Error(std::move(findings_));
  }

private:
  void report(const std::string &message) { findings_.push_back({message, ""}); }

  // --- tables

  void checkGlobals() {
    for (const Input &input : module_.inputs) {
      checkGlobal(*input.value);
      if (!input.of.empty() &&
          !llvm::any_of(module_.inputs, [&](const Input &i) { return i.value->name == input.of; }))
        report(printName('@', input.value->name) + ": of=" + input.of + " is not an input");
    }
    for (const Constant &constant : module_.constants) {
      checkGlobal(*constant.value);
      checkSource(*constant.value, constant.source);
    }
    for (const Parameter &parameter : module_.parameters) {
      checkGlobal(*parameter.value);
      checkSource(*parameter.value, parameter.source);
      checkMembership(parameter);
    }
    for (const Storage &storage : module_.storages)
      checkGlobal(*storage.value);
    auto checkPlaces = [&](const auto &table) {
      for (const auto &entry : table)
        checkPlace(printName('@', entry.value->name), *entry.value, nullptr);
    };
    checkPlaces(module_.inputs);
    checkPlaces(module_.constants);
    checkPlaces(module_.parameters);
    checkPlaces(module_.storages);
  }

  void checkGlobal(const Value &value) {
    const std::string name = printName('@', value.name);
    globals_.insert(&value);
    if (value.name.empty())
      report("a module-level value has no name");
    else if (!names_.insert(value.name).second)
      report("two module-level values are called " + name);
    else if (module_.global(value.name) != &value)
      report(name + " is not in the module's look-up: reindex() is missing");
    if (value.definition)
      report(name + " is a module-level value and the result of a node");
    if (Status status = checkType(value.type); !status)
      report(name + ": " + status.error().findings()[0].message);
  }

  void checkSource(const Value &value, const DataSource &source) {
    if (source.kind == DataSource::Kind::inlineBytes &&
        static_cast<int64_t>(source.bytes.size()) != value.type.bytes())
      report(printName('@', value.name) + " is " + print(value.type) + " of " +
             std::to_string(value.type.bytes()) + " bytes, its data has " +
             std::to_string(source.bytes.size()));
  }

  bool isBucket(int index) const { return index >= 0 && index < static_cast<int>(module_.buckets.size()); }

  void checkMembership(const Parameter &parameter) {
    if (parameter.bucket < 0)
      return;
    const std::string name = printName('@', parameter.value->name);
    if (!isBucket(parameter.bucket))
      return report(name + " is in bucket " + std::to_string(parameter.bucket) + " of " +
                    std::to_string(module_.buckets.size()));
    const Bucket &bucket = module_.buckets[parameter.bucket];
    const int64_t index = &parameter - module_.parameters.data();
    for (const BucketRange &range : bucket.ranges)
      if (range.parameter == index && range.begin == parameter.bucketOffset)
        return;
    report(name + " is not a member of " + printName('#', bucket.name) + " at offset " +
           std::to_string(parameter.bucketOffset));
  }

  void checkBucket(int index) {
    const Bucket &bucket = module_.buckets[index];
    const std::string name = printName('#', bucket.name);
    const int64_t unit = 32 * module_.mesh.shard * module_.mesh.replicate;
    int64_t end = 0, elements = 0;
    for (const BucketRange &range : bucket.ranges) {
      if (range.parameter < 0 || range.parameter >= static_cast<int>(module_.parameters.size())) {
        report(name + " holds parameter " + std::to_string(range.parameter) + " of " +
               std::to_string(module_.parameters.size()));
        continue;
      }
      const Parameter &parameter = module_.parameters[range.parameter];
      const std::string member = name + ", member " + printName('@', parameter.value->name) + ": ";
      if (range.begin < end)
        report(member + "begins at " + std::to_string(range.begin) + ", before " + std::to_string(end));
      if (range.end - range.begin != parameter.value->type.elements())
        report(member + "holds " + std::to_string(range.end - range.begin) + " elements, the parameter has " +
               std::to_string(parameter.value->type.elements()));
      if (parameter.bucket != index || parameter.bucketOffset != range.begin)
        report(member + "the parameter says it is elsewhere");
      end = std::max(end, range.end);
      elements += range.end - range.begin;
    }
    if (bucket.elements != elements)
      report(name + " says " + std::to_string(bucket.elements) + " elements, its members have " +
             std::to_string(elements));
    if (bucket.paddedElements < end)
      report(name + " has " + std::to_string(bucket.paddedElements) + " elements, its members end at " +
             std::to_string(end));
    if (unit > 0 && bucket.paddedElements % unit != 0)
      report(name + " has " + std::to_string(bucket.paddedElements) + " elements, not a multiple of " +
             std::to_string(unit));
  }

  // --- segments

  void checkGraph(const Graph &graph) {
    const ValueNames names(graph);
    const std::string segment = "segment " + printName('@', graph.name);
    llvm::DenseMap<const Node *, size_t> order;
    llvm::DenseSet<const Value *> values;
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      if (!order.try_emplace(graph.nodes[i], i).second)
        report(segment + ": " + describe(*graph.nodes[i], names) + " stands twice");
      for (const Value *result : graph.nodes[i]->results)
        values.insert(result);
    }
    llvm::DenseSet<const Value *> defined;
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      const Node &node = *graph.nodes[i];
      const std::string where = segment + ": " + describe(node, names) + ": ";
      const bool operandsKnown = checkOperands(where, node, defined, values, names);
      checkResults(where, node, operandsKnown);
      for (const Value *result : node.results) {
        defined.insert(result);
        checkPlace(where + "result " + names(result), *result, &values);
      }
      for (const Node *after : node.after) {
        auto found = order.find(after);
        if (found == order.end() || found->second >= i)
          report(where + "after= names a node that does not come before");
        else if (after->results.empty())
          report(where + "after= names a node without results");
      }
    }
    llvm::StringSet<> yields;
    for (const auto &[name, value] : graph.results) {
      if (!yields.insert(name).second)
        report(segment + ": yields " + quote(name) + " twice");
      if (!value || (!globals_.count(value) && !defined.count(value)))
        report(segment + ": yields as " + quote(name) + " a value that is not defined");
    }
  }

  /// `matmul %a` or `release of %x`, with the ONNX node.
  static std::string describe(const Node &node, const ValueNames &names) {
    std::string out(opText(node.op));
    if (!node.results.empty())
      out += " " + names(node.results[0]);
    else if (!node.inputs.empty())
      out += " of " + names(node.inputs[0]);
    return node.location.empty() ? out : out + " (" + quote(node.location) + ")";
  }

  bool checkOperands(const std::string &where, const Node &node, const llvm::DenseSet<const Value *> &defined,
                     const llvm::DenseSet<const Value *> &values, const ValueNames &names) {
    bool known = true;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const Value *input = node.inputs[i];
      const std::string operand = "operand " + std::to_string(i);
      if (!input) {
        report(where + operand + " is missing");
        known = false;
      } else if (!globals_.count(input) && !defined.count(input)) {
        // Its name may be asked for only when it lives here.
        const bool isLocal = values.count(input) != 0;
        report(where + operand +
               (isLocal ? " " + names(input) + " is used before its definition"
                        : " is a value of another graph"));
        known = known && isLocal;
      }
    }
    return known;
  }

  void checkResults(const std::string &where, const Node &node, bool operandsKnown) {
    for (size_t i = 0; i < node.results.size(); ++i)
      if (node.results[i]->definition != &node || node.results[i]->resultIndex != static_cast<int>(i))
        report(where + "result " + std::to_string(i) + " says another node defines it");
    if (node.bucket >= 0 && !isBucket(node.bucket))
      return report(where + "bucket " + std::to_string(node.bucket) + " of " +
                    std::to_string(module_.buckets.size()));
    if (!operandsKnown)
      return;
    llvm::SmallVector<TensorType, 4> inputs;
    for (const Value *input : node.inputs)
      inputs.push_back(input->type);
    const Bucket *bucket = node.bucket >= 0 ? &module_.buckets[node.bucket] : nullptr;
    Expected<ResultTypes> types = inferTypes({node.op, inputs, node.attributes, bucket, &module_.mesh});
    if (!types)
      return report(where + types.error().findings()[0].message);
    if (types->size() != node.results.size())
      return report(where + "the number of results is " + std::to_string(node.results.size()) +
                    ", the op table says " + std::to_string(types->size()));
    for (size_t i = 0; i < types->size(); ++i)
      if (!((*types)[i] == node.results[i]->type))
        report(where + "result " + std::to_string(i) + " is " + print(node.results[i]->type) +
               ", the shape rule gives " + print((*types)[i]));
  }

  /// `values`: those of the graph that `value` lives in, or null for a module-level value.
  void checkPlace(const std::string &where, const Value &value, const llvm::DenseSet<const Value *> *values) {
    const Place &place = value.place;
    if (place.kind == Place::Kind::none)
      return;
    if (place.offset < 0)
      report(where + ": place has the negative offset " + std::to_string(place.offset));
    if (place.kind == Place::Kind::region)
      return;
    if (!globals_.count(place.base) && !(values && values->count(place.base)))
      return report(where + ": place names a value of another graph");
    if (place.base->type.dtype == value.type.dtype &&
        place.offset > place.base->type.elements() - value.type.elements())
      report(where + ": " + print(value.type) + " at offset " + std::to_string(place.offset) + " leaves " +
             print(place.base->type));
  }

  /// Constants without data are exactly the results of `init`.
  void checkInit() {
    llvm::StringSet<> yielded;
    if (const Graph *init = module_.graph("init"))
      for (const auto &[name, value] : init->results) {
        yielded.insert(name);
        const Value *global = module_.global(name);
        const Constant *constant = global ? module_.constantOf(global) : nullptr;
        if (!constant || constant->source.kind != DataSource::Kind::none)
          report("segment @init: yields " + quote(name) + ", which is not a constant without data");
        else if (value && !(global->type == value->type))
          report("segment @init: yields " + print(value->type) + " as " + printName('@', name) + " of type " +
                 print(global->type));
      }
    for (const Constant &constant : module_.constants)
      if (constant.source.kind == DataSource::Kind::none && !yielded.count(constant.value->name))
        report(printName('@', constant.value->name) + " has no data, and no segment @init yields it");
  }

  const Module &module_;
  std::vector<Diagnostic> findings_;
  llvm::DenseSet<const Value *> globals_;
  llvm::StringSet<> names_;
};

} // namespace

Status checkModule(const Module &module) { return Checker(module).run(); }

} // namespace zerocc
