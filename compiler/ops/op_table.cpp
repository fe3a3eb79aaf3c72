#include "compiler/ops/op_table.h"

namespace zerocc {

using ShapeRule = Expected<ResultTypes> (*)(const ShapeQuery &);
using CostRule = Cost (*)(const Node &);
using WorkspaceRule = int64_t (*)(const Node &);

const OpRow &opRow(OpKind op) {
  static constexpr OpRow rows[] = {
#define CORE_OP(kind, text, minInputs, maxInputs, results, shape, gradient, cost, workspace, alias, kernels) \
  {text, #shape, #gradient, #cost, #workspace, #alias, #kernels, minInputs, maxInputs, results},
#include "compiler/ops/core_ops.def"
  };
  return rows[static_cast<int>(op)];
}

/// What kind of value an attribute of this name holds, the same in every op: an index into AttributeValue.
static const struct {
  const char *name;
  size_t kind;
} kAttributeKinds[] = {
    {"axis", 0},      {"buckets", 0},        {"clip", 0},       {"ignore_index", 0},
    {"in_place", 0},  {"mesh_replicate", 0}, {"mesh_shard", 0}, {"offset", 0},
    {"part", 0},      {"safe", 0},           {"size", 0},       {"trans_a", 0},
    {"trans_b", 0},   {"workspace", 0},      {"eps", 1},        {"label_smoothing", 1},
    {"value", 1},     {"approximate", 2},    {"dtype", 2},      {"kind", 2},
    {"to", 2},        {"axes", 3},           {"high", 3},       {"low", 3},
    {"perm", 3},      {"shape", 3},          {"sizes", 3},      {"starts", 3},
    {"steps", 3},     {"smallest", 0},       {"last", 0},       {"k", 0},
    {"exclusive", 0}, {"reverse", 0},        {"groups", 0},     {"id", 0},
    {"rate", 1},      {"reduction", 2},      {"strides", 3},    {"dilations", 3},
    {"kernel", 3},
};

static Status checkAttributeKinds(const Attributes &attributes) {
  static const char *const kinds[] = {"an integer", "a real", "a text", "a list of integers"};
  for (const auto &[name, value] : attributes.entries())
    for (const auto &known : kAttributeKinds)
      if (name == known.name && value.index() != known.kind)
        return Error("attribute \"" + name + "\" must be " + kinds[known.kind] + ", is " +
                     kinds[value.index()]);
  return success();
}

Status checkType(const TensorType &type) {
  if (type.rank() > kMaxTensorRank)
    return Error(print(type) + " has " + std::to_string(type.rank()) + " axes, the limit is " +
                 std::to_string(kMaxTensorRank));
  bool empty = false;
  for (int64_t dim : type.dims) {
    if (dim < 0)
      return Error(print(type) + " has a negative dim");
    empty |= dim == 0;
  }
  __int128 bytes = byteSize(type.dtype);
  for (int64_t dim : type.dims)
    if (!empty && (bytes *= dim) >= int64_t(1) << 60)
      return Error(print(type) + " has 2^60 bytes or more");
  return success();
}

static Status checkOperandCount(const OpRow &row, int count) {
  if (count < row.minInputs || (row.maxInputs >= 0 && count > row.maxInputs)) {
    std::string wanted = std::to_string(row.minInputs);
    if (row.maxInputs < 0)
      wanted = "at least " + wanted;
    else if (row.maxInputs != row.minInputs)
      wanted += " to " + std::to_string(row.maxInputs);
    return Error("takes " + wanted + (wanted.ends_with("1") ? " operand" : " operands") + ", got " +
                 std::to_string(count));
  }
  return success();
}

Expected<ResultTypes> inferTypes(const ShapeQuery &query) {
  static constexpr ShapeRule rules[] = {
#define CORE_OP(kind, text, minInputs, maxInputs, results, shape, gradient, cost, workspace, alias, kernels) \
  shape,
#include "compiler/ops/core_ops.def"
  };
  ZEROCC_TRY(checkOperandCount(opRow(query.op), static_cast<int>(query.inputs.size())));
  ZEROCC_TRY(checkAttributeKinds(query.attributes));
  ZEROCC_ASSIGN(ResultTypes types, rules[static_cast<int>(query.op)](query));
  for (const TensorType &type : types)
    ZEROCC_TRY(checkType(type));
  return types;
}

Cost costOf(const Node &node) {
  static constexpr CostRule rules[] = {
#define CORE_OP(kind, text, minInputs, maxInputs, results, shape, gradient, cost, workspace, alias, kernels) \
  cost,
#include "compiler/ops/core_ops.def"
  };
  return rules[static_cast<int>(node.op)](node);
}

int64_t workspaceBytes(const Node &node) {
  static constexpr WorkspaceRule rules[] = {
#define CORE_OP(kind, text, minInputs, maxInputs, results, shape, gradient, cost, workspace, alias, kernels) \
  workspace,
#include "compiler/ops/core_ops.def"
  };
  return rules[static_cast<int>(node.op)](node);
}

bool isDifferentiable(OpKind op) {
  const std::string_view rule = opRow(op).gradient;
  return rule != "noGradient" && rule != "zeroGradient" && rule != "secondOrder";
}

} // namespace zerocc
