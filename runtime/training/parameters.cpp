#include "runtime/training/parameters.h"

#include "runtime/checkpoint/load.h"
#include "runtime/checkpoint/pieces.h"
#include "runtime/training/random.h"

#include "llvm/ADT/StringRef.h"

#include <algorithm>
#include <cstring>

namespace zerocc {
namespace {

const plan::Storage *storageOf(const plan::Plan &plan, int bucket, plan::Storage::Kind kind) {
  for (const plan::Storage &storage : plan.storages())
    if (storage.kind() == kind && storage.bucket() == bucket)
      return &storage;
  return nullptr;
}

Status fillNormal(const plan::Parameter &parameter, uint32_t stream, const InitialValues &values, int64_t begin,
                  int64_t end, float *target) {
  bool vector = parameter.dims_size() < 2;
  bool scale = vector && (parameter.name().find("weight") != std::string::npos ||
                          parameter.name().find("gamma") != std::string::npos ||
                          parameter.name().find("scale") != std::string::npos);
  for (int64_t i = begin; i < end; ++i)
    target[i - begin] = vector ? (scale ? 1.0f : 0.0f)
                               : static_cast<float>(*values.normalStd * standardNormal(values.seed, stream, i));
  return success();
}

Status fillParameter(const plan::Plan &plan, int index, const InitialValues &values, int64_t begin, int64_t end,
                     float *target) {
  const plan::Parameter &parameter = plan.parameters(index);
  if (values.named) {
    readBound(values.named->parameters[index], begin, end, target);
    return success();
  }
  if (values.normalStd)
    return fillNormal(parameter, static_cast<uint32_t>(index), values, begin, end, target);
  if (!parameter.inline_data().empty()) {
    std::memcpy(target, parameter.inline_data().data() + begin * 4, (end - begin) * 4);
    return success();
  }
  if (!values.model)
    return Error("parameter \"" + parameter.name() + "\" has no values",
                 "give --model " + plan.provenance().model_file() + " or --init normal:0.02");
  return values.model->read(parameter.initializer(), begin, end, DType::f32, target);
}

Status loadBucket(const plan::Plan &plan, Executor &executor, int b, const InitialValues &values) {
  const plan::Bucket &bucket = plan.buckets(b);
  const plan::Storage *storage = storageOf(plan, b, plan::Storage::PARAMETER);
  if (!storage)
    return Error("plan: bucket \"" + bucket.name() + "\" has no parameter storage");
  const BucketWindow owned = windowToLoad(plan, *storage, executor.shardIndex());
  int64_t first = storage->sharded() ? owned.begin : 0; // bucket element at the storage's start
  auto *bytes = reinterpret_cast<float *>(executor.address(storage->region(), storage->offset()));
  for (const plan::Range &range : bucket.ranges()) {
    int64_t begin = std::max<int64_t>(range.begin(), owned.begin), end = std::min<int64_t>(range.end(), owned.end);
    if (begin < end)
      ZEROCC_TRY(fillParameter(plan, static_cast<int>(range.parameter()), values, begin - range.begin(),
                               end - range.begin(), bytes + (begin - first)));
  }
  return success();
}

int64_t elementsOf(const plan::Constant &constant) {
  int64_t n = 1;
  for (int64_t dim : constant.dims())
    n *= dim;
  return n;
}

} // namespace

/// "onnx::MatMul_12" of the TorchScript exporter, "val_12" of the other: an initializer of their own, into which they fold
/// the transpose of a linear layer. Import names the parameter as the layer does.
static bool isFoldedTranspose(const plan::Parameter &parameter) {
  llvm::StringRef name = parameter.initializer();
  if (parameter.dims_size() != 2 || parameter.initializer() == parameter.name())
    return false;
  return (name.consume_front("onnx::MatMul_") || name.consume_front("val_")) &&
         name.find_first_not_of("0123456789") == llvm::StringRef::npos;
}

/// Every state that the plan keeps of a parameter, and no other.
static Status bindStates(const plan::Plan &plan, const std::map<std::string, NamedWeights> &states,
                         const std::map<std::string, std::string> &given, NamedValues &values,
                         std::vector<std::string> &notes) {
  std::map<std::string, const plan::Parameter *> parameters;
  for (const plan::Parameter &parameter : plan.parameters())
    parameters[indexName(parameter.name())] = &parameter;
  std::map<std::string, std::vector<WantedTensor>> wanted; // by state
  for (const LogicalTensor &tensor : logicalTensors(plan)) {
    const size_t slash = tensor.name.find('/');
    const std::string state = tensor.name.substr(0, slash);
    if (slash == std::string::npos || state == "parameter" || state == "buffer")
      continue;
    const plan::Parameter &parameter = *parameters.at(tensor.name.substr(slash + 1));
    wanted[state].push_back({parameter.name(), tensor.dims, isFoldedTranspose(parameter), parameter.tied()});
  }
  for (const auto &[state, weights] : states)
    if (!wanted.count(state))
      return Error("optimizer.safetensors holds states \"" + state + "\", which optimizer " +
                       plan.facts().optimizer() + " of the plan does not keep",
                   "compile with the optimizer of that run, or take optimizer.safetensors away");
  for (const auto &[state, tensors] : wanted) {
    auto at = states.find(state);
    if (at == states.end())
      return Error("optimizer.safetensors holds no states \"" + state + "\", which optimizer " +
                       plan.facts().optimizer() + " of the plan keeps",
                   "compile with the optimizer of that run, or take optimizer.safetensors away");
    std::map<std::string, std::string> ours; // of `given`, those that have this state
    for (const WantedTensor &tensor : tensors)
      if (auto name = given.find(tensor.name); name != given.end())
        ours.insert(*name);
    std::vector<std::string> same; // most was said of the weights already
    auto bound = bindWeights(at->second, tensors, ours, same);
    if (!bound)
      return bound.error().in("optimizer.safetensors, " + state);
    for (const std::string &note : same)
      if (note.find("not used") != std::string::npos)
        notes.push_back("optimizer.safetensors, " + state + ": " + note);
    for (size_t i = 0; i < tensors.size(); ++i)
      values.states[state + "/" + indexName(tensors[i].name)] = (*bound)[i];
  }
  notes.push_back("goes on with the optimizer's states after " + std::to_string(values.updates) + " steps");
  return success();
}

Expected<NamedValues> bindPlan(const plan::Plan &plan, const NamedWeights &weights,
                               const std::map<std::string, NamedWeights> &states, int64_t updates,
                               const std::map<std::string, std::string> &given, std::vector<std::string> &notes) {
  std::vector<WantedTensor> wanted;
  for (const plan::Parameter &parameter : plan.parameters())
    wanted.push_back({parameter.name(), {parameter.dims().begin(), parameter.dims().end()},
                      isFoldedTranspose(parameter), parameter.tied()});
  std::vector<std::string> buffers;
  for (const plan::Storage &storage : plan.storages())
    if (storage.kind() == plan::Storage::BUFFER) {
      buffers.push_back(storage.name());
      wanted.push_back({storage.name(), {storage.dims().begin(), storage.dims().end()}, false});
    }
  ZEROCC_ASSIGN(std::vector<BoundTensor> bound, bindWeights(weights, wanted, given, notes));
  NamedValues values;
  values.updates = updates;
  for (size_t b = 0; b < buffers.size(); ++b)
    values.buffers[buffers[b]] = bound[plan.parameters_size() + b];
  bound.resize(plan.parameters_size());
  values.parameters = std::move(bound);
  if (!states.empty())
    ZEROCC_TRY(bindStates(plan, states, given, values, notes));
  return values;
}

/// The rank's own parts of the optimizer's states.
static void loadStates(const plan::Plan &plan, Executor &executor, const NamedValues &values) {
  constexpr int64_t kChunk = 4096;
  float chunk[kChunk];
  for (const RankPiece &piece : piecesToLoad(plan, executor.shardIndex())) {
    auto bound = values.states.find(piece.tensor);
    if (bound == values.states.end())
      continue;
    char *target = executor.address(piece.region, piece.offset);
    for (int64_t at = piece.begin; at < piece.end; at += kChunk) {
      const int64_t count = std::min(kChunk, piece.end - at);
      readBound(bound->second, at, at + count, chunk);
      convert(ElementType::f32, chunk, count, piece.dtype, target + (at - piece.begin) * byteSize(piece.dtype));
    }
  }
}

Status loadValues(const plan::Plan &plan, Executor &executor, const InitialValues &values) {
  if (values.checkpoint) {
    ZEROCC_TRY(loadCheckpoint(plan, executor, *values.checkpoint));
  } else {
    for (int b = 0; b < plan.buckets_size(); ++b)
      ZEROCC_TRY(loadBucket(plan, executor, b, values));
    if (values.named)
      loadStates(plan, executor, *values.named);
  }
  for (const plan::Storage &storage : plan.storages()) {
    if (storage.kind() != plan::Storage::BUFFER || values.checkpoint)
      continue;
    char *target = executor.address(storage.region(), storage.offset());
    const auto elements = static_cast<int64_t>(storage.elements());
    if (values.named) {
      readBound(values.named->buffers.at(storage.name()), 0, elements, reinterpret_cast<float *>(target));
      continue;
    }
    if (values.normalStd && !values.model) { // a fresh network: mean 0, variance 1
      const bool isVariance = storage.name().find("var") != std::string::npos;
      std::fill_n(reinterpret_cast<float *>(target), elements, isVariance ? 1.0f : 0.0f);
      continue;
    }
    if (!values.model)
      return Error("buffer \"" + storage.name() + "\" lies in the model file",
                   "give --model " + plan.provenance().model_file());
    ZEROCC_TRY(values.model->read(storage.initializer(), 0, elements, DType::f32, target));
  }
  for (const plan::Constant &constant : plan.constants()) {
    char *target = executor.address(0, constant.offset());
    DType dtype = static_cast<DType>(constant.dtype());
    if (!constant.inline_data().empty()) {
      std::memcpy(target, constant.inline_data().data(), constant.inline_data().size());
    } else if (!constant.initializer().empty()) {
      if (!values.model)
        return Error("constant \"" + constant.name() + "\" lies in the model file",
                     "give --model " + plan.provenance().model_file());
      ZEROCC_TRY(values.model->read(constant.initializer(), 0, elementsOf(constant), dtype, target));
    }
  }
  return success();
}

std::vector<float> readBuffer(const plan::Plan &plan, RankGroup &group, const std::string &name) {
  for (const plan::Storage &storage : plan.storages())
    if (storage.name() == name) {
      const auto *values =
          reinterpret_cast<const float *>(group.here().address(storage.region(), storage.offset()));
      return std::vector<float>(values, values + storage.elements());
    }
  return {};
}

Expected<std::vector<float>> readTensor(const plan::Plan &plan, RankGroup &group, int index, Tensor which) {
  const plan::Parameter &parameter = plan.parameters(index);
  const plan::Bucket &bucket = plan.buckets(static_cast<int>(parameter.bucket()));
  const plan::Storage *storage =
      storageOf(plan, static_cast<int>(parameter.bucket()),
                which == Tensor::parameter ? plan::Storage::PARAMETER : plan::Storage::GRADIENT);
  int64_t elements = 1;
  for (int64_t dim : parameter.dims())
    elements *= dim;
  std::vector<float> out(elements, 0.0f);
  if (!storage)
    return out;
  int64_t begin = static_cast<int64_t>(parameter.bucket_offset()), end = begin + elements;
  for (int r = 0; r < static_cast<int>(plan.mesh().shard()); ++r) {
    // Each rank's own part, also of whole storages: there it is what the rank itself has summed or updated.
    const BucketWindow own = ownPart(plan, bucket, r);
    int64_t from = std::max(begin, own.begin), to = std::min(end, own.end);
    if (from >= to)
      continue;
    if (group.isHere(r)) {
      auto *bytes = reinterpret_cast<const float *>(group.executor(r).address(storage->region(), storage->offset()));
      int64_t first = storage->sharded() ? own.begin : 0;
      std::copy(bytes + (from - first), bytes + (to - first), out.begin() + (from - begin));
    }
    ZEROCC_TRY(group.processes().broadcast(group.ranksHere() < group.ranks() ? r : 0, &out[from - begin], (to - from) * 4));
  }
  return out;
}

} // namespace zerocc
