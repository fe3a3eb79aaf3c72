#include "tests/onnx/backend/run_kernels.h"

#include "compiler/ir/views.h"
#include "passes/dead_code.h"
#include "passes/materialize_views.h"
#include "runtime/kernels/kernel.h"

#include <cstring>
#include <new>

namespace zerocc {
namespace {

constexpr int64_t kAlignment = 64;

struct FreeAligned {
  void operator()(char *bytes) const { ::operator delete[](bytes, std::align_val_t(kAlignment)); }
};
using Bytes = std::unique_ptr<char[], FreeAligned>;

Bytes allocate(int64_t bytes) {
  Bytes made(static_cast<char *>(
      ::operator new[](static_cast<size_t>(std::max<int64_t>(bytes, 1)), std::align_val_t(kAlignment))));
  std::memset(made.get(), 0xa5, static_cast<size_t>(bytes));
  return made;
}

class KernelRun {
public:
  KernelRun(const Module &module, const Bindings &bindings) : module_(module), bindings_(bindings) {}

  Expected<std::vector<HostTensor>> run(const Graph &graph) {
    for (const Node *node : graph.nodes)
      if (!isViewNode(*node))
        ZEROCC_TRY(prepare(*node));
    for (const KernelCall &call : calls_)
      call.run(call);
    std::vector<HostTensor> results;
    for (const auto &[name, value] : graph.results) {
      ZEROCC_ASSIGN(TensorView view, viewOf(value));
      results.push_back(read(view));
    }
    return results;
  }

private:
  Status prepare(const Node &node) {
    KernelCall call;
    call.op = node.op;
    call.attributes = node.attributes;
    for (const Value *input : node.inputs) {
      ZEROCC_ASSIGN(TensorView view, viewOf(input));
      call.inputs.push_back(view);
    }
    for (const Value *result : node.results) {
      ZEROCC_ASSIGN(TensorView view, viewOf(result));
      call.results.push_back(view);
    }
    call.workspaceBytes = workspaceBytes(node);
    if (call.workspaceBytes > 0) {
      workspaces_.push_back(allocate(call.workspaceBytes));
      call.workspace = workspaces_.back().get();
    }
    ZEROCC_TRY(cpuKernel(node.op).prepare(call));
    calls_.push_back(std::move(call));
    return success();
  }

  Expected<TensorView> viewOf(const Value *value) {
    RootOffset at = locate(value);
    ZEROCC_ASSIGN(char *root, rootBytes(at.root));
    TensorView view;
    view.data = root + at.bytes;
    view.dtype = value->type.dtype;
    view.rank = static_cast<int>(at.view.dims.size());
    for (int i = 0; i < view.rank; ++i) {
      view.dims[i] = at.view.dims[i];
      view.strides[i] = at.view.strides[i];
    }
    return view;
  }

  Expected<char *> rootBytes(const Value *root) {
    Bytes &bytes = buffers_[root];
    if (bytes)
      return bytes.get();
    bytes = allocate(root->type.bytes());
    if (root->isGlobal()) {
      auto bound = bindings_.find(root);
      const Constant *constant = module_.constantOf(root);
      if (bound == bindings_.end() && (!constant || constant->source.kind != DataSource::Kind::inlineBytes))
        return Error("no value is bound to @" + root->name);
      std::string content = bound == bindings_.end() ? constant->source.bytes : bound->second.toBytes();
      std::memcpy(bytes.get(), content.data(), content.size());
    }
    return bytes.get();
  }

  static HostTensor read(const TensorView &view) {
    TensorType type{view.dtype, Dims(view.dims, view.dims + view.rank)};
    const int64_t size = byteSize(view.dtype), elements = view.elements();
    std::string packed(static_cast<size_t>(elements * size), '\0');
    int64_t index[kMaxRank] = {};
    for (int64_t i = 0; i < elements; ++i) {
      int64_t offset = 0;
      for (int axis = 0; axis < view.rank; ++axis)
        offset += index[axis] * view.strides[axis];
      std::memcpy(packed.data() + i * size, static_cast<const char *>(view.data) + offset * size,
                  static_cast<size_t>(size));
      for (int axis = view.rank - 1; axis >= 0 && ++index[axis] == view.dims[axis]; --axis)
        index[axis] = 0;
    }
    return HostTensor::fromBytes(type, packed);
  }

  const Module &module_;
  const Bindings &bindings_;
  llvm::DenseMap<const Value *, Bytes> buffers_;
  std::vector<Bytes> workspaces_;
  std::vector<KernelCall> calls_;
};

} // namespace

Expected<std::vector<HostTensor>> runKernels(Module &module, const Bindings &bindings) {
  Graph &graph = *module.graph("forward");
  removeDeadNodes(graph);
  ZEROCC_TRY(materializeViews(module, Decisions()));
  return KernelRun(module, bindings).run(graph);
}

} // namespace zerocc
