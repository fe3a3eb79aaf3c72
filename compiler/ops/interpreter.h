#pragma once

#include "compiler/ops/ops.h"

#include <functional>

namespace zerocc {

/// A tensor on the host: floats in double, integers and booleans in exact 64-bit lanes
/// (u64: the same bits). Row-major.
struct HostTensor {
  TensorType type;
  std::vector<double> reals;     // isFloat(type.dtype)
  std::vector<int64_t> integers; // otherwise; booleans are 0/1

  static HostTensor zeros(const TensorType &type);
  static HostTensor real(TensorType type, std::vector<double> values);
  static HostTensor integer(TensorType type, std::vector<int64_t> values);
  /// From and to little-endian row-major bytes of type.dtype (f16/bf16 rounded to nearest even).
  static HostTensor fromBytes(TensorType type, llvm::StringRef bytes);
  std::string toBytes() const;
  double at(int64_t i) const {
    return isFloat(type.dtype)        ? reals[i]
           : type.dtype == DType::u64 ? static_cast<double>(static_cast<uint64_t>(integers[i]))
                                      : static_cast<double>(integers[i]);
  }
};

/// The nearest number of a float dtype, ties to even; f64 and other dtypes unchanged.
double roundToDType(double v, DType dtype);
/// Two's complement of an integer dtype; booleans are 0 or 1.
int64_t wrapToDType(int64_t v, DType dtype);

/// Options of the plain interpreter.
struct InterpretOptions {
  /// Round every float result to its declared dtype (as kernels do); off: pure double.
  bool roundToDType = false;
};

/// Evaluates one node of pure compute (no collective or update op) on host values: the definition of what
/// each core op means. Fails (with the reason) on out-of-range indices and integer division by zero.
Expected<std::vector<HostTensor>> interpretNode(const Node &node, llvm::ArrayRef<const HostTensor *> inputs,
                                                const InterpretOptions &options = {});

/// Evaluates a graph. `bindings` gives a host value for every module-level value the graph reads; inline
/// constants are bound by the interpreter itself. Returns the values of graph.results, in order.
Expected<std::vector<HostTensor>> interpret(const Module &module, const Graph &graph,
                                            const llvm::DenseMap<const Value *, HostTensor> &bindings,
                                            const InterpretOptions &options = {});

} // namespace zerocc
