// Parameters are taken in reverse order of first use: the backward meets the last layer first, so a bucket's gradients
// are complete as early as possible. Four kinds never share a bucket: trainable and frozen, small ones (below the
// persistence threshold: whole even at stage 3), tied ones (their uses are far apart, so each has a bucket alone).
// Within a kind a bucket is closed when the next parameter would take it past the limit, or at the end of a layer
// once it is at least half full. One pass, linear in the number of parameters.

#include "passes/partition.h"


#include <algorithm>

namespace zerocc {
namespace {

constexpr int64_t kAlignment = 32; // elements

int64_t roundUp(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

struct Fields {
  ParameterField parameters;
  GradientField gradients;
  StateField states;
};

// The presets of DESIGN.md's table, and what --reduce and a mesh without a shard axis make of them.
Fields presetOf(const Decisions &decisions, bool small) {
  Fields fields{ParameterField::whole, GradientField::boundary, StateField::whole};
  if (decisions.shard > 1) {
    if (decisions.stage >= 1)
      fields.states = StateField::sharded;
    if (decisions.stage >= 2)
      fields.gradients = GradientField::microStep;
    if (decisions.stage >= 3 && !small)
      fields.parameters = decisions.keep ? ParameterField::kept : ParameterField::refetched;
    if (decisions.reduce == "boundary")
      fields.gradients = GradientField::boundary;
    if (decisions.reduce == "micro-step")
      fields.gradients = GradientField::microStep;
  }
  return fields;
}

int64_t parameterBytes(const Parameter &parameter) { return parameter.value->type.bytes(); }

// First use of each parameter in the graph; parameters that nothing reads come last.
std::vector<int> inReverseOrderOfUse(const Module &module) {
  llvm::DenseMap<const Value *, int64_t> firstUse;
  int64_t position = 0;
  const Graph *graph = module.graph("micro_step") ? module.graph("micro_step") : module.graph("forward");
  if (graph)
    for (const Node *node : graph->nodes) {
      for (const Value *input : node->inputs)
        if (input->isGlobal())
          firstUse.insert({input, position});
      ++position;
    }
  std::vector<std::pair<int64_t, int>> order;
  for (int i = 0; i < static_cast<int>(module.parameters.size()); ++i) {
    auto found = firstUse.find(module.parameters[i].value.get());
    order.push_back({found == firstUse.end() ? position : found->second, i});
  }
  std::sort(order.begin(), order.end());
  std::vector<int> indices;
  for (auto it = order.rbegin(); it != order.rend(); ++it)
    indices.push_back(it->second);
  return indices;
}

// Parameters whose values are read by nodes of more than one place of the forward (an embedding that is also the
// output projection).
bool isTied(const Parameter &parameter) { return parameter.tiedNote; }

} // namespace

std::string layerOf(const std::string &name) {
  size_t begin = 0;
  while (begin < name.size()) {
    size_t end = name.find_first_of("./", begin);
    if (end == std::string::npos)
      end = name.size();
    bool number = end > begin;
    for (size_t i = begin; i < end; ++i)
      number &= name[i] >= '0' && name[i] <= '9';
    if (number)
      return name.substr(0, end);
    begin = end + 1;
  }
  return "";
}

Expected<PassReport> partition(Module &module, const Decisions &decisions) {
  PassReport report;
  module.mesh = {decisions.shard, decisions.replicate};
  module.microSteps = decisions.microSteps;

  int64_t totalBytes = 0;
  for (const Parameter &parameter : module.parameters)
    totalBytes += parameterBytes(parameter);
  int64_t bucketBytes = decisions.bucketBytes > 0 ? decisions.bucketBytes
                                                  : std::min<int64_t>(32 << 20, std::max<int64_t>(totalBytes / 8, 1));
  int64_t smallBytes = decisions.persistenceBytes >= 0 ? decisions.persistenceBytes
                                                       : std::min<int64_t>(100 << 10, totalBytes / 512);

  struct Open {
    int bucket = -1;
    std::string layer;
  };
  Open open[2][2]; // by trainable, small
  module.buckets.clear();

  auto openBucket = [&](const Parameter &parameter, bool small) {
    Fields fields = presetOf(decisions, small);
    Bucket bucket;
    bucket.name = "b" + std::to_string(module.buckets.size());
    bucket.fetchDtype = parameter.value->type.dtype;
    bucket.gradientDtype = parameter.value->type.dtype;
    bucket.trainable = parameter.trainable;
    bucket.parameters = fields.parameters;
    bucket.gradients = fields.gradients;
    bucket.states = fields.states;
    module.buckets.push_back(std::move(bucket));
    return static_cast<int>(module.buckets.size()) - 1;
  };

  auto place = [&](int bucketIndex, int parameterIndex) {
    Bucket &bucket = module.buckets[bucketIndex];
    Parameter &parameter = module.parameters[parameterIndex];
    int64_t begin = bucket.ranges.empty() ? 0 : roundUp(bucket.ranges.back().end, kAlignment);
    int64_t elements = parameter.value->type.elements();
    bucket.ranges.push_back({parameterIndex, begin, begin + elements});
    bucket.elements += elements;
    parameter.bucket = bucketIndex;
    parameter.bucketOffset = begin;
  };

  for (int index : inReverseOrderOfUse(module)) {
    const Parameter &parameter = module.parameters[index];
    bool small = parameterBytes(parameter) <= smallBytes;
    if (isTied(parameter) && !small) {
      place(openBucket(parameter, false), index);
      continue;
    }
    Open &current = open[parameter.trainable][small];
    std::string layer = layerOf(parameter.value->name);
    if (current.bucket >= 0) {
      int64_t used = module.buckets[current.bucket].ranges.back().end * byteSize(parameter.value->type.dtype);
      bool full = used + parameterBytes(parameter) > bucketBytes;
      bool layerEnds = layer != current.layer && used * 2 >= bucketBytes && !small;
      if (full || layerEnds)
        current.bucket = -1;
    }
    if (current.bucket < 0)
      current.bucket = openBucket(parameter, small);
    current.layer = layer;
    place(current.bucket, index);
  }

  int64_t padding = 0;
  for (Bucket &bucket : module.buckets) {
    bucket.paddedElements = roundUp(bucket.ranges.back().end, kAlignment * module.mesh.ranks());
    padding += bucket.paddedElements - bucket.elements;
  }
  report.counters["buckets"] = static_cast<int64_t>(module.buckets.size());
  report.counters["paddingElements"] = padding;
  report.changed = !module.buckets.empty();
  return report;
}

} // namespace zerocc
