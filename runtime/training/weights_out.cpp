#include "runtime/training/weights_out.h"

#include "runtime/training/parameters.h"
#include "runtime/weights/named_weights.h"
#include "runtime/weights/onnx_export.h"
#include "runtime/weights/safetensors.h"

#include <algorithm>
#include <map>

namespace zerocc {
namespace {

bool endsWith(const std::string &text, const std::string &ending) {
  return text.size() >= ending.size() &&
         text.compare(text.size() - ending.size(), ending.size(), ending) == 0;
}

struct Home {
  int parameter = 0;
  bool transposed = false;
};

// Which initializer gets which parameter. Parameters split off one shared initializer have no home in the
// same graph.
Expected<std::map<std::string, Home>> homesOf(const plan::Plan &plan) {
  std::map<std::string, Home> homes;
  std::vector<Diagnostic> findings;
  for (int p = 0; p < plan.parameters_size(); ++p) {
    const plan::Parameter &parameter = plan.parameters(p);
    auto add = [&](const std::string &initializer, bool transposed) {
      auto [at, isNew] = homes.insert({initializer, {p, transposed}});
      if (!isNew)
        findings.push_back({"parameters \"" + plan.parameters(at->second.parameter).name() + "\" and \"" +
                                parameter.name() + "\" share initializer \"" + initializer +
                                "\" of the model",
                            "export to FILE.safetensors, where each has a name of its own"});
    };
    add(parameter.initializer(), false);
    for (const std::string &copy : parameter.copies())
      add(copy, false);
    for (const std::string &copy : parameter.transposed_copies())
      add(copy, true);
  }
  if (!findings.empty())
    return Error(std::move(findings));
  return homes;
}

std::vector<float> transposed(const std::vector<float> &values, int64_t rows, int64_t columns) {
  std::vector<float> out(values.size());
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c)
      out[c * rows + r] = values[r * columns + c];
  return out;
}

} // namespace

Status checkExportTarget(const plan::Plan &plan, const std::string &target, const std::string &modelFile) {
  if (target.empty() || endsWith(target, ".safetensors"))
    return success();
  if (!endsWith(target, ".onnx"))
    return Error("--export: \"" + target + "\" is neither FILE.onnx nor FILE.safetensors");
  if (modelFile.empty())
    return Error("--export " + target + ": an ONNX export is made from the original model",
                 "give --model MODEL.onnx");
  auto homes = homesOf(plan);
  return homes ? success() : Status(homes.error().in("--export " + target));
}

namespace {

// Of several processes the first writes, and leads: it tells the others which tensor is to be put together next.
constexpr int64_t kNoMoreTensors = -1;

Expected<std::vector<float>> readLeading(const plan::Plan &plan, RankGroup &group, int64_t parameter) {
  ZEROCC_TRY(group.processes().broadcast(0, &parameter, sizeof parameter));
  return readTensor(plan, group, static_cast<int>(parameter), Tensor::parameter);
}

Status follow(const plan::Plan &plan, RankGroup &group) {
  while (true) {
    int64_t parameter = kNoMoreTensors;
    ZEROCC_TRY(group.processes().broadcast(0, &parameter, sizeof parameter));
    if (parameter == kNoMoreTensors)
      return success();
    ZEROCC_TRY(readTensor(plan, group, static_cast<int>(parameter), Tensor::parameter));
  }
}

Status writeWeights(const plan::Plan &plan, RankGroup &group, const std::string &modelFile, const std::string &target) {
  std::vector<float> values; // of the tensor being written
  auto bytesOf = [&] {
    return Bytes(reinterpret_cast<const unsigned char *>(values.data()), values.size() * sizeof(float));
  };
  if (endsWith(target, ".safetensors")) {
    std::vector<SafetensorsEntry> entries;
    std::map<std::string, int> byName;
    for (int p = 0; p < plan.parameters_size(); ++p) {
      const plan::Parameter &parameter = plan.parameters(p);
      entries.push_back(
          {parameter.name(), ElementType::f32, {parameter.dims().begin(), parameter.dims().end()}});
      byName[parameter.name()] = p;
    }
    for (const plan::Storage &storage : plan.storages())
      if (storage.kind() == plan::Storage::BUFFER)
        entries.push_back({storage.name(), ElementType::f32, {storage.dims().begin(), storage.dims().end()}});
    return writeSafetensors(target, entries, {{"format", "pt"}, {kOrientationKey, kOrientationOnnx}},
                            [&](const std::string &name) -> Expected<Bytes> {
                              if (!byName.count(name)) {
                                values = readBuffer(plan, group, name);
                                return bytesOf();
                              }
                              ZEROCC_ASSIGN(values, readLeading(plan, group, byName.at(name)));
                              return bytesOf();
                            });
  }
  ZEROCC_ASSIGN(auto homes, homesOf(plan));
  ZEROCC_ASSIGN(ModelWeights model, ModelWeights::open(modelFile));
  std::vector<std::string> names;
  for (const auto &[name, home] : homes)
    names.push_back(name);
  std::map<std::string, std::string> buffers; // initializer -> storage
  for (const plan::Storage &storage : plan.storages())
    if (storage.kind() == plan::Storage::BUFFER) {
      buffers[storage.initializer()] = storage.name();
      names.push_back(storage.initializer());
    }
  std::string rounded;
  // In the dtype of the file: weights of 16 bits are rounded.
  auto bytesFor = [&](const std::string &name) {
    const ModelTensor *tensor = model.find(name);
    const std::optional<DType> dtype = tensor && tensor->type ? dtypeOf(*tensor->type) : std::nullopt;
    if (!dtype || *dtype == DType::f32 || !isFloat(*dtype))
      return bytesOf();
    rounded.resize(values.size() * byteSize(*dtype));
    convert(ElementType::f32, values.data(), static_cast<int64_t>(values.size()), *dtype, rounded.data());
    return Bytes(reinterpret_cast<const unsigned char *>(rounded.data()), rounded.size());
  };
  return exportOnnx(model, target, names, [&](const std::string &name) -> Expected<Bytes> {
    if (auto buffer = buffers.find(name); buffer != buffers.end()) {
      values = readBuffer(plan, group, buffer->second);
      return bytesFor(name);
    }
    Home home = homes.at(name);
    const plan::Parameter &parameter = plan.parameters(home.parameter);
    ZEROCC_ASSIGN(values, readLeading(plan, group, home.parameter));
    if (home.transposed)
      values = transposed(values, parameter.dims(0), parameter.dims(1));
    return bytesFor(name);
  });
}

} // namespace

Status exportWeights(const plan::Plan &plan, RankGroup &group, const std::string &modelFile, const std::string &target) {
  Processes &processes = group.processes();
  Status status = success();
  if (processes.isFirst()) {
    status = writeWeights(plan, group, modelFile, target);
    int64_t end = kNoMoreTensors;
    ZEROCC_TRY(processes.broadcast(0, &end, sizeof end));
  } else {
    status = follow(plan, group);
  }
  return agree(processes, status);
}

} // namespace zerocc
