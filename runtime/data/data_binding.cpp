#include "runtime/data/data_set.h"

#include "runtime/data/npy.h"
#include "runtime/data/source.h"

#include <algorithm>
#include <cassert>
#include <limits>
#include <map>
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
      giveSources(texts, options);
    if (!findings_.empty())
      return Error(std::move(findings_));
    DataSet set;
    set.inputs_ = inputs_;
    set.shape_ = shape_;
    set.options_ = options;
    for (size_t i = 0; i < inputs_.size(); ++i)
      set.bindings_.push_back(makeBinding(i));
    if (findings_.empty())
      agreeOnSamples(set.bindings_, set.samples_, weights_);
    if (!findings_.empty())
      return Error(std::move(findings_));
    if (pipe_)
      ZEROCC_TRY(pipe_->prepare());
    set.pipe_ = std::move(pipe_);
    set.mixture_ = Mixture(weights_, options.seed);
    set.notes_ = std::move(notes_);
    return set;
  }

private:
  using Binding = DataSet::Binding;
  using Part = DataSet::Part;
  struct GivenPart {
    std::shared_ptr<const ShardedArray> array;
    IndexRange range;
    std::string source;
    int64_t weight = 1;
  };
  struct Given {
    std::vector<GivenPart> parts; // several: a mixture
    int64_t field = -1;           // or: which array of a pipe's frames
    std::string source;
    bool named = false;
  };

  void fail(std::string message, std::string hint = "") {
    findings_.push_back({std::move(message), std::move(hint)});
  }
  void fail(const Error &error) {
    findings_.insert(findings_.end(), error.findings().begin(), error.findings().end());
  }
  bool hasSource(size_t input) const { return !given_[input].parts.empty() || given_[input].field >= 0; }

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

  void giveSources(const std::vector<std::string> &texts, const DataOptions &options) {
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
    for (size_t i = 0; i < sources.size(); ++i)
      if (sources[i].kind == SourceText::Kind::pipe) {
        if (Status status = givePipe(sources, sourceTexts[i], sources[i], options); !status)
          fail(status.error());
        return;
      }
    // named sources, then archives, then the rest: what is said exactly leaves less to guess
    for (int round = 0; round < 3; ++round)
      for (size_t i = 0; i < sources.size(); ++i) {
        int its = !sources[i].input.empty() ? 0 : isArchive(sources[i]) ? 1 : 2;
        if (its != round)
          continue;
        Status status = round == 0   ? giveNamed(sources[i], sourceTexts[i])
                        : round == 1 ? giveArchive(sources[i], sourceTexts[i])
                                     : giveUnnamed(sources[i], sourceTexts[i]);
        if (!status)
          fail(status.error());
      }
  }

  Status give(size_t input, std::vector<GivenPart> parts, const SourceText &source, const std::string &text) {
    if (hasSource(input)) // an archive's array beside a named source does not come here
      return Error("input " + quoted(inputs_[input].name) + " has two sources: " + given_[input].source + " and " + text,
                   "give one of them");
    given_[input] = {std::move(parts), -1, text, !source.input.empty()};
    return success();
  }

  Status givePipe(const std::vector<SourceText> &sources, const std::string &text, const SourceText &pipe,
                  const DataOptions &options) {
    if (!pipe.input.empty())
      return Error(text + ": its frames name their inputs", "leave " + pipe.input + "= out");
    if (sources.size() > 1)
      return Error(text + ": a pipe is the only source", "let the command write all inputs that need data");
    if (options.shuffle)
      return Error("--shuffle: the order of " + text + " is that of its frames",
                   "leave it out; the command finds the seed in ZEROCC_PIPE_SEED");
    std::vector<std::string> names;
    for (const InputSpec &input : inputs_)
      names.push_back(input.name);
    const int64_t window = options.window > 0 ? options.window : shape_.microSteps * shape_.ranks;
    ZEROCC_ASSIGN(pipe_, PipeStream::open(pipe.path, options.pipe, shape_.microBatch, options.seed, window));
    for (size_t i = 0; i < pipe_->arrays().size(); ++i) {
      const PipeArray &array = pipe_->arrays()[i];
      const size_t input = indexOf(array.name);
      if (input == inputs_.size())
        return Error(text + ": its frames hold " + quoted(array.name) + ", which is no input of the plan",
                     "the inputs are: " + list(names));
      given_[input] = {{}, static_cast<int64_t>(i), text, true};
    }
    return success();
  }

  /// A source that is no mixture, or each part of one.
  static std::vector<SourceText> partsOf(const SourceText &source) {
    return source.kind == SourceText::Kind::mixture ? source.parts : std::vector<SourceText>{source};
  }
  static bool isArchive(const SourceText &source) {
    return std::ranges::all_of(partsOf(source), [](const SourceText &part) { return part.kind == SourceText::Kind::npz; });
  }

  /// Joins the arrays that `read` gives for the files of each part.
  template <typename Read>
  Expected<std::vector<GivenPart>> readParts(const SourceText &source, const std::string &text, Read read) {
    std::vector<GivenPart> parts;
    for (const SourceText &part : partsOf(source)) {
      const bool isWhole = source.kind != SourceText::Kind::mixture;
      ZEROCC_ASSIGN(auto paths, expandPattern(part.path));
      std::vector<ShardedArray::Shard> shards;
      for (const std::string &path : paths) {
        ZEROCC_ASSIGN(ArrayView array, read(part, path));
        if (array.dims.empty())
          return Error((isWhole && paths.size() == 1 ? text : path) + ": is a single number, not an array");
        shards.push_back({path, std::move(array)});
      }
      Expected<ShardedArray> joined = ShardedArray::join(std::move(shards));
      if (!joined)
        return joined.error().in(part.text);
      Expected<IndexRange> range = resolveRange(part.range, joined->dims()[0]);
      if (!range)
        return range.error().in(isWhole ? text : part.text);
      parts.push_back({std::make_shared<const ShardedArray>(std::move(*joined)), *range, isWhole ? text : part.text,
                       part.weight});
    }
    return parts;
  }

  static Expected<ArrayView> readArray(const SourceText &source, const std::string &path, const std::string &input) {
    switch (source.kind) {
    case SourceText::Kind::text:
    case SourceText::Kind::bin: {
      SourceText file = source;
      file.path = path;
      return readTokens(file);
    }
    case SourceText::Kind::npy:
      return readNpy(path);
    default:
      break;
    }
    ZEROCC_ASSIGN(NpzFile archive, NpzFile::open(path));
    std::vector<std::string> names = archive.names();
    if (archive.has(input))
      return archive.read(input);
    if (names.size() == 1)
      return archive.read(names[0]);
    return Error(path + ": has no array " + quoted(input), "its arrays are: " + list(names));
  }
  Expected<std::vector<GivenPart>> readArrays(const SourceText &source, const std::string &text) {
    return readParts(source, text, [&](const SourceText &part, const std::string &path) {
      return readArray(part, path, source.input);
    });
  }

  Status giveNamed(const SourceText &source, const std::string &text) {
    ZEROCC_ASSIGN(auto parts, readArrays(source, text));
    return give(indexOf(source.input), std::move(parts), source, text);
  }

  /// Arrays by name: those of the first file, which all files must have.
  Status giveArchive(const SourceText &source, const std::string &text) {
    std::map<std::string, NpzFile> archives;
    std::vector<std::string> names;
    for (const SourceText &part : partsOf(source)) {
      ZEROCC_ASSIGN(auto paths, expandPattern(part.path));
      for (const std::string &path : paths)
        if (!archives.count(path)) {
          ZEROCC_ASSIGN(NpzFile archive, NpzFile::open(path));
          if (archives.empty())
            names = archive.names();
          archives.emplace(path, std::move(archive));
        }
    }
    std::vector<std::string> unused, inputNames;
    bool any = false;
    for (const InputSpec &input : inputs_)
      inputNames.push_back(input.name);
    for (const std::string &name : names) {
      auto at = std::find(inputNames.begin(), inputNames.end(), name);
      if (at == inputNames.end()) {
        unused.push_back(name);
        continue;
      }
      any = true;
      size_t input = at - inputNames.begin();
      if (given_[input].named)
        continue;
      ZEROCC_ASSIGN(auto parts, readParts(source, text, [&](const SourceText &, const std::string &path) {
                      return archives.at(path).read(name);
                    }));
      ZEROCC_TRY(give(input, std::move(parts), source, text));
    }
    if (!any)
      return Error(text + ": no array has the name of an input; the arrays are: " + list(unused),
                   "the inputs are: " + list(inputNames) + "; bind by name: --data NAME=" + text);
    for (const std::string &name : unused)
      notes_.push_back("not used: array " + quoted(name) + " of " + text);
    return success();
  }

  Status giveUnnamed(const SourceText &source, const std::string &text) {
    ZEROCC_ASSIGN(auto parts, readArrays(source, text));
    const bool mayBeStream = std::ranges::all_of(parts, [](const GivenPart &part) {
      return part.array->dims().size() == 1 && !isFloat(part.array->type());
    });
    const bool isNpy = std::ranges::all_of(partsOf(source), [](const SourceText &part) {
      return part.kind == SourceText::Kind::npy;
    });
    std::vector<size_t> fits;
    if (mayBeStream || isNpy)
      fits = withoutSource([](const InputSpec &input) { return input.role == "tokens"; });
    if (fits.empty() && isNpy)
      fits = withoutSource([](const InputSpec &input) {
        return input.role == "data" || (input.role == "labels" && input.of.empty());
      });
    if (fits.size() == 1)
      return give(fits[0], std::move(parts), source, text);
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
    if (given.field >= 0)
      return fromFrame(i, from, shift);
    Binding binding;
    binding.kind = Binding::Kind::samples;
    binding.source = given.source;
    binding.shift = shift;
    binding.count = *sampleElements(input);
    for (const GivenPart &part : given.parts) {
      const std::string who = part.source + ": input " + quoted(input.name) + " (" + typeText(input) + ")";
      if (!isConvertible(part.array->type(), input.dtype)) {
        fail(who + " cannot be made from " + std::string(elementTypeName(part.array->type())) + dimsText(part.array->dims()),
             isFloat(input.dtype) ? "store it with array.astype(numpy.float32)"
                                  : "store it with array.astype(numpy.int64)");
        return {};
      }
      if (input.dims.empty() || input.dims[0] != shape_.microBatch)
        return wholeArray(input, given, std::move(binding), who);
      if (binding.count == 0) {
        fail(who + " has no elements and takes no data");
        return {};
      }
      std::optional<Part> samples = samplesOf(i, from, shift, part, who);
      if (!samples)
        return {};
      binding.parts.push_back(std::move(*samples));
    }
    return binding;
  }

  /// The same for frames: an array holds the samples of a micro-batch.
  Binding fromFrame(size_t i, size_t from, int64_t shift) {
    const InputSpec &input = inputs_[i];
    const Given &given = given_[from];
    const PipeArray &array = pipe_->arrays()[given.field];
    const std::string who = given.source + ": input " + quoted(input.name) + " (" + typeText(input) + ")";
    const std::string there = std::string(elementTypeName(array.type)) + dimsText(array.dims);
    if (!isConvertible(array.type, input.dtype)) {
      fail(who + " cannot be made from " + there, isFloat(input.dtype) ? "write f4" : "write i8");
      return {};
    }
    const bool isBatch = !input.dims.empty() && input.dims[0] == shape_.microBatch;
    std::vector<int64_t> wanted = input.dims;
    const int64_t ahead = lookAhead(from);
    if (isBatch && wanted.size() == 2)
      wanted[1] += ahead;
    if (array.dims != wanted) {
      if (from == i) // else said by the tokens input
        fail(who + " takes " + dimsText(wanted) + " of each frame, there are " + dimsText(array.dims),
             ahead > 0 ? "write " + std::to_string(ahead) + " more column(s) of tokens, or the labels too" : "");
      return {};
    }
    Binding binding;
    binding.kind = Binding::Kind::frame;
    binding.source = given.source;
    binding.shift = shift;
    binding.field = {array.type, 0, isBatch ? shape_.microBatch : 1, 0};
    binding.count = isBatch ? *sampleElements(input) : array.elements;
    binding.field.stride = array.elements / std::max<int64_t>(binding.field.rows, 1);
    for (int64_t before = 0; before < given.field; ++before)
      binding.field.offsetBytes += pipe_->arrays()[before].bytes();
    return binding;
  }

  /// How samples of `input` lie in a part of the source of input `from`; nothing after a finding.
  std::optional<Part> samplesOf(size_t i, size_t from, int64_t shift, const GivenPart &given, const std::string &who) {
    const InputSpec &input = inputs_[i];
    const std::vector<int64_t> &dims = given.array->dims();
    std::vector<int64_t> sampleDims(input.dims.begin() + 1, input.dims.end());
    std::vector<int64_t> rowDims(dims.begin() + 1, dims.end());
    const int64_t ahead = lookAhead(from), rows = given.range.end - given.range.begin, count = *sampleElements(input);
    const bool isIds = input.role == "tokens" || input.role == "labels";
    Part part;
    part.array = given.array;
    part.source = given.source;
    part.first = given.range.begin * given.array->rowElements() + shift;
    if (dims.size() == 1 && (isIds || sampleDims.empty())) {
      part.stream = true;
      part.stride = count;
      part.samples = std::max<int64_t>(rows - ahead, 0) / count;
      return part;
    }
    std::vector<int64_t> wanted = sampleDims;
    if (wanted.size() == 1)
      wanted[0] += ahead;
    if (ahead > 0 && rowDims == sampleDims) {
      failForUnaligned(input, given, ahead);
      return std::nullopt;
    }
    if (rowDims != wanted) {
      if (from == i) // else said by the tokens input
        fail(who + " takes samples of " + dimsText(wanted) + ", there are " + std::to_string(dims[0]) + " of " +
                 dimsText(rowDims),
             "reshape the data, or compile with the dims it has (--dim NAME=VALUE)");
      return std::nullopt;
    }
    part.stride = count + (wanted.size() == 1 ? ahead : 0);
    part.samples = rows;
    return part;
  }

  void failForUnaligned(const InputSpec &input, const GivenPart &given, int64_t ahead) {
    // said once, by the tokens input itself
    if (input.role != "tokens")
      return;
    std::string labels;
    for (const InputSpec &other : inputs_)
      if (other.of == input.name && other.shift > 0)
        labels = other.name;
    fail(given.source + ": samples " + dimsText({given.array->dims().begin() + 1, given.array->dims().end()}) +
             " of input " + quoted(input.name) + " hold no tokens behind their end for " + quoted(labels) +
             " (" + std::to_string(ahead) + " ahead)",
         "store " + std::to_string(ahead) + " more column(s), or one long array of tokens, or give --data " +
             labels + "=FILE.npy, aligned with the logits");
  }

  /// An input without a batch dim gets the same array in every micro-batch.
  Binding wholeArray(const InputSpec &input, const Given &given, Binding binding, const std::string &who) {
    if (given.parts.size() > 1) {
      fail(who + " is not one of samples (its first dim is not the micro-batch, " + std::to_string(shape_.microBatch) +
           "), so it takes one whole array and no mixture");
      return {};
    }
    const GivenPart &part = given.parts[0];
    const std::vector<int64_t> &dims = part.array->dims();
    if (dims != input.dims || part.range.begin != 0 || part.range.end != dims[0]) {
      fail(who + " is not one of samples (its first dim is not the micro-batch, " + std::to_string(shape_.microBatch) +
           "), so it takes one whole array of its dims; there is " + dimsText(dims));
      return {};
    }
    binding.kind = Binding::Kind::whole;
    binding.count = part.array->elements();
    binding.parts.push_back({part.array, part.source});
    return binding;
  }

  /// Every input of samples has the same parts, with as many samples: sample i of each belongs together.
  void agreeOnSamples(const std::vector<Binding> &bindings, std::vector<int64_t> &samples, std::vector<int64_t> &weights) {
    std::string counts;
    bool agree = true, any = false;
    for (size_t i = 0; i < bindings.size(); ++i) {
      const Binding &binding = bindings[i];
      if (binding.kind != Binding::Kind::samples)
        continue;
      const size_t from = hasSource(i) ? i : takenFrom(i);
      std::vector<int64_t> its, itsWeights;
      std::string text;
      for (size_t p = 0; p < binding.parts.size(); ++p) {
        its.push_back(binding.parts[p].samples);
        itsWeights.push_back(given_[from].parts[p].weight);
        text += (p ? " + " : "") + std::to_string(its[p]);
      }
      counts += (counts.empty() ? "" : ", ") + quoted(inputs_[i].name) + " " + text + " (" + binding.source + ")";
      agree &= !any || (samples == its && weights == itsWeights);
      if (!any)
        samples = its, weights = itsWeights;
      any = true;
    }
    if (!agree)
      return fail("inputs have different numbers of samples: " + counts, "sample i of each must belong together");
    for (const Binding &binding : bindings)
      if (binding.kind == Binding::Kind::samples)
        return checkEnough(binding);
  }

  /// A step of one source takes no sample twice; a source of a mixture may be smaller than its share of a step.
  void checkEnough(const Binding &binding) {
    const bool isMixture = binding.parts.size() > 1;
    const int64_t needed = isMixture ? 1 : shape_.samplesPerStep();
    for (const Part &part : binding.parts)
      if (part.samples < needed)
        fail(part.source + ": has " + std::to_string(part.samples) + " samples, " +
                 (isMixture ? "a source of a mixture needs 1"
                            : "one step takes " + std::to_string(needed) + " (" + std::to_string(shape_.ranks) +
                                  " ranks x " + std::to_string(shape_.microSteps) + " micro-steps x micro-batch " +
                                  std::to_string(shape_.microBatch) + ")"),
             "give more data, or compile with fewer ranks, micro-steps or a smaller --micro-batch");
  }

  const std::vector<InputSpec> &inputs_;
  BatchShape shape_;
  std::vector<Given> given_;
  std::unique_ptr<PipeStream> pipe_;
  std::vector<int64_t> weights_ = {1};
  std::vector<Diagnostic> findings_;
  std::vector<std::string> notes_;
};

Expected<DataSet> DataSet::open(const std::vector<std::string> &sources, const std::vector<InputSpec> &inputs,
                                const BatchShape &shape, const DataOptions &options) {
  return Binder(inputs, shape).bind(sources, options);
}

} // namespace zerocc
