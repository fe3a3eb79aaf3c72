#pragma once

#include "compiler/support/expected.h"

#include "onnx/onnx_pb.h"

#include <cstdint>
#include <optional>
#include <string>

namespace zerocc {

bool isExternal(const onnx::TensorProto &tensor);

/// The entries of external_data: location is a must, offset and length are byte counts.
struct ExternalRange {
  std::string location;
  int64_t offset = 0;
  std::optional<int64_t> length;
  std::string checksum; // SHA-1 of the whole file, in hexadecimal; or empty
};
Expected<ExternalRange> externalRange(const onnx::TensorProto &tensor);

} // namespace zerocc
