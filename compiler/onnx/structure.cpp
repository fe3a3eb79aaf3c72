#include "compiler/onnx/structure.h"

#include "llvm/ADT/STLExtras.h"

#include <map>
#include <set>

namespace zerocc {

std::string normalDomain(const std::string &domain) { return domain == "ai.onnx" ? "" : domain; }

std::string functionKey(const onnx::FunctionProto &function) {
  std::string overload = unknownString(function, kFunctionOverload);
  return normalDomain(function.domain()) + "::" + function.name() + (overload.empty() ? "" : ":" + overload);
}

std::string functionKey(const onnx::NodeProto &call) {
  std::string overload = unknownString(call, kNodeOverload);
  return normalDomain(call.domain()) + "::" + call.op_type() + (overload.empty() ? "" : ":" + overload);
}

std::string nodeTitle(const std::string &name, const std::string &op, const std::string &firstOutput) {
  if (!name.empty())
    return "node \"" + name + "\" (" + op + ")";
  return "node of \"" + firstOutput + "\" (" + op + ")";
}

std::string nodeTitle(const onnx::NodeProto &node) {
  return nodeTitle(node.name(), node.op_type(), node.output_size() ? node.output(0) : "");
}

namespace {

/// The names that can be read at one place: those of this graph and of the graphs around it.
struct Scope {
  const Scope *outer = nullptr;
  std::set<std::string> names;

  bool sees(const std::string &name) const {
    return names.count(name) || (outer && outer->sees(name));
  }
};

/// What a body (graph or function) may do.
struct Body {
  std::string where;                                  // "" for the main graph
  const std::map<std::string, int64_t> *opsets;       // domain -> version
  bool inFunction = false;
};

class StructureCheck {
public:
  explicit StructureCheck(LoadedModel &model) : model_(model), proto_(model.proto) {}

  std::vector<Diagnostic> run() {
    checkVersions();
    for (const onnx::FunctionProto &function : proto_.functions())
      if (!functions_.emplace(functionKey(function), &function).second)
        find("function \"" + functionKey(function) + "\" is defined twice");
    if (!proto_.has_graph()) {
      find("the model has no graph");
      return std::move(findings_);
    }
    Scope none;
    checkGraph(proto_.graph(), {"", &opsets_, false}, none);
    checkCalls();
    for (const onnx::FunctionProto &function : proto_.functions())
      checkFunction(function);
    if (hidden_ > 0)
      findings_.push_back({"and " + std::to_string(hidden_) + " more findings", ""});
    return std::move(findings_);
  }

private:
  static constexpr size_t kMaxFindings = 50;

  void find(std::string message, std::string hint = "") {
    if (findings_.size() < kMaxFindings)
      findings_.push_back({std::move(message), std::move(hint)});
    else
      ++hidden_;
  }
  void findIn(const Body &body, const std::string &message, const std::string &hint = "") {
    find(body.where.empty() ? message : body.where + ": " + message, hint);
  }

  // --- versions ---------------------------------------------------------------------------------------------------

  template <typename Imports> std::map<std::string, int64_t> readOpsets(const Imports &imports, const Body &body) {
    std::map<std::string, int64_t> opsets;
    for (const onnx::OperatorSetIdProto &import : imports) {
      std::string domain = normalDomain(import.domain());
      std::string shown = domain.empty() ? "ai.onnx" : domain;
      if (!opsets.emplace(domain, import.version()).second)
        findIn(body, "opset of domain \"" + shown + "\" is imported twice");
      if (import.version() < 1)
        findIn(body, "opset " + std::to_string(import.version()) + " of domain \"" + shown + "\" is not a version");
      if (domain.empty() && import.version() > kNewestOpset)
        findIn(body, "opset " + std::to_string(import.version()) + " is newer than the newest known one, " +
                         std::to_string(kNewestOpset),
               "export with opset_version=" + std::to_string(kNewestOpset) + " or lower");
    }
    return opsets;
  }

  void checkVersions() {
    if (proto_.ir_version() < kOldestIrVersion)
      find("IR version " + std::to_string(proto_.ir_version()) + " is older than the oldest known one, " +
               std::to_string(kOldestIrVersion),
           "is this an ONNX model? If so, export it again");
    opsets_ = readOpsets(proto_.opset_import(), {"", nullptr, false});
    if (opsets_.empty())
      find("the model imports no opset");
  }

  // --- graphs -----------------------------------------------------------------------------------------------------

  /// `what`: "input", or with what makes it, "node "x" (Add): output".
  void define(Scope &scope, const Body &body, const std::string &name, const std::string &what) {
    if (name.empty())
      findIn(body, what + " without a name");
    else if (scope.sees(name))
      findIn(body, what + " \"" + name + "\": the name is defined before");
    else
      scope.names.insert(name);
  }

  void checkGraph(const onnx::GraphProto &graph, const Body &body, const Scope &outer) {
    Scope scope{&outer, {}};
    for (const onnx::ValueInfoProto &input : graph.input())
      define(scope, body, input.name(), "input");
    std::set<std::string> initializers;
    for (const onnx::TensorProto &tensor : graph.initializer()) {
      // Old files list initializers among the inputs too.
      if (!initializers.insert(tensor.name()).second || !scope.names.count(tensor.name()))
        define(scope, body, tensor.name(), "initializer");
      checkTensor(tensor, body, "initializer \"" + tensor.name() + "\"");
    }
    for (const onnx::SparseTensorProto &sparse : graph.sparse_initializer())
      findIn(body, "initializer \"" + sparse.values().name() + "\" is sparse, which is not supported",
             "store it as a dense tensor");
    checkNodes(graph.node(), body, scope);
    std::set<std::string> outputs;
    for (const onnx::ValueInfoProto &output : graph.output()) {
      if (!scope.sees(output.name()))
        findIn(body, "output \"" + output.name() + "\" is not made by any node");
      if (!outputs.insert(output.name()).second)
        findIn(body, "output \"" + output.name() + "\" is listed twice");
    }
  }

  template <typename Nodes> void checkNodes(const Nodes &nodes, const Body &body, Scope &scope) {
    std::map<std::string, int> makers; // outputs of nodes, for the wording of order faults
    for (int i = 0; i < nodes.size(); ++i)
      for (const std::string &output : nodes.Get(i).output())
        makers.emplace(output, i);
    bool disordered = false;
    for (int i = 0; i < nodes.size(); ++i) {
      const onnx::NodeProto &node = nodes.Get(i);
      for (const std::string &input : node.input()) {
        if (input.empty() || scope.sees(input))
          continue;
        auto maker = makers.find(input);
        if (maker == makers.end())
          findIn(body, nodeTitle(node) + ": input \"" + input + "\" is not defined");
        else
          disordered = true;
      }
      checkNode(node, body, scope);
      if (node.output_size() == 0)
        findIn(body, nodeTitle(node) + " has no outputs");
      for (const std::string &output : node.output())
        if (!output.empty())
          define(scope, body, output, nodeTitle(node) + ": output");
    }
    if (disordered)
      explainDisorder(nodes, body, makers);
  }

  /// Nodes that read what comes later: on a cycle, or only out of order.
  template <typename Nodes>
  void explainDisorder(const Nodes &nodes, const Body &body, const std::map<std::string, int> &makers) {
    std::vector<int> waiting(nodes.size(), 0);
    std::vector<std::vector<int>> readers(nodes.size());
    for (int i = 0; i < nodes.size(); ++i)
      for (const std::string &input : nodes.Get(i).input())
        if (auto maker = makers.find(input); maker != makers.end()) {
          readers[maker->second].push_back(i);
          ++waiting[i];
        }
    std::vector<int> ready;
    for (int i = 0; i < nodes.size(); ++i)
      if (waiting[i] == 0)
        ready.push_back(i);
    size_t done = 0;
    for (; done < ready.size(); ++done)
      for (int reader : readers[ready[done]])
        if (--waiting[reader] == 0)
          ready.push_back(reader);
    if (done < static_cast<size_t>(nodes.size())) {
      for (int i = 0; i < nodes.size(); ++i)
        if (waiting[i] > 0) {
          findIn(body, nodeTitle(nodes.Get(i)) + " lies on or behind a cycle of nodes");
          return;
        }
    }
    for (int i = 0; i < nodes.size(); ++i)
      for (const std::string &input : nodes.Get(i).input())
        if (auto maker = makers.find(input); maker != makers.end() && maker->second > i) {
          findIn(body, nodeTitle(nodes.Get(i)) + ": input \"" + input + "\" is made later, by " +
                           nodeTitle(nodes.Get(maker->second)),
                 "ONNX wants nodes in topological order");
          return;
        }
  }

  void checkNode(const onnx::NodeProto &node, const Body &body, const Scope &scope) {
    if (node.op_type().empty())
      findIn(body, nodeTitle(node) + " without an op");
    if (!body.opsets->count(normalDomain(node.domain())))
      findIn(body, nodeTitle(node) + ": no opset is imported for domain \"" +
                       (node.domain().empty() ? "ai.onnx" : node.domain()) + "\"");
    std::set<std::string> names;
    for (const onnx::AttributeProto &attribute : node.attribute()) {
      if (attribute.name().empty())
        findIn(body, nodeTitle(node) + ": an attribute without a name");
      else if (!names.insert(attribute.name()).second)
        findIn(body, nodeTitle(node) + ": attribute \"" + attribute.name() + "\" is given twice");
      checkAttribute(attribute, body, nodeTitle(node), scope);
    }
  }

  /// True when the fields that are set are those of the type.
  static bool fieldMatchesType(const onnx::AttributeProto &a) {
    int scalars = a.has_f() + a.has_i() + a.has_s() + a.has_t() + a.has_g() + a.has_sparse_tensor() + a.has_tp();
    int lists = (a.floats_size() > 0) + (a.ints_size() > 0) + (a.strings_size() > 0) + (a.tensors_size() > 0) +
                (a.graphs_size() > 0) + (a.sparse_tensors_size() > 0) + (a.type_protos_size() > 0);
    using Type = onnx::AttributeProto;
    switch (a.type()) {
    case Type::FLOAT: // a scalar that equals its default may be left out by proto3 writers
      return lists == 0 && scalars == a.has_f();
    case Type::INT:
      return lists == 0 && scalars == a.has_i();
    case Type::STRING:
      return lists == 0 && scalars == a.has_s();
    case Type::TENSOR:
      return lists == 0 && scalars == 1 && a.has_t();
    case Type::GRAPH:
      return lists == 0 && scalars == 1 && a.has_g();
    case Type::SPARSE_TENSOR:
      return lists == 0 && scalars == 1 && a.has_sparse_tensor();
    case Type::TYPE_PROTO:
      return lists == 0 && scalars == 1 && a.has_tp();
    case Type::FLOATS:
      return scalars == 0 && lists == (a.floats_size() > 0);
    case Type::INTS:
      return scalars == 0 && lists == (a.ints_size() > 0);
    case Type::STRINGS:
      return scalars == 0 && lists == (a.strings_size() > 0);
    case Type::TENSORS:
      return scalars == 0 && lists == (a.tensors_size() > 0);
    case Type::GRAPHS:
      return scalars == 0 && lists == (a.graphs_size() > 0);
    case Type::SPARSE_TENSORS:
      return scalars == 0 && lists == (a.sparse_tensors_size() > 0);
    case Type::TYPE_PROTOS:
      return scalars == 0 && lists == (a.type_protos_size() > 0);
    default:
      return false;
    }
  }

  void checkAttribute(const onnx::AttributeProto &attribute, const Body &body, const std::string &owner,
                      const Scope &scope) {
    std::string title = owner + ": attribute \"" + attribute.name() + "\"";
    if (!attribute.ref_attr_name().empty()) {
      if (!body.inFunction)
        findIn(body, title + " refers to an attribute of a function, but stands outside of one");
      return;
    }
    if (!fieldMatchesType(attribute)) {
      findIn(body, title + " holds a value of another kind than it says");
      return;
    }
    if (attribute.has_t())
      checkTensor(attribute.t(), body, title);
    for (const onnx::TensorProto &tensor : attribute.tensors())
      checkTensor(tensor, body, title);
    Body inner = body;
    inner.where = (body.where.empty() ? "" : body.where + ": ") + title;
    if (attribute.has_g())
      checkGraph(attribute.g(), inner, scope);
    for (const onnx::GraphProto &graph : attribute.graphs())
      checkGraph(graph, inner, scope);
  }

  void checkTensor(const onnx::TensorProto &tensor, const Body &body, const std::string &title) {
    // A dtype we have no counterpart for is refused where a node needs the tensor.
    if (!dtypeFromOnnx(tensor.data_type()))
      return;
    if (Status status = model_.checkPayload(tensor); !status)
      for (const Diagnostic &finding : status.error().findings())
        findIn(body, title + ": " + finding.message, finding.hint);
  }

  // --- functions --------------------------------------------------------------------------------------------------

  void checkFunction(const onnx::FunctionProto &function) {
    Body body{"function \"" + functionKey(function) + "\"", nullptr, true};
    std::map<std::string, int64_t> opsets = readOpsets(function.opset_import(), body);
    body.opsets = &opsets;
    Scope none, scope{&none, {}};
    for (const std::string &input : function.input())
      define(scope, body, input, "input");
    checkNodes(function.node(), body, scope);
    std::set<std::string> outputs;
    for (const std::string &output : function.output()) {
      if (!outputs.insert(output).second)
        findIn(body, "output \"" + output + "\" is listed twice");
      if (!scope.sees(output))
        findIn(body, "output \"" + output + "\" is not made by any node");
    }
  }

  /// Calls `visit` for every node of a body, also in subgraphs.
  template <typename Nodes, typename F> static void eachNode(const Nodes &nodes, F visit) {
    for (const onnx::NodeProto &node : nodes) {
      visit(node);
      for (const onnx::AttributeProto &attribute : node.attribute()) {
        if (attribute.has_g())
          eachNode(attribute.g().node(), visit);
        for (const onnx::GraphProto &graph : attribute.graphs())
          eachNode(graph.node(), visit);
      }
    }
  }

  /// Nodes after inlining, and one for every call: bodies may be empty. -1 when calls form a cycle or nest too deep (said once).
  template <typename Nodes> int64_t inlinedNodes(const Nodes &nodes, std::vector<std::string> &stack) {
    int64_t total = 0;
    eachNode(nodes, [&](const onnx::NodeProto &node) {
      if (total < 0)
        return;
      auto function = functions_.find(functionKey(node));
      int64_t own = function == functions_.end() ? 1 : inlinedNodesOf(*function->second, stack);
      total = own < 0 ? -1 : std::min(total + own, kMaxNodes + 1); // saturates
    });
    return total;
  }

  int64_t inlinedNodesOf(const onnx::FunctionProto &function, std::vector<std::string> &stack) {
    std::string key = functionKey(function);
    if (auto known = functionSizes_.find(key); known != functionSizes_.end())
      return known->second;
    if (llvm::is_contained(stack, key)) {
      find("function \"" + key + "\" calls itself, directly or through others");
      return -1;
    }
    if (stack.size() >= static_cast<size_t>(kMaxCallDepth)) {
      find("function calls are nested deeper than " + std::to_string(kMaxCallDepth));
      return -1;
    }
    stack.push_back(key);
    int64_t size = inlinedNodes(function.node(), stack);
    size += size >= 0;
    stack.pop_back();
    return functionSizes_[key] = size;
  }

  void checkCalls() {
    std::vector<std::string> stack;
    int64_t total = inlinedNodes(proto_.graph().node(), stack), written = 0;
    eachNode(proto_.graph().node(), [&](const onnx::NodeProto &) { ++written; });
    if (total - written > kMaxInlined)
      find("inlining the model's functions makes more than " + std::to_string(kMaxInlined) + " nodes",
           "export without functions");
    eachNode(proto_.graph().node(), [&](const onnx::NodeProto &node) { checkArity(node); });
    for (const onnx::FunctionProto &function : proto_.functions())
      eachNode(function.node(), [&](const onnx::NodeProto &node) { checkArity(node); });
  }

  void checkArity(const onnx::NodeProto &node) {
    auto found = functions_.find(functionKey(node));
    if (found == functions_.end())
      return;
    const onnx::FunctionProto &function = *found->second;
    if (node.input_size() > function.input_size() || node.output_size() > function.output_size())
      find(nodeTitle(node) + ": " + std::to_string(node.input_size()) + " inputs and " +
           std::to_string(node.output_size()) + " outputs, its function has " + std::to_string(function.input_size()) +
           " and " + std::to_string(function.output_size()));
  }

  LoadedModel &model_;
  const onnx::ModelProto &proto_;
  std::map<std::string, int64_t> opsets_;
  std::map<std::string, const onnx::FunctionProto *> functions_;
  std::map<std::string, int64_t> functionSizes_;
  std::vector<Diagnostic> findings_;
  int64_t hidden_ = 0;
};

} // namespace

std::vector<Diagnostic> checkStructure(LoadedModel &model) { return StructureCheck(model).run(); }

} // namespace zerocc
