#include "runtime/kernels/cpu/prepare.h"

namespace zerocc {

static std::string list(const int64_t *values, int count) {
  std::string out;
  for (int i = 0; i < count; ++i)
    out += (i ? "," : "") + std::to_string(values[i]);
  return "[" + out + "]";
}

std::string describe(const TensorView &view) {
  std::string out = std::string(dtypeName(view.dtype)) + list(view.dims, view.rank);
  return view.contiguous() ? out : out + " strides " + list(view.strides, view.rank);
}

Error refuse(const KernelCall &call, const std::string &why) {
  std::string operands;
  for (const TensorView &view : call.inputs)
    operands += (operands.empty() ? "" : ", ") + describe(view);
  return Error(std::string(opText(call.op)) + "(" + operands + ") on the CPU: " + why);
}

Status expectCounts(const KernelCall &call, size_t inputs, size_t results) {
  if (call.inputs.size() != inputs || call.results.size() != results)
    return refuse(call, "needs " + std::to_string(inputs) + " operands and " + std::to_string(results) +
                            " results, got " + std::to_string(call.inputs.size()) + " and " +
                            std::to_string(call.results.size()));
  return success();
}

Status expectContiguous(const KernelCall &call) {
  for (const std::vector<TensorView> *views : {&call.inputs, &call.results})
    for (const TensorView &view : *views)
      if (!view.contiguous())
        return refuse(call, describe(view) + " should be contiguous");
  return success();
}

std::optional<Rows> asRows(const TensorView &view) {
  Rows rows;
  if (view.rank == 0)
    return rows;
  int last = view.rank - 1;
  rows.width = view.dims[last];
  if (rows.width > 1 && view.strides[last] != 1)
    return std::nullopt;
  rows.stride = rows.width;
  bool haveStride = false;
  for (int i = last - 1; i >= 0; --i) {
    if (view.dims[i] != 1) {
      if (haveStride && view.strides[i] != rows.stride * rows.count)
        return std::nullopt;
      if (!haveStride)
        rows.stride = view.strides[i];
      haveStride = true;
    }
    rows.count *= view.dims[i];
  }
  return rows;
}

Expected<Rows> floatRows(const KernelCall &call, const TensorView &view) {
  if (view.dtype != DType::f32)
    return refuse(call, describe(view) + " should be f32");
  std::optional<Rows> rows = asRows(view);
  if (!rows)
    return refuse(call, describe(view) + " should be rows of unit stride");
  return *rows;
}

} // namespace zerocc
