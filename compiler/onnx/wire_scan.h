#pragma once

#include "compiler/support/expected.h"

#include "llvm/ADT/StringRef.h"

#include <cstdint>
#include <string>
#include <vector>

namespace zerocc {

/// Bytes of the model file that were left out of the parsed message.
struct PayloadRange {
  int64_t offset = 0, length = 0;
};

/// A serialized ModelProto without its big payloads.
struct ReducedModel {
  std::string bytes;                  // a tensor's raw_data above kInlinePayload is replaced by kPayloadField
  std::vector<PayloadRange> payloads; // what kPayloadField counts
};

constexpr int64_t kInlinePayload = 4096;      // bytes of raw_data that stay in the message
constexpr int kPayloadField = 536870000;      // of TensorProto, ours: index into ReducedModel::payloads
constexpr int64_t kMaxFileBytes = (int64_t(1) << 31) - 1;
constexpr int64_t kMaxNodes = 1000000;        // in the file, and after inlining
constexpr int64_t kMaxTensors = 1000000;
constexpr int64_t kMaxAttributes = 10000000;
constexpr int kMaxMessageDepth = 100;         // protobuf's own limit

/// Walks the wire format of a ModelProto before protobuf sees it: refuses what is truncated, nested too deep or too
/// numerous, and takes the weights out, so that they are never copied.
Expected<ReducedModel> scanModel(llvm::StringRef bytes);

} // namespace zerocc
