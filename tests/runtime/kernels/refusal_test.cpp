#include "tests/runtime/kernels/kernel_case.h"

namespace zerocc {
namespace {

std::string refusalOf(OpKind op, const Attributes &attributes, const std::vector<const Tensor *> &inputs,
                      const std::vector<const Tensor *> &results) {
  Expected<KernelCall> call = prepareCall(op, attributes, inputs, results);
  return call ? "accepted" : call.error().text();
}

TEST(Refusal, NamesOpDTypeAndShape) {
  Random random(70);
  Tensor x = randomTensor(random, DType::f64, {2, 3}), y = poisoned(DType::f64, {2, 3});
  EXPECT_EQ(refusalOf(OpKind::Softmax, {}, {&x}, {&y}),
            "error: softmax(f64[2,3]) on the CPU: f64[2,3] should be f32\n");
  EXPECT_EQ(refusalOf(OpKind::Gelu, {}, {&x}, {&y}), "error: gelu(f64[2,3]) on the CPU: no kernel for f64\n");
  Tensor half = randomTensor(random, DType::bf16, {4}), halfResult = poisoned(DType::bf16, {4});
  EXPECT_EQ(refusalOf(OpKind::Add, {}, {&half, &half}, {&halfResult}),
            "error: add(bf16[4], bf16[4]) on the CPU: no kernel for bf16\n");
}

TEST(Refusal, RowsNeedUnitStride) {
  Random random(71);
  Tensor x = randomTensor(random, DType::f32, {2, 3}), y = poisoned(DType::f32, {2, 3});
  x.view.strides[0] = 1;
  x.view.strides[1] = 2;
  EXPECT_EQ(refusalOf(OpKind::Softmax, {}, {&x}, {&y}),
            "error: softmax(f32[2,3] strides [1,2]) on the CPU: f32[2,3] strides [1,2] should be rows of "
            "unit stride\n");
}

TEST(Refusal, MatricesNeedAUnitStride) {
  Random random(72);
  Tensor a = randomTensor(random, DType::f32, {4, 8}), b = randomTensor(random, DType::f32, {4, 4}),
         c = poisoned(DType::f32, {4, 4});
  a.view.dims[1] = 4;
  a.view.strides[1] = 2;
  EXPECT_EQ(refusalOf(OpKind::MatMul, {}, {&a, &b}, {&c}),
            "error: matmul(f32[4,4] strides [8,2], f32[4,4]) on the CPU: one of an operand's last two dims "
            "must have "
            "stride 1, the other step over whole rows\n");
}

TEST(Refusal, CollectivesAreNotKernels) {
  Tensor x = poisoned(DType::f32, {4});
  for (OpKind op : {OpKind::FetchStart, OpKind::ReduceStart, OpKind::AllReduceStart, OpKind::AllGatherStart,
                    OpKind::ExchangeStart})
    EXPECT_NE(refusalOf(op, {}, {&x}, {&x}).find("internal error: a collective"), std::string::npos);
}

TEST(Refusal, ViewsAndWaitsDoNothing) {
  Tensor x = poisoned(DType::f32, {4});
  for (OpKind op : {OpKind::Reshape, OpKind::Transpose, OpKind::Broadcast, OpKind::Slice, OpKind::Buffer,
                    OpKind::Member, OpKind::FetchWait, OpKind::Release, OpKind::ReduceWait})
    EXPECT_EQ(refusalOf(op, {}, {&x}, {&x}), "accepted") << opText(op);
}

} // namespace
} // namespace zerocc
