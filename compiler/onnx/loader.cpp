#include "compiler/onnx/loader.h"

#include "compiler/onnx/external_data.h"
#include "compiler/onnx/utf8_check.h"

#include "llvm/ADT/iterator_range.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/MathExtras.h"

#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "google/protobuf/unknown_field_set.h"
#include "google/protobuf/wire_format.h"
#include "onnx/defs/parser.h"

#include <cstring>
#include <exception>
#include <set>

namespace zerocc {
namespace {

constexpr size_t kMaxTextBytes = size_t(64) << 20;
constexpr int kMaxTextNesting = 64;

/// How an element is stored in the typed fields of TensorProto.
enum class TypedField { floats, doubles, int32s, int64s, uint64s };

TypedField typedFieldOf(DType dtype) {
  switch (dtype) {
  case DType::f32:
    return TypedField::floats;
  case DType::f64:
    return TypedField::doubles;
  case DType::i64:
    return TypedField::int64s;
  case DType::u32:
  case DType::u64:
    return TypedField::uint64s;
  default:
    return TypedField::int32s;
  }
}

int64_t typedElements(const onnx::TensorProto &tensor, TypedField field) {
  switch (field) {
  case TypedField::floats:
    return tensor.float_data_size();
  case TypedField::doubles:
    return tensor.double_data_size();
  case TypedField::int32s:
    return tensor.int32_data_size();
  case TypedField::int64s:
    return tensor.int64_data_size();
  case TypedField::uint64s:
    return tensor.uint64_data_size();
  }
  return 0;
}

int64_t allTypedElements(const onnx::TensorProto &tensor) {
  return int64_t(tensor.float_data_size()) + tensor.double_data_size() + tensor.int32_data_size() +
         tensor.int64_data_size() + tensor.uint64_data_size() + tensor.string_data_size();
}

template <typename T, typename Values>
std::string packLittleEndian(const Values &values, int64_t begin, int64_t end) {
  end = std::min<int64_t>(end, values.size());
  std::string bytes(std::max<int64_t>(0, end - begin) * sizeof(T), '\0');
  for (int64_t i = begin; i < end; ++i) {
    using Bits = std::conditional_t<sizeof(T) == 8, uint64_t, std::conditional_t<sizeof(T) == 4, uint32_t,
                                    std::conditional_t<sizeof(T) == 2, uint16_t, uint8_t>>>;
    T value = static_cast<T>(values.Get(static_cast<int>(i)));
    Bits bits;
    std::memcpy(&bits, &value, sizeof(T));
    llvm::support::endian::write<Bits, llvm::support::little, llvm::support::unaligned>(
        &bytes[(i - begin) * sizeof(T)], bits);
  }
  return bytes;
}

/// Elements [begin, end).
std::string packTyped(const onnx::TensorProto &tensor, DType dtype, int64_t begin, int64_t end) {
  switch (dtype) {
  case DType::f32:
    return packLittleEndian<float>(tensor.float_data(), begin, end);
  case DType::f64:
    return packLittleEndian<double>(tensor.double_data(), begin, end);
  case DType::i64:
    return packLittleEndian<int64_t>(tensor.int64_data(), begin, end);
  case DType::i32:
    return packLittleEndian<int32_t>(tensor.int32_data(), begin, end);
  case DType::f16:
  case DType::bf16:
  case DType::i16:
  case DType::u16:
    return packLittleEndian<uint16_t>(tensor.int32_data(), begin, end);
  case DType::u32:
    return packLittleEndian<uint32_t>(tensor.uint64_data(), begin, end);
  case DType::u64:
    return packLittleEndian<uint64_t>(tensor.uint64_data(), begin, end);
  case DType::i8:
  case DType::u8:
  case DType::boolean:
    return packLittleEndian<uint8_t>(tensor.int32_data(), begin, end);
  }
  return "";
}

int deepestNesting(llvm::StringRef text) {
  int depth = 0, deepest = 0;
  for (char c : text) {
    if (c == '{' || c == '(' || c == '<' || c == '[')
      deepest = std::max(deepest, ++depth);
    else if (c == '}' || c == ')' || c == '>' || c == ']')
      --depth;
  }
  return deepest;
}

bool isMarkedWeightless(const onnx::ModelProto &model) {
  for (const onnx::StringStringEntryProto &entry : model.metadata_props())
    if (entry.key() == kWeightlessKey && entry.value() == "true")
      return true;
  return false;
}

/// ONNX's parser says "[ParseError at position (line: 3 column: 1)]\nError context: …\n" and what it missed.
std::string parserMessage(const std::string &message) {
  auto [position, rest] = llvm::StringRef(message).trim().split('\n');
  auto [context, problem] = rest.split('\n');
  position.consume_front("[ParseError at position ");
  position.consume_back("]");
  context.consume_front("Error context: ");
  return problem.trim().rtrim('.').str() + " " + position.str() + ": " + context.trim().str();
}

} // namespace

std::string onnxTypeName(int32_t dataType) {
  constexpr const char *names[] = {"undefined", "float",   "uint8",  "int8",      "uint16",     "int16",
                                   "int32",     "int64",   "string", "bool",      "float16",    "double",
                                   "uint32",    "uint64",  "complex64", "complex128", "bfloat16", "float8e4m3fn",
                                   "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz", "uint4", "int4", "float4e2m1",
                                   "float8e8m0", "uint2", "int2"};
  if (dataType >= 0 && dataType < static_cast<int32_t>(std::size(names)))
    return names[dataType];
  return "data type " + std::to_string(dataType);
}

std::optional<DType> dtypeFromOnnx(int32_t dataType) {
  switch (dataType) {
  case onnx::TensorProto::FLOAT:
    return DType::f32;
  case onnx::TensorProto::DOUBLE:
    return DType::f64;
  case onnx::TensorProto::FLOAT16:
    return DType::f16;
  case onnx::TensorProto::BFLOAT16:
    return DType::bf16;
  case onnx::TensorProto::INT64:
    return DType::i64;
  case onnx::TensorProto::INT32:
    return DType::i32;
  case onnx::TensorProto::INT8:
    return DType::i8;
  case onnx::TensorProto::UINT8:
    return DType::u8;
  case onnx::TensorProto::INT16:
    return DType::i16;
  case onnx::TensorProto::UINT16:
    return DType::u16;
  case onnx::TensorProto::UINT32:
    return DType::u32;
  case onnx::TensorProto::UINT64:
    return DType::u64;
  case onnx::TensorProto::BOOL:
    return DType::boolean;
  default:
    return std::nullopt;
  }
}

Expected<TensorType> LoadedModel::typeOf(const onnx::TensorProto &tensor) {
  std::optional<DType> dtype = dtypeFromOnnx(tensor.data_type());
  if (!dtype)
    return Error("tensors of " + onnxTypeName(tensor.data_type()) + " are not supported");
  if (tensor.dims_size() > kMaxRank)
    return Error(std::to_string(tensor.dims_size()) + " dimensions; the limit is " + std::to_string(kMaxRank));
  TensorType type{*dtype, {}};
  int64_t bytes = byteSize(*dtype);
  for (int64_t dim : tensor.dims()) {
    if (dim < 0)
      return Error("negative dimension " + std::to_string(dim));
    if (llvm::MulOverflow(bytes, dim, bytes))
      return Error("its dimensions multiply to more than 2^63 bytes");
    type.dims.push_back(dim);
  }
  return type;
}

const PayloadRange *LoadedModel::payloadOf(const onnx::TensorProto &tensor) const {
  const google::protobuf::UnknownFieldSet &unknown = tensor.GetReflection()->GetUnknownFields(tensor);
  for (int i = 0; i < unknown.field_count(); ++i)
    if (unknown.field(i).number() == kPayloadField && unknown.field(i).varint() < payloads_.size())
      return &payloads_[unknown.field(i).varint()];
  return nullptr;
}

std::string LoadedModel::unknownFields() const {
  constexpr int kConfiguration = 26; // of ModelProto since IR 11: devices for multi-device execution
  const google::protobuf::UnknownFieldSet &unknown = proto.GetReflection()->GetUnknownFields(proto);
  google::protobuf::UnknownFieldSet foreign;
  std::set<int> numbers;
  for (int i = 0; i < unknown.field_count(); ++i)
    if (unknown.field(i).number() != kConfiguration) {
      foreign.AddField(unknown.field(i));
      numbers.insert(unknown.field(i).number());
    }
  if (numbers.empty())
    return "";
  constexpr size_t kShown = 8;
  std::string shown;
  for (int number : llvm::make_range(numbers.begin(), std::next(numbers.begin(), std::min(kShown, numbers.size()))))
    shown += (shown.empty() ? "" : ", ") + std::to_string(number);
  return std::to_string(foreign.field_count()) + " fields of the file that ONNX does not have are not read: " +
         (numbers.size() == 1 ? "number " : "numbers ") + shown + (numbers.size() > kShown ? ", …" : "") + "; " +
         std::to_string(google::protobuf::internal::WireFormat::ComputeUnknownFieldsSize(foreign)) + " bytes";
}

bool LoadedModel::hasBytes(const onnx::TensorProto &tensor) const { return !weightless || !isExternal(tensor); }

Status LoadedModel::checkPayload(const onnx::TensorProto &tensor) {
  ZEROCC_ASSIGN(TensorType type, typeOf(tensor));
  if (tensor.has_segment())
    return Error("tensors in segments are not supported");
  int64_t elements = type.elements(), bytes = type.bytes();
  const PayloadRange *payload = payloadOf(tensor);
  bool hasRaw = tensor.has_raw_data() || payload;
  int64_t typed = allTypedElements(tensor);
  if (isExternal(tensor)) {
    if (hasRaw || typed)
      return Error("it has both external data and data of its own");
    return checkExternal(tensor, type);
  }
  if (hasRaw && typed)
    return Error("it has both raw and typed data");
  if (hasRaw) {
    int64_t stored = payload ? payload->length : static_cast<int64_t>(tensor.raw_data().size());
    if (stored != bytes)
      return Error("raw data of " + std::to_string(stored) + " bytes for " + print(type) + ", which takes " +
                   std::to_string(bytes));
    return success();
  }
  int64_t stored = typedElements(tensor, typedFieldOf(type.dtype));
  if (stored != typed)
    return Error("it has data in a field of another type than " + onnxTypeName(tensor.data_type()));
  if (stored != elements)
    return Error(std::to_string(stored) + " stored elements for " + print(type) + ", which has " +
                 std::to_string(elements));
  return success();
}

Expected<std::string> LoadedModel::bytesOf(const onnx::TensorProto &tensor) const {
  ZEROCC_ASSIGN(TensorType type, typeOf(tensor));
  return bytesOf(tensor, 0, type.bytes());
}

Expected<std::string> LoadedModel::bytesOf(const onnx::TensorProto &tensor, int64_t offset, int64_t length) const {
  ZEROCC_ASSIGN(TensorType type, typeOf(tensor));
  assert(offset >= 0 && length >= 0 && offset + length <= type.bytes() && "bytes outside a tensor");
  if (!hasBytes(tensor))
    return Error("tensor \"" + tensor.name() + "\" has no values: the model is weightless");
  if (isExternal(tensor)) {
    ZEROCC_ASSIGN(ExternalRange range, externalRange(tensor));
    auto found = externalFiles_.find(range.location);
    if (found == externalFiles_.end() || !found->second)
      return Error("external data \"" + range.location + "\" was not opened");
    return found->second->read(range.offset + offset, length);
  }
  if (const PayloadRange *payload = payloadOf(tensor))
    return file_->read(payload->offset + offset, length);
  if (tensor.has_raw_data())
    return tensor.raw_data().substr(offset, length);
  const int64_t elementBytes = byteSize(type.dtype), begin = offset / elementBytes;
  const int64_t end = (offset + length + elementBytes - 1) / elementBytes;
  return packTyped(tensor, type.dtype, begin, end).substr(offset - begin * elementBytes, length);
}

Expected<std::unique_ptr<LoadedModel>> loadModelText(llvm::StringRef text) {
  if (text.size() > kMaxTextBytes)
    return Error("a text of " + std::to_string(text.size()) + " bytes; the limit is " + std::to_string(kMaxTextBytes));
  if (deepestNesting(text) > kMaxTextNesting)
    return Error("brackets are nested deeper than " + std::to_string(kMaxTextNesting));
  auto model = std::make_unique<LoadedModel>();
  model->path = "<text>";
  // ONNX's parser reports through its Status, and through exceptions of the number conversions it calls.
  try {
    std::string copy = text.str();
    onnx::OnnxParser parser(copy.c_str());
    onnx::Common::Status status = parser.Parse(model->proto);
    if (!status.IsOK())
      return Error("not valid ONNX text: " + parserMessage(status.ErrorMessage()));
    if (!parser.EndOfInput())
      return Error("not valid ONNX text: something follows the model at " + parser.GetCurrentPos());
  } catch (const std::exception &problem) {
    return Error(std::string("not valid ONNX text: ") + problem.what());
  }
  ZEROCC_TRY(checkUtf8(model->proto));
  model->weightless = isMarkedWeightless(model->proto);
  return model;
}

Expected<std::unique_ptr<LoadedModel>> loadModel(const std::string &path, Links links) {
  ZEROCC_ASSIGN(std::unique_ptr<ReadOnlyFile> file, ReadOnlyFile::open(path));
  if (file->size() > kMaxFileBytes)
    return Error("a file of " + std::to_string(file->size()) + " bytes; ONNX files end at 2 GiB",
                 "save the weights as external data");
  ZEROCC_ASSIGN(llvm::StringRef bytes, file->map());
  if (llvm::StringRef(path).endswith(".onnxtxt")) {
    ZEROCC_ASSIGN(std::unique_ptr<LoadedModel> model, loadModelText(bytes));
    model->path = path;
    model->links = links;
    model->file_ = std::move(file);
    return model;
  }
  ZEROCC_ASSIGN(ReducedModel reduced, scanModel(bytes));
  auto model = std::make_unique<LoadedModel>();
  model->path = path;
  model->links = links;
  model->payloads_ = std::move(reduced.payloads);
  google::protobuf::io::ArrayInputStream stream(reduced.bytes.data(), static_cast<int>(reduced.bytes.size()));
  google::protobuf::io::CodedInputStream coded(&stream);
  coded.SetTotalBytesLimit(INT_MAX);
  if (!model->proto.ParseFromCodedStream(&coded) || !coded.ConsumedEntireMessage())
    return Error("not a valid ONNX file: protobuf cannot parse it", "the file is damaged or not ONNX; export it again");
  ZEROCC_TRY(checkUtf8(model->proto));
  model->weightless = isMarkedWeightless(model->proto);
  model->file_ = std::move(file);
  return model;
}

std::string unknownString(const google::protobuf::Message &message, int field) {
  if (const google::protobuf::FieldDescriptor *known = message.GetDescriptor()->FindFieldByNumber(field))
    return message.GetReflection()->GetString(message, known);
  const google::protobuf::UnknownFieldSet &unknown = message.GetReflection()->GetUnknownFields(message);
  for (int i = 0; i < unknown.field_count(); ++i)
    if (unknown.field(i).number() == field &&
        unknown.field(i).type() == google::protobuf::UnknownField::TYPE_LENGTH_DELIMITED)
      return isUtf8(unknown.field(i).length_delimited()) ? unknown.field(i).length_delimited() : "";
  return "";
}

std::map<std::string, std::string> metadataOf(const google::protobuf::Message &message, int field) {
  std::map<std::string, std::string> entries;
  // A newer libonnx knows the field.
  if (const google::protobuf::FieldDescriptor *known = message.GetDescriptor()->FindFieldByNumber(field)) {
    const google::protobuf::Reflection *reflection = message.GetReflection();
    for (int i = 0; i < reflection->FieldSize(message, known); ++i) {
      onnx::StringStringEntryProto entry;
      entry.CopyFrom(reflection->GetRepeatedMessage(message, known, i));
      entries[entry.key()] = entry.value();
    }
    return entries;
  }
  const google::protobuf::UnknownFieldSet &unknown = message.GetReflection()->GetUnknownFields(message);
  for (int i = 0; i < unknown.field_count(); ++i) {
    if (unknown.field(i).number() != field ||
        unknown.field(i).type() != google::protobuf::UnknownField::TYPE_LENGTH_DELIMITED)
      continue;
    onnx::StringStringEntryProto entry;
    if (entry.ParseFromString(unknown.field(i).length_delimited()) && isUtf8(entry.key()) && isUtf8(entry.value()))
      entries[entry.key()] = entry.value();
  }
  return entries;
}

} // namespace zerocc
