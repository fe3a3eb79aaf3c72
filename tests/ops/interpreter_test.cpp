// The plain interpreter against values computed by hand. It is what everything else is compared with, so
// every op has an example here, and every edge the op list names.

#include "compiler/ops/interpreter.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringRef.h"
#include "gtest/gtest.h"

#include <cmath>
#include <limits>

namespace zerocc {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr int64_t kLeast64 = std::numeric_limits<int64_t>::min();
constexpr int64_t kGreatest64 = std::numeric_limits<int64_t>::max();

using Ints = std::vector<int64_t>;
using Text = std::string;

HostTensor real(Dims dims, std::vector<double> values, DType dtype = DType::f32) {
  return HostTensor::real({dtype, std::move(dims)}, std::move(values));
}
HostTensor scalar64(double value) { return real({}, {value}, DType::f64); }
HostTensor whole(Dims dims, Ints values, DType dtype = DType::i64) {
  return HostTensor::integer({dtype, std::move(dims)}, std::move(values));
}
HostTensor flags(Dims dims, Ints values) { return whole(std::move(dims), std::move(values), DType::boolean); }

/// One evaluation of one op: its operands and what must come out.
struct Example {
  OpKind op;
  Text name;
  std::vector<HostTensor> inputs;
  Attributes attributes;
  std::vector<HostTensor> results;
};

Expected<std::vector<HostTensor>> evaluate(OpKind op, llvm::ArrayRef<HostTensor> inputs,
                                           const Attributes &attributes,
                                           const InterpretOptions &options = {}) {
  Module module;
  Graph &graph = module.addGraph("forward");
  GraphBuilder g(module, graph);
  g.location = "/n";
  std::vector<Value *> operands;
  std::vector<const HostTensor *> values;
  for (const HostTensor &input : inputs) {
    operands.push_back(module.addInput("x" + std::to_string(operands.size()), input.type));
    values.push_back(&input);
  }
  ZEROCC_ASSIGN(Node * node, g.tryMake(op, operands, attributes));
  return interpretNode(*node, values, options);
}

const double kE = std::exp(1.0);
const double kPhi1 = 0.8413447460685429;   // Φ(1)
const double kBell1 = 0.24197072451914337; // φ(1) = e^-½ / √(2π)

std::vector<Example> viewExamples() {
  HostTensor matrix = real({2, 3}, {1, 2, 3, 4, 5, 6});
  HostTensor line = whole({5}, {10, 11, 12, 13, 14});
  return {
      {OpKind::Reshape,
       "keeps_the_order",
       {matrix},
       {{"shape", Ints{3, 2}}},
       {real({3, 2}, {1, 2, 3, 4, 5, 6})}},
      {OpKind::Reshape, "of_integers", {whole({1}, {7})}, {{"shape", Ints{}}}, {whole({}, {7})}},
      {OpKind::Transpose, "swaps", {matrix}, {{"perm", Ints{1, 0}}}, {real({3, 2}, {1, 4, 2, 5, 3, 6})}},
      {OpKind::Transpose,
       "result_axis_k_is_operand_axis_perm_k",
       {real({1, 2, 3}, {1, 2, 3, 4, 5, 6})},
       {{"perm", Ints{2, 0, 1}}},
       {real({3, 1, 2}, {1, 4, 2, 5, 3, 6})}},
      {OpKind::Broadcast,
       "aligns_right",
       {whole({2}, {1, 2})},
       {{"shape", Ints{2, 2}}},
       {whole({2, 2}, {1, 2, 1, 2})}},
      {OpKind::Broadcast,
       "repeats_axes_of_one",
       {real({2, 1}, {1, 2})},
       {{"shape", Ints{2, 3}}},
       {real({2, 3}, {1, 1, 1, 2, 2, 2})}},
      {OpKind::Broadcast, "to_nothing", {real({1}, {1})}, {{"shape", Ints{0}}}, {real({0}, {})}},
      {OpKind::Slice,
       "of_a_matrix",
       {matrix},
       {{"starts", Ints{0, 1}}, {"sizes", Ints{2, 2}}, {"steps", Ints{1, 1}}},
       {real({2, 2}, {2, 3, 5, 6})}},
      {OpKind::Slice,
       "backwards",
       {line},
       {{"starts", Ints{4}}, {"sizes", Ints{3}}, {"steps", Ints{-2}}},
       {whole({3}, {14, 12, 10})}},
      {OpKind::Slice,
       "of_nothing",
       {line},
       {{"starts", Ints{0}}, {"sizes", Ints{0}}, {"steps", Ints{1}}},
       {whole({0}, {})}},
  };
}

std::vector<Example> movementExamples() {
  HostTensor matrix = real({3, 2}, {1, 2, 3, 4, 5, 6});
  Attributes toI32{{"to", Text("i32")}}, toI64{{"to", Text("i64")}}, toI8{{"to", Text("i8")}},
      toU8{{"to", Text("u8")}}, toBool{{"to", Text("bool")}}, toF32{{"to", Text("f32")}};
  return {
      {OpKind::Copy, "of_flags", {flags({2}, {1, 0})}, {}, {flags({2}, {1, 0})}},
      {OpKind::Concat,
       "along_the_last_axis",
       {real({2, 1}, {1, 2}), real({2, 2}, {3, 4, 5, 6})},
       {{"axis", int64_t(1)}},
       {real({2, 3}, {1, 3, 4, 2, 5, 6})}},
      {OpKind::Concat,
       "with_an_empty_one",
       {whole({0}, {}), whole({2}, {1, 2})},
       {{"axis", int64_t(0)}},
       {whole({2}, {1, 2})}},
      {OpKind::Pad,
       "with_a_value",
       {real({1, 2}, {1, 2})},
       {{"low", Ints{1, 0}}, {"high", Ints{0, 1}}, {"value", 9.0}},
       {real({2, 3}, {9, 9, 9, 1, 2, 9})}},
      {OpKind::Pad,
       "of_integers",
       {whole({1}, {5})},
       {{"low", Ints{1}}, {"high", Ints{1}}, {"value", -1.0}},
       {whole({3}, {-1, 5, -1})}},
      {OpKind::Cast,
       "truncates",
       {real({4}, {1.9, -1.9, 0.5, -0.5})},
       toI32,
       {whole({4}, {1, -1, 0, 0}, DType::i32)}},
      {OpKind::Cast,
       "clamps_reals",
       {real({4}, {1e30, -1e30, kNan, kInfinity})},
       toI64,
       {whole({4}, {kGreatest64, kLeast64, 0, kGreatest64})}},
      {OpKind::Cast,
       "clamps_to_u8",
       {real({3}, {300, -3, 255.5})},
       toU8,
       {whole({3}, {255, 0, 255}, DType::u8)}},
      {OpKind::Cast,
       "wraps_integers",
       {whole({3}, {128, 255, -129})},
       toI8,
       {whole({3}, {-128, -1, 127}, DType::i8)}},
      {OpKind::Cast, "to_bool_is_not_zero", {real({3}, {0, 0.1, kNan})}, toBool, {flags({3}, {0, 1, 1})}},
      {OpKind::Cast, "of_integers_to_bool", {whole({3}, {0, 256, -1})}, toBool, {flags({3}, {0, 1, 1})}},
      {OpKind::Cast, "of_flags", {flags({2}, {1, 0})}, toF32, {real({2}, {1, 0})}},
      {OpKind::Iota,
       "of_integers",
       {},
       {{"dtype", Text("i64")}, {"shape", Ints{3}}},
       {whole({3}, {0, 1, 2})}},
      {OpKind::Iota, "of_reals", {}, {{"dtype", Text("f32")}, {"shape", Ints{2}}}, {real({2}, {0, 1})}},
      {OpKind::Gather,
       "of_rows_counts_negative_ones_from_the_end",
       {matrix, whole({3}, {2, -3, -1})},
       {{"axis", int64_t(0)}},
       {real({3, 2}, {5, 6, 1, 2, 5, 6})}},
      {OpKind::Gather,
       "by_a_scalar_removes_the_axis",
       {matrix, whole({}, {1}, DType::i32)},
       {{"axis", int64_t(1)}},
       {real({3}, {2, 4, 6})}},
      {OpKind::ScatterAdd,
       "sums_what_meets",
       {whole({4}, {1, -1, 1, 0}), real({4}, {10, 20, 30, 40})},
       {{"axis", int64_t(0)}, {"size", int64_t(3)}},
       {real({3}, {40, 40, 20})}},
      {OpKind::ScatterAdd,
       "inside_of_other_axes",
       {whole({1}, {1}), whole({2, 1, 2}, {1, 2, 3, 4})},
       {{"axis", int64_t(1)}, {"size", int64_t(2)}},
       {whole({2, 2, 2}, {0, 0, 1, 2, 0, 0, 3, 4})}},
  };
}

std::vector<Example> unaryExamples() {
  auto of = [](OpKind op, Text name, std::vector<double> x, std::vector<double> y,
               Attributes attributes = {}) {
    Dims dims{static_cast<int64_t>(x.size())};
    return Example{op, name, {real(dims, x)}, attributes, {real(dims, y)}};
  };
  return {
      of(OpKind::Neg, "of_reals", {1, -2, 0}, {-1, 2, -0.0}),
      {OpKind::Neg, "wraps", {whole({2}, {3, kLeast64})}, {}, {whole({2}, {-3, kLeast64})}},
      of(OpKind::Abs, "of_reals", {1, -2, -kInfinity}, {1, 2, kInfinity}),
      {OpKind::Abs, "of_integers", {whole({2}, {-3, 4})}, {}, {whole({2}, {3, 4})}},
      of(OpKind::Sign, "of_reals", {3, -2, 0, kNan}, {1, -1, 0, kNan}),
      {OpKind::Sign, "of_integers", {whole({3}, {-3, 0, 4})}, {}, {whole({3}, {-1, 0, 1})}},
      of(OpKind::Exp, "of_reals", {0, 1, -kInfinity}, {1, kE, 0}),
      of(OpKind::Log, "of_reals", {1, kE, 0, -1}, {0, 1, -kInfinity, kNan}),
      of(OpKind::Sqrt, "of_reals", {4, 0, -1}, {2, 0, kNan}),
      of(OpKind::Tanh, "of_reals", {0, kInfinity, 0.5 * std::log(3.0)}, {0, 1, 0.5}),
      of(OpKind::Sigmoid, "of_reals", {0, std::log(3.0), -1e4}, {0.5, 0.75, 0}),
      of(OpKind::Erf, "of_reals", {0, 1, -kInfinity}, {0, 0.8427007929497149, -1}),
      of(OpKind::Sin, "of_reals", {0, M_PI / 6}, {0, 0.5}),
      of(OpKind::Cos, "of_reals", {0, M_PI / 3}, {1, 0.5}),
      of(OpKind::Relu, "of_reals", {-1, 0, 2, kNan}, {0, 0, 2, kNan}),
      {OpKind::Relu, "of_integers", {whole({2}, {-3, 4})}, {}, {whole({2}, {0, 4})}},
      of(OpKind::Floor, "of_reals", {1.5, -1.5, 2}, {1, -2, 2}),
      of(OpKind::Gelu, "by_erf", {0, 1, -1}, {0, kPhi1, kPhi1 - 1}),
      of(OpKind::Gelu, "by_tanh", {0, 1}, {0, 0.8411919906082768}, {{"approximate", Text("tanh")}}),
      {OpKind::Not, "of_flags", {flags({2}, {1, 0})}, {}, {flags({2}, {0, 1})}},
      {OpKind::IsNan, "of_reals", {real({3}, {1, kNan, kInfinity})}, {}, {flags({3}, {0, 1, 0})}},
  };
}

std::vector<Example> functionExamples() {
  auto of = [](OpKind op, std::vector<double> x, std::vector<double> y) {
    Dims dims{static_cast<int64_t>(x.size())};
    return Example{op, "of_reals", {real(dims, x)}, {}, {real(dims, y)}};
  };
  auto bits = [](OpKind op, DType dtype, Ints a, Ints b, Ints y) {
    Dims dims{static_cast<int64_t>(a.size())};
    return Example{op,
                   "of_" + Text(dtypeName(dtype)),
                   {whole(dims, a, dtype), whole(dims, b, dtype)},
                   {},
                   {whole(dims, y, dtype)}};
  };
  const double root3 = std::sqrt(3.0);
  return {
      of(OpKind::Round, {0.5, 1.5, -2.5, 2.4, kInfinity}, {0, 2, -2, 2, kInfinity}),
      of(OpKind::Tan, {0, M_PI / 4}, {0, 1}),
      of(OpKind::Asin, {0.5, -1, 2}, {M_PI / 6, -M_PI / 2, kNan}),
      of(OpKind::Acos, {0.5, -1}, {M_PI / 3, M_PI}),
      of(OpKind::Atan, {1, -root3, kInfinity}, {M_PI / 4, -M_PI / 3, M_PI / 2}),
      of(OpKind::Sinh, {0, std::log(2.0)}, {0, 0.75}),
      of(OpKind::Cosh, {0, std::log(2.0)}, {1, 1.25}),
      of(OpKind::Asinh, {0, 0.75}, {0, std::log(2.0)}),
      of(OpKind::Acosh, {1, 1.25, 0.5}, {0, std::log(2.0), kNan}),
      of(OpKind::Atanh, {0, 0.6, 1}, {0, std::log(2.0), kInfinity}),
      bits(OpKind::BitAnd, DType::i32, {12, -1}, {10, 7}, {8, 7}),
      bits(OpKind::BitOr, DType::i64, {12, 1}, {10, -2}, {14, -1}),
      bits(OpKind::BitXor, DType::u8, {12, 255}, {10, 1}, {6, 254}),
      bits(OpKind::ShiftLeft, DType::u8, {1, 255, 3}, {7, 4, 8}, {128, 240, 0}),
      bits(OpKind::ShiftRight, DType::i32, {16, -16, -1}, {3, 3, 40}, {2, -2, -1}),
      bits(OpKind::ShiftRight, DType::u64, {-1, 8}, {63, 64}, {1, 0}),
      bits(OpKind::Div, DType::u64, {-1, 7}, {2, 2}, {kGreatest64, 3}),
      bits(OpKind::Max, DType::u64, {-1, 7}, {2, 2}, {-1, 7}),
  };
}

std::vector<Example> indexExamples() {
  HostTensor rows = real({2, 4}, {3, 1, 3, 2, kNan, 5, 9, 9});
  auto flag = [](const char *name) { return Attributes{{name, int64_t(1)}}; };
  HostTensor line = real({4}, {1, 2, 0, 4});
  auto scatter = [](const char *reduction, std::vector<double> y) {
    return Example{
        OpKind::Scatter,
        reduction,
        {real({3, 2}, {1, 2, 3, 4, 5, 6}), whole({3}, {2, 0, -1}), real({3, 2}, {9, 8, 7, 6, -5, 50})},
        {{"reduction", Text(reduction)}},
        {real({3, 2}, std::move(y))}};
  };
  return {
      {OpKind::ArgMax, "the_first_of_equals", {rows}, {}, {whole({2}, {0, 0})}},
      {OpKind::ArgMax, "the_last_of_equals", {rows}, flag("last"), {whole({2}, {2, 0})}},
      {OpKind::ArgMax, "the_smallest", {rows}, flag("smallest"), {whole({2}, {1, 1})}},
      {OpKind::TopK,
       "in_order",
       {rows},
       {{"k", int64_t(3)}},
       {real({2, 3}, {3, 3, 2, kNan, 9, 9}), whole({2, 3}, {0, 2, 3, 0, 2, 3})}},
      {OpKind::TopK,
       "smallest",
       {rows},
       {{"k", int64_t(2)}, {"smallest", int64_t(1)}},
       {real({2, 2}, {1, 2, 5, 9}), whole({2, 2}, {1, 3, 1, 2})}},
      {OpKind::CumSum, "inclusive", {line}, {}, {real({4}, {1, 3, 3, 7})}},
      {OpKind::CumSum,
       "exclusive_reverse",
       {line},
       {{"exclusive", int64_t(1)}, {"reverse", int64_t(1)}},
       {real({4}, {6, 4, 4, 0})}},
      {OpKind::CumProd, "inclusive", {line}, {}, {real({4}, {1, 2, 0, 0})}},
      {OpKind::CumProd, "exclusive", {line}, flag("exclusive"), {real({4}, {1, 1, 2, 0})}},
      // y = x0, x0 x1, x0 x1 x2: dx0 = 1 + x1 + x1 x2, dx1 = x0 + x0 x2, dx2 = x0 x1
      {OpKind::CumProdGrad,
       "of_ones",
       {real({3}, {2, 3, 5}), real({3}, {1, 1, 1})},
       {},
       {real({3}, {19, 12, 6})}},
      scatter("none", {7, 6, 3, 4, -5, 50}),
      scatter("mul", {7, 12, 3, 4, -225, 2400}),
      scatter("max", {7, 6, 3, 4, 9, 50}),
      scatter("min", {1, 2, 3, 4, -5, 6}),
  };
}

std::vector<Example> windowExamples() {
  auto window = [](Ints strides, Ints low, Ints high, Ints dilations) {
    return Attributes{{"strides", strides}, {"low", low}, {"high", high}, {"dilations", dilations}};
  };
  auto with = [](Attributes attributes, const char *name, Ints value) {
    attributes.set(name, value);
    return attributes;
  };
  HostTensor line = real({1, 1, 4}, {1, 2, 3, 4}), pair = real({1, 1, 2}, {10, 1});
  Attributes padded = window({1}, {1}, {0}, {1}), pool = with(window({2}, {1}, {1}, {1}), "kernel", {3});
  HostTensor random = whole({3}, {1, 2, 3});
  std::vector<Example> out = {
      {OpKind::Conv, "padded_in_front", {line, pair}, padded, {real({1, 1, 4}, {1, 12, 23, 34})}},
      {OpKind::Conv, "dilated_by_strides", {line, pair}, window({2}, {0}, {0}, {2}), {real({1, 1, 1}, {13})}},
      {OpKind::ConvDataGrad,
       "scatters",
       {real({1, 1, 4}, {1, 1, 1, 1}), pair},
       with(padded, "shape", {1, 1, 4}),
       {real({1, 1, 4}, {11, 11, 11, 1})}},
      {OpKind::ConvWeightGrad,
       "sums_products",
       {line, real({1, 1, 4}, {1, 1, 1, 1})},
       with(padded, "shape", {1, 1, 2}),
       {real({1, 1, 2}, {6, 10})}},
      {OpKind::MaxPool, "by_two", {line}, pool, {real({1, 1, 2}, {2, 4})}},
      {OpKind::MaxPool,
       "of_integers_in_padding",
       {whole({1, 1, 1}, {-5}, DType::i8)},
       with(window({1}, {1}, {1}, {1}), "kernel", {1}),
       {whole({1, 1, 3}, {-128, -5, -128}, DType::i8)}},
      {OpKind::MaxPoolIndex,
       "the_first_of_equals",
       {real({1, 2, 3}, {1, 1, 0, 0, 7, 7})},
       with(window({1}, {0}, {0}, {1}), "kernel", {2}),
       {whole({1, 2, 2}, {0, 1, 1, 1})}},
      {OpKind::MaxPoolGrad,
       "to_the_greatest",
       {line, real({1, 1, 2}, {5, 7})},
       pool,
       {real({1, 1, 4}, {0, 5, 0, 7})}},
      {OpKind::SumPool, "by_two", {line}, pool, {real({1, 1, 2}, {3, 9})}},
      {OpKind::SumPoolGrad,
       "to_every_window",
       {real({1, 1, 2}, {5, 7})},
       with(pool, "shape", {1, 1, 4}),
       {real({1, 1, 4}, {5, 12, 7, 7})}},
      {OpKind::Dropout,
       "of_nothing",
       {real({3}, {1, 2, 3}), random},
       {{"rate", 0.0}, {"id", int64_t(0)}},
       {real({3}, {1, 2, 3})}},
      {OpKind::KeepMask,
       "of_nothing",
       {random},
       {{"rate", 0.0}, {"id", int64_t(0)}, {"shape", Ints{2}}},
       {flags({2}, {1, 1})}},
  };
  return out;
}

std::vector<Example> binaryExamples() {
  auto reals = [](OpKind op, std::vector<double> a, std::vector<double> b, std::vector<double> y) {
    Dims dims{static_cast<int64_t>(a.size())};
    return Example{op, "of_reals", {real(dims, a), real(dims, b)}, {}, {real(dims, y)}};
  };
  auto wholes = [](OpKind op, Ints a, Ints b, Ints y, DType dtype = DType::i64) {
    Dims dims{static_cast<int64_t>(a.size())};
    return Example{op,
                   "of_" + Text(dtypeName(dtype)),
                   {whole(dims, a, dtype), whole(dims, b, dtype)},
                   {},
                   {whole(dims, y, dtype)}};
  };
  auto compare = [](Text kind, Ints realResult, Ints wholeResult) {
    Example ofReals{OpKind::Compare,
                    kind,
                    {real({4}, {1, 2, 3, kNan}), real({4}, {2, 2, 2, kNan})},
                    {{"kind", kind}},
                    {flags({4}, realResult)}};
    Example ofWholes{OpKind::Compare,
                     kind + "_of_integers",
                     {whole({3}, {-1, 2, 3}), whole({3}, {2, 2, 2})},
                     {{"kind", kind}},
                     {flags({3}, wholeResult)}};
    return std::pair(ofReals, ofWholes);
  };
  std::vector<Example> out = {
      reals(OpKind::Add, {1, kInfinity}, {2, -kInfinity}, {3, kNan}),
      wholes(OpKind::Add, {1, kGreatest64}, {2, 1}, {3, kLeast64}),
      wholes(OpKind::Add, {100, -100}, {100, -100}, {-56, 56}, DType::i8),
      wholes(OpKind::Add, {200}, {100}, {44}, DType::u8),
      reals(OpKind::Sub, {1, 2}, {3, 0.5}, {-2, 1.5}),
      wholes(OpKind::Sub, {1, kLeast64}, {3, 1}, {-2, kGreatest64}),
      reals(OpKind::Mul, {2, 0}, {3, kInfinity}, {6, kNan}),
      wholes(OpKind::Mul, {2, int64_t(1) << 32}, {3, int64_t(1) << 32}, {6, 0}),
      reals(OpKind::Div, {1, 1, 0}, {4, 0, 0}, {0.25, kInfinity, kNan}),
      wholes(OpKind::Div, {7, -7, 7, kLeast64}, {2, 2, -2, -1}, {3, -3, -3, kLeast64}),
      reals(OpKind::Mod, {7.5, -7.5, 7.5}, {2, 2, -2}, {1.5, -1.5, 1.5}),
      wholes(OpKind::Mod, {7, -7, 7, -7, 6, kLeast64}, {3, 3, -3, -3, -3, -1}, {1, 2, -2, -1, 0, 0}),
      reals(OpKind::Pow, {2, 0, -2, 4}, {3, 0, 3, 0.5}, {8, 1, -8, 2}),
      wholes(OpKind::Pow, {2, 0, -3, 2, -1, 1, -1}, {10, 0, 3, -1, -3, -2, -2}, {1024, 1, -27, 0, -1, 1, 1}),
      reals(OpKind::Max, {1, 3, kNan, 1}, {2, 2, 1, kNan}, {2, 3, kNan, kNan}),
      wholes(OpKind::Max, {1, 3}, {2, 2}, {2, 3}),
      reals(OpKind::Min, {1, 3, kNan, 1}, {2, 2, 1, kNan}, {1, 2, kNan, kNan}),
      wholes(OpKind::Min, {1, 3}, {2, 2}, {1, 2}),
      wholes(OpKind::And, {0, 0, 1, 1}, {0, 1, 0, 1}, {0, 0, 0, 1}, DType::boolean),
      wholes(OpKind::Or, {0, 0, 1, 1}, {0, 1, 0, 1}, {0, 1, 1, 1}, DType::boolean),
      reals(OpKind::Accumulate, {1}, {2}, {3}),
      reals(OpKind::GeluGrad, {0, 1}, {2, 2}, {1, 2 * (kPhi1 + kBell1)}),
      {OpKind::GeluGrad,
       "by_tanh",
       {real({2}, {0, 1}), real({2}, {1, 1})},
       {{"approximate", Text("tanh")}},
       {real({2}, {0.5, 1.0829640838457826})}},
      {OpKind::Select,
       "picks",
       {flags({3}, {1, 0, 1}), real({3}, {1, 2, kNan}), real({3}, {4, kNan, 6})},
       {},
       {real({3}, {1, kNan, kNan})}},
      {OpKind::Select,
       "of_integers",
       {flags({2}, {1, 0}), whole({2}, {1, 2}), whole({2}, {3, 4})},
       {},
       {whole({2}, {1, 4})}},
      {OpKind::Compare,
       "eq_of_flags",
       {flags({2}, {1, 0}), flags({2}, {1, 1})},
       {{"kind", Text("eq")}},
       {flags({2}, {1, 0})}},
  };
  for (auto [ofReals, ofWholes] :
       {compare("eq", {0, 1, 0, 0}, {0, 1, 0}), compare("ne", {1, 0, 1, 1}, {1, 0, 1}),
        compare("lt", {1, 0, 0, 0}, {1, 0, 0}), compare("le", {1, 1, 0, 0}, {1, 1, 0}),
        compare("gt", {0, 0, 1, 0}, {0, 0, 1}), compare("ge", {0, 1, 1, 0}, {0, 1, 1})}) {
    out.push_back(ofReals);
    out.push_back(ofWholes);
  }
  return out;
}

std::vector<Example> reductionExamples() {
  HostTensor matrix = real({2, 3}, {1, 5, 3, 4, 2, 6});
  HostTensor a = real({2, 2}, {1, 2, 3, 4}), b = real({2, 3}, {1, 0, 2, 0, 1, 3});
  HostTensor at = real({2, 2}, {1, 3, 2, 4}), bt = real({3, 2}, {1, 0, 0, 1, 2, 3});
  HostTensor ab = real({2, 3}, {1, 2, 8, 3, 4, 18});
  return {
      {OpKind::ReduceSum, "of_columns", {matrix}, {{"axes", Ints{1}}}, {real({2}, {9, 12})}},
      {OpKind::ReduceSum, "of_rows", {matrix}, {{"axes", Ints{0}}}, {real({3}, {5, 7, 9})}},
      {OpKind::ReduceSum, "of_all", {matrix}, {{"axes", Ints{0, 1}}}, {real({}, {21})}},
      {OpKind::ReduceSum, "of_no_axis", {matrix}, {{"axes", Ints{}}}, {matrix}},
      {OpKind::ReduceSum, "of_nothing", {real({2, 0}, {})}, {{"axes", Ints{1}}}, {real({2}, {0, 0})}},
      {OpKind::ReduceSum,
       "wraps",
       {whole({2}, {100, 100}, DType::i8)},
       {{"axes", Ints{0}}},
       {whole({}, {-56}, DType::i8)}},
      {OpKind::ReduceMax, "of_columns", {matrix}, {{"axes", Ints{1}}}, {real({2}, {5, 6})}},
      {OpKind::ReduceMax,
       "of_the_outer_axes",
       {real({2, 2, 2}, {1, 2, 3, 4, 8, 7, 6, 5})},
       {{"axes", Ints{0, 2}}},
       {real({2}, {8, 6})}},
      {OpKind::ReduceMax,
       "of_nan_and_infinity",
       {real({2, 2}, {1, kNan, -kInfinity, -kInfinity})},
       {{"axes", Ints{1}}},
       {real({2}, {kNan, -kInfinity})}},
      {OpKind::ReduceMax, "of_integers", {whole({2}, {-5, -3})}, {{"axes", Ints{0}}}, {whole({}, {-3})}},
      {OpKind::MatMul, "plain", {a, b}, {}, {ab}},
      {OpKind::MatMul, "left_swapped", {at, b}, {{"trans_a", int64_t(1)}}, {ab}},
      {OpKind::MatMul, "right_swapped", {a, bt}, {{"trans_b", int64_t(1)}}, {ab}},
      {OpKind::MatMul, "both_swapped", {at, bt}, {{"trans_a", int64_t(1)}, {"trans_b", int64_t(1)}}, {ab}},
      {OpKind::MatMul,
       "batched",
       {real({2, 1, 2}, {1, 2, 3, 4}), real({2, 2, 1}, {1, 1, 2, 3})},
       {},
       {real({2, 1, 1}, {3, 18})}},
      {OpKind::MatMul,
       "without_inner_elements",
       {real({1, 0}, {}), real({0, 2}, {})},
       {},
       {real({1, 2}, {0, 0})}},
      {OpKind::MatMul,
       "keeps_nan",
       {real({1, 2}, {0, 1}), real({2, 1}, {kNan, 1})},
       {},
       {real({1, 1}, {kNan})}},
  };
}

std::vector<Example> compositeExamples() {
  double log2 = std::log(2.0), log3 = std::log(3.0), log4 = std::log(4.0);
  HostTensor hidden = real({2, 2}, {-kInfinity, -kInfinity, 0, log3});
  // Rows with mean 2 and variance 1: without eps, x̂ = ±1.
  HostTensor x = real({2, 2}, {1, 3, 3, 1}), scale = real({2}, {2, 3}), bias = real({2}, {10, 20});
  HostTensor mean = real({2}, {2, 2}), rstd = real({2}, {1, 1});
  // Three classes; rows: [0, ln 2, 0] of label 1, ignored, [0, 0, ln 2] of label 0: e^lse = 4.
  HostTensor logits = real({3, 3}, {0, log2, 0, 7, 8, 9, 0, 0, log2});
  HostTensor labels = whole({3}, {1, -100, 0});
  HostTensor lse = real({3}, {log4, 0, log4});
  Attributes smooth{{"label_smoothing", 0.3}, {"ignore_index", int64_t(-100)}};
  double rowMean = log4 - log2 / 3; // -Σ_c log p_c / 3
  return {
      {OpKind::Softmax,
       "of_rows",
       {real({2, 2}, {0, log3, 1000, 1000})},
       {},
       {real({2, 2}, {0.25, 0.75, 0.5, 0.5})}},
      {OpKind::Softmax, "of_hidden_rows_is_nan", {hidden}, {}, {real({2, 2}, {kNan, kNan, 0.25, 0.75})}},
      {OpKind::Softmax,
       "of_hidden_rows_is_zero_when_safe",
       {hidden},
       {{"safe", int64_t(1)}},
       {real({2, 2}, {0, 0, 0.25, 0.75})}},
      {OpKind::Softmax,
       "keeps_nan_when_safe",
       {real({2}, {kNan, 0})},
       {{"safe", int64_t(1)}},
       {real({2}, {kNan, kNan})}},
      {OpKind::SoftmaxGrad,
       "of_rows",
       {real({2}, {0.25, 0.75}), real({2}, {4, 0})},
       {},
       {real({2}, {0.75, -0.75})}},
      {OpKind::LogSoftmax,
       "of_rows",
       {real({2, 2}, {0, log3, 1000, 1000})},
       {},
       {real({2, 2}, {-log4, log3 - log4, -log2, -log2})}},
      {OpKind::LogSoftmax,
       "of_a_hidden_element",
       {real({2}, {-kInfinity, 5})},
       {},
       {real({2}, {-kInfinity, 0})}},
      {OpKind::LogSoftmaxGrad,
       "of_rows",
       {real({2}, {-log4, log3 - log4}), real({2}, {4, 0})},
       {},
       {real({2}, {3, -3})}},
      {OpKind::LayerNorm,
       "with_bias",
       {x, scale, bias},
       {{"eps", 0.0}},
       {real({2, 2}, {8, 23, 12, 17}), mean, rstd}},
      {OpKind::LayerNorm,
       "without_bias",
       {x, scale},
       {{"eps", 3.0}},
       {real({2, 2}, {-1, 1.5, 1, -1.5}), mean, real({2}, {0.5, 0.5})}},
      // g = [2, 0]: Σ g / D = 1, Σ g x̂ / D = -1: dx = [2 - 1 - 1, 0 - 1 + 1]; any g of two elements gives
      // zeros.
      {OpKind::LayerNormGrad,
       "of_two_elements",
       {real({1, 2}, {1, 3}), scale, real({1}, {2}), real({1}, {1}), real({1, 2}, {1, 0})},
       {},
       {real({1, 2}, {0, 0})}},
      // x̂ = [-2, 0, 2] / 2 · ½ … with rstd ½: [-½, 0, ½]; g = [6, 0, 0]: Σ g / D = 2, Σ g x̂ / D = -1.
      {OpKind::LayerNormGrad,
       "of_three_elements",
       {real({1, 3}, {1, 2, 3}), real({3}, {2, 1, 1}), real({1}, {2}), real({1}, {0.5}),
        real({1, 3}, {3, 0, 0})},
       {},
       {real({1, 3}, {0.5 * (6 - 2 - 0.5), 0.5 * (-2), 0.5 * (-2 + 0.5)})}},
      {OpKind::LayerNormParameterGrad,
       "sums_rows",
       {x, mean, rstd, real({2, 2}, {1, 2, 3, 4})},
       {},
       {real({2}, {-1 + 3, 2 - 4}), real({2}, {4, 6})}},
      {OpKind::CrossEntropy,
       "skips_ignored_rows",
       {logits, labels},
       {{"ignore_index", int64_t(-100)}},
       {scalar64((log4 - log2) + log4), scalar64(2), lse}},
      {OpKind::CrossEntropy,
       "ignores_a_valid_class",
       {logits, whole({3}, {1, 0, 0})},
       {{"ignore_index", int64_t(0)}},
       {scalar64(log4 - log2), scalar64(1), real({3}, {log4, 0, 0})}},
      {OpKind::CrossEntropy,
       "smoothed",
       {logits, labels},
       smooth,
       {scalar64(0.7 * (log4 - log2 + log4) + 0.3 * 2 * rowMean), scalar64(2), lse}},
      {OpKind::CrossEntropy,
       "of_only_ignored_rows",
       {real({1, 2}, {1, 2}), whole({1}, {-100})},
       {{"ignore_index", int64_t(-100)}},
       {scalar64(0), scalar64(0), real({1}, {0})}},
      {OpKind::CrossEntropy,
       "of_a_hidden_class",
       {real({1, 2}, {0, -kInfinity}), whole({1}, {0}, DType::i32)},
       {},
       {scalar64(0), scalar64(1), real({1}, {0})}},
      {OpKind::CrossEntropyGrad,
       "skips_ignored_rows",
       {logits, labels, lse, real({}, {2})},
       {{"ignore_index", int64_t(-100)}},
       {real({3, 3}, {0.5, -1, 0.5, 0, 0, 0, -1.5, 0.5, 1})}},
      {OpKind::CrossEntropyGrad,
       "smoothed",
       {logits, labels, lse, real({}, {1})},
       smooth,
       {real({3, 3}, {0.15, -0.3, 0.15, 0, 0, 0, -0.55, 0.15, 0.4})}},
  };
}

const std::vector<Example> &examples() {
  static const std::vector<Example> all = [] {
    std::vector<Example> out;
    for (std::vector<Example> part :
         {viewExamples(), movementExamples(), unaryExamples(), binaryExamples(), reductionExamples(),
          compositeExamples(), functionExamples(), indexExamples(), windowExamples()})
      out.insert(out.end(), part.begin(), part.end());
    return out;
  }();
  return all;
}

void expectEqual(const HostTensor &actual, const HostTensor &expected) {
  EXPECT_EQ(print(actual.type), print(expected.type));
  EXPECT_EQ(actual.integers, expected.integers);
  ASSERT_EQ(actual.reals.size(), expected.reals.size());
  for (size_t i = 0; i < expected.reals.size(); ++i) {
    double a = actual.reals[i], e = expected.reals[i];
    bool same =
        a == e || (std::isnan(a) && std::isnan(e)) || std::fabs(a - e) <= 1e-12 * std::max(1.0, std::fabs(e));
    EXPECT_TRUE(same) << "element " << i << " is " << a << ", expected " << e;
  }
}

class OpMeaning : public testing::TestWithParam<int> {};

TEST_P(OpMeaning, IsAsComputedByHand) {
  const Example &example = examples()[GetParam()];
  Expected<std::vector<HostTensor>> results = evaluate(example.op, example.inputs, example.attributes);
  ASSERT_TRUE(bool(results)) << results.error().text();
  ASSERT_EQ(results->size(), example.results.size());
  for (auto [actual, expected] : llvm::zip(*results, example.results))
    expectEqual(actual, expected);
}

INSTANTIATE_TEST_SUITE_P(Ops, OpMeaning, testing::Range(0, static_cast<int>(examples().size())),
                         [](const testing::TestParamInfo<int> &info) {
                           const Example &example = examples()[info.param];
                           return Text(opText(example.op)) + "_" + example.name + "_" +
                                  std::to_string(info.param);
                         });

/// Buffers, collectives and updates: they have no meaning outside of a step.
bool isStepOp(OpKind op) {
  return (op >= OpKind::Buffer && op <= OpKind::Sgd) || op == OpKind::RankMean || op == OpKind::Assign ||
         isOptimizer(op);
}

TEST(Interpreter, HasAnExampleOfEveryOp) {
  for (int i = 0; i < kOpKinds; ++i) {
    OpKind op = static_cast<OpKind>(i);
    bool hasExample = llvm::any_of(examples(), [&](const Example &example) { return example.op == op; });
    EXPECT_EQ(hasExample, !isStepOp(op)) << opText(op);
  }
}

std::string messageOf(const Expected<std::vector<HostTensor>> &results) {
  return results ? "no error" : results.error().findings()[0].message;
}

TEST(Interpreter, RefusesWhatHasNoValue) {
  HostTensor data = real({3}, {1, 2, 3}), logits = real({1, 2}, {1, 2});
  Attributes axis{{"axis", int64_t(0)}};
  EXPECT_EQ(messageOf(evaluate(OpKind::Gather, {data, whole({1}, {3})}, axis)),
            "node \"/n\" (gather): index 3 is outside [-3, 3)");
  EXPECT_EQ(messageOf(evaluate(OpKind::Gather, {data, whole({1}, {-4})}, axis)),
            "node \"/n\" (gather): index -4 is outside [-3, 3)");
  EXPECT_EQ(messageOf(evaluate(OpKind::ScatterAdd, {whole({1}, {2}), real({1}, {1})},
                               {{"axis", int64_t(0)}, {"size", int64_t(2)}})),
            "node \"/n\" (scatter_add): index 2 is outside [-2, 2)");
  EXPECT_EQ(messageOf(evaluate(OpKind::Div, {whole({1}, {1}), whole({1}, {0})}, {})),
            "node \"/n\" (div): integer division by zero");
  EXPECT_EQ(messageOf(evaluate(OpKind::Mod, {whole({1}, {1}), whole({1}, {0})}, {})),
            "node \"/n\" (mod): integer modulo by zero");
  EXPECT_EQ(messageOf(evaluate(OpKind::Pow, {whole({1}, {0}), whole({1}, {-1})}, {})),
            "node \"/n\" (pow): zero to the power of -1");
  EXPECT_EQ(messageOf(evaluate(OpKind::CrossEntropy, {logits, whole({1}, {2})}, {})),
            "node \"/n\" (cross_entropy): label 2 is outside [0, 2) and is not the ignored -100");
  EXPECT_EQ(messageOf(evaluate(OpKind::CrossEntropyGrad,
                               {logits, whole({1}, {-1}), real({1}, {0}), real({}, {1})}, {})),
            "node \"/n\" (cross_entropy_grad): label -1 is outside [0, 2) and is not the ignored -100");
}

TEST(Interpreter, RefusesTheOpsOfTheStep) {
  for (int i = 0; i < kOpKinds; ++i) {
    OpKind op = static_cast<OpKind>(i);
    if (!isStepOp(op))
      continue;
    Graph graph("step");
    HostTensor value = real({2}, {1, 2});
    Node *node = graph.append(op, {}, {value.type}, {}, "/n");
    EXPECT_EQ(
        messageOf(interpretNode(*node, {&value, &value, &value, &value, &value})),
        "node \"/n\" (" + Text(opText(op)) +
            "): the plain interpreter evaluates pure compute only, not buffers, collectives and updates");
  }
}

TEST(Interpreter, RoundsToTheDTypeOnRequest) {
  HostTensor x = real({2}, {1 + 0x1p-30, 3}, DType::f16);
  EXPECT_EQ((*evaluate(OpKind::Copy, {x}, {}))[0].reals[0], 1 + 0x1p-30);
  EXPECT_EQ((*evaluate(OpKind::Copy, {x}, {}, {.roundToDType = true}))[0].reals[0], 1.0);
  Attributes toBf16{{"to", Text("bf16")}};
  EXPECT_EQ((*evaluate(OpKind::Cast, {real({1}, {1 + 0x1p-8})}, toBf16))[0].reals[0], 1 + 0x1p-8);
  EXPECT_EQ((*evaluate(OpKind::Cast, {real({1}, {1 + 0x1p-8})}, toBf16, {.roundToDType = true}))[0].reals[0],
            1.0);
}

TEST(Interpreter, EvaluatesGraphs) {
  Module module;
  Graph &graph = module.addGraph("forward");
  GraphBuilder g(module, graph);
  Value *x = module.addInput("x", {DType::f32, {2}});
  Value *twice = g.scale(x, 2);
  graph.results = {{"twice", twice}, {"square", g.mul(twice, twice)}, {"x", x}};
  llvm::DenseMap<const Value *, HostTensor> bindings;
  bindings[x] = real({2}, {1, 3});
  Expected<std::vector<HostTensor>> results = interpret(module, graph, bindings);
  ASSERT_TRUE(bool(results)) << results.error().text();
  EXPECT_EQ((*results)[0].reals, (std::vector<double>{2, 6}));
  EXPECT_EQ((*results)[1].reals, (std::vector<double>{4, 36}));
  EXPECT_EQ((*results)[2].reals, (std::vector<double>{1, 3}));

  EXPECT_EQ(messageOf(interpret(module, graph, llvm::DenseMap<const Value *, HostTensor>())),
            "no value is bound to @x");
  bindings[x] = real({3}, {1, 3, 5});
  EXPECT_EQ(messageOf(interpret(module, graph, bindings)), "@x is f32[2] but is bound to f32[3]");
}

// ---------------------------------------------------------------------------------------------------------------
// Bytes and rounding

TEST(HalfFormats, EveryPatternComesBack) {
  for (DType dtype : {DType::f16, DType::bf16})
    for (int pattern = 0; pattern < 0x10000; ++pattern) {
      std::string bytes = {static_cast<char>(pattern & 255), static_cast<char>(pattern >> 8)};
      HostTensor value = HostTensor::fromBytes({dtype, {1}}, bytes);
      if (std::isnan(value.reals[0])) {
        EXPECT_TRUE(std::isnan(HostTensor::fromBytes({dtype, {1}}, value.toBytes()).reals[0]));
        continue;
      }
      EXPECT_EQ(value.toBytes(), bytes) << dtypeName(dtype) << " " << pattern;
      EXPECT_EQ(roundToDType(value.reals[0], dtype), value.reals[0]);
    }
}

TEST(HalfFormats, RoundToNearestEven) {
  EXPECT_EQ(roundToDType(1 + 0x1p-11, DType::f16), 1.0);            // halfway: to the even 1
  EXPECT_EQ(roundToDType(1 + 3 * 0x1p-11, DType::f16), 1 + 0x1p-9); // halfway: up to the even one
  EXPECT_EQ(roundToDType(1 + 0x1p-11 + 0x1p-40, DType::f16), 1 + 0x1p-10);
  EXPECT_EQ(roundToDType(65519.99, DType::f16), 65504.0);
  EXPECT_EQ(roundToDType(65520, DType::f16), kInfinity);
  EXPECT_EQ(roundToDType(-65520, DType::f16), -kInfinity);
  EXPECT_EQ(roundToDType(0x1p-24, DType::f16), 0x1p-24); // the smallest subnormal
  EXPECT_EQ(roundToDType(0x1p-25, DType::f16), 0.0);     // halfway to zero
  EXPECT_EQ(roundToDType(3 * 0x1p-25, DType::f16), 0x1p-23);
  EXPECT_EQ(roundToDType(0x1p-14 - 0x1p-26, DType::f16), 0x1p-14); // a subnormal that becomes normal
  EXPECT_EQ(roundToDType(1 + 0x1p-8, DType::bf16), 1.0);
  EXPECT_EQ(roundToDType(1 + 3 * 0x1p-8, DType::bf16), 1 + 0x1p-6);
  EXPECT_EQ(roundToDType(3.4e38, DType::bf16), kInfinity);
  EXPECT_EQ(roundToDType(0x1p-134, DType::bf16), 0.0);
  EXPECT_EQ(roundToDType(0.1, DType::f32), static_cast<double>(0.1f));
  EXPECT_EQ(roundToDType(0.1, DType::f64), 0.1);
  EXPECT_TRUE(std::signbit(roundToDType(-0x1p-30, DType::f16)));
}

TEST(HalfFormats, KnownPatterns) {
  EXPECT_EQ(real({3}, {1, -2, 65504}, DType::f16).toBytes(), std::string("\x00\x3c\x00\xc0\xff\x7b", 6));
  EXPECT_EQ(real({3}, {1, -2, kInfinity}, DType::bf16).toBytes(), std::string("\x80\x3f\x00\xc0\x80\x7f", 6));
}

TEST(HostTensorBytes, EveryDTypeComesBack) {
  for (DType dtype : {DType::f32, DType::f64}) {
    HostTensor value = real({3}, {1.5, -0.25, kInfinity}, dtype);
    EXPECT_EQ(HostTensor::fromBytes(value.type, value.toBytes()).reals, value.reals);
  }
  const std::pair<DType, Ints> wholes[] = {{DType::i64, {kLeast64, -1, kGreatest64}},
                                           {DType::i32, {-2147483648, -1, 2147483647}},
                                           {DType::i8, {-128, -1, 127}},
                                           {DType::u8, {0, 1, 255}},
                                           {DType::boolean, {0, 1, 1}}};
  for (const auto &[dtype, values] : wholes) {
    HostTensor value = whole({3}, values, dtype);
    EXPECT_EQ(static_cast<int64_t>(value.toBytes().size()), value.type.bytes());
    EXPECT_EQ(HostTensor::fromBytes(value.type, value.toBytes()).integers, values) << dtypeName(dtype);
  }
}

} // namespace
} // namespace zerocc
