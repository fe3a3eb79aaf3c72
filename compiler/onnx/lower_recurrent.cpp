// Lowerings of RNN, GRU and LSTM, unrolled over the sequence: its length is known, a step is a handful of core ops, and
// the gradient through time follows from theirs. The product of the inputs is one for all steps.

#include "compiler/onnx/lowerings.h"

#include "llvm/ADT/StringRef.h"

#include <algorithm>

namespace zerocc {
namespace {

struct Activation {
  std::string name;
  double alpha, beta;
};

Value *apply(NodeLowering &n, const Activation &f, Value *x) {
  const llvm::StringRef name = f.name;
  if (name == "Tanh")
    return n.unary(OpKind::Tanh, x);
  if (name == "Sigmoid")
    return n.unary(OpKind::Sigmoid, x);
  if (name == "Relu")
    return n.unary(OpKind::Relu, x);
  if (name == "Affine")
    return n.add(n.mul(x, f.alpha), f.beta);
  if (name == "ScaledTanh")
    return n.mul(n.unary(OpKind::Tanh, n.mul(x, f.beta)), f.alpha);
  if (!x)
    return nullptr;
  const DType dtype = x->type.dtype;
  Value *zero = n.scalar(dtype, 0);
  if (name == "LeakyRelu")
    return n.select(n.compare(x, zero, "lt"), n.mul(x, f.alpha), x);
  if (name == "ThresholdedRelu")
    return n.select(n.compare(x, n.scalar(dtype, f.alpha), "ge"), x, zero);
  if (name == "HardSigmoid")
    return clip(n, n.add(n.mul(x, f.alpha), f.beta), zero, n.scalar(dtype, 1));
  if (name == "Softsign")
    return n.div(x, n.add(n.unary(OpKind::Abs, x), 1.0));
  return n.fail("activation \"" + f.name + "\" is not supported");
}

/// One direction of one recurrent node.
struct Direction {
  Value *w, *r, *wBias, *rBias; // [G H, I], [G H, H], [G H] or null
  Value *peepholes;             // LSTM: [3 H], input, output, forget
  Value *h, *c;                 // [B, H]
  bool reverse;
  std::vector<Activation> activations;
};

struct Recurrent {
  int64_t steps = 0, batch = 0, inputs = 0, hidden = 0, gates = 0;
  Value *x = nullptr;       // [T, B, I]
  Value *lengths = nullptr; // i64[B], or null
  double clip = 0;
  bool linearBeforeReset = false, inputForget = false;
};

/// Y [T, B, H], and the last states.
struct Run {
  Value *y = nullptr, *h = nullptr, *c = nullptr;
};

Value *clipped(NodeLowering &n, const Recurrent &r, Value *x) {
  if (r.clip <= 0 || !x)
    return x;
  return clip(n, x, n.scalar(x->type.dtype, -r.clip), n.scalar(x->type.dtype, r.clip));
}

Value *gate(NodeLowering &n, const Recurrent &r, Value *all, int64_t index) {
  return n.sliceAxis(all, 1, index * r.hidden, r.hidden);
}

/// h' = f(x Wᵀ + h Rᵀ + b)
void stepRnn(NodeLowering &n, const Recurrent &r, const Direction &d, Value *xw, Run &state) {
  Value *sum = n.add(xw, n.matmul(state.h, n.transpose(d.r, {1, 0})));
  state.h = apply(n, d.activations[0], clipped(n, r, sum));
}

/// z, r = f(…);  h~ = g(x W_hᵀ + (r h) R_hᵀ + b), or with linear_before_reset g(x W_hᵀ + b_w + r (h R_hᵀ + b_r));
/// h' = (1 - z) h~ + z h
void stepGru(NodeLowering &n, const Recurrent &r, const Direction &d, Value *xw, Run &state) {
  Value *recurrence = n.transpose(d.r, {1, 0}); // [H, 3 H]
  auto part = [&](Value *matrix, int64_t first, int64_t count) {
    return n.sliceAxis(matrix, 1, first * r.hidden, count * r.hidden);
  };
  Value *hr = n.matmul(state.h, part(recurrence, 0, 2));
  Value *both = n.add(part(xw, 0, 2), hr);
  Value *z = apply(n, d.activations[0], clipped(n, r, gate(n, r, both, 0)));
  Value *reset = apply(n, d.activations[0], clipped(n, r, gate(n, r, both, 1)));
  Value *fromX = part(xw, 2, 1), *candidate = nullptr;
  Value *rBias = d.rBias ? n.sliceAxis(d.rBias, 0, 2 * r.hidden, r.hidden) : nullptr;
  if (r.linearBeforeReset) {
    Value *product = n.matmul(state.h, part(recurrence, 2, 1));
    candidate = n.add(fromX, n.mul(reset, rBias ? n.add(product, rBias) : product));
  } else {
    candidate = n.add(fromX, n.matmul(n.mul(reset, state.h), part(recurrence, 2, 1)));
    candidate = rBias ? n.add(candidate, rBias) : candidate;
  }
  candidate = apply(n, d.activations[1], clipped(n, r, candidate));
  state.h = n.add(candidate, n.mul(z, n.sub(state.h, candidate)));
}

/// i, f = f(… + p c);  c' = f c + i g(…);  o = f(… + p c');  h' = o h(c')
void stepLstm(NodeLowering &n, const Recurrent &r, const Direction &d, Value *xw, Run &state) {
  Value *all = n.add(xw, n.matmul(state.h, n.transpose(d.r, {1, 0})));
  auto peep = [&](Value *sum, int64_t index, Value *cell) {
    return d.peepholes ? n.add(sum, n.mul(n.sliceAxis(d.peepholes, 0, index * r.hidden, r.hidden), cell)) : sum;
  };
  Value *i = apply(n, d.activations[0], clipped(n, r, peep(gate(n, r, all, 0), 0, state.c)));
  Value *f = r.inputForget && i ? n.sub(n.scalar(i->type.dtype, 1), i)
                                : apply(n, d.activations[0], clipped(n, r, peep(gate(n, r, all, 2), 2, state.c)));
  Value *candidate = apply(n, d.activations[1], clipped(n, r, gate(n, r, all, 3)));
  state.c = n.add(n.mul(f, state.c), n.mul(i, candidate));
  Value *o = apply(n, d.activations[0], clipped(n, r, peep(gate(n, r, all, 1), 1, state.c)));
  state.h = n.mul(o, apply(n, d.activations[2], state.c));
}

Run runDirection(NodeLowering &n, const Recurrent &r, const Direction &d) {
  Run state{nullptr, d.h, d.c};
  const int64_t width = r.gates * r.hidden;
  // The bias of the recurrence joins that of the input, but for the GRU's candidate, which may want it apart.
  Value *bias = d.wBias;
  if (d.rBias && bias) {
    const int64_t shared = r.gates == 3 ? 2 * r.hidden : width;
    Value *joined = n.add(n.sliceAxis(bias, 0, 0, shared), n.sliceAxis(d.rBias, 0, 0, shared));
    bias = shared == width ? joined : n.concat({joined, n.sliceAxis(bias, 0, shared, width - shared)}, 0);
  }
  Value *xw = n.matmul(n.reshape(r.x, {r.steps * r.batch, r.inputs}), n.transpose(d.w, {1, 0}));
  xw = n.reshape(bias ? n.add(xw, bias) : xw, {r.steps, r.batch, width});
  Values rows(r.steps);
  for (int64_t at = 0; at < r.steps; ++at) {
    const int64_t t = d.reverse ? r.steps - 1 - at : at;
    Value *input = n.reshape(n.sliceAxis(xw, 0, t, 1), {r.batch, width});
    const Run before = state;
    r.gates == 1 ? stepRnn(n, r, d, input, state)
                 : r.gates == 3 ? stepGru(n, r, d, input, state) : stepLstm(n, r, d, input, state);
    Value *y = state.h;
    if (r.lengths && state.h) { // a sequence that has ended keeps its state and gives zeros
      Value *runs = n.compare(r.lengths, n.scalar(DType::i64, static_cast<double>(t)), "gt");
      runs = n.reshape(runs, {r.batch, 1});
      y = n.select(runs, state.h, n.scalar(state.h->type.dtype, 0));
      state.h = n.select(runs, state.h, before.h);
      state.c = state.c ? n.select(runs, state.c, before.c) : nullptr;
    }
    if (!y || n.failed())
      return {};
    rows[t] = n.reshape(y, {1, r.batch, r.hidden});
  }
  state.y = rows.empty() ? n.filled({r.x->type.dtype, {0, r.batch, r.hidden}}, 0) : n.concat(rows, 0);
  return state;
}

std::vector<std::string> stringsAttribute(NodeLowering &n, const std::string &name) {
  std::vector<std::string> out;
  if (auto found = n.node.attributes.find(name); found != n.node.attributes.end())
    for (const std::string &text : found->second->strings())
      out.push_back(text);
  return out;
}
std::vector<double> floatsAttribute(NodeLowering &n, const std::string &name) {
  std::vector<double> out;
  if (auto found = n.node.attributes.find(name); found != n.node.attributes.end())
    for (float number : found->second->floats())
      out.push_back(number);
  return out;
}

/// The activations of all directions, `perDirection` each, with the defaults of their parameters.
std::vector<Activation> activationsOf(NodeLowering &n, llvm::ArrayRef<const char *> defaults, size_t directions) {
  std::vector<std::string> names = stringsAttribute(n, "activations");
  if (names.empty())
    for (size_t i = 0; i < directions; ++i)
      names.insert(names.end(), defaults.begin(), defaults.end());
  if (names.size() != directions * defaults.size()) {
    n.fail("activations has " + std::to_string(names.size()) + " entries, there are " +
           std::to_string(directions * defaults.size()));
    return {};
  }
  std::vector<double> alphas = floatsAttribute(n, "activation_alpha"), betas = floatsAttribute(n, "activation_beta");
  std::vector<Activation> out;
  size_t alpha = 0, beta = 0;
  for (const std::string &name : names) {
    const llvm::StringRef text = name;
    const bool hasAlpha = text == "Affine" || text == "LeakyRelu" || text == "ThresholdedRelu" || text == "ScaledTanh" ||
                          text == "HardSigmoid" || text == "Elu";
    const bool hasBeta = text == "Affine" || text == "ScaledTanh" || text == "HardSigmoid";
    double a = text == "LeakyRelu" ? 0.01 : text == "HardSigmoid" ? 0.2 : 1, b = text == "HardSigmoid" ? 0.5 : 1;
    if (text == "Affine")
      b = 0;
    if (hasAlpha && alpha < alphas.size())
      a = alphas[alpha++];
    if (hasBeta && beta < betas.size())
      b = betas[beta++];
    out.push_back({name, a, b});
  }
  return out;
}

Values lowerRecurrent(NodeLowering &n, int64_t gates, llvm::ArrayRef<const char *> defaults) {
  Value *x = n.in(0), *w = n.in(1), *recurrence = n.in(2);
  if (!x || !w || !recurrence)
    return {nullptr};
  if (x->type.rank() != 3 || w->type.rank() != 3 || recurrence->type.rank() != 3)
    return {n.fail("X, W and R need three dims, are " + print(x->type) + ", " + print(w->type) + ", " +
                   print(recurrence->type))};
  Recurrent r;
  r.gates = gates;
  r.hidden = recurrence->type.dims[2];
  const bool batchFirst = n.intAttribute("layout", 0);
  r.x = batchFirst ? n.transpose(x, {1, 0, 2}) : x;
  r.steps = x->type.dims[batchFirst ? 1 : 0];
  r.batch = x->type.dims[batchFirst ? 0 : 1];
  r.inputs = x->type.dims[2];
  const std::string direction = n.stringAttribute("direction", "forward");
  const int64_t directions = direction == "bidirectional" ? 2 : 1;
  if (direction != "forward" && direction != "reverse" && direction != "bidirectional")
    return {n.fail("direction is \"" + direction + "\"")};
  const TensorType wanted{x->type.dtype, {directions, gates * r.hidden, r.inputs}},
      wantedR{x->type.dtype, {directions, gates * r.hidden, r.hidden}};
  if (!(w->type == wanted) || !(recurrence->type == wantedR))
    return {n.fail("W is " + print(w->type) + " and R is " + print(recurrence->type) + ", they should be " +
                   print(wanted) + " and " + print(wantedR))};
  if (n.hasAttribute("hidden_size") && n.intAttribute("hidden_size", 0) != r.hidden)
    return {n.fail("hidden_size does not fit R " + print(recurrence->type))};
  constexpr int64_t kMostSteps = 4096;
  if (r.steps > kMostSteps)
    return {n.fail("a sequence of " + std::to_string(r.steps) + " steps is unrolled, " + std::to_string(kMostSteps) +
                       " are the limit",
                   "train on shorter sequences (--dim)")};
  r.clip = n.floatAttribute("clip", 0);
  r.linearBeforeReset = n.intAttribute("linear_before_reset", 0);
  r.inputForget = n.intAttribute("input_forget", 0);
  std::vector<Activation> activations = activationsOf(n, defaults, directions);
  auto operand = [&](int i) { return n.has(i) ? n.in(i) : nullptr; };
  r.lengths = n.cast(operand(4), DType::i64);
  // A vector of one direction from an operand [directions, many].
  auto vectorOf = [&](Value *all, int64_t index, int64_t first, int64_t count) -> Value * {
    if (!all)
      return nullptr;
    if (all->type.rank() != 2 || all->type.dims[0] != directions || all->type.dims[1] < first + count)
      return n.fail(print(all->type) + " does not fit " + std::to_string(directions) + " directions");
    return n.reshape(n.sliceAxis(n.sliceAxis(all, 0, index, 1), 1, first, count), {count});
  };
  auto stateOf = [&](Value *all, int64_t index) -> Value * {
    if (!all)
      return n.filled({x->type.dtype, {r.batch, r.hidden}}, 0);
    const Dims expected = batchFirst ? Dims{r.batch, directions, r.hidden} : Dims{directions, r.batch, r.hidden};
    if (all->type.dims != expected)
      return n.fail("an initial state is " + print(all->type));
    return n.reshape(n.sliceAxis(all, batchFirst ? 1 : 0, index, 1), {r.batch, r.hidden});
  };
  if (n.failed())
    return {nullptr};

  const int64_t width = gates * r.hidden;
  Values ys, hs, cs;
  for (int64_t index = 0; index < directions; ++index) {
    Direction d;
    d.w = n.reshape(n.sliceAxis(w, 0, index, 1), {width, r.inputs});
    d.r = n.reshape(n.sliceAxis(recurrence, 0, index, 1), {width, r.hidden});
    d.wBias = vectorOf(operand(3), index, 0, width);
    d.rBias = vectorOf(operand(3), index, width, width);
    d.peepholes = gates == 4 ? vectorOf(operand(7), index, 0, 3 * r.hidden) : nullptr;
    d.h = stateOf(operand(5), index);
    d.c = gates == 4 ? stateOf(operand(6), index) : nullptr;
    d.reverse = direction == "reverse" || index == 1;
    d.activations.assign(activations.begin() + index * defaults.size(),
                         activations.begin() + (index + 1) * defaults.size());
    Run run = runDirection(n, r, d);
    if (n.failed())
      return {nullptr};
    ys.push_back(n.reshape(run.y, {r.steps, 1, r.batch, r.hidden}));
    hs.push_back(n.reshape(run.h, {1, r.batch, r.hidden}));
    if (run.c)
      cs.push_back(n.reshape(run.c, {1, r.batch, r.hidden}));
  }
  auto states = [&](Values &parts) { // [directions, B, H], or batch first
    Value *all = n.concat(parts, 0);
    return batchFirst ? n.transpose(all, {1, 0, 2}) : all;
  };
  Value *y = n.concat(ys, 1);
  Values results{batchFirst ? n.transpose(y, {2, 0, 1, 3}) : y, states(hs)};
  if (!cs.empty())
    results.push_back(states(cs));
  return results;
}

} // namespace

Values lowerRnn(NodeLowering &n) { return lowerRecurrent(n, 1, {"Tanh"}); }
Values lowerGru(NodeLowering &n) { return lowerRecurrent(n, 3, {"Sigmoid", "Tanh"}); }
Values lowerLstm(NodeLowering &n) { return lowerRecurrent(n, 4, {"Sigmoid", "Tanh", "Tanh"}); }

} // namespace zerocc
