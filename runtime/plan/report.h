#pragma once

#include "runtime/plan/plan.pb.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace zerocc {

// Exact figures of a plan, from the plan alone. Indices and shapes of the plan must be in range
// (verify_structure.h); sums of absurd sizes saturate.

/// Bytes that a rank receives from other ranks, as its communicators count them. Where ranks differ (an
/// all-reduce whose elements do not divide among them) rank 0's, which are the most.
struct ReceivedBytes {
  int64_t allGather = 0, reduceScatter = 0, allReduce = 0;
  int64_t exchange = 0; // scalars of the step, gathered from all ranks

  int64_t total() const;
  /// What `inspect` prints as all-reduce: the exchange is one in effect.
  int64_t allReduceWithScalars() const;
};
ReceivedBytes plus(const ReceivedBytes &a, const ReceivedBytes &b);
ReceivedBytes times(const ReceivedBytes &a, int64_t factor);

ReceivedBytes receivedBytes(const plan::Plan &plan, const plan::Instruction &instruction);

/// How often a segment runs in one step: `only` once, or first + (K - 2) middle + last; update once; others
/// never.
int64_t runsPerStep(const plan::Plan &plan, const plan::Segment &segment);

struct SegmentTraffic {
  std::string segment;
  int64_t runs = 0;   // per step
  ReceivedBytes once; // of one run
};
struct BucketTraffic {
  ReceivedBytes step, minimum;
};
struct TrafficReport {
  ReceivedBytes step;
  /// What the buckets' fields ask for at the least, without padding: to become whole a rank receives the
  /// parts of the others, (S-1)/S; scheduling.md 1.1. Each kind is rounded up to whole bytes.
  ReceivedBytes minimum;
  ReceivedBytes eval;
  std::vector<SegmentTraffic> segments;
  std::vector<BucketTraffic> buckets; // as Plan.buckets; what no bucket asks for (the exchange) is in none
  int64_t padding() const { return step.total() - minimum.total(); }
};
TrafficReport reportTraffic(const plan::Plan &plan);

/// Bytes of a kind at the fullest instant, beside what the ZeRO paper counts for the same fields: parameters,
/// gradients and optimizer states (with master weights), each divided by the shard axis where it is sharded.
struct MemoryKind {
  std::string name;
  int64_t bytes = 0;
  std::optional<int64_t> textbook;
};
struct MemoryReport {
  int64_t peak = 0;              // all regions
  std::string peakAt;            // ONNX node
  std::vector<MemoryKind> kinds; // in the order of INTERFACE.md; they add up to `peak`
  int64_t textbook = 0;
  int64_t arena = 0, arenaLowerBound = 0;
  int64_t arenaWaste() const { return arena - arenaLowerBound; }
};
MemoryReport reportMemory(const plan::Plan &plan);

/// Bytes of the arena from the first instruction that writes them to the last that names them.
struct ArenaValue {
  enum class Kind : uint8_t { activation, fetched, gradient, workspace };
  Kind kind = Kind::activation;
  int first = 0, last = 0;       // instructions of the segment
  int64_t offset = 0, bytes = 0; // in the arena
  int bucket = -1;
};
/// In order of `first`. Gradients that lie in one bucket buffer are one value.
std::vector<ArenaValue> arenaValues(const plan::Plan &plan, const plan::Segment &segment);

/// The instruction during which most of the arena is alive, and what that is, largest first.
struct FullestInstant {
  int segment = -1, instruction = -1; // -1: the plan has no instructions
  int64_t bytes = 0;
  std::vector<ArenaValue> alive;
};
FullestInstant findFullestInstant(const plan::Plan &plan);

/// Elements, also of absurd shapes.
int64_t elementsOfDims(const google::protobuf::RepeatedField<int64_t> &dims);
int64_t parameterElements(const plan::Plan &plan);

/// What a bucket holds, in a few words: its parameter, its layer and which of its parameters, or the first
/// and the last of several, in the order of use.
std::string bucketLabel(const plan::Plan &plan, int bucket);
/// The part of a parameter's or node's name up to its first number: "transformer.h.3", "/transformer/h.3";
/// empty when there is none.
std::string layerOfName(const std::string &name);

} // namespace zerocc
