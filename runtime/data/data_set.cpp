#include "runtime/data/data_set.h"

#include "runtime/data/shuffle.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cassert>
#include <cstdio>
#include <cstring>
#include <set>

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
    return fillElements(index, 0, 0, binding.count, target);
  case Binding::Kind::frame:
    return fillFromFrame(index,
                         (batch.step * shape_.microSteps + batch.k) * shape_.ranks + batch.rank +
                             batch.samplesAhead / shape_.microBatch,
                         target);
  case Binding::Kind::samples:
    break;
  }
  using Wide = unsigned __int128;
  Wide microBatch = Wide(batch.step) * shape_.microSteps * shape_.ranks + batch.k * shape_.ranks + batch.rank;
  Wide sample = microBatch * shape_.microBatch + static_cast<Wide>(__int128(batch.samplesAhead));
  for (int64_t b = 0; b < shape_.microBatch; ++b, ++sample) {
    const auto [source, element] = elementOf(binding, static_cast<int64_t>(sample));
    ZEROCC_TRY(fillElements(index, source, element, binding.count, static_cast<char *>(target) + b * sampleBytes));
  }
  return success();
}

std::pair<int64_t, int64_t> DataSet::elementOf(const Binding &binding, int64_t sample) const {
  const auto [source, index] = mixture_(sample);
  int64_t epoch = index / samples_[source], position = index % samples_[source];
  if (options_.shuffle) // each source of a mixture in an order of its own
    position = static_cast<int64_t>(
        Shuffle(options_.seed + 0x9e3779b97f4a7c15 * static_cast<uint64_t>(source), epoch, samples_[source])(position));
  const Part &part = binding.parts[source];
  return {source, part.first + position * part.stride};
}

Status DataSet::fillElements(int index, int64_t source, int64_t element, int64_t count, void *target) const {
  const InputSpec &input = inputs_[index];
  const Part &part = bindings_[index].parts[source];
  const int64_t bad = part.array->read(element, count, input.dtype, target, rangeOf(input));
  return bad < 0 ? success() : rangeError(index, source, element + bad);
}

Status DataSet::fillFromFrame(int index, int64_t microBatch, void *target) const {
  const InputSpec &input = inputs_[index];
  const Binding &binding = bindings_[index];
  const Binding::Field &field = binding.field;
  ZEROCC_ASSIGN(const unsigned char *payload, pipe_->frame(microBatch));
  payload += field.offsetBytes;
  for (int64_t row = 0; row < field.rows; ++row) {
    const int64_t first = binding.shift + row * field.stride;
    const int64_t bad = convert(field.type, payload + first * byteSize(field.type), binding.count, input.dtype,
                                static_cast<char *>(target) + row * binding.count * byteSize(input.dtype), rangeOf(input));
    if (bad >= 0)
      return valueError(index,
                        binding.source + ": micro-batch " + std::to_string(microBatch) + ", sample " + std::to_string(row) +
                            ", element " + std::to_string(binding.shift + bad),
                        field.type, elementAsInteger(field.type, payload, first + bad));
  }
  return success();
}

Error DataSet::rangeError(int index, int64_t source, int64_t element) const {
  const Part &part = bindings_[index].parts[source];
  const ShardedArray::Place place = part.array->locate(element);
  const ArrayView &array = place.shard->array;
  const int64_t rowElements = std::max<int64_t>(part.array->rowElements(), 1);
  std::string where = part.stream ? "position " + std::to_string(place.element)
                                  : "sample " + std::to_string(place.element / rowElements) + ", element " +
                                        std::to_string(place.element % rowElements);
  if (part.array->shards().size() > 1)
    where = place.shard->path + ": " + where;
  return valueError(index, part.source + ": " + where, array.type, elementAsInteger(array.type, array.data, place.element));
}

Error DataSet::valueError(int index, const std::string &where, ElementType type, int64_t integer) const {
  const InputSpec &input = inputs_[index];
  const std::string value =
      type == ElementType::u64 ? std::to_string(static_cast<uint64_t>(integer)) : std::to_string(integer);
  std::string message = where + " holds " + value + ", input " + quoted(input.name);
  if (!input.hasRange)
    return Error(message + " is " + std::string(dtypeName(input.dtype)) + ", which does not hold it");
  message += " allows [" + std::to_string(input.low) + ", " + std::to_string(input.high) + ")";
  if (input.hasIgnore)
    message += " and " + std::to_string(input.ignoreIndex);
  std::string known = std::to_string(input.high);
  if (input.role == "labels" && bindings_[index].shift == 0)
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

Expected<std::string> DataSet::resumeToken(int64_t samples) const {
  return pipe_ ? pipe_->tokenBefore(samples / shape_.microBatch) : Expected<std::string>(std::string());
}

Status DataSet::beginAgain() const { return pipe_ ? pipe_->beginAgain() : success(); }

int64_t DataSet::samples() const { return samples_.size() == 1 ? samples_[0] : 0; }

std::string DataSet::describePart(const Part &part) const {
  const size_t files = part.array->shards().size();
  return part.source + (files > 1 ? " (" + std::to_string(files) + " files)" : "") +
         (part.stream ? ", a stream of " : ", samples of ") + std::string(elementTypeName(part.array->type())) + ", " +
         std::to_string(part.samples) + " samples";
}

/// "70 %", "0.5 %": with the digits it needs, up to 6.
static std::string percentText(int64_t part, int64_t all) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g %%", 100.0 * static_cast<double>(part) / static_cast<double>(all));
  return text;
}

std::vector<std::string> DataSet::describe() const {
  std::vector<std::string> lines;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const Binding &binding = bindings_[i];
    std::string line = inputs_[i].name + " " + typeText(inputs_[i]) + ": ";
    std::vector<std::string> more;
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
    case Binding::Kind::frame:
      line += binding.source + ", " + std::string(elementTypeName(binding.field.type)) + " of each frame" +
              (binding.shift > 0 ? ", " + std::to_string(binding.shift) + " ahead of " + inputs_[i].of : "");
      break;
    case Binding::Kind::samples: {
      const std::string ahead =
          binding.shift > 0 ? ", " + std::to_string(binding.shift) + " ahead of " + inputs_[i].of : "";
      if (binding.parts.size() == 1) {
        line += describePart(binding.parts[0]) + ahead;
        break;
      }
      line += "a mixture" + ahead;
      int64_t all = 0;
      for (int64_t weight : mixture_.weights())
        all += weight;
      for (size_t p = 0; binding.shift == 0 && p < binding.parts.size(); ++p)
        more.push_back("  " + percentText(mixture_.weights()[p], all) + ": " + describePart(binding.parts[p]));
      break;
    }
    }
    lines.push_back(std::move(line));
    lines.insert(lines.end(), more.begin(), more.end());
  }
  lines.insert(lines.end(), notes_.begin(), notes_.end());
  return lines;
}

std::vector<SourceDigest> DataSet::digests() const {
  std::vector<SourceDigest> digests;
  std::set<const ShardedArray *> seen; // labels taken from tokens are of the same array
  for (size_t i = 0; i < inputs_.size(); ++i)
    for (const Part &part : bindings_[i].parts)
      if (seen.insert(part.array.get()).second)
        digests.push_back({inputs_[i].name, part.source, static_cast<int64_t>(part.array->shards().size()),
                           part.array->bytes(), part.array->digest()});
  if (pipe_) // what comes out of it is not known yet: the command's text
    digests.push_back({"", "pipe:" + pipe_->command(), 0, 0, XXH3_64bits(pipe_->command().data(), pipe_->command().size())});
  return digests;
}

uint64_t DataSet::fingerprint() const {
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  for (const SourceDigest &digest : digests())
    XXH3_64bits_update(&state, &digest.digest, sizeof digest.digest);
  auto add = [&](int64_t figure) { XXH3_64bits_update(&state, &figure, sizeof figure); };
  for (const Binding &binding : bindings_) {
    add(static_cast<int64_t>(binding.kind));
    add(binding.count);
    for (const Part &part : binding.parts)
      for (int64_t figure : {part.first, part.stride, part.samples})
        add(figure);
  }
  for (int64_t weight : mixture_.weights())
    add(weight);
  const bool isSeeded = options_.shuffle || mixture_.weights().size() > 1 || pipe_;
  add(options_.shuffle);
  add(isSeeded ? static_cast<int64_t>(options_.seed) : 0);
  return XXH3_64bits_digest(&state);
}

} // namespace zerocc
