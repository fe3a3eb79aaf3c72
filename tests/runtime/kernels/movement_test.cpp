#include "tests/runtime/kernels/kernel_case.h"

#include <cmath>

namespace zerocc {
namespace {

constexpr DType kAllDTypes[] = {DType::f32, DType::f64, DType::bf16,   DType::i64,
                                DType::i32, DType::u8,  DType::boolean};

TEST(Copy, EveryDTypeAndAnyStrides) {
  Random random(20);
  for (DType dtype : kAllDTypes)
    for (int round = 0; round < 25; ++round) {
      Tensor x = randomTensor(random, dtype, randomDims(random, 6), kAnyhow, 0, 9);
      expectAsInterpreted(OpKind::Copy, {}, {&x}, kExact);
    }
}

TEST(Copy, TransposesOfEverySize) {
  Random random(21);
  for (int64_t rows : {1, 2, 15, 16, 17, 33, 64})
    for (int64_t columns : {1, 3, 16, 31, 48, 65}) {
      Tensor flat = randomTensor(random, DType::f32, {2, columns, rows});
      Tensor x = std::move(flat);
      std::swap(x.view.dims[1], x.view.dims[2]);
      std::swap(x.view.strides[1], x.view.strides[2]);
      expectAsInterpreted(OpKind::Copy, {}, {&x}, kExact);
    }
}

TEST(Concat, AlongEveryAxis) {
  Random random(22);
  for (DType dtype : kAllDTypes)
    for (int round = 0; round < 10; ++round) {
      Dims dims = randomDims(random, 4);
      if (dims.empty())
        dims.push_back(3);
      auto axis = static_cast<int64_t>(random() % dims.size());
      std::vector<Tensor> parts;
      for (int i = 0; i < 3; ++i) {
        dims[axis] = static_cast<int64_t>(random() % 5);
        parts.push_back(randomTensor(random, dtype, dims, kAnyhow, 0, 9));
      }
      expectAsInterpreted(OpKind::Concat, {{"axis", axis}}, {&parts[0], &parts[1], &parts[2]}, kExact);
      expectAsInterpreted(OpKind::Concat, {{"axis", axis}}, {&parts[0]}, kExact);
    }
}

TEST(Pad, WithAnyValue) {
  Random random(23);
  for (DType dtype : {DType::f32, DType::f64, DType::i64, DType::i32, DType::boolean})
    for (int round = 0; round < 10; ++round) {
      Dims dims = randomDims(random, 4);
      std::vector<int64_t> low, high;
      for (size_t i = 0; i < dims.size(); ++i) {
        low.push_back(static_cast<int64_t>(random() % 3));
        high.push_back(static_cast<int64_t>(random() % 3));
      }
      Tensor x = randomTensor(random, dtype, dims, kAnyhow, 0, 9);
      Attributes attributes = {
          {"low", low}, {"high", high}, {"value", dtype == DType::f32 ? -INFINITY : 1.0}};
      expectAsInterpreted(OpKind::Pad, attributes, {&x}, kExact);
    }
}

TEST(Iota, CountsInEveryDType) {
  for (DType dtype : {DType::f32, DType::f64, DType::i64, DType::i32})
    for (int64_t n : {0, 1, 77}) {
      Attributes attributes = {{"dtype", std::string(dtypeName(dtype))}, {"shape", std::vector<int64_t>{n}}};
      expectAsInterpreted(OpKind::Iota, attributes, {}, kExact);
    }
}

/// Indices in [-size, size).
Tensor randomIndices(Random &random, DType dtype, Dims dims, int64_t size) {
  return randomTensor(random, dtype, dims, kAnyhow, static_cast<double>(-size) - 0.4,
                      static_cast<double>(size) - 0.6);
}

TEST(Gather, AlongEveryAxisAndAnyStrides) {
  Random random(24);
  for (DType dtype : kAllDTypes)
    for (DType indexType : {DType::i64, DType::i32})
      for (int round = 0; round < 12; ++round) {
        Dims dims = randomDims(random, 3, false);
        if (dims.empty())
          dims.push_back(5);
        auto axis = static_cast<int64_t>(random() % dims.size());
        Tensor data = randomTensor(random, dtype, dims, kAnyhow, 0, 9);
        Dims indexDims;
        for (uint64_t i = random() % 3; i > 0; --i)
          indexDims.push_back(static_cast<int64_t>(random() % 4));
        Tensor indices = randomIndices(random, indexType, indexDims, dims[axis]);
        expectAsInterpreted(OpKind::Gather, {{"axis", axis}}, {&data, &indices}, kExact);
      }
}

TEST(Gather, AnIndexOutsideReadsNothing) {
  Random random(25);
  Tensor data = randomTensor(random, DType::f32, {4, 3});
  Tensor indices = tensorOf<int64_t>(DType::i64, {3}, {4, 1, -5});
  std::vector<Tensor> y =
      runKernel(OpKind::Gather, {{"axis", int64_t(0)}}, {&data, &indices}, {{DType::f32, {3, 3}}});
  for (int i : {0, 1, 2, 6, 7, 8})
    EXPECT_TRUE(std::isnan(y[0].data<float>()[i]));
  EXPECT_EQ(y[0].data<float>()[3], data.data<float>()[3]);
}

TEST(ScatterAdd, AlongEveryAxisAndAnyStrides) {
  Random random(26);
  for (DType dtype : {DType::f32, DType::f64, DType::i64, DType::i32})
    for (int round = 0; round < 20; ++round) {
      Dims outer = randomDims(random, 2, false), indexDims, inner = randomDims(random, 1, false);
      for (uint64_t i = random() % 3; i > 0; --i)
        indexDims.push_back(static_cast<int64_t>(random() % 5));
      int64_t size = 1 + static_cast<int64_t>(random() % 4);
      Dims dims = outer;
      dims.append(indexDims.begin(), indexDims.end());
      dims.append(inner.begin(), inner.end());
      Tensor indices = randomIndices(random, round % 2 ? DType::i64 : DType::i32, indexDims, size);
      Tensor updates = randomTensor(random, dtype, dims, kAnyhow);
      Attributes attributes = {{"axis", static_cast<int64_t>(outer.size())}, {"size", size}};
      expectAsInterpreted(OpKind::ScatterAdd, attributes, {&indices, &updates}, {1e-5, 1e-6});
    }
}

TEST(ScatterAdd, AnIndexOutsideWritesNothing) {
  Tensor indices = tensorOf<int64_t>(DType::i64, {3}, {2, 0, -3});
  Tensor updates = tensorOf<float>(DType::f32, {3}, {1, 2, 3});
  std::vector<Tensor> y = runKernel(OpKind::ScatterAdd, {{"axis", int64_t(0)}, {"size", int64_t(2)}},
                                    {&indices, &updates}, {{DType::f32, {2}}});
  EXPECT_EQ(y[0].data<float>()[0], 2);
  EXPECT_EQ(y[0].data<float>()[1], 0);
}

} // namespace
} // namespace zerocc
