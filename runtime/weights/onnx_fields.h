#pragma once

#include <cstdint>

/// Field numbers of onnx.proto, as far as weights need them.
namespace zerocc::onnx_fields {

namespace model {
constexpr uint32_t kGraph = 7;
}
namespace graph {
constexpr uint32_t kNode = 1, kInitializer = 5;
}
namespace node {
constexpr uint32_t kOutput = 2, kOpType = 4, kAttribute = 5, kDomain = 7;
}
namespace attribute {
constexpr uint32_t kName = 1, kTensor = 5;
}
namespace tensor {
constexpr uint32_t kDims = 1, kDataType = 2, kSegment = 3, kFloatData = 4, kInt32Data = 5, kStringData = 6,
                   kInt64Data = 7, kName = 8, kRawData = 9, kDoubleData = 10, kUint64Data = 11,
                   kExternalData = 13, kDataLocation = 14;
}
namespace entry {
constexpr uint32_t kKey = 1, kValue = 2;
}

} // namespace zerocc::onnx_fields
