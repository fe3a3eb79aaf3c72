#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace zerocc {

/// The core ops, in the order of core_ops.def.
enum class OpKind : uint16_t {
#define CORE_OP(kind, text, minInputs, maxInputs, results, shape, gradient, cost, workspace, alias, kernels) \
  kind,
#include "compiler/ops/core_ops.def"
};

constexpr int kOpKinds = 0
#define CORE_OP(kind, text, minInputs, maxInputs, results, shape, gradient, cost, workspace, alias, kernels) \
  +1
#include "compiler/ops/core_ops.def"
    ;

inline std::string_view opText(OpKind op) {
  constexpr std::string_view texts[] = {
#define CORE_OP(kind, text, minInputs, maxInputs, results, shape, gradient, cost, workspace, alias, kernels) \
  text,
#include "compiler/ops/core_ops.def"
  };
  return texts[static_cast<int>(op)];
}

inline std::optional<OpKind> opFromText(std::string_view text) {
  for (int i = 0; i < kOpKinds; ++i)
    if (opText(static_cast<OpKind>(i)) == text)
      return static_cast<OpKind>(i);
  return std::nullopt;
}

/// Which operand's bytes a result is.
enum class Alias : uint8_t {
  None,       // bytes of its own
  View,       // result 0 reads operand 0 through other dims, strides, offset
  InPlace0,   // result 0 overwrites (or is) operand 0
  InPlace1,   // result 0 overwrites operand 1
  Collective, // result is, or contains, operand 0 when the node has `in_place=1`; else bytes of its own
  Update023,  // results 0, 1, 2 overwrite operands 0, 2, 3
  Update02,   // results 0, 1 overwrite operands 0, 2
};

inline Alias opAlias(OpKind op) {
  constexpr Alias aliases[] = {
#define CORE_OP(kind, text, minInputs, maxInputs, results, shape, gradient, cost, workspace, alias, kernels) \
  Alias::alias,
#include "compiler/ops/core_ops.def"
  };
  return aliases[static_cast<int>(op)];
}

/// The updates of parameters: operands param, grad, states…, scalars.
inline bool isOptimizer(OpKind op) {
  return opAlias(op) == Alias::Update023 || opAlias(op) == Alias::Update02;
}

/// The operand that result `result` overwrites in place, or -1.
inline int inPlaceOperand(OpKind op, int result) {
  switch (opAlias(op)) {
  case Alias::InPlace0:
    return result == 0 ? 0 : -1;
  case Alias::InPlace1:
    return result == 0 ? 1 : -1;
  case Alias::Update023:
    return result == 0 ? 0 : result + 1;
  case Alias::Update02:
    return result == 0 ? 0 : 2;
  default:
    return -1;
  }
}

} // namespace zerocc
