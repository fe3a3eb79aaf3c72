#include "runtime/checkpoint/index.h"

#include "compiler/support/json_depth.h"
#include "runtime/data/array.h"
#include "runtime/data/pipe_frame.h"

#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cstdio>
#include <set>

namespace zerocc {
namespace {

namespace json = llvm::json;

constexpr std::string_view kSchema = "zerocc.checkpoint/1";
constexpr std::string_view kHead = "{\"checksum\":\"", kHeadEnd = "\",\n";
constexpr size_t kBodyAt = kHead.size() + 32 + kHeadEnd.size();
constexpr int kMostNesting = 16;

std::string hexOf(const unsigned char *bytes, size_t count) {
  static const char *digits = "0123456789abcdef";
  std::string out;
  for (size_t i = 0; i < count; ++i) {
    out += digits[bytes[i] >> 4];
    out += digits[bytes[i] & 15];
  }
  return out;
}

std::string checksumOf(std::string_view bytes) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(bytes.data(), bytes.size()));
  return hexOf(canonical.digest, sizeof canonical.digest);
}

std::optional<uint64_t> fromHex16(std::string_view text) {
  uint64_t value = 0;
  for (char c : text) {
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0)
      return std::nullopt;
    value = value << 4 | static_cast<uint64_t>(digit);
  }
  return value;
}

/// An integer within ±2^62. Value::getAsInteger alone converts a double of 2^63, which is undefined.
std::optional<int64_t> integerOf(const json::Value &value) {
  const auto number = value.getAsNumber();
  if (!number || !(*number >= -0x1p62 && *number <= 0x1p62))
    return std::nullopt;
  const auto integer = value.getAsInteger();
  return integer ? std::optional<int64_t>(*integer) : std::nullopt;
}

/// Reads fields; the first fault stays.
class IndexReader {
public:
  Expected<CheckpointIndex> read(const json::Value &value) {
    const json::Object *root = value.getAsObject();
    if (!root)
      return Error("is not a JSON object");
    const std::string schema = text(*root, "schema");
    if (fault_.empty() && schema != kSchema)
      return Error("is written as \"" + schema + "\", this program reads \"" + std::string(kSchema) + "\"",
                   "use a zero-run as new as the one that wrote it");
    CheckpointIndex index;
    index.step = integer(*root, "step", 0);
    index.modelFile = text(*root, "model_file");
    index.modelFingerprint = text(*root, "model_fingerprint");
    index.planFingerprint = text(*root, "plan_fingerprint");
    index.numericsKey = text(*root, "numerics_key");
    index.optimizer = text(*root, "optimizer");
    index.precision = text(*root, "precision");
    if (const json::Object *mesh = object(*root, "mesh")) {
      index.shard = integer(*mesh, "shard", 1);
      index.replicate = integer(*mesh, "replicate", 1);
    }
    if (const json::Object *data = object(*root, "data")) {
      index.data.samples = integer(*data, "samples", 0);
      index.data.samplesPerStep = integer(*data, "samples_per_step", 0);
      index.data.fingerprint = text(*data, "fingerprint");
      if (data->get("pipe_token"))
        index.data.pipeToken = text(*data, "pipe_token");
      if (!isPipeToken(index.data.pipeToken))
        fail("\"pipe_token\" is not printable ASCII, or too long");
      if (llvm::StringRef(text(*data, "seed")).getAsInteger(10, index.data.seed))
        fail("\"seed\" is not a number");
      if (auto shuffle = data->getBoolean("shuffle"))
        index.data.shuffle = *shuffle;
      else
        fail("\"shuffle\" is missing");
    }
    if (const json::Object *eval = object(*root, "eval")) {
      index.eval.withoutImprovement = integer(*eval, "without_improvement", 0);
      const std::string best = text(*eval, "best_loss");
      double loss = 0;
      if (!best.empty() && llvm::StringRef(best).getAsDouble(loss))
        fail("\"best_loss\" is not a number");
      else if (!best.empty())
        index.eval.bestLoss = loss;
    }
    if (const json::Array *names = array(*root, "scalars"))
      for (const json::Value &name : *names)
        index.scalars.push_back(textOf(name, "scalars"));
    readFiles(*root, index);
    readTensors(*root, index);
    if (!fault_.empty())
      return Error(fault_);
    return index;
  }

private:
  void fail(std::string message) {
    if (fault_.empty())
      fault_ = std::move(message);
  }
  std::string missing(llvm::StringRef key) { return "\"" + key.str() + "\" is missing or of another type"; }
  int64_t integer(const json::Object &object, llvm::StringRef key, int64_t least) {
    const json::Value *value = object.get(key);
    const std::optional<int64_t> number = value ? integerOf(*value) : std::nullopt;
    if (number && *number >= least)
      return *number;
    fail(missing(key));
    return least;
  }
  std::string text(const json::Object &object, llvm::StringRef key) {
    auto value = object.getString(key);
    if (!value)
      fail(missing(key));
    return value ? value->str() : "";
  }
  std::string textOf(const json::Value &value, llvm::StringRef key) {
    auto text = value.getAsString();
    if (!text)
      fail("\"" + key.str() + "\" holds what is not a text");
    return text ? text->str() : "";
  }
  const json::Object *object(const json::Object &object, llvm::StringRef key) {
    const json::Object *value = object.getObject(key);
    if (!value)
      fail(missing(key));
    return value;
  }
  const json::Array *array(const json::Object &object, llvm::StringRef key) {
    const json::Array *value = object.getArray(key);
    if (!value)
      fail(missing(key));
    return value;
  }

  void readFiles(const json::Object &root, CheckpointIndex &index) {
    const json::Array *files = array(root, "files");
    std::set<std::string> names;
    for (size_t f = 0; files && f < files->size() && fault_.empty(); ++f) {
      const json::Object *entry = (*files)[f].getAsObject();
      if (!entry)
        return fail("\"files\" holds what is not an object");
      CheckpointFile &file = index.files.emplace_back();
      file.name = text(*entry, "name");
      file.bytes = integer(*entry, "bytes", 0);
      const std::string checksums = text(*entry, "checksums");
      const std::string who = "file \"" + file.name + "\"";
      // A plain name: an index must not lead outside of its folder.
      if (file.name.empty() || file.name[0] == '.' || file.name.find('/') != std::string::npos ||
          file.name.find('\0') != std::string::npos)
        return fail(who + " is not a plain file name");
      if (!names.insert(file.name).second)
        return fail(who + " is there twice");
      const int64_t blocks = file.bytes / kChecksumBlockBytes + (file.bytes % kChecksumBlockBytes != 0);
      if (static_cast<uint64_t>(blocks) != checksums.size() / 16 || checksums.size() % 16 != 0)
        return fail(who + " of " + std::to_string(file.bytes) + " bytes has " + std::to_string(checksums.size()) +
                    " digits of checksums");
      for (int64_t b = 0; b < blocks; ++b) {
        std::optional<uint64_t> sum = fromHex16(std::string_view(checksums).substr(b * 16, 16));
        if (!sum)
          return fail(who + " has a checksum that is not a number");
        file.checksums.push_back(*sum);
      }
    }
  }

  void readTensors(const json::Object &root, CheckpointIndex &index) {
    const json::Array *tensors = array(root, "tensors");
    for (size_t t = 0; tensors && t < tensors->size() && fault_.empty(); ++t) {
      const json::Object *entry = (*tensors)[t].getAsObject();
      if (!entry)
        return fail("\"tensors\" holds what is not an object");
      CheckpointTensor tensor;
      tensor.name = text(*entry, "name");
      const std::string who = "tensor \"" + tensor.name + "\"";
      std::optional<DType> dtype = dtypeFromName(text(*entry, "dtype"));
      if (!dtype)
        return fail(who + " is of a dtype that is not known");
      tensor.dtype = *dtype;
      if (const json::Array *dims = array(*entry, "dims"))
        for (const json::Value &dim : *dims) {
          const std::optional<int64_t> value = integerOf(dim);
          if (!value || *value < 0)
            return fail(who + " has a dim that is not a number");
          tensor.dims.push_back(*value);
        }
      std::optional<int64_t> elements = countElements(tensor.dims);
      if (!elements)
        return fail(who + " has impossible dims");
      const json::Array *pieces = array(*entry, "pieces");
      if (!pieces)
        return;
      int64_t at = 0;
      for (const json::Value &value : *pieces) {
        const json::Array *numbers = value.getAsArray();
        int64_t four[4] = {};
        bool isGood = numbers && numbers->size() == 4;
        for (int i = 0; isGood && i < 4; ++i) {
          const std::optional<int64_t> number = integerOf((*numbers)[i]);
          isGood = number && *number >= 0;
          four[i] = isGood ? *number : 0;
        }
        CheckpointPiece piece{four[0], four[1], four[2], four[3]};
        if (!isGood || piece.file >= static_cast<int64_t>(index.files.size()))
          return fail(who + " has a piece that is not [file, offset, begin, end]");
        if (piece.begin != at || piece.end <= piece.begin || piece.end > *elements)
          return fail(who + " has a piece [" + std::to_string(piece.begin) + ", " + std::to_string(piece.end) +
                      "), the one before it ends at " + std::to_string(at) + " of " + std::to_string(*elements));
        const int64_t bytes = (piece.end - piece.begin) * byteSize(tensor.dtype); // countElements leaves room
        const int64_t fileBytes = index.files[piece.file].bytes;
        if (bytes > fileBytes || piece.offset > fileBytes - bytes)
          return fail(who + " ends behind file \"" + index.files[piece.file].name + "\"");
        at = piece.end;
        tensor.pieces.push_back(piece);
      }
      if (at != *elements)
        return fail(who + " has pieces for " + std::to_string(at) + " of its " + std::to_string(*elements) +
                    " elements");
      if (!index.tensors.empty() && index.tensors.back().name >= tensor.name)
        return fail(who + " is there twice or out of order");
      index.tensors.push_back(std::move(tensor));
    }
    const CheckpointTensor *scalars = index.find("scalars");
    if (fault_.empty() && (!scalars || scalars->dtype != DType::f64 || scalars->dims.size() != 1 ||
                           scalars->dims[0] != static_cast<int64_t>(index.scalars.size())))
      fail("tensor \"scalars\" is missing, or has not one number for each name");
  }

  std::string fault_;
};

void writeBody(const CheckpointIndex &index, json::OStream &out) {
  out.attribute("schema", kSchema.data());
  out.attribute("step", index.step);
  out.attribute("model_file", indexName(index.modelFile));
  out.attribute("model_fingerprint", index.modelFingerprint);
  out.attribute("plan_fingerprint", index.planFingerprint);
  out.attribute("numerics_key", indexName(index.numericsKey));
  out.attribute("optimizer", indexName(index.optimizer));
  out.attribute("precision", indexName(index.precision));
  out.attributeObject("mesh", [&] {
    out.attribute("shard", index.shard);
    out.attribute("replicate", index.replicate);
  });
  out.attributeObject("data", [&] {
    out.attribute("samples", index.data.samples);
    out.attribute("samples_per_step", index.data.samplesPerStep);
    out.attribute("seed", std::to_string(index.data.seed)); // 64 bits are more than a number of JSON holds
    out.attribute("shuffle", index.data.shuffle);
    out.attribute("fingerprint", index.data.fingerprint);
    if (!index.data.pipeToken.empty())
      out.attribute("pipe_token", index.data.pipeToken);
  });
  out.attributeObject("eval", [&] {
    char best[32] = "";
    if (index.eval.bestLoss)
      std::snprintf(best, sizeof best, "%.17g", *index.eval.bestLoss);
    out.attribute("best_loss", best); // a text: JSON has no infinity
    out.attribute("without_improvement", index.eval.withoutImprovement);
  });
  out.attributeArray("scalars", [&] {
    for (const std::string &name : index.scalars)
      out.value(indexName(name));
  });
  out.attributeArray("files", [&] {
    for (const CheckpointFile &file : index.files)
      out.object([&] {
        out.attribute("name", file.name);
        out.attribute("bytes", file.bytes);
        std::string checksums;
        for (uint64_t sum : file.checksums)
          checksums += hex16(sum);
        out.attribute("checksums", checksums);
      });
  });
  out.attributeArray("tensors", [&] {
    for (const CheckpointTensor &tensor : index.tensors)
      out.object([&] {
        out.attribute("name", tensor.name);
        out.attribute("dtype", llvm::StringRef(dtypeName(tensor.dtype).data(), dtypeName(tensor.dtype).size()));
        out.attributeArray("dims", [&] {
          for (int64_t dim : tensor.dims)
            out.value(dim);
        });
        out.attributeArray("pieces", [&] {
          for (const CheckpointPiece &piece : tensor.pieces)
            out.array([&] {
              out.value(piece.file);
              out.value(piece.offset);
              out.value(piece.begin);
              out.value(piece.end);
            });
        });
      });
  });
}

} // namespace

uint64_t blockChecksum(const void *bytes, int64_t count) { return XXH3_64bits(bytes, static_cast<size_t>(count)); }

std::string hex16(uint64_t value) {
  unsigned char bytes[8];
  for (int i = 0; i < 8; ++i)
    bytes[i] = static_cast<unsigned char>(value >> (56 - 8 * i));
  return hexOf(bytes, 8);
}

std::string indexName(const std::string &name) { return json::isUTF8(name) ? name : json::fixUTF8(name); }

const CheckpointTensor *CheckpointIndex::find(std::string_view name) const {
  auto at = std::lower_bound(tensors.begin(), tensors.end(), name,
                             [](const CheckpointTensor &tensor, std::string_view key) { return tensor.name < key; });
  return at != tensors.end() && at->name == name ? &*at : nullptr;
}

std::string writeIndex(const CheckpointIndex &index) {
  std::string body;
  llvm::raw_string_ostream stream(body);
  stream << "\"checkpoint\":";
  json::OStream out(stream);
  out.object([&] { writeBody(index, out); });
  stream << "}\n";
  stream.flush();
  return std::string(kHead) + checksumOf(body) + std::string(kHeadEnd) + body;
}

Expected<CheckpointIndex> parseIndexBody(std::string_view text, const std::string &name) {
  if (isJsonDeeper(text, kMostNesting))
    return Error(name + ": is not the index of a checkpoint");
  llvm::Expected<json::Value> value = json::parse(llvm::StringRef(text.data(), text.size()));
  if (!value)
    return Error(name + ": is not JSON: " + llvm::toString(value.takeError()));
  auto index = IndexReader().read(*value);
  return index ? index : Expected<CheckpointIndex>(index.error().in(name));
}

Expected<CheckpointIndex> parseIndex(std::string_view text, const std::string &name) {
  constexpr std::string_view kBody = "\"checkpoint\":";
  if (text.size() < kBodyAt + kBody.size() || text.substr(0, kHead.size()) != kHead ||
      text.substr(kHead.size() + 32, kHeadEnd.size()) != kHeadEnd ||
      text.substr(kBodyAt, kBody.size()) != kBody)
    return Error(name + ": is cut short, or not the index of a checkpoint");
  const std::string_view body = text.substr(kBodyAt);
  if (checksumOf(body) != text.substr(kHead.size(), 32) || body.substr(body.size() - 2) != "}\n")
    return Error(name + ": is damaged: its checksum is " + std::string(text.substr(kHead.size(), 32)) +
                 ", its content has " + checksumOf(body));
  return parseIndexBody(body.substr(kBody.size(), body.size() - kBody.size() - 2), name);
}

} // namespace zerocc
