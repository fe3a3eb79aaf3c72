#pragma once

#include "runtime/kernels/cpu/prepare.h"

#include <oneapi/dnnl/dnnl.hpp>

namespace zerocc {

// What the kernels that call oneDNN share. Primitives and memory objects are made in `prepare`; `run` goes
// through a list of steps over the call's own buffers and its workspace. All work is done by the calling
// thread.

/// The one engine of the process.
dnnl::engine &cpuEngine();

/// Before primitives are made and before they run: this thread asks OpenMP for no others.
void stayOnThisThread();

/// Run by runOneDnn, in order.
struct OneDnnSteps {
  struct Step {
    dnnl::primitive primitive;
    std::vector<dnnl_exec_arg_t> arguments;
    // Without a primitive: sum += part.
    float *sum = nullptr;
    const float *part = nullptr;
    int64_t elements = 0;
  };
  std::vector<Step> steps;
  std::vector<dnnl::memory> memories; // what the arguments point to

  dnnl_exec_arg_t argument(int id, const dnnl::memory::desc &desc, void *data);
  void reorder(const dnnl::memory::desc &fromDesc, void *from, const dnnl::memory::desc &toDesc, void *to);
};

void runOneDnn(const KernelCall &call);

/// A contiguous f32 operand as oneDNN sees it, with `dims` (same elements, perhaps other axes).
dnnl::memory::desc plainDesc(const dnnl::memory::dims &dims);

/// Hands out a call's workspace piece by piece, aligned to cache lines; null when it does not suffice.
class WorkspaceCut {
public:
  explicit WorkspaceCut(const KernelCall &call)
      : next_(static_cast<char *>(call.workspace)), end_(next_ + call.workspaceBytes) {}
  void *take(size_t bytes);

private:
  char *next_, *end_;
};

} // namespace zerocc
