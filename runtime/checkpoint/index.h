#pragma once

#include "compiler/support/dtype.h"
#include "compiler/support/expected.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace zerocc {

constexpr const char *kIndexName = "checkpoint.json";
constexpr int64_t kChecksumBlockBytes = int64_t(1) << 20;

/// One rank's safetensors file. `checksums`: XXH3-64 of each block of kChecksumBlockBytes, header included, so that who
/// reads a part checks that part.
struct CheckpointFile {
  std::string name;
  int64_t bytes = 0;
  std::vector<uint64_t> checksums;
};

/// Elements [begin, end) of a tensor, row-major, from byte `offset` of a file on.
struct CheckpointPiece {
  int64_t file = 0, offset = 0, begin = 0, end = 0;
};

/// STATE/PARAMETER ("parameter/h.0.weight", "moment1/h.0.weight"), "buffer/NAME" or "scalars". Knows nothing of buckets,
/// parts and padding: any plan of the model finds in it what its own ranks need.
struct CheckpointTensor {
  std::string name;
  DType dtype = DType::f32;
  std::vector<int64_t> dims;
  std::vector<CheckpointPiece> pieces; // ascending; together they are the tensor, each element once
};

/// Where the data stand. `samples` were taken so far, whatever the global batch was.
struct DataPosition {
  int64_t samples = 0, samplesPerStep = 0;
  uint64_t seed = 0;
  bool shuffle = false;
  std::string fingerprint; // of the data, hex
  std::string pipeToken;   // what a pipe: has to be told to go on; empty otherwise
};

/// What the evaluations so far have shown.
struct EvalRecord {
  std::optional<double> bestLoss;
  int64_t withoutImprovement = 0; // evaluations since the best one
};

/// What checkpoint.json holds: the head of a checkpoint, and where each logical range lies.
struct CheckpointIndex {
  int64_t step = 0;
  std::string modelFile, modelFingerprint, planFingerprint, numericsKey, optimizer, precision;
  int64_t shard = 1, replicate = 1;
  DataPosition data;
  EvalRecord eval;
  std::vector<std::string> scalars; // names of the elements of tensor "scalars"
  std::vector<CheckpointFile> files;
  std::vector<CheckpointTensor> tensors; // ascending by name

  const CheckpointTensor *find(std::string_view name) const;
};

/// The text of checkpoint.json: a JSON object {"checksum", "checkpoint"}; the checksum is XXH3-128 of all bytes behind
/// its own line.
std::string writeIndex(const CheckpointIndex &index);

/// Reads such a text, which is not trusted: every file, piece and dim is checked, so that what is returned can be
/// followed without further checks. `name` stands in messages.
Expected<CheckpointIndex> parseIndex(std::string_view text, const std::string &name);

/// The same without looking at the checksum: for the fuzzer.
Expected<CheckpointIndex> parseIndexBody(std::string_view json, const std::string &name);

uint64_t blockChecksum(const void *bytes, int64_t count);

/// A name as it stands in an index: invalid UTF-8 is replaced.
std::string indexName(const std::string &name);

/// "000007af…", 16 digits.
std::string hex16(uint64_t value);

} // namespace zerocc
