// Lowerings of the losses over classes: scores or log-probabilities [N, C, d…], labels [N, d…], class axis 1.
//
// The common case, no class weights and mean or sum, becomes the fused cross_entropy, whose sum and count `attach_loss`
// knows. Everything else is written out: a masked choice of one log-probability per label.

#include "compiler/onnx/lowerings.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>

namespace zerocc {
namespace {

/// What the two losses have in common, checked.
struct ClassLoss {
  Value *scores = nullptr, *labels = nullptr, *weights = nullptr;
  int64_t classes = 0, rows = 0;
  std::string reduction;
  bool ignores = false;
  int64_t ignoreIndex = -100;
};

std::optional<ClassLoss> classLoss(NodeLowering &n) {
  ClassLoss loss;
  loss.scores = n.in(0);
  loss.labels = n.in(1);
  loss.weights = n.has(2) ? n.in(2) : nullptr;
  if (!loss.scores || !loss.labels)
    return std::nullopt;
  const TensorType &scores = loss.scores->type, &labels = loss.labels->type;
  if (scores.rank() < 2) {
    n.fail("scores must be [N, C, …], are " + print(scores));
    return std::nullopt;
  }
  Dims expected = scores.dims;
  expected.erase(expected.begin() + 1);
  if (labels.dims != expected) {
    n.fail("labels " + print(labels) + " do not fit scores " + print(scores));
    return std::nullopt;
  }
  loss.classes = scores.dims[1];
  loss.rows = labels.elements();
  if (loss.weights && loss.weights->type.elements() != loss.classes) {
    n.fail("class weights " + print(loss.weights->type) + " do not fit " + std::to_string(loss.classes) + " classes");
    return std::nullopt;
  }
  loss.reduction = n.stringAttribute("reduction", "mean");
  if (loss.reduction != "mean" && loss.reduction != "sum" && loss.reduction != "none") {
    n.fail("reduction is \"" + loss.reduction + "\"");
    return std::nullopt;
  }
  loss.ignores = n.hasAttribute("ignore_index");
  loss.ignoreIndex = n.intAttribute("ignore_index", -100);
  return loss;
}

/// [N, C, d…] as rows [R, C].
Value *classRows(NodeLowering &n, Value *x, const ClassLoss &loss) {
  Value *last = n.moveLast(x, 1);
  return last ? n.reshape(last, {loss.rows, loss.classes}) : nullptr;
}

/// The fused loss of logits in rows.
Value *fused(NodeLowering &n, const ClassLoss &loss, Value *logits) {
  Attributes attributes{{"ignore_index", loss.ignoreIndex}, {"label_smoothing", 0.0}};
  Node *node = n.make(OpKind::CrossEntropy, {logits, n.reshape(loss.labels, {loss.rows})}, attributes);
  if (!node)
    return nullptr;
  Value *result = loss.reduction == "sum" ? node->result(0) : n.div(node->result(0), node->result(1));
  return n.cast(result, loss.scores->type.dtype);
}

// none: -w_label logp_label, 0 where ignored; sum: Σ of these; mean: Σ / Σ w_label over what is not ignored
Value *writtenOut(NodeLowering &n, const ClassLoss &loss, Value *logRows) {
  Value *labels = n.cast(n.reshape(loss.labels, {loss.rows}), DType::i64);
  if (!labels || !logRows)
    return nullptr;
  Value *ignored =
      loss.ignores ? n.compare(labels, n.scalar(DType::i64, static_cast<double>(loss.ignoreIndex)), "eq") : nullptr;
  Value *safe = ignored ? n.select(ignored, n.scalar(DType::i64, 0), labels) : labels;
  Value *starts = n.mul(n.iota(DType::i64, loss.rows), static_cast<double>(loss.classes));
  Value *chosen = n.gather(n.reshape(logRows, {loss.rows * loss.classes}), n.add(starts, safe), 0);
  Value *weight = loss.weights ? n.gather(n.reshape(loss.weights, {loss.classes}), safe, 0)
                               : n.filled({loss.scores->type.dtype, {loss.rows}}, 1);
  if (ignored)
    weight = n.select(ignored, n.scalar(loss.scores->type.dtype, 0), weight);
  Value *each = n.unary(OpKind::Neg, n.mul(weight, chosen));
  if (loss.reduction == "none")
    return n.reshape(each, loss.labels->type.dims);
  Value *sum = n.reduceSum(each, {0});
  return loss.reduction == "sum" ? sum : n.div(sum, n.reduceSum(weight, {0}));
}

} // namespace

Values lowerSoftmaxCrossEntropyLoss(NodeLowering &n) {
  std::optional<ClassLoss> loss = classLoss(n);
  if (!loss)
    return {nullptr};
  Value *rows = classRows(n, loss->scores, *loss);
  const bool isCommon = !loss->weights && loss->reduction != "none";
  Values results{isCommon ? fused(n, *loss, rows) : writtenOut(n, *loss, n.unary(OpKind::LogSoftmax, rows))};
  if (n.wantsOutput(1))
    results.push_back(moveBack(n, n.unary(OpKind::LogSoftmax, n.moveLast(loss->scores, 1)), 1));
  return results;
}

/// Behind a LogSoftmax over the classes, the cross-entropy of that one's operand.
Values lowerNegativeLogLikelihoodLoss(NodeLowering &n) {
  std::optional<ClassLoss> loss = classLoss(n);
  if (!loss)
    return {nullptr};
  Value *last = n.moveLast(loss->scores, 1), *source = last;
  while (source && !source->isGlobal() && source->definition->op == OpKind::Reshape &&
         source->definition->input(0)->type.rank() > 0 &&
         source->definition->input(0)->type.dims.back() == last->type.dims.back())
    source = source->definition->input(0);
  const bool isLogSoftmax = source && !source->isGlobal() && source->definition->op == OpKind::LogSoftmax;
  if (isLogSoftmax && !loss->weights && loss->reduction != "none")
    return {fused(n, *loss, n.reshape(source->definition->input(0), {loss->rows, loss->classes}))};
  return {writtenOut(n, *loss, classRows(n, loss->scores, *loss))};
}

} // namespace zerocc
