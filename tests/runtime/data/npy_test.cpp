#include "runtime/data/npy.h"

#include "tests/runtime/data/temporary_folder.h"

#include <cstring>
#include <gtest/gtest.h>
#include <numeric>
#include <sys/stat.h>
#include <zlib.h>

namespace zerocc {
namespace {

template <typename T>
ArrayView viewOf(ElementType type, std::vector<int64_t> dims, const std::vector<T> &values) {
  ArrayView view;
  view.type = type;
  view.dims = std::move(dims);
  view.elements = static_cast<int64_t>(values.size());
  view.data = reinterpret_cast<const unsigned char *>(values.data());
  return view;
}

std::string npy(const std::string &dict, const std::string &payload, int version = 1) {
  std::string text = dict + "\n", out = "\x93NUMPY";
  out += static_cast<char>(version);
  out += '\0';
  uint32_t bytes = text.size();
  out.append(reinterpret_cast<const char *>(&bytes), version == 1 ? 2 : 4);
  return out + text + payload;
}

Expected<ArrayView> parse(const std::string &file) {
  // a copy of exact size, so that a sanitizer sees every byte read beyond the end
  std::shared_ptr<unsigned char[]> copy(new unsigned char[file.size()]);
  std::memcpy(copy.get(), file.data(), file.size());
  return parseNpy(Bytes(copy.get(), file.size()), copy);
}

std::string messageOf(const Expected<ArrayView> &view) { return view ? "no error" : view.error().text(); }

TEST(Npy, ReadsWhatItWrites) {
  TemporaryFolder folder;
  std::vector<int32_t> values(6);
  std::iota(values.begin(), values.end(), -2);
  for (std::vector<int64_t> dims : {std::vector<int64_t>{2, 3}, {6}, {1, 6, 1}}) {
    ASSERT_TRUE(writeNpy(folder / "a.npy", viewOf(ElementType::i32, dims, values)));
    Expected<ArrayView> view = readNpy(folder / "a.npy");
    ASSERT_TRUE(view) << view.error().text();
    EXPECT_EQ(view->type, ElementType::i32);
    EXPECT_EQ(view->dims, dims);
    EXPECT_EQ(std::memcmp(view->data, values.data(), 24), 0);
    EXPECT_EQ(readFile(folder / "a.npy").size() % 8, 0u);
  }
}

TEST(Npy, ReadsAllVersionsAndTypes) {
  for (int version : {1, 2, 3})
    for (auto [descr, bytes] : {std::pair("<f2", 2),
                                {"<f4", 4},
                                {"<f8", 8},
                                {"|i1", 1},
                                {"<i2", 2},
                                {"<i4", 4},
                                {"<i8", 8},
                                {"|u1", 1},
                                {"<u2", 2},
                                {"<u4", 4},
                                {"<u8", 8},
                                {"|b1", 1}}) {
      std::string dict = std::string("{'descr': '") + descr + "', 'fortran_order': False, 'shape': (3,), }";
      Expected<ArrayView> view = parse(npy(dict, std::string(3 * bytes, 'x'), version));
      ASSERT_TRUE(view) << descr << view.error().text();
      EXPECT_EQ(view->bytes(), 3 * bytes);
    }
}

TEST(Npy, SaysWhyItRefuses) {
  auto message = [](const std::string &dict, const std::string &payload = "") {
    return messageOf(parse(npy(dict, payload)));
  };
  EXPECT_EQ(message("{'descr': '|O', 'fortran_order': False, 'shape': (3,), }"),
            "error: holds Python objects (dtype object), which can only be read by running code\n"
            "  hint: store numbers: array.astype(numpy.int64) or numpy.float32\n");
  EXPECT_EQ(message("{'descr': '>f4', 'fortran_order': False, 'shape': (1,), }", "1234"),
            "error: is big-endian (>f4)\n  hint: store it with array.astype('<f4')\n");
  EXPECT_EQ(message("{'descr': '<f4', 'fortran_order': True, 'shape': (1,), }", "1234"),
            "error: is in Fortran order\n  hint: store it with numpy.ascontiguousarray(array)\n");
  EXPECT_EQ(message("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", "1234567"),
            "error: has 7 bytes of data, f32[2] needs 8\n  hint: the file was cut off: copy it again\n");
  EXPECT_EQ(message("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }", "12345"),
            "error: has 5 bytes of data, f32[1] needs 4\n");
  EXPECT_EQ(message("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }", "1234"),
            "error: holds records (structured dtype)\n  hint: store each field as an array of its own\n");
  EXPECT_EQ(message("{'descr': '<U3', 'fortran_order': False, 'shape': (1,), }", "1234"),
            "error: has elements of dtype \"<U3\", which are not numbers we read\n"
            "  hint: store f2, f4, f8, i1 to i8, u1 to u8 or b1\n");
  EXPECT_EQ(messageOf(parse("\x80\x04pickle")),
            "error: is a Python pickle, which can only be read by running code\n"
            "  hint: store it with numpy.save\n");
}

TEST(Npy, RefusesDamagedHeaders) {
  for (const char *dict : {
           "",
           "{",
           "}",
           "{'descr'",
           "{'descr': }",
           "[]",
           "{'descr': '<f4'}",
           "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,), }",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'more': 1}",
           "{'descr': '<f4', 'fortran_order': 0, 'shape': (1,), }",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (1.0,), }",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775808,), }",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296,4294967296), }",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (0,4294967296,4294967296), }",
           "{'descr': '<f4', 'fortran_order': False, 'shape': 1, }",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), } # more",
           "{'descr': '<f4' 'fortran_order': False, 'shape': (1,), }",
           "{'descr': '', 'fortran_order': False, 'shape': (1,), }",
       })
    EXPECT_FALSE(parse(npy(dict, "1234"))) << dict;
  std::string longHeader = npy("{}", "", 2);
  std::memset(&longHeader[8], 0xff, 4);
  EXPECT_FALSE(parse(longHeader));
  EXPECT_FALSE(parse(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }", "1234", 4)));
}

TEST(Npy, EveryTruncationIsAnError) {
  for (int version : {1, 2}) {
    std::string file = npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", "12345678", version);
    ASSERT_TRUE(parse(file));
    for (size_t bytes = 0; bytes < file.size(); ++bytes)
      EXPECT_FALSE(parse(file.substr(0, bytes))) << bytes;
  }
}

// --- .npz ---

struct Archive {
  TemporaryFolder folder;
  std::string path = folder / "a.npz";
  std::vector<float> floats = {1, 2, 3, 4};
  std::vector<int64_t> integers = {5, -6, 7};

  Archive() {
    Expected<NpzWriter> writer = NpzWriter::create(path);
    EXPECT_TRUE(writer);
    EXPECT_TRUE(writer->add("x", viewOf(ElementType::f32, {2, 2}, floats)));
    EXPECT_TRUE(writer->add("grad/layer.0", viewOf(ElementType::i64, {3}, integers)));
    EXPECT_TRUE(writer->finish());
  }
};

TEST(Npz, ReadsWhatItWrites) {
  Archive archive;
  Expected<NpzFile> npz = NpzFile::open(archive.path);
  ASSERT_TRUE(npz) << npz.error().text();
  EXPECT_EQ(npz->names(), (std::vector<std::string>{"grad/layer.0", "x"}));
  Expected<ArrayView> x = npz->read("x"), layer = npz->read("grad/layer.0");
  ASSERT_TRUE(x && layer);
  EXPECT_EQ(x->dims, (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(std::memcmp(x->data, archive.floats.data(), 16), 0);
  EXPECT_EQ(elementAsInteger(layer->type, layer->data, 1), -6);
  EXPECT_FALSE(npz->read("y"));
  EXPECT_FALSE(std::filesystem::exists(archive.path + ".tmp"));
}

/// Opens an archive and reads all of it.
bool isReadable(const std::string &path, const NpzLimits &limits = {}) {
  Expected<NpzFile> npz = NpzFile::open(path, limits);
  if (!npz)
    return false;
  bool readable = !npz->names().empty();
  for (const std::string &name : npz->names())
    readable &= bool(npz->read(name));
  return readable;
}

TEST(Npz, EveryTruncationIsAnError) {
  Archive archive;
  std::string file = readFile(archive.path), cut = archive.folder / "cut.npz";
  for (size_t bytes = 0; bytes < file.size(); ++bytes) {
    writeFile(cut, file.substr(0, bytes));
    EXPECT_FALSE(isReadable(cut)) << bytes;
  }
}

TEST(Npz, ChangedBytesNeverCrash) {
  Archive archive;
  std::string file = readFile(archive.path), changed = archive.folder / "changed.npz";
  for (size_t at = 0; at < file.size(); ++at)
    for (unsigned char value : {0x00, 0xff, file[at] ^ 0x41}) {
      std::string copy = file;
      copy[at] = static_cast<char>(value);
      writeFile(changed, copy);
      isReadable(changed);
    }
}

std::string deflated(const std::string &bytes) {
  std::string out(compressBound(bytes.size()) + 64, '\0');
  z_stream stream = {};
  EXPECT_EQ(deflateInit2(&stream, 9, Z_DEFLATED, -MAX_WBITS, 9, Z_DEFAULT_STRATEGY), Z_OK);
  stream.next_in = reinterpret_cast<Bytef *>(const_cast<char *>(bytes.data()));
  stream.avail_in = bytes.size();
  stream.next_out = reinterpret_cast<Bytef *>(out.data());
  stream.avail_out = out.size();
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

/// A zip archive without zip64 of one member, with the sizes its directory is to tell.
std::string zipOf(const std::string &name, const std::string &packed, uint32_t size, uint32_t checksum,
                  uint16_t method, uint16_t flags = 0) {
  auto put = [](std::string &out, uint64_t value, int bytes) {
    out.append(reinterpret_cast<char *>(&value), bytes);
  };
  auto fields = [&](std::string &out) {
    put(out, 20, 2), put(out, flags, 2), put(out, method, 2), put(out, 0, 4), put(out, checksum, 4);
    put(out, packed.size(), 4), put(out, size, 4), put(out, name.size(), 2), put(out, 0, 2);
  };
  std::string out, directory;
  put(out, 0x04034b50, 4);
  fields(out);
  out += name + packed;
  put(directory, 0x02014b50, 4), put(directory, 20, 2);
  fields(directory);
  put(directory, 0, 6), put(directory, 0, 8);
  directory += name;
  uint64_t start = out.size();
  out += directory;
  put(out, 0x06054b50, 4), put(out, 0, 4), put(out, 1, 2), put(out, 1, 2), put(out, directory.size(), 4);
  put(out, start, 4), put(out, 0, 2);
  return out;
}

TEST(Npz, ReadsDeflatedMembersAndCapsBombs) {
  TemporaryFolder folder;
  std::string member =
      npy("{'descr': '|u1', 'fortran_order': False, 'shape': (100000,), }", std::string(100000, 'a'));
  uint32_t checksum = crc32(0, reinterpret_cast<const Bytef *>(member.data()), member.size());
  std::string packed = deflated(member), path = folder / "d.npz";

  writeFile(path, zipOf("a.npy", packed, member.size(), checksum, 8));
  ASSERT_TRUE(isReadable(path));
  Expected<ArrayView> view = NpzFile::open(path)->read("a");
  EXPECT_EQ(view->data[99999], 'a');
  EXPECT_FALSE(isReadable(path, {.inflatedBytes = 1000}));

  writeFile(path, zipOf("a.npy", packed, 4000000000u, checksum, 8)); // beyond what deflate can do
  EXPECT_FALSE(isReadable(path));
  writeFile(path, zipOf("a.npy", packed, member.size() + 1, checksum, 8));
  EXPECT_FALSE(isReadable(path));
  writeFile(path, zipOf("a.npy", packed, member.size() - 1, checksum, 8));
  EXPECT_FALSE(isReadable(path));
  writeFile(path, zipOf("a.npy", packed, member.size(), checksum + 1, 8));
  EXPECT_FALSE(isReadable(path));
  writeFile(path, zipOf("a.npy", packed.substr(0, packed.size() / 2), member.size(), checksum, 8));
  EXPECT_FALSE(isReadable(path));
  writeFile(path, zipOf("a.npy", packed, member.size(), checksum, 12)); // bzip2
  EXPECT_FALSE(isReadable(path));
  writeFile(path, zipOf("a.npy", packed, member.size(), checksum, 8, /*flags=*/1)); // encrypted
  EXPECT_FALSE(isReadable(path));
}

TEST(Npz, ReadsRecordedTrainings) {
  Expected<NpzFile> npz = NpzFile::open(ZEROCC_SOURCE_DIR "/models/mlp.ref.npz");
  ASSERT_TRUE(npz) << npz.error().text();
  Expected<ArrayView> loss = npz->read("loss");
  ASSERT_TRUE(loss) << loss.error().text();
  EXPECT_EQ(loss->type, ElementType::f64);
  EXPECT_EQ(loss->dims, std::vector<int64_t>{20});
}

// --- mapped files ---

TEST(MappedFile, OpensWhatIsBeneathOnly) {
  TemporaryFolder folder;
  std::filesystem::create_directories(folder / "model/sub");
  writeFile(folder / "secret", "s");
  writeFile(folder / "model/sub/w.data", "w");
  std::filesystem::create_symlink(folder / "secret", folder / "model/link");
  std::filesystem::create_directory_symlink(folder.path(), folder / "model/up");
  std::filesystem::create_hard_link(folder / "secret", folder / "model/hard");
  ASSERT_EQ(mkfifo((folder / "model/fifo").c_str(), 0600), 0);

  for (bool byComponents : {false, true}) {
    auto opens = [&](const std::string &name) {
      return bool(MappedFile::openBeneath(folder / "model", name, byComponents));
    };
    EXPECT_TRUE(opens("sub/w.data"));
    EXPECT_TRUE(opens("./sub//w.data"));
    for (const char *name : {"../secret", "sub/../../secret", "link", "up/secret", "hard", "fifo", "sub", "",
                             ".", "/etc/passwd", "C:\\x", "sub\\w.data", "missing"})
      EXPECT_FALSE(opens(name)) << name;
    EXPECT_FALSE(opens(std::string("sub/w.data\0x", 12)));
  }
}

TEST(MappedFile, SaysWhatIsWrong) {
  TemporaryFolder folder;
  EXPECT_EQ(MappedFile::open(folder / "no").error().text(),
            "error: " + folder.path() + "/no: cannot be opened: No such file or directory\n");
  EXPECT_FALSE(MappedFile::open(folder.path()));
  writeFile(folder / "empty", "");
  Expected<std::shared_ptr<const MappedFile>> empty = MappedFile::open(folder / "empty");
  ASSERT_TRUE(empty);
  EXPECT_EQ((*empty)->bytes().size(), 0u);
}

TEST(AtomicFile, LeavesNothingWithoutCommit) {
  TemporaryFolder folder;
  writeFile(folder / "f", "old");
  {
    Expected<AtomicFile> file = AtomicFile::create(folder / "f");
    ASSERT_TRUE(file);
    ASSERT_TRUE(file->write(std::string("new")));
  }
  EXPECT_EQ(readFile(folder / "f"), "old");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

} // namespace
} // namespace zerocc
