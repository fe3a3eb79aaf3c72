#include "passes/build_step.h"

#include "compiler/ir/views.h"
#include "compiler/ops/ops.h"
#include "runtime/plan/optimizers.h"
#include "runtime/plan/scalars.h"

#include <cstring>

namespace zerocc {
namespace {

bool isWhole(const Bucket &bucket) { return bucket.parameters == ParameterField::whole; }

int64_t partElements(const Module &module, const Bucket &bucket) {
  return bucket.paddedElements / module.mesh.shard;
}

constexpr const char *kStates[] = {"m", "v"};

const Optimizer &optimizerOf(const Decisions &decisions) {
  const Optimizer *optimizer = findOptimizer(decisions.optimizer);
  assert(optimizer && "an optimizer that setDecision does not know");
  return *optimizer;
}

int stateCount(const Decisions &decisions) {
  const Optimizer &optimizer = optimizerOf(decisions);
  return decisions.momentum ? optimizer.mostStates : optimizer.leastStates;
}

// Storages in a fixed order: per bucket parameters, states, gradient; then the step's own.
void addStorages(Module &module, const Decisions &decisions) {
  for (Bucket &bucket : module.buckets) {
    int64_t whole = bucket.paddedElements, part = partElements(module, bucket);
    auto add = [&](const char *kind, DType dtype, bool isWholeOne, Region region) {
      module.addStorage(storageName(bucket, kind), {dtype, {isWholeOne ? whole : part}}, region);
    };
    add("param", bucket.fetchDtype, isWhole(bucket), Region::persistent);
    if (!bucket.trainable)
      continue;
    bool statesWhole = bucket.states == StateField::whole;
    for (int i = 0; i < stateCount(decisions); ++i)
      add(kStates[i], DType::f32, statesWhole, Region::persistent);
    add("grad", bucket.gradientDtype, keepsWholeGradient(module, bucket), Region::carried);
  }
  if (!module.global("scalars")) // autodiff reads the loss scale from it
    module.addStorage("scalars", {DType::f64, {kScalars}}, Region::persistent);
  module.addStorage("loss", {DType::f64, {2}}, Region::carried);
}

// Puts the loss pair of a micro-step or of eval into storage `loss`, over or added to what lies there.
void storeLoss(Module &module, Graph &graph, bool addToIt) {
  GraphBuilder g(module, graph);
  g.location = "loss";
  Value *storage = module.global("loss");
  Value *sum = nullptr, *count = nullptr;
  std::vector<std::pair<std::string, Value *>> others;
  for (auto &result : graph.results) {
    if (result.first == "loss")
      sum = result.second;
    else if (result.first == "count")
      count = result.second;
    else
      others.push_back(result);
  }
  assert(sum && count && "a micro-step without its loss pair");
  for (auto &[name, value] : others)
    if (isBufferResult(name)) // after everything that reads the old value
      g.make(OpKind::Assign, {module.global(llvm::StringRef(name).drop_front(strlen("buffer:"))), value});
  llvm::erase_if(others, [](const auto &result) { return isBufferResult(result.first); });
  Value *pair = g.concat({g.reshape(sum, {1}), g.reshape(count, {1})}, 0);
  if (addToIt)
    g.make(OpKind::Accumulate, {storage, pair});
  else
    pair->place = {Place::Kind::value, storage, Region::arena, 0};
  graph.results = std::move(others);
}

Status checkGradients(const Module &module, const Graph &graph) {
  std::map<std::string, int> seen;
  for (const auto &[name, value] : graph.results)
    ++seen[name];
  for (const Parameter &parameter : module.parameters)
    if (parameter.trainable && seen["grad:" + parameter.value->name] != 1)
      return Error("build_step: parameter \"" + parameter.value->name + "\" has " +
                   std::to_string(seen["grad:" + parameter.value->name]) + " gradients, expected 1");
  return success();
}

void buildUpdate(Module &module, const Decisions &decisions) {
  Graph &update = module.addGraph("update");
  GraphBuilder g(module, update);
  g.location = "update";
  Value *scalars = module.global("scalars");
  llvm::SmallVector<Value *, 8> exchanged;
  exchanged.push_back(module.global("loss"));
  std::vector<int> trainable;
  for (int b = 0; b < static_cast<int>(module.buckets.size()); ++b)
    if (module.buckets[b].trainable)
      trainable.push_back(b);
  for (int b : trainable) {
    Value *gradient = ownPart(module, update, module.global(storageName(module.buckets[b], "grad")), b);
    exchanged.push_back(g.make(OpKind::NormPartial, {gradient}, {}, b)->result());
  }
  Value *row = g.concat(exchanged, 0);
  Value *all = nullptr;
  if (module.mesh.ranks() > 1) {
    Node *start = g.make(OpKind::ExchangeStart, {row});
    start->stream = Stream::reduce;
    all = g.make(OpKind::ReduceWait, {start->result()})->result();
  } else {
    all = g.reshape(row, {1, row->type.elements()});
  }
  Value *now = g.make(OpKind::StepScalars, {all, scalars},
                      {{"buckets", static_cast<int64_t>(trainable.size())},
                       {"clip", static_cast<int64_t>(decisions.clipping)},
                       {"mesh_shard", module.mesh.shard},
                       {"mesh_replicate", module.mesh.replicate}})
                   ->result();
  const Optimizer &optimizer = optimizerOf(decisions);
  for (int b : trainable) {
    const Bucket &bucket = module.buckets[b];
    Value *parameters = module.global(storageName(bucket, "param"));
    Value *gradient = module.global(storageName(bucket, "grad"));
    if (bucket.states == StateField::sharded) {
      parameters = ownPart(module, update, parameters, b);
      gradient = ownPart(module, update, gradient, b);
    }
    llvm::SmallVector<Value *, 8> operands = {parameters, gradient};
    for (int i = 0; i < stateCount(decisions); ++i)
      operands.push_back(module.global(storageName(bucket, kStates[i])));
    operands.push_back(now);
    Attributes attributes;
    if (opText(optimizer.op) != optimizer.name)
      attributes.set("kind", std::string(optimizer.name));
    g.make(optimizer.op, operands, attributes, b);
  }
}

// Each rank has moved the buffers by its own batches: all take the mean, summed in rank order.
void averageBuffers(Module &module, Graph &update) {
  std::vector<Value *> buffers;
  for (const Storage &storage : module.storages)
    if (storage.isBuffer())
      buffers.push_back(storage.value.get());
  if (buffers.empty() || module.mesh.ranks() == 1)
    return;
  GraphBuilder g(module, update);
  g.location = "buffers";
  llvm::SmallVector<Value *, 8> flat;
  int64_t elements = 0;
  for (Value *buffer : buffers) {
    elements += buffer->type.elements();
    flat.push_back(g.reshape(g.cast(buffer, DType::f64), {buffer->type.elements()}));
  }
  Value *row = g.concat(flat, 0);
  Node *start = g.make(OpKind::ExchangeStart, {row});
  start->stream = Stream::reduce;
  Value *all = g.make(OpKind::ReduceWait, {start->result()})->result();
  Value *mean = g.scale(g.reduceSum(all, {0}), 1 / static_cast<double>(module.mesh.ranks()));
  int64_t at = 0;
  for (Value *buffer : buffers) {
    Value *part = g.slice(mean, {at}, {buffer->type.elements()});
    g.make(OpKind::Assign, {buffer, g.cast(g.reshape(part, buffer->type.dims), buffer->type.dtype)});
    at += buffer->type.elements();
  }
  assert(at == elements);
}

} // namespace

std::string storageName(const Bucket &bucket, const char *kind) { return bucket.name + "." + kind; }

bool keepsWholeGradient(const Module &module, const Bucket &bucket) {
  return bucket.states == StateField::whole ||
         (bucket.gradients == GradientField::boundary && module.microSteps > 1);
}

Value *ownPart(Module &module, Graph &graph, Value *storage, int bucketIndex) {
  int64_t part = partElements(module, module.buckets[bucketIndex]);
  if (storage->type.elements() == part)
    return storage;
  GraphBuilder g(module, graph);
  g.location = "update";
  return g
      .make(OpKind::Member, {storage},
            {{"offset", int64_t{0}}, {"part", int64_t{1}}, {"shape", std::vector<int64_t>{part}}},
            bucketIndex)
      ->result();
}

void placeInitResults(Module &module) {
  Graph *init = module.graph("init");
  if (!init)
    return;
  GraphBuilder g(module, *init);
  for (auto &[name, value] : init->results) {
    Value *constant = module.global(name);
    if (value->isGlobal() || isViewNode(*value->definition) || value->place.kind != Place::Kind::none)
      value = g.make(OpKind::Copy, {value})->result();
    value->place = {Place::Kind::value, constant, Region::arena, 0};
  }
}

Expected<PassReport> buildStep(Module &module, const Decisions &decisions) {
  Graph *microStep = module.graph("micro_step");
  assert(microStep && "build_step needs the micro_step graph");
  ZEROCC_TRY(checkGradients(module, *microStep));
  addStorages(module, decisions);
  placeInitResults(module);

  std::vector<std::string> variants = {"only"};
  if (module.microSteps > 1)
    variants = {"first", "last"};
  if (module.microSteps > 2)
    variants = {"first", "middle", "last"};
  for (const std::string &variant : variants) {
    Graph &segment = cloneGraph(module, *microStep, variant);
    storeLoss(module, segment, variant == "middle" || variant == "last");
  }
  for (auto &graph : module.graphs)
    if (graph->name == "eval")
      storeLoss(module, *graph, false);
  buildUpdate(module, decisions);
  averageBuffers(module, *module.graph("update"));

  // Segments in the order they run: init, the micro-steps, update, eval.
  std::vector<std::unique_ptr<Graph>> ordered;
  for (const char *name : {"init", "only", "first", "middle", "last", "update", "eval"})
    for (auto &graph : module.graphs)
      if (graph && graph->name == name)
        ordered.push_back(std::move(graph));
  module.graphs = std::move(ordered);

  PassReport report;
  report.changed = true;
  report.counters["segments"] = static_cast<int64_t>(module.graphs.size());
  return report;
}

} // namespace zerocc
