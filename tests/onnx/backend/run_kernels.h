#pragma once

#include "tests/onnx/evaluate.h"

namespace zerocc {

/// Runs the graph "forward" through the CPU kernels, node by node, in buffers poisoned before use. Views that
/// a kernel cannot follow become copies in `module` first. Fails, before anything runs, when a kernel refuses
/// its call.
Expected<std::vector<HostTensor>> runKernels(Module &module, const Bindings &bindings);

} // namespace zerocc
