// Lowerings of attention and of what stands around it: rotary embeddings, caches, and the linear recurrences that take
// attention's place. All are compositions of products, masks and a softmax, so that their gradients follow by
// themselves.

#include "compiler/onnx/lowerings.h"
#include "compiler/onnx/structured.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>
#include <limits>

namespace zerocc {
namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

/// [B, S, H·D] -> [B, H, S, D]
Value *splitHeads(NodeLowering &n, Value *x, int64_t heads) {
  if (!x)
    return nullptr;
  if (x->type.rank() != 3 || heads < 1 || x->type.dims[2] % heads != 0)
    return n.fail(print(x->type) + " is not [batch, sequence, " + std::to_string(heads) + " heads]");
  const int64_t b = x->type.dims[0], s = x->type.dims[1];
  return n.transpose(n.reshape(x, {b, s, heads, x->type.dims[2] / heads}), {0, 2, 1, 3});
}

/// [B, H, S, D] -> [B, S, H·D]
Value *joinHeads(NodeLowering &n, Value *x) {
  if (!x)
    return nullptr;
  const Dims dims = x->type.dims;
  return n.reshape(n.transpose(x, {0, 2, 1, 3}), {dims[0], dims[2], dims[1] * dims[3]});
}

/// Each head `times` in a row: [B, H, …] -> [B, H·times, …]
Value *repeatHeads(NodeLowering &n, Value *x, int64_t times) {
  if (!x || times == 1)
    return x;
  Dims one = x->type.dims, many, joined = x->type.dims;
  one.insert(one.begin() + 2, 1);
  many = one;
  many[2] = times;
  joined[1] *= times;
  return n.reshape(n.broadcast(n.reshape(x, one), many), joined);
}

/// A bias of 0 where `allowed`, -inf elsewhere.
Value *biasOf(NodeLowering &n, Value *allowed, DType dtype) {
  return n.select(allowed, n.scalar(dtype, 0), n.scalar(dtype, kMinusInfinity));
}

Value *both(NodeLowering &n, Value *a, Value *b) { return !a ? b : !b ? a : n.binary(OpKind::And, a, b); }

struct Scores {
  int64_t batch, queries, keys;
  DType dtype;
};

/// i + offset - j, how far key j lies before query i: [q, k], or [B, 1, q, k] for an offset per batch.
Value *distance(NodeLowering &n, const Scores &s, int64_t offset, Value *offsets) {
  Value *i = n.reshape(n.iota(DType::i64, s.queries), {s.queries, 1});
  Value *j = n.reshape(n.iota(DType::i64, s.keys), {1, s.keys});
  Value *ahead = offsets ? n.add(i, n.reshape(offsets, {s.batch, 1, 1, 1})) : n.add(i, static_cast<double>(offset));
  return n.sub(ahead, j);
}

/// The mask operand: padded to all keys, as a bias or (booleans) as what is allowed.
struct Mask {
  Value *bias = nullptr, *allowed = nullptr;
};
Mask maskOf(NodeLowering &n, Value *mask, const Scores &s) {
  if (!mask)
    return {};
  const bool isBool = mask->type.dtype == DType::boolean;
  const int64_t missing = mask->type.dims.empty() ? 0 : s.keys - mask->type.dims.back();
  if (missing > 0 && mask->type.dims.back() != 1) {
    Dims tail = mask->type.dims;
    tail.back() = missing;
    mask = n.concat({mask, n.filled({mask->type.dtype, tail}, isBool ? 0 : kMinusInfinity)}, mask->type.rank() - 1);
  }
  return isBool ? Mask{nullptr, mask} : Mask{n.cast(mask, s.dtype), nullptr};
}

} // namespace

// softmax(softcap(q kᵀ scale) + bias) v, heads of keys and values shared by groups of query heads. A query without any
// allowed key gives zeros. The causal mask is aligned with the last key in every version, as ONNX's own evaluator has it
// (the text of 23 and 24 left it open).
Values lowerAttention(NodeLowering &n) {
  Value *q = n.in(0), *k = n.in(1), *v = n.in(2);
  if (!q || !k || !v)
    return {nullptr};
  const bool isPacked = q->type.rank() == 3;
  int64_t qHeads = n.intAttribute("q_num_heads", 0), kvHeads = n.intAttribute("kv_num_heads", 0);
  if (isPacked) {
    q = splitHeads(n, q, qHeads);
    k = splitHeads(n, k, kvHeads);
    v = splitHeads(n, v, kvHeads);
  }
  if (!q || !k || !v)
    return {nullptr};
  if (q->type.rank() != 4 || k->type.rank() != 4 || v->type.rank() != 4)
    return {n.fail("query, key and value must be [B, S, H D] or [B, H, S, D], are " + print(q->type) + ", " +
                   print(k->type) + ", " + print(v->type))};
  auto operand = [&](int i) { return n.has(i) ? n.in(i) : nullptr; };
  Value *pastKey = operand(4), *pastValue = operand(5), *lengths = operand(6);
  if (!pastKey != !pastValue)
    return {n.fail("past_key and past_value come together")};
  const int64_t past = pastKey ? pastKey->type.dims[2] : 0;
  if (pastKey) {
    k = n.concat({pastKey, k}, 2);
    v = n.concat({pastValue, v}, 2);
  }
  if (!k || !v)
    return {nullptr};
  Value *presentKey = k, *presentValue = v;
  qHeads = q->type.dims[1];
  kvHeads = k->type.dims[1];
  if (kvHeads < 1 || qHeads % kvHeads != 0)
    return {n.fail(std::to_string(qHeads) + " query heads are no groups of " + std::to_string(kvHeads) + " key heads")};
  k = repeatHeads(n, k, qHeads / kvHeads);
  v = repeatHeads(n, v, qHeads / kvHeads);

  const Scores s{q->type.dims[0], q->type.dims[2], presentKey->type.dims[2], q->type.dtype};
  const double scale = n.hasAttribute("scale") ? n.floatAttribute("scale", 1)
                                               : 1 / std::sqrt(static_cast<double>(q->type.dims[3]));
  const double root = std::sqrt(scale), softcap = n.floatAttribute("softcap", 0);
  Value *scores = n.matmul(n.mul(q, root), n.transpose(n.mul(k, root), {0, 1, 3, 2}));
  const int64_t mode = n.intAttribute("qk_matmul_output_mode", 0);
  Value *exposed = scores; // mode 0
  if (softcap > 0)
    scores = n.mul(n.unary(OpKind::Tanh, n.div(scores, softcap)), softcap);

  Value *capped = scores;
  Mask mask = maskOf(n, operand(3), s);
  Value *allowed = mask.allowed;
  Value *offsets = lengths ? n.add(n.cast(lengths, DType::i64), -static_cast<double>(s.queries)) : nullptr;
  if (n.intAttribute("is_causal", 0)) {
    Value *behind = distance(n, s, past, pastKey ? nullptr : offsets);
    allowed = both(n, allowed, behind ? n.compare(behind, n.scalar(DType::i64, 0), "ge") : nullptr);
  }
  const int64_t left = n.intAttribute("left_window_size", -1), right = n.intAttribute("right_window_size", -1);
  if (left >= 0 || right >= 0) {
    Value *behind = distance(n, s, past, pastKey ? nullptr : offsets);
    if (behind && left >= 0)
      allowed = both(n, allowed, n.compare(behind, n.scalar(DType::i64, static_cast<double>(left)), "le"));
    if (behind && right >= 0)
      allowed = both(n, allowed, n.compare(behind, n.scalar(DType::i64, -static_cast<double>(right)), "ge"));
  }
  if (lengths) {
    Value *j = n.reshape(n.iota(DType::i64, s.keys), {1, 1, 1, s.keys});
    allowed = both(n, allowed, n.compare(j, n.reshape(n.cast(lengths, DType::i64), {s.batch, 1, 1, 1}), "lt"));
  }
  if (mask.bias)
    scores = n.add(scores, mask.bias);
  if (allowed)
    scores = n.add(scores, biasOf(n, allowed, s.dtype));
  Value *biased = scores;
  if (!scores)
    return {nullptr};
  std::optional<DType> precision = s.dtype;
  if (n.hasAttribute("softmax_precision"))
    precision = dtypeFromOnnx(static_cast<int32_t>(n.intAttribute("softmax_precision", 1)));
  if (!precision || !isFloat(*precision))
    return {n.fail("softmax_precision is not a float")};
  Value *weights = n.emit(OpKind::Softmax, {n.cast(scores, *precision)}, {{"safe", int64_t(1)}});
  weights = n.cast(weights, s.dtype);
  Value *y = n.matmul(weights, v);
  exposed = mode == 1 ? capped : mode == 2 ? biased : mode == 3 ? weights : exposed;
  return {isPacked ? joinHeads(n, y) : y, presentKey, presentValue, exposed};
}

// prob_mod(softmax(score_mod(q kᵀ scale))) v; the modifiers are bodies of the node. A query without any allowed key gives
// zeros, as in PyTorch's flex_attention (ONNX's function body would give NaN).
Bounds lowerFlexAttention(StructuredNode &s) {
  NodeLowering &n = s.n;
  Value *q = n.in(0), *k = n.in(1), *v = n.in(2);
  if (!q || !k || !v)
    return {};
  const DType dtype = q->type.dtype;
  const bool fits = q->type.rank() == 4 && k->type.rank() == 4 && v->type.rank() == 4 && k->type.dims[1] > 0 &&
                    q->type.dims[1] % k->type.dims[1] == 0 && v->type.dims[1] == k->type.dims[1];
  std::optional<DType> precision = dtype == DType::f64 ? DType::f64 : DType::f32;
  if (n.hasAttribute("softmax_precision"))
    precision = dtypeFromOnnx(static_cast<int32_t>(n.intAttribute("softmax_precision", 1)));
  if (!fits || !precision || !isFloat(*precision)) {
    n.fail(fits ? "softmax_precision is not a float"
                : "query, key and value must be [B, H, S, D] with groups of query heads, are " + print(q->type) + ", " +
                      print(k->type) + ", " + print(v->type));
    return {};
  }
  const int64_t times = q->type.dims[1] / k->type.dims[1];
  const double scale = n.hasAttribute("scale") ? n.floatAttribute("scale", 1)
                                               : 1 / std::sqrt(static_cast<double>(q->type.dims[3]));
  const double root = std::sqrt(scale);
  auto modified = [&](const char *name, Value *x) -> Value * {
    const FlatGraph *body = nullptr;
    for (const auto &[key, graph] : n.node.subgraphs)
      if (key == name)
        body = graph.get();
    if (!body || !x)
      return x;
    std::optional<Bounds> outputs = s.run(*body, BodyInput{x, ""}, -1);
    if (!outputs || outputs->empty() || !s.isWhole(body->outputs[0]))
      return nullptr;
    Value *y = (*outputs)[0].tensor;
    if (!y || !(y->type == x->type))
      return n.fail(std::string(name) + " makes " + (y ? print(y->type) : (*outputs)[0].kindName()) + " of " +
                    print(x->type));
    return y;
  };
  k = repeatHeads(n, k, times);
  v = repeatHeads(n, v, times);
  Value *scores = n.matmul(n.mul(q, root), n.transpose(n.mul(k, root), {0, 1, 3, 2}));
  Value *plain = n.cast(scores, *precision);
  scores = modified("score_mod", plain);
  if (scores != plain) // nothing else can mask a whole row
    s.note = "FlexAttention gives zeros to a query without an allowed key, as PyTorch's does; by the letter of ONNX it is NaN";
  if (!scores)
    return {};
  Value *weights = modified("prob_mod", n.emit(OpKind::Softmax, {scores}, {{"safe", int64_t(1)}}));
  return {n.cast(n.matmul(weights, n.cast(v, *precision)), dtype)};
}

// --- rotary embeddings

// (x1, x2) -> (cos x1 - sin x2, sin x1 + cos x2), for the first `rotary_embedding_dim` elements of each head
Value *rotate(NodeLowering &n, const Rotation &r) {
  Value *x = r.x; // [B, H, S, D]
  if (!x || !r.cos || !r.sin)
    return nullptr;
  const Dims dims = x->type.dims;
  const int64_t rotated = r.dims == 0 ? dims[3] : r.dims, half = rotated / 2;
  if (rotated % 2 != 0 || rotated > dims[3])
    return n.fail("cannot rotate " + std::to_string(rotated) + " elements of heads of " + std::to_string(dims[3]));
  // Caches [S, half] by position, or [B, S, half].
  auto angles = [&](Value *cache) -> Value * {
    if (r.positions)
      cache = n.gather(cache, r.positions, 0);
    if (!cache)
      return nullptr;
    if (cache->type.dims.back() != half || cache->type.rank() < 2)
      return n.fail("the caches " + print(cache->type) + " do not fit " + std::to_string(half) + " angles");
    Dims shape = cache->type.rank() == 2 ? Dims{1, 1, cache->type.dims[0], half}
                                         : Dims{cache->type.dims[0], 1, cache->type.dims[1], half};
    return n.reshape(cache, shape);
  };
  Value *cos = angles(r.cos), *sin = angles(r.sin);
  Value *turning = n.sliceAxis(x, 3, 0, rotated), *x1 = nullptr, *x2 = nullptr;
  if (r.interleaved) {
    Value *pairs = n.reshape(turning, {dims[0], dims[1], dims[2], half, 2});
    const Dims single = {dims[0], dims[1], dims[2], half};
    x1 = n.reshape(n.sliceAxis(pairs, 4, 0, 1), single);
    x2 = n.reshape(n.sliceAxis(pairs, 4, 1, 1), single);
  } else {
    x1 = n.sliceAxis(turning, 3, 0, half);
    x2 = n.sliceAxis(turning, 3, half, half);
  }
  Value *real = n.sub(n.mul(cos, x1), n.mul(sin, x2)), *imaginary = n.add(n.mul(sin, x1), n.mul(cos, x2));
  if (!real || !imaginary)
    return nullptr;
  Value *y = nullptr;
  if (r.interleaved) {
    const Dims pair = {dims[0], dims[1], dims[2], half, 1};
    y = n.reshape(n.concat({n.reshape(real, pair), n.reshape(imaginary, pair)}, 4),
                  {dims[0], dims[1], dims[2], rotated});
  } else {
    y = n.concat({real, imaginary}, 3);
  }
  return rotated == dims[3] ? y : n.concat({y, n.sliceAxis(x, 3, rotated, dims[3] - rotated)}, 3);
}

Values lowerRotaryEmbedding(NodeLowering &n) {
  Value *x = n.in(0);
  if (!x)
    return {nullptr};
  const bool isPacked = x->type.rank() == 3;
  Rotation rotation;
  rotation.x = isPacked ? splitHeads(n, x, n.intAttribute("num_heads", 0)) : x;
  rotation.cos = n.in(1);
  rotation.sin = n.in(2);
  rotation.positions = n.has(3) ? n.in(3) : nullptr;
  rotation.interleaved = n.intAttribute("interleaved", 0);
  rotation.dims = n.intAttribute("rotary_embedding_dim", 0);
  if (rotation.x && rotation.x->type.rank() != 4)
    return {n.fail("needs [B, S, H D] or [B, H, S, D], got " + print(x->type))};
  Value *y = rotate(n, rotation);
  return {isPacked ? joinHeads(n, y) : y};
}

// --- caches and recurrences

/// Writes the update behind each batch's write index along the axis (circular: around the end).
Values lowerTensorScatter(NodeLowering &n) {
  Value *cache = n.in(0), *update = n.in(1);
  if (!cache || !update)
    return {nullptr};
  std::optional<int64_t> axis = n.normalAxis(n.intAttribute("axis", -2), cache->type.rank());
  if (!axis)
    return {nullptr};
  const std::string mode = n.stringAttribute("mode", "linear");
  if (*axis == 0 || update->type.rank() != cache->type.rank() || (mode != "linear" && mode != "circular"))
    return {n.fail("update " + print(update->type) + " does not fit the cache " + print(cache->type))};
  const int64_t length = cache->type.dims[*axis], batch = cache->type.dims[0];
  // Element places: as a scatter over the flattened cache, the index along the axis from the batch.
  Value *position = nullptr;
  for (int64_t i = 0; i < cache->type.rank(); ++i) {
    Dims dims(cache->type.rank(), 1);
    dims[i] = update->type.dims[i];
    Value *component = n.reshape(n.iota(DType::i64, dims[i]), dims);
    if (i == *axis) {
      if (n.has(2)) {
        Dims perBatch(cache->type.rank(), 1);
        perBatch[0] = batch;
        component = n.add(component, n.reshape(n.cast(n.in(2), DType::i64), perBatch));
      }
      if (mode == "circular")
        component = n.binary(OpKind::Mod, component, static_cast<double>(length));
    }
    position = position ? n.add(n.mul(position, static_cast<double>(cache->type.dims[i])), component) : component;
  }
  const int64_t count = update->type.elements();
  Value *flat = n.emit(OpKind::Scatter,
                       {n.reshape(cache, {cache->type.elements()}), n.reshape(position, {count}),
                        n.reshape(update, {count})},
                       {{"reduction", std::string("none")}});
  return {n.reshape(flat, cache->type.dims)};
}

// a sigmoid(alpha a) b
Values lowerSwiGlu(NodeLowering &n) {
  Value *a = n.in(0), *b = n.in(1);
  if (!a || !b)
    return {nullptr};
  const double alpha = n.floatAttribute("alpha", 1);
  Value *gate = n.unary(OpKind::Sigmoid, alpha == 1 ? a : n.mul(a, alpha));
  return {n.mul(n.mul(a, gate), b)};
}

/// A depthwise convolution over the past's last steps and the input, and those steps' successors.
Values lowerCausalConvWithState(NodeLowering &n) {
  Value *x = n.in(0), *w = n.in(1);
  if (!x || !w)
    return {nullptr};
  if (x->type.rank() != 3 || w->type.rank() != 3)
    return {n.fail("needs [B, C, L] and [C, 1, K], got " + print(x->type) + " and " + print(w->type))};
  const int64_t channels = x->type.dims[1], width = w->type.dims[2];
  Value *past = n.has(3) ? n.in(3) : n.filled({x->type.dtype, {x->type.dims[0], channels, width - 1}}, 0);
  Value *padded = n.concat({past, x}, 2);
  using Ints = std::vector<int64_t>;
  Value *y = n.emit(OpKind::Conv, {padded, w},
                    {{"strides", Ints{1}}, {"low", Ints{0}}, {"high", Ints{0}}, {"dilations", Ints{1}}, {"groups", channels}});
  if (n.has(2))
    y = n.add(y, n.reshape(n.in(2), {1, channels, 1}));
  const std::string activation = n.stringAttribute("activation", "none");
  if (activation == "silu" || activation == "swish")
    y = n.mul(y, n.unary(OpKind::Sigmoid, y));
  else if (activation != "none")
    return {n.fail("activation is \"" + activation + "\"")};
  if (!padded)
    return {nullptr};
  return {y, n.sliceAxis(padded, 2, padded->type.dims[2] - (width - 1), width - 1)};
}

/// A state S per head, [d_k, d_v], step by step: S ← e^decay S; S ← S + k (β (v - Sᵀ k))ᵀ (or S + k vᵀ); y = Sᵀ q scale.
/// Unrolled over the sequence, whose length is known: each step is a few products.
Values lowerLinearAttention(NodeLowering &n) {
  const int64_t qHeads = n.intAttribute("q_num_heads", 0), kvHeads = n.intAttribute("kv_num_heads", 0);
  const std::string rule = n.stringAttribute("update_rule", "gated_delta");
  const bool gated = rule == "gated" || rule == "gated_delta", delta = rule == "delta" || rule == "gated_delta";
  if (!gated && !delta && rule != "linear")
    return {n.fail("update_rule is \"" + rule + "\"")};
  if (qHeads < 1 || kvHeads < 1 || qHeads % kvHeads != 0)
    return {n.fail(std::to_string(qHeads) + " query heads are no groups of " + std::to_string(kvHeads) + " key heads")};
  Value *query = n.in(0);
  if (!query)
    return {nullptr};
  const DType dtype = query->type.dtype;
  Value *q = n.cast(splitHeads(n, query, qHeads), DType::f32), *k = n.cast(splitHeads(n, n.in(1), kvHeads), DType::f32),
        *v = n.cast(splitHeads(n, n.in(2), kvHeads), DType::f32);
  if (!q || !k || !v)
    return {nullptr};
  const int64_t batch = q->type.dims[0], steps = q->type.dims[2], dk = k->type.dims[3], dv = v->type.dims[3];
  if (gated != n.has(4) || delta != n.has(5))
    return {n.fail("update_rule \"" + rule + "\" does not go with its operands decay and beta")};
  Value *decay = gated ? n.cast(splitHeads(n, n.in(4), kvHeads), DType::f32) : nullptr; // [B, H, T, 1 or d_k]
  Value *beta = nullptr;
  if (delta) {
    Value *given = n.in(5);
    beta = given ? n.cast(splitHeads(n, given, given->type.dims.back()), DType::f32) : nullptr; // [B, H or 1, T, 1]
  }
  if (n.failed())
    return {nullptr};
  const DType stateType = n.has(3) ? n.in(3)->type.dtype : dtype;
  Value *state = n.has(3) ? n.cast(n.in(3), DType::f32) : n.filled({DType::f32, {batch, kvHeads, dk, dv}}, 0);
  const double asked = n.floatAttribute("scale", 0);
  const double scale = asked == 0 ? 1 / std::sqrt(static_cast<double>(dk)) : asked;
  auto step = [&](Value *x, int64_t t) { return n.sliceAxis(x, 2, t, 1); }; // [B, H, 1, D]
  auto column = [&](Value *x) { return n.transpose(x, {0, 1, 3, 2}); };
  Values rows;
  for (int64_t t = 0; t < steps; ++t) {
    Value *key = step(k, t), *value = step(v, t);
    if (gated)
      state = n.mul(state, column(n.unary(OpKind::Exp, step(decay, t))));
    if (delta)
      value = n.mul(step(beta, t), n.sub(value, n.matmul(key, state)));
    state = n.add(state, n.mul(column(key), value));
    rows.push_back(n.mul(n.matmul(step(q, t), repeatHeads(n, state, qHeads / kvHeads)), scale));
    if (n.failed())
      return {nullptr};
  }
  Value *y = rows.empty() ? n.filled({DType::f32, {batch, qHeads, 0, dv}}, 0) : n.concat(rows, 2);
  return {n.cast(joinHeads(n, y), dtype), n.cast(state, stateType)};
}

} // namespace zerocc
