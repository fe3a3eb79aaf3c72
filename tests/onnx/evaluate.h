#pragma once

#include "compiler/onnx/importer.h"
#include "compiler/ops/interpreter.h"

#include <map>
#include <string>
#include <vector>

namespace zerocc {

using Bindings = llvm::DenseMap<const Value *, HostTensor>;

/// Host values of the module's inputs (by name, from `inputs`), parameters and stored constants (from the file).
inline Expected<Bindings> bindValues(const Module &module, const StoredWeights *weights,
                                     const std::map<std::string, HostTensor> &inputs) {
  Bindings bindings;
  auto bindStored = [&](const Value *value, const DataSource &source) -> Status {
    if (source.kind != DataSource::Kind::initializer)
      return success();
    if (!weights)
      return Error("no weights for @" + value->name);
    ZEROCC_ASSIGN(StoredTensor stored, weights->read(source.initializer));
    HostTensor host = HostTensor::fromBytes(stored.type, stored.bytes);
    host.type = value->type; // parameters are f32, whatever the file has
    bindings[value] = std::move(host);
    return success();
  };
  for (const Parameter &parameter : module.parameters)
    ZEROCC_TRY(bindStored(parameter.value.get(), parameter.source));
  for (const Constant &constant : module.constants)
    ZEROCC_TRY(bindStored(constant.value.get(), constant.source));
  for (const Input &input : module.inputs) {
    auto found = inputs.find(input.value->name);
    if (found == inputs.end())
      return Error("no value for input " + input.value->name);
    bindings[input.value.get()] = found->second;
  }
  return bindings;
}

/// Values of the model's outputs, by the plain interpreter; `inputs` by name, weights from the file.
inline Expected<std::vector<HostTensor>> evaluateModel(const Module &module, const StoredWeights *weights,
                                                       const std::map<std::string, HostTensor> &inputs,
                                                       const InterpretOptions &options = {}) {
  ZEROCC_ASSIGN(Bindings bindings, bindValues(module, weights, inputs));
  return interpret(module, *module.graph("forward"), bindings, options);
}

} // namespace zerocc
