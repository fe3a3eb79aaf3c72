#pragma once

#include "runtime/training/inference.h"

namespace zerocc {

struct InferenceFlags {
  std::vector<std::string> outputs; // --output FILE.npy or NAME=FILE.npy
  std::string sample;               // --sample TEXT
  int64_t sampleTokens = 100, topK = 0;
  double temperature = 0;
};

struct InferenceRun {
  InferenceFlags flags;
  std::vector<std::string> data; // --data
  uint64_t seed = 0;
  int pipeSeconds = 30; // a frame of a pipe: may take
  int64_t steps = 0; // --steps: rounds of one micro-batch a rank; 0: all samples once
  InitialValues values;
  RankGroupOptions group;
};

/// zero-run on an inference plan: outputs of all samples into files, or a text that goes on.
Status runInference(const plan::Plan &plan, const InferenceRun &run);

} // namespace zerocc
