// The form that is understood:
//
//   loss = … (main graph and algorithm)
//   gradients = Gradient <xs, zs, y = loss> (xs, zs)
//   X', V', … = Adam | Momentum | Adagrad (R, T, X…, G…, states…)        one or more, alike but for
//   norm_coefficient T' = T + 1                                                            the update reads T
//   or T' update_binding: X <- X', V <- V', …, T <- T'
//
// with X in the main graph, states that start as zeros, and R stored or an input (--lr then).

#include "compiler/onnx/training_form.h"

#include "compiler/onnx/lower_gradient.h"
#include "compiler/onnx/settle_constants.h"
#include "compiler/ops/interpreter.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <set>

namespace zerocc {

Expected<MergedTraining> mergeTraining(LoadedModel &model) {
  MergedTraining merged;
  if (model.proto.training_info_size() == 0)
    return merged;
  if (model.proto.training_info_size() > 1)
    return Error("training_info: it has " + std::to_string(model.proto.training_info_size()) +
                     " algorithms, one after the other; only one is supported",
                 "train in several runs");
  onnx::GraphProto &graph = *model.proto.mutable_graph();
  onnx::TrainingInfoProto &training = *model.proto.mutable_training_info(0);
  if (!training.has_algorithm() || training.algorithm().node_size() == 0)
    return merged;
  merged.isThere = true;
  merged.inputs = graph.input_size();
  merged.initializers = graph.initializer_size();
  merged.nodes = graph.node_size();
  for (const auto &output : graph.output())
    merged.outputs.push_back(output.name());
  for (const auto &binding : training.update_binding())
    merged.updates[binding.key()] = binding.value();
  onnx::GraphProto &algorithm = *training.mutable_algorithm();
  graph.mutable_input()->MergeFrom(algorithm.input());
  graph.mutable_initializer()->MergeFrom(algorithm.initializer());
  graph.mutable_sparse_initializer()->MergeFrom(algorithm.sparse_initializer());
  graph.mutable_node()->MergeFrom(algorithm.node());
  graph.mutable_value_info()->MergeFrom(algorithm.value_info());
  algorithm.Clear();
  return merged;
}

namespace {

bool isUpdate(const onnx::NodeProto &node) {
  return node.domain() == kTrainingDomain &&
         (node.op_type() == "Adam" || node.op_type() == "Momentum" || node.op_type() == "Adagrad");
}

double floatOf(const onnx::NodeProto &node, const std::string &name, float otherwise) {
  for (const onnx::AttributeProto &attribute : node.attribute())
    if (attribute.name() == name)
      return attribute.f();
  return otherwise;
}

std::string stringOf(const onnx::NodeProto &node, const std::string &name) {
  for (const onnx::AttributeProto &attribute : node.attribute())
    if (attribute.name() == name)
      return attribute.s();
  return "";
}

std::vector<std::string> stringsOf(const onnx::NodeProto &node, const std::string &name) {
  for (const onnx::AttributeProto &attribute : node.attribute())
    if (attribute.name() == name)
      return {attribute.strings().begin(), attribute.strings().end()};
  return {};
}

std::string quoted(const std::string &name) { return "\"" + name + "\""; }

class Reader {
public:
  Reader(LoadedModel &model, const MergedTraining &merged)
      : model_(model), merged_(merged), graph_(*model.proto.mutable_graph()), updates_(merged.updates) {
    for (const onnx::NodeProto &node : graph_.node())
      for (const std::string &output : node.output())
        producers_[output] = &node;
    for (int i = 0; i < graph_.initializer_size(); ++i)
      initializers_[graph_.initializer(i).name()] = i;
  }

  Expected<TrainingForm> run() {
    ZEROCC_TRY(readGradient());
    bool isFirst = true;
    for (const onnx::NodeProto &node : graph_.node())
      if (isUpdate(node)) {
        ZEROCC_TRY(readUpdate(node, isFirst));
        isFirst = false;
      }
    if (isFirst)
      return Error("its algorithm has no Adam, Momentum or Adagrad node",
                   "train from the main graph: remove training_info");
    if (!updates_.empty())
      return Error("update_binding changes " + quoted(updates_.begin()->first) +
                   ", which is neither a tensor that the optimizer updates nor its state nor its count");
    return std::move(form_);
  }

private:
  // --- values
  // -------------------------------------------------------------------------------------------------------

  const onnx::TensorProto *stored(const std::string &name) const {
    if (auto found = initializers_.find(name); found != initializers_.end())
      return &graph_.initializer(found->second);
    auto producer = producers_.find(name);
    if (producer == producers_.end() || producer->second->op_type() != "Constant" ||
        !producer->second->domain().empty())
      return nullptr;
    for (const onnx::AttributeProto &attribute : producer->second->attribute())
      if (attribute.name() == "value" && attribute.has_t())
        return &attribute.t();
    return nullptr;
  }

  Expected<const onnx::TensorProto *> checked(const std::string &name) {
    const onnx::TensorProto *tensor = stored(name);
    if (!tensor)
      return Error(quoted(name) + " is not stored in the model");
    if (Status ok = model_.checkPayload(*tensor); !ok)
      return ok.error().in("initializer " + quoted(name));
    return tensor;
  }

  Expected<double> numberOf(const std::string &name, const std::string &what) {
    Expected<const onnx::TensorProto *> tensor = checked(name);
    if (!tensor)
      return tensor.error().in(what);
    ZEROCC_ASSIGN(TensorType type, LoadedModel::typeOf(**tensor));
    if (type.elements() != 1)
      return Error(what + " " + quoted(name) + " is " + print(type) + ", expected one number");
    ZEROCC_ASSIGN(std::string bytes, model_.bytesOf(**tensor));
    return HostTensor::fromBytes(type, bytes).at(0);
  }

  Expected<bool> isZero(const onnx::TensorProto &tensor) {
    constexpr int64_t kBlock = int64_t{1} << 20;
    ZEROCC_ASSIGN(TensorType type, LoadedModel::typeOf(tensor));
    for (int64_t at = 0; at < type.bytes(); at += kBlock) {
      ZEROCC_ASSIGN(std::string block, model_.bytesOf(tensor, at, std::min(kBlock, type.bytes() - at)));
      if (llvm::any_of(block, [](char c) { return c != 0; }))
        return false;
    }
    return true;
  }

  bool isInput(const std::string &name) const {
    return llvm::any_of(graph_.input(), [&](const auto &input) { return input.name() == name; });
  }

  // --- Gradient
  // -----------------------------------------------------------------------------------------------------

  Status readGradient() {
    const onnx::NodeProto *gradient = nullptr;
    for (const onnx::NodeProto &node : graph_.node()) {
      if (node.domain() != kTrainingDomain || node.op_type() != "Gradient")
        continue;
      if (gradient)
        return Error("it has several Gradient nodes; only one is supported");
      gradient = &node;
    }
    if (!gradient)
      return Error("its algorithm has no Gradient node", "train from the main graph: remove training_info");
    std::vector<std::string> xs = stringsOf(*gradient, "xs"), named = xs, zs = stringsOf(*gradient, "zs");
    named.insert(named.end(), zs.begin(), zs.end());
    if (std::vector<std::string>(gradient->input().begin(), gradient->input().end()) != named)
      return Error("Gradient is taken elsewhere than at the tensors it names: its inputs are not xs and zs");
    form_.loss = stringOf(*gradient, "y");
    if (!producers_.count(form_.loss))
      return Error("y = " + quoted(form_.loss) + " is not computed");
    for (size_t i = 0; i < xs.size(); ++i) {
      if (initializers_.count(xs[i]) && initializers_[xs[i]] >= merged_.initializers)
        return Error(quoted(xs[i]) + " of xs is stored with the algorithm, not in the main graph");
      if (static_cast<int>(i) < gradient->output_size())
        gradientOf_[xs[i]] = gradient->output(static_cast<int>(i));
    }
    return success();
  }

  // --- updates
  // ------------------------------------------------------------------------------------------------------

  Status readUpdate(const onnx::NodeProto &node, bool isFirst) {
    const int states = node.op_type() == "Adam" ? 2 : 1, kinds = 2 + states;
    const int count = (node.input_size() - 2) / kinds;
    if (count < 1 || (node.input_size() - 2) % kinds != 0 || node.output_size() != count * (1 + states))
      return Error(node.op_type() + " has " + std::to_string(node.input_size()) + " inputs and " +
                   std::to_string(node.output_size()) + " outputs, which is not " + std::to_string(kinds) +
                   " and " + std::to_string(1 + states) + " for each tensor");
    TrainingForm own;
    readAttributes(node, own);
    ZEROCC_TRY(readRate(node.input(0), own));
    ZEROCC_TRY(readCount(node.input(1), own));
    if (!isFirst && !isAlike(own))
      return Error(
          "its optimizer nodes differ in kind, attributes, R or T; only norm_coefficient may differ");
    if (isFirst) {
      own.loss = form_.loss;
      form_ = own;
    }
    double decay = floatOf(node, "norm_coefficient", 0);
    for (int i = 0; i < count; ++i) {
      ZEROCC_TRY(readTensor(node, i, count, decay));
      for (int state = 0; state < states; ++state)
        ZEROCC_TRY(readState(node.input(2 + (2 + state) * count + i), node.output((1 + state) * count + i)));
    }
    return success();
  }

  static void readAttributes(const onnx::NodeProto &node, TrainingForm &own) {
    own.optimizer = node.op_type();
    if (own.optimizer == "Adam") {
      own.beta1 = floatOf(node, "alpha", 0.9F);
      own.beta2 = floatOf(node, "beta", 0.999F);
      own.postDecay = floatOf(node, "norm_coefficient_post", 0);
      own.eps = floatOf(node, "epsilon", 0);
    } else if (own.optimizer == "Momentum") {
      own.momentum = floatOf(node, "alpha", 0);
      own.dampening = 1 - floatOf(node, "beta", 1);
      own.nesterov = stringOf(node, "mode") == "nesterov";
    } else {
      own.rateDecay = floatOf(node, "decay_factor", 0);
      own.eps = floatOf(node, "epsilon", 0);
    }
  }

  bool isAlike(const TrainingForm &own) const {
    auto key = [](const TrainingForm &f) {
      return std::tie(f.optimizer, f.lr, f.beta1, f.beta2, f.eps, f.momentum, f.nesterov, f.dampening,
                      f.postDecay, f.rateDecay, f.firstCount);
    };
    return key(own) == key(form_);
  }

  Status readRate(const std::string &name, TrainingForm &own) {
    if (merged_.updates.count(name))
      return Error("the learning rate " + quoted(name) + " changes from step to step, which is not supported",
                   "store one rate, and use --lr-schedule");
    if (isInput(name) && !stored(name))
      return success();
    if (!stored(name))
      return Error("the learning rate " + quoted(name) + " is computed, which is not supported",
                   "store one rate, and use --lr-schedule");
    ZEROCC_ASSIGN(own.lr, numberOf(name, "the learning rate"));
    return success();
  }

  /// T is a stored number that each step adds 1 to, before or after it is read.
  Status readCount(const std::string &name, TrainingForm &own) {
    bool isRead = own.optimizer == "Adam" || own.dampening != 0 || own.rateDecay != 0;
    std::string state = name;
    bool readsNext = false;
    if (auto producer = producers_.find(name);
        producer != producers_.end() && producer->second->input_size() == 2)
      for (const std::string &input : producer->second->input())
        if (auto update = merged_.updates.find(input);
            update != merged_.updates.end() && update->second == name) {
          state = input;
          readsNext = true;
        }
    auto update = merged_.updates.find(state);
    if (update == merged_.updates.end()) {
      if (isRead)
        return Error("the update count " + quoted(name) + " is not counted by the algorithm",
                     "bind it in update_binding to itself plus 1");
      return success();
    }
    const onnx::NodeProto *next = producers_.count(update->second) ? producers_[update->second] : nullptr;
    bool isCounter = next && next->op_type() == "Add" && next->domain().empty() && next->input_size() == 2;
    if (isCounter) {
      const std::string &one = next->input(0) == state ? next->input(1) : next->input(0);
      isCounter = (next->input(0) == state) != (next->input(1) == state);
      Expected<double> number = isCounter ? numberOf(one, "the addend") : 0;
      isCounter = isCounter && number && *number == 1;
    }
    if (!isCounter)
      return Error("the update count " + quoted(state) + " does not become itself plus 1");
    ZEROCC_ASSIGN(double first, numberOf(state, "the update count"));
    if (!(first >= 0) || first != static_cast<double>(static_cast<int64_t>(first)) || first > 1e15)
      return Error("the update count " + quoted(state) + " starts at " + std::to_string(first));
    own.firstCount = static_cast<uint64_t>(first) + readsNext;
    updates_.erase(state);
    return success();
  }

  Status readTensor(const onnx::NodeProto &node, int i, int count, double decay) {
    const std::string &x = node.input(2 + i), &gradient = node.input(2 + count + i);
    if (!gradientOf_.count(x))
      return Error(node.op_type() + " updates " + quoted(x) + ", which is not among the xs of Gradient");
    if (!initializers_.count(x))
      return Error(node.op_type() + " updates " + quoted(x) + ", which is not an initializer");
    if (gradientOf_[x] != gradient)
      return Error("the gradient of " + quoted(x) + " is changed before the update, which is not supported",
                   "for clipping, take it out and use --clip-grad-norm");
    if (auto update = updates_.find(x); update == updates_.end() || update->second != node.output(i))
      return Error("update_binding does not bind " + quoted(x) + " to its update " + quoted(node.output(i)) +
                   ", or it is updated twice");
    updates_.erase(x);
    form_.parameters.push_back(x);
    bool isMatrix = graph_.initializer(initializers_[x]).dims_size() >= 2;
    std::optional<double> &ofRank = isMatrix ? form_.decay : form_.vectorDecay;
    if (ofRank && *ofRank != decay)
      return Error("norm_coefficient differs among " + std::string(isMatrix ? "matrices" : "vectors") +
                   ": one for matrices and one for vectors are supported");
    ofRank = decay;
    return success();
  }

  Status readState(const std::string &state, const std::string &next) {
    ZEROCC_ASSIGN(const onnx::TensorProto *tensor, checked(state));
    ZEROCC_ASSIGN(bool startsAsZeros, isZero(*tensor));
    if (!startsAsZeros)
      return Error("state " + quoted(state) + " does not start as zeros",
                   "training goes on from a checkpoint, not from a model; store zeros");
    if (auto update = updates_.find(state); update == updates_.end() || update->second != next)
      return Error("update_binding does not bind state " + quoted(state) + " to " + quoted(next));
    updates_.erase(state);
    return success();
  }

  LoadedModel &model_;
  const MergedTraining &merged_;
  onnx::GraphProto &graph_;
  std::map<std::string, std::string> updates_; // not accounted for yet
  std::map<std::string, const onnx::NodeProto *> producers_;
  std::map<std::string, int> initializers_;
  std::map<std::string, std::string> gradientOf_; // by xs
  TrainingForm form_;
};

/// The names that a node and its subgraphs read.
void addNames(const onnx::NodeProto &node, std::set<std::string> &names) {
  auto addGraph = [&](const onnx::GraphProto &graph) {
    for (const onnx::NodeProto &inner : graph.node())
      addNames(inner, names);
    for (const auto &output : graph.output())
      names.insert(output.name());
  };
  names.insert(node.input().begin(), node.input().end());
  for (const onnx::AttributeProto &attribute : node.attribute()) {
    if (attribute.has_g())
      addGraph(attribute.g());
    for (const onnx::GraphProto &subgraph : attribute.graphs())
      addGraph(subgraph);
  }
}

template <typename List, typename Keep> void keepOnly(List &list, int from, Keep keep) {
  int kept = from;
  for (int i = from; i < list.size(); ++i)
    if (keep(list.Get(i)))
      list.SwapElements(kept++, i);
  list.DeleteSubrange(kept, list.size() - kept);
}

/// Drops what no output of the main graph and no loss needs of the algorithm.
void dropAlgorithm(onnx::GraphProto &graph, const MergedTraining &merged, const std::string &loss) {
  if (!llvm::is_contained(merged.outputs, loss))
    graph.add_output()->set_name(loss);
  std::set<std::string> needed;
  for (const auto &output : graph.output())
    needed.insert(output.name());
  std::set<int> dropped;
  for (int i = graph.node_size() - 1; i >= 0; --i) {
    const onnx::NodeProto &node = graph.node(i);
    if (i >= merged.nodes &&
        llvm::none_of(node.output(), [&](const auto &output) { return needed.count(output); })) {
      dropped.insert(i);
      continue;
    }
    addNames(node, needed);
  }
  int index = merged.nodes;
  keepOnly(*graph.mutable_node(), merged.nodes, [&](const auto &) { return dropped.count(index++) == 0; });
  keepOnly(*graph.mutable_initializer(), merged.initializers,
           [&](const auto &tensor) { return needed.count(tensor.name()) != 0; });
  keepOnly(*graph.mutable_input(), merged.inputs,
           [&](const auto &input) { return needed.count(input.name()) != 0; });
}

} // namespace

Expected<TrainingForm> readTraining(LoadedModel &model, const MergedTraining &merged, ImportReport &report) {
  Expected<TrainingForm> form = Reader(model, merged).run();
  if (!form)
    return form.error().in("training_info");
  onnx::GraphProto &graph = *model.proto.mutable_graph();
  dropAlgorithm(graph, merged, form->loss);
  for (int i = merged.initializers; i < graph.initializer_size(); ++i) {
    Expected<TensorType> type = LoadedModel::typeOf(graph.initializer(i));
    if (type && type->bytes() > kInlineConstantBytes)
      return Error("training_info: the loss reads " + quoted(graph.initializer(i).name()) + " of " +
                       std::to_string(type->bytes()) + " bytes, which is stored with the algorithm",
                   "store it in the main graph");
  }
  report.notes.push_back("training_info: loss " + quoted(form->loss) + ", " +
                         std::to_string(form->parameters.size()) + " trained tensors, " + form->optimizer);
  if (model.proto.training_info(0).has_initialization() &&
      model.proto.training_info(0).initialization().node_size() > 0)
    report.notes.push_back(
        "training_info: its initialization is not run, training starts from the stored values");
  return form;
}

} // namespace zerocc
