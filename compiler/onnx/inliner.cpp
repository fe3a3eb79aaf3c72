#include "compiler/onnx/inliner.h"

#include "compiler/onnx/structure.h"

#include "llvm/ADT/StringRef.h"

#include "google/protobuf/unknown_field_set.h"

#include <algorithm>
#include <set>

namespace zerocc {
namespace {

/// What the names of one body mean outside of it.
struct Names {
  const Names *outer = nullptr; // graphs around a subgraph; null for the main graph and for functions
  std::string prefix;           // of names defined here
  std::map<std::string, std::string> known;
};

/// One function call, or the main graph.
struct Frame {
  const std::map<std::string, int64_t> *opsets;
  std::map<std::string, const onnx::AttributeProto *> attributes; // of the call, and defaults
  std::string path;                                               // names of the calls, "a/b/"
  std::string scope;                                              // of the call
};

/// The module path in name_scopes, "['', 'transformer', 'transformer.h.0', 'view_1']": the last but one
/// entry.
std::string moduleOfScopes(const std::string &scopes) {
  std::vector<std::string> entries;
  for (size_t at = 0; (at = scopes.find('\'', at)) != std::string::npos;) {
    size_t end = scopes.find('\'', at + 1);
    if (end == std::string::npos)
      break;
    entries.push_back(scopes.substr(at + 1, end - at - 1));
    at = end + 1;
  }
  return entries.size() < 2 ? "" : entries[entries.size() - 2];
}

/// "/transformer/h.0/ln_1/LayerNormalization", as the TorchScript exporter names nodes, is of
/// transformer.h.0.ln_1. A container that was called itself stands in front of its parts:
/// "/net/net.0/net.0.1/Conv" is of net.0.1.
std::string moduleOfNodeName(const std::string &name) {
  size_t last = name.find_last_of('/');
  if (name.empty() || name[0] != '/' || last == 0)
    return "";
  std::string path, before;
  llvm::StringRef rest = llvm::StringRef(name).slice(1, last);
  while (!rest.empty()) {
    auto [part, tail] = rest.split('/');
    rest = tail;
    if (!before.empty() && part.startswith(before + "."))
      path.resize(path.size() - before.size());
    else if (!path.empty())
      path += ".";
    path += part;
    before = part.str();
  }
  return path;
}

class Inliner {
public:
  explicit Inliner(const LoadedModel &model) : proto_(model.proto), flat_(std::make_unique<FlatModel>()) {
    for (const onnx::FunctionProto &function : proto_.functions()) {
      Function &entry = functions_[functionKey(function)];
      entry.proto = &function;
      for (const onnx::OperatorSetIdProto &import : function.opset_import())
        entry.opsets[normalDomain(import.domain())] = import.version();
      readDefaults(function, entry);
    }
    for (const onnx::OperatorSetIdProto &import : proto_.opset_import())
      opsets_[normalDomain(import.domain())] = import.version();
  }

  Expected<std::unique_ptr<FlatModel>> run() {
    const onnx::GraphProto &graph = proto_.graph();
    collectNames(graph);
    for (const onnx::TensorProto &tensor : graph.initializer())
      addInitializer(tensor.name(), &tensor);
    for (const onnx::ValueInfoProto &input : graph.input())
      if (!flat_->initializerOf.count(input.name()))
        flat_->graph.inputs.push_back(input.name());
    Frame frame{&opsets_, {}, "", ""};
    Names names;
    for (const std::string &name : used_)
      names.known[name] = name;
    ZEROCC_TRY(flatten(graph.node(), frame, names, flat_->graph.nodes));
    for (const onnx::ValueInfoProto &output : graph.output())
      flat_->graph.outputs.push_back(output.name());
    return std::move(flat_);
  }

private:
  struct Function {
    const onnx::FunctionProto *proto = nullptr;
    std::map<std::string, int64_t> opsets;
    std::map<std::string, const onnx::AttributeProto *> defaults;
  };

  /// attribute_proto of a function is younger than the class: it is read from the unknown fields.
  void readDefaults(const onnx::FunctionProto &function, Function &entry) {
    const google::protobuf::UnknownFieldSet &unknown = function.GetReflection()->GetUnknownFields(function);
    for (int i = 0; i < unknown.field_count(); ++i) {
      if (unknown.field(i).number() != kFunctionAttributes ||
          unknown.field(i).type() != google::protobuf::UnknownField::TYPE_LENGTH_DELIMITED)
        continue;
      onnx::AttributeProto &attribute = flat_->ownAttributes.emplace_back();
      if (attribute.ParseFromString(unknown.field(i).length_delimited()))
        entry.defaults[attribute.name()] = &attribute;
    }
  }

  void collectNames(const onnx::GraphProto &graph) {
    for (const onnx::ValueInfoProto &input : graph.input())
      used_.insert(input.name());
    for (const onnx::TensorProto &tensor : graph.initializer())
      used_.insert(tensor.name());
    for (const onnx::NodeProto &node : graph.node())
      used_.insert(node.output().begin(), node.output().end());
  }

  void addInitializer(const std::string &name, const onnx::TensorProto *tensor) {
    flat_->initializers.push_back({name, tensor});
    flat_->initializerOf[name] = tensor;
  }

  std::string fresh(const std::string &wanted) {
    std::string name = wanted;
    if (!used_.insert(name).second) // counts on from where it ended before: calls repeat their names
      for (int &i = repeats_[wanted]; !used_.insert(name).second;)
        name = wanted + "~" + std::to_string(++i + 1);
    nameBytes_ += static_cast<int64_t>(name.size());
    return name;
  }

  static std::string meaning(const Names &names, const std::string &name) {
    for (const Names *at = &names; at; at = at->outer)
      if (auto found = at->known.find(name); found != at->known.end())
        return found->second;
    return name;
  }

  std::string defined(Names &names, const std::string &name) {
    if (name.empty())
      return "";
    auto found = names.known.find(name);
    if (found != names.known.end())
      return found->second;
    return names.known[name] = fresh(names.prefix + name);
  }

  static const onnx::AttributeProto *resolve(const onnx::AttributeProto &attribute, const Frame &frame) {
    if (attribute.ref_attr_name().empty())
      return &attribute;
    auto found = frame.attributes.find(attribute.ref_attr_name());
    return found == frame.attributes.end() ? nullptr : found->second;
  }

  template <typename Nodes>
  Status flatten(const Nodes &nodes, const Frame &frame, Names &names, std::vector<FlatNode> &out) {
    for (const onnx::NodeProto &node : nodes) {
      auto function = functions_.find(functionKey(node));
      bool isConstant = normalDomain(node.domain()).empty() && node.op_type() == "Constant";
      ZEROCC_TRY(function != functions_.end() ? flattenCall(node, function->second, frame, names, out)
                 : isConstant                 ? hoistConstant(node, frame, names)
                                              : flattenNode(node, frame, names, out));
    }
    return success();
  }

  Status flattenNode(const onnx::NodeProto &node, const Frame &frame, Names &names,
                     std::vector<FlatNode> &out) {
    if (++flat_->nodes > kMaxNodes)
      return Error("inlining the model's functions makes more than " + std::to_string(kMaxNodes) + " nodes");
    nameBytes_ += static_cast<int64_t>(frame.path.size() + frame.scope.size());
    if (nameBytes_ > kMaxFlatNameBytes)
      return Error("inlining the model's functions makes names of more than " + std::to_string(kMaxFlatNameBytes) +
                       " bytes",
                   "shorten the names of nodes and values");
    FlatNode flat;
    flat.name = node.name().empty() ? "" : frame.path + node.name();
    flat.scope = scopeOf(node, frame);
    flat.domain = normalDomain(node.domain());
    flat.op = node.op_type();
    auto version = frame.opsets->find(flat.domain);
    flat.version = version == frame.opsets->end() ? 0 : version->second;
    for (const std::string &input : node.input())
      flat.inputs.push_back(input.empty() ? "" : meaning(names, input));
    for (const onnx::AttributeProto &attribute : node.attribute()) {
      const onnx::AttributeProto *resolved = resolve(attribute, frame);
      if (!resolved)
        continue; // an optional attribute that the call does not give
      if (!resolved->has_g()) {
        flat.attributes[attribute.name()] = resolved;
        continue;
      }
      std::string first = node.output_size() ? meaning(names, node.output(0)) : node.name();
      ZEROCC_ASSIGN(auto subgraph,
                    flattenGraph(resolved->g(), frame, names, first + "/" + attribute.name() + "/"));
      flat.subgraphs.push_back({attribute.name(), std::move(subgraph)});
    }
    for (const std::string &output : node.output())
      flat.outputs.push_back(defined(names, output));
    out.push_back(std::move(flat));
    return success();
  }

  Expected<std::unique_ptr<FlatGraph>> flattenGraph(const onnx::GraphProto &graph, const Frame &frame,
                                                    const Names &outer, const std::string &prefix) {
    auto flat = std::make_unique<FlatGraph>();
    Names names{&outer, prefix, {}};
    for (const onnx::ValueInfoProto &input : graph.input())
      flat->inputs.push_back(defined(names, input.name()));
    for (const onnx::TensorProto &tensor : graph.initializer())
      addInitializer(defined(names, tensor.name()), &tensor);
    ZEROCC_TRY(flatten(graph.node(), frame, names, flat->nodes));
    for (const onnx::ValueInfoProto &output : graph.output())
      flat->outputs.push_back(meaning(names, output.name()));
    return flat;
  }

  Status flattenCall(const onnx::NodeProto &call, const Function &function, const Frame &frame, Names &names,
                     std::vector<FlatNode> &out) {
    ++flat_->inlinedCalls;
    std::string first;
    for (const std::string &output : call.output())
      if (first.empty())
        first = defined(names, output);
    Names inner{nullptr, (first.empty() ? call.op_type() : first) + "/", {}};
    for (int i = 0; i < function.proto->input_size(); ++i)
      inner.known[function.proto->input(i)] =
          i < call.input_size() && !call.input(i).empty() ? meaning(names, call.input(i)) : "";
    // An output that is an input of the function too needs a node of its own: an Identity.
    std::vector<std::pair<std::string, std::string>> passedThrough;
    for (int i = 0; i < call.output_size(); ++i) {
      if (call.output(i).empty())
        continue;
      const std::string &formal = function.proto->output(i);
      if (inner.known.count(formal))
        passedThrough.push_back({inner.known[formal], defined(names, call.output(i))});
      else
        inner.known[formal] = defined(names, call.output(i));
    }
    Frame innerFrame{&function.opsets, function.defaults, frame.path + callName(call) + "/",
                     scopeOf(call, frame)};
    for (const onnx::AttributeProto &attribute : call.attribute())
      if (const onnx::AttributeProto *resolved = resolve(attribute, frame))
        innerFrame.attributes[attribute.name()] = resolved;
    ZEROCC_TRY(flatten(function.proto->node(), innerFrame, inner, out));
    for (const auto &[from, to] : passedThrough) {
      FlatNode identity;
      identity.name = frame.path + callName(call);
      identity.op = "Identity";
      identity.version = 1;
      identity.inputs = {from};
      identity.outputs = {to};
      out.push_back(std::move(identity));
    }
    return success();
  }

  static std::string callName(const onnx::NodeProto &call) {
    return call.name().empty() ? call.op_type() : call.name();
  }

  static std::string scopeOf(const onnx::NodeProto &node, const Frame &frame) {
    std::map<std::string, std::string> metadata = metadataOf(node, kNodeMetadata);
    auto scopes = metadata.find("pkg.torch.onnx.name_scopes");
    if (scopes != metadata.end())
      if (std::string module = moduleOfScopes(scopes->second); !module.empty())
        return module;
    if (std::string module = moduleOfNodeName(node.name()); !module.empty())
      return module;
    return frame.scope;
  }

  Status hoistConstant(const onnx::NodeProto &node, const Frame &frame, Names &names) {
    auto refuse = [&](const std::string &why) { return Error(nodeTitle(node) + ": " + why); };
    if (node.output_size() != 1 || node.output(0).empty())
      return refuse("a Constant has one output");
    const onnx::TensorProto *tensor = nullptr;
    int values = 0;
    for (const onnx::AttributeProto &attribute : node.attribute()) {
      const onnx::AttributeProto *resolved = resolve(attribute, frame);
      if (!resolved)
        continue;
      ++values;
      if (attribute.name() == "value" && resolved->has_t())
        tensor = &resolved->t();
      else
        tensor = tensorOf(attribute.name(), *resolved);
      if (!tensor)
        return refuse("attribute \"" + attribute.name() + "\" is not supported as a constant");
    }
    if (values != 1)
      return refuse("a Constant has one value, this one has " + std::to_string(values));
    addInitializer(defined(names, node.output(0)), tensor);
    return success();
  }

  /// value_float(s), value_int(s) as tensors.
  const onnx::TensorProto *tensorOf(const std::string &name, const onnx::AttributeProto &attribute) {
    onnx::TensorProto tensor;
    if (name == "value_float") {
      tensor.add_float_data(attribute.f());
    } else if (name == "value_floats") {
      *tensor.mutable_float_data() = attribute.floats();
      tensor.add_dims(attribute.floats_size());
    } else if (name == "value_int") {
      tensor.add_int64_data(attribute.i());
    } else if (name == "value_ints") {
      *tensor.mutable_int64_data() = attribute.ints();
      tensor.add_dims(attribute.ints_size());
    } else {
      return nullptr;
    }
    bool isFloat = name == "value_float" || name == "value_floats";
    tensor.set_data_type(isFloat ? onnx::TensorProto::FLOAT : onnx::TensorProto::INT64);
    flat_->ownTensors.push_back(std::move(tensor));
    return &flat_->ownTensors.back();
  }

  const onnx::ModelProto &proto_;
  std::unique_ptr<FlatModel> flat_;
  std::map<std::string, int64_t> opsets_;
  std::map<std::string, Function> functions_;
  std::set<std::string> used_;
  std::map<std::string, int> repeats_;
  int64_t nameBytes_ = 0;
};

} // namespace

Expected<std::unique_ptr<FlatModel>> inlineFunctions(const LoadedModel &model) {
  return Inliner(model).run();
}

} // namespace zerocc
