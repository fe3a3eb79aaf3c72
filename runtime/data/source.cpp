#include "runtime/data/source.h"

#include "runtime/data/mapped_file.h"
#include "runtime/data/megatron.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <optional>

namespace zerocc {

/// "[2:5]" at the end of "FILE[2:5]"; brackets that hold anything else belong to the file's name.
static std::string_view rangeSuffix(std::string_view text) {
  size_t open = text.rfind('[');
  if (open == std::string_view::npos || !text.ends_with(']'))
    return {};
  std::string_view inside = text.substr(open + 1, text.size() - open - 2);
  bool isRange = std::count(inside.begin(), inside.end(), ':') == 1 &&
                 inside.find_first_not_of("0123456789.%:") == std::string_view::npos;
  return isRange ? text.substr(open) : std::string_view();
}

/// FILE with its kind and RANGE.
static Expected<SourceText> parseFile(std::string_view text) {
  SourceText source;
  source.text = text;
  std::string_view rest = text;
  std::string_view range = rangeSuffix(rest);
  source.range = range;
  rest.remove_suffix(range.size());
  if (rest.starts_with("text:")) {
    source.kind = SourceText::Kind::text;
    rest.remove_prefix(5);
  } else if (rest.ends_with(".bin")) {
    source.kind = SourceText::Kind::bin;
  } else if (rest.ends_with(".npy")) {
    source.kind = SourceText::Kind::npy;
  } else if (rest.ends_with(".npz")) {
    source.kind = SourceText::Kind::npz;
  } else {
    return Error("data source \"" + source.text + "\" is of no known kind",
                 "text:FILE (the bytes of any file are tokens), FILE.bin, FILE.npy or FILE.npz, with NAME= before it "
                 "to bind an input by name; patterns (shards/*.bin), mix:0.7*A.bin,0.3*B.bin, pipe:COMMAND");
  }
  source.path = rest;
  if (source.path.empty())
    return Error("data source \"" + source.text + "\" names no file");
  return source;
}

/// A decimal number above 0 with its '*', as millionths: "0.7*" is 700000. Nothing when `text` does not begin so.
struct WeightPrefix {
  int64_t millionths = 0;
  size_t length = 0;
};
static std::optional<WeightPrefix> weightPrefix(std::string_view text) {
  constexpr int64_t kMost = 1000000000000;
  int64_t value = 0, scale = 1000000;
  bool point = false, digit = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '*')
      return digit && value * scale <= kMost ? std::optional(WeightPrefix{value * scale, i + 1}) : std::nullopt;
    if (c == '.' && !point) {
      point = true;
      continue;
    }
    if (c < '0' || c > '9' || value > kMost / 10 || (point && scale == 1))
      return std::nullopt;
    digit = true;
    value = value * 10 + (c - '0');
    scale /= point ? 10 : 1;
  }
  return std::nullopt;
}

static Expected<SourceText> parseMixture(std::string_view text) {
  constexpr size_t kMostParts = 4096;
  SourceText mixture;
  mixture.kind = SourceText::Kind::mixture;
  mixture.text = text;
  std::string_view rest = text.substr(std::string_view("mix:").size());
  const std::string who = "data source \"" + mixture.text + "\"";
  const std::string hint = "write mix:0.7*A.bin,0.3*B.bin: weights above 0, with up to 6 decimals and at most 10^6";
  int64_t divisor = 0;
  while (true) {
    const std::optional<WeightPrefix> weight = weightPrefix(rest);
    if (!weight || weight->millionths == 0)
      return Error(who + ": \"" + std::string(rest.substr(0, 40)) + "\" does not begin with a weight and '*'", hint);
    rest.remove_prefix(weight->length);
    size_t end = rest.find(',');
    while (end != std::string_view::npos && !weightPrefix(rest.substr(end + 1)))
      end = rest.find(',', end + 1);
    const std::string_view file = rest.substr(0, end);
    if (file.starts_with("mix:") || file.starts_with("pipe:"))
      return Error(who + ": " + std::string(file.substr(0, file.find(':') + 1)) + " cannot be part of a mixture", hint);
    Expected<SourceText> part = parseFile(file);
    if (!part)
      return part.error().in(who);
    part->weight = weight->millionths;
    divisor = std::gcd(divisor, part->weight);
    mixture.parts.push_back(std::move(*part));
    if (mixture.parts.size() > kMostParts)
      return Error(who + ": has more than " + std::to_string(kMostParts) + " sources",
                   "sources of one weight may be one pattern of files");
    if (end == std::string_view::npos)
      break;
    rest.remove_prefix(end + 1);
  }
  for (SourceText &part : mixture.parts)
    part.weight /= divisor;
  return mixture;
}

static Expected<SourceText> parseUnnamed(std::string_view text) {
  if (text.starts_with("mix:"))
    return parseMixture(text);
  if (!text.starts_with("pipe:"))
    return parseFile(text);
  SourceText pipe;
  pipe.kind = SourceText::Kind::pipe;
  pipe.text = text;
  pipe.path = text.substr(std::string_view("pipe:").size());
  if (pipe.path.find_first_not_of(" \t\n") == std::string::npos)
    return Error("data source \"" + pipe.text + "\" names no command");
  return pipe;
}

Expected<SourceText> parseSource(const std::string &text, const std::vector<std::string> &inputs) {
  SourceText source;
  std::string_view rest = text;
  for (const std::string &input : inputs)
    if (rest.size() > input.size() && rest[input.size()] == '=' && rest.starts_with(input) &&
        input.size() >= source.input.size())
      source.input = input;
  if (!source.input.empty())
    rest.remove_prefix(source.input.size() + 1);
  size_t equals = rest.find('=');
  if (source.input.empty() && equals < rest.find_first_of("/:")) {
    std::string known;
    for (const std::string &input : inputs)
      known += (known.empty() ? "" : ", ") + input;
    return Error("data source \"" + text + "\": there is no input \"" + std::string(rest.substr(0, equals)) +
                     "\"",
                 "the inputs are: " + known);
  }
  ZEROCC_ASSIGN(SourceText plain, parseUnnamed(rest));
  plain.input = source.input;
  return plain;
}

/// One end of a RANGE: an index, or a percentage with up to six decimals.
static std::optional<int64_t> resolveEnd(std::string_view end, int64_t count, int64_t otherwise) {
  if (end.empty())
    return otherwise;
  bool percent = end.ends_with('%');
  if (percent)
    end.remove_suffix(1);
  constexpr int64_t kUnit = 1000000;
  int64_t value = 0, scale = kUnit;
  bool point = false;
  if (end.find_first_of("0123456789") == std::string_view::npos)
    return std::nullopt;
  for (char c : end) {
    if (c == '.' && percent && !point) {
      point = true;
      continue;
    }
    if (c < '0' || c > '9' || (point && (scale /= 10) == 0) || __builtin_mul_overflow(value, 10, &value) ||
        __builtin_add_overflow(value, c - '0', &value))
      return std::nullopt;
  }
  if (!percent)
    return value;
  if (value > 100 * (kUnit / scale))
    return std::nullopt;
  return static_cast<int64_t>(__int128(count) * value * scale / (100 * kUnit));
}

Expected<IndexRange> resolveRange(const std::string &range, int64_t count) {
  if (range.empty())
    return IndexRange{0, count};
  std::string_view inside = std::string_view(range).substr(1, range.size() - 2);
  size_t colon = inside.find(':');
  std::optional<int64_t> begin = resolveEnd(inside.substr(0, colon), count, 0);
  std::optional<int64_t> end = resolveEnd(inside.substr(colon + 1), count, count);
  if (!begin || !end || *begin > *end || *end > count)
    return Error("range " + range + " is not within the " + std::to_string(count) + " there are",
                 "write [BEGIN:END], as numbers or in percent: [0%:90%]");
  return IndexRange{*begin, *end};
}

static ArrayView tokenView(Bytes bytes, ElementType type, std::shared_ptr<const void> owner) {
  ArrayView view;
  view.type = type;
  view.elements = static_cast<int64_t>(bytes.size()) / byteSize(type);
  view.dims = {view.elements};
  view.data = bytes.data();
  view.owner = std::move(owner);
  return view;
}

struct LlmcFormat {
  int32_t magic, version;
  ElementType type;
};
constexpr LlmcFormat kLlmcTokens[] = {{20240520, 1, ElementType::u16}, {20240801, 7, ElementType::u32}};
constexpr int32_t kLlmcEval = 20240522, kLlmcModel = 20240326, kLlmcState = 20240527;
constexpr size_t kLlmcHeaderBytes = 1024;

static Expected<ArrayView> binTokens(const std::shared_ptr<const MappedFile> &file) {
  Bytes bytes = file->bytes();
  int32_t header[3] = {};
  std::memcpy(header, bytes.data(), std::min(bytes.size(), sizeof header));
  if (header[0] == kLlmcEval || header[0] == kLlmcModel || header[0] == kLlmcState)
    return Error("is a file of llm.c, but not one of tokens (magic " + std::to_string(header[0]) + ")",
                 "token files have magic 20240520 or 20240801");
  for (const LlmcFormat &format : kLlmcTokens) {
    if (header[0] != format.magic)
      continue;
    if (header[1] != format.version)
      return Error("is a token file of llm.c of version " + std::to_string(header[1]) + ", we read " +
                   std::to_string(format.version));
    int64_t expected = int64_t(kLlmcHeaderBytes) + int64_t(header[2]) * byteSize(format.type);
    if (header[2] < 0 || file->size() != expected)
      return Error("its header says " + std::to_string(header[2]) + " tokens, that is " +
                       std::to_string(expected) + " bytes; the file has " + std::to_string(file->size()),
                   "the file was cut off or appended to: prepare it again");
    return tokenView(bytes.subspan(kLlmcHeaderBytes), format.type, file);
  }
  if (bytes.size() % 2 != 0)
    return Error("has " + std::to_string(bytes.size()) +
                     " bytes, an odd number; without a header of llm.c it should "
                     "hold 16-bit tokens",
                 "text:FILE reads the bytes of any file as tokens");
  return tokenView(bytes, ElementType::u16, file);
}

/// FILE.idx beside FILE.bin, when there is one: the .bin is Megatron's.
static std::string megatronIndexOf(const std::string &path) {
  const std::string index = path.substr(0, path.size() - 4) + ".idx";
  std::error_code ignored;
  return std::filesystem::exists(index, ignored) ? index : "";
}

Expected<ArrayView> readTokens(const SourceText &source) {
  ZEROCC_ASSIGN(std::shared_ptr<const MappedFile> file, MappedFile::open(source.path));
  if (source.kind == SourceText::Kind::text)
    return tokenView(file->bytes(), ElementType::u8, file);
  if (const std::string path = megatronIndexOf(source.path); !path.empty()) {
    ZEROCC_ASSIGN(std::shared_ptr<const MappedFile> index, MappedFile::open(path));
    Expected<MegatronIndex> content = parseMegatronIndex(index->bytes(), file->size());
    if (!content)
      return content.error().in(path);
    return tokenView(file->bytes(), content->type, file);
  }
  Expected<ArrayView> view = binTokens(file);
  if (!view)
    return view.error().in(source.path);
  return view;
}

} // namespace zerocc
