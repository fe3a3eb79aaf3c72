// Whole graphs through autodiff: random ones against finite differences, and what text tests cannot say.

#include "passes/autodiff.h"
#include "passes/dead_code.h"
#include "tests/ops/finite_differences.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringRef.h"

#include <numeric>

namespace zerocc {
namespace {

/// Grows a small graph of float values by random ops, with shared values and parameters, some of them
/// scalars.
class RandomGraph {
public:
  Module module;
  llvm::DenseMap<const Value *, HostTensor> bindings; // of inputs and parameters

  explicit RandomGraph(uint64_t seed)
      : random_(seed), graph_(module.addGraph("forward")), g_(module, graph_) {
    pool_.push_back(input({4, 3}));
    pool_.push_back(parameter({3}));
    pool_.push_back(parameter({}));
    const int64_t nodes = random_.integer(3, 16);
    for (int64_t i = 0; i < nodes; ++i) {
      g_.location = "/n" + std::to_string(i);
      pool_.push_back(grow());
    }
    g_.location = "loss";
    Value *scale = g_.broadcast(parameter({}), pool_.back()->type.dims); // so that there is a gradient at all
    Value *loss = total(g_.mul(pool_.back(), scale));
    for (int i = 0; i < 2; ++i)
      loss = g_.add(loss, total(pick()));
    if (random_.coin())
      loss = g_.add(loss, crossEntropy());
    graph_.results = {{"loss", loss}, {"count", module.scalar(DType::f64, kStaticCount)}};
    module.facts.set("static_count", kStaticCount);
  }

  static constexpr double kStaticCount = 4;

  HostTensor draw(const TensorType &type) { return randomDirection(type, random_); }

private:
  Value *pick() { return pool_[random_.integer(0, static_cast<int64_t>(pool_.size()))]; }

  Value *input(Dims dims) {
    Value *value = module.addInput("x" + std::to_string(module.inputs.size()), {DType::f32, std::move(dims)});
    bindings[value] = draw(value->type);
    return value;
  }

  /// A new parameter, or one that other nodes read already.
  Value *parameter(Dims dims) {
    for (const Parameter &known : module.parameters)
      if (known.value->type.dims == dims && random_.coin())
        return known.value.get();
    Value *value = module.addParameter("w" + std::to_string(module.parameters.size()),
                                       {DType::f32, std::move(dims)}, {});
    bindings[value] = draw(value->type);
    return value;
  }

  Value *integers(int64_t count, int64_t low, int64_t high) {
    TensorType type{DType::i64, {count}};
    Value *value = module.addInput("i" + std::to_string(module.inputs.size()), type);
    HostTensor tensor = HostTensor::zeros(type);
    for (int64_t &v : tensor.integers)
      v = random_.integer(low, high);
    bindings[value] = std::move(tensor);
    return value;
  }

  Value *total(Value *x) {
    llvm::SmallVector<int64_t, 4> axes;
    for (int64_t i = 0; i < x->type.rank(); ++i)
      axes.push_back(i);
    return g_.cast(g_.reduceSum(x, axes), DType::f64);
  }

  Value *crossEntropy() {
    Value *logits = matrix(pick());
    Value *labels = integers(logits->type.dims[0], 0, logits->type.dims[1]);
    return g_.make(OpKind::CrossEntropy, {logits, labels}, {{"label_smoothing", 0.1}})->result();
  }

  Value *matrix(Value *x) {
    int64_t columns = x->type.dims.empty() ? 1 : x->type.dims.back();
    return g_.reshape(x, {x->type.elements() / columns, columns});
  }

  /// A random axis, of at least `size` elements; -1 when there is none.
  int64_t axisOf(Value *x, int64_t size = 1) {
    llvm::SmallVector<int64_t, 4> axes;
    for (int64_t i = 0; i < x->type.rank(); ++i)
      if (x->type.dims[i] >= size)
        axes.push_back(i);
    return axes.empty() ? -1 : axes[random_.integer(0, static_cast<int64_t>(axes.size()))];
  }

  Value *grow() {
    switch (random_.integer(0, 12)) {
    case 0:
    case 1:
      return unary(pick());
    case 2:
    case 3:
      return binary(pick(), pick());
    case 4:
      return binary(pick(), parameter({1}));
    case 5:
      return product(matrix(pick()));
    case 6:
      return reduction(pick());
    case 7:
      return rows(pick());
    case 8:
      return split(pick());
    case 9:
      return rearranged(pick());
    case 10:
      return gathered(pick());
    default:
      return power(pick());
    }
  }

  Value *unary(Value *x) {
    constexpr OpKind ops[] = {OpKind::Tanh, OpKind::Sigmoid, OpKind::Sin, OpKind::Cos, OpKind::Gelu,
                              OpKind::Relu, OpKind::Neg,     OpKind::Erf, OpKind::Abs, OpKind::Exp};
    OpKind op = ops[random_.integer(0, static_cast<int64_t>(std::size(ops)))];
    return g_.unary(op, op == OpKind::Exp ? g_.unary(OpKind::Tanh, x) : x);
  }

  Value *binary(Value *a, Value *b) {
    std::optional<Dims> dims = broadcastShape(a->type.dims, b->type.dims);
    if (!dims)
      return g_.mul(a, g_.broadcast(parameter({}), a->type.dims));
    a = g_.broadcast(a, *dims);
    b = g_.broadcast(b, *dims);
    switch (random_.integer(0, 7)) {
    case 0:
      return g_.add(a, b);
    case 1:
      return g_.sub(a, b);
    case 2:
      return g_.mul(a, b);
    case 3: {
      Value *square = g_.mul(b, b);
      return g_.div(a, g_.add(square, g_.splatLike(b, 1)));
    }
    case 4:
      return g_.binary(OpKind::Max, a, b);
    case 5:
      return g_.binary(OpKind::Min, a, b);
    default:
      return g_.select(g_.compare(a, b, "lt"), g_.unary(OpKind::Sin, a), b);
    }
  }

  Value *product(Value *x) {
    bool transA = random_.coin(), transB = random_.coin();
    int64_t inner = transA ? x->type.dims[0] : x->type.dims[1], columns = random_.integer(1, 4);
    Value *w = parameter(transB ? Dims{columns, inner} : Dims{inner, columns});
    return g_.scale(g_.matmul(x, w, transA, transB), 0.5);
  }

  Value *reduction(Value *x) {
    int64_t axis = axisOf(x);
    if (axis < 0)
      return g_.mul(x, x);
    return random_.coin() ? g_.reduceSum(x, {axis}) : g_.reduceMax(x, {axis});
  }

  Value *rows(Value *x) {
    if (x->type.dims.empty())
      x = g_.reshape(x, {1});
    Dims last = {x->type.dims.back()};
    switch (random_.integer(0, 3)) {
    case 0:
      return g_.unary(OpKind::Softmax, x);
    case 1:
      return g_.unary(OpKind::LogSoftmax, x);
    default: {
      llvm::SmallVector<Value *, 3> operands = {x, parameter(last)};
      if (random_.coin())
        operands.push_back(parameter(last));
      return g_.make(OpKind::LayerNorm, operands, {{"eps", 0.1}})->result();
    }
    }
  }

  /// Parts of x along one axis, each put to a use of its own, side by side again.
  Value *split(Value *x) {
    int64_t axis = axisOf(x, 2);
    if (axis < 0)
      return g_.scale(x, 0.5);
    Dims starts(x->type.dims.size(), 0), sizes = x->type.dims;
    sizes[axis] = random_.integer(1, x->type.dims[axis]);
    Value *front = g_.slice(x, starts, sizes);
    starts[axis] = sizes[axis] - random_.integer(0, 2); // sometimes one element is read twice
    sizes[axis] = x->type.dims[axis] - starts[axis];
    Value *back = g_.slice(x, starts, sizes);
    Value *changed = g_.unary(OpKind::Tanh, front);
    return g_.concat({back, changed}, axis);
  }

  Value *rearranged(Value *x) {
    if (x->type.rank() == 0)
      return g_.broadcast(x, {2, 2});
    if (x->type.rank() == 1) {
      Dims starts = {x->type.dims[0] - 1}, steps = {-1};
      return g_.slice(x, starts, x->type.dims, steps);
    }
    llvm::SmallVector<int64_t, 4> permutation;
    for (int64_t i = x->type.rank(); i-- > 0;)
      permutation.push_back(i);
    Value *turned = g_.transpose(x, permutation);
    return g_.pad(turned, Dims(turned->type.dims.size(), 0), Dims(turned->type.dims.size(), 1), 0.5);
  }

  Value *gathered(Value *x) {
    int64_t axis = axisOf(x);
    if (axis < 0)
      return g_.unary(OpKind::Sin, x);
    int64_t size = x->type.dims[axis];
    Value *indices = integers(3, -size, size);
    return random_.coin() ? g_.gather(x, indices, axis) : g_.scatterAdd(integers(size, 0, 4), x, axis, 4);
  }

  Value *power(Value *x) {
    constexpr double exponents[] = {1, 2, 3};
    Value *exponent = g_.splatLike(x, exponents[random_.integer(0, 3)]);
    return g_.scale(g_.binary(OpKind::Pow, x, exponent), 0.5);
  }

  Random random_;
  Graph &graph_;
  GraphBuilder g_;
  std::vector<Value *> pool_;
};

class RandomGraphs : public testing::TestWithParam<int> {};

TEST_P(RandomGraphs, HaveTheGradientsOfFiniteDifferences) {
  SCOPED_TRACE("seed " + std::to_string(GetParam()));
  RandomGraph random(GetParam());
  Module &module = random.module;
  llvm::DenseMap<const Value *, HostTensor> bindings = random.bindings;

  Expected<std::vector<HostTensor>> forward = interpret(module, *module.graph("forward"), bindings);
  ASSERT_TRUE(bool(forward)) << forward.error().text();
  Expected<PassReport> report = autodiff(module, Decisions());
  ASSERT_TRUE(bool(report)) << report.error().text();
  Status sound = checkModule(module);
  ASSERT_TRUE(bool(sound)) << sound.error().text() << print(module);
  const Graph &graph = *module.graph("micro_step");
  Expected<std::vector<HostTensor>> here = interpret(module, graph, bindings);
  ASSERT_TRUE(bool(here)) << here.error().text();
  EXPECT_EQ((*here)[0].reals, (*forward)[0].reals);

  llvm::DenseMap<const Value *, const HostTensor *> gradients;
  for (size_t i = 2; i < graph.results.size(); ++i) {
    llvm::StringRef name = graph.results[i].first;
    ASSERT_TRUE(name.consume_front("grad:"));
    gradients[module.global(name)] = &(*here)[i];
  }
  constexpr double step = 2e-6;
  llvm::DenseMap<const Value *, HostTensor> above = bindings, below = bindings;
  double analytic = 0, size = 0;
  for (const Parameter &parameter : module.parameters) {
    const Value *value = parameter.value.get();
    EXPECT_EQ(parameter.trainable, gradients.count(value) == 1) << value->name;
    HostTensor direction = random.draw(value->type);
    above[value] = moved(bindings[value], direction, step);
    below[value] = moved(bindings[value], direction, -step);
    if (const HostTensor *gradient = gradients.lookup(value)) {
      EXPECT_EQ(print(gradient->type), print(value->type));
      analytic += dot(*gradient, direction);
      for (double v : gradient->reals)
        size = std::max(size, std::fabs(v));
    }
  }
  Expected<std::vector<HostTensor>> up = interpret(module, graph, above),
                                    down = interpret(module, graph, below);
  ASSERT_TRUE(bool(up) && bool(down));
  const double count = RandomGraph::kStaticCount;
  expectDerivative(analytic, (*up)[0].reals[0] / count, (*down)[0].reals[0] / count, step, size);
  if (HasFailure())
    std::cout << print(module);
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomGraphs, testing::Range(0, 300));

TEST(Autodiff, IsTheSameEveryTime) {
  for (int seed : {1, 2, 3}) {
    RandomGraph first(seed), second(seed);
    ASSERT_TRUE(bool(autodiff(first.module, Decisions())));
    ASSERT_TRUE(bool(autodiff(second.module, Decisions())));
    EXPECT_EQ(print(first.module), print(second.module));
  }
}

std::unique_ptr<Module> parsed(const char *text) {
  Expected<std::unique_ptr<Module>> module = parseModule(text);
  EXPECT_TRUE(bool(module)) << module.error().text();
  return std::move(*module);
}

/// loss = Σ_i (i + 1) Σ part_i(w), and perhaps Σ w: the gradient of an element counts the parts it lies in, exactly.
struct Parts {
  Module module;
  std::vector<double> expected;

  Parts(Dims dims, bool readsAll) {
    parameter_ = module.addParameter("w", {DType::f64, dims}, {});
    expected.assign(parameter_->type.elements(), readsAll ? 1 : 0);
    if (readsAll)
      add(parameter_);
  }

  void read(int64_t axis, int64_t start, int64_t length) {
    const Dims &dims = parameter_->type.dims;
    Dims starts(dims.size(), 0), sizes = dims;
    starts[axis] = start;
    sizes[axis] = length;
    add(g_.scale(g_.slice(parameter_, starts, sizes), static_cast<double>(++count_)));
    for (int64_t i = 0; i < parameter_->type.elements(); ++i) {
      const int64_t at = axis == 0 ? i / dims[1] : i % dims[1];
      expected[i] += at >= start && at < start + length ? count_ : 0;
    }
  }

  const Graph &differentiate() {
    graph_.results = {{"loss", loss_}, {"count", module.scalar(DType::f64, 1)}};
    module.facts.set("static_count", 1.0);
    Expected<PassReport> report = autodiff(module, Decisions());
    EXPECT_TRUE(bool(report)) << report.error().text();
    Status sound = checkModule(module);
    EXPECT_TRUE(bool(sound)) << sound.error().text();
    return *module.graph("micro_step");
  }

private:
  void add(Value *x) {
    Dims axes(x->type.dims.size(), 0);
    std::iota(axes.begin(), axes.end(), 0);
    Value *sum = g_.reduceSum(x, axes);
    loss_ = loss_ ? g_.add(loss_, sum) : sum;
  }

  Graph &graph_ = module.addGraph("forward");
  GraphBuilder g_{module, graph_};
  Value *parameter_ = nullptr, *loss_ = nullptr;
  int64_t count_ = 0;
};

class RandomParts : public testing::TestWithParam<int> {};

TEST_P(RandomParts, HaveExactGradients) {
  SCOPED_TRACE("seed " + std::to_string(GetParam()));
  Random random(GetParam());
  Parts parts({random.integer(1, 9), random.integer(1, 9)}, random.coin());
  const Dims dims = parts.module.parameters[0].value->type.dims;
  for (int64_t i = 0, n = random.integer(1, 14); i < n; ++i) {
    const int64_t axis = random.integer(0, 4) == 0, start = random.integer(0, dims[axis]);
    parts.read(axis, start, random.integer(1, dims[axis] - start + 1));
  }
  const Graph &graph = parts.differentiate();
  llvm::DenseMap<const Value *, HostTensor> bindings;
  const Value *w = parts.module.parameters[0].value.get();
  bindings[w] = randomDirection(w->type, random);
  Expected<std::vector<HostTensor>> results = interpret(parts.module, graph, bindings);
  ASSERT_TRUE(bool(results)) << results.error().text();
  EXPECT_EQ(results->back().reals, parts.expected) << print(parts.module);
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomParts, testing::Range(0, 300));

/// Steps of a loop that read their row, the next one, and their row again: work grows as the steps do.
TEST(Autodiff, IsLinearInTheStepsOfALoop) {
  auto elements = [](int64_t steps) {
    Parts parts({steps + 1, 4}, true);
    for (int64_t step = 0; step < steps; ++step) {
      parts.read(0, step, 1);
      parts.read(0, step, 2);
      parts.read(0, step, 1);
    }
    int64_t total = 0;
    for (const Node *node : parts.differentiate().nodes)
      for (const Value *result : node->results)
        total += result->type.elements();
    return total;
  };
  const int64_t few = elements(50);
  EXPECT_LT(elements(1000), 21 * few);
}

TEST(Autodiff, ReportsWhatItFroze) {
  std::unique_ptr<Module> module = parsed(R"(module @m {
  fact static_count=2.0
  constant @n : f64[] = [2.0]
  param @used : f64[]
  param @unused : f32[3]
  param @floored : f64[]
  param @frozen : f32[2] frozen
  segment @forward {
    %floor : f64[] = floor @floored
    %loss : f64[] = mul @used, %floor
    yield loss=%loss, count=@n
  }
}
)");
  Expected<PassReport> report = autodiff(*module, Decisions());
  ASSERT_TRUE(bool(report)) << report.error().text();
  EXPECT_TRUE(report->changed);
  EXPECT_EQ(report->counters["gradients"], 1);
  EXPECT_EQ(report->counters["frozen"], 2);
  EXPECT_EQ(report->counters["backwardNodes"], 1);
  EXPECT_EQ(report->notes,
            (std::vector<std::string>{"parameter \"unused\" does not reach the loss: frozen",
                                      "parameter \"floored\" does not reach the loss: frozen"}));
}

TEST(Autodiff, LeavesTheSeedToLaterPasses) {
  std::unique_ptr<Module> module = parsed(R"(module @m {
  fact static_count=8.0
  constant @gradient_seed : f64[] = [7.0]
  param @w : f64[]
  segment @forward {
    %loss : f64[] = mul @w, @w
    yield loss=%loss, count=@gradient_seed
  }
}
)");
  ASSERT_TRUE(bool(autodiff(*module, Decisions())));
  Value *seed = module->global("gradient_seed~");
  ASSERT_NE(seed, nullptr);
  EXPECT_EQ(HostTensor::fromBytes(seed->type, module->constantOf(seed)->source.bytes).reals[0], 0.125);
}

TEST(DeadCode, KeepsEffectsAndWhatTheyRead) {
  std::unique_ptr<Module> module = parsed(R"(module @m {
  input @x : f32[32] role=data
  segment @only {
    %a : f32[32] = neg @x
    %b : f32[32] = exp %a
    %buffer : f32[32] = buffer {shape=[32]}
    %c : f32[32] = copy @x place=%buffer+0
    %unread : f32[32] = buffer {shape=[32]}
    %d : f32[32] = neg @x
    release %d
    yield c=%c
  }
}
)");
  Graph &graph = *module->graph("only");
  EXPECT_EQ(removeDeadNodes(graph), 3);
  std::vector<std::string> kept;
  for (const Node *node : graph.nodes)
    kept.push_back(std::string(opText(node->op)));
  EXPECT_EQ(kept, (std::vector<std::string>{"buffer", "copy", "neg", "release"}));
  EXPECT_EQ(removeDeadNodes(graph), 0);
}

} // namespace
} // namespace zerocc
