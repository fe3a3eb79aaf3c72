#include "runtime/weights/model_weights.h"

#include "runtime/weights/onnx_fields.h"
#include "runtime/weights/wire.h"

#include <algorithm>
#include <cstring>
#include <filesystem>

namespace zerocc {

using namespace onnx_fields;

// protobuf itself ends here; larger models keep their weights in other files
constexpr int64_t kMaxModelBytes = int64_t(1) << 31;
constexpr size_t kMaxNameBytes = 64 << 10, kMaxDims = 64;

static std::string textOf(Bytes bytes) {
  return {reinterpret_cast<const char *>(bytes.data()), bytes.size()};
}

struct OnnxType {
  ElementType type;
  uint32_t typedField;
};

static std::optional<OnnxType> onnxType(uint64_t number) {
  switch (number) {
  case 1:
    return OnnxType{ElementType::f32, tensor::kFloatData};
  case 2:
    return OnnxType{ElementType::u8, tensor::kInt32Data};
  case 3:
    return OnnxType{ElementType::i8, tensor::kInt32Data};
  case 4:
    return OnnxType{ElementType::u16, tensor::kInt32Data};
  case 5:
    return OnnxType{ElementType::i16, tensor::kInt32Data};
  case 6:
    return OnnxType{ElementType::i32, tensor::kInt32Data};
  case 7:
    return OnnxType{ElementType::i64, tensor::kInt64Data};
  case 9:
    return OnnxType{ElementType::boolean, tensor::kInt32Data};
  case 10:
    return OnnxType{ElementType::f16, tensor::kInt32Data};
  case 11:
    return OnnxType{ElementType::f64, tensor::kDoubleData};
  case 12:
    return OnnxType{ElementType::u32, tensor::kUint64Data};
  case 13:
    return OnnxType{ElementType::u64, tensor::kUint64Data};
  case 16:
    return OnnxType{ElementType::bf16, tensor::kInt32Data};
  default:
    return std::nullopt;
  }
}

static bool isTypedField(uint32_t number) {
  return (number >= tensor::kFloatData && number <= tensor::kInt64Data) || number == tensor::kDoubleData ||
         number == tensor::kUint64Data;
}

/// Bytes of one element of float_data and double_data; 0: the field holds varints.
static int64_t fixedBytes(uint32_t typedField) {
  return typedField == tensor::kFloatData ? 4 : typedField == tensor::kDoubleData ? 8 : 0;
}

/// Elements that one field of a repeated number holds, packed or single; -1 when it is damaged.
static int64_t elementsOf(const WireField &field) {
  int64_t fixed = fixedBytes(field.number), bytes = static_cast<int64_t>(field.payload.size());
  if (fixed > 0) {
    bool single = field.type == (fixed == 4 ? WireField::fixed32 : WireField::fixed64);
    return (single || field.type == WireField::bytes) && bytes % fixed == 0 ? bytes / fixed : -1;
  }
  if (field.type == WireField::varint)
    return 1;
  if (field.type != WireField::bytes || (bytes > 0 && field.payload.back() >= 0x80))
    return -1;
  return std::count_if(field.payload.begin(), field.payload.end(), [](unsigned char c) { return c < 0x80; });
}

static Error damaged(const char *what) {
  return Error(std::string(what) + " is damaged", "the file was cut off, or is no ONNX model");
}

/// Walks model, graph, nodes and tensors: a fixed depth, so nesting cannot exhaust the stack.
class ModelScanner {
public:
  ModelScanner(ModelWeights &weights, std::string folder, const ModelWeightsOptions &options)
      : weights_(weights), folder_(std::move(folder)), options_(options) {}

  Status scanModel(Bytes model) {
    WireReader reader(model);
    WireField field;
    bool hasGraph = false;
    for (WireReader::Next next; (next = reader.next(field)) != WireReader::Next::end;) {
      if (next == WireReader::Next::damaged)
        return damaged("model");
      if (field.number != model::kGraph)
        continue;
      if (hasGraph || field.type != WireField::bytes)
        return damaged("model");
      hasGraph = true;
      ZEROCC_TRY(scanGraph(field.payload));
    }
    return hasGraph ? success() : Status(Error("has no graph", "is it an ONNX model in binary form?"));
  }

private:
  Status scanGraph(Bytes message) {
    WireReader reader(message);
    WireField field;
    for (WireReader::Next next; (next = reader.next(field)) != WireReader::Next::end;) {
      if (next == WireReader::Next::damaged)
        return damaged("graph");
      if (field.number == graph::kInitializer) {
        if (field.type != WireField::bytes)
          return damaged("graph");
        ZEROCC_TRY(addTensor(field.payload, ""));
      } else if (field.number == graph::kNode) {
        if (field.type != WireField::bytes)
          return damaged("graph");
        ZEROCC_TRY(scanNode(field.payload));
      }
    }
    return success();
  }

  Status scanNode(Bytes message) {
    WireReader reader(message);
    WireField field;
    std::string output, opType, domain;
    Bytes value;
    for (WireReader::Next next; (next = reader.next(field)) != WireReader::Next::end;) {
      if (next == WireReader::Next::damaged)
        return damaged("node");
      if (field.type != WireField::bytes)
        continue;
      if (field.number == node::kOutput && field.payload.size() <= kMaxNameBytes)
        output = textOf(field.payload);
      else if (field.number == node::kOpType && field.payload.size() <= kMaxNameBytes)
        opType = textOf(field.payload);
      else if (field.number == node::kDomain && field.payload.size() <= kMaxNameBytes)
        domain = textOf(field.payload);
      else if (field.number == node::kAttribute)
        ZEROCC_TRY(scanAttribute(field.payload, value));
    }
    bool isConstant = opType == "Constant" && (domain.empty() || domain == "ai.onnx") && !output.empty();
    return isConstant && value.data() ? addTensor(value, output) : success();
  }

  Status scanAttribute(Bytes message, Bytes &value) {
    WireReader reader(message);
    WireField field;
    for (WireReader::Next next; (next = reader.next(field)) != WireReader::Next::end;) {
      if (next == WireReader::Next::damaged)
        return damaged("attribute");
      if (field.number == attribute::kTensor && field.type == WireField::bytes)
        value = field.payload;
    }
    return success();
  }

  /// `output`: name of a Constant node's output, empty for initializers.
  Status addTensor(Bytes message, const std::string &output) {
    ModelTensor found;
    found.message = message;
    found.isConstantNode = !output.empty();
    Status status = scanTensor(message, found);
    if (found.isConstantNode)
      found.name = output;
    if (!status)
      return status.error().in((found.isConstantNode ? "constant \"" : "initializer \"") + found.name + "\"");
    if (!weights_.byName_.emplace(found.name, weights_.tensors_.size()).second)
      return Error("has two tensors called \"" + found.name + "\"");
    weights_.tensors_.push_back(std::move(found));
    return success();
  }

  struct External {
    std::string location;
    int64_t offset = 0, length = -1;
  };

  Status scanTensor(Bytes message, ModelTensor &found) {
    WireReader reader(message);
    WireField field;
    Bytes raw;
    External external;
    int64_t typedElements = 0;
    uint32_t typedField = 0;
    bool isExternal = false, hasEntries = false;
    for (WireReader::Next next; (next = reader.next(field)) != WireReader::Next::end;) {
      if (next == WireReader::Next::damaged)
        return damaged("tensor");
      bool isBytes = field.type == WireField::bytes, isVarint = field.type == WireField::varint;
      if (isTypedField(field.number)) {
        int64_t elements = field.number == tensor::kStringData ? 1 : elementsOf(field);
        if (elements < 0)
          return damaged("tensor");
        if (elements > 0 && typedField != 0 && typedField != field.number)
          return Error("has data in two typed fields");
        if (elements > 0)
          typedField = field.number;
        typedElements += elements;
        continue;
      }
      switch (field.number) {
      case tensor::kDims:
        ZEROCC_TRY(takeDims(field, found.dims));
        break;
      case tensor::kDataType:
        if (!isVarint || field.value > 0xffff)
          return damaged("tensor");
        found.onnxType = static_cast<int>(field.value);
        break;
      case tensor::kSegment:
        return Error("is stored in segments, a form that was never used");
      case tensor::kName:
        if (!isBytes || field.payload.size() > kMaxNameBytes)
          return damaged("tensor");
        found.name = textOf(field.payload);
        break;
      case tensor::kRawData:
        if (!isBytes || raw.data())
          return damaged("tensor");
        raw = field.payload;
        break;
      case tensor::kExternalData:
        if (!isBytes)
          return damaged("tensor");
        hasEntries = true;
        ZEROCC_TRY(takeEntry(field.payload, external));
        break;
      case tensor::kDataLocation:
        if (!isVarint || field.value > 1)
          return damaged("tensor");
        isExternal = field.value == 1;
        break;
      }
    }
    std::optional<int64_t> elements = countElements(found.dims);
    if (!elements)
      return Error("has impossible dims " + dimsText(found.dims));
    found.elements = *elements;
    if ((isExternal || hasEntries) + (typedElements > 0) + (raw.data() && !raw.empty()) > 1)
      return Error("has its data in more than one place");
    if (hasEntries && !isExternal)
      return Error("names external data, but says its data is in the model");
    std::optional<OnnxType> type = onnxType(found.onnxType);
    if (!type) { // found, with its name, but not readable
      found.storage = isExternal ? ModelTensor::Storage::external : ModelTensor::Storage::raw;
      return success();
    }
    found.type = type->type;
    if (isExternal)
      return openExternal(external, found);
    if (typedElements > 0) {
      found.storage = ModelTensor::Storage::typed;
      found.typedField = typedField;
      if (typedField != type->typedField)
        return Error("is " + std::string(elementTypeName(type->type)) +
                     ", but has its data in the field of another "
                     "type (field " +
                     std::to_string(typedField) + ")");
      if (typedElements != *elements)
        return sizeError(found, typedElements, *elements, "elements");
      return success();
    }
    found.data = raw.data();
    found.bytes = static_cast<int64_t>(raw.size());
    found.offset = raw.data() ? raw.data() - weights_.file_->bytes().data() : 0;
    int64_t expected = *elements * byteSize(type->type);
    return found.bytes == expected ? success() : sizeError(found, found.bytes, expected, "bytes of data");
  }

  static Status sizeError(const ModelTensor &found, int64_t have, int64_t need, const char *what) {
    return Error("has " + std::to_string(have) + " " + what + ", " +
                 std::string(elementTypeName(*found.type)) + dimsText(found.dims) + " needs " +
                 std::to_string(need));
  }

  Status takeDims(const WireField &field, std::vector<int64_t> &dims) {
    Bytes packed = field.payload;
    uint64_t value = field.value;
    if (field.type != WireField::varint && field.type != WireField::bytes)
      return damaged("tensor");
    bool single = field.type == WireField::varint;
    while (single || !packed.empty()) {
      if (!single && !takeVarint(packed, value))
        return damaged("tensor");
      dims.push_back(static_cast<int64_t>(value));
      if (dims.size() > kMaxDims)
        return Error("has more than " + std::to_string(kMaxDims) + " dims");
      single = false;
    }
    return success();
  }

  Status takeEntry(Bytes message, External &external) {
    WireReader reader(message);
    WireField field;
    std::string key, value;
    for (WireReader::Next next; (next = reader.next(field)) != WireReader::Next::end;) {
      if (next == WireReader::Next::damaged || field.type != WireField::bytes ||
          field.payload.size() > kMaxNameBytes)
        return damaged("external data entry");
      if (field.number == entry::kKey)
        key = textOf(field.payload);
      else if (field.number == entry::kValue)
        value = textOf(field.payload);
    }
    if (key == "location") {
      external.location = value;
      return success();
    }
    if (key == "offset" || key == "length") {
      int64_t &target = key == "offset" ? external.offset : external.length;
      target = 0;
      bool isNumber = !value.empty();
      for (char c : value)
        isNumber = isNumber && c >= '0' && c <= '9' && !__builtin_mul_overflow(target, 10, &target) &&
                   !__builtin_add_overflow(target, c - '0', &target);
      return isNumber ? success()
                      : Status(Error("external data has " + key + " \"" + value + "\", not a number"));
    }
    if (key == "checksum" || key == "basepath")
      return success();
    return Error("external data has an unknown key \"" + key + "\"");
  }

  Status openExternal(const External &external, ModelTensor &found) {
    std::shared_ptr<const MappedFile> &file = weights_.externalFiles_[external.location];
    if (!file) {
      Expected<std::shared_ptr<const MappedFile>> opened =
          options_.followSymlinks ? MappedFile::openThroughLinks(folder_, external.location)
                                  : MappedFile::openBeneath(folder_, external.location);
      if (!opened)
        return opened.error().in("external data");
      file = *opened;
    }
    int64_t bytes = found.elements * byteSize(*found.type);
    if (external.length >= 0 && external.length != bytes)
      return sizeError(found, external.length, bytes, "bytes of external data");
    if (external.offset > file->size() || bytes > file->size() - external.offset)
      return Error("external data: bytes " + std::to_string(external.offset) + " to " +
                       std::to_string(external.offset) + "+" + std::to_string(bytes) +
                       " are beyond the end of " + file->path() + ", which has " +
                       std::to_string(file->size()),
                   "the file was cut off, or belongs to another model");
    found.storage = ModelTensor::Storage::external;
    found.location = external.location;
    found.offset = external.offset;
    found.data = file->bytes().data() + external.offset;
    found.bytes = bytes;
    return success();
  }

  ModelWeights &weights_;
  std::string folder_;
  ModelWeightsOptions options_;
};

Expected<ModelWeights> ModelWeights::open(const std::string &path, const ModelWeightsOptions &options) {
  ZEROCC_ASSIGN(std::shared_ptr<const MappedFile> file, MappedFile::open(path));
  if (file->size() >= kMaxModelBytes)
    return Error(path + ": has " + std::to_string(file->size()) + " bytes; protobuf ends at 2 GiB",
                 "keep the weights in external data");
  // External data lies beside the model itself; with links allowed, beside the link that was given.
  std::error_code failed;
  std::filesystem::path real = options.followSymlinks ? std::filesystem::absolute(path, failed)
                                                      : std::filesystem::canonical(path, failed);
  if (failed)
    return Error(path + ": its folder cannot be found: " + failed.message());
  ModelWeights weights;
  weights.file_ = std::move(file);
  Status status = ModelScanner(weights, real.parent_path(), options).scanModel(weights.file_->bytes());
  if (!status)
    return status.error().in(path);
  return weights;
}

const ModelTensor *ModelWeights::find(const std::string &name) const {
  auto at = byName_.find(name);
  return at == byName_.end() ? nullptr : &tensors_[at->second];
}

Status ModelWeights::read(const std::string &name, int64_t begin, int64_t end, DType want,
                          void *target) const {
  const ModelTensor *found = find(name);
  std::string where = file_->path() + ": tensor \"" + name + "\"";
  if (!found)
    return Error(where + " is not in the model", "is it the model the plan was compiled from?");
  if (!found->type)
    return Error(where + " is of ONNX type " + std::to_string(found->onnxType) + ", which is not read");
  if (begin < 0 || begin > end || end > found->elements)
    return Error(where + " has " + std::to_string(found->elements) + " elements, " + std::to_string(begin) +
                     " to " + std::to_string(end) + " are wanted",
                 "is it the model the plan was compiled from?");
  if (!isConvertible(*found->type, want))
    return Error(where + " is " + std::string(elementTypeName(*found->type)) + ", " +
                     std::string(dtypeName(want)) + " is wanted",
                 "is it the model the plan was compiled from?");
  Status status = success();
  if (found->storage == ModelTensor::Storage::typed) {
    status = readTyped(*found, begin, end, want, target);
  } else {
    int64_t bad =
        convert(*found->type, found->data + begin * byteSize(*found->type), end - begin, want, target);
    if (bad >= 0)
      status =
          Error("element " + std::to_string(begin + bad) + " does not fit " + std::string(dtypeName(want)));
  }
  if (!status)
    return status.error().in(where);
  return success();
}

/// Whether a varint of int32_data or uint64_data is a value of its narrower type. 16-bit floats lie there as
/// bits.
static bool isValueOf(ElementType type, uint64_t value) {
  int64_t number = static_cast<int64_t>(value);
  switch (type) {
  case ElementType::i8:
    return number == int8_t(number);
  case ElementType::i16:
    return number == int16_t(number);
  case ElementType::i32:
    return number == int32_t(number);
  case ElementType::u8:
  case ElementType::boolean:
    return value <= 0xff;
  case ElementType::u16:
  case ElementType::f16:
  case ElementType::bf16:
    return value <= 0xffff;
  case ElementType::u32:
    return value <= 0xffffffff;
  default:
    return true;
  }
}

Status ModelWeights::readTyped(const ModelTensor &found, int64_t begin, int64_t end, DType want,
                               void *target) const {
  const ElementType type = *found.type;
  const int64_t fixed = fixedBytes(found.typedField), wantBytes = byteSize(want);
  char *out = static_cast<char *>(target);
  int64_t at = 0; // index of the next element in the message
  auto give = [&](const void *elements, int64_t index, int64_t count) -> Status {
    int64_t bad = convert(type, elements, count, want, out + (index - begin) * wantBytes);
    return bad < 0 ? success()
                   : Status(Error("element " + std::to_string(index + bad) + " does not fit " +
                                  std::string(dtypeName(want))));
  };
  WireReader reader(found.message);
  WireField field;
  while (at < end && reader.next(field) == WireReader::Next::field) {
    if (field.number != found.typedField)
      continue;
    if (fixed > 0) { // a run of elements as they are
      int64_t count = static_cast<int64_t>(field.payload.size()) / fixed;
      int64_t from = std::max(begin, at), to = std::min(end, at + count);
      if (from < to)
        ZEROCC_TRY(give(field.payload.data() + (from - at) * fixed, from, to - from));
      at += count;
      continue;
    }
    Bytes packed = field.payload;
    uint64_t value = field.value;
    bool single = field.type == WireField::varint;
    for (; at < end && (single || !packed.empty()); ++at, single = false) {
      if (!single && !takeVarint(packed, value))
        return damaged("tensor");
      if (at < begin)
        continue;
      if (!isValueOf(type, value))
        return Error("element " + std::to_string(at) + " holds " + std::to_string(int64_t(value)) +
                     ", which is no " + std::string(elementTypeName(type)));
      unsigned char element[8];
      std::memcpy(element, &value, 8); // little-endian: the low bytes are the element
      ZEROCC_TRY(give(element, at, 1));
    }
  }
  return at >= end ? success() : Status(damaged("tensor"));
}

} // namespace zerocc
