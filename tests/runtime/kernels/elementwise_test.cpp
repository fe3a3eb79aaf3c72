#include "tests/runtime/kernels/kernel_case.h"

#include <cmath>

namespace zerocc {
namespace {

struct OpCase {
  OpKind op;
  Attributes attributes = {};
  Tolerance tolerance = kExact; // f32
  double low = -3, high = 3;
};

const std::vector<OpCase> &unaryFloatCases() {
  static const std::vector<OpCase> cases = {
      {OpKind::Neg},
      {OpKind::Abs},
      {OpKind::Sign},
      {OpKind::Relu},
      {OpKind::Floor},
      {OpKind::IsNan},
      {OpKind::Sqrt, {}, {0, 6e-8}, 0, 9},
      {OpKind::Exp, {}, {0, 3e-7}, -20, 20},
      {OpKind::Log, {}, {1e-7, 3e-7}, 0.01, 50},
      {OpKind::Tanh, {}, {0, 5e-7}},
      {OpKind::Sigmoid, {}, {0, 5e-7}, -20, 20},
      {OpKind::Erf, {}, {1.5e-7, 0}},
      {OpKind::Sin, {}, {6e-8, 1e-7}, -40, 40},
      {OpKind::Cos, {}, {6e-8, 1e-7}, -40, 40},
      {OpKind::Gelu, {}, {5e-7, 2e-7}, -8, 8},
      {OpKind::Gelu, {{"approximate", std::string("tanh")}}, {1e-6, 5e-7}, -8, 8},
  };
  return cases;
}

const std::vector<OpCase> &binaryFloatCases() {
  static const std::vector<OpCase> cases = {
      {OpKind::Add, {}, {0, 6e-8}},
      {OpKind::Sub, {}, {0, 6e-8}},
      {OpKind::Mul, {}, {0, 6e-8}},
      {OpKind::Div, {}, {0, 6e-8}, 0.5, 4},
      {OpKind::Mod, {}, kExact, 0.5, 9},
      {OpKind::Pow, {}, {0, 3e-7}, 0.1, 5},
      {OpKind::Max},
      {OpKind::Min},
      {OpKind::GeluGrad, {}, {2e-6, 1e-6}},
      {OpKind::GeluGrad, {{"approximate", std::string("tanh")}}, {2e-6, 1e-6}},
      {OpKind::Compare, {{"kind", std::string("eq")}}},
      {OpKind::Compare, {{"kind", std::string("ne")}}},
      {OpKind::Compare, {{"kind", std::string("lt")}}},
      {OpKind::Compare, {{"kind", std::string("le")}}},
      {OpKind::Compare, {{"kind", std::string("gt")}}},
      {OpKind::Compare, {{"kind", std::string("ge")}}},
  };
  return cases;
}

void runUnary(Random &random, const OpCase &c, DType dtype) {
  Dims dims = randomDims(random, 5);
  Tensor x = randomTensor(random, dtype, dims, kAnyhow, c.low, c.high);
  expectAsInterpreted(c.op, c.attributes, {&x}, c.tolerance);
}

void runBinary(Random &random, const OpCase &c, DType dtype) {
  Dims dims = randomDims(random, 5);
  Tensor a = randomTensor(random, dtype, dims, kAnyhow, c.low, c.high);
  Tensor b = randomTensor(random, dtype, dims, kAnyhow, c.low, c.high);
  expectAsInterpreted(c.op, c.attributes, {&a, &b}, c.tolerance);
}

TEST(Elementwise, FloatsOfAnyStridesAreAsInterpreted) {
  Random random(1);
  for (int round = 0; round < 30; ++round) {
    for (const OpCase &c : unaryFloatCases())
      runUnary(random, c, DType::f32);
    for (const OpCase &c : binaryFloatCases())
      runBinary(random, c, DType::f32);
  }
}

TEST(Elementwise, EveryInstructionSetIsAsInterpreted) {
  forEachTarget([] {
    Random random(2);
    for (int round = 0; round < 4; ++round) {
      for (const OpCase &c : unaryFloatCases())
        runUnary(random, c, DType::f32);
      for (const OpCase &c : binaryFloatCases())
        runBinary(random, c, DType::f32);
    }
  });
}

TEST(Elementwise, DoublesAreAsInterpreted) {
  Random random(3);
  for (int round = 0; round < 10; ++round) {
    for (OpKind op :
         {OpKind::Neg, OpKind::Abs, OpKind::Sign, OpKind::Relu, OpKind::Floor, OpKind::IsNan, OpKind::Exp})
      runUnary(random, {op}, DType::f64);
    for (OpKind op : {OpKind::Sqrt, OpKind::Log})
      runUnary(random, {op, {}, kExact, 0.1, 4}, DType::f64);
    for (OpKind op : {OpKind::Add, OpKind::Sub, OpKind::Mul, OpKind::Div, OpKind::Max, OpKind::Min})
      runBinary(random, {op, {}, kExact, 0.5, 4}, DType::f64);
    for (OpKind op : {OpKind::Sin, OpKind::Cos, OpKind::Tanh, OpKind::Erf, OpKind::Sigmoid})
      runUnary(random, {op, {}, {1e-15, 1e-15}, -40, 40}, DType::f64);
    runBinary(random, {OpKind::Pow, {}, {0, 1e-15}, 0.1, 5}, DType::f64);
    runBinary(random, {OpKind::Compare, {{"kind", std::string("lt")}}}, DType::f64);
  }
}

TEST(Elementwise, IntegersAreAsInterpreted) {
  Random random(4);
  for (DType dtype : {DType::i64, DType::i32})
    for (int round = 0; round < 10; ++round) {
      for (OpKind op : {OpKind::Neg, OpKind::Abs, OpKind::Sign, OpKind::Relu})
        runUnary(random, {op, {}, kExact, -100, 100}, dtype);
      for (OpKind op : {OpKind::Add, OpKind::Sub, OpKind::Mul, OpKind::Max, OpKind::Min})
        runBinary(random, {op, {}, kExact, -100000, 100000}, dtype);
      for (const char *kind : {"eq", "ne", "lt", "le", "gt", "ge"})
        runBinary(random, {OpKind::Compare, {{"kind", std::string(kind)}}}, dtype);
      runBinary(random, {OpKind::Pow, {}, kExact, 1, 9}, dtype);
      for (OpKind op : {OpKind::Div, OpKind::Mod}) { // divisors of both signs, never 0
        Dims dims = randomDims(random, 3);
        Tensor a = randomTensor(random, dtype, dims, kAnyhow, -50, 50);
        Tensor b = randomTensor(random, dtype, dims, kAnyhow, 1, 9);
        Tensor c = randomTensor(random, dtype, dims, kAnyhow, -9, -1);
        expectAsInterpreted(op, {}, {&a, &b}, kExact);
        expectAsInterpreted(op, {}, {&a, &c}, kExact);
      }
    }
}

/// The whole range of each dtype: negative numbers stand for the upper half of unsigned ones.
TEST(Elementwise, RareIntegersAreAsInterpreted) {
  Random random(14);
  for (DType dtype : {DType::i8, DType::u8, DType::i16, DType::u16, DType::u32, DType::u64}) {
    const double limit = std::ldexp(1.0, static_cast<int>(std::min<int64_t>(byteSize(dtype), 7)) * 8 - 1);
    for (int round = 0; round < 10; ++round) {
      for (OpKind op : {OpKind::Neg, OpKind::Abs, OpKind::Sign, OpKind::Relu})
        runUnary(random, {op, {}, kExact, -limit, limit - 1}, dtype);
      for (OpKind op : {OpKind::Add, OpKind::Sub, OpKind::Mul, OpKind::Max, OpKind::Min, OpKind::BitAnd,
                        OpKind::BitOr, OpKind::BitXor})
        runBinary(random, {op, {}, kExact, -limit, limit - 1}, dtype);
      for (const char *kind : {"eq", "ne", "lt", "le", "gt", "ge"})
        runBinary(random, {OpKind::Compare, {{"kind", std::string(kind)}}, kExact, -limit, limit - 1}, dtype);
      runBinary(random, {OpKind::Pow, {}, kExact, 1, 9}, dtype);
      Dims dims = randomDims(random, 3);
      Tensor a = randomTensor(random, dtype, dims, kAnyhow, -limit, limit - 1);
      Tensor positive = randomTensor(random, dtype, dims, kAnyhow, 1, 9);
      Tensor negative = randomTensor(random, dtype, dims, kAnyhow, -9, -1);
      for (OpKind op : {OpKind::Div, OpKind::Mod, OpKind::ShiftLeft, OpKind::ShiftRight})
        for (Tensor *b : {&positive, &negative})
          expectAsInterpreted(op, {}, {&a, b}, kExact);
    }
  }
}

TEST(Elementwise, IntegerDivisionDoesNotTrap) {
  Tensor a = tensorOf<int32_t>(DType::i32, {3}, {INT32_MIN, 7, INT32_MIN});
  Tensor b = tensorOf<int32_t>(DType::i32, {3}, {-1, 0, 0});
  for (OpKind op : {OpKind::Div, OpKind::Mod}) {
    std::vector<Tensor> y = runKernel(op, {}, {&a, &b}, {{DType::i32, {3}}});
    EXPECT_EQ(y[0].data<int32_t>()[0], op == OpKind::Div ? INT32_MIN : 0);
    EXPECT_EQ(y[0].data<int32_t>()[1], 0);
  }
}

TEST(Elementwise, BooleansAreAsInterpreted) {
  Random random(5);
  for (int round = 0; round < 20; ++round) {
    runUnary(random, {OpKind::Not}, DType::boolean);
    runBinary(random, {OpKind::And}, DType::boolean);
    runBinary(random, {OpKind::Or}, DType::boolean);
    runBinary(random, {OpKind::Compare, {{"kind", std::string("eq")}}}, DType::boolean);
  }
}

TEST(Elementwise, SelectTakesEveryDType) {
  Random random(6);
  for (DType dtype : {DType::f32, DType::f64, DType::f16, DType::i64, DType::i32, DType::u8, DType::boolean})
    for (int round = 0; round < 6; ++round) {
      Dims dims = randomDims(random, 5);
      Tensor condition = randomTensor(random, DType::boolean, dims, kAnyhow);
      Tensor a = randomTensor(random, dtype, dims, kAnyhow, 0, 9),
             b = randomTensor(random, dtype, dims, kAnyhow, 0, 9);
      expectAsInterpreted(OpKind::Select, {}, {&condition, &a, &b}, kExact);
    }
}

TEST(Elementwise, SpecialValuesAreAsInterpreted) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  std::vector<float> values = {
      0.0f,  -0.0f,  1.0f,  -1.0f,  kInf,   -kInf,   std::nanf(""), 1e-45f,  -1e-45f,  1e-38f, 88.0f,
      89.0f, 104.5f, 1e10f, -87.5f, -95.0f, -103.9f, -1e10f,        3.4e38f, -3.4e38f, 20.5f,  -20.5f,
      4.01f, -4.01f, 3.99f, 0.4f,   1e-5f,  -1e-5f,  0.99f,         1.01f,   9.01f,    -9.01f, 2.0f};
  auto n = static_cast<int64_t>(values.size());
  Tensor x = tensorOf(DType::f32, {n}, values);
  forEachTarget([&] {
    for (const OpCase &c : unaryFloatCases()) {
      // sigmoid(-95) is subnormal, and 1 / e^95 is 0
      Tolerance tolerance = {std::max(c.tolerance.absolute, 1e-38), std::max(c.tolerance.relative, 5e-7)};
      expectAsInterpreted(c.op, c.attributes, {&x}, tolerance);
    }
    // every pair
    std::vector<float> left, right;
    for (float a : values)
      for (float b : values) {
        left.push_back(a);
        right.push_back(b);
      }
    Tensor a = tensorOf(DType::f32, {n * n}, left), b = tensorOf(DType::f32, {n * n}, right);
    for (const OpCase &c : binaryFloatCases())
      if (c.op != OpKind::GeluGrad)
        expectAsInterpreted(c.op, c.attributes, {&a, &b}, {1e-44, 5e-7});
  });
}

// The functions over their whole range, in units in the last place.
TEST(Elementwise, FunctionsAreWithinFourUnitsInTheLastPlace) {
  struct FunctionCase {
    OpKind op;
    double (*truth)(double);
    float low, high;
  };
  constexpr FunctionCase cases[] = {
      {OpKind::Exp, std::exp, -87, 88},
      {OpKind::Log, std::log, 1e-6f, 1e6f},
      {OpKind::Tanh, std::tanh, -10, 10},
      {OpKind::Sqrt, std::sqrt, 0, 1e6f},
      {OpKind::Sigmoid, [](double x) { return 1 / (1 + std::exp(-x)); }, -80, 80}};
  forEachTarget([&] {
    for (const FunctionCase &c : cases) {
      constexpr int64_t kCount = 20011;
      std::vector<float> values(kCount);
      for (int64_t i = 0; i < kCount; ++i)
        values[i] = c.low + (c.high - c.low) * static_cast<float>(i) / kCount;
      Tensor x = tensorOf(DType::f32, {kCount}, values);
      std::vector<Tensor> y = runKernel(c.op, {}, {&x}, {{DType::f32, {kCount}}});
      double worst = 0;
      for (int64_t i = 0; i < kCount; ++i) {
        double truth = c.truth(values[i]);
        double unit = std::nextafter(std::fabs(static_cast<float>(truth)), INFINITY) -
                      std::fabs(static_cast<float>(truth));
        worst = std::max(worst, std::fabs(y[0].data<float>()[i] - truth) / unit);
      }
      EXPECT_LE(worst, 4) << opText(c.op);
    }
  });
}

TEST(Elementwise, PowersGiveTheSameBitsWhateverTheirNeighbours) {
  Random random(7);
  Tensor x = randomTensor(random, DType::f32, {64}, kContiguous, 0.1, 5);
  for (float exponent : {2.0f, 3.0f, 0.5f, -0.5f, -1.0f, 1.7f}) {
    Tensor same = tensorOf(DType::f32, {64}, std::vector<float>(64, exponent));
    Tensor mixed = tensorOf(DType::f32, {64}, std::vector<float>(64, exponent));
    mixed.data<float>()[63] = 1.25f;
    std::vector<Tensor> a = runKernel(OpKind::Pow, {}, {&x, &same}, {{DType::f32, {64}}});
    std::vector<Tensor> b = runKernel(OpKind::Pow, {}, {&x, &mixed}, {{DType::f32, {64}}});
    EXPECT_EQ(0, memcmp(a[0].storage.data(), b[0].storage.data(), 63 * sizeof(float))) << exponent;
  }
}

TEST(Elementwise, AccumulateAddsInPlace) {
  Random random(8);
  for (DType dtype : {DType::f32, DType::f64}) {
    Tensor sum = randomTensor(random, dtype, {5, 33}), x = randomTensor(random, dtype, {5, 33}, kAnyhow);
    HostTensor expected = sum.host(), added = x.host();
    for (size_t i = 0; i < expected.reals.size(); ++i)
      expected.reals[i] += added.reals[i];
    Expected<KernelCall> call = prepareCall(OpKind::Accumulate, {}, {&sum, &x}, {&sum});
    ASSERT_TRUE(call) << call.error().text();
    call->run(*call);
    expectNear(sum.host(), expected, {0, 6e-8}, "accumulate");
  }
}

TEST(Elementwise, ResultsMayBeStrided) {
  Random random(9);
  for (int round = 0; round < 20; ++round) {
    Dims dims = randomDims(random, 4);
    Lie lie = {true, true, true, false};
    Tensor x = randomTensor(random, DType::f32, dims, kAnyhow),
           y = randomTensor(random, DType::f32, dims, lie);
    Expected<KernelCall> call = prepareCall(OpKind::Neg, {}, {&x}, {&y});
    ASSERT_TRUE(call) << call.error().text();
    call->run(*call);
    HostTensor expected = x.host();
    for (double &v : expected.reals)
      v = -v;
    expectNear(y.host(), expected, kExact, "neg");
  }
}

TEST(Cast, EveryPairOfDTypesIsAsInterpreted) {
  constexpr DType all[] = {DType::f32, DType::f64, DType::f16, DType::bf16,   DType::i64,
                           DType::i32, DType::i8,  DType::u8,  DType::boolean};
  Random random(10);
  for (DType from : all)
    for (DType to : all)
      for (int round = 0; round < 3; ++round) {
        Dims dims = randomDims(random, 3);
        // Negative reals become 0 in u8, negative integers wrap.
        Tensor x = randomTensor(random, from, dims, kAnyhow, from == DType::u8 ? 0 : -300,
                                from == DType::u8 ? 255 : 300);
        Tolerance rounding = to == DType::bf16  ? Tolerance{0, 1.0 / 256}
                             : to == DType::f16 ? Tolerance{0, 1.0 / 2048}
                             : to == DType::f32 ? Tolerance{0, 6e-8}
                                                : kExact;
        expectAsInterpreted(OpKind::Cast, {{"to", std::string(dtypeName(to))}}, {&x}, rounding);
      }
}

TEST(Cast, HalvesRoundToNearestEvenOnce) {
  std::vector<float> values = {0.0f,        -0.0f,       1.0f,     65504.0f,  65519.0f,      65520.0f,
                               1e-8f,       5.9e-8f,     6.0e-5f,  6.1e-5f,   1.00048828f,   1.0009765f,
                               3.3e38f,     3.4e38f,     INFINITY, -INFINITY, std::nanf(""), 1e-40f,
                               1.00390625f, 1.01171875f, -2049.0f, 2051.0f};
  auto n = static_cast<int64_t>(values.size());
  Tensor x = tensorOf(DType::f32, {n}, values);
  for (DType half : {DType::f16, DType::bf16}) {
    std::vector<Tensor> y = runKernel(OpKind::Cast, {}, {&x}, {{half, {n}}});
    HostTensor expected =
        HostTensor::fromBytes({half, {n}}, HostTensor::real({half, {n}}, x.host().reals).toBytes());
    expectNear(y[0].host(), expected, kExact, std::string(dtypeName(half)));
    std::vector<Tensor> back = runKernel(OpKind::Cast, {}, {&y[0]}, {{DType::f32, {n}}});
    HostTensor wide = back[0].host();
    wide.type.dtype = half;
    expectNear(wide, expected, kExact, "back from " + std::string(dtypeName(half)));
  }
}

TEST(Cast, RealsOutsideTheRangeClampAndNanIsZero) {
  Tensor x = tensorOf<double>(DType::f64, {5}, {1e300, -1e300, std::nan(""), 2147483647.9, -2147483648.9});
  for (DType to : {DType::i64, DType::i32, DType::i8, DType::u8, DType::boolean})
    expectAsInterpreted(OpKind::Cast, {{"to", std::string(dtypeName(to))}}, {&x}, kExact);
}

} // namespace
} // namespace zerocc
