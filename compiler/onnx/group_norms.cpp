#include "compiler/onnx/group_norms.h"

#include "compiler/onnx/weight_slots.h"
#include "compiler/onnx/loader.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <cstring>

namespace zerocc {
namespace {

using Readers = std::map<std::string, std::vector<Slot>>;

void collect(const FlatGraph &graph, Readers &readers, std::vector<const FlatNode *> &norms) {
  for (const FlatNode &node : graph.nodes) {
    for (size_t i = 0; i < node.inputs.size(); ++i)
      readers[node.inputs[i]].push_back({&node, static_cast<int>(i)});
    if (node.op == "InstanceNormalization" && node.domain.empty() && node.inputs.size() == 3 &&
        !node.outputs.empty())
      norms.push_back(&node);
    for (const auto &[name, subgraph] : node.subgraphs)
      collect(*subgraph, readers, norms);
  }
}

/// Where the dims are 1 but for one that is not the last: [C,1,1], [1,C,1,1].
bool isChannelVector(const Dims &dims) {
  return dims.size() > 1 && dims.back() == 1 &&
         llvm::count_if(dims, [](int64_t dim) { return dim != 1; }) == 1;
}

class Search {
public:
  Search(const LoadedModel &model, const FlatModel &flat) : model_(model), flat_(flat) {
    collect(flat.graph, readers_, norms_);
  }

  NormSlots run() {
    for (const FlatNode *norm : norms_) {
      // Ones and zeros of the exporter's own, or in front of the module's weights.
      if (!isFilledWith(norm->inputs[1], 1) || !isFilledWith(norm->inputs[2], 0))
        continue;
      const std::vector<Slot> weights = weightsBehind(norm->outputs[0]);
      const bool areMadeUp = namedByExporter(norm->inputs[1]) && namedByExporter(norm->inputs[2]);
      if (!areMadeUp && weights.empty())
        continue;
      slots_.constants.insert({{norm, 1}, {norm, 2}});
      slots_.weights.insert(weights.begin(), weights.end());
    }
    return slots_;
  }

private:
  const onnx::TensorProto *initializer(const std::string &name) const {
    auto found = flat_.initializerOf.find(name);
    return found == flat_.initializerOf.end() ? nullptr : found->second;
  }

  bool isFilledWith(const std::string &name, int number) const {
    const onnx::TensorProto *tensor = initializer(name);
    Expected<TensorType> type = tensor ? LoadedModel::typeOf(*tensor) : Error("no initializer");
    if (!type || type->elements() == 0 || type->elements() > 1 << 16)
      return false;
    if (!model_.hasBytes(*tensor)) // then the name has to do
      return namedByExporter(name);
    std::string element(byteSize(type->dtype), '\0');
    const float f32 = 1;
    const double f64 = 1;
    const uint16_t half = type->dtype == DType::f16 ? 0x3c00 : 0x3f80;
    const void *one = type->dtype == DType::f32   ? static_cast<const void *>(&f32)
                      : type->dtype == DType::f64 ? static_cast<const void *>(&f64)
                      : element.size() == 2       ? static_cast<const void *>(&half)
                                                  : nullptr;
    Expected<std::string> bytes = model_.bytesOf(*tensor);
    if (!one || !bytes)
      return false;
    if (number == 1)
      std::memcpy(element.data(), one, element.size());
    for (size_t at = 0; at < bytes->size(); at += element.size())
      if (bytes->compare(at, element.size(), element) != 0)
        return false;
    return true;
  }

  /// The only reader of `name`, when it is an `op`.
  const FlatNode *onlyReader(const std::string &name, const char *op) const {
    auto found = readers_.find(name);
    if (found == readers_.end() || found->second.size() != 1)
      return nullptr;
    const FlatNode *node = found->second[0].first;
    return node->op == op && node->domain.empty() && !node->outputs.empty() ? node : nullptr;
  }

  /// The operand of `node` that is an initializer with one number per channel.
  std::optional<Slot> channelSlot(const FlatNode *node) const {
    for (int i = 0; node && i < static_cast<int>(node->inputs.size()); ++i)
      if (const onnx::TensorProto *tensor = initializer(node->inputs[i]))
        if (Expected<TensorType> type = LoadedModel::typeOf(*tensor);
            type && isFloat(type->dtype) && isChannelVector(type->dims))
          return Slot{node, i};
    return std::nullopt;
  }

  std::vector<Slot> weightsBehind(const std::string &name) const {
    const FlatNode *reshape = onlyReader(name, "Reshape");
    const FlatNode *mul = reshape ? onlyReader(reshape->outputs[0], "Mul") : nullptr;
    const FlatNode *add = mul ? onlyReader(mul->outputs[0], "Add") : nullptr;
    const std::optional<Slot> weight = channelSlot(mul), bias = channelSlot(add);
    return weight && bias ? std::vector<Slot>{*weight, *bias} : std::vector<Slot>{};
  }

  const LoadedModel &model_;
  const FlatModel &flat_;
  Readers readers_;
  std::vector<const FlatNode *> norms_;
  NormSlots slots_;
};

} // namespace

NormSlots findGroupNorms(const LoadedModel &model, const FlatModel &flat) {
  return Search(model, flat).run();
}

} // namespace zerocc
