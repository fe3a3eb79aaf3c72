#pragma once

#include "runtime/plan/plan.pb.h"

#include <string>
#include <vector>

namespace zerocc {

/// The plan of a text module with a `forward` segment that yields `logits`, by the whole ladder.
/// Settings are those of text tests ("stage=3"), or `inference` for an inference plan. Aborts the test when the ladder refuses.
plan::Plan planOfText(const std::string &text, const std::vector<std::string> &settings);

/// A text module with a tied embedding, layer norms, biases and matrix products: buckets of all kinds, with padding.
std::string modelText(int layers, int width, int vocabulary);

/// "stage=3 shard=2" as a list.
std::vector<std::string> splitSettings(const std::string &settings);

} // namespace zerocc
