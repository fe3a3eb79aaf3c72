// Every gradient rule against central differences along random directions, in the double interpreter.

#include "tests/ops/finite_differences.h"

#include "llvm/ADT/STLExtras.h"

#include <functional>

namespace zerocc {
namespace {

/// How an operand is drawn. Separated values differ by more than any step, so that maxima do not change
/// places.
enum class Domain { any, positive, awayFromZero, separated, indices, labels, flags };

struct Operand {
  TensorType type;
  Domain domain = Domain::any;
  int64_t limit = 0; // indices: in [-limit, limit); labels: in [0, limit), some of them ignored
};

constexpr int64_t kIgnored = -100;

Operand real(Dims dims, Domain domain = Domain::any) { return {{DType::f32, std::move(dims)}, domain}; }
Operand indices(Dims dims, int64_t limit) { return {{DType::i64, std::move(dims)}, Domain::indices, limit}; }
Operand labels(Dims dims, int64_t classes) {
  return {{DType::i64, std::move(dims)}, Domain::labels, classes};
}
Operand flags(Dims dims) { return {{DType::boolean, std::move(dims)}, Domain::flags}; }

HostTensor draw(const Operand &operand, Random &random) {
  HostTensor out = HostTensor::zeros(operand.type);
  for (double &v : out.reals)
    switch (operand.domain) {
    case Domain::positive:
      v = random.uniform(0.5, 2);
      break;
    case Domain::awayFromZero:
      v = random.uniform(0.3, 1.5) * (random.coin() ? 1 : -1);
      break;
    default:
      v = random.uniform(-1.5, 1.5);
    }
  if (operand.domain == Domain::separated) {
    for (size_t i = 0; i < out.reals.size(); ++i)
      out.reals[i] = 0.1 * static_cast<double>(i) + random.uniform(0, 0.03);
    for (size_t i = out.reals.size(); i > 1; --i)
      std::swap(out.reals[i - 1], out.reals[random.integer(0, static_cast<int64_t>(i))]);
  }
  for (int64_t &v : out.integers)
    switch (operand.domain) {
    case Domain::indices:
      v = random.integer(-operand.limit, operand.limit);
      break;
    case Domain::labels:
      v = random.integer(0, 4) == 0 ? kIgnored : random.integer(0, operand.limit);
      break;
    default:
      v = random.integer(0, 2);
    }
  return out;
}

/// One node to differentiate: its operands and how it is built from them.
struct Case {
  OpKind op;
  std::string name;
  std::vector<Operand> operands;
  std::function<Value *(GraphBuilder &, llvm::ArrayRef<Value *>)> build; // returns the node's result 0
};

class Cases {
public:
  std::vector<Case> list;

  Cases() {
    addViews();
    addMovement();
    addElementwise();
    addPowers();
    addReductions();
    addMatMuls();
    addComposites();
    addFunctions();
    addIndexOps();
    addWindows();
    add(OpKind::Dropout, "of_a_third", {real({5, 3}), randomOf()}, {{"rate", 0.3}, {"id", int64_t(7)}});
  }

private:
  void add(OpKind op, std::string name, std::vector<Operand> operands,
           std::function<Value *(GraphBuilder &, llvm::ArrayRef<Value *>)> build) {
    list.push_back({op, std::move(name), std::move(operands), std::move(build)});
  }

  /// A case whose node is the op itself on the operands.
  void add(OpKind op, std::string name, std::vector<Operand> operands, Attributes attributes = {}) {
    add(op, std::move(name), std::move(operands),
        [op, attributes](GraphBuilder &g, llvm::ArrayRef<Value *> x) {
          return g.make(op, x, attributes)->result();
        });
  }

  void addFunctions() {
    const struct {
      OpKind op;
      double low, high; // the operand is moved there from [-1.5, 1.5]
    } functions[] = {{OpKind::Tan, -1, 1},   {OpKind::Asin, -0.9, 0.9}, {OpKind::Acos, -0.9, 0.9},
                     {OpKind::Atan, -2, 2},  {OpKind::Sinh, -2, 2},     {OpKind::Cosh, -2, 2},
                     {OpKind::Asinh, -2, 2}, {OpKind::Acosh, 1.2, 4},   {OpKind::Atanh, -0.9, 0.9}};
    for (const auto &[op, low, high] : functions)
      add(op, "between_" + std::to_string(low), {real({2, 4})},
          [op = op, low = low, high = high](GraphBuilder &g, llvm::ArrayRef<Value *> x) {
            Value *scaled = g.scale(x[0], (high - low) / 3);
            return g.unary(op, g.add(scaled, g.splatLike(scaled, (low + high) / 2)));
          });
  }

  void addIndexOps() {
    for (int64_t smallest : {0, 1}) {
      add(OpKind::TopK, "smallest_" + std::to_string(smallest), {real({3, 5}, Domain::separated)},
          {{"k", int64_t(2)}, {"smallest", smallest}});
      add(OpKind::TopK, "of_a_row_" + std::to_string(smallest), {real({4}, Domain::separated)},
          {{"k", int64_t(4)}, {"smallest", smallest}});
    }
    for (OpKind op : {OpKind::CumSum, OpKind::CumProd})
      for (int64_t exclusive : {0, 1})
        for (int64_t reverse : {0, 1})
          add(op, "exclusive_" + std::to_string(exclusive) + "_reverse_" + std::to_string(reverse),
              {real({2, 4})}, {{"exclusive", exclusive}, {"reverse", reverse}});
    add(OpKind::CumProd, "of_zeros", {real({2, 4})}, [](GraphBuilder &g, llvm::ArrayRef<Value *> x) {
      return g.make(OpKind::CumProd, {g.concat({g.scale(x[0], 0), x[0]}, 1)})->result();
    });
    for (const char *reduction : {"none", "mul", "max", "min"}) {
      Attributes attributes{{"reduction", std::string(reduction)}};
      add(OpKind::Scatter, std::string(reduction) + "_of_rows", {real({5, 2}), indices({3}, 5), real({3, 2})},
          attributes);
      add(OpKind::Scatter, std::string(reduction) + "_often_the_same",
          {real({2}), indices({6}, 2), real({6})}, attributes);
    }
    add(OpKind::Scatter, "mul_by_zeros", {real({3}), real({5})},
        [](GraphBuilder &g, llvm::ArrayRef<Value *> x) {
          // row 0 gets one zero of two, row 1 two zeros of three, row 2 none of one
          Value *indices = g.module.addConstant(
              "i", {DType::i64, {6}},
              {DataSource::Kind::inlineBytes,
               HostTensor::integer({DType::i64, {6}}, {0, 1, 0, 1, 1, 2}).toBytes(), ""});
          Value *one = g.slice(x[1], {0}, {1}, {1}), *two = g.slice(x[1], {1}, {1}, {1}),
                *three = g.slice(x[1], {2}, {1}, {1});
          Value *zero = g.scale(one, 0);
          Value *updates = g.concat({zero, zero, one, zero, two, three}, 0);
          return g.make(OpKind::Scatter, {x[0], indices, updates}, {{"reduction", std::string("mul")}})
              ->result();
        });
  }

  void addWindows() {
    using Ints = std::vector<int64_t>;
    const struct {
      const char *name;
      Dims x, w;
      Ints strides, low, high, dilations;
      int64_t groups;
    } windows[] = {
        {"of_a_line", {2, 3, 7}, {4, 3, 3}, {1}, {1}, {1}, {1}, 1},
        {"with_strides_and_uneven_padding", {1, 2, 6, 5}, {3, 2, 2, 3}, {2, 1}, {1, 0}, {0, 2}, {1, 1}, 1},
        {"dilated", {1, 2, 7, 7}, {2, 2, 3, 2}, {1, 2}, {2, 1}, {2, 1}, {2, 3}, 1},
        {"in_groups", {1, 4, 5, 4}, {6, 2, 2, 2}, {1, 1}, {0, 0}, {0, 0}, {1, 1}, 2},
        {"depthwise", {2, 3, 4, 4}, {3, 1, 3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, 3},
        {"of_a_volume", {1, 2, 4, 3, 4}, {2, 2, 2, 2, 2}, {1, 1, 2}, {0, 1, 0}, {0, 0, 1}, {1, 1, 1}, 1},
        {"whose_stride_leaves_a_rest", {1, 1, 8}, {1, 1, 3}, {4}, {0}, {0}, {1}, 1}};
    for (const auto &window : windows) {
      Attributes attributes{{"strides", window.strides},
                            {"low", window.low},
                            {"high", window.high},
                            {"dilations", window.dilations},
                            {"groups", window.groups}};
      add(OpKind::Conv, window.name, {real(window.x), real(window.w)}, attributes);
      const std::string name = window.name;
      Attributes shaped = attributes;
      shaped.set("shape", Ints(window.x.begin(), window.x.end()));
      add(OpKind::ConvDataGrad, name,
          {resultOf(OpKind::Conv, {window.x, window.w}, attributes), real(window.w)}, shaped);
      Attributes pooled{{"strides", window.strides},
                        {"low", window.low},
                        {"high", window.high},
                        {"dilations", window.dilations},
                        {"kernel", Ints(window.w.begin() + 2, window.w.end())}};
      Operand y = resultOf(OpKind::SumPool, {window.x}, pooled);
      add(OpKind::SumPool, name, {real(window.x)}, pooled);
      add(OpKind::MaxPool, name, {real(window.x, Domain::separated)}, pooled);
      pooled.set("shape", Ints(window.x.begin(), window.x.end()));
      add(OpKind::SumPoolGrad, name, {y}, pooled);
    }
  }

  static Operand randomOf() { return {{DType::i64, {3}}, Domain::flags}; }

  static Operand resultOf(OpKind op, llvm::ArrayRef<Dims> operands, const Attributes &attributes) {
    std::vector<TensorType> types;
    for (const Dims &dims : operands)
      types.push_back({DType::f32, dims});
    Expected<ResultTypes> results = inferTypes({op, types, attributes});
    return real((*results)[0].dims);
  }

  void addViews() {
    using Ints = std::vector<int64_t>;
    add(OpKind::Reshape, "joins_axes", {real({2, 3, 4})}, {{"shape", Ints{6, 4}}});
    add(OpKind::Reshape, "of_a_scalar", {real({})}, {{"shape", Ints{1, 1}}});
    add(OpKind::Transpose, "swaps", {real({2, 3})}, {{"perm", Ints{1, 0}}});
    add(OpKind::Transpose, "rotates_three_axes", {real({2, 3, 4})}, {{"perm", Ints{2, 0, 1}}});
    add(OpKind::Transpose, "of_four_axes", {real({2, 3, 2, 4})}, {{"perm", Ints{0, 2, 3, 1}}});
    add(OpKind::Broadcast, "of_a_scalar", {real({})}, {{"shape", Ints{2, 3}}});
    add(OpKind::Broadcast, "adds_an_axis", {real({3})}, {{"shape", Ints{2, 3}}});
    add(OpKind::Broadcast, "in_the_middle", {real({2, 1, 3})}, {{"shape", Ints{2, 4, 3}}});
    add(OpKind::Broadcast, "both_ways", {real({3, 1})}, {{"shape", Ints{2, 3, 4}}});
    add(OpKind::Broadcast, "to_more_axes_of_one", {real({3})}, {{"shape", Ints{1, 1, 3}}});
    add(OpKind::Broadcast, "of_one_element_to_one_row", {real({1})}, {{"shape", Ints{1, 4}}});
    auto slice = [this](std::string name, Dims from, Ints starts, Ints sizes, Ints steps) {
      Attributes attributes{{"starts", starts}, {"sizes", sizes}, {"steps", steps}};
      add(OpKind::Slice, std::move(name), {real(std::move(from))}, attributes);
    };
    slice("from_the_middle", {5}, {1}, {3}, {1});
    slice("at_both_ends", {4, 6}, {0, 4}, {4, 2}, {1, 1});
    slice("every_second", {8}, {1}, {3}, {2});
    slice("every_third_to_the_last", {7}, {0}, {3}, {3});
    slice("reversed", {5}, {4}, {5}, {-1});
    slice("backwards_by_two", {2, 7, 3}, {0, 5, 0}, {2, 3, 2}, {1, -2, 1});
    slice("steps_along_two_axes", {5, 7}, {4, 1}, {3, 2}, {-2, 3});
    slice("of_one_element_with_a_step", {5}, {3}, {1}, {7});
    slice("of_one_element_backwards", {5}, {3}, {1}, {-1});
    slice("of_nothing", {5}, {2}, {0}, {2});
  }

  void addMovement() {
    using Ints = std::vector<int64_t>;
    add(OpKind::Copy, "of_a_matrix", {real({2, 3})});
    add(OpKind::Concat, "of_three", {real({2, 3}), real({2, 1}), real({2, 2})}, {{"axis", int64_t(1)}});
    add(OpKind::Concat, "along_the_first_axis", {real({2, 3}), real({1, 3})}, {{"axis", int64_t(0)}});
    add(OpKind::Concat, "of_one", {real({2, 3})}, {{"axis", int64_t(0)}});
    add(OpKind::Concat, "of_nothing_and_something", {real({0, 3}), real({2, 3})}, {{"axis", int64_t(0)}});
    add(OpKind::Pad, "on_both_sides", {real({2, 3})},
        {{"low", Ints{1, 0}}, {"high", Ints{0, 2}}, {"value", 0.0}});
    add(OpKind::Pad, "with_a_value", {real({3})}, {{"low", Ints{2}}, {"high", Ints{1}}, {"value", 7.0}});
    add(OpKind::Cast, "to_f64", {real({2, 3})}, {{"to", std::string("f64")}});
    add(OpKind::Cast, "to_f16", {real({4})}, {{"to", std::string("f16")}});
    add(OpKind::Gather, "of_rows", {real({5, 3}), indices({4}, 5)}, {{"axis", int64_t(0)}});
    add(OpKind::Gather, "of_columns_by_a_matrix", {real({2, 5, 3}), indices({2, 4}, 5)},
        {{"axis", int64_t(1)}});
    add(OpKind::Gather, "by_a_scalar", {real({2, 5}), indices({}, 5)}, {{"axis", int64_t(1)}});
    add(OpKind::ScatterAdd, "of_rows", {indices({4}, 5), real({4, 3})},
        {{"axis", int64_t(0)}, {"size", int64_t(5)}});
    add(OpKind::ScatterAdd, "in_the_middle", {indices({2, 2}, 3), real({2, 2, 2, 2})},
        {{"axis", int64_t(1)}, {"size", int64_t(3)}});
  }

  void addElementwise() {
    const struct {
      OpKind op;
      Domain domain;
    } unary[] = {
        {OpKind::Neg, Domain::any},      {OpKind::Abs, Domain::awayFromZero},  {OpKind::Exp, Domain::any},
        {OpKind::Log, Domain::positive}, {OpKind::Sqrt, Domain::positive},     {OpKind::Tanh, Domain::any},
        {OpKind::Sigmoid, Domain::any},  {OpKind::Erf, Domain::any},           {OpKind::Sin, Domain::any},
        {OpKind::Cos, Domain::any},      {OpKind::Relu, Domain::awayFromZero}, {OpKind::Gelu, Domain::any},
    };
    for (const auto &[op, domain] : unary)
      for (const Dims &dims : {Dims{}, Dims{7}, Dims{2, 3, 4}})
        add(op, "rank_" + std::to_string(dims.size()), {real(dims, domain)});
    add(OpKind::Gelu, "by_tanh", {real({9})}, {{"approximate", std::string("tanh")}});
    add(OpKind::Gelu, "by_erf", {real({9})}, {{"approximate", std::string("none")}});

    const struct {
      OpKind op;
      Domain left, right;
    } binary[] = {
        {OpKind::Add, Domain::any, Domain::any},
        {OpKind::Sub, Domain::any, Domain::any},
        {OpKind::Mul, Domain::any, Domain::any},
        {OpKind::Div, Domain::any, Domain::awayFromZero},
    };
    for (const auto &[op, left, right] : binary)
      for (const Dims &dims : {Dims{}, Dims{7}, Dims{2, 3, 4}})
        add(op, "rank_" + std::to_string(dims.size()), {real(dims, left), real(dims, right)});

    for (OpKind op : {OpKind::Max, OpKind::Min}) {
      // Halves of one separated tensor, so that the operands differ from each other.
      add(op, "of_separated_values", {real({2, 8}, Domain::separated)},
          [op](GraphBuilder &g, llvm::ArrayRef<Value *> x) {
            return g.binary(op, g.slice(x[0], {0, 0}, {1, 8}), g.slice(x[0], {1, 0}, {1, 8}));
          });
      add(op, "of_a_value_and_itself", {real({5})},
          [op](GraphBuilder &g, llvm::ArrayRef<Value *> x) { return g.binary(op, x[0], x[0]); });
    }
    add(OpKind::Select, "of_two", {flags({3, 4}), real({3, 4}), real({3, 4})});
  }

  void addPowers() {
    // 7.4 / 2.2 and the numbers near it lie between two integers.
    add(OpKind::Mod, "of_two_variables", {real({3}), real({3})},
        [](GraphBuilder &g, llvm::ArrayRef<Value *> x) {
          Value *a = g.add(g.scale(x[0], 0.05), g.splatLike(x[0], 7.4)),
                *b = g.add(g.scale(x[1], 0.05), g.splatLike(x[1], 2.2));
          return g.binary(OpKind::Mod, a, b);
        });
    add(OpKind::Mod, "of_negative_numbers", {real({3}), real({3})},
        [](GraphBuilder &g, llvm::ArrayRef<Value *> x) {
          Value *a = g.add(g.scale(x[0], 0.05), g.splatLike(x[0], -7.4)),
                *b = g.add(g.scale(x[1], 0.05), g.splatLike(x[1], 2.2));
          return g.binary(OpKind::Mod, a, b);
        });
    add(OpKind::Pow, "of_two_variables", {real({9}, Domain::positive), real({9})});
    add(OpKind::Pow, "of_matrices", {real({2, 3}, Domain::positive), real({2, 3}, Domain::positive)});
    for (double exponent : {0.0, 1.0, 2.0, 3.0, 4.0, -1.0, -2.0}) // of negative numbers, too
      add(OpKind::Pow, "to_the_" + std::to_string(exponent), {real({2, 3}, Domain::awayFromZero)},
          [exponent](GraphBuilder &g, llvm::ArrayRef<Value *> x) {
            Value *splat = g.splatLike(x[0], exponent);
            return g.binary(OpKind::Pow, x[0], splat);
          });
    for (double exponent : {0.5, 1.5, -0.5})
      add(OpKind::Pow, "to_the_" + std::to_string(exponent), {real({2, 3}, Domain::positive)},
          [exponent](GraphBuilder &g, llvm::ArrayRef<Value *> x) {
            Value *splat = g.splatLike(x[0], exponent);
            return g.binary(OpKind::Pow, x[0], splat);
          });
    add(OpKind::Pow, "to_a_cast_constant", {real({3}, Domain::awayFromZero)},
        [](GraphBuilder &g, llvm::ArrayRef<Value *> x) {
          Value *two = g.cast(g.reshape(g.module.scalar(DType::f64, 2), {1}), DType::f32);
          return g.binary(OpKind::Pow, x[0], g.broadcast(two, {3}));
        });
    add(OpKind::Pow, "of_a_constant", {real({3})}, [](GraphBuilder &g, llvm::ArrayRef<Value *> x) {
      return g.binary(OpKind::Pow, g.splatLike(x[0], 3), x[0]);
    });
  }

  void addReductions() {
    using Ints = std::vector<int64_t>;
    for (OpKind op : {OpKind::ReduceSum, OpKind::ReduceMax}) {
      add(op, "of_the_last_axis", {real({3, 4}, Domain::separated)}, {{"axes", Ints{1}}});
      add(op, "of_the_first_axis", {real({3, 4}, Domain::separated)}, {{"axes", Ints{0}}});
      add(op, "of_the_middle", {real({2, 3, 2}, Domain::separated)}, {{"axes", Ints{1}}});
      add(op, "of_the_outer_axes", {real({2, 3, 2}, Domain::separated)}, {{"axes", Ints{0, 2}}});
      // Equal dims, so that a gradient spread along the wrong axis still fits.
      add(op, "of_the_last_of_two_equal_axes", {real({3, 3}, Domain::separated)}, {{"axes", Ints{1}}});
      add(op, "of_the_last_of_equal_axes", {real({3, 3, 3}, Domain::separated)}, {{"axes", Ints{2}}});
      add(op, "of_the_first_of_equal_axes", {real({3, 3, 3}, Domain::separated)}, {{"axes", Ints{0}}});
      add(op, "of_the_last_two_equal_axes", {real({3, 3, 3}, Domain::separated)}, {{"axes", Ints{1, 2}}});
      add(op, "of_everything", {real({2, 5}, Domain::separated)}, {{"axes", Ints{0, 1}}});
    }
    add(OpKind::ReduceMax, "of_ties", {real({2, 3})}, [](GraphBuilder &g, llvm::ArrayRef<Value *> x) {
      return g.reduceMax(g.concat({x[0], x[0]}, 1), {1}); // every maximum twice
    });
  }

  void addMatMuls() {
    for (bool transA : {false, true})
      for (bool transB : {false, true})
        for (int64_t batch : {0, 1, 3}) {
          Dims a = transA ? Dims{4, 2} : Dims{2, 4}, b = transB ? Dims{3, 4} : Dims{4, 3};
          if (batch) {
            a.insert(a.begin(), batch);
            b.insert(b.begin(), batch);
          }
          std::string name =
              std::string(transA ? "at" : "a") + (transB ? "_bt" : "_b") + "_batch_" + std::to_string(batch);
          add(OpKind::MatMul, name, {real(a), real(b)},
              {{"trans_a", int64_t(transA)}, {"trans_b", int64_t(transB)}});
        }
    add(OpKind::MatMul, "with_two_batch_axes", {real({2, 2, 3, 1}), real({2, 2, 1, 2})});
  }

  void addComposites() {
    for (const Dims &dims : {Dims{5}, Dims{3, 4}, Dims{2, 3, 2}}) {
      std::string name = "rank_" + std::to_string(dims.size());
      add(OpKind::Softmax, name, {real(dims)});
      add(OpKind::LogSoftmax, name, {real(dims)});
      Dims last = {dims.back()};
      for (double eps : {1e-5, 0.1}) {
        std::string withEps = name + (eps == 0.1 ? "_large_eps" : "");
        add(OpKind::LayerNorm, withEps, {real(dims), real(last), real(last)}, {{"eps", eps}});
        add(OpKind::LayerNorm, withEps + "_without_bias", {real(dims), real(last)}, {{"eps", eps}});
      }
    }
    add(OpKind::Softmax, "safe", {real({3, 4})}, {{"safe", int64_t(1)}});
    for (double smoothing : {0.0, 0.1}) {
      std::string name = smoothing ? "smoothed" : "plain";
      Attributes attributes{{"ignore_index", kIgnored}, {"label_smoothing", smoothing}};
      add(OpKind::CrossEntropy, name, {real({12, 5}), labels({12}, 5)}, attributes);
      add(OpKind::CrossEntropy, name + "_one_row", {real({1, 3}), labels({1}, 3)}, attributes);
    }
    add(OpKind::CrossEntropy, "without_attributes", {real({8, 3}), labels({8}, 3)});
  }
};

const std::vector<Case> &cases() {
  static const Cases all;
  return all.list;
}

/// The gradients of the case's operands when its graph is differentiated node by node, and what reads them.
struct Differentiated {
  Module module;
  Graph *graph = nullptr;
  std::vector<Value *> operands;
  Value *y = nullptr, *dy = nullptr;

  /// Graph results: y, then one gradient per float operand (in order) into `gradientOf`.
  std::vector<int> gradientOf; // index into the results, -1 for none

  explicit Differentiated(const Case &test) {
    graph = &module.addGraph("forward");
    GradientBuilder g(module, *graph);
    for (size_t i = 0; i < test.operands.size(); ++i)
      operands.push_back(module.addInput("x" + std::to_string(i), test.operands[i].type));
    y = test.build(g, operands);
    dy = module.addInput("dy", y->type);

    llvm::DenseMap<const Value *, Value *> gradients;
    gradients[y] = dy;
    std::vector<Node *> forward = graph->nodes;
    for (Node *node : llvm::reverse(forward)) {
      llvm::SmallVector<Value *, 3> resultGradients;
      for (Value *result : node->results)
        resultGradients.push_back(gradients.lookup(result));
      if (llvm::all_of(resultGradients, [](Value *v) { return v == nullptr; }))
        continue;
      Gradients operandGradients = gradientsOf(g, *node, resultGradients);
      for (size_t i = 0; i < node->inputs.size(); ++i)
        if (Value *gradient = operandGradients[i]) {
          EXPECT_EQ(print(gradient->type), print(node->inputs[i]->type)) << "operand " << i;
          Value *&sum = gradients[node->inputs[i]];
          sum = sum ? g.add(sum, gradient) : gradient;
        }
    }
    graph->results.push_back({"y", y});
    for (Value *operand : operands) {
      Value *gradient = gradients.lookup(operand);
      gradientOf.push_back(gradient ? static_cast<int>(graph->results.size()) : -1);
      if (gradient)
        graph->results.push_back({"d" + operand->name, gradient});
    }
  }
};

void checkCase(const Case &test, uint64_t seed) {
  Differentiated d(test);
  Random random(seed);
  llvm::DenseMap<const Value *, HostTensor> bindings;
  for (size_t i = 0; i < test.operands.size(); ++i)
    bindings[d.operands[i]] = draw(test.operands[i], random);
  bindings[d.dy] = randomDirection(d.dy->type, random);

  Expected<std::vector<HostTensor>> at = interpret(d.module, *d.graph, bindings);
  ASSERT_TRUE(bool(at)) << at.error().text();
  constexpr double step = 1e-5;
  for (size_t i = 0; i < test.operands.size(); ++i) {
    if (!isFloat(test.operands[i].type.dtype)) {
      EXPECT_EQ(d.gradientOf[i], -1) << "a gradient of integers";
      continue;
    }
    ASSERT_GE(d.gradientOf[i], 0) << "operand " << i << " has no gradient";
    const HostTensor &gradient = (*at)[d.gradientOf[i]];
    HostTensor direction = randomDirection(test.operands[i].type, random);
    const HostTensor here = bindings[d.operands[i]];
    auto valueAt = [&](double offset) {
      bindings[d.operands[i]] = moved(here, direction, offset);
      Expected<std::vector<HostTensor>> results = interpret(d.module, *d.graph, bindings);
      EXPECT_TRUE(bool(results)) << results.error().text();
      return dot((*results)[0], bindings[d.dy]);
    };
    double above = valueAt(step), below = valueAt(-step);
    bindings[d.operands[i]] = here;
    double size = 0;
    for (size_t k = 0; k < gradient.reals.size(); ++k)
      size = std::max(size, std::fabs(gradient.reals[k] * direction.reals[k]));
    SCOPED_TRACE("operand " + std::to_string(i) + ", seed " + std::to_string(seed));
    expectDerivative(dot(gradient, direction), above, below, step, size);
  }
}

class GradientRule : public testing::TestWithParam<int> {};

TEST_P(GradientRule, AgreesWithFiniteDifferences) {
  const Case &test = cases()[GetParam()];
  for (uint64_t direction = 0; direction < 4; ++direction)
    checkCase(test, 1000 * GetParam() + direction);
}

INSTANTIATE_TEST_SUITE_P(Ops, GradientRule, testing::Range(0, static_cast<int>(cases().size())),
                         [](const testing::TestParamInfo<int> &info) {
                           const Case &test = cases()[info.param];
                           std::string name = std::string(opText(test.op)) + "_" + test.name;
                           for (char &c : name)
                             c = isalnum(static_cast<unsigned char>(c)) ? c : '_';
                           return name + "_" + std::to_string(info.param);
                         });

TEST(GradientTable, EveryDifferentiableOpHasACase) {
  for (int i = 0; i < kOpKinds; ++i) {
    OpKind op = static_cast<OpKind>(i);
    bool hasCase = llvm::any_of(cases(), [&](const Case &test) { return test.op == op; });
    // rank_mean has no value on one rank alone; its gradient is tested with the passes.
    EXPECT_EQ(hasCase, isDifferentiable(op) && op != OpKind::RankMean) << opText(op);
  }
}

TEST(GradientTable, CasesBuildTheOpTheyAreNamedAfter) {
  for (const Case &test : cases()) {
    Differentiated d(test);
    EXPECT_EQ(opText(d.y->definition->op), opText(test.op)) << test.name;
  }
}

// ---------------------------------------------------------------------------------------------------------------
// What finite differences cannot see: kinks, ties, and which nodes are built.

/// The gradients of `op` on the given float operands for dy = 1 everywhere.
std::vector<HostTensor> gradientsAt(OpKind op, std::vector<HostTensor> operands, Attributes attributes = {}) {
  Module module;
  Graph &graph = module.addGraph("forward");
  GradientBuilder g(module, graph);
  std::vector<Value *> inputs;
  llvm::DenseMap<const Value *, HostTensor> bindings;
  for (HostTensor &operand : operands) {
    inputs.push_back(module.addInput("x" + std::to_string(inputs.size()), operand.type));
    bindings[inputs.back()] = operand;
  }
  Node *node = g.make(op, inputs, attributes);
  llvm::SmallVector<Value *, 3> dys(node->results.size(), nullptr);
  dys[0] = g.splatLike(node->result(), 1);
  for (Value *gradient : gradientsOf(g, *node, dys))
    if (gradient)
      graph.results.push_back({"d", gradient});
  Expected<std::vector<HostTensor>> results = interpret(module, graph, bindings);
  EXPECT_TRUE(bool(results)) << results.error().text();
  return *results;
}

HostTensor row(std::vector<double> values) {
  TensorType type{DType::f32, {static_cast<int64_t>(values.size())}};
  return HostTensor::real(type, std::move(values));
}

using Reals = std::vector<double>;

TEST(GradientAtKinks, ReluAndAbsAreFlatAtZero) {
  EXPECT_EQ(gradientsAt(OpKind::Relu, {row({-1, 0, 2})})[0].reals, (Reals{0, 0, 1}));
  EXPECT_EQ(gradientsAt(OpKind::Abs, {row({-1, 0, 2})})[0].reals, (Reals{-1, 0, 1}));
}

TEST(GradientAtKinks, TiedExtremaSplitEqually) {
  std::vector<HostTensor> max = gradientsAt(OpKind::Max, {row({1, 2, 3}), row({3, 2, 1})});
  EXPECT_EQ(max[0].reals, (Reals{0, 0.5, 1}));
  EXPECT_EQ(max[1].reals, (Reals{1, 0.5, 0}));
  std::vector<HostTensor> min = gradientsAt(OpKind::Min, {row({1, 2, 3}), row({3, 2, 1})});
  EXPECT_EQ(min[0].reals, (Reals{1, 0.5, 0}));
  EXPECT_EQ(min[1].reals, (Reals{0, 0.5, 1}));
}

TEST(GradientAtKinks, TiedMaximaSplitEqually) {
  Attributes axes{{"axes", std::vector<int64_t>{0}}};
  EXPECT_EQ(gradientsAt(OpKind::ReduceMax, {row({4, 1, 4, 4, 4})}, axes)[0].reals,
            (Reals{0.25, 0, 0.25, 0.25, 0.25}));
}

TEST(GradientAtKinks, PowersOfZeroAndOfNegativeNumbersAreFinite) {
  std::vector<HostTensor> pow = gradientsAt(OpKind::Pow, {row({0, 0, 0, -2, -2}), row({0, 1, 2, 3, 0})});
  EXPECT_EQ(pow[0].reals, (Reals{0, 1, 0, 12, 0}));
  EXPECT_EQ(pow[1].reals, (Reals{0, 0, 0, 0, 0}));
}

TEST(GradientAtKinks, ConstantExponentsNeedNoPowerInTheBackward) {
  for (double exponent : {0.0, 1.0, 2.0, 3.0, 0.5, -1.0}) {
    Module module;
    Graph &graph = module.addGraph("forward");
    GradientBuilder g(module, graph);
    Value *x = module.addInput("x", {DType::f32, {3}});
    Value *splat = g.splatLike(x, exponent);
    Node *node = g.make(OpKind::Pow, {x, splat});
    Gradients gradients = gradientsOf(g, *node, {module.addInput("dy", x->type)});
    EXPECT_EQ(gradients[1], kNoGradient);
    int powers = 0;
    for (const Node *made : graph.nodes)
      powers += made->op == OpKind::Pow;
    EXPECT_EQ(powers, 1) << exponent;
  }
}

TEST(GradientAtKinks, IgnoredRowsOfACrossEntropyHaveNoGradient) {
  HostTensor logits = HostTensor::real({DType::f32, {2, 2}}, {5, 5, 1, 3});
  HostTensor labels = HostTensor::integer({DType::i64, {2}}, {0, -100});
  Reals dx = gradientsAt(OpKind::CrossEntropy, {logits, labels})[0].reals;
  EXPECT_NEAR(dx[0], -0.5, 1e-15);
  EXPECT_NEAR(dx[1], 0.5, 1e-15);
  EXPECT_EQ(dx[2], 0);
  EXPECT_EQ(dx[3], 0);
}

TEST(GradientNodes, MatMulUsesFlagsInsteadOfTransposes) {
  for (int64_t transA : {0, 1})
    for (int64_t transB : {0, 1}) {
      Module module;
      Graph &graph = module.addGraph("forward");
      GradientBuilder g(module, graph);
      Value *a = module.addInput("a", {DType::f32, {4, 4}}), *b = module.addInput("b", {DType::f32, {4, 4}});
      Node *node = g.make(OpKind::MatMul, {a, b}, {{"trans_a", transA}, {"trans_b", transB}});
      gradientsOf(g, *node, {module.addInput("dy", {DType::f32, {4, 4}})});
      EXPECT_EQ(graph.nodes.size(), 3u);
    }
}

TEST(GradientNodes, StepsAndPredicatesLetNothingThrough) {
  for (OpKind op : {OpKind::Sign, OpKind::Floor}) {
    Module module;
    Graph &graph = module.addGraph("forward");
    GradientBuilder g(module, graph);
    Node *node = g.make(op, {module.addInput("x", {DType::f32, {3}})});
    EXPECT_EQ(gradientsOf(g, *node, {module.addInput("dy", {DType::f32, {3}})}), Gradients{kNoGradient});
    EXPECT_EQ(graph.nodes.size(), 1u);
  }
}

TEST(GradientNodes, IntegersLetNothingThroughACast) {
  Module module;
  Graph &graph = module.addGraph("forward");
  GradientBuilder g(module, graph);
  Value *x = module.addInput("x", {DType::i64, {3}});
  Value *y = g.cast(x, DType::f32);
  EXPECT_EQ(gradientsOf(g, *y->definition, {module.addInput("dy", y->type)}), Gradients{kNoGradient});
}

} // namespace
} // namespace zerocc
