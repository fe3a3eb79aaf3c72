#pragma once

#include "compiler/support/dtype.h"
#include "compiler/support/expected.h"
#include "runtime/data/array.h"
#include "runtime/data/mixture.h"
#include "runtime/data/pipe_stream.h"
#include "runtime/data/shards.h"

#include <string>
#include <vector>

namespace zerocc {

/// What one input of the plan is; the fields are those of plan.proto's Input.
struct InputSpec {
  std::string name;
  DType dtype = DType::i64;
  std::vector<int64_t> dims; // [micro-batch, a sample's dims …]
  std::string role = "data"; // tokens | labels | iota | ones | zeros | data
  std::string of;            // labels: the tokens input they are taken from
  int64_t shift = 0;         // labels: how many tokens ahead of it
  bool hasRange = false;     // integers: [low, high)
  int64_t low = 0, high = 0;
  bool hasIgnore = false; // labels: a value outside the range that is allowed
  int64_t ignoreIndex = -100;
};

/// How many samples one step takes, and who takes which: the global micro-batch m = k * ranks + rank of a
/// step holds samples (step * microSteps * ranks + m) * microBatch + 0 … microBatch - 1.
struct BatchShape {
  int64_t microSteps = 1, ranks = 1, microBatch = 1;
  int64_t samplesPerStep() const { return microSteps * ranks * microBatch; }
};
struct Batch {
  int64_t step = 0; // from 0
  int64_t k = 0;    // micro-step
  int64_t rank = 0;
  int64_t samplesAhead = 0; // of where the step begins: a resumed run may have taken more or fewer per step before
};

struct DataOptions {
  bool shuffle = false; // a new order in every epoch; else in the order of the files
  uint64_t seed = 0; // of the order, of a mixture's phases, and of inputs of role `random`
  PipeStart pipe;    // where a pipe: goes on
  /// Micro-batches of which some may be asked for while others wait (pipe: keeps them); 0: those of a step.
  int64_t window = 0;
};

/// What was read, for run.json.
struct SourceDigest {
  std::string input, source; // source: as given
  int64_t files = 0, bytes = 0;
  uint64_t digest = 0; // ShardedArray::digest
};

/// The data of all inputs of a plan. One object serves all ranks of a process; `fill` may be called from
/// several threads. Files are mapped, and only the samples asked for are read.
///
/// A stream of T tokens holds (T - shift) / L samples of L tokens: sample i is tokens [i L, i L + L), its
/// labels are [i L + shift, i L + shift + L). An array of L + shift columns is such samples one by one. A run
/// longer than the data begins again: that is a new epoch. In a mixture each source has epochs of its own.
class DataSet {
public:
  static Expected<DataSet> open(const std::vector<std::string> &sources, const std::vector<InputSpec> &inputs,
                                const BatchShape &shape, const DataOptions &options = {});

  /// Writes the whole input `input` (index) of one micro-batch to `target`, row-major in the input's dtype.
  /// Allocates nothing but for an error, which names source, position and value.
  Status fill(const Batch &batch, int input, void *target) const;

  /// Of one epoch; 0 when every input is generated, and for mixtures, which have no end.
  int64_t samples() const;
  /// One line an input: what it gets, from where, how much.
  std::vector<std::string> describe() const;
  /// What a pipe: has to be told to go on behind so many samples; empty for all other data.
  Expected<std::string> resumeToken(int64_t samples) const;
  /// A pipe: begins again with its first frame; nothing for all other data.
  Status beginAgain() const;
  std::vector<SourceDigest> digests() const;
  /// Equal for equal data, order and split, whatever the files are called; of bytes what `ShardedArray::digest` takes.
  uint64_t fingerprint() const;

private:
  /// One source of samples. Sample i begins at element `first + i * stride` of the array.
  struct Part {
    std::shared_ptr<const ShardedArray> array;
    std::string source; // as given, for messages
    int64_t first = 0, stride = 0;
    int64_t samples = 0;
    bool stream = false; // positions are told as tokens, else as sample and element
  };
  /// Where an input's values come from.
  struct Binding {
    enum class Kind : uint8_t { iota, ones, zeros, random, samples, whole, frame } kind = Kind::zeros;
    std::vector<Part> parts; // several: a mixture
    std::string source;      // as given, for messages
    int64_t count = 0;       // elements of one sample in the input
    int64_t shift = 0;       // elements ahead of the input it is taken from
    /// Kind frame: which elements of a frame's payload. `rows` times `count` elements, `stride` apart.
    struct Field {
      ElementType type = ElementType::i64;
      int64_t offsetBytes = 0, rows = 0, stride = 0;
    } field;
  };
  friend class Binder;
  /// The part that a sample comes from, and its first element there.
  std::pair<int64_t, int64_t> elementOf(const Binding &binding, int64_t sample) const;
  Status fillElements(int input, int64_t part, int64_t element, int64_t count, void *target) const;
  Status fillFromFrame(int input, int64_t microBatch, void *target) const;
  Error rangeError(int input, int64_t part, int64_t element) const;
  /// "WHERE holds VALUE, input …": what a range error says from there on.
  Error valueError(int input, const std::string &where, ElementType type, int64_t value) const;
  std::string describePart(const Part &part) const;

  std::vector<InputSpec> inputs_;
  std::vector<Binding> bindings_;
  BatchShape shape_;
  DataOptions options_;
  Mixture mixture_;               // of the parts of each binding of samples
  std::vector<int64_t> samples_;  // of each part; none: every input is generated
  std::shared_ptr<PipeStream> pipe_; // or null
  std::vector<std::string> notes_;
};

} // namespace zerocc
