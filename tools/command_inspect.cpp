#include "tools/command_inspect.h"

#include "compiler/ops/op_kind.h"
#include "compiler/support/dtype.h"
#include "compiler/support/escape_json.h"
#include "runtime/plan/optimizers.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/report.h"
#include "runtime/plan/verify_structure.h"
#include "tools/command_inspect_schedule.h"
#include "tools/table.h"

#include "llvm/Support/FileUtilities.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>

namespace zerocc {
namespace {

constexpr int kSchema = 1;

int64_t ranksOf(const plan::Plan &plan) {
  return static_cast<int64_t>(plan.mesh().shard()) * static_cast<int64_t>(plan.mesh().replicate());
}

std::string counted(int64_t count, const std::string &one, const std::string &many) {
  return formatCount(count) + " " + (count == 1 ? one : many);
}

std::string typeText(uint32_t dtype, const google::protobuf::RepeatedField<int64_t> &dims) {
  std::string text(dtypeName(static_cast<DType>(dtype)));
  text += "[";
  for (int i = 0; i < dims.size(); ++i)
    text += (i ? "," : "") + std::to_string(dims[i]);
  return text + "]";
}

// Shortest text that is still exact enough to read: 0.001, 3e-04.
std::string realText(double value) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%g", value);
  return buffer;
}

// --- summary

/// "refetched (12 buckets), whole (2)": how often each value of a field occurs, in order of first appearance.
template <typename Get> std::string fieldText(const plan::Plan &plan, Get get) {
  std::vector<std::pair<std::string, int>> seen;
  for (const plan::Bucket &bucket : plan.buckets()) {
    std::string value = get(bucket);
    if (value.empty())
      continue;
    auto found =
        std::find_if(seen.begin(), seen.end(), [&](const auto &entry) { return entry.first == value; });
    if (found == seen.end())
      seen.push_back({value, 1});
    else
      ++found->second;
  }
  std::string text;
  for (const auto &[value, count] : seen) {
    text += (text.empty() ? "" : ", ") + value;
    if (seen.size() > 1)
      text += " (" + counted(count, "bucket", "buckets") + ")";
  }
  return text.empty() ? "-" : text;
}

/// The fields that a stage is a name for.
void addStage(const plan::Plan &plan, Table &table) {
  auto ofTrainable = [](const plan::Bucket &bucket, const std::string &value) {
    return bucket.trainable() ? value : std::string();
  };
  table.add({"stage", std::to_string(plan.facts().stage()) + ": parameters " +
                          fieldText(plan, [](const plan::Bucket &b) { return b.parameters(); })});
  table.add({"", "gradients reduced at " +
                     fieldText(plan, [&](const plan::Bucket &b) { return ofTrainable(b, b.gradients()); }) +
                     "; optimizer states " +
                     fieldText(plan, [&](const plan::Bucket &b) { return ofTrainable(b, b.states()); })});
}

std::string parametersText(const plan::Plan &plan) {
  int64_t frozen = 0, frozenTensors = 0, tied = 0, padded = 0;
  for (const plan::Parameter &parameter : plan.parameters()) {
    tied += parameter.tied();
    if (parameter.trainable())
      continue;
    frozen += elementsOfDims(parameter.dims());
    ++frozenTensors;
  }
  int64_t elements = parameterElements(plan);
  for (const plan::Bucket &bucket : plan.buckets())
    padded += static_cast<int64_t>(bucket.padded_elements());
  std::string text = formatCount(elements) + " in " + counted(plan.parameters_size(), "tensor", "tensors");
  if (frozenTensors > 0)
    text += ", of which " + formatCount(frozen) + " in " + counted(frozenTensors, "tensor", "tensors") +
            " frozen";
  if (tied > 0)
    text += ", " + formatCount(tied) + " tied";
  return text + "; " + counted(plan.buckets_size(), "bucket", "buckets") + ", padding " +
         formatShare(padded - elements, elements);
}

std::string stepText(const plan::Plan &plan) {
  int64_t ranks = ranksOf(plan), microSteps = plan.micro_steps(), microBatch = plan.micro_batch();
  std::string text = counted(microSteps, "micro-step", "micro-steps") + " of " +
                     counted(microBatch, "sample", "samples") + " on " + counted(ranks, "rank", "ranks") +
                     ": " + counted(ranks * microSteps * microBatch, "sample", "samples");
  for (const plan::Input &input : plan.inputs())
    if (input.role() == "tokens")
      return text + ", " + counted(ranks * microSteps * elementsOfDims(input.dims()), "token", "tokens") +
             " a step";
  return text + " a step";
}

/// A parameter group of a training plan, with its run-time defaults.
struct PlanGroup {
  std::string name;
  bool isNamed = false; // by --group
  double weightDecay = 0, lrFactor = 1;
  int64_t elements = 0, tensors = 0; // of trainable parameters
};

std::vector<PlanGroup> groupsOf(const plan::Plan &plan) {
  const plan::RunDefaults &defaults = plan.defaults();
  std::vector<PlanGroup> groups;
  for (int g = 0; g < plan.groups_size() && g < defaults.group_weight_decay_size(); ++g)
    groups.push_back({plan.groups(g), g >= 2, defaults.group_weight_decay(g),
                      g < defaults.group_lr_factor_size() ? defaults.group_lr_factor(g) : 1});
  for (const plan::Parameter &parameter : plan.parameters())
    if (parameter.trainable() && parameter.group() < groups.size()) {
      groups[parameter.group()].elements += elementsOfDims(parameter.dims());
      ++groups[parameter.group()].tensors;
    }
  return groups;
}

std::string optimizerText(const plan::Plan &plan) {
  const plan::RunDefaults &defaults = plan.defaults();
  std::string text = plan.facts().optimizer() + ", lr " + realText(defaults.lr());
  if (!defaults.lr_schedule().empty() && defaults.lr_schedule() != "constant")
    text += " " + defaults.lr_schedule();
  const Optimizer *optimizer = findOptimizer(plan.facts().optimizer());
  if (optimizer && optimizer->beta1 >= 0)
    text += ", betas " + realText(defaults.beta1()) + " " + realText(defaults.beta2());
  else if (optimizer && optimizer->beta2 >= 0)
    text += ", beta2 " + realText(defaults.beta2());
  else if (defaults.momentum() != 0)
    text += (defaults.nesterov() ? ", Nesterov momentum " : ", momentum ") + realText(defaults.momentum());
  auto add = [&](const char *name, double value) {
    if (value != 0)
      text += std::string(", ") + name + " " + realText(value);
  };
  add("dampening", defaults.dampening());
  add("decay after the update", defaults.post_decay());
  add("rate decay", defaults.rate_decay());
  if (defaults.dampening() != 0 || defaults.rate_decay() != 0 || plan.facts().optimizer() == "onnx_adam")
    text += ", T from " + std::to_string(defaults.first_count());
  double decay = 0;
  for (const PlanGroup &group : groupsOf(plan))
    decay = std::max(decay, group.isNamed ? 0 : group.weightDecay);
  if (decay != 0)
    text += ", weight decay " + realText(decay);
  text += plan.facts().clipping() ? ", gradients clipped to norm " + realText(defaults.clip_grad_norm()) : "";
  return text + " (changeable in zero-run)";
}

const char *kindText(ArenaValue::Kind kind) {
  constexpr const char *names[] = {"activation", "fetched", "gradients", "workspace"};
  return names[static_cast<int>(kind)];
}

/// Where the fullest instant is, and the largest things that are alive then.
std::string peakText(const plan::Plan &plan, size_t limit) {
  FullestInstant fullest = findFullestInstant(plan);
  if (fullest.instruction < 0)
    return "";
  const plan::Segment &segment = plan.segments(fullest.segment);
  const plan::Instruction &instruction = segment.instructions(fullest.instruction);
  std::string text = "fullest at " + printable(instruction.location()) + " (" +
                     std::string(opText(static_cast<OpKind>(instruction.op()))) + ", instruction " +
                     std::to_string(fullest.instruction) + " of segment " + printable(segment.name()) +
                     "), where the arena holds\n";
  Table table({{"size", Align::right},
               {"what"},
               {"from", Align::right},
               {"to", Align::right},
               {"written by", Align::left, 70}});
  for (size_t i = 0; i < fullest.alive.size() && i < limit; ++i) {
    const ArenaValue &value = fullest.alive[i];
    const plan::Instruction &first = segment.instructions(value.first);
    bool isBucket = value.bucket >= 0 && value.kind != ArenaValue::Kind::activation;
    std::string what = kindText(value.kind);
    std::string by = std::string(opText(static_cast<OpKind>(first.op()))) + " " + first.location();
    if (isBucket) {
      what += " #" + plan.buckets(value.bucket).name();
      by = bucketLabel(plan, value.bucket);
    }
    table.add({formatBytes(value.bytes), what, std::to_string(value.first), std::to_string(value.last), by});
  }
  text += table.text();
  if (fullest.alive.size() > limit) {
    int64_t rest = 0;
    for (size_t i = limit; i < fullest.alive.size(); ++i)
      rest += fullest.alive[i].bytes;
    text += "  and " + formatBytes(rest) + " in " +
            counted(static_cast<int64_t>(fullest.alive.size() - limit), "smaller one", "smaller ones") + "\n";
  }
  return text;
}

std::string memoryText(const plan::Plan &plan) {
  MemoryReport memory = reportMemory(plan);
  Table table({{"memory of a rank at its peak"},
               {"size", Align::right},
               {"bytes", Align::right},
               {"share", Align::right},
               {"textbook", Align::right}});
  for (const MemoryKind &kind : memory.kinds)
    table.add({kind.name, formatBytes(kind.bytes), formatCount(kind.bytes),
               formatShare(kind.bytes, memory.peak), kind.textbook ? formatBytes(*kind.textbook) : ""});
  table.addRule();
  table.add({"peak", formatBytes(memory.peak), formatCount(memory.peak), "", formatBytes(memory.textbook)});
  return table.text(0) +
         "textbook: parameters, gradients and states as the ZeRO paper counts them for these fields\n" +
         "arena: " + formatBytesExactly(memory.arena) + ", lower bound " +
         formatBytesExactly(memory.arenaLowerBound) + ", waste " +
         formatShare(memory.arenaWaste(), memory.arena) + "\n";
}

std::string trafficText(const plan::Plan &plan) {
  TrafficReport traffic = reportTraffic(plan);
  Table table({{"received by a rank in a step"},
               {"size", Align::right},
               {"bytes", Align::right},
               {"minimum", Align::right},
               {"padding", Align::right}});
  auto add = [&](const std::string &kind, int64_t bytes, int64_t minimum) {
    table.add(
        {kind, formatBytes(bytes), formatCount(bytes), formatBytes(minimum), formatBytes(bytes - minimum)});
  };
  add("all-gather", traffic.step.allGather, traffic.minimum.allGather);
  add("reduce-scatter", traffic.step.reduceScatter, traffic.minimum.reduceScatter);
  add("all-reduce, scalars", traffic.step.allReduceWithScalars(), traffic.minimum.allReduceWithScalars());
  table.addRule();
  add("total", traffic.step.total(), traffic.minimum.total());
  std::string text = table.text(0);
  if (traffic.eval.total() > 0)
    text += "an evaluation batch: " + formatBytesExactly(traffic.eval.total()) + "\n";
  return text;
}

std::string scheduleLine(const plan::Plan &plan) {
  std::string text;
  for (const plan::Segment &segment : plan.segments())
    text += (text.empty() ? "" : ", ") + printable(segment.name()) + " " +
            formatCount(segment.instructions_size());
  return "instructions: " + text + "; a micro-step computes " +
         formatFlops(static_cast<int64_t>(plan.facts().step_flops()));
}

void addGroups(const plan::Plan &plan, Table &table) {
  for (const PlanGroup &group : groupsOf(plan))
    if (group.isNamed)
      table.add({"group", group.name + ": " + counted(group.elements, "parameter", "parameters") + " in " +
                              counted(group.tensors, "tensor", "tensors") + ", learning rate x " +
                              realText(group.lrFactor) + ", weight decay " + realText(group.weightDecay)});
}

} // namespace

std::string planSummary(const plan::Plan &plan, bool withNotes) {
  Table head({{""}, {""}});
  const plan::Provenance &provenance = plan.provenance();
  head.add({"model", provenance.model_file() + ", " + counted(plan.facts().nodes(), "node", "nodes")});
  head.add({"parameters", parametersText(plan)});
  head.add({"mesh", counted(ranksOf(plan), "rank", "ranks") + ": shard " +
                        std::to_string(plan.mesh().shard()) + ", replicate " +
                        std::to_string(plan.mesh().replicate())});
  addStage(plan, head);
  head.add({"precision", plan.facts().precision()});
  if (!isInference(plan)) {
    head.add({"loss", plan.facts().loss().empty() ? "the model's own" : plan.facts().loss()});
    head.add({"optimizer", optimizerText(plan)});
    addGroups(plan, head);
  }
  for (const plan::Storage &storage : plan.storages())
    if (storage.kind() == plan::Storage::OUTPUT)
      head.add({"output", storage.name().substr(storage.name().find(':') + 1) + " " +
                              typeText(storage.dtype(), storage.dims())});
  head.add({"step", stepText(plan)});
  std::string text = head.text(0) + "\n" + memoryText(plan);
  if (std::string peak = peakText(plan, 5); !peak.empty())
    text += peak;
  text += "\n" + trafficText(plan) + "\n" + scheduleLine(plan) + "\n";
  text += "numerics key: " + printable(plan.numerics_key()) + "\n";
  if (withNotes)
    for (const std::string &note : provenance.notes())
      text += "note: " + printable(note) + "\n";
  return text;
}

namespace {

// --- the single views

/// What lives outside the arena and is no constant: a row per bucket, then the others.
std::string storagesText(const plan::Plan &plan) {
  using Storage = plan::Storage;
  Table table({{"storage"},
               {"holds", Align::left, 40},
               {"parameters", Align::right},
               {"gradients", Align::right},
               {"moment 1", Align::right},
               {"moment 2", Align::right},
               {"bytes", Align::right}});
  auto bytesOf = [](const Storage &storage) {
    return static_cast<int64_t>(storage.elements()) * byteSize(static_cast<DType>(storage.dtype()));
  };
  for (int b = 0; b < plan.buckets_size(); ++b) {
    std::map<int, int64_t> bytes; // by kind
    int64_t total = 0;
    for (const Storage &storage : plan.storages())
      if (storage.bucket() == b) {
        bytes[storage.kind()] += bytesOf(storage);
        total += bytesOf(storage);
      }
    std::vector<std::string> row{"#" + plan.buckets(b).name(), bucketLabel(plan, b)};
    for (int kind : {Storage::PARAMETER, Storage::GRADIENT, Storage::MOMENT1, Storage::MOMENT2})
      row.push_back(bytes.count(kind) ? formatBytes(bytes[kind]) : "");
    row.push_back(formatCount(total));
    table.add(std::move(row));
  }
  for (const Storage &storage : plan.storages())
    if (storage.bucket() < 0)
      table.add({storage.name(), "", "", "", "", "", formatCount(bytesOf(storage))});
  return table.text(0);
}

std::string memoryView(const plan::Plan &plan) {
  Table regions({{"region"}, {"size", Align::right}, {"bytes", Align::right}, {"lives"}});
  constexpr const char *lives[] = {
      "always: parameters, states, constants, scalars", "from micro-step to update: gradients, loss",
      "inside one segment; all segments share it", "filled by the host before a micro-step"};
  for (int r = 0; r < plan.regions_size(); ++r) {
    int64_t bytes = static_cast<int64_t>(plan.regions(r).bytes());
    regions.add({plan.regions(r).name(), formatBytes(bytes), formatCount(bytes), r < 4 ? lives[r] : ""});
  }
  return memoryText(plan) + "\n" + regions.text(0) + "\n" + storagesText(plan) + "\n" + peakText(plan, 20);
}

Table memoryCsv(const plan::Plan &plan) {
  MemoryReport memory = reportMemory(plan);
  Table table({{"kind"}, {"bytes"}, {"textbook_bytes"}});
  for (const MemoryKind &kind : memory.kinds)
    table.add({kind.name, std::to_string(kind.bytes), kind.textbook ? std::to_string(*kind.textbook) : ""});
  table.add({"peak", std::to_string(memory.peak), std::to_string(memory.textbook)});
  return table;
}

std::string trafficView(const plan::Plan &plan) {
  TrafficReport traffic = reportTraffic(plan);
  Table segments({{"segment"},
                  {"runs a step", Align::right},
                  {"all-gather", Align::right},
                  {"reduce-scatter", Align::right},
                  {"all-reduce", Align::right},
                  {"scalars", Align::right},
                  {"bytes of a run", Align::right}});
  for (const SegmentTraffic &segment : traffic.segments)
    segments.add({segment.segment, formatCount(segment.runs), formatBytes(segment.once.allGather),
                  formatBytes(segment.once.reduceScatter), formatBytes(segment.once.allReduce),
                  formatBytes(segment.once.exchange), formatCount(segment.once.total())});
  Table buckets({{"bucket"},
                 {"parameters", Align::left, 40},
                 {"all-gather", Align::right},
                 {"reduce-scatter", Align::right},
                 {"all-reduce", Align::right},
                 {"bytes a step", Align::right},
                 {"minimum", Align::right}});
  for (int b = 0; b < plan.buckets_size(); ++b) {
    const BucketTraffic &bucket = traffic.buckets[b];
    buckets.add({"#" + plan.buckets(b).name(), bucketLabel(plan, b), formatBytes(bucket.step.allGather),
                 formatBytes(bucket.step.reduceScatter), formatBytes(bucket.step.allReduce),
                 formatCount(bucket.step.total()), formatCount(bucket.minimum.total())});
  }
  return trafficText(plan) + "\n" + segments.text(0) + "\n" + buckets.text(0);
}

std::string bucketsView(const plan::Plan &plan) {
  Table table({{"bucket"},
               {"parameters", Align::left, 40},
               {"tensors", Align::right},
               {"elements", Align::right},
               {"padding", Align::right},
               {"whole", Align::right},
               {"parameters"},
               {"gradients"},
               {"states"}});
  for (int b = 0; b < plan.buckets_size(); ++b) {
    const plan::Bucket &bucket = plan.buckets(b);
    int64_t padded = static_cast<int64_t>(bucket.padded_elements());
    table.add({"#" + bucket.name(), bucketLabel(plan, b), std::to_string(bucket.ranges_size()),
               formatCount(static_cast<int64_t>(bucket.elements())),
               formatCount(padded - static_cast<int64_t>(bucket.elements())),
               formatBytes(padded * byteSize(static_cast<DType>(bucket.fetch_dtype()))), bucket.parameters(),
               bucket.trainable() ? bucket.gradients() : "frozen",
               bucket.trainable() ? bucket.states() : ""});
  }
  return table.text(0);
}

Table bucketsCsv(const plan::Plan &plan) {
  Table table({{"id"},
               {"label"},
               {"tensors"},
               {"elements"},
               {"padded_elements"},
               {"fetch_dtype"},
               {"gradient_dtype"},
               {"trainable"},
               {"parameters"},
               {"gradients"},
               {"states"}});
  for (int b = 0; b < plan.buckets_size(); ++b) {
    const plan::Bucket &bucket = plan.buckets(b);
    table.add({bucket.name(), bucketLabel(plan, b), std::to_string(bucket.ranges_size()),
               std::to_string(bucket.elements()), std::to_string(bucket.padded_elements()),
               std::string(dtypeName(static_cast<DType>(bucket.fetch_dtype()))),
               std::string(dtypeName(static_cast<DType>(bucket.gradient_dtype()))),
               bucket.trainable() ? "1" : "0", bucket.parameters(), bucket.gradients(), bucket.states()});
  }
  return table;
}

std::string inputsView(const plan::Plan &plan) {
  Table table({{"input", Align::left, 40}, {"type"}, {"role"}, {"valid values"}, {"filled from"}});
  for (const plan::Input &input : plan.inputs()) {
    std::string valid, source = "--data";
    if (input.has_range())
      valid = std::to_string(input.low()) + " … " + std::to_string(input.high() - 1);
    if (input.has_ignore())
      valid += (valid.empty() ? "any, ignored: " : ", ignored: ") + std::to_string(input.ignore_index());
    if (input.role() == "labels" && !input.of().empty())
      source = input.of() + (input.shift() != 0 ? ", shifted by " + std::to_string(input.shift()) : "");
    else if (input.role() == "iota" || input.role() == "ones" || input.role() == "zeros")
      source = "made by zero-run";
    else if (input.role() == "data" || input.role() == "labels")
      source = "--data " + input.name() + "=SOURCE";
    table.add({input.name(), typeText(input.dtype(), input.dims()), input.role(), valid, source});
  }
  return table.text(0);
}

std::string parametersView(const plan::Plan &plan) {
  Table table({{"parameter", Align::left, 48},
               {"type"},
               {"bucket"},
               {"offset", Align::right},
               {"group"},
               {"initializer, where it differs", Align::left, 32}});
  for (const plan::Parameter &parameter : plan.parameters()) {
    std::string group = !parameter.trainable() ? "frozen"
                        : parameter.group() < static_cast<uint32_t>(plan.groups_size())
                            ? plan.groups(static_cast<int>(parameter.group()))
                            : "";
    table.add({parameter.name() + (parameter.tied() ? " (tied)" : ""),
               typeText(parameter.dtype(), parameter.dims()),
               "#" + plan.buckets(static_cast<int>(parameter.bucket())).name(),
               formatCount(static_cast<int64_t>(parameter.bucket_offset())), group,
               parameter.initializer() == parameter.name() ? "" : parameter.initializer()});
  }
  return table.text(0);
}

// --- JSON. Strings of a plan are UTF-8: protobuf refuses others when it reads them.

class JsonWriter {
public:
  JsonWriter(const plan::Plan &plan, llvm::json::OStream &json) : plan_(plan), json_(json) {}

  void run() {
    json_.attribute("schema", kSchema);
    json_.attribute("ranks", ranksOf(plan_));
    json_.attributeObject("mesh", [&] {
      json_.attribute("shard", static_cast<int64_t>(plan_.mesh().shard()));
      json_.attribute("replicate", static_cast<int64_t>(plan_.mesh().replicate()));
    });
    json_.attribute("stage", static_cast<int64_t>(plan_.facts().stage()));
    json_.attribute("precision", plan_.facts().precision());
    json_.attribute("micro_steps", static_cast<int64_t>(plan_.micro_steps()));
    json_.attribute("micro_batch", static_cast<int64_t>(plan_.micro_batch()));
    json_.attribute("optimizer", plan_.facts().optimizer());
    json_.attribute("loss", plan_.facts().loss());
    json_.attribute("numerics_key", plan_.numerics_key());
    json_.attribute("fingerprint", planFingerprint(plan_));
    json_.attributeObject("model", [&] {
      json_.attribute("file", plan_.provenance().model_file());
      json_.attribute("fingerprint", plan_.provenance().model_fingerprint());
      json_.attribute("parameters", parameterElements(plan_));
      json_.attribute("tensors", plan_.parameters_size());
      json_.attribute("nodes", static_cast<int64_t>(plan_.facts().nodes()));
    });
    json_.attributeArray("groups", [&] {
      for (const PlanGroup &group : groupsOf(plan_))
        json_.object([&] {
          json_.attribute("name", group.name);
          json_.attribute("parameters", group.elements);
          json_.attribute("tensors", group.tensors);
          json_.attribute("lr_factor", group.lrFactor);
          json_.attribute("weight_decay", group.weightDecay);
        });
    });
    json_.attributeObject("memory", [&] { memory(); });
    json_.attributeObject("traffic", [&] { traffic(); });
    json_.attributeArray("buckets", [&] {
      for (const plan::Bucket &of : plan_.buckets())
        json_.object([&] { bucket(of); });
    });
    json_.attributeObject("schedule", [&] { schedule(); });
    json_.attributeArray("inputs", [&] {
      for (const plan::Input &of : plan_.inputs())
        json_.object([&] { input(of); });
    });
    json_.attributeArray("notes", [&] {
      for (const std::string &note : plan_.provenance().notes())
        json_.value(note);
    });
    json_.attributeObject("written_by", [&] {
      json_.attribute("version", plan_.provenance().compiler_version());
      json_.attribute("command", plan_.provenance().command());
    });
  }

private:
  static std::string dtype(uint32_t number) { return std::string(dtypeName(static_cast<DType>(number))); }

  void memory() {
    MemoryReport memory = reportMemory(plan_);
    json_.attribute("peak", memory.peak);
    json_.attribute("peak_at", memory.peakAt);
    for (const MemoryKind &kind : memory.kinds)
      json_.attribute(kind.name, kind.bytes);
    json_.attributeObject("textbook", [&] {
      for (const MemoryKind &kind : memory.kinds)
        if (kind.textbook)
          json_.attribute(kind.name, *kind.textbook);
      json_.attribute("total", memory.textbook);
    });
    json_.attributeObject("regions", [&] {
      for (const plan::RegionSize &region : plan_.regions())
        json_.attribute(region.name(), static_cast<int64_t>(region.bytes()));
    });
    json_.attribute("arena_lower_bound", memory.arenaLowerBound);
    json_.attribute("arena_waste", memory.arenaWaste());
  }

  void traffic() {
    TrafficReport traffic = reportTraffic(plan_);
    json_.attribute("all_gather", traffic.step.allGather);
    json_.attribute("reduce_scatter", traffic.step.reduceScatter);
    json_.attribute("all_reduce", traffic.step.allReduceWithScalars());
    json_.attribute("total", traffic.step.total());
    json_.attribute("minimum", traffic.minimum.total());
    json_.attribute("padding", traffic.padding());
    json_.attribute("scalars", traffic.step.exchange); // part of all_reduce
    json_.attribute("eval", traffic.eval.total());
  }

  void bucket(const plan::Bucket &bucket) {
    json_.attribute("id", bucket.name());
    json_.attributeArray("parameters", [&] {
      for (const plan::Range &range : bucket.ranges())
        json_.value(plan_.parameters(static_cast<int>(range.parameter())).name());
    });
    json_.attribute("elements", static_cast<int64_t>(bucket.elements()));
    json_.attribute("padded_elements", static_cast<int64_t>(bucket.padded_elements()));
    json_.attributeObject("fields", [&] {
      json_.attribute("parameters", bucket.parameters());
      json_.attribute("gradients", bucket.gradients());
      json_.attribute("states", bucket.states());
    });
    json_.attribute("trainable", bucket.trainable());
    json_.attribute("fetch_dtype", dtype(bucket.fetch_dtype()));
    json_.attribute("gradient_dtype", dtype(bucket.gradient_dtype()));
  }

  void schedule() {
    int64_t instructions = 0, events = 0;
    std::set<uint32_t> streams;
    for (const plan::Segment &segment : plan_.segments()) {
      instructions += segment.instructions_size();
      events += segment.events();
      for (const plan::Instruction &instruction : segment.instructions())
        streams.insert(instruction.stream());
    }
    json_.attribute("instructions", instructions);
    json_.attribute("streams", static_cast<int64_t>(streams.size()));
    json_.attribute("events", events);
    json_.attribute("micro_step_flops", static_cast<int64_t>(plan_.facts().step_flops()));
    json_.attributeArray("segments", [&] {
      for (const plan::Segment &segment : plan_.segments())
        json_.object([&] {
          json_.attribute("name", segment.name());
          json_.attribute("runs_per_step", runsPerStep(plan_, segment));
          json_.attribute("instructions", segment.instructions_size());
          json_.attribute("events", static_cast<int64_t>(segment.events()));
        });
    });
  }

  void input(const plan::Input &input) {
    json_.attribute("name", input.name());
    json_.attribute("dtype", dtype(input.dtype()));
    json_.attributeArray("dims", [&] {
      for (int64_t dim : input.dims())
        json_.value(dim);
    });
    json_.attribute("role", input.role());
    if (input.has_range())
      json_.attributeArray("range", [&] {
        json_.value(input.low());
        json_.value(input.high());
      });
  }

  const plan::Plan &plan_;
  llvm::json::OStream &json_;
};

} // namespace

std::string planJson(const plan::Plan &plan) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  llvm::json::OStream json(stream, 2);
  json.object([&] { JsonWriter(plan, json).run(); });
  stream << "\n";
  return escapeInJson(stream.str());
}

namespace {

// --- the command

struct InspectFlags {
  std::string plan, trace;
  bool summary = false, schedule = false, memory = false, traffic = false, buckets = false, inputs = false,
       parameters = false, json = false, csv = false;
  ScheduleOptions scheduleOptions;

  int views() const { return summary + schedule + memory + traffic + buckets + inputs + parameters; }
};

Status checkSegment(const plan::Plan &plan, const std::string &name) {
  std::string names;
  for (const plan::Segment &segment : plan.segments()) {
    if (segment.name() == name)
      return success();
    names += (names.empty() ? "" : ", ") + segment.name();
  }
  return Error("--segment: the plan has no segment \"" + name + "\"", "it has " + names);
}

Status writeTrace(const std::string &path, const plan::Plan &plan) {
  llvm::Error failed = llvm::writeFileAtomically(path + ".%%%%%%.partial", path, scheduleTrace(plan));
  if (!failed)
    return success();
  return Error(path + ": cannot be written: " + llvm::toString(std::move(failed)));
}

std::string viewsText(const plan::Plan &plan, const InspectFlags &flags) {
  if (flags.json)
    return planJson(plan);
  if (flags.csv)
    return (flags.memory ? memoryCsv(plan) : bucketsCsv(plan)).csv();
  std::vector<std::string> parts;
  if (flags.summary || (flags.views() == 0 && flags.trace.empty()))
    parts.push_back(planSummary(plan));
  if (flags.memory)
    parts.push_back(memoryView(plan));
  if (flags.traffic)
    parts.push_back(trafficView(plan));
  if (flags.buckets)
    parts.push_back(bucketsView(plan));
  if (flags.inputs)
    parts.push_back(inputsView(plan));
  if (flags.parameters)
    parts.push_back(parametersView(plan));
  if (flags.schedule)
    parts.push_back(scheduleText(plan, flags.scheduleOptions));
  std::string text;
  for (const std::string &part : parts)
    text += (text.empty() ? "" : "\n") + part;
  return text;
}

Status inspect(const InspectFlags &flags) {
  ZEROCC_ASSIGN(plan::Plan plan, loadPlan(flags.plan));
  Findings findings;
  verifyStructure(plan, findings);
  if (!findings.empty())
    return Error(findings.take()).in(flags.plan);
  if (!flags.scheduleOptions.segment.empty())
    ZEROCC_TRY(checkSegment(plan, flags.scheduleOptions.segment));
  if (!flags.trace.empty())
    ZEROCC_TRY(writeTrace(flags.trace, plan));
  std::fputs(viewsText(plan, flags).c_str(), stdout);
  return success();
}

} // namespace

void InspectCommand::add(CLI::App &app, Run &run) {
  auto flags = std::make_shared<InspectFlags>();
  CLI::App *command = app.add_subcommand("inspect", "what a plan does: memory, traffic, schedule");
  command->footer("Examples:\n"
                  "  zerocc inspect model.zplan\n"
                  "  zerocc inspect model.zplan --schedule --segment only --limit 100\n"
                  "  zerocc inspect model.zplan --json | jq .memory.peak\n"
                  "  zerocc inspect model.zplan --buckets --csv > buckets.csv");
  command->add_option("PLAN", flags->plan, "plan to look at")->required();
  command->add_flag("--summary", flags->summary, "everything in short (default)");
  command->add_flag("--schedule", flags->schedule,
                    "the instructions, with the state of each bucket's parameters");
  command->add_option(
      "--segment", flags->scheduleOptions.segment,
      "with --schedule: only, first, middle, last, update, init, eval or infer (default: those of a step)");
  command
      ->add_option("--limit", flags->scheduleOptions.limit,
                   "with --schedule: instructions shown of each segment")
      ->check(CLI::PositiveNumber);
  command->add_flag("--memory", flags->memory,
                    "bytes per rank by kind, region and storage, and what lies at the peak");
  command->add_flag("--traffic", flags->traffic, "bytes received per rank and step, by segment and bucket");
  command->add_flag("--buckets", flags->buckets, "buckets with their fields");
  command->add_flag("--inputs", flags->inputs, "inputs with their roles");
  command->add_flag("--parameters", flags->parameters, "parameters and where they lie");
  command->add_flag("--json", flags->json, "all figures as one JSON object");
  command->add_flag("--csv", flags->csv, "with --memory or --buckets: as CSV");
  command->add_option("--trace", flags->trace,
                      "write the schedule as a Chrome trace, every instruction one unit long");
  command->callback([flags, &run] {
    if (flags->csv && (flags->json || flags->views() != 1 || !(flags->memory || flags->buckets)))
      throw CLI::ValidationError("--csv", "goes with --memory or with --buckets, and with nothing else");
    if (flags->json && flags->views() > 0)
      throw CLI::ValidationError("--json", "prints all figures; leave the other views out");
    bool narrows = !flags->scheduleOptions.segment.empty() || flags->scheduleOptions.limit != 0;
    if (narrows && !flags->schedule)
      throw CLI::ValidationError("--segment and --limit", "go with --schedule");
    run = [flags] {
      Status done = inspect(*flags);
      return done ? static_cast<int>(kDone) : refuse(done.error());
    };
  });
}

} // namespace zerocc
