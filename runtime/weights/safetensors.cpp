#include "runtime/weights/safetensors.h"

#include "runtime/data/atomic_file.h"

#include <algorithm>
#include <cstring>
#include <tuple>

namespace zerocc {

constexpr uint64_t kMaxHeaderBytes = 100000000; // of the format itself
constexpr size_t kMaxRankInFile = 64;
constexpr std::string_view kMetadataKey = "__metadata__";

constexpr std::pair<std::string_view, ElementType> kTypeNames[] = {
    {"F16", ElementType::f16},     {"BF16", ElementType::bf16}, {"F32", ElementType::f32},
    {"F64", ElementType::f64},     {"I8", ElementType::i8},     {"I16", ElementType::i16},
    {"I32", ElementType::i32},     {"I64", ElementType::i64},   {"U8", ElementType::u8},
    {"U16", ElementType::u16},     {"U32", ElementType::u32},   {"U64", ElementType::u64},
    {"BOOL", ElementType::boolean}};

// --- reading
// -----------------------------------------------------------------------------------------------------------

namespace {

struct HeaderEntry {
  std::string name;
  ArrayView view;
  int64_t begin = 0, end = 0;
};

/// The JSON of a header and no other: an object of objects, at a fixed depth.
class HeaderReader {
public:
  explicit HeaderReader(std::string_view text) : text_(text) {}

  Status read(std::vector<HeaderEntry> &entries, std::map<std::string, std::string> &metadata) {
    bool hasMetadata = false;
    Status status = object([&](std::string key) -> Status {
      if (key != kMetadataKey) {
        HeaderEntry &entry = entries.emplace_back();
        entry.name = std::move(key);
        Status inner = readEntry(entry);
        return inner ? inner : Status(inner.error().in("tensor \"" + entry.name + "\""));
      }
      if (hasMetadata)
        return Error("header has its metadata twice");
      hasMetadata = true;
      return object([&](std::string name) -> Status {
        std::string value;
        if (!string(value))
          return damaged();
        return metadata.emplace(std::move(name), std::move(value)).second
                   ? success()
                   : Status(Error("metadata has a key twice"));
      });
    });
    ZEROCC_TRY(status);
    while (at_ < text_.size() && text_[at_] == ' ')
      ++at_;
    return at_ == text_.size() ? success() : Status(damaged());
  }

private:
  Error damaged() const {
    return Error("header is damaged at byte " + std::to_string(at_) +
                 ": it is not the JSON of a safetensors file");
  }

  void skipBlanks() {
    while (at_ < text_.size() && std::strchr(" \t\r\n", text_[at_]) && text_[at_] != '\0')
      ++at_;
  }
  bool take(char c) {
    skipBlanks();
    if (at_ >= text_.size() || text_[at_] != c)
      return false;
    ++at_;
    return true;
  }

  /// { "key": …, … }; `member` reads the value.
  template <typename Member> Status object(Member member) {
    if (!take('{'))
      return damaged();
    if (take('}'))
      return success();
    do {
      std::string key;
      if (!string(key) || !take(':'))
        return damaged();
      ZEROCC_TRY(member(std::move(key)));
    } while (take(','));
    return take('}') ? success() : Status(damaged());
  }

  Status readEntry(HeaderEntry &entry) {
    bool hasType = false, hasShape = false, hasOffsets = false;
    ZEROCC_TRY(object([&](const std::string &key) -> Status {
      if (key == "dtype" && !hasType) {
        hasType = true;
        return readType(entry.view);
      }
      std::vector<int64_t> numbers;
      if (!integers(numbers))
        return damaged();
      if (key == "shape" && !hasShape) {
        hasShape = true;
        entry.view.dims = std::move(numbers);
        return success();
      }
      if (key == "data_offsets" && !hasOffsets && numbers.size() == 2) {
        hasOffsets = true;
        entry.begin = numbers[0];
        entry.end = numbers[1];
        return success();
      }
      return Error("header has an unexpected or repeated key \"" + key + "\"");
    }));
    return hasType && hasShape && hasOffsets ? success()
                                             : Status(Error("lacks one of dtype, shape, data_offsets"));
  }

  Status readType(ArrayView &view) {
    std::string name;
    if (!string(name))
      return damaged();
    for (const auto &[text, type] : kTypeNames)
      if (text == name) {
        view.type = type;
        return success();
      }
    return Error("is of dtype \"" + name + "\", which is not read");
  }

  bool integers(std::vector<int64_t> &numbers) {
    if (!take('['))
      return false;
    if (take(']'))
      return true;
    do {
      skipBlanks();
      int64_t number = 0;
      size_t start = at_;
      for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_)
        if (__builtin_mul_overflow(number, 10, &number) ||
            __builtin_add_overflow(number, text_[at_] - '0', &number))
          return false;
      if (at_ == start || numbers.size() == kMaxRankInFile)
        return false;
      numbers.push_back(number);
    } while (take(','));
    return take(']');
  }

  bool hex(uint32_t &code) {
    code = 0;
    for (int i = 0; i < 4; ++i, ++at_) {
      char c = at_ < text_.size() ? text_[at_] : '\0';
      int digit = c >= '0' && c <= '9'   ? c - '0'
                  : c >= 'a' && c <= 'f' ? c - 'a' + 10
                  : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                         : -1;
      if (digit < 0)
        return false;
      code = code << 4 | static_cast<uint32_t>(digit);
    }
    return true;
  }

  static void appendUtf8(std::string &out, uint32_t code) {
    if (code < 0x80) {
      out += static_cast<char>(code);
    } else if (code < 0x800) {
      out += static_cast<char>(0xc0 | code >> 6);
      out += static_cast<char>(0x80 | (code & 63));
    } else if (code < 0x10000) {
      out += static_cast<char>(0xe0 | code >> 12);
      out += static_cast<char>(0x80 | (code >> 6 & 63));
      out += static_cast<char>(0x80 | (code & 63));
    } else {
      out += static_cast<char>(0xf0 | code >> 18);
      out += static_cast<char>(0x80 | (code >> 12 & 63));
      out += static_cast<char>(0x80 | (code >> 6 & 63));
      out += static_cast<char>(0x80 | (code & 63));
    }
  }

  bool escape(std::string &out) {
    constexpr std::string_view kLetters = "\"\\/bfnrt", kValues = "\"\\/\b\f\n\r\t";
    char c = at_ < text_.size() ? text_[at_++] : '\0';
    if (size_t which = kLetters.find(c); c != '\0' && which != std::string_view::npos) {
      out += kValues[which];
      return true;
    }
    uint32_t code, low;
    if (c != 'u' || !hex(code))
      return false;
    if (code >= 0xd800 && code < 0xdc00) { // the first half of a pair
      if (text_.substr(at_, 2) != "\\u")
        return false;
      at_ += 2;
      if (!hex(low) || low < 0xdc00 || low > 0xdfff)
        return false;
      code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    } else if (code >= 0xdc00 && code < 0xe000) {
      return false;
    }
    appendUtf8(out, code);
    return true;
  }

  bool string(std::string &out) {
    out.clear();
    if (!take('"'))
      return false;
    while (at_ < text_.size()) {
      char c = text_[at_++];
      if (c == '"')
        return true;
      if (static_cast<unsigned char>(c) < 0x20)
        return false;
      if (c != '\\')
        out += c;
      else if (!escape(out))
        return false;
    }
    return false;
  }

  std::string_view text_;
  size_t at_ = 0;
};

} // namespace

Status SafetensorsFile::readHeader(const std::shared_ptr<const MappedFile> &file) {
  Bytes bytes = file->bytes();
  uint64_t headerBytes = 0;
  if (bytes.size() < 8)
    return Error("ends inside its header");
  std::memcpy(&headerBytes, bytes.data(), 8);
  if (headerBytes > kMaxHeaderBytes)
    return Error("header is said to be " + std::to_string(headerBytes) + " bytes long, at most " +
                     std::to_string(kMaxHeaderBytes) + " are allowed",
                 "is it a safetensors file?");
  if (headerBytes > bytes.size() - 8)
    return Error("ends inside its header");
  std::string_view header(reinterpret_cast<const char *>(bytes.data()) + 8, headerBytes);
  if (!header.starts_with('{'))
    return Error("header does not begin with '{'", "is it a safetensors file?");
  Bytes data = bytes.subspan(8 + headerBytes);

  std::vector<HeaderEntry> entries;
  ZEROCC_TRY(HeaderReader(header).read(entries, metadata_));
  std::sort(entries.begin(), entries.end(), [](const HeaderEntry &a, const HeaderEntry &b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  int64_t at = 0;
  for (HeaderEntry &entry : entries) {
    std::string who = "tensor \"" + entry.name + "\"";
    std::optional<int64_t> elements = countElements(entry.view.dims);
    if (!elements)
      return Error(who + " has impossible dims " + dimsText(entry.view.dims));
    entry.view.elements = *elements;
    if (entry.begin != at)
      return Error(who + " begins at byte " + std::to_string(entry.begin) + ", the one before it ends at " +
                   std::to_string(at));
    if (entry.end < entry.begin || entry.end - entry.begin != entry.view.bytes())
      return Error(who + " has " + std::to_string(entry.end - entry.begin) + " bytes, " +
                   std::string(elementTypeName(entry.view.type)) + dimsText(entry.view.dims) + " needs " +
                   std::to_string(entry.view.bytes()));
    if (uint64_t(entry.end) > data.size())
      return Error(who + " ends at byte " + std::to_string(entry.end) + " of the data, of which there are " +
                       std::to_string(data.size()),
                   "the file was cut off: copy it again");
    at = entry.end;
    entry.view.data = data.data() + entry.begin;
    entry.view.owner = file;
    names_.push_back(entry.name);
    if (!tensors_.emplace(entry.name, std::move(entry.view)).second)
      return Error("has two tensors \"" + entry.name + "\"");
  }
  if (uint64_t(at) != data.size())
    return Error("has " + std::to_string(data.size() - at) + " bytes behind its last tensor");
  return success();
}

Expected<SafetensorsFile> SafetensorsFile::open(const std::string &path) {
  ZEROCC_ASSIGN(std::shared_ptr<const MappedFile> file, MappedFile::open(path));
  SafetensorsFile tensors;
  if (Status status = tensors.readHeader(file); !status)
    return status.error().in(path);
  return tensors;
}

const ArrayView *SafetensorsFile::find(const std::string &name) const {
  auto at = tensors_.find(name);
  return at == tensors_.end() ? nullptr : &at->second;
}

// --- writing
// -----------------------------------------------------------------------------------------------------------

static std::string jsonString(const std::string &text) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\')
      out += '\\';
    if (static_cast<unsigned char>(c) >= 0x20)
      out += c;
    else
      out += std::string("\\u00") + kDigits[c >> 4] + kDigits[c & 15];
  }
  return out + "\"";
}

Status writeSafetensors(const std::string &path, std::vector<SafetensorsEntry> entries,
                        const std::map<std::string, std::string> &metadata, const TensorBytes &bytes) {
  std::sort(entries.begin(), entries.end(), [](const SafetensorsEntry &a, const SafetensorsEntry &b) {
    int64_t sizeA = byteSize(a.type), sizeB = byteSize(b.type);
    return std::tie(sizeB, a.name) < std::tie(sizeA, b.name);
  });
  std::string header = "{";
  if (!metadata.empty()) {
    header += jsonString(std::string(kMetadataKey)) + ":{";
    bool first = true;
    for (const auto &[key, value] : metadata) {
      header += (first ? "" : ",") + jsonString(key) + ":" + jsonString(value);
      first = false;
    }
    header += "}";
  }
  std::vector<int64_t> sizes;
  int64_t offset = 0;
  for (const SafetensorsEntry &entry : entries) {
    std::optional<int64_t> elements = countElements(entry.dims);
    if (!elements || entry.name == kMetadataKey)
      return Error(path + ": tensor \"" + entry.name + "\" cannot be written");
    sizes.push_back(*elements * byteSize(entry.type));
    std::string_view typeName;
    for (const auto &[text, type] : kTypeNames)
      if (type == entry.type)
        typeName = text;
    header += (header.size() > 1 ? "," : "") + jsonString(entry.name) + ":{\"dtype\":\"" +
              std::string(typeName) + "\",\"shape\":" + dimsText(entry.dims) + ",\"data_offsets\":[" +
              std::to_string(offset) + "," + std::to_string(offset + sizes.back()) + "]}";
    offset += sizes.back();
  }
  header += "}";
  header.append((8 - header.size() % 8) % 8, ' ');
  uint64_t headerBytes = header.size();
  if (headerBytes > kMaxHeaderBytes)
    return Error(path + ": there are too many tensors for one safetensors file");

  ZEROCC_ASSIGN(AtomicFile file, AtomicFile::create(path));
  ZEROCC_TRY(file.write(Bytes(reinterpret_cast<const unsigned char *>(&headerBytes), 8)));
  ZEROCC_TRY(file.write(header));
  for (size_t i = 0; i < entries.size(); ++i) {
    ZEROCC_ASSIGN(Bytes data, bytes(entries[i].name));
    if (data.size() != uint64_t(sizes[i]))
      return Error(path + ": tensor \"" + entries[i].name + "\" came with " + std::to_string(data.size()) +
                   " bytes, its dims need " + std::to_string(sizes[i]));
    ZEROCC_TRY(file.write(data));
  }
  return file.commit();
}

} // namespace zerocc
