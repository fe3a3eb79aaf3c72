#include "passes/aliases.h"

namespace zerocc {

ByteRange AliasMap::rangeOf(const Value *value) {
  if (auto known = known_.find(value); known != known_.end())
    return known->second;
  ByteRange range{value, 0, value->type.bytes()};
  if (const Value *base = aliasedValue(value)) {
    range = rangeOf(base);
    if (value->place.kind == Place::Kind::value) {
      range.offset += value->place.offset * byteSize(base->type.dtype);
      range.bytes = value->type.bytes();
    } else if (value->definition->op == OpKind::Member && value->definition->attributes.getInt("part") == 0) {
      range.offset += value->definition->attributes.getInt("offset") * byteSize(base->type.dtype);
      range.bytes = value->type.bytes();
    }
  }
  known_[value] = range;
  return range;
}

bool isAsyncStart(OpKind op) {
  return op == OpKind::FetchStart || op == OpKind::ReduceStart || op == OpKind::AllReduceStart ||
         op == OpKind::AllGatherStart || op == OpKind::ExchangeStart;
}

bool isAsyncWait(OpKind op) { return op == OpKind::FetchWait || op == OpKind::ReduceWait; }

bool touchesNothing(const Node &node) {
  return opAlias(node.op) == Alias::View || node.op == OpKind::Buffer || node.op == OpKind::Release;
}

} // namespace zerocc
