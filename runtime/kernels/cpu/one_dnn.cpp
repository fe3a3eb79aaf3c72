#include "runtime/kernels/cpu/one_dnn.h"

// OpenMP's, which oneDNN is built with.
extern "C" void omp_set_num_threads(int threads);

namespace zerocc {

dnnl::engine &cpuEngine() {
  static dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

void stayOnThisThread() { omp_set_num_threads(1); }

void OneDnnState::bind(int argument, const dnnl::memory::desc &desc, void *data) {
  memories.emplace_back(desc, cpuEngine(), data);
  arguments.push_back({argument, memories.back().get()});
}

void runOneDnn(const KernelCall &call) {
  stayOnThisThread();
  const auto &state = stateOf<OneDnnState>(call);
  thread_local dnnl::stream stream(cpuEngine());
  dnnl_primitive_execute(state.primitive.get(), stream.get(), static_cast<int>(state.arguments.size()),
                         state.arguments.data());
}

dnnl::memory::desc plainDesc(const dnnl::memory::dims &dims) {
  using Tag = dnnl::memory::format_tag;
  const Tag tag = dims.size() == 4 ? Tag::abcd : dims.size() == 5 ? Tag::abcde : Tag::abcdef;
  return {dims, dnnl::memory::data_type::f32, tag};
}

} // namespace zerocc
