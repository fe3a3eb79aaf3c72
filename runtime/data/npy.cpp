#include "runtime/data/npy.h"

#include <algorithm>
#include <cstring>
#include <zlib.h>

namespace zerocc {

constexpr std::string_view kMagic = "\x93NUMPY";
// NumPy's own limit is 10000; records with many fields have more, and are refused anyhow.
constexpr size_t kMaxHeaderBytes = 64 << 10;
constexpr size_t kMaxRankInFile = 32;

static std::string_view asText(Bytes bytes) {
  return {reinterpret_cast<const char *>(bytes.data()), bytes.size()};
}

template <typename T> static T loadAt(Bytes bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

// --- .npy: the header is a Python dict with three keys
// ------------------------------------------------------------------

namespace {

struct NpyHeader {
  std::string descr;
  bool fortranOrder = false;
  std::vector<int64_t> dims;
};

/// Reads exactly what NumPy writes: {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }
class HeaderParser {
public:
  explicit HeaderParser(std::string_view text) : text_(text) {}

  Expected<NpyHeader> parse() {
    NpyHeader header;
    bool seen[3] = {};
    if (!take('{'))
      return Error("header is not a Python dict");
    while (!take('}')) {
      std::optional<std::string> key = quoted();
      if (!key || !take(':'))
        return Error("header is not a Python dict");
      int which = *key == "descr" ? 0 : *key == "fortran_order" ? 1 : *key == "shape" ? 2 : -1;
      if (which < 0 || seen[which])
        return Error("header has an unexpected or repeated key \"" + *key + "\"");
      seen[which] = true;
      ZEROCC_TRY(which == 0 ? descr(header) : which == 1 ? fortranOrder(header) : shape(header));
      if (!take(',') && peek() != '}')
        return Error("header is not a Python dict");
    }
    if (!seen[0] || !seen[1] || !seen[2])
      return Error("header lacks one of descr, fortran_order, shape");
    skipBlanks();
    if (at_ != text_.size())
      return Error("header goes on behind its dict");
    return header;
  }

private:
  void skipBlanks() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t'))
      ++at_;
  }
  char peek() {
    skipBlanks();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool take(char c) {
    if (peek() != c || at_ >= text_.size())
      return false;
    ++at_;
    return true;
  }
  bool takeWord(std::string_view word) {
    skipBlanks();
    if (text_.substr(at_, word.size()) != word)
      return false;
    at_ += word.size();
    return true;
  }
  std::optional<std::string> quoted() {
    char quote = peek();
    if (quote != '\'' && quote != '"')
      return std::nullopt;
    size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos)
      return std::nullopt;
    std::string word(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return word;
  }
  Status descr(NpyHeader &header) {
    if (peek() == '[')
      return Error("holds records (structured dtype)", "store each field as an array of its own");
    std::optional<std::string> text = quoted();
    if (!text)
      return Error("header has no readable descr");
    header.descr = *text;
    return success();
  }
  Status fortranOrder(NpyHeader &header) {
    header.fortranOrder = takeWord("True");
    if (!header.fortranOrder && !takeWord("False"))
      return Error("header has no readable fortran_order");
    return success();
  }
  Status shape(NpyHeader &header) {
    if (!take('('))
      return Error("header has no readable shape");
    while (!take(')')) {
      int64_t dim = 0;
      if (peek() < '0' || peek() > '9')
        return Error("header has no readable shape");
      while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9')
        if (__builtin_mul_overflow(dim, 10, &dim) || __builtin_add_overflow(dim, text_[at_++] - '0', &dim))
          return Error("a dim of the shape does not fit 63 bits");
      takeWord("L"); // Python 2
      header.dims.push_back(dim);
      if (header.dims.size() > kMaxRankInFile)
        return Error("has more than " + std::to_string(kMaxRankInFile) + " dims");
      if (!take(',') && peek() != ')')
        return Error("header has no readable shape");
    }
    return success();
  }

  std::string_view text_;
  size_t at_ = 0;
};

} // namespace

struct DescrRow {
  std::string_view code;
  ElementType type;
};
constexpr DescrRow kDescrs[] = {
    {"f2", ElementType::f16}, {"f4", ElementType::f32}, {"f8", ElementType::f64},
    {"i1", ElementType::i8},  {"i2", ElementType::i16}, {"i4", ElementType::i32},
    {"i8", ElementType::i64}, {"u1", ElementType::u8},  {"u2", ElementType::u16},
    {"u4", ElementType::u32}, {"u8", ElementType::u64}, {"b1", ElementType::boolean},
};

static Expected<ElementType> typeOfDescr(const std::string &descr) {
  char order = descr.empty() ? '\0' : descr[0];
  std::string_view code = std::string_view(descr).substr(descr.empty() ? 0 : 1);
  if (code.substr(0, 1) == "O")
    return Error("holds Python objects (dtype object), which can only be read by running code",
                 "store numbers: array.astype(numpy.int64) or numpy.float32");
  for (const DescrRow &row : kDescrs) {
    if (row.code != code)
      continue;
    if (order == '>')
      return Error("is big-endian (" + descr + ")",
                   "store it with array.astype('<" + std::string(code) + "')");
    if (order == '<' || (order == '|' && byteSize(row.type) == 1))
      return row.type;
  }
  return Error("has elements of dtype \"" + descr + "\", which are not numbers we read",
               "store f2, f4, f8, i1 to i8, u1 to u8 or b1");
}

Expected<ArrayView> parseNpy(Bytes file, std::shared_ptr<const void> owner) {
  if (asText(file).substr(0, kMagic.size()) != kMagic) {
    if (file.size() >= 2 && file[0] == 0x80 && file[1] >= 2 && file[1] <= 5)
      return Error("is a Python pickle, which can only be read by running code", "store it with numpy.save");
    return Error("is not a .npy file: it does not begin with \\x93NUMPY");
  }
  if (file.size() < 10)
    return Error("ends inside its header");
  int version = file[6];
  if (version < 1 || version > 3)
    return Error("is a .npy file of version " + std::to_string(version) + ", we read 1 to 3");
  size_t start = version == 1 ? 10 : 12;
  if (file.size() < start)
    return Error("ends inside its header");
  size_t headerBytes = version == 1 ? loadAt<uint16_t>(file, 8) : loadAt<uint32_t>(file, 8);
  if (headerBytes > kMaxHeaderBytes)
    return Error("header is said to be " + std::to_string(headerBytes) + " bytes long, at most " +
                 std::to_string(kMaxHeaderBytes) + " are read");
  if (file.size() - start < headerBytes)
    return Error("ends inside its header");
  ZEROCC_ASSIGN(NpyHeader header, HeaderParser(asText(file).substr(start, headerBytes)).parse());
  ZEROCC_ASSIGN(ElementType type, typeOfDescr(header.descr));
  if (header.fortranOrder)
    return Error("is in Fortran order", "store it with numpy.ascontiguousarray(array)");
  std::optional<int64_t> elements = countElements(header.dims);
  if (!elements)
    return Error("shape " + dimsText(header.dims) + " has more elements than 63 bits count");
  uint64_t payload = file.size() - start - headerBytes, expected = uint64_t(*elements) * byteSize(type);
  if (payload != expected)
    return Error("has " + std::to_string(payload) + " bytes of data, " + std::string(elementTypeName(type)) +
                     dimsText(header.dims) + " needs " + std::to_string(expected),
                 payload < expected ? "the file was cut off: copy it again" : "");
  ArrayView view;
  view.type = type;
  view.dims = std::move(header.dims);
  view.elements = *elements;
  view.data = file.data() + start + headerBytes;
  view.owner = std::move(owner);
  return view;
}

Expected<ArrayView> readNpy(const std::string &path) {
  ZEROCC_ASSIGN(std::shared_ptr<const MappedFile> file, MappedFile::open(path));
  Expected<ArrayView> view = parseNpy(file->bytes(), file);
  if (!view)
    return view.error().in(path);
  return view;
}

// --- .npz: a zip archive
// -----------------------------------------------------------------------------------------------

constexpr uint32_t kLocalHeader = 0x04034b50, kDirectoryEntry = 0x02014b50, kDirectoryEnd = 0x06054b50;
constexpr uint32_t kZip64End = 0x06064b50, kZip64Locator = 0x07064b50;
constexpr size_t kLocalBytes = 30, kEntryBytes = 46, kEndBytes = 22, kZip64EndBytes = 56, kLocatorBytes = 20;
constexpr uint16_t kZip64Extra = 1;
// Deflate packs at most 1032 to 1; a directory that says more lies.
constexpr uint64_t kMaxDeflateRatio = 1033;

/// Replaces the fields that stand at 0xffffffff by those of the zip64 extra field, in their fixed order.
static bool applyZip64(Bytes extra, uint64_t *fields[], int count) {
  bool needed = false;
  for (int i = 0; i < count; ++i)
    needed |= *fields[i] == 0xffffffff;
  if (!needed)
    return true;
  for (size_t at = 0; at + 4 <= extra.size();) {
    uint16_t id = loadAt<uint16_t>(extra, at), bytes = loadAt<uint16_t>(extra, at + 2);
    at += 4;
    if (bytes > extra.size() - at)
      return false;
    if (id != kZip64Extra) {
      at += bytes;
      continue;
    }
    size_t end = at + bytes;
    for (int i = 0; i < count; ++i) {
      if (*fields[i] != 0xffffffff)
        continue;
      if (end - at < 8)
        return false;
      *fields[i] = loadAt<uint64_t>(extra, at);
      at += 8;
    }
    return true;
  }
  return false;
}

/// Position of the end-of-directory record: the last one whose comment reaches to the end of the file.
static std::optional<size_t> findDirectoryEnd(Bytes file) {
  if (file.size() < kEndBytes)
    return std::nullopt;
  size_t last = file.size() - kEndBytes, first = last > 0xffff ? last - 0xffff : 0;
  for (size_t at = last + 1; at-- > first;)
    if (loadAt<uint32_t>(file, at) == kDirectoryEnd && loadAt<uint16_t>(file, at + 20) == last - at)
      return at;
  return std::nullopt;
}

Status NpzFile::readDirectory() {
  Bytes file = file_->bytes();
  std::optional<size_t> end = findDirectoryEnd(file);
  if (!end)
    return Error("is not a zip archive, or was cut off: it has no directory at its end");
  uint64_t count = loadAt<uint16_t>(file, *end + 10);
  uint64_t bytes = loadAt<uint32_t>(file, *end + 12), start = loadAt<uint32_t>(file, *end + 16);
  bool split = loadAt<uint16_t>(file, *end + 4) != loadAt<uint16_t>(file, *end + 6);
  if (*end >= kLocatorBytes && loadAt<uint32_t>(file, *end - kLocatorBytes) == kZip64Locator) {
    uint64_t at = loadAt<uint64_t>(file, *end - kLocatorBytes + 8);
    if (at > file.size() || file.size() - at < kZip64EndBytes || loadAt<uint32_t>(file, at) != kZip64End)
      return Error("its zip64 directory record lies outside the file");
    count = loadAt<uint64_t>(file, at + 32);
    bytes = loadAt<uint64_t>(file, at + 40);
    start = loadAt<uint64_t>(file, at + 48);
  }
  if (split)
    return Error("is one part of a split zip archive");
  if (start > file.size() || bytes > file.size() - start || count > bytes / kEntryBytes)
    return Error("its zip directory (" + std::to_string(count) + " entries, " + std::to_string(bytes) +
                 " bytes) lies outside the file");
  Bytes directory = file.subspan(start, bytes);
  for (uint64_t i = 0; i < count; ++i) {
    if (directory.size() < kEntryBytes || loadAt<uint32_t>(directory, 0) != kDirectoryEntry)
      return Error("entry " + std::to_string(i) + " of its zip directory is damaged");
    uint16_t flags = loadAt<uint16_t>(directory, 8), method = loadAt<uint16_t>(directory, 10);
    Member member;
    member.checksum = loadAt<uint32_t>(directory, 16);
    member.packed = loadAt<uint32_t>(directory, 20);
    member.size = loadAt<uint32_t>(directory, 24);
    member.offset = loadAt<uint32_t>(directory, 42);
    size_t nameBytes = loadAt<uint16_t>(directory, 28), extraBytes = loadAt<uint16_t>(directory, 30);
    size_t commentBytes = loadAt<uint16_t>(directory, 32);
    if (directory.size() - kEntryBytes < nameBytes + extraBytes + commentBytes)
      return Error("entry " + std::to_string(i) + " of its zip directory is damaged");
    std::string name(asText(directory.subspan(kEntryBytes, nameBytes)));
    uint64_t *wide[] = {&member.size, &member.packed, &member.offset};
    if (!applyZip64(directory.subspan(kEntryBytes + nameBytes, extraBytes), wide, 3))
      return Error("member \"" + name + "\" has no readable zip64 sizes");
    directory = directory.subspan(kEntryBytes + nameBytes + extraBytes + commentBytes);
    if (!std::string_view(name).ends_with(".npy"))
      continue;
    name.resize(name.size() - 4);
    if (flags & 1)
      return Error("member \"" + name + "\" is encrypted", "store it with numpy.savez");
    if (method != 0 && method != 8)
      return Error("member \"" + name + "\" is packed by zip method " + std::to_string(method) +
                       ", we read 0 (stored) and 8 (deflated)",
                   "store it with numpy.savez");
    member.deflated = method == 8;
    if (!member.deflated && member.packed != member.size)
      return Error("member \"" + name + "\" is stored, yet has two sizes: " + std::to_string(member.packed) +
                   " and " + std::to_string(member.size));
    if (!members_.emplace(name, member).second)
      return Error("has two members \"" + name + "\"");
  }
  return success();
}

Expected<NpzFile> NpzFile::open(const std::string &path, const NpzLimits &limits) {
  ZEROCC_ASSIGN(std::shared_ptr<const MappedFile> file, MappedFile::open(path));
  NpzFile npz;
  npz.file_ = std::move(file);
  npz.limits_ = limits;
  if (Status status = npz.readDirectory(); !status)
    return status.error().in(path);
  return npz;
}

std::vector<std::string> NpzFile::names() const {
  std::vector<std::string> names;
  for (const auto &[name, member] : members_)
    names.push_back(name);
  return names;
}

static uint32_t checksumOf(Bytes bytes) { return crc32_z(0, bytes.data(), bytes.size()); }

static Expected<std::shared_ptr<unsigned char[]>> inflateWhole(Bytes packed, uint64_t size) {
  std::shared_ptr<unsigned char[]> memory(new (std::nothrow) unsigned char[size]);
  if (!memory)
    return Error("there is no memory for " + std::to_string(size) + " inflated bytes");
  z_stream stream = {};
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK)
    return Error("zlib cannot start");
  // zlib counts in 32 bits: both ends are handed over in pieces.
  constexpr uint64_t kPiece = 1 << 30;
  uint64_t taken = 0, made = 0;
  int result = Z_OK;
  while (result == Z_OK) {
    uint64_t in = std::min<uint64_t>(packed.size() - taken, kPiece), out = std::min(size - made, kPiece);
    stream.next_in = const_cast<unsigned char *>(packed.data()) + taken;
    stream.avail_in = static_cast<unsigned>(in);
    stream.next_out = memory.get() + made;
    stream.avail_out = static_cast<unsigned>(out);
    result = ::inflate(&stream, Z_NO_FLUSH);
    taken += in - stream.avail_in;
    made += out - stream.avail_out;
  }
  inflateEnd(&stream);
  if (result != Z_STREAM_END || made != size)
    return Error("its deflated data is damaged: " + std::to_string(made) + " of " + std::to_string(size) +
                 " bytes came out");
  return memory;
}

Expected<ArrayView> NpzFile::readMember(const Member &member) const {
  Bytes file = file_->bytes();
  if (member.offset > file.size() || file.size() - member.offset < kLocalBytes ||
      loadAt<uint32_t>(file, member.offset) != kLocalHeader)
    return Error("its zip header lies outside the file or is damaged");
  uint64_t headerBytes = kLocalBytes + uint64_t(loadAt<uint16_t>(file, member.offset + 26)) +
                         loadAt<uint16_t>(file, member.offset + 28);
  uint64_t room = file.size() - member.offset;
  if (headerBytes > room || member.packed > room - headerBytes)
    return Error("its " + std::to_string(member.packed) + " bytes reach beyond the end of the file");
  Bytes packed = file.subspan(member.offset + headerBytes, member.packed);
  if (!member.deflated) {
    if (member.size <= uint64_t(limits_.checkedBytes) && checksumOf(packed) != member.checksum)
      return Error("its checksum is wrong: the file is damaged");
    return parseNpy(packed, file_);
  }
  if (member.size / kMaxDeflateRatio > member.packed)
    return Error("is said to inflate from " + std::to_string(member.packed) + " to " +
                 std::to_string(member.size) + " bytes, which deflate cannot");
  if (member.size > uint64_t(limits_.inflatedBytes))
    return Error("inflates to " + std::to_string(member.size) + " bytes, the limit is " +
                     std::to_string(limits_.inflatedBytes),
                 "store it unpacked (numpy.savez, or numpy.save as .npy): then it is read in place");
  ZEROCC_ASSIGN(std::shared_ptr<unsigned char[]> memory, inflateWhole(packed, member.size));
  Bytes inflated(memory.get(), member.size);
  if (checksumOf(inflated) != member.checksum)
    return Error("its checksum is wrong: the file is damaged");
  return parseNpy(inflated, memory);
}

Expected<ArrayView> NpzFile::read(const std::string &name) const {
  auto at = members_.find(name);
  if (at == members_.end())
    return Error(path() + ": has no array \"" + name + "\"");
  Expected<ArrayView> view = readMember(at->second);
  if (!view)
    return view.error().in(path() + ": array \"" + name + "\"");
  return view;
}

// --- writing
// -----------------------------------------------------------------------------------------------------------

std::string npyHeader(ElementType type, const std::vector<int64_t> &dims) {
  std::string descr;
  for (const DescrRow &row : kDescrs)
    if (row.type == type)
      descr = std::string(byteSize(type) == 1 ? "|" : "<") + std::string(row.code);
  assert(!descr.empty() && "a type NumPy does not have");
  std::string text = "{'descr': '" + descr + "', 'fortran_order': False, 'shape': (";
  for (size_t i = 0; i < dims.size(); ++i)
    text += std::to_string(dims[i]) + (i + 1 < dims.size() ? ", " : dims.size() == 1 ? "," : "");
  text += "), }";
  text.append(63 - (10 + text.size()) % 64, ' ');
  text += '\n';
  std::string header(kMagic);
  header += '\1';
  header += '\0';
  header += static_cast<char>(text.size() & 0xff);
  header += static_cast<char>(text.size() >> 8);
  return header + text;
}

static Bytes payloadOf(const ArrayView &array) { return {array.data, static_cast<size_t>(array.bytes())}; }

Status writeNpy(const std::string &path, const ArrayView &array) {
  ZEROCC_ASSIGN(AtomicFile file, AtomicFile::create(path));
  ZEROCC_TRY(file.write(npyHeader(array.type, array.dims)));
  ZEROCC_TRY(file.write(payloadOf(array)));
  return file.commit();
}

template <typename T> static void append(std::string &out, T value) {
  out.append(reinterpret_cast<const char *>(&value), sizeof value);
}

Expected<NpzWriter> NpzWriter::create(const std::string &path) {
  ZEROCC_ASSIGN(AtomicFile file, AtomicFile::create(path));
  return NpzWriter(std::move(file));
}

// Sizes and offsets always stand in zip64 fields: one form, whatever the size.
Status NpzWriter::add(const std::string &name, const ArrayView &array) {
  std::string header = npyHeader(array.type, array.dims), member = name + ".npy";
  if (member.size() > 0xffff)
    return Error("array name is longer than 65535 bytes");
  uint32_t checksum = crc32_z(0, reinterpret_cast<const unsigned char *>(header.data()), header.size());
  checksum = crc32_z(checksum, array.data, array.bytes());
  uint64_t size = header.size() + uint64_t(array.bytes()), offset = file_.written();

  auto common = [&](std::string &out, uint16_t extraBytes) {
    append<uint16_t>(out, 45);       // version needed: zip64
    append<uint16_t>(out, 0x800);    // names are UTF-8
    append<uint16_t>(out, 0);        // stored
    append<uint32_t>(out, 0x210000); // time and date: 1980-01-01, so that same input gives same bytes
    append<uint32_t>(out, checksum);
    append<uint32_t>(out, 0xffffffff);
    append<uint32_t>(out, 0xffffffff);
    append<uint16_t>(out, static_cast<uint16_t>(member.size()));
    append<uint16_t>(out, extraBytes);
  };
  std::string local;
  append<uint32_t>(local, kLocalHeader);
  common(local, 20);
  local += member;
  append<uint16_t>(local, kZip64Extra);
  append<uint16_t>(local, 16);
  append<uint64_t>(local, size);
  append<uint64_t>(local, size);

  append<uint32_t>(directory_, kDirectoryEntry);
  append<uint16_t>(directory_, 45);
  common(directory_, 28);
  append<uint16_t>(directory_, 0); // comment
  append<uint16_t>(directory_, 0); // disk
  append<uint16_t>(directory_, 0); // internal attributes
  append<uint32_t>(directory_, 0); // external attributes
  append<uint32_t>(directory_, 0xffffffff);
  directory_ += member;
  append<uint16_t>(directory_, kZip64Extra);
  append<uint16_t>(directory_, 24);
  append<uint64_t>(directory_, size);
  append<uint64_t>(directory_, size);
  append<uint64_t>(directory_, offset);
  ++count_;

  ZEROCC_TRY(file_.write(local));
  ZEROCC_TRY(file_.write(header));
  return file_.write(payloadOf(array));
}

Status NpzWriter::finish() {
  uint64_t start = file_.written(), bytes = directory_.size();
  std::string end = std::move(directory_);
  append<uint32_t>(end, kZip64End);
  append<uint64_t>(end, kZip64EndBytes - 12);
  append<uint16_t>(end, 45);
  append<uint16_t>(end, 45);
  append<uint32_t>(end, 0);
  append<uint32_t>(end, 0);
  append<uint64_t>(end, count_);
  append<uint64_t>(end, count_);
  append<uint64_t>(end, bytes);
  append<uint64_t>(end, start);
  append<uint32_t>(end, kZip64Locator);
  append<uint32_t>(end, 0);
  append<uint64_t>(end, start + bytes);
  append<uint32_t>(end, 1);
  append<uint32_t>(end, kDirectoryEnd);
  append<uint32_t>(end, 0);
  append<uint16_t>(end, 0xffff);
  append<uint16_t>(end, 0xffff);
  append<uint32_t>(end, 0xffffffff);
  append<uint32_t>(end, 0xffffffff);
  append<uint16_t>(end, 0);
  ZEROCC_TRY(file_.write(end));
  return file_.commit();
}

} // namespace zerocc
