// A range cut anywhere gives the same bits: each kernel on all of a range against the kernel on its two
// pieces.

#include "tests/runtime/kernels/kernel_case.h"

namespace zerocc {
namespace {

constexpr int64_t kElements = 300;

Tensor piece(const Tensor &whole, int64_t begin, int64_t end) {
  Tensor out;
  out.view = whole.view;
  out.view.data = whole.data<char>() + begin * byteSize(whole.view.dtype);
  out.view.dims[0] = end - begin;
  return out;
}

struct FlatCase {
  OpKind op;
  int inputs;
  Attributes attributes = {};
};

void expectSameBitsWhereverCut(const FlatCase &c, Random &random) {
  std::vector<Tensor> inputs;
  std::vector<const Tensor *> pointers;
  for (int i = 0; i < c.inputs; ++i)
    inputs.push_back(randomTensor(random, DType::f32, {kElements}, kContiguous, 0.1, 6));
  for (const Tensor &input : inputs)
    pointers.push_back(&input);
  DType resultType = c.op == OpKind::Compare || c.op == OpKind::IsNan ? DType::boolean : DType::f32;
  std::vector<Tensor> whole = runKernel(c.op, c.attributes, pointers, {{resultType, {kElements}}});
  Tensor pieces = poisoned(resultType, {kElements});
  for (int64_t cut = 0; cut <= kElements; ++cut) {
    for (auto [begin, end] : {std::pair<int64_t, int64_t>{0, cut}, {cut, kElements}}) {
      std::vector<Tensor> parts;
      std::vector<const Tensor *> partPointers;
      for (const Tensor &input : inputs)
        parts.push_back(piece(input, begin, end));
      for (const Tensor &part : parts)
        partPointers.push_back(&part);
      Tensor result = piece(pieces, begin, end);
      Expected<KernelCall> call = prepareCall(c.op, c.attributes, partPointers, {&result});
      ASSERT_TRUE(call) << call.error().text();
      call->run(*call);
    }
    ASSERT_EQ(whole[0].storage, pieces.storage) << opText(c.op) << " cut at " << cut;
  }
}

TEST(Cut, ElementwiseKernels) {
  const Attributes tanhForm = {{"approximate", std::string("tanh")}};
  std::vector<FlatCase> cases = {{OpKind::Gelu, 1, tanhForm},
                                 {OpKind::GeluGrad, 2, tanhForm},
                                 {OpKind::Compare, 2, {{"kind", std::string("lt")}}}};
  for (OpKind op : {OpKind::Neg, OpKind::Abs, OpKind::Sign, OpKind::Exp, OpKind::Log, OpKind::Sqrt,
                    OpKind::Tanh, OpKind::Sigmoid, OpKind::Erf, OpKind::Sin, OpKind::Cos, OpKind::Relu,
                    OpKind::Floor, OpKind::Gelu, OpKind::IsNan, OpKind::Copy})
    cases.push_back({op, 1});
  for (OpKind op : {OpKind::Add, OpKind::Sub, OpKind::Mul, OpKind::Div, OpKind::Mod, OpKind::Pow, OpKind::Max,
                    OpKind::Min, OpKind::GeluGrad})
    cases.push_back({op, 2});
  forEachTarget([&] {
    Random random(60);
    for (const FlatCase &c : cases)
      expectSameBitsWhereverCut(c, random);
  });
}

// Strides decide how elements are fetched, never what is computed.
TEST(Cut, StridesDoNotChangeBits) {
  Random random(61);
  for (OpKind op : {OpKind::Exp, OpKind::Gelu, OpKind::Tanh, OpKind::Log}) {
    Tensor spread = randomTensor(random, DType::f32, {2 * kElements}, kContiguous, 0.1, 6);
    spread.view.dims[0] = kElements;
    spread.view.strides[0] = 2;
    Tensor dense = poisoned(DType::f32, {kElements});
    for (int64_t i = 0; i < kElements; ++i)
      dense.data<float>()[i] = spread.data<float>()[2 * i];
    std::vector<Tensor> a = runKernel(op, {}, {&spread}, {{DType::f32, {kElements}}});
    std::vector<Tensor> b = runKernel(op, {}, {&dense}, {{DType::f32, {kElements}}});
    EXPECT_EQ(a[0].storage, b[0].storage) << opText(op);
  }
}

// Rows do not know of each other.
TEST(Cut, RowKernelsRowByRow) {
  Random random(62);
  Tensor x = randomTensor(random, DType::f32, {7, 133});
  for (OpKind op : {OpKind::Softmax, OpKind::LogSoftmax}) {
    std::vector<Tensor> whole = runKernel(op, {}, {&x}, {{DType::f32, {7, 133}}});
    for (int64_t row = 0; row < 7; ++row) {
      Tensor one = piece(x, row * 133, row * 133 + 1);
      std::vector<Tensor> y = runKernel(op, {}, {&one}, {{DType::f32, {1, 133}}});
      EXPECT_EQ(0, memcmp(y[0].storage.data(), whole[0].data<float>() + row * 133, 133 * sizeof(float)));
    }
  }
}

} // namespace
} // namespace zerocc
