// Reverse mode over a straight-line graph.
//
// 1. Forward: mark the values that depend on a leaf through ops that let a gradient pass. Only these ever get one.
// 2. Backward: seed the root and walk the forward nodes from the last to the first. A node whose results have
//    gradients asks its rule for those of its operands; each is a contribution to the operand.
// 3. A value's contributions are complete once the walk has passed its first reader; then they are summed, in forward
//    order of the readers: ((c1 + c2) + c3). The order is part of the graph, so no scheduler changes the bits of a
//    tied parameter's gradient.
// 4. Contributions that are zero-padded parts and tile the value (it was split) are concatenated instead of padded
//    and added. So are many parts that do not quite tile it, as the steps of a loop read them: parts at one place are
//    added, then parts without overlap are joined, with zeros in the gaps. Else n steps would add n whole tensors.
//
// Linear in nodes and operands (and n log n in the parts of one value). It takes no decision about memory: recomputation and order are later passes'. Rules
// build the gradients of all operands without asking: what nobody reads is for the caller to remove.

#include "compiler/ops/reverse_mode.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringRef.h"

#include <algorithm>
#include <functional>
#include <map>
#include <queue>
#include <tuple>

namespace zerocc {
namespace {

/// What the reader of a value adds to the value's gradient.
struct Contribution {
  const Node *reader;
  Value *gradient;
};

bool isFloatValue(const Value *value) { return isFloat(value->type.dtype); }

bool isZeroPad(const Value *value) {
  return !value->isGlobal() && value->definition->op == OpKind::Pad &&
         value->definition->attributes.getFloat("value") == 0;
}

/// The one axis along which a pad adds something; -1 when it adds nothing, nullopt when there are several.
std::optional<int64_t> paddedAxis(const Node &pad) {
  std::vector<int64_t> low = pad.attributes.getInts("low"), high = pad.attributes.getInts("high");
  int64_t axis = -1;
  for (size_t i = 0; i < low.size(); ++i)
    if (low[i] != 0 || high[i] != 0) {
      if (axis >= 0)
        return std::nullopt;
      axis = static_cast<int64_t>(i);
    }
  return axis;
}

/// The pads' operands in their order along `axis`, when they tile it without gap or overlap; else nothing.
struct Tiling {
  int64_t axis = -1;
  llvm::SmallVector<Value *, 4> parts;
};

std::optional<Tiling> tilingOf(llvm::ArrayRef<Contribution> contributions) {
  Tiling tiling;
  std::vector<std::pair<int64_t, Value *>> parts; // low margin, what is padded
  for (const Contribution &contribution : contributions) {
    if (!isZeroPad(contribution.gradient))
      return std::nullopt;
    const Node &pad = *contribution.gradient->definition;
    std::optional<int64_t> axis = paddedAxis(pad);
    if (!axis || *axis < 0 || (tiling.axis >= 0 && *axis != tiling.axis))
      return std::nullopt;
    tiling.axis = *axis;
    parts.push_back({pad.attributes.getInts("low")[*axis], pad.input(0)});
  }
  std::stable_sort(parts.begin(), parts.end(),
                   [](const auto &a, const auto &b) { return a.first < b.first; });
  int64_t end = 0;
  for (const auto &[low, part] : parts) {
    if (low != end)
      return std::nullopt;
    end += part->type.dims[tiling.axis];
    tiling.parts.push_back(part);
  }
  if (end != contributions[0].gradient->type.dims[tiling.axis])
    return std::nullopt;
  return tiling;
}

/// A zero-padded part along one axis, or the sum of several at one place.
struct Part {
  int64_t low, end;
  Value *value;
  size_t order; // of its first contribution
};

/// Parts in layers of those that do not overlap, each ascending. `parts` ascend.
std::vector<std::vector<Part>> layersOf(llvm::ArrayRef<Part> parts) {
  using End = std::pair<int64_t, size_t>; // where a layer ends, and which it is
  std::priority_queue<End, std::vector<End>, std::greater<>> ends;
  std::vector<std::vector<Part>> layers;
  for (const Part &part : parts) {
    size_t layer = layers.size();
    if (!ends.empty() && ends.top().first <= part.low) {
      layer = ends.top().second;
      ends.pop();
    } else {
      layers.emplace_back();
    }
    layers[layer].push_back(part);
    ends.push({part.end, layer});
  }
  return layers;
}

constexpr size_t kManyParts = 4; // fewer are padded and added

class ReverseMode {
public:
  ReverseMode(Module &module, Graph &graph, const GradientRequest &request)
      : graph_(graph), request_(request), builder_(module, graph) {}

  Status run() {
    const int64_t forwardNodes = static_cast<int64_t>(graph_.nodes.size());
    markDependent();
    for (const Node *node : graph_.nodes)
      for (const Value *input : node->inputs)
        firstReader_.try_emplace(input, node);

    if (dependent_.contains(request_.root))
      gradients_[request_.root] = request_.seed;
    for (int64_t i = forwardNodes - 1; i >= 0; --i) {
      const Node &node = *graph_.nodes[i];
      builder_.location = node.location + "~";
      differentiate(node);
      for (Value *input : node.inputs)
        if (firstReader_.lookup(input) == &node)
          sumContributions(input);
    }
    std::reverse(findings_.begin(), findings_.end());
    return findings_.empty() ? success() : Status(Error(std::move(findings_)));
  }

  Value *gradientOf(const Value *value) const { return gradients_.lookup(value); }

private:
  void markDependent() {
    for (const Value *leaf : request_.leaves)
      if (isFloatValue(leaf))
        dependent_.insert(leaf);
    for (const Node *node : graph_.nodes) {
      if (!passesGradients(node->op) ||
          llvm::none_of(node->inputs, [&](Value *v) { return dependent_.contains(v); }))
        continue;
      for (const Value *result : node->results)
        if (isFloatValue(result) && !isLabelCount(*node, result))
          dependent_.insert(result);
    }
  }

  /// False where the result is constant almost everywhere. Ops that only lack a rule pass: they must be
  /// refused.
  static bool passesGradients(OpKind op) { return llvm::StringRef(opRow(op).gradient) != "zeroGradient"; }

  static bool isLabelCount(const Node &node, const Value *result) {
    return node.op == OpKind::CrossEntropy && result->resultIndex == 1;
  }

  /// Adds the contributions of one node to its operands, if a gradient reaches it.
  void differentiate(const Node &node) {
    llvm::SmallVector<Value *, 3> resultGradients;
    for (const Value *result : node.results)
      resultGradients.push_back(gradients_.lookup(result));
    if (llvm::none_of(resultGradients, [](Value *v) { return v != nullptr; }) || !checkDifferentiable(node))
      return;
    builder_.needed.clear();
    for (const Value *input : node.inputs)
      builder_.needed.push_back(dependent_.contains(input));
    Gradients operandGradients = gradientsOf(builder_, node, resultGradients);
    // From the last operand to the first, as the walk goes from the last reader to the first.
    for (size_t i = node.inputs.size(); i-- > 0;)
      if (operandGradients[i] && builder_.needs(static_cast<int>(i))) {
        assert(operandGradients[i]->type == node.input(static_cast<int>(i))->type &&
               "a gradient of another type");
        contributions_[node.inputs[i]].push_back({&node, operandGradients[i]});
      }
  }

  bool checkDifferentiable(const Node &node) {
    if (!isDifferentiable(node.op)) {
      refuse(node, "has no gradient rule");
      return false;
    }
    bool hasStatistics = node.op == OpKind::LayerNorm || node.op == OpKind::CrossEntropy;
    for (const Value *result : node.results)
      if (hasStatistics && result->resultIndex > 0 && gradients_.lookup(result)) {
        refuse(node, "cannot pass on the gradient of its result " + std::to_string(result->resultIndex) +
                         "; only the first result may reach the loss");
        return false;
      }
    return true;
  }

  void refuse(const Node &node, const std::string &what) {
    findings_.push_back({request_.prefix + "node \"" + node.location + "\" (" + std::string(opText(node.op)) +
                             ") lies between " + request_.between + " and " + what,
                         request_.hint});
  }

  /// The gradient of `value`, once all its readers have contributed.
  void sumContributions(const Value *value) {
    auto found = contributions_.find(value);
    if (found == contributions_.end())
      return;
    std::vector<Contribution> contributions = std::move(found->second);
    contributions_.erase(found);
    std::reverse(contributions.begin(), contributions.end()); // forward order of use
    builder_.location = contributions[0].reader->location + "~";
    gradients_[value] = sum(contributions);
  }

  Value *sum(llvm::ArrayRef<Contribution> contributions) {
    if (contributions.size() > 1)
      if (std::optional<Tiling> tiling = tilingOf(contributions))
        return builder_.concat(tiling->parts, tiling->axis);
    llvm::SmallVector<Value *, 4> terms = joinParts(contributions);
    return added(terms);
  }

  /// In order; 16 bits: in f32, rounded once.
  Value *added(llvm::ArrayRef<Value *> terms) {
    const DType dtype = terms[0]->type.dtype;
    if (terms.size() == 1)
      return terms[0];
    const bool isNarrow = isFloat(dtype) && byteSize(dtype) == 2;
    auto wide = [&](Value *term) { return isNarrow ? builder_.cast(term, DType::f32) : term; };
    Value *total = wide(terms[0]);
    for (Value *term : terms.drop_front())
      total = builder_.add(total, wide(term));
    return builder_.cast(total, dtype);
  }

  /// The contributions in forward order, many parts along an axis joined; each stands where its first part stood.
  llvm::SmallVector<Value *, 4> joinParts(llvm::ArrayRef<Contribution> contributions) {
    std::map<int64_t, std::vector<Part>> parts; // by axis
    std::vector<std::pair<size_t, Value *>> terms;
    for (size_t i = 0; i < contributions.size(); ++i) {
      Value *gradient = contributions[i].gradient;
      std::optional<int64_t> axis = isZeroPad(gradient) ? paddedAxis(*gradient->definition) : std::nullopt;
      if (!axis || *axis < 0) {
        terms.push_back({i, gradient});
        continue;
      }
      Value *part = gradient->definition->input(0);
      const int64_t low = gradient->definition->attributes.getInts("low")[*axis];
      parts[*axis].push_back({low, low + part->type.dims[*axis], part, i});
    }
    for (auto &[axis, found] : parts) {
      if (found.size() < kManyParts) {
        for (const Part &part : found)
          terms.push_back({part.order, contributions[part.order].gradient});
        continue;
      }
      for (const std::vector<Part> &layer : layersOf(addedByPlace(found)))
        terms.push_back(joined(layer, axis, contributions[0].gradient->type));
    }
    std::sort(terms.begin(), terms.end(), [](const auto &a, const auto &b) { return a.first < b.first; });
    llvm::SmallVector<Value *, 4> values;
    for (const auto &[order, value] : terms)
      values.push_back(value);
    return values;
  }

  /// Parts at one place become their sum, in forward order. Ascending.
  std::vector<Part> addedByPlace(std::vector<Part> parts) {
    std::sort(parts.begin(), parts.end(), [](const Part &a, const Part &b) {
      return std::tie(a.low, a.end, a.order) < std::tie(b.low, b.end, b.order);
    });
    std::vector<Part> sums;
    for (const Part &part : parts)
      if (!sums.empty() && sums.back().low == part.low && sums.back().end == part.end)
        sums.back().value = added({sums.back().value, part.value});
      else
        sums.push_back(part);
    return sums;
  }

  /// One tensor of parts that do not overlap, with zeros between them; and where it stands in the sum.
  std::pair<size_t, Value *> joined(llvm::ArrayRef<Part> layer, int64_t axis, const TensorType &type) {
    const int64_t size = type.dims[axis];
    std::vector<Value *> pieces;
    int64_t end = 0;
    size_t order = layer[0].order;
    auto fillTo = [&](int64_t low) {
      Dims gap = type.dims;
      gap[axis] = low - end;
      if (low > end)
        pieces.push_back(builder_.broadcast(builder_.module.scalar(type.dtype, 0), gap));
    };
    for (const Part &part : layer) {
      fillTo(part.low);
      if (part.end > part.low)
        pieces.push_back(part.value);
      end = part.end;
      order = std::min(order, part.order);
    }
    fillTo(size);
    return {order, pieces.size() == 1 ? pieces[0] : builder_.concat(pieces, axis)};
  }

  Graph &graph_;
  const GradientRequest &request_;
  GradientBuilder builder_;
  llvm::DenseSet<const Value *> dependent_; // on a leaf, through ops that pass gradients
  llvm::DenseMap<const Value *, const Node *> firstReader_;
  llvm::DenseMap<const Value *, std::vector<Contribution>> contributions_; // last reader first, until summed
  llvm::DenseMap<const Value *, Value *> gradients_;
  std::vector<Diagnostic> findings_;
};

} // namespace

Expected<std::vector<Value *>> appendGradients(Module &module, Graph &graph, const GradientRequest &request) {
  ReverseMode walk(module, graph, request);
  ZEROCC_TRY(walk.run());
  std::vector<Value *> gradients;
  for (const Value *leaf : request.leaves)
    gradients.push_back(walk.gradientOf(leaf));
  return gradients;
}

} // namespace zerocc
