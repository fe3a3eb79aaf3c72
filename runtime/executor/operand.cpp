#include "runtime/executor/operand.h"

#include "compiler/ops/op_kind.h"
#include "runtime/kernels/kernel.h"

namespace zerocc {
namespace {

/// Sizes in a file may be anything: products of them are formed wide, and given up beyond this.
using Wide = __int128;
constexpr Wide kLimit = Wide{1} << 62;

} // namespace

Expected<ByteRange> operandBytes(const plan::Plan &plan, const plan::Operand &operand, int64_t shardIndex) {
  if (operand.region() >= static_cast<uint32_t>(plan.regions_size()))
    return Error("region " + std::to_string(operand.region()) + " does not exist, the plan has " +
                 std::to_string(plan.regions_size()));
  if (operand.dtype() >= static_cast<uint32_t>(kDTypes))
    return Error("dtype " + std::to_string(operand.dtype()) + " does not exist");
  if (operand.dims_size() > kMaxRank)
    return Error("operand has " + std::to_string(operand.dims_size()) + " dims, at most " +
                 std::to_string(kMaxRank) + " are possible");
  if (operand.strides_size() != 0 && operand.strides_size() != operand.dims_size())
    return Error("operand has " + std::to_string(operand.dims_size()) + " dims but " +
                 std::to_string(operand.strides_size()) + " strides");
  Wide low = 0, high = 1, elements = 1;
  for (int i = operand.dims_size() - 1; i >= 0; --i) {
    const int64_t dim = operand.dims(i);
    if (dim < 0)
      return Error("dim " + std::to_string(i) + " of an operand is " + std::to_string(dim));
    const Wide stride = operand.strides_size() ? Wide{operand.strides(i)} : elements;
    if (dim > 0)
      (stride < 0 ? low : high) += (Wide{dim} - 1) * stride;
    elements *= dim;
    if (low < -kLimit || high > kLimit || elements > kLimit)
      return Error("operand of more than 2^62 elements");
  }
  const int64_t size = byteSize(static_cast<DType>(operand.dtype()));
  const Wide base = Wide{operand.offset()} + Wide{operand.rank_stride()} * shardIndex;
  const Wide begin = elements == 0 ? base : base + low * size;
  const Wide end = elements == 0 ? base : base + high * size;
  const plan::RegionSize &region = plan.regions(operand.region());
  if (begin < 0 || end > Wide{region.bytes()} || end > kLimit)
    return Error("operand leaves region " + region.name() + " of " + std::to_string(region.bytes()) +
                 " B: it is at byte " + std::to_string(operand.offset()));
  return ByteRange{static_cast<int64_t>(begin), static_cast<int64_t>(end)};
}

int64_t operandElements(const plan::Operand &operand) {
  int64_t elements = 1;
  for (int64_t dim : operand.dims())
    elements *= dim;
  return elements;
}

bool isRowMajor(const plan::Operand &operand) {
  int64_t expected = 1;
  for (int i = operand.strides_size() - 1; i >= 0; --i) {
    if (operand.dims(i) != 1 && operand.strides(i) != expected)
      return false;
    expected *= operand.dims(i);
  }
  return true;
}

Attributes attributesOf(const plan::Instruction &instruction) {
  Attributes attributes;
  for (const plan::Attribute &attribute : instruction.attributes()) {
    switch (attribute.value_case()) {
    case plan::Attribute::kInteger:
      attributes.set(attribute.name(), attribute.integer());
      break;
    case plan::Attribute::kReal:
      attributes.set(attribute.name(), attribute.real());
      break;
    case plan::Attribute::kText:
      attributes.set(attribute.name(), attribute.text());
      break;
    case plan::Attribute::kIntegers:
      attributes.set(attribute.name(), std::vector<int64_t>(attribute.integers().values().begin(),
                                                            attribute.integers().values().end()));
      break;
    case plan::Attribute::VALUE_NOT_SET:
      break;
    }
  }
  return attributes;
}

std::string instructionText(const plan::Plan &plan, const plan::Segment &segment, int index) {
  const plan::Instruction &instruction = segment.instructions(index);
  std::string text = "segment " + segment.name() + ", instruction " + std::to_string(index) + " (";
  text += instruction.op() < static_cast<uint32_t>(kOpKinds) ? opText(static_cast<OpKind>(instruction.op()))
                                                             : "op " + std::to_string(instruction.op());
  if (instruction.bucket() >= 0 && instruction.bucket() < plan.buckets_size())
    text += " #" + plan.buckets(instruction.bucket()).name();
  if (!instruction.location().empty())
    text += ", " + instruction.location();
  return text + ")";
}

} // namespace zerocc
