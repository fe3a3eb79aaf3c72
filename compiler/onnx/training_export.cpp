#include "compiler/onnx/training_export.h"

#include "compiler/onnx/loader.h"
#include "compiler/onnx/lower_gradient.h"
#include "compiler/onnx/repair_export.h"
#include "compiler/support/write_file.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringRef.h"

#include <climits>
#include <filesystem>
#include <fstream>
#include <set>

namespace zerocc {
namespace {

namespace fs = std::filesystem;

constexpr const char *kPrefix = "training.";

using Names = std::vector<std::string>;

class Writer {
public:
  /// `tensors` are the trained ones, with the initializers they have in `model`.
  Writer(onnx::ModelProto &model, const TrainingExport &what,
         const std::vector<TrainingExport::Parameter> &tensors)
      : model_(model), what_(what), tensors_(tensors), training_(*model.add_training_info()),
        algorithm_(*training_.mutable_algorithm()) {
    algorithm_.set_name("training");
  }

  Status run() {
    ZEROCC_TRY(checkNames());
    ZEROCC_TRY(checkTensors());
    importOpsets();
    ZEROCC_TRY(addLoss());
    addGradient();
    addCount();
    std::map<double, std::vector<size_t>> byDecay; // a node's tensors share norm_coefficient
    for (size_t i = 0; i < tensors_.size(); ++i)
      byDecay[tensors_[i].decay].push_back(i);
    for (const auto &[decay, tensors] : byDecay)
      if (what_.optimizer == "adamw")
        addAdamW(decay, tensors);
      else
        addUpdate(decay, tensors);
    return success();
  }

private:
  // --- names and opsets
  // ---------------------------------------------------------------------------------------------

  Status checkNames() {
    for (const onnx::NodeProto &node : model_.graph().node())
      for (const std::string &output : node.output())
        if (llvm::StringRef(output).startswith(kPrefix))
          return Error("the model has a tensor \"" + output + "\"; names with \"" + kPrefix +
                       "\" are for the algorithm");
    return success();
  }

  Status checkTensors() {
    std::map<std::string, Dims> stored;
    for (const onnx::TensorProto &tensor : model_.graph().initializer())
      stored[tensor.name()] = Dims(tensor.dims().begin(), tensor.dims().end());
    for (const TrainingExport::Parameter &tensor : tensors_)
      if (auto found = stored.find(tensor.initializer);
          found == stored.end() || found->second != tensor.type.dims)
        return Error("the plan trains initializer \"" + tensor.initializer + "\" of " + print(tensor.type) +
                         ", which the model does not have",
                     "give the model that the plan was compiled from");
    return success();
  }

  static std::string named(const std::string &name) { return kPrefix + name; }

  void importOpsets() {
    model_.set_ir_version(std::max<int64_t>(model_.ir_version(), 8));
    if (llvm::none_of(model_.opset_import(),
                      [](const auto &opset) { return opset.domain() == kTrainingDomain; })) {
      onnx::OperatorSetIdProto &opset = *model_.add_opset_import();
      opset.set_domain(kTrainingDomain);
      opset.set_version(1);
    }
  }

  // --- building
  // -----------------------------------------------------------------------------------------------------

  onnx::NodeProto &node(const std::string &op, const Names &inputs, const Names &outputs,
                        const std::string &domain = "") {
    onnx::NodeProto &made = *algorithm_.add_node();
    made.set_op_type(op);
    made.set_domain(domain);
    made.set_name(outputs[0]);
    for (const std::string &input : inputs)
      made.add_input(input);
    for (const std::string &output : outputs)
      made.add_output(output);
    return made;
  }

  std::string apply(const std::string &op, const Names &inputs) {
    std::string output = named(op + "_" + std::to_string(serial_++));
    node(op, inputs, {output});
    return output;
  }

  static onnx::AttributeProto &attribute(onnx::NodeProto &node, const std::string &name,
                                         onnx::AttributeProto::AttributeType type) {
    onnx::AttributeProto &made = *node.add_attribute();
    made.set_name(name);
    made.set_type(type);
    return made;
  }
  static void set(onnx::NodeProto &node, const std::string &name, double value) {
    attribute(node, name, onnx::AttributeProto::FLOAT).set_f(static_cast<float>(value));
  }
  static void set(onnx::NodeProto &node, const std::string &name, int64_t value) {
    attribute(node, name, onnx::AttributeProto::INT).set_i(value);
  }
  static void set(onnx::NodeProto &node, const std::string &name, const std::string &value) {
    attribute(node, name, onnx::AttributeProto::STRING).set_s(value);
  }
  static void set(onnx::NodeProto &node, const std::string &name, const Names &values) {
    onnx::AttributeProto &made = attribute(node, name, onnx::AttributeProto::STRINGS);
    for (const std::string &value : values)
      made.add_strings(value);
  }

  onnx::TensorProto &initializer(const std::string &name, int32_t type, const Dims &dims) {
    onnx::TensorProto &tensor = *algorithm_.add_initializer();
    tensor.set_name(name);
    tensor.set_data_type(type);
    for (int64_t dim : dims)
      tensor.add_dims(dim);
    return tensor;
  }
  std::string real(const std::string &name, double value) {
    initializer(named(name), onnx::TensorProto::FLOAT, {}).add_float_data(static_cast<float>(value));
    return named(name);
  }
  std::string exact(double value) {
    std::string name = named("f64_" + std::to_string(serial_++));
    initializer(name, onnx::TensorProto::DOUBLE, {}).add_double_data(value);
    return name;
  }
  std::string ints(const std::string &name, const std::vector<int64_t> &values) {
    onnx::TensorProto &tensor =
        initializer(named(name), onnx::TensorProto::INT64, {static_cast<int64_t>(values.size())});
    for (int64_t value : values)
      tensor.add_int64_data(value);
    return named(name);
  }
  std::string state(const std::string &kind, const TrainingExport::Parameter &tensor) {
    std::string name = named(kind + "." + tensor.initializer);
    initializer(name, onnx::TensorProto::FLOAT, tensor.type.dims)
        .set_raw_data(std::string(static_cast<size_t>(tensor.type.elements()) * sizeof(float), '\0'));
    return name;
  }
  std::string next(const std::string &name) {
    std::string after = name.rfind(kPrefix, 0) == 0 ? name + ".next" : named("next." + name);
    bind(name, after);
    return after;
  }
  void bind(const std::string &name, const std::string &after) {
    onnx::StringStringEntryProto &binding = *training_.add_update_binding();
    binding.set_key(name);
    binding.set_value(after);
  }
  std::string asFloat(const std::string &name) {
    std::string output = named("rate_" + std::to_string(serial_++));
    set(node("Cast", {name}, {output}), "to", int64_t{onnx::TensorProto::FLOAT});
    return output;
  }

  // --- loss and gradient
  // --------------------------------------------------------------------------------------------

  int64_t opset() const {
    for (const auto &opset : model_.opset_import())
      if (opset.domain().empty())
        return opset.version();
    return 0;
  }

  /// The batch stays as free as it is in the model.
  void addLossInput() {
    if (what_.lossInput.empty())
      return;
    onnx::ValueInfoProto &input = *algorithm_.add_input();
    input.set_name(what_.lossInput);
    onnx::TypeProto::Tensor &type = *input.mutable_type()->mutable_tensor_type();
    type.set_elem_type(what_.lossInputType.dtype == DType::i64 ? onnx::TensorProto::INT64
                                                               : onnx::TensorProto::FLOAT);
    std::string batch;
    for (const auto &other : model_.graph().input())
      if (const auto &shape = other.type().tensor_type().shape(); batch.empty() && shape.dim_size() > 0)
        batch = shape.dim(0).dim_param();
    const Dims &dims = what_.lossInputType.dims;
    for (size_t i = 0; i < dims.size(); ++i) {
      auto &dim = *type.mutable_shape()->add_dim();
      if (i == 0 && !batch.empty())
        dim.set_dim_param(batch);
      else
        dim.set_dim_value(dims[i]);
    }
  }

  Status addLoss() {
    auto [kind, rest] = llvm::StringRef(what_.loss).split(':');
    auto [output, second] = rest.split(',');
    loss_ = named("loss");
    if (kind == "cross-entropy") {
      if (opset() < 12)
        return Error("cross-entropy needs opset 12, the model has " + std::to_string(opset()),
                     "export with a newer opset");
      addLossInput();
      std::string rows = named("logits"), labels = named("labels");
      node("Reshape", {output.str(), ints("rows_of_classes", {-1, what_.classes})}, {rows});
      node("Reshape", {what_.lossInput.empty() ? second.str() : what_.lossInput, ints("rows", {-1})},
           {labels});
      onnx::NodeProto &made = node("SoftmaxCrossEntropyLoss", {rows, labels}, {loss_});
      set(made, "reduction", std::string("mean"));
      set(made, "ignore_index", what_.ignoreIndex);
      return success();
    }
    if (kind == "mse") {
      addLossInput();
      std::string difference =
          apply("Sub", {output.str(), what_.lossInput.empty() ? second.str() : what_.lossInput});
      set(node("ReduceMean", {apply("Mul", {difference, difference})}, {loss_}), "keepdims", int64_t{0});
      return success();
    }
    if (kind != "output" && model_.graph().output_size() != 1)
      return Error("the plan's loss is the model's own, and the model has " +
                       std::to_string(model_.graph().output_size()) + " outputs",
                   "compile with --loss output:NAME");
    loss_ = kind == "output" ? output.str() : model_.graph().output(0).name();
    return success();
  }

  void addGradient() {
    Names xs, zs, gradients;
    std::set<std::string> stored;
    for (const auto &tensor : model_.graph().initializer())
      stored.insert(tensor.name());
    for (const TrainingExport::Parameter &tensor : tensors_) {
      xs.push_back(tensor.initializer);
      gradients.push_back(named("gradient." + tensor.initializer));
    }
    for (const auto &input : model_.graph().input())
      if (!stored.count(input.name()))
        zs.push_back(input.name());
    if (!what_.lossInput.empty())
      zs.push_back(what_.lossInput);
    Names inputs = xs;
    inputs.insert(inputs.end(), zs.begin(), zs.end());
    onnx::NodeProto &made = node("Gradient", inputs, gradients, kTrainingDomain);
    set(made, "xs", xs);
    set(made, "zs", zs);
    set(made, "y", loss_);
  }

  // --- updates
  // ------------------------------------------------------------------------------------------------------

  void addCount() {
    rate_ = real("R", *what_.form.lr);
    count_ = named("T");
    initializer(count_, onnx::TensorProto::INT64, {})
        .add_int64_data(static_cast<int64_t>(what_.form.firstCount));
    std::string one = named("one");
    initializer(one, onnx::TensorProto::INT64, {}).add_int64_data(1);
    node("Add", {count_, one}, {next(count_)});
  }

  std::string gradientOf(const TrainingExport::Parameter &tensor) const {
    return named("gradient." + tensor.initializer);
  }

  void addUpdate(double decay, const std::vector<size_t> &tensors) {
    const TrainingForm &form = what_.form;
    const char *op = what_.optimizer == "onnx_adam" ? "Adam"
                     : what_.optimizer == "adagrad" ? "Adagrad"
                                                    : "Momentum";
    const Names kinds =
        what_.optimizer == "onnx_adam" ? Names{"V", "H"} : Names{what_.optimizer == "adagrad" ? "H" : "V"};
    Names inputs = {rate_, count_}, outputs;
    for (size_t i : tensors) {
      inputs.push_back(tensors_[i].initializer);
      outputs.push_back(next(tensors_[i].initializer));
    }
    for (size_t i : tensors)
      inputs.push_back(gradientOf(tensors_[i]));
    for (const std::string &kind : kinds)
      for (size_t i : tensors) {
        inputs.push_back(state(kind, tensors_[i]));
        outputs.push_back(next(inputs.back()));
      }
    onnx::NodeProto &made = node(op, inputs, outputs, kTrainingDomain);
    set(made, "norm_coefficient", decay);
    if (what_.optimizer == "onnx_adam") {
      set(made, "alpha", form.beta1);
      set(made, "beta", form.beta2);
      set(made, "epsilon", form.eps);
      set(made, "norm_coefficient_post", form.postDecay);
    } else if (what_.optimizer == "adagrad") {
      set(made, "decay_factor", form.rateDecay);
      set(made, "epsilon", form.eps);
    } else {
      set(made, "alpha", form.momentum);
      set(made, "beta", 1 - form.dampening);
      set(made, "mode", std::string(form.nesterov ? "nesterov" : "standard"));
    }
  }

  // X' = (1 - lr wd) X - lr / (1 - β1ᵗ) V' / (√H' / √(1 - β2ᵗ) + eps), t = T + 1. The corrections are f64: in
  // f32 1 - 0.999 has four digits.
  void addAdamW(double decay, const std::vector<size_t> &tensors) {
    const TrainingForm &form = what_.form;
    if (corrected_.empty()) {
      std::string t = named("t");
      set(node("Cast", {count_ + ".next"}, {t}), "to", int64_t{onnx::TensorProto::DOUBLE});
      auto correction = [&](double beta) { return apply("Sub", {exact(1), apply("Pow", {exact(beta), t})}); };
      corrected_ = asFloat(apply("Div", {exact(*form.lr), correction(form.beta1)}));
      root_ = asFloat(apply("Sqrt", {correction(form.beta2)}));
      eps_ = real("eps", form.eps);
      for (double value : {form.beta1, 1 - form.beta1, form.beta2, 1 - form.beta2})
        betas_.push_back(real("beta_" + std::to_string(betas_.size()), value));
    }
    std::string keep = real("keep_" + std::to_string(serial_++), 1 - *form.lr * decay);
    for (size_t i : tensors) {
      const TrainingExport::Parameter &tensor = tensors_[i];
      std::string gradient = gradientOf(tensor), v = state("V", tensor), h = state("H", tensor);
      std::string v1 = next(v), h1 = next(h);
      node("Add", {apply("Mul", {v, betas_[0]}), apply("Mul", {gradient, betas_[1]})}, {v1});
      node("Add",
           {apply("Mul", {h, betas_[2]}), apply("Mul", {apply("Mul", {gradient, gradient}), betas_[3]})},
           {h1});
      std::string denominator = apply("Add", {apply("Div", {apply("Sqrt", {h1}), root_}), eps_});
      std::string step = apply("Div", {apply("Mul", {corrected_, v1}), denominator});
      node("Sub", {apply("Mul", {tensor.initializer, keep}), step}, {next(tensor.initializer)});
    }
  }

  onnx::ModelProto &model_;
  const TrainingExport &what_;
  const std::vector<TrainingExport::Parameter> &tensors_;
  onnx::TrainingInfoProto &training_;
  onnx::GraphProto &algorithm_;
  std::string loss_, rate_, count_;
  std::string corrected_, root_, eps_;
  Names betas_;
  int serial_ = 0;
};

Status checkExternalData(const onnx::ModelProto &model, const std::string &from, const std::string &to) {
  std::error_code error;
  fs::path source = fs::absolute(from).parent_path(), target = fs::absolute(to).parent_path();
  bool isSame = fs::equivalent(source, target, error);
  for (const onnx::TensorProto &tensor : model.graph().initializer())
    if (tensor.data_location() == onnx::TensorProto::EXTERNAL && !isSame)
      return Error("the model has external data, which is found by its folder",
                   "write the new model beside " + from);
  return success();
}

} // namespace

Expected<std::vector<std::string>> modelInputs(const std::string &modelPath, bool followLinks) {
  ZEROCC_ASSIGN(std::unique_ptr<LoadedModel> model, loadModel(modelPath, linksOf(followLinks)));
  std::vector<std::string> names;
  for (const auto &input : model->proto.graph().input())
    if (llvm::none_of(model->proto.graph().initializer(),
                      [&](const auto &tensor) { return tensor.name() == input.name(); }))
      names.push_back(input.name());
  return names;
}

Status exportTraining(const std::string &modelPath, const TrainingExport &what,
                      const std::string &outputPath, bool followLinks) {
  const Links links = linksOf(followLinks);
  onnx::ModelProto model;
  if (llvm::StringRef(modelPath).endswith(".onnxtxt")) {
    ZEROCC_ASSIGN(std::unique_ptr<LoadedModel> loaded, loadModel(modelPath, links));
    model = loaded->proto;
  } else {
    ZEROCC_TRY(loadModel(modelPath, links)); // the wire format is checked before protobuf sees it
    std::ifstream file(modelPath, std::ios::binary);
    if (!model.ParseFromIstream(&file))
      return Error(modelPath + " cannot be read");
  }
  if (model.training_info_size() > 0)
    return Error(modelPath + " has a training form of its own",
                 "export from the model without training_info");
  ZEROCC_TRY(checkExternalData(model, modelPath, outputPath));
  auto initializers = writeRepairs(model, modelPath, links, what.parameters);
  if (!initializers)
    return initializers.error().in(modelPath);
  std::vector<TrainingExport::Parameter> tensors;
  for (const TrainingExport::Parameter &parameter : what.parameters)
    if (parameter.trainable) {
      tensors.push_back(parameter);
      tensors.back().initializer = (*initializers)[parameter.name];
    }
  if (Status written = Writer(model, what, tensors).run(); !written)
    return written.error().in(modelPath);
  if (model.ByteSizeLong() > INT_MAX)
    return Error("the model and its optimizer states take more than 2 GiB, which one ONNX file cannot hold",
                 "keep the weights in external data");
  return writeWholeFile(outputPath, model.SerializeAsString());
}

} // namespace zerocc
