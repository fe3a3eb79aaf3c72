// One scan over the tables and one over the instructions. All sizes come from a file and may be anything, so
// that every product and sum is checked (Checked); everything behind this scan may then calculate plainly.
#include "runtime/plan/verify_structure.h"

#include "compiler/support/dtype.h"
#include "runtime/plan/optimizers.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/scalars.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

namespace zerocc {
namespace {

constexpr int kRegionCount = 4;
constexpr const char *kRegionNames[] = {"persistent", "carried", "arena", "inputs"};
constexpr uint32_t kPersistent = 0, kCarried = 1, kArena = 2, kInputs = 3;
constexpr int kStreamCount = 3;
constexpr int64_t kAlignment = 64;              // of everything that has an offset of its own
constexpr int64_t kRangeAlignment = 32;         // elements, of a parameter in its bucket
constexpr int64_t kMaxBytes = int64_t(1) << 60; // sums of a few of these do not overflow
constexpr int kMaxDims = 8;
constexpr size_t kMaxInlineBytes = size_t(1) << 24;

/// An integer that remembers that it left [-2^60, 2^60].
class Checked {
public:
  Checked(int64_t value) : value_(value), isValid_(value >= -kMaxBytes && value <= kMaxBytes) {}
  static Checked of(uint64_t value) {
    return value <= static_cast<uint64_t>(kMaxBytes) ? Checked(static_cast<int64_t>(value)) : invalid();
  }
  friend Checked operator+(Checked a, Checked b) {
    return a.isValid_ && b.isValid_ ? Checked(a.value_ + b.value_) : invalid();
  }
  friend Checked operator*(Checked a, Checked b) {
    int64_t product = 0;
    if (!a.isValid_ || !b.isValid_ || __builtin_mul_overflow(a.value_, b.value_, &product))
      return invalid();
    return Checked(product);
  }
  bool isValid() const { return isValid_; }
  int64_t value() const { return value_; }

private:
  static Checked invalid() { return Checked(kMaxBytes + 1); }
  int64_t value_;
  bool isValid_;
};

bool isDType(uint32_t dtype) { return dtype < static_cast<uint32_t>(kDTypes); }
int64_t bytesOf(uint32_t dtype) { return byteSize(static_cast<DType>(dtype)); }

/// Ops that only rename bytes are folded into operands and never emitted.
bool isEmitted(OpKind op) { return opAlias(op) != Alias::View && op != OpKind::Buffer; }

struct OpShape {
  int minInputs, maxInputs, results;
};
OpShape shapeOf(OpKind op) {
  constexpr OpShape shapes[] = {
#define CORE_OP(kind, text, minInputs, maxInputs, results, shape, gradient, cost, workspace, alias, kernels) \
  {minInputs, maxInputs, results},
#include "compiler/ops/core_ops.def"
  };
  return shapes[static_cast<int>(op)];
}

/// Something with an offset of its own in a region.
struct Resident {
  int64_t begin, end;
  std::string name;
};

class StructureVerifier {
public:
  StructureVerifier(const plan::Plan &plan, Findings &findings) : plan_(plan), findings_(findings) {}

  void run() {
    verifyHeader();
    if (!findings_.empty())
      return; // sizes are taken from it
    verifyParametersAndBuckets();
    if (!findings_.empty())
      return; // storages are measured by buckets
    verifyStorages();
    verifyConstants();
    verifyInputs();
    verifyResidents();
    verifySegments();
    verifyFacts();
    if (findings_.empty())
      verifyTops();
  }

private:
  // --- the plan as a whole

  void verifyHeader() {
    if (plan_.version() != kPlanVersion)
      findings_.add("plan has version " + std::to_string(plan_.version()) + ", expected " +
                    std::to_string(kPlanVersion));
    constexpr uint64_t kMaxAxis = 1 << 20;
    auto [shard, replicate] = std::pair(plan_.mesh().shard(), plan_.mesh().replicate());
    if (shard < 1 || shard > kMaxAxis || replicate < 1 || replicate > kMaxAxis)
      findings_.add("mesh is " + std::to_string(shard) + " x " + std::to_string(replicate) +
                    " ranks, each axis must have 1 to " + std::to_string(kMaxAxis));
    if (plan_.micro_steps() < 1 || plan_.micro_batch() < 1)
      findings_.add("plan has " + std::to_string(plan_.micro_steps()) + " micro-steps of " +
                    std::to_string(plan_.micro_batch()) + " samples, both must be at least 1");
    if (plan_.groups_size() > kMaxGroups)
      findings_.add("plan has " + std::to_string(plan_.groups_size()) + " parameter groups, at most " +
                    std::to_string(kMaxGroups));
    if (plan_.regions_size() != kRegionCount) {
      findings_.add("plan has " + std::to_string(plan_.regions_size()) + " regions, expected 4");
      return;
    }
    for (int r = 0; r < kRegionCount; ++r) {
      const plan::RegionSize &region = plan_.regions(r);
      if (region.name() != kRegionNames[r])
        findings_.add("region " + std::to_string(r) + " is named \"" + region.name() + "\", expected \"" +
                      kRegionNames[r] + "\"");
      if (!Checked::of(region.bytes()).isValid())
        findings_.add("region " + region.name() + " has " + std::to_string(region.bytes()) +
                      " bytes, more than 2^60");
    }
  }

  int64_t shard() const { return static_cast<int64_t>(plan_.mesh().shard()); }
  int64_t ranks() const { return shard() * static_cast<int64_t>(plan_.mesh().replicate()); }

  // --- parameters and buckets

  template <typename Dims> Checked elementsOfDims(const Dims &dims) {
    Checked elements = 1;
    for (int64_t d : dims)
      elements = elements * (d >= 0 ? Checked(d) : Checked::of(~uint64_t(0)));
    return elements;
  }

  void verifyParametersAndBuckets() {
    std::map<std::string, int> names;
    std::vector<int> covered(plan_.parameters_size(), 0);
    parameterElements_.assign(plan_.parameters_size(), 0);
    for (int p = 0; p < plan_.parameters_size(); ++p) {
      const plan::Parameter &parameter = plan_.parameters(p);
      std::string name = "parameter \"" + parameter.name() + "\"";
      if (names[parameter.name()]++ > 0)
        findings_.add(name + " is listed twice");
      if (!isDType(parameter.dtype()) || !isFloat(static_cast<DType>(parameter.dtype())))
        findings_.add(name + " has dtype " + std::to_string(parameter.dtype()) + ", which is not a float");
      Checked elements = elementsOfDims(parameter.dims());
      if (!elements.isValid() || parameter.dims_size() > kMaxDims)
        findings_.add(name + " has a shape out of range");
      else
        parameterElements_[p] = elements.value();
      if (parameter.bucket() >= static_cast<uint32_t>(plan_.buckets_size()))
        findings_.add(name + " is in bucket " + std::to_string(parameter.bucket()) + ", there are " +
                      std::to_string(plan_.buckets_size()));
      verifyGroup(name, parameter.group());
    }
    for (int b = 0; b < plan_.buckets_size(); ++b)
      verifyBucket(b, covered);
    for (int p = 0; p < plan_.parameters_size(); ++p)
      if (covered[p] != 1)
        findings_.add("parameter \"" + plan_.parameters(p).name() + "\" has " + std::to_string(covered[p]) +
                      " ranges in buckets, expected 1");
  }

  void verifyGroup(const std::string &name, uint32_t group) {
    if (group >= static_cast<uint32_t>(std::max(1, plan_.groups_size())))
      findings_.add(name + " is in group " + std::to_string(group) + ", there are " +
                    std::to_string(plan_.groups_size()));
  }

  void verifyBucket(int b, std::vector<int> &covered) {
    const plan::Bucket &bucket = plan_.buckets(b);
    std::string name = "bucket " + bucket.name();
    for (uint32_t dtype : {bucket.fetch_dtype(), bucket.gradient_dtype()})
      if (!isDType(dtype) || !isFloat(static_cast<DType>(dtype)))
        findings_.add(name + " has dtype " + std::to_string(dtype) + ", which is not a float");
    verifyField(name, "parameters", bucket.parameters(), {"whole", "kept", "refetched"});
    verifyField(name, "gradients", bucket.gradients(), {"boundary", "micro-step"});
    verifyField(name, "states", bucket.states(), {"whole", "sharded"});
    Checked padded = Checked::of(bucket.padded_elements());
    int64_t unit = kRangeAlignment * ranks();
    if (!(padded * 8).isValid() || padded.value() % unit != 0) {
      findings_.add(name + " has " + std::to_string(bucket.padded_elements()) +
                    " padded elements, expected a multiple of " + std::to_string(unit));
      return;
    }
    int64_t end = 0, elements = 0;
    for (const plan::Range &range : bucket.ranges()) {
      if (range.parameter() >= static_cast<uint32_t>(plan_.parameters_size())) {
        findings_.add(name + " has a range of parameter " + std::to_string(range.parameter()) +
                      ", there are " + std::to_string(plan_.parameters_size()));
        continue;
      }
      const plan::Parameter &parameter = plan_.parameters(range.parameter());
      std::string of = name + ": range [" + std::to_string(range.begin()) + ", " +
                       std::to_string(range.end()) + ") of \"" + parameter.name() + "\"";
      ++covered[range.parameter()];
      if (range.begin() > range.end() || range.end() > bucket.padded_elements()) {
        findings_.add(of + " does not lie in the " + std::to_string(bucket.padded_elements()) +
                      " padded elements");
        continue;
      }
      int64_t rangeBegin = static_cast<int64_t>(range.begin()), rangeEnd = static_cast<int64_t>(range.end());
      if (rangeBegin < end)
        findings_.add(of + " overlaps the one before it, which ends at " + std::to_string(end));
      if (rangeBegin % kRangeAlignment != 0)
        findings_.add(of + " does not begin at a multiple of " + std::to_string(kRangeAlignment));
      if (rangeEnd - rangeBegin != parameterElements_[range.parameter()])
        findings_.add(of + " has another size than the parameter, " +
                      std::to_string(parameterElements_[range.parameter()]));
      if (parameter.bucket() != static_cast<uint32_t>(b) || parameter.bucket_offset() != range.begin())
        findings_.add(of + " is not where the parameter says it is: bucket " +
                      std::to_string(parameter.bucket()) + " at " +
                      std::to_string(parameter.bucket_offset()));
      if (parameter.trainable() != bucket.trainable())
        findings_.add(of + " mixes trainable and frozen");
      verifyGroup(of, range.group());
      end = rangeEnd;
      elements += rangeEnd - rangeBegin;
    }
    if (static_cast<uint64_t>(elements) != bucket.elements())
      findings_.add(name + " says " + std::to_string(bucket.elements()) + " elements, its ranges have " +
                    std::to_string(elements));
  }

  void verifyField(const std::string &name, const char *field, const std::string &value,
                   std::initializer_list<std::string_view> allowed) {
    if (std::find(allowed.begin(), allowed.end(), value) == allowed.end())
      findings_.add(name + " has " + field + " \"" + value + "\"");
  }

  // --- what lies in memory all the time

  /// Notes bytes [offset, offset + elements * dtype) of a region as taken by `name`.
  void addResident(uint32_t region, uint64_t offset, uint32_t dtype, Checked elements,
                   const std::string &name) {
    if (!isDType(dtype)) {
      findings_.add(name + " has dtype " + std::to_string(dtype) + ", which does not exist");
      return;
    }
    Checked begin = Checked::of(offset), end = begin + elements * bytesOf(dtype);
    if (!elements.isValid() || !end.isValid() || end.value() > regionBytes(region)) {
      findings_.add(name + " does not lie in region " + kRegionNames[region] + " of " +
                    std::to_string(regionBytes(region)) + " bytes: it begins at " + std::to_string(offset));
      return;
    }
    if (begin.value() % kAlignment != 0)
      findings_.add(name + " begins at " + std::to_string(offset) + ", expected a multiple of " +
                    std::to_string(kAlignment));
    if (end.value() > begin.value())
      residents_[region].push_back({begin.value(), end.value(), name});
  }

  int64_t regionBytes(uint32_t region) const { return static_cast<int64_t>(plan_.regions(region).bytes()); }

  void verifyStorages() {
    std::map<std::pair<int, int>, int> perBucket; // bucket, kind
    int scalars = 0, losses = 0;
    for (const plan::Storage &storage : plan_.storages()) {
      std::string name = "storage " + storage.name();
      if (!plan::Storage::Kind_IsValid(storage.kind())) {
        findings_.add(name + " has kind " + std::to_string(storage.kind()) + ", which does not exist");
        continue;
      }
      if (storage.region() != kPersistent && storage.region() != kCarried) {
        findings_.add(name + " is in region " + std::to_string(storage.region()) +
                      ", expected persistent or carried");
        continue;
      }
      addResident(storage.region(), storage.offset(), storage.dtype(), Checked::of(storage.elements()), name);
      scalars += storage.kind() == plan::Storage::SCALARS;
      losses += storage.kind() == plan::Storage::LOSS;
      if (storage.kind() == plan::Storage::SCALARS &&
          (storage.elements() != kScalars || storage.dtype() != static_cast<uint32_t>(DType::f64)))
        findings_.add(name + " has " + std::to_string(storage.elements()) + " elements of dtype " +
                      std::to_string(storage.dtype()) + ", expected " + std::to_string(int(kScalars)) +
                      " of f64");
      if (storage.kind() == plan::Storage::BUFFER) {
        if (storage.region() != kPersistent || storage.initializer().empty())
          findings_.add(name +
                        " is a buffer: it must be persistent and name the initializer of its first value");
        if (!(elementsOfDims(storage.dims()).value() == static_cast<int64_t>(storage.elements())))
          findings_.add(name + " has " + std::to_string(storage.elements()) +
                        " elements, its dims say otherwise");
      }
      if (storage.kind() == plan::Storage::OUTPUT)
        verifyOutput(storage, name);
      if (!isOfBucket(storage.kind()))
        continue;
      if (storage.bucket() < 0 || storage.bucket() >= plan_.buckets_size()) {
        findings_.add(name + " is of bucket " + std::to_string(storage.bucket()) + ", there are " +
                      std::to_string(plan_.buckets_size()));
        continue;
      }
      ++perBucket[{storage.bucket(), storage.kind()}];
      verifyBucketStorage(storage, name);
    }
    if (isInference(plan_) == outputs_.empty())
      findings_.add(outputs_.empty() ? "segment infer has no output" : "outputs without a segment infer");
    const Optimizer *optimizer = findOptimizer(plan_.facts().optimizer());
    int least = optimizer ? optimizer->leastStates : 0, most = optimizer ? optimizer->mostStates : 0;
    bool anyTrainable = false;
    for (int b = 0; b < plan_.buckets_size(); ++b) {
      bool trainable = plan_.buckets(b).trainable();
      anyTrainable |= trainable;
      verifyCount(b, "parameter", perBucket[{b, plan::Storage::PARAMETER}], 1, 1);
      verifyCount(b, "gradient", perBucket[{b, plan::Storage::GRADIENT}], trainable, trainable);
      verifyCount(b, "first-moment", perBucket[{b, plan::Storage::MOMENT1}], trainable && least >= 1,
                  trainable && most >= 1);
      verifyCount(b, "second-moment", perBucket[{b, plan::Storage::MOMENT2}], trainable && least >= 2,
                  trainable && most >= 2);
    }
    if (anyTrainable && (scalars != 1 || losses != 1))
      findings_.add("plan has " + std::to_string(scalars) + " scalar blocks and " + std::to_string(losses) +
                    " loss storages, expected 1 and 1");
  }

  void verifyOutput(const plan::Storage &storage, const std::string &name) {
    if (storage.name().rfind("output:", 0) != 0 || !outputs_.insert(storage.name()).second)
      findings_.add(name + " is an output: its name must be output:NAME, and no other's");
    if (storage.region() != kCarried || storage.bucket() != -1 || storage.sharded())
      findings_.add(name + " is an output: it must be whole, in region carried, and of no bucket");
    if (!(elementsOfDims(storage.dims()).value() == static_cast<int64_t>(storage.elements())))
      findings_.add(name + " has " + std::to_string(storage.elements()) +
                    " elements, its dims say otherwise");
  }

  static bool isOfBucket(plan::Storage::Kind kind) {
    return kind == plan::Storage::PARAMETER || kind == plan::Storage::GRADIENT ||
           kind == plan::Storage::MOMENT1 || kind == plan::Storage::MOMENT2;
  }

  void verifyCount(int b, const char *what, int count, int least, int most) {
    if (count < least || count > most)
      findings_.add("bucket " + plan_.buckets(b).name() + " has " + std::to_string(count) + " " + what +
                    " storages, expected " + std::to_string(most));
  }

  void verifyBucketStorage(const plan::Storage &storage, const std::string &name) {
    const plan::Bucket &bucket = plan_.buckets(storage.bucket());
    uint64_t expected = storage.sharded() ? bucket.padded_elements() / shard() : bucket.padded_elements();
    if (storage.elements() != expected)
      findings_.add(name + " has " + std::to_string(storage.elements()) + " elements, expected " +
                    std::to_string(expected));
    auto verifySharded = [&](const char *field, const std::string &value) {
      bool isWhole = value == "whole";
      if (shard() > 1 && isWhole == storage.sharded())
        findings_.add(name + (storage.sharded() ? " is a part" : " is whole") + ", but " + field +
                      " of bucket " + bucket.name() + " are " + value);
    };
    if (storage.kind() == plan::Storage::PARAMETER)
      verifySharded("parameters", bucket.parameters());
    if (storage.kind() == plan::Storage::MOMENT1 || storage.kind() == plan::Storage::MOMENT2)
      verifySharded("states", bucket.states());
    if (storage.kind() == plan::Storage::GRADIENT && storage.dtype() != bucket.gradient_dtype())
      findings_.add(name + " has dtype " + std::to_string(storage.dtype()) + ", gradients of bucket " +
                    bucket.name() + " have " + std::to_string(bucket.gradient_dtype()));
  }

  void verifyConstants() {
    for (const plan::Constant &constant : plan_.constants()) {
      std::string name = "constant \"" + constant.name() + "\"";
      Checked elements = elementsOfDims(constant.dims());
      addResident(kPersistent, constant.offset(), constant.dtype(), elements, name);
      if (constant.inline_data().empty() || !isDType(constant.dtype()) || !elements.isValid())
        continue;
      int64_t bytes = elements.value() * bytesOf(constant.dtype());
      if (constant.inline_data().size() > kMaxInlineBytes ||
          static_cast<int64_t>(constant.inline_data().size()) != bytes)
        findings_.add(name + " has " + std::to_string(constant.inline_data().size()) +
                      " bytes of data, expected " + std::to_string(bytes) + ", at most " +
                      std::to_string(kMaxInlineBytes));
    }
  }

  void verifyInputs() {
    for (const plan::Input &input : plan_.inputs())
      addResident(kInputs, input.offset(), input.dtype(), elementsOfDims(input.dims()),
                  "input \"" + input.name() + "\"");
  }

  void verifyResidents() {
    for (std::vector<Resident> &residents : residents_) {
      std::sort(residents.begin(), residents.end(), [](const Resident &a, const Resident &b) {
        return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
      });
      for (size_t i = 1; i < residents.size(); ++i)
        if (residents[i].begin < residents[i - 1].end)
          findings_.add(residents[i].name + " overlaps " + residents[i - 1].name);
    }
  }

  // --- instructions

  void verifySegments() {
    static const std::set<std::string> known = {"init", "only", "first", "middle", "last", "update", "eval", "infer"};
    std::set<std::string> names;
    bool anyTrainable = false;
    for (const plan::Bucket &bucket : plan_.buckets())
      anyTrainable |= bucket.trainable();
    for (const plan::Segment &segment : plan_.segments()) {
      if (!known.count(segment.name()))
        findings_.add("there is no segment \"" + segment.name() + "\" in a step");
      if (!names.insert(segment.name()).second)
        findings_.add("segment " + segment.name() + " is listed twice");
      verifySegment(segment);
    }
    std::vector<const char *> needed;
    if (anyTrainable) {
      needed = plan_.micro_steps() == 1   ? std::vector<const char *>{"only"}
               : plan_.micro_steps() == 2 ? std::vector<const char *>{"first", "last"}
                                          : std::vector<const char *>{"first", "middle", "last"};
      needed.push_back("update");
    }
    if (names.count("infer")) {
      for (const char *name : {"only", "first", "middle", "last", "update", "eval"})
        if (names.count(name))
          findings_.add("segment infer stands beside segment " + std::string(name) +
                        ": a plan infers or trains");
      if (anyTrainable || plan_.micro_steps() != 1)
        findings_.add("segment infer: an inference plan has one micro-step and nothing trainable");
    }
    for (const plan::Constant &constant : plan_.constants())
      if (constant.inline_data().empty() && constant.initializer().empty() &&
          elementsOfDims(constant.dims()).value()) {
        needed.push_back("init");
        break;
      }
    for (const char *name : needed)
      if (!names.count(name))
        findings_.add("segment " + std::string(name) + " is missing");
  }

  void verifySegment(const plan::Segment &segment) {
    if (segment.events() > static_cast<uint32_t>(segment.instructions_size())) {
      findings_.add("segment " + segment.name() + " has " + std::to_string(segment.events()) +
                    " events, more than instructions");
      return;
    }
    std::vector<bool> recorded(segment.events() + 1, false);
    for (int i = 0; i < segment.instructions_size() && !findings_.isFull(); ++i) {
      const plan::Instruction &instruction = segment.instructions(i);
      std::string where; // made when needed
      auto fail = [&](const std::string &message) { findings_.add(whereIs(segment, i) + ": " + message); };
      for (uint32_t event : instruction.wait())
        if (event == 0 || event > segment.events() || !recorded[event])
          fail("waits for event " + std::to_string(event) + ", which no instruction before it records");
      if (uint32_t event = instruction.record(); event != 0) {
        if (event > segment.events())
          fail("records event " + std::to_string(event) + ", the segment has " +
               std::to_string(segment.events()));
        else if (recorded[event])
          fail("records event " + std::to_string(event) + " a second time");
        else
          recorded[event] = true;
      }
      verifyInstruction(instruction, fail);
    }
    std::vector<int> states(plan_.buckets_size(), 0);
    for (const plan::BucketState &state : segment.bucket_states()) {
      if (state.bucket() >= states.size()) {
        findings_.add("segment " + segment.name() + " states bucket " + std::to_string(state.bucket()) +
                      ", there are " + std::to_string(states.size()));
        continue;
      }
      ++states[state.bucket()];
      verifyField("segment " + segment.name(), "entry state", state.entry(), {"owner", "whole"});
      verifyField("segment " + segment.name(), "exit state", state.exit(), {"owner", "whole"});
    }
    for (size_t b = 0; b < states.size(); ++b)
      if (states[b] != 1)
        findings_.add("segment " + segment.name() + " states bucket " + plan_.buckets(b).name() + " " +
                      std::to_string(states[b]) + " times, expected once");
  }

  template <typename Fail> void verifyInstruction(const plan::Instruction &instruction, Fail fail) {
    if (instruction.op() >= static_cast<uint32_t>(kOpKinds)) {
      fail("op " + std::to_string(instruction.op()) + " does not exist");
      return;
    }
    OpKind op = static_cast<OpKind>(instruction.op());
    if (!isEmitted(op))
      fail("is a view, which has no place in a plan");
    if (instruction.stream() >= kStreamCount)
      fail("is on stream " + std::to_string(instruction.stream()) + ", there are 3");
    else
      verifyStream(op, instruction.stream(), fail);
    if (instruction.bucket() < -1 || instruction.bucket() >= plan_.buckets_size())
      fail("names bucket " + std::to_string(instruction.bucket()) + ", there are " +
           std::to_string(plan_.buckets_size()));
    OpShape shape = shapeOf(op);
    int inputs = instruction.inputs_size(), results = instruction.results_size();
    if (inputs < shape.minInputs || (shape.maxInputs >= 0 && inputs > shape.maxInputs))
      fail("has " + std::to_string(inputs) + " operands, expected " + std::to_string(shape.minInputs) +
           " to " + std::to_string(shape.maxInputs));
    if (shape.results >= 0 && results != shape.results)
      fail("has " + std::to_string(results) + " results, expected " + std::to_string(shape.results));
    for (int k = 0; k < inputs; ++k)
      verifyOperand(instruction.inputs(k), "operand " + std::to_string(k), fail);
    for (int k = 0; k < results; ++k) {
      verifyOperand(instruction.results(k), "result " + std::to_string(k), fail);
      if (!isContiguous(instruction.results(k)))
        fail("result " + std::to_string(k) + " is not contiguous");
    }
    if (instruction.workspace_bytes() > 0) {
      Checked end = Checked::of(instruction.workspace_offset()) + Checked::of(instruction.workspace_bytes());
      if (!end.isValid() || end.value() > regionBytes(kArena))
        fail("has a workspace at " + std::to_string(instruction.workspace_offset()) + " of " +
             std::to_string(instruction.workspace_bytes()) + " bytes, which does not lie in the arena of " +
             std::to_string(regionBytes(kArena)));
      else
        noteTop(kArena, end.value());
      if (instruction.workspace_offset() % kAlignment != 0)
        fail("has a workspace at " + std::to_string(instruction.workspace_offset()) +
             ", expected a multiple of " + std::to_string(kAlignment));
    }
  }

  // One communicator, one stream: its collectives then run in list order, which is the same on all ranks.
  template <typename Fail> void verifyStream(OpKind op, uint32_t stream, Fail fail) {
    constexpr uint32_t kCompute = 0, kGather = 1, kReduce = 2;
    bool isRight = true;
    if (op == OpKind::FetchStart)
      isRight = stream == kGather;
    else if (op == OpKind::ReduceStart || op == OpKind::AllReduceStart || op == OpKind::ExchangeStart)
      isRight = stream == kReduce;
    else if (op == OpKind::AllGatherStart)
      isRight = stream != kCompute;
    else if (op == OpKind::FetchWait || op == OpKind::ReduceWait || op == OpKind::Release)
      isRight = stream == kCompute;
    if (!isRight)
      fail("is on stream " + std::to_string(stream) + ", which is not the one of its communicator");
  }

  template <typename Fail>
  void verifyOperand(const plan::Operand &operand, const std::string &which, Fail fail) {
    if (operand.region() >= kRegionCount) {
      fail(which + " is in region " + std::to_string(operand.region()) + ", there are 4");
      return;
    }
    if (!isDType(operand.dtype())) {
      fail(which + " has dtype " + std::to_string(operand.dtype()) + ", which does not exist");
      return;
    }
    if (operand.dims_size() > kMaxDims ||
        (operand.strides_size() != 0 && operand.strides_size() != operand.dims_size())) {
      fail(which + " has " + std::to_string(operand.dims_size()) + " dims and " +
           std::to_string(operand.strides_size()) + " strides");
      return;
    }
    Checked elements = elementsOfDims(operand.dims());
    int64_t size = bytesOf(operand.dtype());
    if (!(elements * size).isValid()) {
      fail(which + " has a shape out of range");
      return;
    }
    Checked low = Checked::of(operand.offset()), high = low + size;
    if (operand.strides_size() == 0)
      high = low + elements * size;
    for (int d = 0; d < operand.strides_size(); ++d) {
      Checked reach = Checked(operand.strides(d)) * (Checked(operand.dims(d)) + -1) * size;
      if (!reach.isValid() || reach.value() >= 0)
        high = high + reach;
      else
        low = low + reach;
    }
    if (elements.isValid() && elements.value() == 0)
      high = low = Checked::of(operand.offset());
    Checked last = high + Checked::of(operand.rank_stride()) * (shard() - 1);
    if (!low.isValid() || !last.isValid() || low.value() < 0 ||
        last.value() > regionBytes(operand.region())) {
      fail(which + " at " + std::to_string(operand.offset()) + " does not lie in region " +
           kRegionNames[operand.region()] + " of " + std::to_string(regionBytes(operand.region())) +
           " bytes");
      return;
    }
    if (operand.offset() % static_cast<uint64_t>(size) != 0)
      fail(which + " begins at " + std::to_string(operand.offset()) + ", expected a multiple of " +
           std::to_string(size));
    if (operand.rank_stride() != 0 &&
        static_cast<int64_t>(operand.rank_stride()) != high.value() - low.value())
      fail(which + " moves by " + std::to_string(operand.rank_stride()) + " bytes per rank, but has " +
           std::to_string(high.value() - low.value()));
    noteTop(operand.region(), last.value());
    if (operand.region() != kArena && elements.value() > 0)
      verifyInsideResident(operand.region(), low.value(), last.value(), which, fail);
  }

  template <typename Fail>
  void verifyInsideResident(uint32_t region, int64_t begin, int64_t end, const std::string &which,
                            Fail fail) {
    const std::vector<Resident> &residents = residents_[region];
    auto behind = std::upper_bound(residents.begin(), residents.end(), begin,
                                   [](int64_t at, const Resident &r) { return at < r.begin; });
    if (behind == residents.begin() || std::prev(behind)->end < end)
      fail(which + " is bytes [" + std::to_string(begin) + ", " + std::to_string(end) + ") of region " +
           kRegionNames[region] + ", which are not inside one storage, constant or input");
  }

  // --- facts

  void verifyFacts() {
    const plan::Facts &facts = plan_.facts();
    bool anyTrainable = false;
    for (const plan::Bucket &bucket : plan_.buckets())
      anyTrainable |= bucket.trainable();
    if (anyTrainable && !findOptimizer(facts.optimizer()))
      findings_.add("optimizer is \"" + facts.optimizer() + "\", expected one of " + optimizerNames());
    if (anyTrainable && !(std::isfinite(facts.static_count()) && facts.static_count() > 0))
      findings_.add("static label count is " + std::to_string(facts.static_count()) +
                    ", expected a positive number");
    if (anyTrainable)
      verifySeed();
    Checked total = 0, kinds = 0;
    for (int r = 0; r < kRegionCount; ++r)
      total = total + regionBytes(r);
    for (const auto &[kind, bytes] : facts.peak_kinds())
      kinds = kinds + Checked::of(bytes);
    if (!kinds.isValid() || kinds.value() != total.value())
      findings_.add("memory by kind adds up to " +
                    (kinds.isValid() ? std::to_string(kinds.value()) : "too much") +
                    " bytes, the regions have " + std::to_string(total.value()));
  }

  // The backward starts with 1 / static count; the update multiplies by the static count: they must agree.
  void verifySeed() {
    double expected = 1 / plan_.facts().static_count();
    for (const plan::Constant &constant : plan_.constants()) {
      if (constant.name() != "gradient_seed")
        continue;
      double seed = 0;
      float seedF32 = 0;
      bool isKnown = true;
      if (constant.dtype() == static_cast<uint32_t>(DType::f64) &&
          constant.inline_data().size() == sizeof seed) {
        std::memcpy(&seed, constant.inline_data().data(), sizeof seed);
      } else if (constant.dtype() == static_cast<uint32_t>(DType::f32) &&
                 constant.inline_data().size() == sizeof seedF32) {
        std::memcpy(&seedF32, constant.inline_data().data(), sizeof seedF32);
        seed = seedF32;
        expected = static_cast<float>(expected);
      } else {
        isKnown = false;
      }
      if (isKnown && seed != expected)
        findings_.add("backward starts with " + std::to_string(seed) + ", the static label count says " +
                      std::to_string(expected));
    }
  }

  void noteTop(uint32_t region, int64_t end) { tops_[region] = std::max(tops_[region], end); }

  // The stated peak is the peak: a region ends where its last byte is used.
  void verifyTops() {
    for (int r = 0; r < kRegionCount; ++r) {
      int64_t top = tops_[r];
      if (!residents_[r].empty())
        top = std::max(top, residents_[r].back().end);
      if (regionBytes(r) - top >= kAlignment)
        findings_.add("region " + std::string(kRegionNames[r]) + " has " + std::to_string(regionBytes(r)) +
                      " bytes, but nothing uses more than " + std::to_string(top));
    }
  }

  const plan::Plan &plan_;
  Findings &findings_;
  std::vector<int64_t> parameterElements_;
  std::set<std::string> outputs_;
  std::vector<Resident> residents_[kRegionCount]; // sorted once verifyResidents has run
  int64_t tops_[kRegionCount] = {};
};

} // namespace

void verifyStructure(const plan::Plan &plan, Findings &findings) { StructureVerifier(plan, findings).run(); }

Extent extentOf(const plan::Operand &operand, int64_t shard) {
  Extent extent;
  extent.region = operand.region();
  extent.begin = extent.ownEnd = extent.end = static_cast<int64_t>(operand.offset());
  int64_t elements = elementsOf(operand), size = bytesOf(operand.dtype());
  if (elements == 0)
    return extent;
  if (operand.strides_size() == 0) {
    extent.ownEnd += elements * size;
  } else {
    extent.ownEnd += size;
    for (int d = 0; d < operand.strides_size(); ++d) {
      int64_t reach = operand.strides(d) * (operand.dims(d) - 1) * size;
      (reach >= 0 ? extent.ownEnd : extent.begin) += reach;
    }
  }
  extent.end = extent.ownEnd + static_cast<int64_t>(operand.rank_stride()) * (shard - 1);
  return extent;
}

bool isContiguous(const plan::Operand &operand) {
  if (operand.strides_size() > operand.dims_size())
    return false; // reported elsewhere: such an operand has no meaning
  int64_t expected = 1;
  for (int d = operand.strides_size() - 1; d >= 0; --d) {
    if (operand.dims(d) != 1 && operand.strides(d) != expected)
      return false;
    if (__builtin_mul_overflow(expected, operand.dims(d), &expected))
      return false;
  }
  return true;
}

int64_t elementsOf(const plan::Operand &operand) {
  int64_t elements = 1;
  for (int64_t d : operand.dims())
    elements *= d;
  return elements;
}

} // namespace zerocc
