#include "compiler/ir/module.h"

#include "compiler/ir/text.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>

namespace zerocc {

const char *regionName(Region region) {
  constexpr const char *names[kRegions] = {"persistent", "carried", "arena", "inputs"};
  return names[static_cast<int>(region)];
}

const char *streamName(Stream stream) {
  constexpr const char *names[kStreams] = {"compute", "gather", "reduce"};
  return names[static_cast<int>(stream)];
}

const char *fieldName(ParameterField field) {
  constexpr const char *names[] = {"whole", "kept", "refetched"};
  return names[static_cast<int>(field)];
}

const char *fieldName(GradientField field) {
  return field == GradientField::boundary ? "boundary" : "micro-step";
}

const char *fieldName(StateField field) { return field == StateField::whole ? "whole" : "sharded"; }

Node *Graph::create(OpKind op, llvm::ArrayRef<Value *> inputs, llvm::ArrayRef<TensorType> resultTypes,
                    Attributes attributes, std::string location) {
  Node *node = nodeStore_.emplace_back(std::make_unique<Node>()).get();
  node->op = op;
  node->inputs.assign(inputs.begin(), inputs.end());
  node->attributes = std::move(attributes);
  node->location = std::move(location);
  for (const TensorType &type : resultTypes) {
    Value *value = valueStore_.emplace_back(std::make_unique<Value>()).get();
    value->type = type;
    value->definition = node;
    value->resultIndex = static_cast<int>(node->results.size());
    node->results.push_back(value);
  }
  return node;
}

Node *Graph::append(OpKind op, llvm::ArrayRef<Value *> inputs, llvm::ArrayRef<TensorType> resultTypes,
                    Attributes attributes, std::string location) {
  Node *node = create(op, inputs, resultTypes, std::move(attributes), std::move(location));
  nodes.push_back(node);
  return node;
}

void replaceUses(Graph &graph, llvm::DenseMap<const Value *, Value *> replacements) {
  auto replacement = [&](auto *value) -> decltype(value) {
    auto found = replacements.find(value);
    return found == replacements.end() ? value : found->second;
  };
  for (Node *node : graph.nodes) {
    for (Value *&input : node->inputs)
      input = replacement(input);
    for (Value *result : node->results)
      if (result->place.kind == Place::Kind::value)
        result->place.base = replacement(result->place.base);
  }
  for (auto &[name, value] : graph.results)
    value = replacement(value);
}

Graph *Module::graph(llvm::StringRef name) const {
  for (const std::unique_ptr<Graph> &graph : graphs)
    if (graph->name == name)
      return graph.get();
  return nullptr;
}

Graph &Module::addGraph(std::string name) {
  assert(!graph(name) && "two graphs of one name");
  return *graphs.emplace_back(std::make_unique<Graph>(std::move(name)));
}

static std::unique_ptr<Value> makeGlobal(std::string name, TensorType type) {
  assert(!name.empty() && "a module-level value needs a name");
  auto value = std::make_unique<Value>();
  value->name = std::move(name);
  value->type = std::move(type);
  return value;
}

Value *Module::addInput(std::string name, TensorType type) {
  assert(!global(name) && "two module-level values of one name");
  inputs.emplace_back().value = makeGlobal(std::move(name), std::move(type));
  Value *value = inputs.back().value.get();
  where_[value] = {Table::inputs, static_cast<int>(inputs.size()) - 1};
  globals_[value->name] = value;
  return value;
}

Value *Module::addConstant(std::string name, TensorType type, DataSource source) {
  assert(!global(name) && "two module-level values of one name");
  constants.push_back({makeGlobal(std::move(name), std::move(type)), std::move(source)});
  Value *value = constants.back().value.get();
  where_[value] = {Table::constants, static_cast<int>(constants.size()) - 1};
  globals_[value->name] = value;
  return value;
}

Value *Module::scalarF32(float v) { return scalar(DType::f32, v); }

Value *Module::scalar(DType dtype, double v) {
  TensorType type{dtype, {}};
  std::string bytes = encodeElement(dtype, v);
  // The name tells dtype and value, so that it finds the constant again; "~" steps aside for a model's own
  // name.
  std::string name = std::string(dtypeName(dtype)) + ":" + decodeElement(dtype, bytes);
  name.erase(std::remove(name.begin(), name.end(), '+'), name.end());
  while (Value *found = global(name)) {
    const Constant *constant = constantOf(found);
    if (constant && found->type == type && constant->source.kind == DataSource::Kind::inlineBytes &&
        constant->source.bytes == bytes)
      return found;
    name += "~";
  }
  return addConstant(name, type, {DataSource::Kind::inlineBytes, bytes, ""});
}

Value *Module::addParameter(std::string name, TensorType type, DataSource source) {
  assert(!global(name) && "two module-level values of one name");
  Parameter &parameter = parameters.emplace_back();
  parameter.value = makeGlobal(std::move(name), std::move(type));
  parameter.source = std::move(source);
  Value *value = parameter.value.get();
  where_[value] = {Table::parameters, static_cast<int>(parameters.size()) - 1};
  globals_[value->name] = value;
  return value;
}

Value *Module::addStorage(std::string name, TensorType type, Region region, DataSource source) {
  assert(!global(name) && "two module-level values of one name");
  storages.push_back({makeGlobal(std::move(name), std::move(type)), region, std::move(source)});
  Value *value = storages.back().value.get();
  where_[value] = {Table::storages, static_cast<int>(storages.size()) - 1};
  globals_[value->name] = value;
  return value;
}

Value *Module::global(llvm::StringRef name) const {
  auto found = globals_.find(std::string_view(name.data(), name.size()));
  return found == globals_.end() ? nullptr : found->second;
}

// The look-ups of constant modules hand out non-const entries, as global() does: a pass holds the module
// anyway.
#define ZEROCC_LOOK_UP(value, table)                                                                         \
  auto found = where_.find(value);                                                                           \
  if (found == where_.end() || found->second.first != Table::table)                                          \
    return nullptr;                                                                                          \
  return const_cast<decltype(Module::table) &>(table).data() + found->second.second

Parameter *Module::parameterOf(const Value *value) const { ZEROCC_LOOK_UP(value, parameters); }
Constant *Module::constantOf(const Value *value) const { ZEROCC_LOOK_UP(value, constants); }
Input *Module::inputOf(const Value *value) const { ZEROCC_LOOK_UP(value, inputs); }
Storage *Module::storageOf(const Value *value) const { ZEROCC_LOOK_UP(value, storages); }
#undef ZEROCC_LOOK_UP

void Module::reindex() {
  globals_.clear();
  where_.clear();
  auto enter = [&](auto &table, Table kind) {
    for (size_t i = 0; i < table.size(); ++i) {
      Value *value = table[i].value.get();
      globals_[value->name] = value;
      where_[value] = {kind, static_cast<int>(i)};
    }
  };
  enter(inputs, Table::inputs);
  enter(constants, Table::constants);
  enter(parameters, Table::parameters);
  enter(storages, Table::storages);
}
/// Copies nodes, places and results of `from` into `to`; `map` already knows the module-level values that
/// change.
static void copyBody(const Graph &from, Graph &to, llvm::DenseMap<const Value *, Value *> &map) {
  auto mapped = [&](auto *value) -> decltype(value) {
    auto found = map.find(value);
    return found == map.end() ? value : found->second;
  };
  llvm::DenseMap<const Node *, Node *> nodeMap;
  for (const Node *old : from.nodes) {
    llvm::SmallVector<Value *, 4> inputs;
    for (Value *input : old->inputs)
      inputs.push_back(mapped(input));
    llvm::SmallVector<TensorType, 3> types;
    for (const Value *result : old->results)
      types.push_back(result->type);
    Node *node = to.append(old->op, inputs, types, old->attributes, old->location);
    node->bucket = old->bucket;
    node->stream = old->stream;
    nodeMap[old] = node;
    for (auto [oldResult, result] : llvm::zip(old->results, node->results)) {
      result->name = oldResult->name;
      map[oldResult] = result;
    }
  }
  // Places and events may point at any node, so they follow once all nodes exist.
  for (const Node *old : from.nodes) {
    Node *node = nodeMap[old];
    for (Node *after : old->after)
      node->after.push_back(nodeMap.lookup(after) ? nodeMap.lookup(after) : after);
    for (auto [oldResult, result] : llvm::zip(old->results, node->results)) {
      result->place = oldResult->place;
      if (result->place.kind == Place::Kind::value)
        result->place.base = mapped(result->place.base);
    }
  }
  for (const auto &[name, value] : from.results)
    to.results.push_back({name, mapped(value)});
}

Graph &cloneGraph(Module &module, const Graph &graph, std::string name,
                  llvm::DenseMap<const Value *, Value *> *map) {
  llvm::DenseMap<const Value *, Value *> own;
  Graph &copy = module.addGraph(std::move(name));
  copyBody(graph, copy, own);
  if (map)
    for (const Node *node : graph.nodes)
      for (const Value *result : node->results)
        (*map)[result] = own[result];
  return copy;
}

std::unique_ptr<Module> cloneModule(const Module &module) {
  auto copy = std::make_unique<Module>();
  copy->name = module.name;
  copy->mesh = module.mesh;
  copy->microSteps = module.microSteps;
  copy->buckets = module.buckets;
  copy->facts = module.facts;
  std::copy(std::begin(module.regionBytes), std::end(module.regionBytes), std::begin(copy->regionBytes));

  llvm::DenseMap<const Value *, Value *> map;
  auto copyValue = [&](const Value &value) {
    auto twin = std::make_unique<Value>(value);
    map[&value] = twin.get();
    return twin;
  };
  for (const Input &input : module.inputs)
    copy->inputs.push_back({copyValue(*input.value), input.role, input.of, input.shift, input.hasRange,
                            input.low, input.high, input.hasIgnore, input.ignoreIndex});
  for (const Constant &constant : module.constants)
    copy->constants.push_back({copyValue(*constant.value), constant.source});
  for (const Parameter &parameter : module.parameters)
    copy->parameters.push_back({copyValue(*parameter.value), parameter.source, parameter.trainable,
                                parameter.group, parameter.tiedNote, parameter.bucket,
                                parameter.bucketOffset});
  for (const Storage &storage : module.storages)
    copy->storages.push_back({copyValue(*storage.value), storage.region, storage.source});
  auto moveBase = [&](auto &table) {
    for (auto &entry : table)
      if (entry.value->place.kind == Place::Kind::value)
        entry.value->place.base = map.lookup(entry.value->place.base);
  };
  moveBase(copy->inputs);
  moveBase(copy->constants);
  moveBase(copy->parameters);
  moveBase(copy->storages);
  copy->reindex();
  for (const std::unique_ptr<Graph> &graph : module.graphs)
    copyBody(*graph, copy->addGraph(graph->name), map);
  return copy;
}

Uses::Uses(const Graph &graph) {
  for (Node *node : graph.nodes)
    for (const Value *input : node->inputs)
      users_[input].push_back(node);
  for (const auto &[name, value] : graph.results)
    ++yielded_[value];
}

llvm::ArrayRef<Node *> Uses::of(const Value *value) const {
  auto found = users_.find(value);
  return found == users_.end() ? llvm::ArrayRef<Node *>() : llvm::ArrayRef<Node *>(found->second);
}

} // namespace zerocc
