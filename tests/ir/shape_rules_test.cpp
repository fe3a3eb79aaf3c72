#include "compiler/ops/ops.h"

#include <gtest/gtest.h>

#include <sstream>

namespace zerocc {
namespace {

using Ints = std::vector<int64_t>;
constexpr int64_t kYes = 1;

TensorType typeOf(const std::string &text) {
  const size_t open = text.find('[');
  TensorType type{*dtypeFromName(text.substr(0, open)), {}};
  std::istringstream dims(text.substr(open + 1, text.size() - open - 2));
  for (std::string dim; std::getline(dims, dim, ',');)
    type.dims.push_back(std::stoll(dim));
  return type;
}

/// Result types, or the message, of an op in a bucket of 128 elements on 2 x 2 ranks.
std::string inBucket(OpKind op, const std::vector<std::string> &operands, const Attributes &attributes = {},
                     bool hasBucket = true) {
  Bucket bucket;
  bucket.paddedElements = 128;
  Mesh mesh{2, 2};
  llvm::SmallVector<TensorType, 4> types;
  for (const std::string &operand : operands)
    types.push_back(typeOf(operand));
  Expected<ResultTypes> results = inferTypes({op, types, attributes, hasBucket ? &bucket : nullptr, &mesh});
  if (!results)
    return results.error().findings()[0].message;
  std::string out;
  for (const TensorType &type : *results)
    out += (out.empty() ? "" : " ") + print(type);
  return out;
}

std::string infer(OpKind op, const std::vector<std::string> &operands, const Attributes &attributes = {}) {
  return inBucket(op, operands, attributes, false);
}

TEST(ShapeRules, operandCounts) {
  EXPECT_EQ(infer(OpKind::Add, {"f32[2]"}), "takes 2 operands, got 1");
  EXPECT_EQ(infer(OpKind::Neg, {"f32[2]", "f32[2]"}), "takes 1 operand, got 2");
  EXPECT_EQ(infer(OpKind::Concat, {}, {{"axis", int64_t(0)}}), "takes at least 1 operand, got 0");
  EXPECT_EQ(infer(OpKind::LayerNorm, {"f32[2]"}), "takes 2 to 3 operands, got 1");
}

TEST(ShapeRules, attributeKinds) {
  EXPECT_EQ(infer(OpKind::Gather, {"f32[2]", "i64[]"}, {{"axis", std::string("0")}}),
            "attribute \"axis\" must be an integer, is a text");
  EXPECT_EQ(infer(OpKind::LayerNorm, {"f32[2]", "f32[2]"}, {{"eps", int64_t(1)}}),
            "attribute \"eps\" must be a real, is an integer");
  EXPECT_EQ(infer(OpKind::Reshape, {"f32[2]"}, {{"shape", int64_t(2)}}),
            "attribute \"shape\" must be a list of integers, is an integer");
  EXPECT_EQ(infer(OpKind::Cast, {"f32[2]"}, {{"to", 1.0}}), "attribute \"to\" must be a text, is a real");
  EXPECT_EQ(infer(OpKind::Cast, {"f32[2]"}), "attribute \"to\" is missing");
}

TEST(ShapeRules, boundsOfResults) {
  EXPECT_EQ(infer(OpKind::Broadcast, {"f32[]"}, {{"shape", Ints{(int64_t(1) << 58) - 1}}}),
            "f32[288230376151711743]");
  EXPECT_EQ(infer(OpKind::Broadcast, {"f32[]"}, {{"shape", Ints{int64_t(1) << 58}}}),
            "f32[288230376151711744] has 2^60 bytes or more");
  EXPECT_EQ(infer(OpKind::Broadcast, {"f32[]"}, {{"shape", Ints(8, 1)}}), "f32[1,1,1,1,1,1,1,1]");
  EXPECT_EQ(infer(OpKind::Broadcast, {"f32[]"}, {{"shape", Ints(9, 1)}}),
            "f32[1,1,1,1,1,1,1,1,1] has 9 axes, the limit is 8");
}

TEST(ShapeRules, reshape) {
  EXPECT_EQ(infer(OpKind::Reshape, {"f32[2,3]"}, {{"shape", Ints{6}}}), "f32[6]");
  EXPECT_EQ(infer(OpKind::Reshape, {"f32[1]"}, {{"shape", Ints{}}}), "f32[]");
  EXPECT_EQ(infer(OpKind::Reshape, {"f32[0,3]"}, {{"shape", Ints{5, 0}}}), "f32[5,0]");
  EXPECT_EQ(infer(OpKind::Reshape, {"f32[2,3]"}, {{"shape", Ints{5}}}),
            "cannot reshape f32[2,3] (6 elements) into [5]");
  EXPECT_EQ(infer(OpKind::Reshape, {"f32[2,3]"}, {{"shape", Ints{-6}}}), "dims must not be negative: [-6]");
  EXPECT_EQ(infer(OpKind::Reshape, {"f32[0]"}, {{"shape", Ints{int64_t(1) << 32, int64_t(1) << 32}}}),
            "cannot reshape f32[0] (0 elements) into [4294967296,4294967296]");
  EXPECT_EQ(infer(OpKind::Reshape, {"f32[2]"}), "attribute \"shape\" is missing");
}

TEST(ShapeRules, transpose) {
  EXPECT_EQ(infer(OpKind::Transpose, {"i64[2,3,4]"}, {{"perm", Ints{2, 0, 1}}}), "i64[4,2,3]");
  EXPECT_EQ(infer(OpKind::Transpose, {"f32[2,3]"}, {{"perm", Ints{0}}}),
            "permutation [0] does not fit f32[2,3]");
  EXPECT_EQ(infer(OpKind::Transpose, {"f32[2,3]"}, {{"perm", Ints{0, 0}}}),
            "[0,0] is not a permutation of 2 axes");
  EXPECT_EQ(infer(OpKind::Transpose, {"f32[2,3]"}, {{"perm", Ints{0, 2}}}),
            "[0,2] is not a permutation of 2 axes");
}

TEST(ShapeRules, broadcast) {
  EXPECT_EQ(infer(OpKind::Broadcast, {"f32[3,1]"}, {{"shape", Ints{2, 3, 4}}}), "f32[2,3,4]");
  EXPECT_EQ(infer(OpKind::Broadcast, {"f32[1]"}, {{"shape", Ints{0}}}), "f32[0]");
  EXPECT_EQ(infer(OpKind::Broadcast, {"f32[3]"}, {{"shape", Ints{3, 1}}}),
            "cannot broadcast f32[3] to [3,1]");
  EXPECT_EQ(infer(OpKind::Broadcast, {"f32[1,3]"}, {{"shape", Ints{3}}}),
            "cannot broadcast f32[1,3] to fewer dims [3]");
}

Attributes sliceOf(int64_t start, int64_t size, int64_t step) {
  return {{"starts", Ints{start}}, {"sizes", Ints{size}}, {"steps", Ints{step}}};
}

TEST(ShapeRules, slice) {
  EXPECT_EQ(infer(OpKind::Slice, {"f32[10]"}, sliceOf(1, 3, 4)), "f32[3]"); // 1, 5, 9
  EXPECT_EQ(infer(OpKind::Slice, {"f32[10]"}, sliceOf(2, 3, 4)),
            "3 elements from 2 by 4 leave axis 0 of f32[10]");
  EXPECT_EQ(infer(OpKind::Slice, {"f32[10]"}, sliceOf(9, 10, -1)), "f32[10]");
  EXPECT_EQ(infer(OpKind::Slice, {"f32[10]"}, sliceOf(9, 11, -1)),
            "11 elements from 9 by -1 leave axis 0 of f32[10]");
  EXPECT_EQ(infer(OpKind::Slice, {"f32[10]"}, sliceOf(10, 1, 1)),
            "1 elements from 10 by 1 leave axis 0 of f32[10]");
  EXPECT_EQ(infer(OpKind::Slice, {"f32[10]"}, sliceOf(-1, 1, 1)),
            "1 elements from -1 by 1 leave axis 0 of f32[10]");
  EXPECT_EQ(infer(OpKind::Slice, {"f32[10]"}, sliceOf(10, 0, 1)), "f32[0]");
  EXPECT_EQ(infer(OpKind::Slice, {"f32[10]"}, sliceOf(0, -1, 1)), "size of axis 0 is negative: -1");
  EXPECT_EQ(infer(OpKind::Slice, {"f32[10]"}, sliceOf(0, 1, 0)), "step of axis 0 is 0");
  EXPECT_EQ(infer(OpKind::Slice, {"f32[10]"}, sliceOf(0, INT64_MAX, INT64_MAX)),
            "9223372036854775807 elements from 0 by 9223372036854775807 leave axis 0 of f32[10]");
  EXPECT_EQ(infer(OpKind::Slice, {"f32[10,2]"}, sliceOf(0, 1, 1)),
            "starts, sizes and steps need 2 entries for f32[10,2], got [0]");
}

TEST(ShapeRules, concat) {
  const Attributes axis0{{"axis", int64_t(0)}}, axis1{{"axis", int64_t(1)}}, axis2{{"axis", int64_t(2)}};
  EXPECT_EQ(infer(OpKind::Concat, {"f32[2,3]", "f32[4,3]", "f32[0,3]"}, axis0), "f32[6,3]");
  EXPECT_EQ(infer(OpKind::Concat, {"f32[2,3]", "f32[4,3]"}, axis1),
            "operands must agree outside axis 1: f32[2,3] and f32[4,3]");
  EXPECT_EQ(infer(OpKind::Concat, {"f32[2,3]", "f32[2]"}, axis0),
            "operands must agree outside axis 0: f32[2,3] and f32[2]");
  EXPECT_EQ(infer(OpKind::Concat, {"f32[2]", "f16[2]"}, axis0),
            "operands must agree outside axis 0: f32[2] and f16[2]");
  EXPECT_EQ(infer(OpKind::Concat, {"f32[2,3]"}, axis2), "axis 2 is outside the 2 axes of f32[2,3]");
}

TEST(ShapeRules, pad) {
  EXPECT_EQ(infer(OpKind::Pad, {"f32[2,3]"}, {{"low", Ints{1, 0}}, {"high", Ints{0, 2}}}), "f32[3,5]");
  EXPECT_EQ(infer(OpKind::Pad, {"f32[2,3]"}, {{"low", Ints{1}}, {"high", Ints{0, 2}}}),
            "low and high need 2 entries for f32[2,3], got [1]");
  EXPECT_EQ(infer(OpKind::Pad, {"f32[2]"}, {{"low", Ints{-1}}, {"high", Ints{0}}}),
            "padding must not be negative: [-1]");
  EXPECT_EQ(infer(OpKind::Pad, {"f32[2]"}, {{"low", Ints{INT64_MAX}}, {"high", Ints{0}}}),
            "axis 0 grows beyond 2^63");
}

TEST(ShapeRules, castAndIota) {
  EXPECT_EQ(infer(OpKind::Cast, {"bool[2]"}, {{"to", std::string("bf16")}}), "bf16[2]");
  EXPECT_EQ(infer(OpKind::Cast, {"f32[2]"}, {{"to", std::string("float")}}), "unknown dtype \"float\"");
  EXPECT_EQ(infer(OpKind::Iota, {}, {{"dtype", std::string("i64")}, {"shape", Ints{4}}}), "i64[4]");
  EXPECT_EQ(infer(OpKind::Iota, {}, {{"dtype", std::string("i64")}, {"shape", Ints{4, 1}}}),
            "needs one dim, got [4,1]");
  EXPECT_EQ(infer(OpKind::Iota, {}, {{"dtype", std::string("bool")}, {"shape", Ints{4}}}),
            "needs a dtype of numbers, not bool");
}

TEST(ShapeRules, gather) {
  EXPECT_EQ(infer(OpKind::Gather, {"f32[9,4]", "i64[2,3]"}, {{"axis", int64_t(0)}}), "f32[2,3,4]");
  EXPECT_EQ(infer(OpKind::Gather, {"f32[9,4]", "i32[]"}, {{"axis", int64_t(1)}}), "f32[9]");
  EXPECT_EQ(infer(OpKind::Gather, {"f32[9,4]", "i64[2]"}, {{"axis", int64_t(2)}}),
            "axis 2 is outside the 2 axes of f32[9,4]");
  EXPECT_EQ(infer(OpKind::Gather, {"f32[9,4]", "i64[2]"}, {{"axis", int64_t(-1)}}),
            "axis -1 is outside the 2 axes of f32[9,4]");
  EXPECT_EQ(infer(OpKind::Gather, {"f32[9,4]", "f32[2]"}, {{"axis", int64_t(0)}}),
            "indices must be i64 or i32, are f32[2]");
}

Attributes scatterOf(int64_t axis, int64_t size) { return {{"axis", axis}, {"size", size}}; }

TEST(ShapeRules, scatterAdd) {
  EXPECT_EQ(infer(OpKind::ScatterAdd, {"i64[2,3]", "f32[2,3,4]"}, scatterOf(0, 9)), "f32[9,4]");
  EXPECT_EQ(infer(OpKind::ScatterAdd, {"i64[3]", "f32[2,3]"}, scatterOf(1, 9)), "f32[2,9]");
  EXPECT_EQ(infer(OpKind::ScatterAdd, {"i64[]", "f32[4]"}, scatterOf(1, 0)), "f32[4,0]");
  EXPECT_EQ(infer(OpKind::ScatterAdd, {"i64[3]", "f32[2,3]"}, scatterOf(2, 9)),
            "the dims of indices i64[3] do not fit into updates f32[2,3] at axis 2");
  EXPECT_EQ(infer(OpKind::ScatterAdd, {"i64[3]", "f32[2,3]"}, scatterOf(-1, 9)),
            "the dims of indices i64[3] do not fit into updates f32[2,3] at axis -1");
  EXPECT_EQ(infer(OpKind::ScatterAdd, {"i64[3]", "f32[2,3]"}, scatterOf(0, 9)),
            "updates f32[2,3] do not have the dims of indices i64[3] at axis 0");
  EXPECT_EQ(infer(OpKind::ScatterAdd, {"i64[3]", "f32[3]"}, scatterOf(0, -1)), "size is negative: -1");
  EXPECT_EQ(infer(OpKind::ScatterAdd, {"f32[3]", "f32[3]"}, scatterOf(0, 9)),
            "indices must be i64 or i32, are f32[3]");
  EXPECT_EQ(infer(OpKind::ScatterAdd, {"i64[3]", "bool[3]"}, scatterOf(0, 9)),
            "updates must be numbers, are bool[3]");
}

TEST(ShapeRules, elementwise) {
  EXPECT_EQ(infer(OpKind::Add, {"i64[2]", "i64[2]"}), "i64[2]");
  EXPECT_EQ(infer(OpKind::Add, {"f32[2]", "f32[1]"}), "operands must have equal types: f32[2] and f32[1]");
  EXPECT_EQ(infer(OpKind::Add, {"f32[2]", "f16[2]"}), "operands must have equal types: f32[2] and f16[2]");
  EXPECT_EQ(infer(OpKind::Add, {"bool[2]", "bool[2]"}), "needs numbers, got bool[2]");
  EXPECT_EQ(infer(OpKind::Copy, {"bool[2]"}), "bool[2]");
  EXPECT_EQ(infer(OpKind::Exp, {"bf16[2]"}), "bf16[2]");
  EXPECT_EQ(infer(OpKind::Exp, {"i64[2]"}), "needs a float operand, got i64[2]");
  EXPECT_EQ(infer(OpKind::GeluGrad, {"i64[2]", "i64[2]"}), "needs a float operand, got i64[2]");
  EXPECT_EQ(infer(OpKind::Not, {"bool[2]"}), "bool[2]");
  EXPECT_EQ(infer(OpKind::And, {"i64[2]", "i64[2]"}), "needs bool operands, got i64[2]");
  EXPECT_EQ(infer(OpKind::IsNan, {"f32[2]"}), "bool[2]");
  EXPECT_EQ(infer(OpKind::IsNan, {"i64[2]"}), "needs a float operand, got i64[2]");
}

TEST(ShapeRules, compareAndSelect) {
  const Attributes eq{{"kind", std::string("eq")}}, lt{{"kind", std::string("lt")}},
      less{{"kind", std::string("less")}};
  EXPECT_EQ(infer(OpKind::Compare, {"f32[2]", "f32[2]"}, lt), "bool[2]");
  EXPECT_EQ(infer(OpKind::Compare, {"bool[2]", "bool[2]"}, eq), "bool[2]");
  EXPECT_EQ(infer(OpKind::Compare, {"bool[2]", "bool[2]"}, lt), "kind lt needs numbers, got bool[2]");
  EXPECT_EQ(infer(OpKind::Compare, {"f32[2]", "f32[2]"}, less),
            "kind must be eq, ne, lt, le, gt or ge, is \"less\"");
  EXPECT_EQ(infer(OpKind::Select, {"bool[2]", "f32[2]", "f32[2]"}), "f32[2]");
  EXPECT_EQ(infer(OpKind::Select, {"i64[2]", "f32[2]", "f32[2]"}), "the condition must be bool, is i64[2]");
  EXPECT_EQ(infer(OpKind::Select, {"bool[2]", "f32[2]", "f16[2]"}),
            "the alternatives must have equal types: f32[2] and f16[2]");
  EXPECT_EQ(infer(OpKind::Select, {"bool[1]", "f32[2]", "f32[2]"}),
            "condition bool[1] and alternatives f32[2] differ in shape");
}

TEST(ShapeRules, reductions) {
  EXPECT_EQ(infer(OpKind::ReduceSum, {"f32[2,3,4]"}, {{"axes", Ints{0, 2}}}), "f32[3]");
  EXPECT_EQ(infer(OpKind::ReduceSum, {"f32[0]"}, {{"axes", Ints{0}}}), "f32[]");
  EXPECT_EQ(infer(OpKind::ReduceMax, {"f32[1]"}, {{"axes", Ints{0}}}), "f32[]");
  EXPECT_EQ(infer(OpKind::ReduceMax, {"f32[0]"}, {{"axes", Ints{0}}}),
            "axis 0 of f32[0] is empty and has no maximum");
  EXPECT_EQ(infer(OpKind::ReduceSum, {"f32[2,3]"}, {{"axes", Ints{2}}}),
            "axis 2 is outside the 2 axes of f32[2,3]");
  EXPECT_EQ(infer(OpKind::ReduceSum, {"f32[2,3]"}, {{"axes", Ints{1, 0}}}), "axes must ascend: [1,0]");
  EXPECT_EQ(infer(OpKind::ReduceSum, {"f32[2,3]"}, {{"axes", Ints{1, 1}}}), "axes must ascend: [1,1]");
  EXPECT_EQ(infer(OpKind::ReduceSum, {"bool[2]"}, {{"axes", Ints{0}}}), "needs numbers, got bool[2]");
}

TEST(ShapeRules, matmul) {
  EXPECT_EQ(infer(OpKind::MatMul, {"f32[7,2,3]", "f32[7,3,4]"}), "f32[7,2,4]");
  EXPECT_EQ(infer(OpKind::MatMul, {"f32[3,2]", "f32[4,3]"}, {{"trans_a", kYes}, {"trans_b", kYes}}),
            "f32[2,4]");
  EXPECT_EQ(infer(OpKind::MatMul, {"f32[2,0]", "f32[0,4]"}), "f32[2,4]");
  EXPECT_EQ(infer(OpKind::MatMul, {"f32[8,64,256]", "f32[8,128,256]"}),
            "inner dimensions differ: left is [8,64,256], right is [8,128,256]");
  EXPECT_EQ(infer(OpKind::MatMul, {"f32[8,2,3]", "f32[7,3,2]"}),
            "batch dimensions differ: left is [8,2,3], right is [7,3,2]");
  EXPECT_EQ(infer(OpKind::MatMul, {"f32[8,2,3]", "f32[3,2]"}),
            "operands need equal rank of at least 2: left is [8,2,3], right is [3,2]");
  EXPECT_EQ(infer(OpKind::MatMul, {"f32[3]", "f32[3]"}),
            "operands need equal rank of at least 2: left is [3], right is [3]");
  EXPECT_EQ(infer(OpKind::MatMul, {"f32[2,2]", "f16[2,2]"}),
            "operand dtypes differ: left is f32[2,2], right is f16[2,2]");
  EXPECT_EQ(infer(OpKind::MatMul, {"i64[2,2]", "i64[2,2]"}), "needs a float operand, got i64[2,2]");
}

TEST(ShapeRules, softmax) {
  EXPECT_EQ(infer(OpKind::Softmax, {"f32[2,3]"}, {{"safe", kYes}}), "f32[2,3]");
  for (OpKind op : {OpKind::Softmax, OpKind::LogSoftmax})
    EXPECT_EQ(infer(op, {"f32[]"}), "needs at least one axis, got f32[]");
  for (OpKind op : {OpKind::SoftmaxGrad, OpKind::LogSoftmaxGrad}) {
    EXPECT_EQ(infer(op, {"f32[2]", "f32[2]"}), "f32[2]");
    EXPECT_EQ(infer(op, {"f32[]", "f32[]"}), "needs at least one axis, got f32[]");
  }
}

TEST(ShapeRules, layerNorm) {
  EXPECT_EQ(infer(OpKind::LayerNorm, {"f16[2,3,4]", "f16[4]", "f16[4]"}), "f16[2,3,4] f32[2,3] f32[2,3]");
  EXPECT_EQ(infer(OpKind::LayerNorm, {"f32[4]", "f32[4]"}), "f32[4] f32[] f32[]");
  EXPECT_EQ(infer(OpKind::LayerNorm, {"f32[2,4]", "f32[2]"}), "scale must be f32[4], is f32[2]");
  EXPECT_EQ(infer(OpKind::LayerNorm, {"f32[2,4]", "f32[4]", "f16[4]"}), "bias must be f32[4], is f16[4]");
  EXPECT_EQ(infer(OpKind::LayerNorm, {"f32[]", "f32[1]"}), "needs at least one axis, got f32[]");
  EXPECT_EQ(infer(OpKind::LayerNormGrad, {"f16[2,4]", "f16[4]", "f32[2]", "f32[2]", "f16[2,4]"}), "f16[2,4]");
  EXPECT_EQ(infer(OpKind::LayerNormGrad, {"f32[2,4]", "f32[3]", "f32[2]", "f32[2]", "f32[2,4]"}),
            "scale must be f32[4], is f32[3]");
  EXPECT_EQ(infer(OpKind::LayerNormGrad, {"f32[2,4]", "f32[4]", "f32[3]", "f32[2]", "f32[2,4]"}),
            "mean must be f32[2], is f32[3]");
  EXPECT_EQ(infer(OpKind::LayerNormGrad, {"f32[2,4]", "f32[4]", "f32[2]", "f32[2,1]", "f32[2,4]"}),
            "rstd must be f32[2], is f32[2,1]");
  EXPECT_EQ(infer(OpKind::LayerNormGrad, {"f32[2,4]", "f32[4]", "f32[2]", "f32[2]", "f32[4,2]"}),
            "the gradient must be f32[2,4], is f32[4,2]");
  EXPECT_EQ(infer(OpKind::LayerNormParameterGrad, {"f32[2,4]", "f32[2]", "f32[2]", "f32[2,4]"}),
            "f32[4] f32[4]");
  EXPECT_EQ(infer(OpKind::LayerNormParameterGrad, {"f32[2,4]", "f32[4]", "f32[2]", "f32[2,4]"}),
            "mean must be f32[2], is f32[4]");
}

TEST(ShapeRules, crossEntropy) {
  EXPECT_EQ(infer(OpKind::CrossEntropy, {"bf16[6,9]", "i64[6]"}), "f64[] f64[] f32[6]");
  EXPECT_EQ(infer(OpKind::CrossEntropy, {"f32[6]", "i64[6]"}), "logits must have two axes, are f32[6]");
  EXPECT_EQ(infer(OpKind::CrossEntropy, {"f32[6,9]", "f32[6]"}), "labels must be i64 or i32, are f32[6]");
  EXPECT_EQ(infer(OpKind::CrossEntropy, {"f32[6,9]", "i64[5]"}),
            "labels i64[5] must have one entry per row of logits f32[6,9]");
  EXPECT_EQ(infer(OpKind::CrossEntropyGrad, {"f32[6,9]", "i32[6]", "f32[6]", "f32[]"}), "f32[6,9]");
  EXPECT_EQ(infer(OpKind::CrossEntropyGrad, {"f32[6,9]", "i32[6]", "f32[9]", "f32[]"}),
            "lse must be f32[6], is f32[9]");
  EXPECT_EQ(infer(OpKind::CrossEntropyGrad, {"f32[6,9]", "i32[6]", "f32[6]", "f32[1]"}),
            "seed must be f32[], is f32[1]");
}

TEST(ShapeRules, bufferAndMember) {
  EXPECT_EQ(inBucket(OpKind::Buffer, {}), "f32[128]");
  EXPECT_EQ(inBucket(OpKind::Buffer, {}, {{"dtype", std::string("bf16")}}), "bf16[128]");
  EXPECT_EQ(infer(OpKind::Buffer, {}, {{"dtype", std::string("f64")}, {"shape", Ints{2, 3}}}), "f64[2,3]");
  EXPECT_EQ(infer(OpKind::Buffer, {}), "attribute \"shape\" is missing");
  const auto member = [](int64_t offset, Ints shape) {
    return infer(OpKind::Member, {"f32[128]"}, {{"offset", offset}, {"shape", shape}});
  };
  EXPECT_EQ(member(116, {3, 4}), "f32[3,4]");
  EXPECT_EQ(member(117, {3, 4}), "[3,4] at 117 leaves the buffer f32[128]");
  EXPECT_EQ(member(-1, {3, 4}), "[3,4] at -1 leaves the buffer f32[128]");
  EXPECT_EQ(member(0, {int64_t(1) << 62, 4}), "[4611686018427387904,4] at 0 leaves the buffer f32[128]");
  EXPECT_EQ(infer(OpKind::Member, {"f32[2,2]"}, {{"offset", int64_t(0)}, {"shape", Ints{1}}}),
            "needs a flat buffer, got f32[2,2]");
}

TEST(ShapeRules, collectives) {
  for (OpKind op : {OpKind::FetchStart, OpKind::AllGatherStart}) {
    EXPECT_EQ(inBucket(op, {"bf16[64]"}), "bf16[128]");
    EXPECT_EQ(inBucket(op, {"f32[128]"}, {{"in_place", kYes}}), "f32[128]");
    EXPECT_EQ(inBucket(op, {"f32[128]"}), "operand must be a rank's part [64], is f32[128]");
    EXPECT_EQ(inBucket(op, {"f32[64]"}, {{"in_place", kYes}}),
              "operand must be the whole bucket [128], is f32[64]");
    EXPECT_EQ(infer(op, {"f32[64]"}), "needs a bucket");
  }
  EXPECT_EQ(inBucket(OpKind::ReduceStart, {"f32[128]", "f32[3,4]"}), "f32[64]");
  EXPECT_EQ(inBucket(OpKind::ReduceStart, {"f32[64]"}), "operand must be the whole bucket [128], is f32[64]");
  EXPECT_EQ(inBucket(OpKind::ReduceStart, {"f32[128]", "f16[3]"}),
            "member f16[3] has another dtype than the buffer f32[128]");
  EXPECT_EQ(inBucket(OpKind::ReduceStart, {"i64[128]"}), "needs a float operand, got i64[128]");
  EXPECT_EQ(infer(OpKind::ExchangeStart, {"f64[5]"}), "f64[4,5]");
  EXPECT_EQ(infer(OpKind::ExchangeStart, {"f32[5]"}), "needs a flat f64 operand, got f32[5]");
  EXPECT_EQ(infer(OpKind::ExchangeStart, {"f64[5,1]"}), "needs a flat f64 operand, got f64[5,1]");
  EXPECT_EQ(infer(OpKind::FetchWait, {"f32[128]"}), "f32[128]");
  EXPECT_EQ(infer(OpKind::Release, {"f32[128]"}), "");
}

TEST(ShapeRules, bucketsDivideIntoShards) {
  Bucket bucket;
  bucket.paddedElements = 127;
  Mesh mesh{2, 1};
  const TensorType operand{DType::f32, {63}};
  Expected<ResultTypes> types = inferTypes({OpKind::FetchStart, operand, Attributes(), &bucket, &mesh});
  ASSERT_FALSE(types);
  EXPECT_EQ(types.error().findings()[0].message, "bucket of 127 elements does not divide into 2 shards");
}

TEST(ShapeRules, update) {
  for (const char *operand : {"f32[64]", "f32[128]"})
    EXPECT_EQ(inBucket(OpKind::NormPartial, {operand}), "f64[2]");
  EXPECT_EQ(inBucket(OpKind::NormPartial, {"f32[65]"}),
            "operand must be the whole bucket [128] or a rank's part [64], is f32[65]");
  EXPECT_EQ(infer(OpKind::StepScalars, {"f64[4,9]", "f64[128]"}), "f64[128]");
  EXPECT_EQ(infer(OpKind::StepScalars, {"f64[3,9]", "f64[128]"}), "exchanged must be f64[4,m], is f64[3,9]");
  EXPECT_EQ(infer(OpKind::StepScalars, {"f64[4,9]", "f64[127]"}), "scalars must be f64[128], is f64[127]");
  EXPECT_EQ(inBucket(OpKind::AdamW, {"f32[64]", "bf16[64]", "f32[64]", "f32[64]", "f64[128]"}),
            "f32[64] f32[64] f32[64]");
  EXPECT_EQ(inBucket(OpKind::AdamW, {"f32[64]", "f32[128]", "f32[64]", "f32[64]", "f64[128]"}),
            "parameter f32[64] and gradient f32[128] differ in shape");
  EXPECT_EQ(inBucket(OpKind::AdamW, {"f32[64]", "f32[64]", "f32[64]", "f16[64]", "f64[128]"}),
            "a state must be f32[64], is f16[64]");
  EXPECT_EQ(inBucket(OpKind::AdamW, {"bf16[64]", "f32[64]", "f32[64]", "f32[64]", "f64[128]"}),
            "the parameter must be f32[64], is bf16[64]");
  EXPECT_EQ(inBucket(OpKind::Sgd, {"f32[64]", "f32[64]", "f64[128]"}), "f32[64]");
  EXPECT_EQ(inBucket(OpKind::Sgd, {"f32[64]", "f32[64]", "f32[64]", "f64[128]"}), "f32[64] f32[64]");
  EXPECT_EQ(inBucket(OpKind::Sgd, {"f32[64]", "f32[64]", "f32[64]"}), "scalars must be f64[128], is f32[64]");
  EXPECT_EQ(infer(OpKind::Sgd, {"f32[64]", "f32[64]", "f64[128]"}), "needs a bucket");
  EXPECT_EQ(
      inBucket(OpKind::Sgd, {"f32[64]", "f32[64]", "f32[64]", "f64[128]"}, {{"kind", std::string("lion")}}),
      "f32[64] f32[64]");
  EXPECT_EQ(inBucket(OpKind::Sgd, {"f32[64]", "f32[64]", "f64[128]"}, {{"kind", std::string("rmsprop")}}),
            "rmsprop keeps 1 states, given 0");
  EXPECT_EQ(inBucket(OpKind::Sgd, {"f32[64]", "f32[64]", "f64[128]"}, {{"kind", std::string("adam")}}),
            "kind is \"adam\", which is none of sgd");
}

} // namespace
} // namespace zerocc
