#pragma once

#include "tools/run_inference.h"

namespace zerocc {

/// `--sample TEXT`: the text goes on, token by token, on stdout. TEXT is the bytes of a model that was trained on
/// text:FILE, or tokens:12,7,… for any other vocabulary.
///
/// The plan has a fixed sequence of T tokens. While there are fewer, the rest is filled up behind them, and the logits
/// are read at the last one; so the model must not look ahead, which is tried with two fillings before anything is
/// printed: logits that differ in one bit refuse the model. When there are more, the last T are seen.
///
/// Temperature 0: the token with the highest logit (the lowest of equals). Otherwise one of the `topK` highest (0: of
/// all) by softmax(logits / temperature), drawn by Philox from (seed, number of the token): the same on every machine
/// that computes the same logits.
Status runSample(const plan::Plan &plan, const InferenceRun &run);

/// The next token of one row of logits; `uniform` in [0, 1). Not finite logits: -1.
int64_t chooseToken(const std::vector<float> &logits, double temperature, int64_t topK, double uniform);

} // namespace zerocc
