#include "runtime/data/data_set.h"

#include "runtime/data/npy.h"
#include "runtime/data/shuffle.h"
#include "runtime/data/source.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <limits>
#include <optional>

// How sources find their inputs (class Binder):
//   1. NAME=SOURCE goes to NAME.
//   2. An array of a .npz goes to the input of its name, unless 1 gave that one something.
//   3. A stream of tokens goes to the only tokens input left; another .npy to the only input left that needs
//   one.
//   4. Labels without a source are taken from the source of the tokens input they are `of`, `shift` ahead.
//   5. iota, ones, zeros, and inputs without elements, are made.
// Whatever is left, or fits twice, is an error; all of them are reported together.

namespace zerocc {

static std::string typeText(const InputSpec &input) {
  return std::string(dtypeName(input.dtype)) + dimsText(input.dims);
}
static std::string quoted(const std::string &name) { return "\"" + name + "\""; }

static IntegerRange rangeOf(const InputSpec &input) {
  IntegerRange range;
  if (input.hasRange) {
    range.least = input.low;
    range.greatest = input.high - 1;
  }
  if (input.hasIgnore)
    range.ignored = input.ignoreIndex;
  return range;
}

/// Elements of one sample; nothing when the dims overflow.
static std::optional<int64_t> sampleElements(const InputSpec &input) {
  return countElements({input.dims.begin() + (input.dims.empty() ? 0 : 1), input.dims.end()});
}

class Binder {
public:
  Binder(const std::vector<InputSpec> &inputs, const BatchShape &shape) : inputs_(inputs), shape_(shape) {
    given_.resize(inputs.size());
  }

  Expected<DataSet> bind(const std::vector<std::string> &texts, const DataOptions &options) {
    checkInputs();
    if (findings_.empty())
      giveSources(texts);
    if (!findings_.empty())
      return Error(std::move(findings_));
    DataSet set;
    set.inputs_ = inputs_;
    set.shape_ = shape_;
    set.options_ = options;
    for (size_t i = 0; i < inputs_.size(); ++i)
      set.bindings_.push_back(makeBinding(i));
    if (findings_.empty())
      set.samples_ = agreedSamples(set.bindings_);
    if (!findings_.empty())
      return Error(std::move(findings_));
    set.notes_ = std::move(notes_);
    return set;
  }

private:
  using Binding = DataSet::Binding;
  struct Given {
    ArrayView array;
    IndexRange range;
    std::string source; // empty: nothing given
    bool named = false;
  };

  void fail(std::string message, std::string hint = "") {
    findings_.push_back({std::move(message), std::move(hint)});
  }
  void fail(const Error &error) {
    findings_.insert(findings_.end(), error.findings().begin(), error.findings().end());
  }
  bool hasSource(size_t input) const { return !given_[input].source.empty(); }

  void checkInputs() {
    constexpr int64_t kMost = 1 << 20; // of each: the product stays far below 63 bits
    for (int64_t figure : {shape_.microSteps, shape_.ranks, shape_.microBatch})
      if (figure < 1 || figure > kMost)
        fail("micro-steps, ranks and micro-batch must be 1 to " + std::to_string(kMost) + ", there is " +
             std::to_string(figure));
    for (const InputSpec &input : inputs_) {
      if (!countElements(input.dims))
        fail("input " + quoted(input.name) + " has impossible dims " + dimsText(input.dims));
      if (input.shift < 0 || input.shift > std::numeric_limits<int32_t>::max())
        fail("input " + quoted(input.name) + " has an impossible shift " + std::to_string(input.shift));
      if (input.hasRange && input.low >= input.high)
        fail("input " + quoted(input.name) + " allows no value: its range is empty");
      if (input.role != "tokens" && input.role != "labels" && input.role != "iota" && input.role != "ones" &&
          input.role != "zeros" && input.role != "data" && input.role != "random")
        fail("input " + quoted(input.name) + " has unknown role " + quoted(input.role));
    }
  }

  // --- which source for which input ---

  void giveSources(const std::vector<std::string> &texts) {
    std::vector<std::string> names;
    for (const InputSpec &input : inputs_)
      names.push_back(input.name);
    std::vector<SourceText> sources;
    std::vector<std::string> sourceTexts;
    for (const std::string &text : texts) {
      Expected<SourceText> source = parseSource(text, names);
      if (!source) {
        fail(source.error());
        continue;
      }
      sources.push_back(*source);
      sourceTexts.push_back(text);
    }
    // named sources, then archives, then the rest: what is said exactly leaves less to guess
    for (int round = 0; round < 3; ++round)
      for (size_t i = 0; i < sources.size(); ++i) {
        int its = !sources[i].input.empty() ? 0 : sources[i].kind == SourceText::Kind::npz ? 1 : 2;
        if (its != round)
          continue;
        Status status = round == 0   ? giveNamed(sources[i], sourceTexts[i])
                        : round == 1 ? giveArchive(sources[i], sourceTexts[i])
                                     : giveUnnamed(sources[i], sourceTexts[i]);
        if (!status)
          fail(status.error());
      }
  }

  Status give(size_t input, ArrayView array, const SourceText &source, const std::string &text) {
    Given &given = given_[input];
    if (hasSource(input)) // an archive's array beside a named source does not come here
      return Error("input " + quoted(inputs_[input].name) + " has two sources: " + given.source + " and " +
                       text,
                   "give one of them");
    if (array.dims.empty())
      return Error(text + ": is a single number, not an array");
    Expected<IndexRange> range = resolveRange(source.range, array.dims[0]);
    if (!range)
      return range.error().in(text);
    given = {std::move(array), *range, text, !source.input.empty()};
    return success();
  }

  Expected<ArrayView> readArray(const SourceText &source) {
    switch (source.kind) {
    case SourceText::Kind::text:
    case SourceText::Kind::bin:
      return readTokens(source);
    case SourceText::Kind::npy:
      return readNpy(source.path);
    case SourceText::Kind::npz:
      break;
    }
    ZEROCC_ASSIGN(NpzFile archive, NpzFile::open(source.path));
    std::vector<std::string> names = archive.names();
    if (archive.has(source.input))
      return archive.read(source.input);
    if (names.size() == 1)
      return archive.read(names[0]);
    return Error(source.path + ": has no array " + quoted(source.input), "its arrays are: " + list(names));
  }

  Status giveNamed(const SourceText &source, const std::string &text) {
    ZEROCC_ASSIGN(ArrayView array, readArray(source));
    return give(indexOf(source.input), std::move(array), source, text);
  }

  Status giveArchive(const SourceText &source, const std::string &text) {
    ZEROCC_ASSIGN(NpzFile archive, NpzFile::open(source.path));
    std::vector<std::string> unused, inputNames;
    bool any = false;
    for (const InputSpec &input : inputs_)
      inputNames.push_back(input.name);
    for (const std::string &name : archive.names()) {
      auto at = std::find(inputNames.begin(), inputNames.end(), name);
      if (at == inputNames.end()) {
        unused.push_back(name);
        continue;
      }
      any = true;
      size_t input = at - inputNames.begin();
      if (given_[input].named)
        continue;
      ZEROCC_ASSIGN(ArrayView array, archive.read(name));
      ZEROCC_TRY(give(input, std::move(array), source, text));
    }
    if (!any)
      return Error(text + ": no array has the name of an input; the arrays are: " + list(unused),
                   "the inputs are: " + list(inputNames) + "; bind by name: --data NAME=" + text);
    for (const std::string &name : unused)
      notes_.push_back("not used: array " + quoted(name) + " of " + text);
    return success();
  }

  Status giveUnnamed(const SourceText &source, const std::string &text) {
    ZEROCC_ASSIGN(ArrayView array, readArray(source));
    bool mayBeStream = array.dims.size() == 1 && !isFloat(array.type);
    std::vector<size_t> fits;
    if (mayBeStream || source.kind == SourceText::Kind::npy)
      fits = withoutSource([](const InputSpec &input) { return input.role == "tokens"; });
    if (fits.empty() && source.kind == SourceText::Kind::npy)
      fits = withoutSource([](const InputSpec &input) {
        return input.role == "data" || (input.role == "labels" && input.of.empty());
      });
    if (fits.size() == 1)
      return give(fits[0], std::move(array), source, text);
    std::vector<std::string> names;
    for (size_t input : fits)
      names.push_back(inputs_[input].name);
    if (fits.empty())
      return Error(text + ": no input is left to take this", "bind it by name: --data NAME=" + text);
    return Error(text + ": could go to any of the inputs " + list(names),
                 "say which: --data " + names[0] + "=" + text);
  }

  template <typename Predicate> std::vector<size_t> withoutSource(Predicate fits) const {
    std::vector<size_t> found;
    for (size_t i = 0; i < inputs_.size(); ++i)
      if (!hasSource(i) && fits(inputs_[i]))
        found.push_back(i);
    return found;
  }

  size_t indexOf(const std::string &name) const {
    for (size_t i = 0; i < inputs_.size(); ++i)
      if (inputs_[i].name == name)
        return i;
    return inputs_.size();
  }

  static std::string list(const std::vector<std::string> &names) {
    std::string text;
    for (const std::string &name : names)
      text += (text.empty() ? "" : ", ") + name;
    return text.empty() ? "none" : text;
  }

  // --- what an input gets of its source ---

  /// The tokens input whose source also gives the labels `input`, or inputs_.size().
  size_t takenFrom(size_t input) const {
    if (inputs_[input].role != "labels" || inputs_[input].of.empty() || hasSource(input))
      return inputs_.size();
    size_t of = indexOf(inputs_[input].of);
    return of < inputs_.size() && hasSource(of) ? of : inputs_.size();
  }

  /// How many elements behind a sample's own the labels taken from it need.
  int64_t lookAhead(size_t tokens) const {
    int64_t most = 0;
    for (size_t i = 0; i < inputs_.size(); ++i)
      if (takenFrom(i) == tokens)
        most = std::max(most, inputs_[i].shift);
    return most;
  }

  Binding makeBinding(size_t i) {
    const InputSpec &input = inputs_[i];
    if (hasSource(i))
      return fromSource(i, i, 0);
    if (size_t tokens = takenFrom(i); tokens < inputs_.size()) {
      if (*sampleElements(input) != *sampleElements(inputs_[tokens])) {
        fail("input " + quoted(input.name) + " (" + typeText(input) + ") cannot be taken from " +
             quoted(input.of) + " (" + typeText(inputs_[tokens]) + "), " + std::to_string(input.shift) +
             " ahead");
        return {};
      }
      return fromSource(i, tokens, input.shift);
    }
    Binding made;
    made.count = *countElements(input.dims);
    if (made.count == 0 || input.role == "zeros")
      made.kind = Binding::Kind::zeros;
    else if (input.role == "ones")
      made.kind = Binding::Kind::ones;
    else if (input.role == "iota")
      made.kind = Binding::Kind::iota;
    else if (input.role == "random" && input.dtype == DType::i64 && made.count == 3)
      made.kind = Binding::Kind::random;
    else
      failForMissing(input);
    return made;
  }

  void failForMissing(const InputSpec &input) {
    std::string what =
        "input " + quoted(input.name) + " (" + typeText(input) + ", " + input.role + ") has no data";
    if (input.role == "tokens")
      fail(what,
           "--data text:FILE (bytes as tokens), --data FILE.bin, or --data " + input.name + "=FILE.npy");
    else if (input.role == "labels" && !input.of.empty())
      fail(what, "give " + quoted(input.of) + " a source of tokens, and these are taken from it; or --data " +
                     input.name + "=FILE.npy");
    else
      fail(what, "--data " + input.name + "=FILE.npy, or an array of this name in --data FILE.npz");
  }

  /// `input` reads the source of input `from`, `shift` elements ahead.
  Binding fromSource(size_t i, size_t from, int64_t shift) {
    const InputSpec &input = inputs_[i];
    const Given &given = given_[from];
    const ArrayView &array = given.array;
    std::string who = given.source + ": input " + quoted(input.name) + " (" + typeText(input) + ")";
    Binding binding;
    binding.kind = Binding::Kind::samples;
    binding.array = array;
    binding.source = given.source;
    binding.shift = shift;
    if (!isConvertible(array.type, input.dtype)) {
      fail(who + " cannot be made from " + std::string(elementTypeName(array.type)) + dimsText(array.dims),
           isFloat(input.dtype) ? "store it with array.astype(numpy.float32)"
                                : "store it with array.astype(numpy.int64)");
      return {};
    }
    if (input.dims.empty() || input.dims[0] != shape_.microBatch)
      return wholeArray(input, given, std::move(binding), who);

    std::vector<int64_t> sampleDims(input.dims.begin() + 1, input.dims.end());
    std::vector<int64_t> rowDims(array.dims.begin() + 1, array.dims.end());
    int64_t ahead = lookAhead(from), rows = given.range.end - given.range.begin;
    binding.count = *sampleElements(input);
    if (binding.count == 0) {
      fail(who + " has no elements and takes no data");
      return {};
    }
    bool isIds = input.role == "tokens" || input.role == "labels";
    if (array.dims.size() == 1 && (isIds || sampleDims.empty())) {
      binding.stream = true;
      binding.stride = binding.count;
      binding.samples = std::max<int64_t>(rows - ahead, 0) / binding.count;
    } else {
      std::vector<int64_t> wanted = sampleDims;
      if (wanted.size() == 1)
        wanted[0] += ahead;
      if (ahead > 0 && rowDims == sampleDims) {
        failForUnaligned(input, given, ahead);
        return {};
      }
      if (rowDims != wanted) {
        if (from != i) // said by the tokens input
          return {};
        fail(who + " takes samples of " + dimsText(wanted) + ", there are " + std::to_string(array.dims[0]) +
                 " of " + dimsText(rowDims),
             "reshape the data, or compile with the dims it has (--dim NAME=VALUE)");
        return {};
      }
      binding.stride = binding.count + (wanted.size() == 1 ? ahead : 0);
      binding.samples = rows;
    }
    int64_t rowElements = array.dims[0] ? array.elements / array.dims[0] : 0;
    binding.first = given.range.begin * rowElements + shift;
    return binding;
  }

  void failForUnaligned(const InputSpec &input, const Given &given, int64_t ahead) {
    // said once, by the tokens input itself
    if (input.role != "tokens")
      return;
    std::string labels;
    for (const InputSpec &other : inputs_)
      if (other.of == input.name && other.shift > 0)
        labels = other.name;
    fail(given.source + ": samples " + dimsText({given.array.dims.begin() + 1, given.array.dims.end()}) +
             " of input " + quoted(input.name) + " hold no tokens behind their end for " + quoted(labels) +
             " (" + std::to_string(ahead) + " ahead)",
         "store " + std::to_string(ahead) + " more column(s), or one long array of tokens, or give --data " +
             labels + "=FILE.npy, aligned with the logits");
  }

  /// An input without a batch dim gets the same array in every micro-batch.
  Binding wholeArray(const InputSpec &input, const Given &given, Binding binding, const std::string &who) {
    if (given.array.dims != input.dims || given.range.begin != 0 || given.range.end != given.array.dims[0]) {
      fail(who + " is not one of samples (its first dim is not the micro-batch, " +
           std::to_string(shape_.microBatch) + "), so it takes one whole array of its dims; there is " +
           dimsText(given.array.dims));
      return {};
    }
    binding.kind = Binding::Kind::whole;
    binding.count = given.array.elements;
    return binding;
  }

  int64_t agreedSamples(const std::vector<Binding> &bindings) {
    int64_t samples = -1;
    bool agree = true;
    std::string counts, source;
    for (size_t i = 0; i < bindings.size(); ++i) {
      if (bindings[i].kind != Binding::Kind::samples)
        continue;
      agree &= samples < 0 || samples == bindings[i].samples;
      samples = bindings[i].samples;
      counts += (counts.empty() ? "" : ", ") + quoted(inputs_[i].name) + " " + std::to_string(samples) +
                " (" + bindings[i].source + ")";
      if (source.empty())
        source = bindings[i].source;
    }
    if (samples < 0)
      return 0;
    if (!agree)
      fail("inputs have different numbers of samples: " + counts, "sample i of each must belong together");
    else if (samples < shape_.samplesPerStep())
      fail(source + ": has " + std::to_string(samples) + " samples, one step takes " +
               std::to_string(shape_.samplesPerStep()) + " (" + std::to_string(shape_.ranks) + " ranks x " +
               std::to_string(shape_.microSteps) + " micro-steps x micro-batch " +
               std::to_string(shape_.microBatch) + ")",
           "give more data, or compile with fewer ranks, micro-steps or a smaller --micro-batch");
    return samples;
  }

  const std::vector<InputSpec> &inputs_;
  BatchShape shape_;
  std::vector<Given> given_;
  std::vector<Diagnostic> findings_;
  std::vector<std::string> notes_;
};

Expected<DataSet> DataSet::open(const std::vector<std::string> &sources, const std::vector<InputSpec> &inputs,
                                const BatchShape &shape, const DataOptions &options) {
  return Binder(inputs, shape).bind(sources, options);
}

// --- filling
// -----------------------------------------------------------------------------------------------------------

/// Whole numbers as the input's dtype: below 2^11 exact in every one of them but i8, u8, bool.
static void fillWhole(DType dtype, int64_t count, int64_t rowLength, bool isIota, void *target) {
  int64_t size = byteSize(dtype);
  for (int64_t i = 0; i < count; ++i) {
    int64_t value = isIota ? i % rowLength : 1;
    float real = static_cast<float>(value);
    void *at = static_cast<char *>(target) + i * size;
    if (isFloat(dtype))
      convert(ElementType::f32, &real, 1, dtype, at);
    else
      std::memcpy(at, &value, size); // little-endian: the low bytes are the value
  }
}

Status DataSet::fill(const Batch &batch, int index, void *target) const {
  assert(index >= 0 && index < int(inputs_.size()) && batch.step >= 0 && "no such input or step");
  assert(batch.k >= 0 && batch.k < shape_.microSteps && batch.rank >= 0 && batch.rank < shape_.ranks);
  const InputSpec &input = inputs_[index];
  const Binding &binding = bindings_[index];
  int64_t sampleBytes = binding.count * byteSize(input.dtype);
  switch (binding.kind) {
  case Binding::Kind::zeros:
    if (sampleBytes > 0)
      std::memset(target, 0, sampleBytes);
    return success();
  case Binding::Kind::ones:
  case Binding::Kind::iota:
    fillWhole(input.dtype, binding.count, input.dims.empty() ? 1 : input.dims.back(),
              binding.kind == Binding::Kind::iota, target);
    return success();
  case Binding::Kind::random: { // the global micro-batch, so that every split with the same N K draws the same
    const int64_t counters[3] = {static_cast<int64_t>(options_.seed), batch.step,
                                 batch.k * shape_.ranks + batch.rank};
    std::memcpy(target, counters, sizeof counters);
    return success();
  }
  case Binding::Kind::whole:
    return fillElements(index, 0, binding.count, target);
  case Binding::Kind::samples:
    break;
  }
  using Wide = unsigned __int128;
  Wide microBatch = Wide(batch.step) * shape_.microSteps * shape_.ranks + batch.k * shape_.ranks + batch.rank;
  Wide sample = microBatch * shape_.microBatch + static_cast<Wide>(__int128(batch.samplesAhead));
  uint64_t epoch = static_cast<uint64_t>(sample / samples_);
  int64_t position = static_cast<int64_t>(sample % samples_);
  Shuffle order(options_.seed, epoch, samples_);
  for (int64_t b = 0; b < shape_.microBatch; ++b) {
    int64_t at = options_.shuffle ? static_cast<int64_t>(order(position)) : position;
    ZEROCC_TRY(fillElements(index, binding.first + at * binding.stride, binding.count,
                            static_cast<char *>(target) + b * sampleBytes));
    if (++position == samples_) {
      position = 0;
      order = Shuffle(options_.seed, ++epoch, samples_);
    }
  }
  return success();
}

Status DataSet::fillElements(int index, int64_t element, int64_t count, void *target) const {
  const InputSpec &input = inputs_[index];
  const ArrayView &array = bindings_[index].array;
  const unsigned char *source = array.data + element * byteSize(array.type);
  int64_t bad = convert(array.type, source, count, input.dtype, target, rangeOf(input));
  return bad < 0 ? success() : rangeError(index, element + bad);
}

Error DataSet::rangeError(int index, int64_t element) const {
  const InputSpec &input = inputs_[index];
  const Binding &binding = bindings_[index];
  int64_t rowElements = binding.array.elements / std::max<int64_t>(binding.array.dims[0], 1);
  std::string where = binding.stream ? "position " + std::to_string(element)
                                     : "sample " + std::to_string(element / rowElements) + ", element " +
                                           std::to_string(element % rowElements);
  std::string value = binding.array.type == ElementType::u64
                          ? std::to_string(static_cast<uint64_t>(
                                elementAsInteger(binding.array.type, binding.array.data, element)))
                          : std::to_string(elementAsInteger(binding.array.type, binding.array.data, element));
  std::string message = binding.source + ": " + where + " holds " + value + ", input " + quoted(input.name);
  if (!input.hasRange)
    return Error(message + " is " + std::string(dtypeName(input.dtype)) + ", which does not hold it");
  message += " allows [" + std::to_string(input.low) + ", " + std::to_string(input.high) + ")";
  if (input.hasIgnore)
    message += " and " + std::to_string(input.ignoreIndex);
  std::string known = std::to_string(input.high);
  if (input.role == "labels" && binding.shift == 0)
    return Error(message,
                 "labels are class numbers" + (input.hasIgnore ? "; " + std::to_string(input.ignoreIndex) +
                                                                     " leaves a position out of the loss"
                                                               : std::string()));
  return Error(message,
               "the model's vocabulary has " + known +
                   " entries: give data of its tokenizer, or train a model with a larger vocabulary");
}

// --- reports
// -----------------------------------------------------------------------------------------------------------

int64_t DataSet::epoch(int64_t step) const {
  return samples_ == 0 ? 0 : static_cast<int64_t>(__int128(step) * shape_.samplesPerStep() / samples_);
}

std::vector<std::string> DataSet::describe() const {
  std::vector<std::string> lines;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const Binding &binding = bindings_[i];
    std::string line = inputs_[i].name + " " + typeText(inputs_[i]) + ": ";
    switch (binding.kind) {
    case Binding::Kind::zeros:
      line += "zeros";
      break;
    case Binding::Kind::ones:
      line += "ones";
      break;
    case Binding::Kind::iota:
      line += "0, 1, 2, … along the last dim";
      break;
    case Binding::Kind::random:
      line += "seed " + std::to_string(options_.seed) + ", step and micro-batch, for random numbers";
      break;
    case Binding::Kind::whole:
      line += binding.source + ", the same in every micro-batch";
      break;
    case Binding::Kind::samples:
      line += binding.source + (binding.stream ? ", a stream of " : ", samples of ") +
              std::string(elementTypeName(binding.array.type)) + ", ";
      if (binding.shift > 0)
        line += std::to_string(binding.shift) + " ahead of " + inputs_[i].of + ", ";
      line += std::to_string(binding.samples) + " samples";
      break;
    }
    lines.push_back(std::move(line));
  }
  lines.insert(lines.end(), notes_.begin(), notes_.end());
  return lines;
}

static void hashBytes(uint64_t &hash, const void *bytes, int64_t count) { // FNV-1a
  for (int64_t i = 0; i < count; ++i)
    hash = (hash ^ static_cast<const unsigned char *>(bytes)[i]) * 0x100000001b3;
}

uint64_t DataSet::fingerprint() const {
  constexpr int64_t kSampledBytes = 64 << 10;
  uint64_t hash = 0xcbf29ce484222325;
  for (const Binding &binding : bindings_) {
    const int64_t figures[] = {static_cast<int64_t>(binding.kind),
                               static_cast<int64_t>(binding.array.type),
                               binding.array.elements,
                               binding.first,
                               binding.stride,
                               binding.count,
                               binding.samples};
    hashBytes(hash, figures, sizeof figures);
    int64_t bytes = binding.array.bytes(), part = std::min(bytes, kSampledBytes);
    if (part > 0) {
      hashBytes(hash, binding.array.data, part);
      hashBytes(hash, binding.array.data + bytes - part, part);
    }
  }
  const int64_t order[] = {options_.shuffle, options_.shuffle ? int64_t(options_.seed) : 0, samples_};
  hashBytes(hash, order, sizeof order);
  return hash;
}

} // namespace zerocc
