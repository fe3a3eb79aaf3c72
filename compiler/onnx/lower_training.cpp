// Lowerings of domain ai.onnx.preview.training: the updates of Adam, Momentum and Adagrad as ONNX defines
// them, and Gradient.

#include "compiler/onnx/lower_gradient.h"
#include "compiler/onnx/lowerings.h"

#include "compiler/ops/reverse_mode.h"

#include "llvm/ADT/STLExtras.h"

namespace zerocc {

// ---------------------------------------------------------------------------------------------------------------
// Updates

namespace {

/// The operands R, T, then for each of several kinds (X, G, states) one tensor per updated one.
class Update {
public:
  Update(NodeLowering &n, int kinds) : n(n) {
    int tensors = n.operandCount() - 2;
    if (tensors <= 0 || tensors % kinds != 0) {
      n.fail("has " + std::to_string(n.operandCount()) + " operands, expected R, T and " +
             std::to_string(kinds) + " for each updated tensor");
      return;
    }
    count = tensors / kinds;
    for (int i : {0, 1})
      if (Value *value = n.in(i); value && value->type.elements() != 1)
        n.fail("operand " + std::to_string(i) + " must have one element, is " + print(value->type));
    if (n.failed())
      return;
    rate = n.cast(n.reshape(n.in(0), {}), DType::f64);
    updates = n.cast(n.reshape(n.in(1), {}), DType::f64);
    for (int i = 2; i < n.operandCount(); ++i)
      if (Value *value = n.in(i), *x = n.in(2 + (i - 2) % count); value && x && !(value->type == x->type))
        n.fail("operand " + std::to_string(i) + " is " + print(value->type) + ", its tensor is " +
               print(x->type));
  }

  Value *tensor(int kind, int i) { return n.in(2 + kind * count + i); }
  /// G + norm_coefficient X
  Value *regularized(int i) {
    double norm = n.floatAttribute("norm_coefficient", 0);
    return norm == 0 ? tensor(1, i) : n.add(tensor(1, i), n.mul(tensor(0, i), norm));
  }
  /// T > 0 ? then : otherwise
  Value *afterFirst(Value *then, Value *otherwise) {
    return n.select(n.compare(updates, n.scalar(DType::f64, 0), "gt"), then, otherwise);
  }
  /// A scalar times a tensor.
  Value *scaled(Value *factor, Value *x) { return x ? n.mul(n.cast(factor, x->type.dtype), x) : nullptr; }

  NodeLowering &n;
  int count = 0;
  Value *rate = nullptr, *updates = nullptr; // f64[]
};

} // namespace

// R' = T > 0 ? R √(1 - βᵀ) / (1 - αᵀ) : R      V' = α V + (1 - α) G      H' = β H + (1 - β) G²
// X' = (1 - norm_coefficient_post) (X - R' V' / (√H' + ε))
Values lowerAdam(NodeLowering &n) {
  Update update(n, 4);
  if (n.failed())
    return {};
  double alpha = n.floatAttribute("alpha", 0.9F), beta = n.floatAttribute("beta", 0.999F);
  double epsilon = n.floatAttribute("epsilon", 0), post = n.floatAttribute("norm_coefficient_post", 0);
  Value *power = n.binary(OpKind::Max, update.updates, 1.0); // no 0 / 0 in the branch that is not taken
  auto correction = [&](double base) {
    return n.binary(OpKind::Sub, n.scalar(DType::f64, 1),
                    n.binary(OpKind::Pow, n.scalar(DType::f64, base), power));
  };
  Value *rate = update.afterFirst(
      n.div(n.mul(update.rate, n.unary(OpKind::Sqrt, correction(beta))), correction(alpha)), update.rate);
  Values xs, vs, hs;
  for (int i = 0; i < update.count; ++i) {
    Value *gradient = update.regularized(i);
    vs.push_back(n.add(n.mul(update.tensor(2, i), alpha), n.mul(gradient, 1 - alpha)));
    hs.push_back(n.add(n.mul(update.tensor(3, i), beta), n.mul(n.mul(gradient, gradient), 1 - beta)));
    Value *step = n.div(update.scaled(rate, vs.back()), n.add(n.unary(OpKind::Sqrt, hs.back()), epsilon));
    Value *x = n.sub(update.tensor(0, i), step);
    xs.push_back(post == 0 ? x : n.mul(x, 1 - post));
  }
  xs.append(vs.begin(), vs.end());
  xs.append(hs.begin(), hs.end());
  return xs;
}

// V' = α V + (T > 0 ? β : 1) G      X' = X - R V'      nesterov: X' = X - R (G + α V')
Values lowerMomentum(NodeLowering &n) {
  Update update(n, 3);
  std::string mode = n.stringAttribute("mode", "");
  if (!n.failed() && mode != "standard" && mode != "nesterov")
    n.fail("mode is \"" + mode + "\", expected standard or nesterov");
  if (n.failed())
    return {};
  double alpha = n.floatAttribute("alpha", 0), beta = n.floatAttribute("beta", 1);
  Value *blend = update.afterFirst(n.scalar(DType::f64, beta), n.scalar(DType::f64, 1));
  Values xs, vs;
  for (int i = 0; i < update.count; ++i) {
    Value *gradient = update.regularized(i);
    vs.push_back(n.add(n.mul(update.tensor(2, i), alpha), update.scaled(blend, gradient)));
    Value *direction = mode == "nesterov" ? n.add(gradient, n.mul(vs.back(), alpha)) : vs.back();
    xs.push_back(n.sub(update.tensor(0, i), update.scaled(update.rate, direction)));
  }
  xs.append(vs.begin(), vs.end());
  return xs;
}

// H' = H + G²      X' = X - R / (1 + T decay_factor) G / (√H' + ε)
Values lowerAdagrad(NodeLowering &n) {
  Update update(n, 3);
  if (n.failed())
    return {};
  double epsilon = n.floatAttribute("epsilon", 0), decay = n.floatAttribute("decay_factor", 0);
  Value *rate = n.div(update.rate, n.add(n.mul(update.updates, decay), 1.0));
  Values xs, hs;
  for (int i = 0; i < update.count; ++i) {
    Value *gradient = update.regularized(i);
    hs.push_back(n.add(update.tensor(2, i), n.mul(gradient, gradient)));
    Value *step = n.div(update.scaled(rate, gradient), n.add(n.unary(OpKind::Sqrt, hs.back()), epsilon));
    xs.push_back(n.sub(update.tensor(0, i), step));
  }
  xs.append(hs.begin(), hs.end());
  return xs;
}

// ---------------------------------------------------------------------------------------------------------------
// Gradient

namespace {

std::string stringOf(const FlatNode &node, const char *name) {
  auto found = node.attributes.find(name);
  return found == node.attributes.end() ? "" : found->second->s();
}

void addStrings(const FlatNode &node, const char *name, std::vector<std::string> &out) {
  if (auto found = node.attributes.find(name); found != node.attributes.end())
    out.insert(out.end(), found->second->strings().begin(), found->second->strings().end());
}

class GradientLowering {
public:
  GradientLowering(NodeLowering &n, const GradientNames &names, Module &module, Graph &graph,
                   NodeSet &gradientNodes)
      : n_(n), names_(names), module_(module), graph_(graph), gradientNodes_(gradientNodes) {}

  Values run() {
    if (!check())
      return {};
    std::vector<Value *> named;
    for (const std::string &name : names_.leaves)
      named.push_back(valueOf(name));
    Value *root = valueOf(names_.root);
    if (n_.failed() || !checkIndependent(named) || !checkRoot(root))
      return {};
    const size_t before = graph_.nodes.size();
    markPath(root, named);
    if (n_.failed())
      return {};
    std::vector<Value *> leaves = named;
    if (!feedsTheNamed(named))
      root = cloneAt(root, named, leaves);
    return differentiate(root, leaves, before);
  }

private:
  bool check() {
    if (n_.operandCount() != static_cast<int>(names_.leaves.size()))
      n_.fail("has " + std::to_string(n_.operandCount()) + " operands, but xs and zs name " +
              std::to_string(names_.leaves.size()));
    for (int i = 0; i < n_.operandCount() && !n_.failed(); ++i)
      n_.in(i);
    return !n_.failed();
  }

  Value *valueOf(const std::string &name) {
    GradientNames::Named found = names_.find(name);
    if (!found.value)
      n_.fail(found.why.empty() ? "\"" + name + "\" is not computed before it"
                                : "\"" + name + "\" " + found.why);
    return found.value;
  }

  bool checkIndependent(llvm::ArrayRef<Value *> named) {
    for (size_t i = 0; i < named.size(); ++i)
      for (size_t j = 0; j < i; ++j)
        if (named[i] == named[j])
          n_.fail("\"" + names_.leaves[j] + "\" and \"" + names_.leaves[i] + "\" are one tensor");
    return !n_.failed();
  }

  bool checkRoot(Value *root) {
    if (!isFloat(root->type.dtype) || root->type.elements() != 1)
      n_.fail("y = \"" + names_.root + "\" is " + print(root->type) + ", expected a float with one element",
              "sum it first");
    return !n_.failed();
  }

  /// The nodes between the named tensors and the root.
  void markPath(Value *root, llvm::ArrayRef<Value *> named) {
    llvm::SmallVector<Value *, 16> open = {root};
    while (!open.empty()) {
      Value *value = open.pop_back_val();
      if (llvm::is_contained(named, value) || value->isGlobal() || !path_.insert(value->definition).second)
        continue;
      if (gradientNodes_.contains(value->definition)) {
        n_.fail("y = \"" + names_.root +
                "\" depends on the result of another Gradient: second-order gradients are not "
                "supported");
        return;
      }
      open.append(value->definition->inputs.begin(), value->definition->inputs.end());
    }
  }

  bool feedsTheNamed(llvm::ArrayRef<Value *> named) {
    for (size_t i = 0; i < named.size(); ++i)
      if (n_.in(static_cast<int>(i)) != named[i])
        return false;
    return true;
  }

  /// The path once more, with the operands in place of the named tensors; these become copies, so that each
  /// is a leaf of its own.
  Value *cloneAt(Value *root, llvm::ArrayRef<Value *> named, std::vector<Value *> &leaves) {
    llvm::DenseMap<const Value *, Value *> at;
    for (size_t i = 0; i < named.size(); ++i) {
      Value *operand = n_.in(static_cast<int>(i));
      if (!(operand->type == named[i]->type)) {
        n_.fail("operand " + std::to_string(i) + " is " + print(operand->type) + ", \"" + names_.leaves[i] +
                "\" is " + print(named[i]->type));
        return nullptr;
      }
      leaves[i] = at[named[i]] = n_.make(OpKind::Copy, {operand})->result();
    }
    const std::vector<Node *> nodes = graph_.nodes;
    for (const Node *node : nodes) {
      if (!path_.contains(node))
        continue;
      llvm::SmallVector<Value *, 4> inputs;
      for (Value *input : node->inputs) {
        Value *there = at.lookup(input);
        inputs.push_back(there ? there : input);
      }
      llvm::SmallVector<TensorType, 2> types;
      for (const Value *result : node->results)
        types.push_back(result->type);
      Node *clone = graph_.append(node->op, inputs, types, node->attributes, node->location);
      for (size_t i = 0; i < types.size(); ++i)
        if (!at.count(node->results[i]))
          at[node->results[i]] = clone->results[i];
    }
    Value *there = at.lookup(root);
    return there ? there : root;
  }

  Values differentiate(Value *root, llvm::ArrayRef<Value *> leaves, size_t before) {
    if (n_.failed())
      return {};
    GradientRequest request;
    request.leaves.assign(leaves.begin(), leaves.begin() + names_.differentiated);
    request.root = root;
    request.seed = n_.filled(root->type, 1);
    request.between = "xs and y = \"" + names_.root + "\"";
    Expected<std::vector<Value *>> gradients = appendGradients(module_, graph_, request);
    if (!gradients) {
      n_.fail(gradients.error().findings().front().message);
      return {};
    }
    Values results;
    for (size_t i = 0; i < gradients->size(); ++i) {
      Value *gradient = (*gradients)[i];
      results.push_back(n_.cast(gradient ? gradient : n_.filled(leaves[i]->type, 0),
                                n_.in(static_cast<int>(i))->type.dtype));
    }
    dropUnread(results, before);
    for (size_t i = before; i < graph_.nodes.size(); ++i)
      gradientNodes_.insert(graph_.nodes[i]);
    return results;
  }

  /// Rules build the gradients of all operands without asking.
  void dropUnread(llvm::ArrayRef<Value *> results, size_t before) {
    llvm::DenseSet<const Value *> read(results.begin(), results.end());
    std::vector<Node *> kept;
    for (size_t i = graph_.nodes.size(); i-- > before;) {
      Node *node = graph_.nodes[i];
      if (llvm::none_of(node->results, [&](const Value *result) { return read.contains(result); }))
        continue;
      read.insert(node->inputs.begin(), node->inputs.end());
      kept.push_back(node);
    }
    graph_.nodes.resize(before);
    graph_.nodes.insert(graph_.nodes.end(), kept.rbegin(), kept.rend());
  }

  NodeLowering &n_;
  const GradientNames &names_;
  Module &module_;
  Graph &graph_;
  NodeSet &gradientNodes_;
  NodeSet path_;
};

} // namespace

bool isGradient(const FlatNode &node) { return node.domain == kTrainingDomain && node.op == "Gradient"; }

GradientNames namesOf(const FlatNode &node) {
  GradientNames names;
  addStrings(node, "xs", names.leaves);
  names.differentiated = names.leaves.size();
  addStrings(node, "zs", names.leaves);
  names.root = stringOf(node, "y");
  return names;
}

Values lowerGradient(NodeLowering &n, const GradientNames &names, Module &module, Graph &graph,
                     NodeSet &gradientNodes) {
  return GradientLowering(n, names, module, graph, gradientNodes).run();
}

} // namespace zerocc
