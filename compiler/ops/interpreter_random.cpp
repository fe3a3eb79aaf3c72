// The plain interpreter: randomness by counter. See compiler/support/philox.h.

#include "compiler/ops/interpreter_call.h"
#include "compiler/support/philox.h"

namespace zerocc {

// dropout           y = x / (1 - rate) where kept, else 0
// keep_mask         which are kept
Expected<HostTensors> evaluateRandomOp(const Call &call) {
  HostTensor out = call.result();
  const bool isMask = call.node.op == OpKind::KeepMask;
  const double rate = call.attributes().getFloat("rate");
  const DropoutMask mask(call.in(isMask ? 0 : 1).integers.data(), rate, call.attributes().getInt("id"));
  const double scale = roundToDType(1 / (1 - rate), out.type.dtype);
  const int64_t elements = out.type.elements();
  for (int64_t i = 0; i < elements; i += 4) {
    const std::array<bool, 4> keeps = mask.keeps(i / 4);
    for (int64_t j = i; j < std::min(i + 4, elements); ++j)
      if (isMask)
        out.integers[j] = keeps[j - i];
      else
        out.reals[j] = keeps[j - i] ? call.in(0).reals[j] * scale : 0;
  }
  return single(std::move(out));
}

} // namespace zerocc
