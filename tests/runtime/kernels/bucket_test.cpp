#include "runtime/plan/scalars.h"
#include "tests/runtime/kernels/kernel_case.h"

#include <cmath>

namespace zerocc {
namespace {

/// Members with gaps, one cut by the border between the two parts, one longer than a norm block.
BucketLayout layoutOf(int64_t shardIndex, int64_t shardSize) {
  BucketLayout bucket;
  bucket.ranges = {
      {0, 100, 0, 0}, {128, 5128, 1, 1}, {5152, 5153, 0, 2}, {5184, 9000, 1, 3}, {9024, 12200, 0, 4}};
  bucket.paddedElements = 12288;
  bucket.shardIndex = shardIndex;
  bucket.shardSize = shardSize;
  return bucket;
}

bool isMember(const BucketLayout &bucket, int64_t i) {
  for (const MemberRange &range : bucket.ranges)
    if (i >= range.begin && i < range.end)
      return true;
  return false;
}

/// The rank's own part of a whole buffer.
Tensor partOf(const Tensor &whole, const BucketLayout &bucket) {
  int64_t part = bucket.paddedElements / bucket.shardSize;
  Tensor out;
  out.view = whole.view;
  out.view.data = whole.data<char>() + bucket.shardIndex * part * byteSize(whole.view.dtype);
  out.view.dims[0] = part;
  return out;
}

Tensor copyOf(const Tensor &tensor) {
  Tensor out = poisoned(tensor.view.dtype, tensor.type().dims);
  memcpy(out.storage.data(), tensor.view.data, out.storage.size());
  return out;
}

void run(OpKind op, const std::vector<const Tensor *> &inputs, const std::vector<const Tensor *> &results,
         const BucketLayout &bucket, const Attributes &attributes = {}) {
  Expected<KernelCall> call = prepareCall(op, attributes, inputs, results, &bucket);
  ASSERT_TRUE(call) << call.error().text();
  call->run(*call);
}

TEST(ClearPadding, ZeroesWhatNoMemberOwns) {
  Random random(80);
  BucketLayout bucket = layoutOf(0, 2);
  Tensor buffer = randomTensor(random, DType::f32, {bucket.paddedElements}, kContiguous, 1, 2);
  Tensor before = copyOf(buffer);
  run(OpKind::ClearPadding, {&buffer}, {&buffer}, bucket);
  for (int64_t i = 0; i < bucket.paddedElements; ++i)
    ASSERT_EQ(buffer.data<float>()[i], isMember(bucket, i) ? before.data<float>()[i] : 0) << i;
}

std::array<double, 2> normOf(const Tensor &gradient, const BucketLayout &bucket) {
  Tensor result = poisoned(DType::f64, {2});
  run(OpKind::NormPartial, {&gradient}, {&result}, bucket);
  return {result.data<double>()[0], result.data<double>()[1]};
}

TEST(NormPartial, SumsSquaresOfMembersInTheOwnPart) {
  forEachTarget([] {
    Random random(81);
    Tensor whole = randomTensor(random, DType::f32, {12288});
    for (int64_t rank : {0, 1}) {
      BucketLayout bucket = layoutOf(rank, 2);
      for (int64_t i = 0; i < 12288; ++i) // padding may hold anything
        if (!isMember(bucket, i))
          whole.data<float>()[i] = std::nanf("");
      double expected = 0;
      for (int64_t i = rank * 6144; i < (rank + 1) * 6144; ++i)
        if (isMember(bucket, i))
          expected += static_cast<double>(whole.data<float>()[i]) * whole.data<float>()[i];
      std::array<double, 2> norm = normOf(whole, bucket);
      EXPECT_NEAR(norm[0], expected, 1e-9 * expected);
      EXPECT_EQ(norm[1], 0);
      EXPECT_EQ(norm, normOf(partOf(whole, bucket), bucket)) << "part and whole must give the same bits";
    }
  });
}

TEST(NormPartial, CutsIntoMembersDoNotChangeBits) {
  Random random(82);
  Tensor x = randomTensor(random, DType::f32, {8192});
  BucketLayout one;
  one.paddedElements = 8192;
  one.ranges = {{0, 8192, 0, 0}};
  std::array<double, 2> expected = normOf(x, one);
  for (int64_t cut : {1, 15, 16, 17, 4095, 4096, 4097, 5000, 8191}) {
    BucketLayout two = one;
    two.ranges = {{0, cut, 0, 0}, {cut, 8192, 0, 1}};
    EXPECT_EQ(normOf(x, two), expected) << cut;
  }
}

TEST(NormPartial, FindsWhatIsFirstNotFinite) {
  Random random(83);
  Tensor x = randomTensor(random, DType::f32, {12288});
  x.data<float>()[110] = INFINITY; // padding
  BucketLayout all = layoutOf(0, 1);
  ASSERT_FALSE(isMember(all, 110));
  EXPECT_EQ(normOf(x, all)[1], 0);
  for (int64_t at : {9100, 5001, 5000, 3, 0}) {
    ASSERT_TRUE(isMember(all, at));
    x.data<float>()[at] = at % 2 ? std::nanf("") : INFINITY;
    EXPECT_EQ(normOf(x, all)[1], at + 1);
  }
  EXPECT_EQ(normOf(partOf(x, layoutOf(1, 2)), layoutOf(1, 2))[1], 9101) << "elements are the bucket's";
}

std::vector<double> updateScalars() {
  std::vector<double> s(kScalars, 0.0);
  s[kScalarLr] = 0.01;
  s[kScalarBeta1] = 0.9;
  s[kScalarBeta2] = 0.95;
  s[kScalarEps] = 1e-3; // large enough to be seen
  s[kScalarMomentum] = 0.9;
  s[kScalarFactor] = 0.5;
  s[kScalarCorrection1] = 1 - 0.9 * 0.9;
  s[kScalarCorrection2] = 1 - 0.95 * 0.95;
  s[kScalarGroups + 0] = 0.1; // group 0: decays
  s[kScalarGroups + 1] = 1;
  s[kScalarGroups + 2] = 0; // group 1: does not, twice the rate
  s[kScalarGroups + 3] = 2;
  return s;
}

/// Parameter, gradient, moments of a whole bucket.
struct Update {
  Tensor p, g, m, v, scalars;
  explicit Update(Random &random, int64_t elements)
      : p(randomTensor(random, DType::f32, {elements})), g(randomTensor(random, DType::f32, {elements})),
        m(randomTensor(random, DType::f32, {elements})),
        v(randomTensor(random, DType::f32, {elements}, kContiguous, 0.1, 2)),
        scalars(tensorOf(DType::f64, {kScalars}, updateScalars())) {}
  Update(const Update &other)
      : p(copyOf(other.p)), g(copyOf(other.g)), m(copyOf(other.m)), v(copyOf(other.v)),
        scalars(copyOf(other.scalars)) {}

  void adamw(const BucketLayout &bucket) {
    run(OpKind::AdamW, {&p, &g, &m, &v, &scalars}, {&p, &m, &v}, bucket);
  }
  bool operator==(const Update &other) const {
    return p.storage == other.p.storage && m.storage == other.m.storage && v.storage == other.v.storage;
  }
};

int groupOf(const BucketLayout &bucket, int64_t i) {
  for (const MemberRange &range : bucket.ranges)
    if (i >= range.begin && i < range.end)
      return range.group;
  return -1;
}

TEST(AdamW, FollowsTorchsFormulas) {
  forEachTarget([] {
    Random random(84);
    BucketLayout bucket = layoutOf(0, 1);
    Update before(random, bucket.paddedElements), after(before);
    after.adamw(bucket);
    std::vector<double> s = updateScalars();
    for (int64_t i = 0; i < bucket.paddedElements; ++i) {
      int group = groupOf(bucket, i);
      double p = before.p.data<float>()[i], m = before.m.data<float>()[i], v = before.v.data<float>()[i];
      if (group >= 0) {
        double rate = s[kScalarLr] * s[kScalarGroups + 2 * group + 1];
        double g = before.g.data<float>()[i] * s[kScalarFactor];
        p *= 1 - rate * s[kScalarGroups + 2 * group];
        m += (1 - s[kScalarBeta1]) * (g - m);
        v = s[kScalarBeta2] * v + (1 - s[kScalarBeta2]) * g * g;
        p -= rate / s[kScalarCorrection1] * m /
             (std::sqrt(v) / std::sqrt(s[kScalarCorrection2]) + s[kScalarEps]);
      }
      ASSERT_NEAR(after.p.data<float>()[i], p, 5e-7) << i;
      ASSERT_NEAR(after.m.data<float>()[i], m, 5e-7) << i;
      ASSERT_NEAR(after.v.data<float>()[i], v, 5e-7) << i;
    }
  });
}

TEST(AdamW, PartsAndWholeGiveTheSameBits) {
  Random random(85);
  Update whole(random, 12288), parts(whole), cut(whole);
  whole.adamw(layoutOf(0, 1));
  for (int64_t rank : {0, 1}) {
    BucketLayout bucket = layoutOf(rank, 2);
    Tensor p = partOf(parts.p, bucket), m = partOf(parts.m, bucket), v = partOf(parts.v, bucket);
    // One rank reads its gradient from the whole bucket, the other from its part.
    Tensor g = rank == 0 ? copyOf(parts.g) : partOf(parts.g, bucket);
    run(OpKind::AdamW, {&p, &g, &m, &v, &parts.scalars}, {&p, &m, &v}, bucket);
  }
  EXPECT_TRUE(whole == parts);

  // The same bits wherever a member is cut.
  BucketLayout pieces = layoutOf(0, 1);
  std::vector<MemberRange> ranges;
  for (const MemberRange &range : pieces.ranges) {
    int64_t middle = range.begin + (range.end - range.begin) / 3;
    ranges.push_back({range.begin, middle, range.group, range.parameter});
    ranges.push_back({middle, range.end, range.group, range.parameter});
  }
  pieces.ranges = ranges;
  cut.adamw(pieces);
  EXPECT_TRUE(whole == cut);
}

TEST(AdamW, AllCutsOf300Elements) {
  Random random(86);
  BucketLayout bucket;
  bucket.paddedElements = 320;
  bucket.ranges = {{0, 300, 0, 0}};
  Update before(random, 320), whole(before);
  whole.adamw(bucket);
  for (int64_t cut = 1; cut < 300; ++cut) {
    bucket.ranges = {{0, cut, 0, 0}, {cut, 300, 0, 0}};
    Update pieces(before);
    pieces.adamw(bucket);
    ASSERT_TRUE(pieces == whole) << cut;
  }
}

TEST(AdamW, WholeStatesUpdateTheWholeBucketOnEveryRank) {
  Random random(87);
  Update one(random, 12288), other(one);
  one.adamw(layoutOf(0, 2));
  other.adamw(layoutOf(1, 2));
  EXPECT_TRUE(one == other);
}

TEST(OnnxAdam, FollowsOnnxsFormulas) {
  forEachTarget([] {
    Random random(91);
    BucketLayout bucket = layoutOf(0, 1);
    for (double firstCount : {0.0, 1.0, 5.0})
      for (double updates : {1.0, 3.0}) {
        Update before(random, bucket.paddedElements), after(before);
        std::vector<double> s = updateScalars();
        s[kScalarFirstCount] = firstCount;
        s[kScalarUpdates] = updates;
        s[kScalarOwn] = 0.01;
        after.scalars = tensorOf(DType::f64, {kScalars}, s);
        run(OpKind::OnnxAdam, {&after.p, &after.g, &after.m, &after.v, &after.scalars},
            {&after.p, &after.m, &after.v}, bucket);
        double count = firstCount + updates - 1;
        for (int64_t i = 0; i < bucket.paddedElements; ++i) {
          int group = groupOf(bucket, i);
          double p = before.p.data<float>()[i], m = before.m.data<float>()[i], v = before.v.data<float>()[i];
          if (group >= 0) {
            double rate = s[kScalarLr] * s[kScalarGroups + 2 * group + 1];
            if (count > 0)
              rate *=
                  std::sqrt(1 - std::pow(s[kScalarBeta2], count)) / (1 - std::pow(s[kScalarBeta1], count));
            double g = before.g.data<float>()[i] * s[kScalarFactor] + s[kScalarGroups + 2 * group] * p;
            m = s[kScalarBeta1] * m + (1 - s[kScalarBeta1]) * g;
            v = s[kScalarBeta2] * v + (1 - s[kScalarBeta2]) * g * g;
            p = (1 - s[kScalarOwn]) * (p - rate * m / (std::sqrt(v) + s[kScalarEps]));
          }
          ASSERT_NEAR(after.p.data<float>()[i], p, 5e-7) << i;
          ASSERT_NEAR(after.m.data<float>()[i], m, 5e-7) << i;
          ASSERT_NEAR(after.v.data<float>()[i], v, 5e-7) << i;
        }
      }
  });
}

TEST(Adagrad, FollowsOnnxsFormulas) {
  forEachTarget([] {
    Random random(92);
    BucketLayout bucket = layoutOf(0, 1);
    Update before(random, bucket.paddedElements), after(before);
    std::vector<double> s = updateScalars();
    s[kScalarFirstCount] = 2;
    s[kScalarUpdates] = 3;
    s[kScalarOwn] = 0.5;
    after.scalars = tensorOf(DType::f64, {kScalars}, s);
    run(OpKind::Adagrad, {&after.p, &after.g, &after.v, &after.scalars}, {&after.p, &after.v}, bucket);
    for (int64_t i = 0; i < bucket.paddedElements; ++i) {
      int group = groupOf(bucket, i);
      double p = before.p.data<float>()[i], h = before.v.data<float>()[i];
      if (group >= 0) {
        double rate = s[kScalarLr] * s[kScalarGroups + 2 * group + 1] / (1 + 4 * s[kScalarOwn]);
        double g = before.g.data<float>()[i] * s[kScalarFactor] + s[kScalarGroups + 2 * group] * p;
        h += g * g;
        p -= rate * g / (std::sqrt(h) + s[kScalarEps]);
      }
      ASSERT_NEAR(after.p.data<float>()[i], p, 5e-7) << i;
      ASSERT_NEAR(after.v.data<float>()[i], h, 1e-6) << i;
    }
  });
}

TEST(OnnxsOptimizers, GiveTheSameBitsWhereverAMemberIsCut) {
  Random random(93);
  BucketLayout bucket;
  bucket.paddedElements = 320;
  bucket.ranges = {{0, 300, 0, 0}};
  Update before(random, 320);
  before.scalars.data<double>()[kScalarUpdates] = 2;
  auto both = [](Update &update, const BucketLayout &bucket) {
    run(OpKind::OnnxAdam, {&update.p, &update.g, &update.m, &update.v, &update.scalars},
        {&update.p, &update.m, &update.v}, bucket);
    run(OpKind::Adagrad, {&update.p, &update.g, &update.v, &update.scalars}, {&update.p, &update.v}, bucket);
  };
  Update whole(before);
  both(whole, bucket);
  for (int64_t cut = 1; cut < 300; ++cut) {
    bucket.ranges = {{0, cut, 0, 0}, {cut, 300, 0, 0}};
    Update pieces(before);
    both(pieces, bucket);
    ASSERT_TRUE(pieces == whole) << cut;
  }
}

/// Kinds of the two ops: torch's Adam, RMSprop, and Lion.
void runKind(const char *kind, Update &u, const BucketLayout &bucket) {
  Attributes attributes{{"kind", std::string(kind)}};
  if (kind == std::string("adam"))
    run(OpKind::AdamW, {&u.p, &u.g, &u.m, &u.v, &u.scalars}, {&u.p, &u.m, &u.v}, bucket, attributes);
  else
    run(OpKind::Sgd, {&u.p, &u.g, &u.v, &u.scalars}, {&u.p, &u.v}, bucket, attributes);
}
constexpr const char *kKinds[] = {"adam", "rmsprop", "lion"};

TEST(Kinds, FollowTheirFormulas) {
  forEachTarget([] {
    Random random(94);
    BucketLayout bucket = layoutOf(0, 1);
    std::vector<double> s = updateScalars();
    for (const std::string kind : kKinds) {
      Update before(random, bucket.paddedElements), after(before);
      runKind(kind.c_str(), after, bucket);
      for (int64_t i = 0; i < bucket.paddedElements; ++i) {
        int group = groupOf(bucket, i);
        double p = before.p.data<float>()[i], m = before.m.data<float>()[i], v = before.v.data<float>()[i];
        if (group >= 0) {
          double rate = s[kScalarLr] * s[kScalarGroups + 2 * group + 1], decay = s[kScalarGroups + 2 * group];
          double b1 = s[kScalarBeta1], b2 = s[kScalarBeta2], eps = s[kScalarEps];
          double g = before.g.data<float>()[i] * s[kScalarFactor];
          if (kind == "lion") {
            double mixed = b1 * v + (1 - b1) * g;
            p = p * (1 - rate * decay) - rate * ((mixed > 0) - (mixed < 0));
            v = b2 * v + (1 - b2) * g;
          } else if (kind == "rmsprop") {
            g += decay * p;
            v = b2 * v + (1 - b2) * g * g;
            p -= rate * g / (std::sqrt(v) + eps);
          } else {
            g += decay * p;
            m = b1 * m + (1 - b1) * g;
            v = b2 * v + (1 - b2) * g * g;
            p -= rate / s[kScalarCorrection1] * m / (std::sqrt(v) / std::sqrt(s[kScalarCorrection2]) + eps);
          }
        }
        ASSERT_NEAR(after.p.data<float>()[i], p, 5e-7) << kind << " " << i;
        ASSERT_NEAR(after.m.data<float>()[i], m, 5e-7) << kind << " " << i;
        ASSERT_NEAR(after.v.data<float>()[i], v, 5e-7) << kind << " " << i;
      }
    }
  });
}

TEST(Kinds, GiveTheSameBitsWhereverAMemberIsCut) {
  Random random(95);
  BucketLayout bucket;
  bucket.paddedElements = 320;
  Update before(random, 320);
  for (const char *kind : kKinds) {
    bucket.ranges = {{0, 300, 0, 0}};
    Update whole(before);
    runKind(kind, whole, bucket);
    EXPECT_FALSE(whole == before);
    for (int64_t cut = 1; cut < 300; ++cut) {
      bucket.ranges = {{0, cut, 0, 0}, {cut, 300, 0, 0}};
      Update pieces(before);
      runKind(kind, pieces, bucket);
      ASSERT_TRUE(pieces == whole) << kind << " " << cut;
    }
  }
}

TEST(Optimizers, PartsAndWholeGiveTheSameBits) {
  struct {
    OpKind op;
    const char *kind;
    int states;
  } cases[] = {{OpKind::AdamW, "", 2},      {OpKind::AdamW, "adam", 2}, {OpKind::OnnxAdam, "", 2},
               {OpKind::Sgd, "", 0},        {OpKind::Sgd, "", 1},       {OpKind::Sgd, "lion", 1},
               {OpKind::Sgd, "rmsprop", 1}, {OpKind::Adagrad, "", 1}};
  Random random(98);
  const Update before(random, 12288);
  for (auto [op, kind, states] : cases) {
    Attributes attributes;
    if (*kind)
      attributes.set("kind", std::string(kind));
    auto update = [&, op = op, states = states](Tensor p, Tensor g, Tensor m, Tensor v, const Tensor &scalars,
                                                const BucketLayout &bucket) {
      std::vector<const Tensor *> results = {&p, &v, &m}, inputs = {&p, &g, &v, &m};
      results.resize(1 + states);
      inputs.resize(2 + states);
      inputs.push_back(&scalars);
      run(op, inputs, results, bucket, attributes);
    };
    auto all = [](Tensor &tensor) { return partOf(tensor, layoutOf(0, 1)); };
    Update whole(before);
    update(all(whole.p), all(whole.g), all(whole.m), all(whole.v), whole.scalars, layoutOf(0, 1));
    for (bool readsPart : {false, true}) { // its gradient
      Update parts(before);
      for (int64_t rank : {0, 1}) {
        BucketLayout bucket = layoutOf(rank, 2);
        Tensor g = readsPart ? partOf(parts.g, bucket) : all(parts.g);
        update(partOf(parts.p, bucket), g, partOf(parts.m, bucket), partOf(parts.v, bucket), parts.scalars,
               bucket);
      }
      EXPECT_TRUE(whole == parts) << opText(op) << " " << kind << readsPart;
    }
    EXPECT_FALSE(whole == before) << opText(op) << " " << kind;
  }
}

TEST(Kinds, LionStandsStillWhereNothingPulls) {
  Random random(96);
  BucketLayout bucket = layoutOf(0, 1);
  Update before(random, bucket.paddedElements);
  std::fill_n(before.g.data<float>(), bucket.paddedElements, 0.0F);
  std::fill_n(before.v.data<float>(), bucket.paddedElements, 0.0F);
  for (int group : {0, 1})
    before.scalars.data<double>()[kScalarGroups + 2 * group] = 0;
  Update after(before);
  runKind("lion", after, bucket);
  EXPECT_TRUE(before == after);
}

TEST(Kinds, AreOfTheirOp) {
  Random random(97);
  BucketLayout bucket = layoutOf(0, 1);
  Update u(random, bucket.paddedElements);
  Expected<KernelCall> call = prepareCall(OpKind::Sgd, {{"kind", std::string("adam")}},
                                          {&u.p, &u.g, &u.m, &u.scalars}, {&u.p, &u.m}, &bucket);
  ASSERT_FALSE(call);
  EXPECT_NE(call.error().text().find("it has no kind \"adam\""), std::string::npos) << call.error().text();
}

TEST(Optimizers, WriteNothingWhenTheStepIsSkipped) {
  Random random(88);
  BucketLayout bucket = layoutOf(0, 1);
  Update before(random, bucket.paddedElements), after(before);
  after.scalars.data<double>()[kScalarSkip] = 1;
  after.adamw(bucket);
  EXPECT_TRUE(before == after);
  run(OpKind::Sgd, {&after.p, &after.g, &after.m, &after.scalars}, {&after.p, &after.m}, bucket);
  run(OpKind::Sgd, {&after.p, &after.g, &after.scalars}, {&after.p}, bucket);
  run(OpKind::OnnxAdam, {&after.p, &after.g, &after.m, &after.v, &after.scalars},
      {&after.p, &after.m, &after.v}, bucket);
  run(OpKind::Adagrad, {&after.p, &after.g, &after.v, &after.scalars}, {&after.p, &after.v}, bucket);
  for (const char *kind : kKinds)
    runKind(kind, after, bucket);
  EXPECT_TRUE(before == after);
}

TEST(Sgd, FollowsTorchsFormulas) {
  forEachTarget([] {
    Random random(89);
    BucketLayout bucket = layoutOf(0, 1);
    for (bool hasMomentum : {false, true})
      for (bool nesterov : {false, true}) {
        Update before(random, bucket.paddedElements), after(before);
        after.scalars.data<double>()[kScalarNesterov] = nesterov;
        after.scalars.data<double>()[kScalarUpdates] = 2; // not the first: dampened
        after.scalars.data<double>()[kScalarOwn] = 0.25;
        if (hasMomentum)
          run(OpKind::Sgd, {&after.p, &after.g, &after.m, &after.scalars}, {&after.p, &after.m}, bucket);
        else
          run(OpKind::Sgd, {&after.p, &after.g, &after.scalars}, {&after.p}, bucket);
        std::vector<double> s = updateScalars();
        for (int64_t i = 0; i < bucket.paddedElements; ++i) {
          int group = groupOf(bucket, i);
          double p = before.p.data<float>()[i], m = before.m.data<float>()[i];
          if (group >= 0) {
            double rate = s[kScalarLr] * s[kScalarGroups + 2 * group + 1];
            double g = before.g.data<float>()[i] * s[kScalarFactor] + s[kScalarGroups + 2 * group] * p;
            if (hasMomentum)
              m = s[kScalarMomentum] * m + 0.75 * g;
            p -= rate * (!hasMomentum ? g : nesterov ? g + s[kScalarMomentum] * m : m);
          }
          ASSERT_NEAR(after.p.data<float>()[i], p, 5e-7) << i;
          ASSERT_NEAR(after.m.data<float>()[i], m, 1e-6) << i;
        }
      }
  });
}

} // namespace
} // namespace zerocc
