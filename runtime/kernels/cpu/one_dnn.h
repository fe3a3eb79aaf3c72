#pragma once

#include "runtime/kernels/cpu/prepare.h"

#include <oneapi/dnnl/dnnl.hpp>

namespace zerocc {

// What the kernels that call oneDNN share. Primitives and memory objects are made in `prepare`; `run` hands
// over the call's own buffers. Scratch memory is the call's workspace: an implementation that wants more than
// the compiler planned is passed over for the next one. All work is done by the calling thread.

/// The one engine of the process.
dnnl::engine &cpuEngine();

/// Before primitives are made and before they run: this thread asks OpenMP for no others.
void stayOnThisThread();

/// A primitive with its operands bound: run by runOneDnn.
struct OneDnnState {
  dnnl::primitive primitive;
  std::vector<dnnl::memory> memories;
  std::vector<dnnl_exec_arg_t> arguments;

  void bind(int argument, const dnnl::memory::desc &desc, void *data);
};

void runOneDnn(const KernelCall &call);

/// A contiguous f32 operand as oneDNN sees it, with `dims` (same elements, perhaps other axes).
dnnl::memory::desc plainDesc(const dnnl::memory::dims &dims);

/// Takes the first implementation whose scratch memory fits into the call's workspace, which is bound as
/// well.
template <typename PrimitiveDesc>
Status chooseImplementation(KernelCall &call, PrimitiveDesc &desc, OneDnnState &state) {
  for (;;) {
    const auto wanted = static_cast<int64_t>(desc.scratchpad_desc().get_size());
    if (wanted <= call.workspaceBytes) {
      if (wanted > 0)
        state.bind(DNNL_ARG_SCRATCHPAD, desc.scratchpad_desc(), call.workspace);
      return success();
    }
    if (!desc.next_impl())
      return refuse(call, "oneDNN wants " + std::to_string(wanted) +
                              " bytes of scratch memory, the plan gives " +
                              std::to_string(call.workspaceBytes));
  }
}

} // namespace zerocc
