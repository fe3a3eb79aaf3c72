#pragma once

#include "runtime/data/data_set.h"
#include "runtime/plan/plan.pb.h"

namespace zerocc {

/// The inputs and batch shape of a plan as `DataSet` wants them. In a header of its own: the library knows no
/// plan.
inline std::vector<InputSpec> inputSpecs(const plan::Plan &plan) {
  std::vector<InputSpec> specs;
  for (const plan::Input &input : plan.inputs()) {
    InputSpec &spec = specs.emplace_back();
    spec.name = input.name();
    spec.dtype = static_cast<DType>(input.dtype());
    spec.dims.assign(input.dims().begin(), input.dims().end());
    spec.role = input.role();
    spec.of = input.of();
    spec.shift = input.shift();
    spec.hasRange = input.has_range();
    spec.low = input.low();
    spec.high = input.high();
    spec.hasIgnore = input.has_ignore();
    spec.ignoreIndex = input.ignore_index();
  }
  return specs;
}

inline BatchShape batchShape(const plan::Plan &plan) {
  return {plan.micro_steps(), int64_t(plan.mesh().shard() * plan.mesh().replicate()), plan.micro_batch()};
}

} // namespace zerocc
