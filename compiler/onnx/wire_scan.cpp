// A message is a row of fields: tag (number, wire type), then a varint, 4 or 8 bytes, or a length and that many bytes.
// The scan knows only those messages in which tensors, nodes and attributes occur, as a table of (message, field) ->
// message; every other field is copied as it is. Cost: each byte of a message that is not a payload is copied once per
// level of nesting.

#include "compiler/onnx/wire_scan.h"

#include <optional>

namespace zerocc {
namespace {

enum class Message { model, graph, function, node, attribute, tensor, sparseTensor, trainingInfo };

struct Child {
  Message parent;
  uint64_t field;
  Message message;
};
// Field numbers of onnx.proto; they are the format and never change.
constexpr Child kChildren[] = {
    {Message::model, 7, Message::graph},          {Message::model, 20, Message::trainingInfo},
    {Message::model, 25, Message::function},      {Message::trainingInfo, 1, Message::graph},
    {Message::trainingInfo, 2, Message::graph},   {Message::graph, 1, Message::node},
    {Message::graph, 5, Message::tensor},         {Message::graph, 15, Message::sparseTensor},
    {Message::function, 7, Message::node},        {Message::function, 11, Message::attribute},
    {Message::node, 5, Message::attribute},       {Message::attribute, 5, Message::tensor},
    {Message::attribute, 6, Message::graph},      {Message::attribute, 10, Message::tensor},
    {Message::attribute, 11, Message::graph},     {Message::attribute, 22, Message::sparseTensor},
    {Message::attribute, 23, Message::sparseTensor}, {Message::sparseTensor, 1, Message::tensor},
    {Message::sparseTensor, 2, Message::tensor},
};
constexpr uint64_t kRawData = 9; // of a tensor

std::optional<Message> childOf(Message parent, uint64_t field) {
  for (const Child &child : kChildren)
    if (child.parent == parent && child.field == field)
      return child.message;
  return std::nullopt;
}

enum WireType : uint64_t { kVarint = 0, kFixed64 = 1, kDelimited = 2, kFixed32 = 5 };

void appendVarint(std::string &out, uint64_t value) {
  for (; value >= 0x80; value >>= 7)
    out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}

class Scanner {
public:
  explicit Scanner(llvm::StringRef file) : file_(file) {}

  /// Copies the message at [begin, end) to `out`, reduced.
  Status copyMessage(Message kind, size_t begin, size_t end, int depth, std::string &out) {
    if (depth > kMaxMessageDepth)
      return fail(begin, "messages are nested deeper than " + std::to_string(kMaxMessageDepth));
    ZEROCC_TRY(countMessage(kind, begin));
    bool hasRawData = false;
    for (size_t at = begin; at < end;) {
      size_t start = at;
      ZEROCC_ASSIGN(uint64_t tag, varint(at, end));
      uint64_t field = tag >> 3;
      if (field == 0)
        return fail(start, "field number 0");
      if ((tag & 7) != kDelimited) {
        ZEROCC_TRY(skipScalar(tag & 7, at, end));
        if (!isOurMark(kind, field))
          out.append(file_.data() + start, at - start);
        continue;
      }
      ZEROCC_ASSIGN(uint64_t length, varint(at, end));
      if (length > end - at)
        return fail(start, "a field of " + std::to_string(length) + " bytes where " + std::to_string(end - at) +
                               " are left");
      size_t contentEnd = at + length;
      if (std::optional<Message> child = childOf(kind, field)) {
        std::string content;
        ZEROCC_TRY(copyMessage(*child, at, contentEnd, depth + 1, content));
        appendVarint(out, tag);
        appendVarint(out, content.size());
        out += content;
      } else if (kind == Message::tensor && field == kRawData) {
        if (hasRawData)
          return fail(start, "a tensor with raw_data twice");
        hasRawData = true;
        if (length > static_cast<uint64_t>(kInlinePayload))
          appendMark(at, length, out);
        else
          out.append(file_.data() + start, contentEnd - start);
      } else if (!isOurMark(kind, field)) {
        out.append(file_.data() + start, contentEnd - start);
      }
      at = contentEnd;
    }
    return success();
  }

  std::vector<PayloadRange> payloads;

private:
  static bool isOurMark(Message kind, uint64_t field) { return kind == Message::tensor && field == kPayloadField; }

  void appendMark(size_t offset, uint64_t length, std::string &out) {
    appendVarint(out, (uint64_t(kPayloadField) << 3) | kVarint);
    appendVarint(out, payloads.size());
    payloads.push_back({static_cast<int64_t>(offset), static_cast<int64_t>(length)});
  }

  Error fail(size_t at, const std::string &what) const {
    return Error("not a valid ONNX file: " + what + " at byte " + std::to_string(at),
                 "the file is damaged or not ONNX; export it again");
  }

  Expected<uint64_t> varint(size_t &at, size_t end) const {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (at >= end)
        return fail(at, "the data ends inside a number");
      uint8_t byte = static_cast<uint8_t>(file_[at++]);
      value |= uint64_t(byte & 0x7f) << shift;
      if (!(byte & 0x80))
        return value;
    }
    return fail(at, "a number longer than 64 bits");
  }

  Status skipScalar(uint64_t wireType, size_t &at, size_t end) const {
    if (wireType == kVarint) {
      ZEROCC_TRY(varint(at, end));
      return success();
    }
    size_t width = wireType == kFixed64 ? 8 : wireType == kFixed32 ? 4 : 0;
    if (width == 0)
      return fail(at, "wire type " + std::to_string(wireType));
    if (end - at < width)
      return fail(at, "the data ends inside a number");
    at += width;
    return success();
  }

  Status countMessage(Message kind, size_t at) {
    auto count = [&](int64_t &counter, int64_t limit, const char *what) -> Status {
      if (++counter > limit)
        return fail(at, "more than " + std::to_string(limit) + " " + what);
      return success();
    };
    if (kind == Message::node)
      return count(nodes_, kMaxNodes, "nodes");
    if (kind == Message::tensor)
      return count(tensors_, kMaxTensors, "tensors");
    if (kind == Message::attribute)
      return count(attributes_, kMaxAttributes, "attributes");
    return success();
  }

  llvm::StringRef file_;
  int64_t nodes_ = 0, tensors_ = 0, attributes_ = 0;
};

} // namespace

Expected<ReducedModel> scanModel(llvm::StringRef bytes) {
  Scanner scanner(bytes);
  ReducedModel model;
  ZEROCC_TRY(scanner.copyMessage(Message::model, 0, bytes.size(), 0, model.bytes));
  model.payloads = std::move(scanner.payloads);
  return model;
}

} // namespace zerocc
