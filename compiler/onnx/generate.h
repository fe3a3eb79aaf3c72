#pragma once

#include "compiler/support/expected.h"

#include <cstdint>
#include <string>

namespace zerocc {

/// A decoder like GPT-2 and GPT-3: learned positions, a norm before attention and before the MLP of each
/// layer, gelu (tanh), no dropout, the output layer tied to the token table. Input "input_ids" [batch,
/// sequence], output "logits".
struct GptShape {
  int64_t layers = 12, hidden = 768, heads = 12, vocab = 50257, sequence = 1024;
};

/// Linear layers with relu between them. Input "x" [batch, inputs], output "y" [batch, outputs].
struct MlpShape {
  int64_t layers = 4, hidden = 256, inputs = 256, outputs = 256;
};

/// An ONNX file (opset 17) of a model that has a shape but no weights. The parameters are external data in a
/// file that does not exist, and the model is marked weightless, so that importing does not ask for it.
struct GeneratedModel {
  std::string bytes;
  int64_t nodes = 0;
  int64_t parameterElements = 0;
};

/// `weightsFile`: where the parameters would lie, relative to the model. Errors list every number that does
/// not fit.
Expected<GeneratedModel> generateGpt(const GptShape &shape, const std::string &weightsFile);
Expected<GeneratedModel> generateMlp(const MlpShape &shape, const std::string &weightsFile);

} // namespace zerocc
