#pragma once

#include "compiler/ops/op_table.h"

#include "llvm/ADT/STLExtras.h"

// What the shape rules (shape_rules.cpp, shape_index.cpp, shape_window.cpp) share.

namespace zerocc {

template <typename... Parts> Error refuse(const Parts &...parts) {
  return Error((std::string() + ... + parts));
}

inline std::string text(int64_t value) { return std::to_string(value); }
inline std::string text(llvm::ArrayRef<int64_t> dims) {
  std::string out = "[";
  for (size_t i = 0; i < dims.size(); ++i)
    out += (i ? "," : "") + std::to_string(dims[i]);
  return out + "]";
}

inline bool isIndex(DType dtype) { return dtype == DType::i64 || dtype == DType::i32; }
inline bool isAxis(int64_t axis, int64_t rank) { return axis >= 0 && axis < rank; }

inline Status needAttributes(const ShapeQuery &q, std::initializer_list<const char *> names) {
  for (const char *name : names)
    if (!q.attributes.has(name))
      return refuse("attribute \"", name, "\" is missing");
  return success();
}

/// The first operand's type, once all operands are found to have it.
inline Expected<TensorType> commonType(const ShapeQuery &q) {
  for (const TensorType &input : q.inputs)
    if (!(input == q.inputs[0]))
      return refuse("operands must have equal types: ", print(q.inputs[0]), " and ", print(input));
  return q.inputs[0];
}

inline Status needFloat(const TensorType &type) {
  if (!isFloat(type.dtype))
    return refuse("needs a float operand, got ", print(type));
  return success();
}

/// Requires `type` to be `dtype[dims]`.
inline Status needType(const char *what, const TensorType &type, DType dtype, llvm::ArrayRef<int64_t> dims) {
  if (type.dtype != dtype || llvm::ArrayRef<int64_t>(type.dims) != dims)
    return refuse(what, " must be ", print(TensorType{dtype, Dims(dims.begin(), dims.end())}), ", is ",
                  print(type));
  return success();
}

inline ResultTypes one(TensorType type) {
  ResultTypes results;
  results.push_back(std::move(type));
  return results;
}

inline Dims toDims(const std::vector<int64_t> &values) { return Dims(values.begin(), values.end()); }

inline Expected<Dims> shapeAttribute(const ShapeQuery &q) {
  ZEROCC_TRY(needAttributes(q, {"shape"}));
  Dims dims = toDims(q.attributes.getInts("shape"));
  for (int64_t dim : dims)
    if (dim < 0)
      return refuse("dims must not be negative: ", text(dims));
  return dims;
}

inline Expected<DType> dtypeAttribute(const ShapeQuery &q, const char *name) {
  ZEROCC_TRY(needAttributes(q, {name}));
  std::optional<DType> dtype = dtypeFromName(q.attributes.getString(name));
  if (!dtype)
    return refuse("unknown dtype \"", q.attributes.getString(name), "\"");
  return *dtype;
}

/// Product of dims, or -1 above 2^62: compared instead of TensorType::elements() where the user names the
/// dims.
inline int64_t safeElements(llvm::ArrayRef<int64_t> dims) {
  __int128 n = 1;
  for (int64_t dim : dims) {
    if (dim == 0)
      return 0;
    n = n < 0 || n * dim > (int64_t(1) << 62) ? -1 : n * dim;
  }
  return static_cast<int64_t>(n);
}

} // namespace zerocc
