#include "passes/build_inference.h"

#include "compiler/ops/ops.h"
#include "passes/build_step.h"

namespace zerocc {
namespace {

/// The node that makes the value writes all of its bytes, and nobody has said where.
bool hasBytesOfItsOwn(const Value &value) {
  return !value.isGlobal() && opAlias(value.definition->op) == Alias::None && value.place.kind == Place::Kind::none;
}

} // namespace

Expected<PassReport> buildInference(Module &module, const Decisions &) {
  Graph *graph = module.graph("forward");
  assert(graph && "build_inference needs the forward graph");
  graph->name = "infer";
  PassReport report;
  report.changed = true;
  for (const Bucket &bucket : module.buckets) {
    const bool isWhole = bucket.parameters == ParameterField::whole;
    const int64_t elements = isWhole ? bucket.paddedElements : bucket.paddedElements / module.mesh.shard;
    module.addStorage(storageName(bucket, "param"), {bucket.fetchDtype, {elements}}, Region::persistent);
  }
  placeInitResults(module);
  GraphBuilder g(module, *graph);
  for (auto &[name, value] : graph->results) {
    Value *storage = module.addStorage("output:" + name, value->type, Region::carried);
    if (!hasBytesOfItsOwn(*value)) {
      g.location = name;
      value = g.make(OpKind::Copy, {value})->result();
      ++report.counters["copies"];
    }
    value->place = {Place::Kind::value, storage, Region::arena, 0};
    ++report.counters["outputs"];
  }
  graph->results.clear();
  return report;
}

} // namespace zerocc
