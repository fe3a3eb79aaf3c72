#include "compiler/onnx/compute_f32.h"

#include "compiler/ops/interpreter.h"
#include "compiler/ops/ops.h"

#include "llvm/ADT/STLExtras.h"

#include <map>
#include <set>

namespace zerocc {
namespace {

bool isOtherFloat(DType dtype) { return isFloat(dtype) && dtype != DType::f32; }

class Converter {
public:
  explicit Converter(Module &module) : module_(module), graph_(*module.graph("forward")) {}

  Status run(ImportReport &report) {
    for (Input &input : module_.inputs)
      convert(*input.value);
    for (size_t i = 0; i < module_.constants.size(); ++i) // grows by scalars
      convertConstant(i);
    for (Node *node : graph_.nodes) {
      ZEROCC_TRY(convert(*node));
      if (!replacements_.count(node->results[0]))
        nodes_.push_back(node);
    }
    graph_.nodes = std::move(nodes_);
    for (auto &[name, value] : graph_.results)
      value = replacement(value);
    llvm::erase_if(module_.constants, [&](const Constant &constant) {
      return isOtherFloat(constant.value->type.dtype) && !kept_.count(constant.value.get());
    });
    module_.reindex();
    for (const auto &[dtype, count] : counts_)
      report.repairs.push_back("computes in f32 what the file computes in " + dtype + " (" +
                               std::to_string(count) + (count == 1 ? " value)" : " values)"));
    return success();
  }

private:
  void count(DType dtype) { ++counts_[std::string(dtypeName(dtype))]; }

  void convert(Value &value) {
    if (!isOtherFloat(value.type.dtype))
      return;
    count(value.type.dtype);
    value.type.dtype = DType::f32;
  }

  /// Inline ones get other bytes; larger ones are read as they are and cast.
  void convertConstant(size_t index) {
    Constant &constant = module_.constants[index];
    Value *value = constant.value.get();
    const TensorType type = value->type;
    if (!isOtherFloat(type.dtype))
      return;
    count(type.dtype);
    if (constant.source.kind != DataSource::Kind::inlineBytes) {
      Node *cast = graph_.create(OpKind::Cast, {value}, {TensorType{DType::f32, type.dims}},
                                 {{"to", std::string(dtypeName(DType::f32))}}, value->name);
      replacements_[value] = cast->result();
      kept_.insert(value);
      nodes_.push_back(cast);
      return;
    }
    HostTensor host = HostTensor::fromBytes(type, constant.source.bytes);
    if (type.dims.empty()) {
      replacements_[value] = module_.scalar(DType::f32, host.at(0)); // may move the constants
      return;
    }
    HostTensor rounded = HostTensor::zeros({DType::f32, type.dims});
    rounded.reals = host.reals;
    constant.source.bytes = rounded.toBytes();
    value->type.dtype = DType::f32;
  }

  Value *replacement(Value *value) const {
    auto found = replacements_.find(value);
    return found == replacements_.end() ? value : found->second;
  }

  /// Results get the types that the op gives operands in f32. The readers of a cast that now changes nothing
  /// get its operand.
  Status convert(Node &node) {
    llvm::SmallVector<TensorType, 4> inputTypes;
    for (Value *&input : node.inputs) {
      input = replacement(input);
      inputTypes.push_back(input->type);
    }
    for (const char *key : {"to", "dtype"})
      if (node.attributes.has(key))
        if (auto dtype = dtypeFromName(node.attributes.getString(key)); dtype && isOtherFloat(*dtype))
          node.attributes.set(key, std::string(dtypeName(DType::f32)));
    Expected<ResultTypes> types = inferTypes({node.op, inputTypes, node.attributes, nullptr, &module_.mesh});
    if (!types)
      return types.error().in("node \"" + node.location + "\" in f32");
    for (size_t i = 0; i < node.results.size(); ++i) {
      TensorType &type = node.results[i]->type;
      if (type.dtype != (*types)[i].dtype)
        count(type.dtype);
      type = (*types)[i];
    }
    if (node.op == OpKind::Cast && node.input(0)->type.dtype == node.result()->type.dtype)
      replacements_[node.result()] = node.input(0);
    return success();
  }

  Module &module_;
  Graph &graph_;
  std::vector<Node *> nodes_; // casts of constants, then those that stay
  llvm::DenseMap<const Value *, Value *> replacements_;
  std::set<const Value *> kept_; // stored constants behind a cast
  std::map<std::string, int64_t> counts_;
};

} // namespace

Status computeInF32(Module &module, ImportReport &report) { return Converter(module).run(report); }

} // namespace zerocc
