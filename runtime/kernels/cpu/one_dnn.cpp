#include "runtime/kernels/cpu/one_dnn.h"

// OpenMP's, which oneDNN is built with.
extern "C" void omp_set_num_threads(int threads);

namespace zerocc {

dnnl::engine &cpuEngine() {
  static dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

void stayOnThisThread() { omp_set_num_threads(1); }

dnnl_exec_arg_t OneDnnSteps::argument(int id, const dnnl::memory::desc &desc, void *data) {
  memories.emplace_back(desc, cpuEngine(), data);
  return {id, memories.back().get()};
}

void OneDnnSteps::reorder(const dnnl::memory::desc &fromDesc, void *from, const dnnl::memory::desc &toDesc,
                          void *to) {
  const dnnl::reorder::primitive_desc desc(cpuEngine(), fromDesc, cpuEngine(), toDesc);
  steps.push_back(
      {dnnl::reorder(desc), {argument(DNNL_ARG_FROM, fromDesc, from), argument(DNNL_ARG_TO, toDesc, to)}});
}

void runOneDnn(const KernelCall &call) {
  stayOnThisThread();
  thread_local dnnl::stream stream(cpuEngine());
  for (const OneDnnSteps::Step &step : stateOf<OneDnnSteps>(call).steps) {
    if (step.primitive)
      dnnl_primitive_execute(step.primitive.get(), stream.get(), static_cast<int>(step.arguments.size()),
                             step.arguments.data());
    for (int64_t i = 0; i < step.elements; ++i)
      step.sum[i] += step.part[i];
  }
}

dnnl::memory::desc plainDesc(const dnnl::memory::dims &dims) {
  using Tag = dnnl::memory::format_tag;
  const Tag tag = dims.size() == 4 ? Tag::abcd : dims.size() == 5 ? Tag::abcde : Tag::abcdef;
  return {dims, dnnl::memory::data_type::f32, tag};
}

void *WorkspaceCut::take(size_t bytes) {
  constexpr uintptr_t kLine = 64;
  char *start = next_ + (kLine - reinterpret_cast<uintptr_t>(next_) % kLine) % kLine;
  if (start > end_ || bytes > static_cast<size_t>(end_ - start))
    return nullptr;
  next_ = start + bytes;
  return start;
}

} // namespace zerocc
