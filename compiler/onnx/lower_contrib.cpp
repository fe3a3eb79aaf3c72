// Lowerings of ONNX Runtime's operators (com.microsoft) that are exact compositions of others: what its graph optimizer
// and model builders write. Quantised ones are refused: there is nothing to train in them.

#include "compiler/onnx/lowerings.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>
#include <limits>

namespace zerocc {
namespace {

Value *gelu(NodeLowering &n, Value *x, const char *approximate) {
  return n.emit(OpKind::Gelu, {x}, {{"approximate", std::string(approximate)}});
}

Value *optional(NodeLowering &n, int i) { return n.has(i) ? n.in(i) : nullptr; }
Value *plus(NodeLowering &n, Value *x, Value *maybe) { return maybe ? n.add(x, maybe) : x; }

/// Layer norm over the last axis, or with `rms` its form without mean and bias.
Value *lastAxisNorm(NodeLowering &n, Value *x, Value *scale, Value *bias, bool rms, double eps) {
  if (!x || !scale)
    return nullptr;
  if (x->type.dims.empty() || scale->type.elements() != x->type.dims.back())
    return n.fail("scale " + print(scale->type) + " does not fit " + print(x->type));
  scale = n.reshape(scale, {x->type.dims.back()});
  if (!rms) {
    Values operands{x, scale};
    if (bias)
      operands.push_back(n.reshape(bias, {x->type.dims.back()}));
    return n.emit(OpKind::LayerNorm, operands, {{"eps", eps}});
  }
  const int64_t last = x->type.rank() - 1;
  Value *mean = n.div(n.reduceSum(n.mul(x, x), {last}), static_cast<double>(x->type.dims.back()));
  Value *root = n.unary(OpKind::Sqrt, n.add(mean, eps));
  if (!root)
    return nullptr;
  Dims column = root->type.dims;
  column.push_back(1);
  return n.mul(n.div(x, n.reshape(root, column)), scale);
}

/// The first node output, and the outputs behind it absent.
Values skipNorm(NodeLowering &n, bool rms) {
  Value *sum = n.add(n.in(0), n.in(1));
  sum = plus(n, sum, optional(n, rms ? 3 : 4));
  Value *y = lastAxisNorm(n, sum, n.in(2), rms ? nullptr : optional(n, 3), rms, n.floatAttribute("epsilon", 1e-12f));
  return {y, nullptr, nullptr, sum};
}

/// [B, S, H·D] -> [B, H, S, D]
Value *heads(NodeLowering &n, Value *x, int64_t count) {
  if (!x)
    return nullptr;
  if (x->type.rank() != 3 || count < 1 || x->type.dims[2] % count != 0)
    return n.fail(print(x->type) + " is not [batch, sequence, " + std::to_string(count) + " heads]");
  return n.transpose(n.reshape(x, {x->type.dims[0], x->type.dims[1], count, x->type.dims[2] / count}), {0, 2, 1, 3});
}

struct Attention {
  Value *q, *k, *v;       // [B, H, S, D]
  Value *bias = nullptr;  // added to the scores
  bool causal = false;
  double scale = 0, softcap = 0; // 0: 1 / √D; none
  double masked = -10000;        // what hides a key
};

/// softmax(q kᵀ scale + bias) v as [B, S, H·D]
Value *attend(NodeLowering &n, const Attention &a) {
  if (!a.q || !a.k || !a.v)
    return nullptr;
  const Dims q = a.q->type.dims;
  const int64_t keys = a.k->type.dims[2], groups = a.k->type.dims[1] ? q[1] / a.k->type.dims[1] : 0;
  auto repeated = [&](Value *x) -> Value * {
    if (groups == 1)
      return x;
    Dims one = x->type.dims, joined = one;
    one.insert(one.begin() + 2, 1);
    Dims many = one;
    many[2] = groups;
    joined[1] *= groups;
    return n.reshape(n.broadcast(n.reshape(x, one), many), joined);
  };
  if (groups < 1 || groups * a.k->type.dims[1] != q[1])
    return n.fail("query heads are no groups of key heads");
  const double scale = a.scale == 0 ? 1 / std::sqrt(static_cast<double>(q[3])) : a.scale;
  Value *scores = n.mul(n.matmul(a.q, n.transpose(repeated(a.k), {0, 1, 3, 2})), scale);
  if (a.softcap > 0)
    scores = n.mul(n.unary(OpKind::Tanh, n.div(scores, a.softcap)), a.softcap);
  scores = plus(n, scores, a.bias);
  if (a.causal && scores) {
    Value *i = n.reshape(n.iota(DType::i64, q[2]), {q[2], 1}), *j = n.reshape(n.iota(DType::i64, keys), {1, keys});
    Value *allowed = n.compare(j, n.add(i, static_cast<double>(keys - q[2])), "le");
    scores = n.select(allowed, scores, n.scalar(scores->type.dtype, -std::numeric_limits<double>::infinity()));
  }
  Value *y = n.matmul(n.emit(OpKind::Softmax, {scores}, {{"safe", int64_t(1)}}), repeated(a.v));
  return y ? n.reshape(n.transpose(y, {0, 2, 1, 3}), {q[0], q[2], q[1] * a.v->type.dims[3]}) : nullptr;
}

/// A padding mask, 1 where a key counts: [B, keys] or [B, queries, keys].
Value *maskBias(NodeLowering &n, Value *mask, const Dims &q, int64_t keys, double masked) {
  if (!mask)
    return nullptr;
  Dims shape;
  if (mask->type.dims == Dims{q[0], keys})
    shape = {q[0], 1, 1, keys};
  else if (mask->type.dims == Dims{q[0], q[2], keys})
    shape = {q[0], 1, q[2], keys};
  else
    return n.fail("a mask of " + print(mask->type) + " is not supported; [batch, keys] and [batch, queries, keys] are");
  Value *hidden = n.compare(n.reshape(mask, shape), n.scalar(mask->type.dtype, 0), "eq");
  return n.select(hidden, n.scalar(DType::f32, masked), n.scalar(DType::f32, 0));
}

bool refuseOperands(NodeLowering &n, std::initializer_list<std::pair<int, const char *>> operands) {
  for (auto [i, what] : operands)
    if (n.has(i)) {
      n.fail(std::string(what) + " is not supported", "train from the export without a cache");
      return true;
    }
  return false;
}

} // namespace

Values lowerBiasGelu(NodeLowering &n) { return {gelu(n, n.add(n.in(0), n.in(1)), "none")}; }
Values lowerContribGelu(NodeLowering &n) { return {gelu(n, n.in(0), "none")}; }
Values lowerFastGelu(NodeLowering &n) { return {gelu(n, plus(n, n.in(0), optional(n, 1)), "tanh")}; }

// x sigmoid(alpha x)
Values lowerQuickGelu(NodeLowering &n) {
  Value *x = n.in(0);
  return {n.mul(x, n.unary(OpKind::Sigmoid, n.mul(x, n.floatAttribute("alpha", 1.702f))))};
}

// (a, b) = halves of x + bias: a gelu(b)
Values lowerBiasSplitGelu(NodeLowering &n) {
  Value *sum = n.add(n.in(0), n.in(1));
  if (!sum)
    return {nullptr};
  const int64_t last = sum->type.rank() - 1, half = sum->type.dims.back() / 2;
  return {n.mul(n.sliceAxis(sum, last, 0, half), gelu(n, n.sliceAxis(sum, last, half, half), "none"))};
}

Values lowerSkipLayerNormalization(NodeLowering &n) { return skipNorm(n, false); }
Values lowerSkipSimplifiedLayerNormalization(NodeLowering &n) { return skipNorm(n, true); }

Values lowerSimplifiedLayerNormalization(NodeLowering &n) {
  Value *x = n.in(0);
  if (x && n.intAttribute("axis", -1) != -1 && n.intAttribute("axis", -1) != x->type.rank() - 1)
    return {n.fail("axis must be the last")};
  return {lastAxisNorm(n, x, n.in(1), nullptr, true, n.floatAttribute("epsilon", 1e-5f))};
}

/// Word, position and segment embeddings, summed and normalized.
Values lowerEmbedLayerNormalization(NodeLowering &n) {
  Value *ids = n.in(0), *words = n.in(2), *positions = n.in(3);
  if (!ids || !words || !positions)
    return {nullptr};
  if (ids->type.rank() != 2)
    return {n.fail("ids must be [batch, sequence], are " + print(ids->type))};
  Value *sum = n.gather(words, ids, 0);
  Value *at = n.has(8) ? n.gather(positions, n.in(8), 0) : n.sliceAxis(positions, 0, 0, ids->type.dims[1]);
  sum = n.add(sum, at);
  if (n.has(1) && n.has(4))
    sum = n.add(sum, n.gather(n.in(4), n.in(1), 0));
  Value *y = lastAxisNorm(n, sum, n.in(5), n.in(6), false, n.floatAttribute("epsilon", 1e-12f));
  return {y, nullptr, sum};
}

// alpha a' b', with transA, transB and the batch dims before or behind the matrix
Values lowerFusedMatMul(NodeLowering &n) {
  if (n.intAttribute("transBatchA", 0) || n.intAttribute("transBatchB", 0))
    return {n.fail("transBatchA and transBatchB are not supported")};
  auto operand = [&](int i, const char *flag) -> Value * {
    Value *x = n.in(i);
    if (!x || !n.intAttribute(flag, 0) || x->type.rank() < 2)
      return x;
    std::vector<int64_t> permutation;
    for (int64_t axis = 0; axis < x->type.rank(); ++axis)
      permutation.push_back(axis);
    std::swap(permutation[permutation.size() - 1], permutation[permutation.size() - 2]);
    return n.transpose(x, permutation);
  };
  Value *product = n.matmul(operand(0, "transA"), operand(1, "transB"));
  const double alpha = n.floatAttribute("alpha", 1);
  return {alpha == 1 ? product : n.mul(product, alpha)};
}

static Value *fusedActivation(NodeLowering &n, Value *y) {
  const std::string name = n.stringAttribute("activation", "");
  if (name.empty() || !y)
    return y;
  if (name == "Relu")
    return n.unary(OpKind::Relu, y);
  if (name == "Tanh")
    return n.unary(OpKind::Tanh, y);
  if (name == "Sigmoid")
    return n.unary(OpKind::Sigmoid, y);
  if (name == "LeakyRelu")
    return n.select(n.compare(y, n.scalar(y->type.dtype, 0), "lt"), n.mul(y, n.floatAttribute("activation_alpha", 0.01f)), y);
  return n.fail("activation \"" + name + "\" is not supported");
}

Values lowerFusedGemm(NodeLowering &n) { return {fusedActivation(n, lowerGemm(n)[0])}; }

Values lowerFusedConv(NodeLowering &n) {
  Value *y = lowerConv(n)[0];
  if (n.has(3))
    y = n.add(y, n.in(3));
  return {fusedActivation(n, y)};
}

/// Group norm of NHWC data (channels_last=1) or NCHW, with SiLU behind it if asked.
Values lowerContribGroupNorm(NodeLowering &n) {
  Value *x = n.in(0), *gamma = n.in(1), *beta = n.in(2);
  if (!x || !gamma || !beta)
    return {nullptr};
  const int64_t groups = n.intAttribute("groups", 1), rank = x->type.rank();
  const bool last = n.intAttribute("channels_last", 1);
  if (rank < 3)
    return {n.fail("needs batch, channels and spatial axes, got " + print(x->type))};
  std::vector<int64_t> toFirst{0, rank - 1}, toLast{0};
  for (int64_t axis = 1; axis + 1 < rank; ++axis) {
    toFirst.push_back(axis);
    toLast.push_back(axis + 1);
  }
  toLast.push_back(1);
  if (last)
    x = n.transpose(x, toFirst);
  if (!x)
    return {nullptr};
  const int64_t channels = x->type.dims[1];
  if (groups < 1 || channels % groups != 0)
    return {n.fail(std::to_string(channels) + " channels are not " + std::to_string(groups) + " equal groups")};
  const int64_t inner = x->type.elements() / std::max<int64_t>(1, x->type.dims[0] * groups);
  Value *ones = n.filled({x->type.dtype, {inner}}, 1);
  Value *y = n.emit(OpKind::LayerNorm, {n.reshape(x, {x->type.dims[0], groups, inner}), ones},
                    {{"eps", n.floatAttribute("epsilon", 1e-5f)}});
  Dims perChannel(rank, 1);
  perChannel[1] = channels;
  y = n.add(n.mul(n.reshape(y, x->type.dims), n.reshape(gamma, perChannel)), n.reshape(beta, perChannel));
  if (n.intAttribute("activation", 0))
    y = n.mul(y, n.unary(OpKind::Sigmoid, y));
  return {last ? n.transpose(y, toLast) : y};
}

/// Inputs in the order X, position_ids, cos, sin; positions [1] are a start, else [B, S].
Values lowerContribRotaryEmbedding(NodeLowering &n) {
  Value *x = n.in(0), *positions = n.in(1);
  if (!x || !positions)
    return {nullptr};
  Rotation rotation;
  rotation.cos = n.in(2);
  rotation.sin = n.in(3);
  if (!rotation.cos || !rotation.sin)
    return {nullptr};
  rotation.interleaved = n.intAttribute("interleaved", 0);
  const int64_t scaled = n.intAttribute("rotary_embedding_dim", 0);
  rotation.dims = scaled ? scaled : 2 * rotation.cos->type.dims.back();
  const bool packed = x->type.rank() == 3;
  int64_t count = n.intAttribute("num_heads", 0);
  if (packed && count == 0)
    count = x->type.dims[2] / std::max<int64_t>(1, rotation.dims);
  rotation.x = packed ? heads(n, x, count) : x;
  if (!rotation.x)
    return {nullptr};
  const int64_t length = rotation.x->type.dims[2], batch = rotation.x->type.dims[0];
  rotation.positions = positions;
  if (positions->type.elements() == 1)
    rotation.positions =
        n.broadcast(n.add(n.reshape(n.iota(positions->type.dtype, length), {1, length}), n.reshape(positions, {1, 1})),
                    {batch, length});
  Value *y = rotate(n, rotation);
  return {packed && y ? n.reshape(n.transpose(y, {0, 2, 1, 3}), x->type.dims) : y};
}

/// One product for query, key and value, then attention.
Values lowerContribAttention(NodeLowering &n) {
  Value *x = n.in(0), *weights = n.in(1);
  if (!x || !weights || refuseOperands(n, {{4, "a cache"}, {6, "past_sequence_length"}}))
    return {nullptr};
  const int64_t count = n.intAttribute("num_heads", 0);
  std::vector<int64_t> sizes = n.intsAttribute("qkv_hidden_sizes");
  if (sizes.empty())
    sizes.assign(3, weights->type.dims.back() / 3);
  if (sizes.size() != 3 || sizes[0] + sizes[1] + sizes[2] != weights->type.dims.back())
    return {n.fail("qkv_hidden_sizes do not fit " + print(weights->type))};
  Value *all = plus(n, n.matmul(x, weights), optional(n, 2));
  if (!all)
    return {nullptr};
  Attention a;
  a.q = heads(n, n.sliceAxis(all, 2, 0, sizes[0]), count);
  a.k = heads(n, n.sliceAxis(all, 2, sizes[0], sizes[1]), count);
  a.v = heads(n, n.sliceAxis(all, 2, sizes[0] + sizes[1], sizes[2]), count);
  a.causal = n.intAttribute("unidirectional", 0);
  a.scale = n.floatAttribute("scale", 0);
  a.masked = n.floatAttribute("mask_filter_value", -10000);
  if (!a.q || !a.k)
    return {nullptr};
  a.bias = maskBias(n, optional(n, 3), a.q->type.dims, a.k->type.dims[2], a.masked);
  if (n.has(5))
    a.bias = a.bias ? n.add(a.bias, n.in(5)) : n.in(5);
  return {n.failed() ? nullptr : attend(n, a)};
}

Values lowerMultiHeadAttention(NodeLowering &n) {
  Value *q = n.in(0);
  if (!q || refuseOperands(n, {{6, "past_key"}, {7, "past_value"}}))
    return {nullptr};
  if (!n.has(1) || !n.has(2) || q->type.rank() != 3 || n.in(1)->type.rank() != 3)
    return {n.fail("packed query, key and value are not supported", "export them as three operands")};
  const int64_t count = n.intAttribute("num_heads", 0);
  Value *k = n.in(1), *v = n.in(2);
  if (n.has(3)) { // one bias for all three
    const int64_t qk = q->type.dims[2];
    q = n.add(q, n.sliceAxis(n.in(3), 0, 0, qk));
    k = n.add(k, n.sliceAxis(n.in(3), 0, qk, k->type.dims[2]));
    v = n.add(v, n.sliceAxis(n.in(3), 0, qk + k->type.dims[2], v->type.dims[2]));
  }
  Attention a;
  a.q = heads(n, q, count);
  a.k = heads(n, k, count);
  a.v = heads(n, v, count);
  a.causal = n.intAttribute("unidirectional", 0);
  a.scale = n.floatAttribute("scale", 0);
  a.masked = n.floatAttribute("mask_filter_value", -10000);
  if (!a.q || !a.k)
    return {nullptr};
  a.bias = maskBias(n, optional(n, 4), a.q->type.dims, a.k->type.dims[2], a.masked);
  if (n.has(5))
    a.bias = a.bias ? n.add(a.bias, n.in(5)) : n.in(5);
  return {n.failed() ? nullptr : attend(n, a)};
}

/// Causal, without a cache: every sequence is as long as the key operand.
Values lowerGroupQueryAttention(NodeLowering &n) {
  Value *q = n.in(0);
  if (!q)
    return {nullptr};
  for (int i : {3, 4})
    if (n.has(i) && n.in(i)->type.elements() != 0)
      return {n.fail("a cache is not supported", "bind the past length to 0 with --dim")};
  if (!n.has(1) || !n.has(2))
    return {n.fail("packed query, key and value are not supported", "export them as three operands")};
  if (n.intAttribute("local_window_size", -1) > 0)
    return {n.fail("local_window_size is not supported")};
  const int64_t kvHeads = n.intAttribute("kv_num_heads", 0);
  Attention a;
  a.q = heads(n, q, n.intAttribute("num_heads", 0));
  a.k = heads(n, n.in(1), kvHeads);
  a.v = heads(n, n.in(2), kvHeads);
  a.causal = true;
  a.scale = n.floatAttribute("scale", 0);
  a.softcap = n.floatAttribute("softcap", 0);
  if (n.intAttribute("do_rotary", 0)) {
    auto turned = [&](Value *x) {
      Rotation rotation;
      rotation.x = x;
      if (!x || !n.has(7) || !n.has(8))
        return n.fail("do_rotary needs cos_cache and sin_cache");
      rotation.cos = n.sliceAxis(n.in(7), 0, 0, x->type.dims[2]);
      rotation.sin = n.sliceAxis(n.in(8), 0, 0, x->type.dims[2]);
      rotation.interleaved = n.intAttribute("rotary_interleaved", 0);
      rotation.dims = 2 * n.in(7)->type.dims.back();
      return rotate(n, rotation);
    };
    a.q = turned(a.q);
    a.k = turned(a.k);
  }
  Value *presentKey = a.k, *presentValue = a.v;
  return {attend(n, a), presentKey, presentValue};
}

} // namespace zerocc
