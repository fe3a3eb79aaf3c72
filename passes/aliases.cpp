#include "passes/aliases.h"

namespace zerocc {

const Value *aliasedValue(const Value *value) {
  if (value->place.kind == Place::Kind::value)
    return value->place.base;
  if (value->isGlobal())
    return nullptr;
  const Node &node = *value->definition;
  if (int operand = inPlaceOperand(node.op, value->resultIndex); operand >= 0)
    return node.input(operand);
  Alias alias = opAlias(node.op);
  bool isFirst = value->resultIndex == 0;
  if (isFirst &&
      (alias == Alias::View || (alias == Alias::Collective && node.attributes.getInt("in_place") != 0)))
    return node.input(0);
  return nullptr;
}

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
