#pragma once

#include "compiler/ir/module.h"
#include "compiler/onnx/files.h"
#include "compiler/onnx/wire_scan.h"

#include "onnx/onnx_pb.h"

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace zerocc {

constexpr int kMaxRank = 64; // of inputs and stored tensors

/// A parsed model whose big payloads stayed in their files.
class LoadedModel {
public:
  onnx::ModelProto proto;
  std::string path;        // as given; "<text>" for text
  std::optional<std::vector<std::string>> trained; // initializers, when the model has its own training form
  Links links = Links::refused; // on the way to external data
  bool weightless = false; // marked: external data is not there, the model is a shape to plan with

  /// Dtype and dims of a stored tensor; fails on dtypes without a counterpart and on dims that are negative or overflow.
  static Expected<TensorType> typeOf(const onnx::TensorProto &tensor);
  /// False for external tensors of a weightless model: their files are never opened.
  bool hasBytes(const onnx::TensorProto &tensor) const;
  /// Checks dims and that there are exactly as many payload bytes as they ask for, wherever these lie.
  Status checkPayload(const onnx::TensorProto &tensor);
  /// Little-endian row-major bytes: all, or `length` of them from `offset` on.
  Expected<std::string> bytesOf(const onnx::TensorProto &tensor) const;
  Expected<std::string> bytesOf(const onnx::TensorProto &tensor, int64_t offset, int64_t length) const;

  /// Notes on different tensors, of those checked so far, that share bytes of external files.
  std::vector<std::string> sharedBytes() const;
  /// A note on fields of the file that no known version of ONNX has, or "".
  std::string unknownFields() const;

private:
  friend Expected<std::unique_ptr<LoadedModel>> loadModel(const std::string &path, Links links);
  const PayloadRange *payloadOf(const onnx::TensorProto &tensor) const;
  Expected<const ReadOnlyFile *> externalFile(const std::string &location);
  Status checkExternal(const onnx::TensorProto &tensor, const TensorType &type);
  Status checkSum(const std::string &location, const std::string &checksum);

  struct ExternalUse {
    std::string tensor;
    int64_t begin, end;
  };

  std::unique_ptr<ReadOnlyFile> file_;
  std::vector<PayloadRange> payloads_;
  std::map<std::string, std::unique_ptr<ReadOnlyFile>> externalFiles_;
  std::map<std::string, std::string> checksums_;                // of external files, in hexadecimal
  std::map<std::string, std::vector<ExternalUse>> externalUses_; // by location
};

/// Reads a model file; nothing of it is checked yet but the wire format. *.onnxtxt is read as text.
Expected<std::unique_ptr<LoadedModel>> loadModel(const std::string &path, Links links = Links::refused);
Expected<std::unique_ptr<LoadedModel>> loadModelText(llvm::StringRef text);

/// The mark in the model's metadata_props; its value is "true".
constexpr const char *kWeightlessKey = "zerocc.weightless";

/// metadata_props of a message whose class is older than them, without those that are no UTF-8: `field` is their number
/// in that message.
std::map<std::string, std::string> metadataOf(const google::protobuf::Message &message, int field);
constexpr int kValueInfoMetadata = 4, kNodeMetadata = 9, kNodeOverload = 8, kGraphMetadata = 16, kTensorMetadata = 16,
              kFunctionMetadata = 14, kFunctionAttributes = 11, kFunctionOverload = 13;
/// A string field that the class may be too old to know, or "" where it is not there or no UTF-8.
std::string unknownString(const google::protobuf::Message &message, int field);
/// The name of a TensorProto data type: "float", "string", ….
std::string onnxTypeName(int32_t dataType);
std::optional<DType> dtypeFromOnnx(int32_t dataType);

} // namespace zerocc
