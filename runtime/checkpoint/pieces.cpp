#include "runtime/checkpoint/pieces.h"

#include "runtime/checkpoint/index.h"
#include "runtime/plan/scalars.h"

#include <algorithm>
#include <functional>
#include <set>

namespace zerocc {
namespace {

/// "moment1"; empty: not a state of parameters.
std::string stateOf(const plan::Storage &storage) {
  if (storage.bucket() < 0 || storage.kind() == plan::Storage::GRADIENT)
    return "";
  if (storage.kind() == plan::Storage::OTHER)
    return storage.name().substr(storage.name().rfind('.') + 1);
  std::string name = plan::Storage::Kind_Name(storage.kind());
  for (char &c : name)
    c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return name;
}

std::vector<int64_t> dimsOf(const google::protobuf::RepeatedField<google::protobuf::int64> &dims) {
  return {dims.begin(), dims.end()};
}

/// The parts of a storage's parameters inside `window`.
void addPieces(const plan::Plan &plan, const plan::Storage &storage, int shardIndex, BucketWindow window,
               std::vector<RankPiece> &pieces) {
  const plan::Bucket &bucket = plan.buckets(storage.bucket());
  const int64_t first = storage.sharded() ? ownPart(plan, bucket, shardIndex).begin : 0; // at the storage's start
  const DType dtype = static_cast<DType>(storage.dtype());
  for (const plan::Range &range : bucket.ranges()) {
    const int64_t begin = std::max<int64_t>(range.begin(), window.begin);
    const int64_t end = std::min<int64_t>(range.end(), window.end);
    if (begin >= end)
      continue;
    const plan::Parameter &parameter = plan.parameters(static_cast<int>(range.parameter()));
    const int64_t start = static_cast<int64_t>(parameter.bucket_offset());
    pieces.push_back({stateOf(storage) + "/" + indexName(parameter.name()), dtype, begin - start, end - start,
                      storage.region(), storage.offset() + (begin - first) * byteSize(dtype)});
  }
}

RankPiece wholeOf(const std::string &name, const plan::Storage &storage) {
  return {name,           static_cast<DType>(storage.dtype()), 0, static_cast<int64_t>(storage.elements()),
          storage.region(), storage.offset()};
}

} // namespace

BucketWindow ownPart(const plan::Plan &plan, const plan::Bucket &bucket, int shardIndex) {
  const int64_t part = static_cast<int64_t>(bucket.padded_elements() / plan.mesh().shard());
  return {shardIndex * part, (shardIndex + 1) * part};
}

BucketWindow windowToLoad(const plan::Plan &plan, const plan::Storage &storage, int shardIndex) {
  const plan::Bucket &bucket = plan.buckets(storage.bucket());
  const bool isUpdatedByAll = bucket.states() == "whole" || !bucket.trainable();
  const bool isWhole = storage.kind() == plan::Storage::PARAMETER ? bucket.parameters() == "whole" && isUpdatedByAll
                                                                  : !storage.sharded();
  return isWhole ? BucketWindow{0, static_cast<int64_t>(bucket.padded_elements())}
                 : ownPart(plan, bucket, shardIndex);
}

std::vector<LogicalTensor> logicalTensors(const plan::Plan &plan) {
  std::vector<LogicalTensor> tensors;
  for (const plan::Storage &storage : plan.storages()) {
    const DType dtype = static_cast<DType>(storage.dtype());
    if (storage.kind() == plan::Storage::BUFFER)
      tensors.push_back({"buffer/" + indexName(storage.name()), dtype, dimsOf(storage.dims())});
    else if (storage.kind() == plan::Storage::SCALARS)
      tensors.push_back({"scalars", dtype, {static_cast<int64_t>(storage.elements())}});
    const std::string state = stateOf(storage);
    if (state.empty())
      continue;
    for (const plan::Range &range : plan.buckets(storage.bucket()).ranges()) {
      const plan::Parameter &parameter = plan.parameters(static_cast<int>(range.parameter()));
      tensors.push_back({state + "/" + indexName(parameter.name()), dtype, dimsOf(parameter.dims())});
    }
  }
  std::sort(tensors.begin(), tensors.end(),
            [](const LogicalTensor &a, const LogicalTensor &b) { return a.name < b.name; });
  return tensors;
}

std::vector<RankPiece> piecesToSave(const plan::Plan &plan, int rank) {
  const int64_t shard = static_cast<int64_t>(plan.mesh().shard()),
                replicate = static_cast<int64_t>(plan.mesh().replicate());
  const int shardIndex = static_cast<int>(rank % shard);
  const int64_t replica = rank / shard;
  std::vector<RankPiece> pieces;
  for (const plan::Storage &storage : plan.storages()) {
    if (rank == 0 && storage.kind() == plan::Storage::BUFFER)
      pieces.push_back(wholeOf("buffer/" + indexName(storage.name()), storage));
    else if (rank == 0 && storage.kind() == plan::Storage::SCALARS)
      pieces.push_back(wholeOf("scalars", storage));
    if (stateOf(storage).empty())
      continue;
    const BucketWindow part = ownPart(plan, plan.buckets(storage.bucket()), shardIndex);
    const int64_t elements = part.end - part.begin;
    addPieces(plan, storage, shardIndex,
              {part.begin + elements * replica / replicate, part.begin + elements * (replica + 1) / replicate},
              pieces);
  }
  return pieces;
}

std::vector<RankPiece> piecesToLoad(const plan::Plan &plan, int shardIndex) {
  std::vector<RankPiece> pieces;
  for (const plan::Storage &storage : plan.storages()) {
    if (storage.kind() == plan::Storage::BUFFER)
      pieces.push_back(wholeOf("buffer/" + indexName(storage.name()), storage));
    else if (!stateOf(storage).empty())
      addPieces(plan, storage, shardIndex, windowToLoad(plan, storage, shardIndex), pieces);
  }
  return pieces;
}

std::vector<std::string> scalarNames(const plan::Plan &plan) {
  std::vector<std::string> names(kScalars);
  for (int i = 0; i < kScalars; ++i)
    names[i] = "scalar" + std::to_string(i);
  for (const auto &[scalar, name] : kScalarNames)
    names[scalar] = name;
  for (int g = 0; g < plan.groups_size() && g < kMaxGroups; ++g) {
    names[kScalarGroups + 2 * g] = indexName(plan.groups(g)) + ".weight-decay";
    names[kScalarGroups + 2 * g + 1] = indexName(plan.groups(g)) + ".lr-factor";
  }
  return names;
}

} // namespace zerocc
