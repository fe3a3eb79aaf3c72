// Lowerings of the normalizations over channels, groups and neighbours. (Layer norm and RMS norm:
// lower_network.cpp.)

#include "compiler/onnx/lowerings.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace zerocc {
namespace {

/// x normalized to mean 0 and variance 1 over all dims but the first `kept`, by the kernel of layer norm.
Value *standardize(NodeLowering &n, Value *x, size_t kept, double eps) {
  if (!x)
    return nullptr;
  Dims rows(x->type.dims.begin(), x->type.dims.begin() + kept);
  int64_t inner = 1;
  for (size_t axis = kept; axis < x->type.dims.size(); ++axis)
    inner *= x->type.dims[axis];
  rows.push_back(inner);
  Value *ones = n.filled({x->type.dtype, {inner}}, 1);
  Node *norm = n.make(OpKind::LayerNorm, {n.reshape(x, rows), ones}, {{"eps", eps}});
  return norm ? n.reshape(norm->result(0), x->type.dims) : nullptr;
}

/// A vector over the channels (axis 1) of x, for broadcasting.
Value *perChannel(NodeLowering &n, Value *vector, Value *x) {
  if (!vector || !x)
    return nullptr;
  Dims dims(x->type.rank(), 1);
  dims[1] = x->type.dims[1];
  if (vector->type.elements() != dims[1])
    return n.fail(print(vector->type) + " does not fit the channels of " + print(x->type));
  return n.reshape(vector, dims);
}

bool needChannels(NodeLowering &n, Value *x) {
  if (x && x->type.rank() < 2)
    n.fail("needs a batch and a channel dim, got " + print(x->type));
  return x && x->type.rank() >= 2;
}

} // namespace

bool trainsBatchNormalization(const FlatNode &node, const ImportOptions &options) {
  if (node.op != "BatchNormalization" || !node.domain.empty())
    return false;
  auto integer = [&](const char *name) {
    auto found = node.attributes.find(name);
    return found == node.attributes.end() ? int64_t(0) : found->second->i();
  };
  const bool trains = node.version >= 14  ? integer("training_mode") != 0
                      : node.version >= 7 ? node.outputs.size() > 1 && !node.outputs[1].empty()
                                          : !integer("is_test");
  return trains || options.trainBatchNorm;
}

// (x - mean) / √(variance + eps) scale + bias per channel (axis 1). In training mean and variance are the micro-batch's
// own, of the rank or of all ranks (divided by its size, as ONNX has it), and a running statistic becomes momentum old + (1 - momentum) new.
Values lowerBatchNormalization(NodeLowering &n) {
  Value *x = n.in(0);
  if (!needChannels(n, x))
    return {nullptr};
  const double eps = n.floatAttribute("epsilon", 1e-5f), momentum = n.floatAttribute("momentum", 0.9f);
  Value *scale = perChannel(n, n.in(1), x), *bias = perChannel(n, n.in(2), x);
  Value *runningMean = n.in(3), *runningVariance = n.in(4);
  auto normalize = [&](Value *centred, Value *variance) {
    Value *y = n.div(centred, n.unary(OpKind::Sqrt, n.add(variance, eps)));
    return n.add(n.mul(y, scale), bias);
  };
  const bool trains = trainsBatchNormalization(n.node, n.options);
  // Imported for inference, the file's own training mode is still what its outputs mean.
  const bool byFile = trains && (!n.options.trainBatchNorm || n.wantsOutput(1));
  Value *inferred = n.options.inference && byFile
                        ? nullptr
                        : normalize(n.sub(x, perChannel(n, runningMean, x)), perChannel(n, runningVariance, x));
  if (!trains || n.failed())
    return {inferred};
  std::vector<int64_t> axes(x->type.rank());
  std::iota(axes.begin(), axes.end(), 0);
  axes.erase(axes.begin() + 1);
  const double count = static_cast<double>(x->type.elements()) / static_cast<double>(std::max<int64_t>(1, x->type.dims[1]));
  auto mean = [&](Value *value) {
    Value *own = n.div(n.reduceSum(value, axes), count);
    return n.options.syncBatchNorm && own ? n.emit(OpKind::RankMean, {own}) : own; // all ranks have as many samples
  };
  Value *batchMean = mean(x);
  Value *centred = n.sub(x, perChannel(n, batchMean, x));
  Value *batchVariance = mean(n.mul(centred, centred));
  Value *trained = normalize(centred, perChannel(n, batchVariance, x));
  if (n.failed())
    return {nullptr};
  auto moved = [&](Value *running, Value *batch) {
    return n.add(n.mul(running, momentum), n.mul(n.cast(batch, running->type.dtype), 1 - momentum));
  };
  Value *nextMean = moved(runningMean, batchMean), *nextVariance = moved(runningVariance, batchVariance);
  // A node's results come from its operands; the buffers move on from where an earlier use has left them.
  auto move = [&](Value *running, Value *batch, Value *next) {
    Value *before = n.movedSoFar(running);
    n.updateBuffer(running, before == running ? next : moved(before, batch));
  };
  move(runningMean, batchMean, nextMean);
  move(runningVariance, batchVariance, nextVariance);
  return {inferred ? n.whenTraining(trained, inferred) : trained, nextMean, nextVariance};
}

/// Active dropout is active in training alone; inactive, it is the identity.
Values lowerDropout(NodeLowering &n) {
  Value *x = n.in(0);
  if (!x)
    return {nullptr};
  double ratio = n.floatAttribute("ratio", 0.5);
  bool active = n.version < 7 ? !n.intAttribute("is_test", 0) : false;
  if (n.version >= 12) {
    std::optional<double> given = n.has(1) ? n.constantNumber(n.in(1)) : std::optional<double>(0.5);
    std::optional<double> training = n.has(2) ? n.constantNumber(n.in(2)) : std::optional<double>(0);
    if (!given || !training)
      return {n.fail("its ratio and training_mode must be known when compiling")};
    ratio = *given;
    active = *training != 0;
  }
  if (!(ratio >= 0 && ratio < 1))
    return {n.fail("its ratio is " + std::to_string(ratio) + ", it must be at least 0 and below 1")};
  const TensorType mask{DType::boolean, x->type.dims};
  if (!active || ratio == 0 || n.options.inference || n.options.dropout == "off")
    return {x, n.wantsOutput(1) ? n.filled(mask, 1) : nullptr};
  const Attributes attributes{{"rate", ratio}, {"id", n.randomId()}};
  Values results{n.whenTraining(n.emit(OpKind::Dropout, {x, n.random()}, attributes), x)};
  if (n.wantsOutput(1)) {
    Attributes shaped = attributes;
    shaped.set("shape", std::vector<int64_t>(mask.dims.begin(), mask.dims.end()));
    results.push_back(n.whenTraining(n.emit(OpKind::KeepMask, {n.random()}, shaped), n.filled(mask, 1)));
  }
  return results;
}

Values lowerInstanceNormalization(NodeLowering &n) {
  Value *x = n.in(0);
  if (!needChannels(n, x))
    return {nullptr};
  Value *y = standardize(n, x, 2, n.floatAttribute("epsilon", 1e-5f));
  Value *scale = perChannel(n, n.in(1), x), *bias = perChannel(n, n.in(2), x);
  if (n.uniformNumber(scale) == 1 && n.uniformNumber(bias) == 0) // how exporters write that there is neither
    return {y};
  return {n.add(n.mul(y, scale), bias)};
}

/// Version 18 scales per group, 21 per channel.
Values lowerGroupNormalization(NodeLowering &n) {
  Value *x = n.in(0), *scale = n.in(1), *bias = n.in(2);
  const int64_t groups = n.intAttribute("num_groups", 1);
  if (!needChannels(n, x) || !scale || !bias)
    return {nullptr};
  const int64_t channels = x->type.dims[1];
  if (groups < 1 || channels % groups != 0)
    return {
        n.fail(std::to_string(channels) + " channels are not " + std::to_string(groups) + " equal groups")};
  Dims grouped = {x->type.dims[0], groups, channels / groups};
  grouped.append(x->type.dims.begin() + 2, x->type.dims.end());
  Value *y =
      n.reshape(standardize(n, n.reshape(x, grouped), 2, n.floatAttribute("epsilon", 1e-5f)), x->type.dims);
  auto perGroup = [&](Value *vector) -> Value * {
    if (n.version >= 21 || !vector)
      return vector;
    if (vector->type.elements() != groups)
      return n.fail(print(vector->type) + " is not one element per group");
    return n.reshape(n.broadcast(n.reshape(vector, {groups, 1}), {groups, channels / groups}), {channels});
  };
  return {n.add(n.mul(y, perChannel(n, perGroup(scale), x)), perChannel(n, perGroup(bias), x))};
}

// x / (bias + alpha / size Σ x²)^beta, the sum over `size` neighbouring channels
Values lowerLrn(NodeLowering &n) {
  Value *x = n.in(0);
  if (!needChannels(n, x))
    return {nullptr};
  const int64_t size = n.intAttribute("size", 1), channels = x->type.dims[1];
  if (size < 1)
    return {n.fail("size is " + std::to_string(size))};
  int64_t inner = 1;
  for (size_t axis = 2; axis < x->type.dims.size(); ++axis)
    inner *= x->type.dims[axis];
  // Channels as the first of two spatial axes: a pool of height `size`.
  Value *squares = n.reshape(n.mul(x, x), {x->type.dims[0], 1, channels, inner});
  using Ints = std::vector<int64_t>;
  Attributes pool{{"kernel", Ints{size, 1}},
                  {"strides", Ints{1, 1}},
                  {"dilations", Ints{1, 1}},
                  {"low", Ints{(size - 1) / 2, 0}},
                  {"high", Ints{size / 2, 0}}};
  Value *sums = n.reshape(n.emit(OpKind::SumPool, {squares}, pool), x->type.dims);
  Value *base = n.add(n.mul(sums, n.floatAttribute("alpha", 1e-4f) / static_cast<double>(size)),
                      n.floatAttribute("bias", 1));
  return {n.div(x, n.binary(OpKind::Pow, base, n.floatAttribute("beta", 0.75)))};
}

// x / (Σ |x|^p)^(1/p) along an axis; 0 where the norm is 0
Values lowerLpNormalization(NodeLowering &n) {
  Value *x = n.in(0);
  if (!x)
    return {nullptr};
  std::optional<int64_t> axis = n.normalAxis(n.intAttribute("axis", -1), x->type.rank());
  const int64_t p = n.intAttribute("p", 2);
  if (!axis)
    return {nullptr};
  if (p != 1 && p != 2)
    return {n.fail("p is " + std::to_string(p) + "; 1 and 2 are known")};
  Dims kept = x->type.dims;
  kept[*axis] = 1;
  Value *terms = p == 1 ? n.unary(OpKind::Abs, x) : n.mul(x, x);
  Value *sum = n.reshape(n.reduceSum(terms, {*axis}), kept);
  if (!sum)
    return {nullptr};
  // Chosen before the root, whose slope at 0 is not finite.
  Value *isZero = n.compare(sum, n.scalar(sum->type.dtype, 0), "eq");
  Value *safe = n.select(isZero, n.scalar(sum->type.dtype, 1), sum);
  return {n.div(x, p == 1 ? safe : n.unary(OpKind::Sqrt, safe))};
}

// (x - mean) / (deviation + 1e-9) over `axes`
Values lowerMeanVarianceNormalization(NodeLowering &n) {
  Value *x = n.in(0);
  if (!x)
    return {nullptr};
  std::vector<int64_t> listed = n.intsAttribute("axes");
  if (listed.empty())
    listed = {0, 2, 3};
  std::optional<std::vector<int64_t>> axes = n.normalAxes(listed, x->type.rank());
  if (!axes)
    return {nullptr};
  Dims kept = x->type.dims;
  double count = 1;
  for (int64_t axis : *axes) {
    count *= static_cast<double>(kept[axis]);
    kept[axis] = 1;
  }
  auto mean = [&](Value *value) { return n.div(n.reshape(n.reduceSum(value, *axes), kept), count); };
  Value *centred = n.sub(x, mean(x));
  Value *variance = mean(n.mul(centred, centred));
  return {n.div(centred, n.add(n.unary(OpKind::Sqrt, variance), 1e-9))};
}

} // namespace zerocc
