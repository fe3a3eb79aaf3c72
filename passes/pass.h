#pragma once

#include "compiler/ir/module.h"

#include <map>
#include <string>
#include <vector>

namespace zerocc {

/// What a pass says of its work: whether it changed the module, and named counters ("fetches",
/// "fetchedBytes").
struct PassReport {
  bool changed = false;
  std::map<std::string, int64_t> counters;
  std::vector<std::string> notes; // repairs and choices the user is told of
};

/// Every option that a pass may look at. Names are those of the command line (`bucketBytes` is --bucket-bytes
/// is bucket-bytes= in a text test).
struct Decisions {
  // mesh and step
  int64_t shard = 1;      // ranks on the shard axis
  int64_t replicate = 1;  // ranks on the replicate axis
  int64_t microSteps = 1; // --grad-accumulation
  int64_t microBatch = 1; // --micro-batch
  // ZeRO: a stage is a preset of the three fields of each bucket (fields.h)
  int64_t stage = 0;
  std::string reduce = "auto"; // auto | boundary | micro-step: where gradients are reduced
  int64_t bucketBytes = 0;     // gathered bytes; 0: min(32 MiB, parameters / 8)
  int64_t persistenceBytes =
      -1; // parameters up to this size stay whole at stage 3; -1: parameters / 512, at most 100 KiB
  int64_t prefetchDistance = 1; // buckets fetched ahead
  int64_t memoryBudget = 0;     // bytes per rank, 0: none
  bool keep = false;            // stage 3: keep parameters between forward and backward
  // inference plans
  std::vector<std::string> outputs; // --outputs: of the graph, to keep; empty: all
  // loss and optimizer
  std::string loss; // cross-entropy:LOGITS[,LABELS] | mse:OUTPUT[,TARGET] | output:NAME | empty: the model's
  double labelSmoothing = 0;
  int64_t ignoreIndex = -100;
  std::string optimizer = "adamw"; // a name of runtime/plan/optimizers.h
  bool momentum = true;            // sgd: keep a momentum buffer
  bool clipping = false;
  std::string precision = "f32"; // of products: f32 | bf16 | f16
};

/// A graph's result "buffer:NAME" is what the buffer NAME holds after a micro-step; build_step writes it
/// there.
inline bool isBufferResult(llvm::StringRef name) { return name.startswith("buffer:"); }

using PassFunction = Expected<PassReport> (*)(Module &module, const Decisions &decisions);

} // namespace zerocc
