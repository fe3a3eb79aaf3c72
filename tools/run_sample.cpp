#include "tools/run_sample.h"

#include "compiler/support/philox.h"
#include "runtime/data/array.h"
#include "runtime/data/plan_inputs.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <numeric>

namespace zerocc {
namespace {

constexpr const char *kTokens = "tokens:";

/// [0, 1), 53 bits.
double uniformAt(uint64_t seed, uint64_t token) {
  const auto words = philox({static_cast<uint32_t>(token), static_cast<uint32_t>(token >> 32), 0, 0x73616d70u},
                            {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  return static_cast<double>((uint64_t(words[0]) << 32 | words[1]) >> 11) * 0x1p-53;
}

Expected<std::vector<int64_t>> promptTokens(const std::string &text) {
  std::vector<int64_t> tokens;
  if (text.rfind(kTokens, 0) != 0) {
    for (char c : text)
      tokens.push_back(static_cast<unsigned char>(c));
    return tokens;
  }
  const char *at = text.data() + std::strlen(kTokens), *end = text.data() + text.size();
  while (at < end) {
    int64_t token = 0;
    auto [next, error] = std::from_chars(at, end, token);
    if (error != std::errc() || token < 0 || (next < end && (*next != ',' || next + 1 == end)))
      return Error("--sample: \"" + text + "\" is no list of tokens", "write tokens:12,7,3");
    tokens.push_back(token);
    at = next + (next < end);
  }
  if (tokens.empty())
    return Error("--sample: \"" + text + "\" has no token to begin with");
  return tokens;
}

class Sampler {
public:
  Sampler(const plan::Plan &plan, const InferenceRun &run) : plan_(plan), run_(run) {}

  Status sample() {
    ZEROCC_TRY(findTensors());
    ZEROCC_ASSIGN(tokens_, promptTokens(run_.flags.sample));
    const bool areBytes = run_.flags.sample.rfind(kTokens, 0) != 0;
    for (int64_t token : tokens_)
      if (token >= vocabulary_)
        return Error("--sample: token " + std::to_string(token) + " of the text is not among the model's " +
                     std::to_string(vocabulary_));
    std::vector<InputSpec> specs = inputSpecs(plan_);
    specs[input_].role = "zeros"; // written by fill
    DataOptions options;
    options.seed = run_.seed;
    auto others = DataSet::open(run_.data, specs, inferenceShape(plan_), options);
    if (!others)
      return others.error().in("--sample needs values for the other inputs");
    others_.emplace(std::move(*others));
    ZEROCC_ASSIGN(inference_, Inference::create(plan_, run_.values, run_.group));
    if (static_cast<int64_t>(tokens_.size()) > length_)
      std::fprintf(stderr, "note: the text has %zu tokens, the model sees the last %lld\n", tokens_.size(),
                   static_cast<long long>(length_));
    ZEROCC_TRY(checkCausal());
    print(tokens_, areBytes);
    for (int64_t i = 0; i < run_.flags.sampleTokens; ++i) {
      ZEROCC_TRY(forward(0));
      const int64_t next = chooseToken(row_, run_.flags.temperature, run_.flags.topK, uniformAt(run_.seed, i));
      if (next < 0)
        return Error("the model's logits are not finite", "is it trained? see zero-run --metrics");
      tokens_.push_back(next);
      print({next}, areBytes);
    }
    flushBytes(true);
    std::fputc('\n', stdout);
    return success();
  }

private:
  /// The tokens input [B, T], and the output of logits [B, T, vocabulary] or [B T, vocabulary].
  Status findTensors() {
    for (int i = 0; i < plan_.inputs_size(); ++i)
      if (plan_.inputs(i).role() == "tokens") {
        if (input_ >= 0)
          return Error("--sample: the plan has two inputs of tokens", "an encoder and a decoder cannot be sampled from yet");
        input_ = i;
      }
    if (input_ < 0 || plan_.inputs(input_).dims_size() != 2)
      return Error("--sample: the plan has no input of tokens [batch, sequence]",
                   "compile with --input NAME=tokens; use --output FILE.npy for other models");
    dtype_ = static_cast<DType>(plan_.inputs(input_).dtype());
    batch_ = plan_.inputs(input_).dims(0);
    length_ = plan_.inputs(input_).dims(1);
    const std::vector<OutputSpec> outputs = outputsOf(plan_);
    std::string fits;
    for (size_t o = 0; o < outputs.size(); ++o) {
      const std::vector<int64_t> &dims = outputs[o].dims;
      const bool cube = dims.size() == 3 && dims[0] == batch_ && dims[1] == length_;
      const bool flat = dims.size() == 2 && dims[0] == batch_ * length_;
      if (!isFloat(outputs[o].dtype) || !(cube || flat) || dims.back() < 1)
        continue;
      if (fits.empty() || outputs[o].name == "logits") {
        output_ = static_cast<int>(o);
        vocabulary_ = dims.back();
        outputType_ = outputs[o].dtype;
      }
      fits += (fits.empty() ? "" : ", ") + outputs[o].name;
    }
    if (fits.empty())
      return Error("--sample: no output of the plan is logits [" + std::to_string(batch_) + "," +
                   std::to_string(length_) + ",vocabulary]");
    if (fits.find(',') != std::string::npos && outputs[output_].name != "logits")
      return Error("--sample: several outputs could be the logits: " + fits, "compile with --outputs NAME");
    return success();
  }

  int64_t seen() const { return std::min<int64_t>(length_, static_cast<int64_t>(tokens_.size())); }

  /// The logits behind the last token, with the places behind it filled in one of two ways.
  Status forward(int filling) {
    const int64_t known = seen(), first = static_cast<int64_t>(tokens_.size()) - known;
    auto fill = [&](Executor &executor) -> Status {
      for (int i = 0; i < plan_.inputs_size(); ++i)
        ZEROCC_TRY(others_->fill({}, i, executor.address(kInputsRegion, plan_.inputs(i).offset())));
      char *at = executor.address(kInputsRegion, plan_.inputs(input_).offset());
      for (int64_t b = 0; b < batch_; ++b)
        for (int64_t t = 0; t < length_; ++t, at += byteSize(dtype_)) {
          const int64_t token = t < known ? tokens_[first + t] : filling == 0 ? 0 : (vocabulary_ - 1 + 7 * t) % vocabulary_;
          std::memcpy(at, &token, byteSize(dtype_)); // little-endian
        }
      return success();
    };
    ZEROCC_TRY(inference_->run(std::ref(fill)));
    row_.resize(vocabulary_);
    convert(elementType(outputType_), inference_->output(0, output_) + (known - 1) * vocabulary_ * byteSize(outputType_),
            vocabulary_, DType::f32, row_.data());
    return success();
  }

  Status checkCausal() {
    if (seen() == length_)
      return success(); // nothing is ever filled up
    ZEROCC_TRY(forward(1));
    const std::vector<float> other = row_;
    ZEROCC_TRY(forward(0));
    if (std::memcmp(other.data(), row_.data(), other.size() * sizeof(float)) != 0)
      return Error("--sample: the model looks ahead: the logits of a token change with the tokens behind it",
                   "begin with " + std::to_string(length_) +
                       " tokens or more, or export the model with a causal mask");
    return success();
  }

  /// Whole UTF-8 characters as they are; what no text holds is escaped. Tokens by their numbers.
  void print(const std::vector<int64_t> &tokens, bool areBytes) {
    for (int64_t token : tokens) {
      if (areBytes && token < 256) {
        bytes_ += static_cast<char>(token);
        continue;
      }
      flushBytes(true);
      std::printf(areBytes ? "<%lld>" : printed_ ? " %lld" : "%lld", static_cast<long long>(token));
      printed_ = true;
    }
    flushBytes(false);
    std::fflush(stdout);
  }

  void flushBytes(bool all) {
    size_t whole = bytes_.size();
    if (!all) // the beginning of a character waits for its end
      for (size_t back = 1; back <= std::min<size_t>(3, bytes_.size()); ++back) {
        const auto byte = static_cast<unsigned char>(bytes_[bytes_.size() - back]);
        if ((byte & 0xc0) == 0x80)
          continue;
        const size_t length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
        if (length > back)
          whole = bytes_.size() - back;
        break;
      }
    std::fputs(escapeForTerminal(bytes_.substr(0, whole)).c_str(), stdout);
    bytes_.erase(0, whole);
  }

  const plan::Plan &plan_;
  const InferenceRun &run_;
  int input_ = -1, output_ = -1;
  DType dtype_ = DType::i64, outputType_ = DType::f32;
  int64_t batch_ = 0, length_ = 0, vocabulary_ = 0;
  std::optional<DataSet> others_;
  std::unique_ptr<Inference> inference_;
  std::vector<int64_t> tokens_;
  std::vector<float> row_;
  std::string bytes_; // not yet printed
  bool printed_ = false;
};

} // namespace

int64_t chooseToken(const std::vector<float> &logits, double temperature, int64_t topK, double uniform) {
  for (float value : logits)
    if (std::isnan(value) || value == INFINITY)
      return -1;
  if (temperature == 0)
    return std::max_element(logits.begin(), logits.end()) - logits.begin();
  std::vector<int64_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return logits[a] > logits[b]; });
  if (topK > 0 && topK < static_cast<int64_t>(order.size()))
    order.resize(topK);
  if (std::isinf(logits[order[0]]))
    return -1;
  std::vector<double> weights;
  for (int64_t token : order)
    weights.push_back(std::exp((double(logits[token]) - logits[order[0]]) / temperature));
  double left = uniform * std::accumulate(weights.begin(), weights.end(), 0.0);
  for (size_t i = 0; i < order.size(); ++i)
    if ((left -= weights[i]) < 0)
      return order[i];
  return order[0]; // rounding
}

Status runSample(const plan::Plan &plan, const InferenceRun &run) { return Sampler(plan, run).sample(); }

} // namespace zerocc
