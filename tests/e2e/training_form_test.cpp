// ONNX's own training form, out and in. What a plan is said to do is evaluated step by step by another path:
// main graph and algorithm as one graph, imported (Gradient and updates become core ops) and run by the plain
// interpreter; three steps of it give the weights that zero-run trains. And a form that is compiled takes all
// it needs from itself.

#include "runtime/data/npy.h"
#include "runtime/plan/plan.h"
#include "runtime/weights/safetensors.h"
#include "tests/e2e/cli.h"
#include "tests/onnx/backend/suite.h"
#include "tests/onnx/evaluate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>

namespace zerocc::e2e {
namespace {

constexpr int kSteps = 3, kBatch = 4;
using Weights = std::map<std::string, HostTensor>;

onnx::ModelProto readModel(const std::string &path) {
  onnx::ModelProto model;
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(model.ParseFromIstream(&file)) << path;
  return model;
}

void writeModel(const std::string &path, const onnx::ModelProto &model) {
  writeFile(path, model.SerializeAsString());
}

/// Samples [begin, begin + kBatch) of models/NAME.data.npz.
HostTensor samples(const std::string &model, const std::string &input, int64_t begin) {
  Expected<NpzFile> file = NpzFile::open(source("models/" + model + ".data.npz"));
  Expected<ArrayView> array = file ? file->read(input) : file.error();
  EXPECT_TRUE(bool(array)) << array.error().text();
  TensorType type{array->type == ElementType::f32 ? DType::f32 : DType::i64,
                  Dims(array->dims.begin(), array->dims.end())};
  type.dims[0] = kBatch;
  size_t bytes = static_cast<size_t>(type.bytes());
  return HostTensor::fromBytes(
      type, std::string(reinterpret_cast<const char *>(array->data) + begin / kBatch * bytes, bytes));
}

/// Training graph as ONNX defines it, its state variables as inputs and their updates as outputs.
class StepByStep {
public:
  StepByStep(const std::string &path, const std::string &data) : data_(data), model_(readModel(path)) {
    onnx::TrainingInfoProto training = model_.training_info(0);
    model_.clear_training_info();
    onnx::GraphProto &graph = *model_.mutable_graph();
    graph.mutable_initializer()->MergeFrom(training.algorithm().initializer());
    graph.mutable_node()->MergeFrom(training.algorithm().node());
    graph.mutable_input()->MergeFrom(training.algorithm().input());
    graph.clear_output();
    for (const auto &binding : training.update_binding()) {
      bindings_.push_back({binding.key(), binding.value()});
      graph.add_output()->set_name(binding.value());
      takeOut(graph, binding.key());
    }
    scratch_ = scratch("form") + "/step.onnx";
    writeModel(scratch_, model_);
  }

  Weights run() {
    ImportOptions options;
    options.microBatch = kBatch;
    if (data_.rfind("gpt2", 0) == 0)
      options.dims["sequence"] = 32;
    auto module = importOnnx(scratch_, options);
    EXPECT_TRUE(bool(module)) << module.error().text();
    auto weights = StoredWeights::open(scratch_);
    for (int step = 0; module && step < kSteps; ++step) {
      std::map<std::string, HostTensor> inputs = state_;
      for (const Input &input : (*module)->inputs)
        if (!state_.count(input.value->name))
          inputs[input.value->name] = samples(data_, input.value->name, step * kBatch);
      auto outputs = evaluateModel(**module, weights->get(), inputs, {/*roundToDType=*/true});
      EXPECT_TRUE(bool(outputs)) << outputs.error().text();
      for (size_t i = 0; outputs && i < bindings_.size(); ++i)
        state_[bindings_[i].first] = (*outputs)[i];
    }
    return state_;
  }

private:
  /// Makes an input of an initializer.
  void takeOut(onnx::GraphProto &graph, const std::string &name) {
    for (int i = 0; i < graph.initializer_size(); ++i) {
      if (graph.initializer(i).name() != name)
        continue;
      const onnx::TensorProto &tensor = graph.initializer(i);
      state_[name] = *hostOf(tensor);
      onnx::ValueInfoProto &input = *graph.add_input();
      input.set_name(name);
      auto &type = *input.mutable_type()->mutable_tensor_type();
      type.set_elem_type(tensor.data_type());
      type.mutable_shape();
      for (int64_t dim : tensor.dims())
        type.mutable_shape()->add_dim()->set_dim_value(dim);
      graph.mutable_initializer()->DeleteSubrange(i, 1);
      return;
    }
    ADD_FAILURE() << "no initializer " << name;
  }

  std::string data_, scratch_;
  onnx::ModelProto model_;
  std::vector<std::pair<std::string, std::string>> bindings_;
  Weights state_;
};

/// The weights after three steps of zero-run, by the initializers that the form has for them.
Weights train(const std::string &planPath, const std::string &model, const std::string &data,
              const std::string &form) {
  std::string out = planPath + ".safetensors";
  CliResult result =
      cli("zero-run", {planPath, "--model", model, "--data", source("models/" + data + ".data.npz"),
                       "--steps", std::to_string(kSteps), "--export", out});
  EXPECT_EQ(result.exitCode, 0) << result.error;
  auto file = SafetensorsFile::open(out);
  auto plan = loadPlan(planPath);
  Weights weights;
  if (!file || !plan) {
    ADD_FAILURE() << out;
    return weights;
  }
  std::set<std::string> stored;
  onnx::ModelProto formModel = readModel(form);
  for (const onnx::TensorProto &tensor : formModel.graph().initializer())
    stored.insert(tensor.name());
  std::map<std::string, int> sharers;
  for (const plan::Parameter &parameter : plan->parameters())
    ++sharers[parameter.initializer()];
  for (const plan::Parameter &parameter : plan->parameters()) {
    std::string name = sharers[parameter.initializer()] > 1 ? parameter.name() : parameter.initializer();
    if (!stored.count(name))
      name += ".own";
    const ArrayView *array = file->find(parameter.name());
    if (!array) {
      ADD_FAILURE() << "no " << parameter.name();
      continue;
    }
    TensorType type{DType::f32, Dims(array->dims.begin(), array->dims.end())};
    weights[name] = HostTensor::fromBytes(
        type, {reinterpret_cast<const char *>(array->data), static_cast<size_t>(array->bytes())});
  }
  return weights;
}

/// `tolerance` is relative to a tensor's largest value; 0: the same bits.
void expectSame(const Weights &got, const Weights &expected, double tolerance,
                const std::vector<std::string> &names) {
  ASSERT_FALSE(names.empty());
  for (const std::string &name : names) {
    ASSERT_TRUE(got.count(name) && expected.count(name)) << name;
    const std::vector<double> &a = got.at(name).reals, &b = expected.at(name).reals;
    ASSERT_EQ(a.size(), b.size()) << name;
    double largest = 0, off = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      largest = std::max(largest, std::fabs(b[i]));
      off = std::max(off, std::isfinite(a[i]) ? std::fabs(a[i] - b[i]) : HUGE_VAL);
    }
    EXPECT_LE(off, tolerance * largest) << name << " of largest " << largest;
  }
}

std::vector<std::string> trainedNames(const onnx::ModelProto &model) {
  std::vector<std::string> names;
  for (const auto &node : model.training_info(0).algorithm().node())
    for (const auto &attribute : node.attribute())
      if (node.op_type() == "Gradient" && attribute.name() == "xs")
        names.assign(attribute.strings().begin(), attribute.strings().end());
  return names;
}

struct Case {
  const char *name, *model;
  std::vector<std::string> flags;
  std::vector<std::string> split; // how the batch of 4 is cut
  bool comesBack;                 // its update is one of ONNX's ops
  bool sameBits = false;          // its numbers are not rounded to f32 first, as betas are
};

std::vector<Case> cases() {
  std::vector<std::string> whole = {"--micro-batch", "4"};
  std::vector<std::string> cut = {"--micro-batch",       "1", "--ranks", "2", "--stage", "3",
                                  "--grad-accumulation", "2"};
  return {
      {"momentum",
       "mlp",
       {"--optimizer", "momentum", "--momentum", "0.9", "--lr", "0.05", "--weight-decay", "0.01"},
       whole,
       true,
       true},
      {"nesterov",
       "mlp",
       {"--optimizer", "momentum", "--nesterov", "--lr", "0.05", "--weight-decay", "0"},
       whole,
       true,
       true},
      {"sgd", "mlp", {"--optimizer", "sgd", "--lr", "0.1", "--weight-decay", "0.1"}, cut, true},
      {"onnx_adam",
       "mlp",
       {"--optimizer", "onnx-adam", "--eps", "1e-3", "--weight-decay", "0.1"},
       whole,
       true},
      {"adagrad", "mlp", {"--optimizer", "adagrad", "--lr", "0.02", "--eps", "1e-3"}, cut, true},
      {"adamw", "mlp", {"--optimizer", "adamw", "--weight-decay", "0.1"}, cut, false},
      {"classes", "mlp_classifier", {"--optimizer", "momentum", "--lr", "0.05"}, cut, true},
      {"own_loss", "mlp_own_loss", {"--optimizer", "onnx-adam", "--eps", "1e-4"}, whole, true},
      // A great epsilon: gradients that are zero but for rounding would be blown up.
      {"gpt2_torchscript", "gpt2_torchscript", {"--optimizer", "adamw", "--eps", "1e-3"}, cut, false},
      {"gpt2_dynamo", "gpt2_dynamo", {"--optimizer", "momentum", "--lr", "0.05"}, whole, true},
      {"own_loss_adamw", "mlp_own_loss", {"--optimizer", "adamw"}, whole, false},
  };
}

class Form : public testing::TestWithParam<Case> {};

TEST_P(Form, SaysWhatThePlanDoes) {
  const Case &c = GetParam();
  std::string stem = scratch("form") + "/" + c.name, plan = stem + ".zplan", form = stem + ".onnx";
  std::vector<std::string> flags = c.split;
  flags.insert(flags.end(), c.flags.begin(), c.flags.end());
  compile(c.model, plan, flags);
  CliResult written =
      cli("zerocc", {"export", plan, "--training-info", "--model", modelPath(c.model), "-o", form});
  ASSERT_EQ(written.exitCode, 0) << written.error;
  std::vector<std::string> names = trainedNames(readModel(form));

  Weights trained = train(plan, modelPath(c.model), c.model, form);
  // f32 sums in another order; deeper models have more of them.
  const double tolerance = std::string(c.model).rfind("gpt2", 0) == 0 ? 1e-5 : 2e-6;
  expectSame(StepByStep(form, c.model).run(), trained, tolerance, names);

  std::vector<std::string> again = {"compile", form, "-o", plan + ".back", "--micro-batch", "4"};
  if (std::string(c.model).rfind("gpt2", 0) == 0)
    again.insert(again.end(), {"--dim", "sequence=32"});
  CliResult back = cli("zerocc", again);
  if (!c.comesBack) {
    EXPECT_EQ(back.exitCode, 1);
    EXPECT_NE(back.error.find("no Adam, Momentum or Adagrad node"), std::string::npos) << back.error;
    return;
  }
  ASSERT_EQ(back.exitCode, 0) << back.error;
  expectSame(train(plan + ".back", form, c.model, form), trained, c.sameBits ? 0 : tolerance, names);
}

INSTANTIATE_TEST_SUITE_P(Cases, Form, testing::ValuesIn(cases()),
                         [](const testing::TestParamInfo<Case> &info) { return info.param.name; });

TEST(FormOfExternalData, IsWrittenBesideItAndFollowsLinksWhenAllowed) {
  const std::string folder = scratch("external_form"), model = folder + "/model.onnx", plan = folder + "/p.zplan";
  const std::string form = folder + "/form.onnx";
  writeFile(model, readFile(modelPath("gpt2_external")));
  std::filesystem::create_symlink(source("models/gpt2_external.onnx.data"), folder + "/gpt2_external.onnx.data");
  compile("gpt2_external", plan, {"--micro-batch", "4"});
  std::vector<std::string> arguments = {"export", plan, "--training-info", "--model", model, "-o", form};
  CliResult refused = cli("zerocc", arguments);
  EXPECT_EQ(refused.exitCode, 1);
  EXPECT_NE(refused.error.find("symbolic link"), std::string::npos) << refused.error;
  EXPECT_FALSE(std::filesystem::exists(form));
  arguments.push_back("--follow-symlinks");
  CliResult written = cli("zerocc", arguments);
  ASSERT_EQ(written.exitCode, 0) << written.error;
  CliResult elsewhere = cli("zerocc", {"export", plan, "--training-info", "--model", model, "--follow-symlinks", "-o",
                                       scratch("elsewhere") + "/form.onnx"});
  EXPECT_EQ(elsewhere.exitCode, 1);
  EXPECT_NE(elsewhere.error.find("write the new model beside"), std::string::npos) << elsewhere.error;
  // The form is the same training as that of the model whose weights are in one file.
  const std::string whole = folder + "/whole.onnx";
  compile("gpt2_dynamo", plan, {"--micro-batch", "4"});
  ASSERT_EQ(cli("zerocc", {"export", plan, "--training-info", "--model", modelPath("gpt2_dynamo"), "-o", whole}).exitCode,
            0);
  auto trainedSizes = [](const std::string &path) {
    std::map<std::string, std::string> dims;
    onnx::ModelProto read = readModel(path);
    for (const onnx::TensorProto &tensor : read.graph().initializer())
      dims[tensor.name()] = std::to_string(tensor.dims_size()) + (tensor.dims_size() ? "," : "") +
                            std::to_string(tensor.dims_size() ? tensor.dims(0) : 0);
    for (const onnx::StringStringEntryProto &binding : read.training_info(0).update_binding())
      dims["update " + binding.key()] = binding.value();
    return dims;
  };
  EXPECT_EQ(trainedSizes(form), trainedSizes(whole));
}

// ---------------------------------------------------------------------------------------------------------------
// Forms that no plan writes

class EditedForm : public testing::Test {
protected:
  onnx::ModelProto formOf(const std::string &optimizer, const std::string &model = "mlp") {
    std::string plan = scratch("form") + "/edited.zplan";
    path_ = scratch("form") + "/edited.onnx";
    compile(model, plan,
            {"--micro-batch", "4", "--optimizer", optimizer, "--lr", "0.05", "--weight-decay", "0"});
    CliResult written =
        cli("zerocc", {"export", plan, "--training-info", "--model", modelPath(model), "-o", path_});
    EXPECT_EQ(written.exitCode, 0) << written.error;
    return readModel(path_);
  }

  static onnx::NodeProto &nodeOf(onnx::ModelProto &model, const std::string &op) {
    for (onnx::NodeProto &node : *model.mutable_training_info(0)->mutable_algorithm()->mutable_node())
      if (node.op_type() == op)
        return node;
    ADD_FAILURE() << "no node " << op;
    return *model.mutable_training_info(0)->mutable_algorithm()->add_node();
  }

  static onnx::TensorProto &initializerOf(onnx::ModelProto &model, const std::string &name) {
    for (onnx::TensorProto &tensor :
         *model.mutable_training_info(0)->mutable_algorithm()->mutable_initializer())
      if (tensor.name() == name)
        return tensor;
    ADD_FAILURE() << "no initializer " << name;
    return *model.mutable_training_info(0)->mutable_algorithm()->add_initializer();
  }

  static void setReal(onnx::NodeProto &node, const std::string &name, float value) {
    for (onnx::AttributeProto &attribute : *node.mutable_attribute())
      if (attribute.name() == name)
        return attribute.set_f(value);
    ADD_FAILURE() << "no attribute " << name;
  }

  CliResult compileForm(const onnx::ModelProto &model, const std::vector<std::string> &more = {}) {
    writeModel(path_, model);
    std::vector<std::string> arguments = {"compile", path_, "-o", path_ + ".zplan", "--micro-batch", "4"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return cli("zerocc", arguments);
  }

  void expectTrainedAsSaid(const onnx::ModelProto &model) {
    CliResult compiled = compileForm(model);
    ASSERT_EQ(compiled.exitCode, 0) << compiled.error;
    expectSame(train(path_ + ".zplan", path_, "mlp", path_), StepByStep(path_, "mlp").run(), 2e-6,
               trainedNames(model));
  }

  std::string path_;
};

TEST_F(EditedForm, AdamCountsFromZeroAndDecaysAfterTheUpdate) {
  onnx::ModelProto model = formOf("onnx-adam");
  initializerOf(model, "training.T").set_int64_data(0, 0);
  setReal(nodeOf(model, "Adam"), "norm_coefficient_post", 0.01F);
  setReal(nodeOf(model, "Adam"), "epsilon", 1e-2F);
  setReal(nodeOf(model, "Adam"), "norm_coefficient", 0.1F);
  expectTrainedAsSaid(model);
}

TEST_F(EditedForm, AdamReadsTheNextCount) {
  onnx::ModelProto model = formOf("onnx-adam");
  initializerOf(model, "training.T").set_int64_data(0, 4);
  nodeOf(model, "Adam").set_input(1, "training.T.next");
  expectTrainedAsSaid(model);
}

TEST_F(EditedForm, MomentumScalesGradientsAfterTheFirst) {
  onnx::ModelProto model = formOf("momentum");
  setReal(nodeOf(model, "Momentum"), "beta", 0.25F);
  expectTrainedAsSaid(model);
}

TEST_F(EditedForm, AdagradSlowsDown) {
  onnx::ModelProto model = formOf("adagrad");
  setReal(nodeOf(model, "Adagrad"), "decay_factor", 0.5F);
  initializerOf(model, "training.T").set_int64_data(0, 1);
  expectTrainedAsSaid(model);
}

TEST_F(EditedForm, FlagsWin) {
  onnx::ModelProto model = formOf("momentum");
  CliResult own = compileForm(model);
  EXPECT_NE(own.out.find("sgd, lr 0.05, momentum 0.9"), std::string::npos) << own.out << own.error;
  CliResult faster = compileForm(model, {"--lr", "0.5", "--momentum", "0.8"});
  EXPECT_NE(faster.out.find("sgd, lr 0.5, momentum 0.8"), std::string::npos) << faster.out;
  CliResult other = compileForm(model, {"--optimizer", "adamw"});
  EXPECT_NE(other.out.find("adamw, lr 0.05, betas 0.9 0.999, weight decay 0.01"), std::string::npos)
      << other.out;
}

TEST_F(EditedForm, SummaryNamesWhatOtherOptimizersLack) {
  onnx::ModelProto model = formOf("onnx-adam");
  setReal(nodeOf(model, "Adam"), "norm_coefficient_post", 0.25F);
  EXPECT_NE(compileForm(model).out.find(
                "onnx_adam, lr 0.05, betas 0.9 0.999, decay after the update 0.25, T from 1"),
            std::string::npos);
  model = formOf("momentum");
  setReal(nodeOf(model, "Momentum"), "beta", 0.25F);
  EXPECT_NE(compileForm(model).out.find("momentum 0.9, dampening 0.75, T from 0"), std::string::npos);
}

TEST_F(EditedForm, TrainsOnlyWhatItUpdates) {
  onnx::ModelProto model = formOf("momentum");
  std::vector<std::string> names = trainedNames(model);
  ASSERT_GT(names.size(), 1U);
  onnx::TrainingInfoProto &training = *model.mutable_training_info(0);
  const int count = static_cast<int>(names.size());
  onnx::NodeProto &node = nodeOf(model, "Momentum"), old = node;
  node.clear_input();
  node.clear_output();
  for (int i : {0, 1, 2, 2 + count, 2 + 2 * count})
    node.add_input(old.input(i));
  for (int i : {0, count})
    node.add_output(old.output(i));
  for (int i = training.update_binding_size() - 1; i >= 0; --i)
    if (const std::string &after = training.update_binding(i).value();
        after != old.output(0) && after != old.output(count) && after != "training.T.next")
      training.mutable_update_binding()->DeleteSubrange(i, 1);
  CliResult compiled = compileForm(model);
  ASSERT_EQ(compiled.exitCode, 0) << compiled.error;
  Weights trained = train(path_ + ".zplan", path_, "mlp", path_), said = StepByStep(path_, "mlp").run();
  expectSame(trained, said, 2e-6, {names[0]});
  EXPECT_EQ(trained.size(), 1U) << "the others are constants of the plan";
}

struct Refusal {
  const char *name, *optimizer;
  std::function<void(onnx::ModelProto &)> edit;
  const char *text;
};

class Refused : public EditedForm, public testing::WithParamInterface<Refusal> {
public:
  using EditedForm::initializerOf;
  using EditedForm::nodeOf;
  using EditedForm::setReal;
};

TEST_P(Refused, SayingWhy) {
  onnx::ModelProto model = formOf(GetParam().optimizer);
  GetParam().edit(model);
  std::filesystem::remove(path_ + ".zplan");
  CliResult result = compileForm(model);
  EXPECT_EQ(result.exitCode, 1) << result.out;
  EXPECT_NE(result.error.find("training_info: "), std::string::npos) << result.error;
  EXPECT_NE(result.error.find(GetParam().text), std::string::npos) << result.error;
  EXPECT_FALSE(std::filesystem::exists(path_ + ".zplan"));
}

std::vector<Refusal> refusals() {
  auto training = [](onnx::ModelProto &model) { return model.mutable_training_info(0); };
  return {
      {"two_algorithms", "momentum",
       [=](onnx::ModelProto &m) { *m.add_training_info() = m.training_info(0); }, "only one is supported"},
      {"no_gradient", "momentum",
       [](onnx::ModelProto &m) { Refused::nodeOf(m, "Gradient").set_op_type("Slope"); }, "no Gradient node"},
      {"gradient_elsewhere", "momentum",
       [](onnx::ModelProto &m) {
         onnx::NodeProto &gradient = Refused::nodeOf(m, "Gradient");
         gradient.mutable_input()->SwapElements(0, 1);
       },
       "taken elsewhere"},
      {"clipped", "momentum",
       [=](onnx::ModelProto &m) {
         onnx::NodeProto &node = Refused::nodeOf(m, "Momentum");
         int gradient = 2 + node.output_size() / 2;
         onnx::NodeProto clip;
         clip.set_op_type("Neg");
         clip.add_input(node.input(gradient));
         clip.add_output("clipped");
         node.set_input(gradient, "clipped");
         onnx::GraphProto &graph = *training(m)->mutable_algorithm();
         *graph.add_node() = clip;
         for (int i = graph.node_size() - 1; i > 0 && graph.node(i - 1).op_type() != "Gradient"; --i)
           graph.mutable_node()->SwapElements(i, i - 1);
       },
       "is changed before the update"},
      {"state_that_has_moved", "momentum",
       [](onnx::ModelProto &m) {
         onnx::TensorProto &state = Refused::initializerOf(
             m, Refused::nodeOf(m, "Momentum").input(Refused::nodeOf(m, "Momentum").input_size() - 1));
         float one = 1;
         state.mutable_raw_data()->replace(0, sizeof one, reinterpret_cast<const char *>(&one), sizeof one);
       },
       "does not start as zeros"},
      {"count_that_stands", "onnx-adam",
       [=](onnx::ModelProto &m) {
         for (int i = 0; i < training(m)->update_binding_size(); ++i)
           if (training(m)->update_binding(i).key() == "training.T")
             training(m)->mutable_update_binding()->DeleteSubrange(i, 1);
       },
       "is not counted by the algorithm"},
      {"count_by_two", "onnx-adam",
       [](onnx::ModelProto &m) { Refused::initializerOf(m, "training.one").set_int64_data(0, 2); },
       "does not become itself plus 1"},
      {"rate_that_changes", "momentum",
       [=](onnx::ModelProto &m) {
         onnx::StringStringEntryProto &binding = *training(m)->add_update_binding();
         binding.set_key("training.R");
         binding.set_value("training.loss");
       },
       "changes from step to step"},
      {"lost_update", "momentum",
       [=](onnx::ModelProto &m) { training(m)->mutable_update_binding(1)->set_value("training.loss"); },
       "does not bind"},
      {"more_than_the_optimizer_does", "momentum",
       [=](onnx::ModelProto &m) {
         onnx::StringStringEntryProto &binding = *training(m)->add_update_binding();
         binding.set_key("training.one");
         binding.set_value("training.loss");
       },
       "neither a tensor that the optimizer updates"},
  };
}

INSTANTIATE_TEST_SUITE_P(Forms, Refused, testing::ValuesIn(refusals()),
                         [](const testing::TestParamInfo<Refusal> &info) { return info.param.name; });

TEST(Export, RefusesWhatOneDeviceWouldNotDo) {
  std::string plan = scratch("form") + "/refused.zplan", out = scratch("form") + "/refused.onnx";
  auto refused = [&](const std::string &model, const std::vector<std::string> &flags, const std::string &from,
                     const char *text) {
    compile(model, plan, flags);
    CliResult result = cli("zerocc", {"export", plan, "--training-info", "--model", from, "-o", out});
    EXPECT_EQ(result.exitCode, 1);
    EXPECT_NE(result.error.find(text), std::string::npos) << result.error;
    EXPECT_FALSE(std::filesystem::exists(out));
  };
  refused("mlp", {"--clip-grad-norm", "1"}, modelPath("mlp"), "clips gradients");
  refused("mlp", {"--lr-schedule", "cosine"}, modelPath("mlp"), "schedule cosine");
  refused("mlp_own_loss", {"--ranks", "2"}, modelPath("mlp_own_loss"), "averaged over 2 micro-batches");
  refused("mlp", {}, modelPath("mlp_classifier"), "which the model does not have");
  refused("gpt2_torchscript", {"--untie", "onnx::MatMul_*"}, modelPath("gpt2_torchscript"), "on request");
}

} // namespace
} // namespace zerocc::e2e
