#include "compiler/plan/emit.h"

#include "compiler/ir/views.h"
#include "compiler/ops/ops.h"
#include "runtime/plan/plan.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/Support/xxhash.h"

namespace zerocc {
namespace {

class Emitter {
public:
  Emitter(const Module &module, const EmitOptions &options) : module_(module), options_(options) {}

  plan::Plan run() {
    plan_.set_version(kPlanVersion);
    provenance();
    plan_.set_numerics_key(numericsKey(module_, options_));
    plan_.mutable_mesh()->set_shard(module_.mesh.shard);
    plan_.mutable_mesh()->set_replicate(module_.mesh.replicate);
    plan_.set_micro_steps(module_.microSteps);
    plan_.set_micro_batch(options_.microBatch);
    for (int r = 0; r < kRegions; ++r) {
      plan::RegionSize *region = plan_.add_regions();
      region->set_name(regionName(static_cast<Region>(r)));
      region->set_bytes(module_.regionBytes[r]);
    }
    for (const std::string &group : options_.groups)
      plan_.add_groups(group);
    parameters();
    buckets();
    storages();
    inputs();
    constants();
    for (const auto &graph : module_.graphs)
      segment(*graph);
    *plan_.mutable_defaults() = options_.defaults;
    facts();
    return std::move(plan_);
  }

private:
  void provenance() {
    plan::Provenance *provenance = plan_.mutable_provenance();
    provenance->set_compiler_version(options_.compilerVersion);
    provenance->set_command(options_.command);
    provenance->set_model_file(options_.modelFile);
    provenance->set_model_fingerprint(options_.modelFingerprint);
    for (const std::string &note : options_.notes)
      provenance->add_notes(note);
  }

  int groupOf(const std::string &name) const {
    for (size_t i = 0; i < options_.groups.size(); ++i)
      if (options_.groups[i] == name)
        return static_cast<int>(i);
    assert(false && "a parameter group without run-time values");
    return 0;
  }

  void parameters() {
    for (const zerocc::Parameter &from : module_.parameters) {
      plan::Parameter *to = plan_.add_parameters();
      to->set_name(from.value->name);
      to->set_dtype(static_cast<uint32_t>(from.value->type.dtype));
      to->mutable_dims()->Add(from.value->type.dims.begin(), from.value->type.dims.end());
      to->set_initializer(from.source.initializer);
      if (from.source.kind == DataSource::Kind::inlineBytes)
        to->set_inline_data(from.source.bytes);
      to->set_trainable(from.trainable);
      to->set_group(groupOf(from.group));
      to->set_tied(from.tiedNote);
      to->set_bucket(from.bucket);
      to->set_bucket_offset(from.bucketOffset);
      if (auto copies = options_.copies.find(from.value->name); copies != options_.copies.end()) {
        to->mutable_copies()->Add(copies->second.same.begin(), copies->second.same.end());
        to->mutable_transposed_copies()->Add(copies->second.transposed.begin(),
                                             copies->second.transposed.end());
      }
    }
  }

  void buckets() {
    for (const zerocc::Bucket &from : module_.buckets) {
      plan::Bucket *to = plan_.add_buckets();
      to->set_name(from.name);
      to->set_fetch_dtype(static_cast<uint32_t>(from.fetchDtype));
      to->set_gradient_dtype(static_cast<uint32_t>(from.gradientDtype));
      to->set_trainable(from.trainable);
      to->set_parameters(fieldName(from.parameters));
      to->set_gradients(fieldName(from.gradients));
      to->set_states(fieldName(from.states));
      to->set_elements(from.elements);
      to->set_padded_elements(from.paddedElements);
      for (const BucketRange &range : from.ranges) {
        plan::Range *r = to->add_ranges();
        r->set_parameter(range.parameter);
        r->set_begin(range.begin);
        r->set_end(range.end);
        r->set_group(groupOf(module_.parameters[range.parameter].group));
      }
    }
  }

  void storages() {
    for (const zerocc::Storage &from : module_.storages) {
      plan::Storage *to = plan_.add_storages();
      const std::string &name = from.value->name;
      to->set_name(name);
      to->set_bucket(-1);
      auto [owner, kind] =
          from.isBuffer() ? std::pair<llvm::StringRef, llvm::StringRef>() : llvm::StringRef(name).rsplit('.');
      for (size_t b = 0; b < module_.buckets.size(); ++b)
        if (owner == module_.buckets[b].name && !kind.empty()) {
          to->set_bucket(static_cast<int>(b));
          to->set_sharded(module_.mesh.shard > 1 && from.value->type.elements() * module_.mesh.shard ==
                                                        module_.buckets[b].paddedElements);
        }
      const bool isOutput = !from.isBuffer() && llvm::StringRef(name).startswith("output:"); // build_inference
      if (from.isBuffer())
        to->set_initializer(from.source.initializer);
      if (from.isBuffer() || isOutput)
        to->mutable_dims()->Add(from.value->type.dims.begin(), from.value->type.dims.end());
      to->set_kind(from.isBuffer()     ? plan::Storage::BUFFER
                   : isOutput          ? plan::Storage::OUTPUT
                   : kind == "param"   ? plan::Storage::PARAMETER
                   : kind == "grad"    ? plan::Storage::GRADIENT
                   : kind == "m"       ? plan::Storage::MOMENT1
                   : kind == "v"       ? plan::Storage::MOMENT2
                   : name == "scalars" ? plan::Storage::SCALARS
                   : name == "loss"    ? plan::Storage::LOSS
                                       : plan::Storage::OTHER);
      to->set_region(static_cast<uint32_t>(from.value->place.region));
      to->set_offset(from.value->place.offset);
      to->set_dtype(static_cast<uint32_t>(from.value->type.dtype));
      to->set_elements(from.value->type.elements());
    }
  }

  void inputs() {
    for (const zerocc::Input &from : module_.inputs) {
      plan::Input *to = plan_.add_inputs();
      to->set_name(from.value->name);
      to->set_dtype(static_cast<uint32_t>(from.value->type.dtype));
      to->mutable_dims()->Add(from.value->type.dims.begin(), from.value->type.dims.end());
      to->set_role(from.role);
      to->set_of(from.of);
      to->set_shift(from.shift);
      to->set_has_range(from.hasRange);
      to->set_low(from.low);
      to->set_high(from.high);
      to->set_has_ignore(from.hasIgnore);
      to->set_ignore_index(from.hasIgnore ? from.ignoreIndex : 0);
      to->set_offset(from.value->place.offset);
    }
  }

  void constants() {
    for (const zerocc::Constant &from : module_.constants) {
      plan::Constant *to = plan_.add_constants();
      to->set_name(from.value->name);
      to->set_dtype(static_cast<uint32_t>(from.value->type.dtype));
      to->mutable_dims()->Add(from.value->type.dims.begin(), from.value->type.dims.end());
      to->set_offset(from.value->place.offset);
      if (from.source.kind == DataSource::Kind::inlineBytes)
        to->set_inline_data(from.source.bytes);
      else if (from.source.kind == DataSource::Kind::initializer)
        to->set_initializer(from.source.initializer);
    }
  }

  void operand(plan::Operand *to, const Value *value, uint32_t number) {
    to->set_value(number);
    RootOffset at = locate(value);
    assert(at.root->place.kind == Place::Kind::region && "a value without bytes");
    to->set_region(static_cast<uint32_t>(at.root->place.region));
    to->set_offset(at.root->place.offset + at.bytes);
    to->set_rank_stride(at.rankStrideBytes);
    to->set_dtype(static_cast<uint32_t>(value->type.dtype));
    to->mutable_dims()->Add(value->type.dims.begin(), value->type.dims.end());
    if (!at.view.isContiguous())
      to->mutable_strides()->Add(at.view.strides.begin(), at.view.strides.end());
  }

  /// Operand::value of what `value` is to be read as: the number of the result behind its views, or the
  /// constant's or input's. 0: a storage, or a buffer that several results fill.
  uint32_t numberOf(const Value *value) const {
    while (!value->isGlobal() && value->place.kind != Place::Kind::value &&
           opAlias(value->definition->op) == Alias::View)
      value = value->definition->input(0);
    if (!value->isGlobal())
      return numbers_.lookup(value);
    if (const zerocc::Constant *constant = module_.constantOf(value))
      return kConstantValue + static_cast<uint32_t>(constant - module_.constants.data());
    if (const zerocc::Input *input = module_.inputOf(value))
      return kInputValue + static_cast<uint32_t>(input - module_.inputs.data());
    return 0;
  }

  static bool isEmitted(const Node &node) {
    return !isViewNode(node) && node.op != OpKind::Buffer && node.op != OpKind::Member;
  }

  void attribute(plan::Instruction *instruction, const Attributes::Entry &entry) {
    plan::Attribute *to = instruction->add_attributes();
    to->set_name(entry.first);
    if (auto *integer = std::get_if<int64_t>(&entry.second))
      to->set_integer(*integer);
    else if (auto *real = std::get_if<double>(&entry.second))
      to->set_real(*real);
    else if (auto *text = std::get_if<std::string>(&entry.second))
      to->set_text(*text);
    else
      for (int64_t value : std::get<std::vector<int64_t>>(entry.second))
        to->mutable_integers()->add_values(value);
  }

  // A bucket's parameters at a segment's borders: whole ones are new at the owner only once `update` has run.
  void bucketStates(plan::Segment *segment, const Graph &graph) {
    for (size_t b = 0; b < module_.buckets.size(); ++b) {
      const zerocc::Bucket &bucket = module_.buckets[b];
      bool whole = bucket.parameters == ParameterField::whole;
      bool moves =
          whole && bucket.trainable && bucket.states == StateField::sharded && module_.mesh.shard > 1;
      bool inside = graph.name == "middle" || graph.name == "last";
      bool leavesWhole = inside || graph.name == "only" || graph.name == "first";
      plan::BucketState *state = segment->add_bucket_states();
      state->set_bucket(static_cast<uint32_t>(b));
      if (!whole) {
        state->set_entry("owner");
        state->set_exit("owner");
      } else if (!moves) {
        state->set_entry("whole");
        state->set_exit("whole");
      } else {
        state->set_entry(inside || graph.name == "update" ? "whole" : "owner");
        state->set_exit(leavesWhole ? "whole" : "owner");
      }
    }
  }

  void segment(const Graph &graph) {
    plan::Segment *segment = plan_.add_segments();
    segment->set_name(graph.name);
    llvm::DenseMap<const Node *, uint32_t> events;
    for (const Node *node : graph.nodes)
      for (const Node *awaited : node->after)
        events.insert({awaited, 0});
    uint32_t count = 0;
    for (const Node *node : graph.nodes)
      if (auto found = events.find(node); found != events.end())
        found->second = ++count;
    segment->set_events(count);
    numbers_.clear();
    for (const Node *node : graph.nodes) {
      if (!isEmitted(*node)) {
        assert(node->after.empty() && "a wait on a node that is not emitted");
        continue;
      }
      plan::Instruction *to = segment->add_instructions();
      to->set_op(static_cast<uint32_t>(node->op));
      // A collective reads its buffer; its members are operands for the order only.
      size_t inputs = node->op == OpKind::ReduceStart ? 1 : node->inputs.size();
      for (size_t i = 0; i < inputs; ++i)
        operand(to->add_inputs(), node->inputs[i], numberOf(node->inputs[i]));
      for (const Value *result : node->results) {
        const auto number = static_cast<uint32_t>(numbers_.size() + 1);
        operand(to->add_results(), result, node->op == OpKind::ClearPadding ? 0 : number);
        if (node->op != OpKind::ClearPadding)
          numbers_[result] = number;
      }
      for (const Attributes::Entry &entry : node->attributes.entries()) {
        if (entry.first == "workspace") {
          to->set_workspace_offset(std::get<int64_t>(entry.second));
          to->set_workspace_bytes(workspaceBytes(*node));
        } else {
          attribute(to, entry);
        }
      }
      to->set_stream(static_cast<uint32_t>(node->stream));
      for (const Node *awaited : node->after)
        to->add_wait(events.lookup(awaited));
      to->set_record(events.lookup(node));
      to->set_bucket(node->bucket);
      to->set_location(node->location);
    }
    bucketStates(segment, graph);
  }

  void facts() {
    plan::Facts *facts = plan_.mutable_facts();
    facts->set_optimizer(options_.optimizer);
    facts->set_clipping(options_.clipping);
    facts->set_static_count(module_.facts.getFloat("static_count"));
    facts->set_loss(options_.loss);
    facts->set_precision(options_.precision);
    facts->set_nodes(module_.facts.getInt("model.nodes"));
    facts->set_stage(options_.stage);
    for (const Attributes::Entry &entry : module_.facts.entries()) {
      if (entry.first == "peak.at")
        facts->set_peak_at(std::get<std::string>(entry.second));
      else if (llvm::StringRef(entry.first).startswith("peak."))
        (*facts->mutable_peak_kinds())[entry.first.substr(5)] = std::get<int64_t>(entry.second);
    }
    facts->set_arena_lower_bound(module_.facts.getInt("arena_lower_bound"));
    for (const auto &graph : module_.graphs)
      if (graph->name == "only" || graph->name == "first" || graph->name == "infer") {
        int64_t flops = 0;
        for (const Node *node : graph->nodes)
          flops += costOf(*node).flops;
        facts->set_step_flops(flops);
      }
  }

  const Module &module_;
  const EmitOptions &options_;
  plan::Plan plan_;
  llvm::DenseMap<const Value *, uint32_t> numbers_; // of the results of the segment at hand
};

} // namespace

std::string fingerprint(llvm::StringRef text) {
  uint64_t hash = llvm::xxHash64(text);
  static const char *digits = "0123456789abcdef";
  std::string out;
  for (int shift = 60; shift >= 0; shift -= 4)
    out += digits[(hash >> shift) & 15];
  return out;
}

std::string numericsKey(const Module &module, const EmitOptions &options) {
  if (options.inference) // nothing is summed over ranks: a sample's outputs are the same on any mesh
    return "inference micro-batch=" + std::to_string(options.microBatch) + " precision=" + options.precision +
           " graph=" + options.graphFingerprint + " threads=1";
  std::string layout;
  bool anyMicroStep = false;
  for (const zerocc::Bucket &bucket : module.buckets) {
    layout += bucket.name + ":" + std::to_string(bucket.paddedElements);
    for (const BucketRange &range : bucket.ranges)
      layout += "," + module.parameters[range.parameter].value->name + "@" + std::to_string(range.begin);
    layout += ";";
    anyMicroStep |= bucket.trainable && bucket.gradients == GradientField::microStep;
  }
  // With one micro-step both placements form the same sums.
  std::string reduce = module.microSteps == 1 || module.mesh.shard == 1 ? "any"
                       : anyMicroStep                                   ? "micro-step"
                                                                        : "boundary";
  return "mesh=" + std::to_string(module.mesh.shard) + "x" + std::to_string(module.mesh.replicate) +
         " micro-steps=" + std::to_string(module.microSteps) +
         " micro-batch=" + std::to_string(options.microBatch) + " precision=" + options.precision +
         " wire=f32 accumulation=f32 reduce=" + reduce + " layout=" + fingerprint(layout) +
         " graph=" + options.graphFingerprint + " optimizer=" + options.optimizer +
         (options.clipping ? ",clipped" : "") + " threads=1";
}

plan::Plan emitPlan(const Module &module, const EmitOptions &options) {
  return Emitter(module, options).run();
}

} // namespace zerocc
