// A fetched copy of a bucket is a `Residence`: its bytes, when it was asked for, when it came, who read it
// first and last, when it went. One walk over a segment finds them all; who reads is found by bytes, since a
// plan knows no names of values. A bucket may have two at once: prefetched for the backward before the
// forward has let it go.

#include "tools/command_inspect_schedule.h"

#include "compiler/ops/op_kind.h"
#include "compiler/support/dtype.h"
#include "compiler/support/escape_json.h"
#include "runtime/plan/report.h"
#include "tools/table.h"

#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <vector>

namespace zerocc {
namespace {

constexpr int kWidth = 120;
constexpr int kNever = -1;
constexpr std::array<const char *, 3> kStreamNames = {"compute", "gather", "reduce"};

OpKind opOf(const plan::Instruction &instruction) { return static_cast<OpKind>(instruction.op()); }

std::string streamName(uint32_t stream) {
  return stream < kStreamNames.size() ? kStreamNames[stream] : "stream " + std::to_string(stream);
}

bool isWait(OpKind op) { return op == OpKind::FetchWait || op == OpKind::ReduceWait; }
bool takesTime(OpKind op) { return !isWait(op) && op != OpKind::Release; }

/// Bytes of a region, by their start.
using Address = std::pair<uint32_t, uint64_t>;
Address addressOf(const plan::Operand &operand) { return {operand.region(), operand.offset()}; }

/// One stay of a bucket's whole parameters in memory.
struct Residence {
  int bucket = -1;
  Address address;
  uint64_t bytes = 0;
  int64_t received = 0;
  int start = kNever, wait = kNever, release = kNever; // instructions; without a release it stays
  int firstRead = kNever, lastRead = kNever;
};

class SegmentWalk {
public:
  SegmentWalk(const plan::Plan &plan, const plan::Segment &segment) : plan_(plan) {
    for (const plan::BucketState &state : segment.bucket_states())
      if (state.entry() == "whole")
        addWhole(static_cast<int>(state.bucket()));
    for (int i = 0; i < segment.instructions_size(); ++i)
      visit(i, segment.instructions(i));
  }

  /// In the order they begin.
  const std::vector<Residence> &residences() const { return residences_; }
  /// Whose parameters begin to be fetched, have come, or are let go by instruction `i`; null: nobody's.
  const Residence *startedAt(int i) const { return find(starts_, i); }
  const Residence *arrivedAt(int i) const { return find(waits_, i); }
  const Residence *releasedAt(int i) const { return find(releases_, i); }
  /// The parameter that instruction `i` reads; empty: none.
  std::string parameterReadAt(int i) const {
    auto found = parametersRead_.find(i);
    return found == parametersRead_.end() ? "" : found->second;
  }
  bool isReductionStart(int i) const { return reductionStarts_.count(i) != 0; }
  bool isReductionEnd(int i) const { return reductionEnds_.count(i) != 0; }

  /// The state of another copy of the bucket's parameters while instruction `i` runs; empty: there is none.
  std::string otherCopy(const Residence &residence, int i) const {
    std::string state;
    for (const Residence &other : residences_) {
      bool isThere = other.start < i && (other.release == kNever || other.release > i);
      if (&other != &residence && other.bucket == residence.bucket && isThere)
        state = other.wait != kNever && other.wait < i ? "available" : "in flight";
    }
    return state;
  }

private:
  using ByInstruction = std::map<int, size_t>;
  const Residence *find(const ByInstruction &events, int i) const {
    auto found = events.find(i);
    return found == events.end() ? nullptr : &residences_[found->second];
  }

  // Parameters that are whole when the segment begins.
  void addWhole(int bucket) {
    for (const plan::Storage &storage : plan_.storages())
      if (storage.kind() == plan::Storage::PARAMETER && storage.bucket() == bucket && !storage.sharded()) {
        Residence residence;
        residence.bucket = bucket;
        residence.address = {storage.region(), storage.offset()};
        residence.bytes = storage.elements() * byteSize(static_cast<DType>(storage.dtype()));
        open(residence);
      }
  }

  void open(const Residence &residence) {
    alive_[residence.address] = residences_.size();
    residences_.push_back(residence);
  }

  void visit(int i, const plan::Instruction &instruction) {
    OpKind op = opOf(instruction);
    if (instruction.inputs().empty())
      return;
    if (op == OpKind::FetchStart)
      return instruction.bucket() < 0 ? void() : beginFetch(i, instruction);
    if (op == OpKind::ReduceStart || op == OpKind::AllReduceStart || op == OpKind::AllGatherStart) {
      // Further collectives may follow the first before the wait.
      if (reducing_.insert(instruction.bucket()).second)
        reductionStarts_.insert(i);
      return;
    }
    if (op == OpKind::ReduceWait) {
      if (reducing_.erase(instruction.bucket()) > 0)
        reductionEnds_.insert(i);
      return;
    }
    for (const plan::Operand &input : instruction.inputs())
      if (auto entry = findAlive(input); entry != alive_.end())
        visitReader(i, op, input, entry);
  }

  void beginFetch(int i, const plan::Instruction &instruction) {
    const plan::Operand &whole = instruction.results(0);
    Residence residence;
    residence.bucket = instruction.bucket();
    residence.address = addressOf(whole);
    residence.bytes = elementsOfDims(whole.dims()) * byteSize(static_cast<DType>(whole.dtype()));
    residence.received = receivedBytes(plan_, instruction).total();
    residence.start = i;
    starts_[i] = residences_.size();
    open(residence);
  }

  void visitReader(int i, OpKind op, const plan::Operand &operand,
                   std::map<Address, size_t>::iterator entry) {
    Residence &residence = residences_[entry->second];
    if (op == OpKind::FetchWait) {
      residence.wait = i;
      waits_[i] = entry->second;
    } else if (op == OpKind::Release) {
      residence.release = i;
      releases_[i] = entry->second;
      alive_.erase(entry);
    } else {
      if (residence.firstRead == kNever)
        residence.firstRead = i;
      residence.lastRead = i;
      noteParameter(i, residence, operand);
    }
  }

  void noteParameter(int i, const Residence &residence, const plan::Operand &operand) {
    uint64_t element = (operand.offset() - residence.address.second) /
                       static_cast<uint64_t>(byteSize(static_cast<DType>(operand.dtype())));
    const auto &ranges = plan_.buckets(residence.bucket).ranges();
    auto behind = std::upper_bound(ranges.begin(), ranges.end(), element,
                                   [](uint64_t at, const plan::Range &range) { return at < range.begin(); });
    if (behind != ranges.begin())
      parametersRead_.insert({i, plan_.parameters(std::prev(behind)->parameter()).name()});
  }

  /// The residence that these bytes lie in.
  std::map<Address, size_t>::iterator findAlive(const plan::Operand &operand) {
    auto behind = alive_.upper_bound(addressOf(operand));
    if (behind == alive_.begin())
      return alive_.end();
    auto entry = std::prev(behind);
    bool isInside = entry->first.first == operand.region() &&
                    operand.offset() - entry->first.second < residences_[entry->second].bytes;
    return isInside ? entry : alive_.end();
  }

  const plan::Plan &plan_;
  std::vector<Residence> residences_;
  std::map<Address, size_t> alive_; // whole parameters in memory
  ByInstruction starts_, waits_, releases_;
  std::map<int, std::string> parametersRead_; // by instruction, the first one
  std::set<int> reducing_;                    // buckets
  std::set<int> reductionStarts_, reductionEnds_;
};

std::string bucketName(const plan::Plan &plan, int bucket) { return "#" + plan.buckets(bucket).name(); }

std::string opColumn(const plan::Plan &plan, const plan::Instruction &instruction) {
  std::string text(opText(opOf(instruction)));
  return instruction.bucket() < 0 ? text : text + " " + bucketName(plan, instruction.bucket());
}

/// "#b0, #b1", or "#b0 … #b13 (14)" when there are many.
std::string someOf(const std::vector<std::string> &names) {
  if (names.size() > 6)
    return names.front() + " … " + names.back() + " (" + std::to_string(names.size()) + ")";
  std::string text;
  for (const std::string &name : names)
    text += (text.empty() ? "" : ", ") + name;
  return text;
}

std::string position(int i) { return i == kNever ? "" : std::to_string(i); }

std::string readText(const Residence &residence) {
  if (residence.firstRead == kNever)
    return "no instruction";
  if (residence.firstRead == residence.lastRead)
    return position(residence.firstRead);
  return position(residence.firstRead) + " to " + position(residence.lastRead);
}

// --- the table of a segment: one row per residence

std::string residenceTable(const plan::Plan &plan, const plan::Segment &segment, const SegmentWalk &walk) {
  if (walk.residences().empty())
    return "";
  Table table({{"bucket"},
               {"parameters", Align::left, 48},
               {"in flight", Align::right},
               {"available", Align::right},
               {"read", Align::right},
               {"released", Align::right},
               {"received", Align::right}});
  for (const Residence &residence : walk.residences()) {
    bool isThere = residence.start == kNever;
    table.add({bucketName(plan, residence.bucket), bucketLabel(plan, residence.bucket),
               position(residence.start), isThere ? "at entry" : position(residence.wait),
               readText(residence), residence.release != kNever ? position(residence.release) : "stays",
               residence.received > 0 ? formatBytes(residence.received) : ""});
  }
  std::string text = table.text();
  std::vector<std::string> updated;
  for (const plan::BucketState &state : segment.bucket_states())
    if (state.entry() == "whole" && state.exit() == "owner")
      updated.push_back(bucketName(plan, static_cast<int>(state.bucket())));
  if (!updated.empty())
    text += "  not available after it, until fetched again: " + someOf(updated) + "\n";
  return text;
}

// --- the instructions

std::string moduleOf(const std::string &name, char separator) {
  size_t end = name.find_last_of(separator);
  return end == std::string::npos ? "" : name.substr(0, end);
}

/// Which part of the model a compute instruction belongs to: the layer or else the module that its node is
/// named after, or else those of the parameter it reads (some exporters number the nodes). Empty: not known.
std::string partOfModel(const std::string &location, const std::string &parameter) {
  bool isBackward = !location.empty() && location.back() == '~';
  std::string node = isBackward ? location.substr(0, location.size() - 1) : location;
  std::string part;
  for (const std::string &name :
       {layerOfName(node), moduleOf(node, '/'), layerOfName(parameter), moduleOf(parameter, '.')})
    if (part.empty())
      part = name;
  return part.empty() ? "" : part + (isBackward ? ", backward" : "");
}

class SegmentText {
public:
  SegmentText(const plan::Plan &plan, const plan::Segment &segment, int limit)
      : plan_(plan), segment_(segment), limit_(limit), walk_(plan, segment) {}

  std::string run() {
    int count = segment_.instructions_size();
    text_ = "segment " + printable(segment_.name()) + ": " + formatCount(count) + " instructions, " +
            formatCount(segment_.events()) + " events" + meaning() + "\n";
    text_ += residenceTable(plan_, segment_, walk_);
    text_ += "\n";
    line({"#", "stream", "op", "ONNX node", "received", "after"});
    noteRecorders();
    for (int i = 0; i < count && (limit_ == 0 || i < limit_); ++i)
      instruction(i);
    if (limit_ > 0 && count > limit_)
      text_ += "  … " + formatCount(count - limit_) + " more\n";
    return std::move(text_);
  }

private:
  std::string meaning() const {
    const std::string &name = segment_.name();
    int64_t microSteps = plan_.micro_steps();
    if (name == "only")
      return "; the micro-step of each step";
    if (name == "first" || name == "last")
      return "; the " + name + " of " + formatCount(microSteps) + " micro-steps";
    if (name == "middle")
      return "; the micro-steps in between, " + formatCount(runsPerStep(plan_, segment_)) + " of " +
             formatCount(microSteps);
    if (name == "update")
      return "; the optimizer, at the end of each step";
    if (name == "init")
      return "; once, before the first step";
    if (name == "infer")
      return "; a micro-batch of every rank";
    return name == "eval" ? "; an evaluation batch" : "";
  }

  void noteRecorders() {
    recorders_.assign(segment_.events() + 1, kNever);
    for (int i = 0; i < segment_.instructions_size(); ++i)
      if (uint32_t event = segment_.instructions(i).record(); event > 0 && event < recorders_.size())
        recorders_[event] = i;
  }

  void line(const std::array<std::string, 6> &cells) {
    std::string row = fit(cells[0], 6, Align::right) + "  " + fit(cells[1], 7) + "  " + fit(cells[2], 26) +
                      "  " + fit(cells[3], 47) + "  " + fit(cells[4], 8, Align::right) + "  " + cells[5];
    row.erase(row.find_last_not_of(' ') + 1);
    text_ += row + "\n";
  }
  // What has become of a bucket.
  void state(int bucket, const std::string &what) {
    std::string name = "        * " + bucketName(plan_, bucket) + " ";
    int rest = kWidth - textWidth(name) - textWidth(what) - 2;
    text_ += name + shorten(bucketLabel(plan_, bucket), std::max(8, rest)) + ": " + what + "\n";
  }

  void instruction(int i) {
    const plan::Instruction &instruction = segment_.instructions(i);
    heading(i, instruction);
    std::string after;
    for (uint32_t event : instruction.wait())
      if (event < recorders_.size() && recorders_[event] != kNever)
        after += (after.empty() ? "" : ", ") + position(recorders_[event]);
    int64_t received = receivedBytes(plan_, instruction).total();
    line({position(i), streamName(instruction.stream()), opColumn(plan_, instruction), instruction.location(),
          received > 0 ? formatBytes(received) : "", after});
    states(i, instruction);
  }

  // Only compute opens a new part: fetches for the next layer stand in the midst of this one.
  void heading(int i, const plan::Instruction &instruction) {
    if (instruction.stream() != 0 || !takesTime(opOf(instruction)) || instruction.bucket() >= 0)
      return;
    std::string part = partOfModel(instruction.location(), walk_.parameterReadAt(i));
    if (part.empty() || part == part_)
      return;
    part_ = part;
    text_ += "--- " + shorten(part, kWidth - 8) + " ---\n";
  }

  void states(int i, const plan::Instruction &instruction) {
    if (const Residence *residence = walk_.startedAt(i)) {
      std::string first = walk_.otherCopy(*residence, i);
      state(residence->bucket,
            "in flight" + (residence->wait == kNever ? "" : ", needed at " + position(residence->wait)) +
                (first.empty() ? "" : " (a second copy; the first is " + first + ")"));
    }
    if (const Residence *residence = walk_.arrivedAt(i))
      state(residence->bucket, "available, read at " + readText(*residence));
    if (const Residence *residence = walk_.releasedAt(i)) {
      std::string second = walk_.otherCopy(*residence, i);
      state(residence->bucket, "released after " + position(residence->lastRead) + ", " +
                                   (second.empty() ? "not available" : "the second copy is " + second));
    }
    if (instruction.bucket() >= 0 && walk_.isReductionStart(i))
      state(instruction.bucket(), "gradients in flight");
    if (instruction.bucket() >= 0 && walk_.isReductionEnd(i))
      state(instruction.bucket(), "gradients reduced");
  }

  const plan::Plan &plan_;
  const plan::Segment &segment_;
  int limit_;
  SegmentWalk walk_;
  std::vector<int> recorders_; // by event
  std::string text_, part_;
};

} // namespace

std::string scheduleText(const plan::Plan &plan, const ScheduleOptions &options) {
  std::string text =
      "The parameters of a bucket are not available (only this rank's part is there), in flight (from "
      "fetch.start to\nfetch.wait) or available (until release). An instruction begins when those before "
      "it on its stream and those named\nunder \"after\" are done. A ~ behind a node means its "
      "backward.\n";
  std::string others;
  for (const plan::Segment &segment : plan.segments()) {
    bool isShown =
        options.segment.empty() ? runsPerStep(plan, segment) > 0 : segment.name() == options.segment;
    if (isShown)
      text += "\n" + SegmentText(plan, segment, options.limit).run();
    else if (options.segment.empty())
      others += (others.empty() ? "" : ", ") + printable(segment.name());
  }
  if (!others.empty())
    text += "\nnot shown: " + others + " (--segment NAME)\n";
  return text;
}

namespace {

/// Places the instructions of a step in time and writes them as trace events.
class Tracer {
public:
  Tracer(const plan::Plan &plan, llvm::json::OStream &json) : plan_(plan), json_(json) {}

  void run() {
    json_.attribute("displayTimeUnit", "ms");
    json_.attributeArray("traceEvents", [&] {
      metadata("process_name", 0, "rank 0 (unit costs)");
      for (size_t stream = 0; stream < kStreamNames.size(); ++stream)
        metadata("thread_name", static_cast<int64_t>(stream), kStreamNames[stream]);
      for (const char *name : {"only", "first", "middle", "last", "update", "infer"})
        for (const plan::Segment &segment : plan_.segments())
          if (segment.name() == name)
            trace(segment); // `middle` once: its repetitions look alike
    });
  }

private:
  void metadata(const char *what, int64_t stream, const std::string &name) {
    json_.object([&] {
      json_.attribute("ph", "M");
      json_.attribute("pid", 0);
      json_.attribute("tid", stream);
      json_.attribute("name", what);
      json_.attributeObject("args", [&] { json_.attribute("name", name); });
    });
  }

  void trace(const plan::Segment &segment) {
    std::map<uint32_t, int64_t> streamEnds;
    std::vector<int64_t> events(segment.events() + 1, now_);
    int64_t end = now_;
    for (int i = 0; i < segment.instructions_size(); ++i) {
      const plan::Instruction &instruction = segment.instructions(i);
      int64_t &streamEnd = streamEnds.try_emplace(instruction.stream(), now_).first->second;
      for (uint32_t event : instruction.wait())
        if (event < events.size())
          streamEnd = std::max(streamEnd, events[event]);
      if (takesTime(opOf(instruction)))
        write(segment, i, streamEnd++);
      if (instruction.record() > 0 && instruction.record() < events.size())
        events[instruction.record()] = streamEnd;
      end = std::max(end, streamEnd);
    }
    now_ = end; // streams join at the end of a segment
  }

  void write(const plan::Segment &segment, int i, int64_t start) {
    const plan::Instruction &instruction = segment.instructions(i);
    json_.object([&] {
      json_.attribute("ph", "X");
      json_.attribute("pid", 0);
      json_.attribute("tid", static_cast<int64_t>(instruction.stream()));
      json_.attribute("ts", start);
      json_.attribute("dur", 1);
      json_.attribute("name", printable(opColumn(plan_, instruction)));
      json_.attribute("cat", printable(segment.name()));
      json_.attributeObject("args", [&] {
        json_.attribute("instruction", i);
        json_.attribute("node", printable(instruction.location()));
        if (int64_t received = receivedBytes(plan_, instruction).total(); received > 0)
          json_.attribute("received", received);
      });
    });
  }

  const plan::Plan &plan_;
  llvm::json::OStream &json_;
  int64_t now_ = 0;
};

} // namespace

std::string scheduleTrace(const plan::Plan &plan) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  llvm::json::OStream json(stream);
  json.object([&] { Tracer(plan, json).run(); });
  stream << "\n";
  return escapeInJson(stream.str());
}

} // namespace zerocc
