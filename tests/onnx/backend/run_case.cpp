#include "tests/onnx/backend/run_case.h"

#include "compiler/plan/emit.h"
#include "passes/compile.h"
#include "runtime/plan/verify.h"
#include "tests/onnx/backend/run_kernels.h"

#include <fstream>
#include <unistd.h>

namespace zerocc {

namespace fs = std::filesystem;

struct CaseRunner::Imported {
  std::unique_ptr<Module> module;
  std::unique_ptr<StoredWeights> weights;
  std::map<std::string, HostTensor> inputs; // of the module
};

CaseRunner::CaseRunner()
    : scratch_(fs::temp_directory_path() / ("zerocc-backend-" + std::to_string(::getpid()))) {
  fs::create_directories(scratch_);
}
CaseRunner::~CaseRunner() { fs::remove_all(scratch_); }

static bool becomesInitializer(const onnx::TensorProto &tensor, int initializers) {
  int64_t elements = 1;
  for (int64_t dim : tensor.dims())
    elements *= dim;
  bool isReal =
      tensor.data_type() == onnx::TensorProto::FLOAT || tensor.data_type() == onnx::TensorProto::DOUBLE ||
      tensor.data_type() == onnx::TensorProto::FLOAT16 || tensor.data_type() == onnx::TensorProto::BFLOAT16;
  return initializers == 2 || (initializers == 1 && (!isReal || elements == 1));
}

Expected<CaseRunner::Imported> CaseRunner::import(const SuiteData &data, CaseResult &result) {
  const fs::path path = scratch_ / "model.onnx";
  std::optional<Error> last;
  for (result.initializers = 0; result.initializers <= 2; ++result.initializers) {
    onnx::ModelProto model = data.model;
    for (const auto &[name, tensor] : data.inputs)
      if (becomesInitializer(tensor, result.initializers)) {
        onnx::TensorProto &initializer = *model.mutable_graph()->add_initializer();
        initializer = tensor;
        initializer.set_name(name);
      }
    std::ofstream(path, std::ios::binary) << model.SerializeAsString();
    Imported imported;
    Expected<std::unique_ptr<Module>> module = importOnnx(path, {});
    if (!module) {
      last = module.error();
      continue;
    }
    imported.module = std::move(*module);
    ZEROCC_ASSIGN(imported.weights, StoredWeights::open(path));
    for (const Input &input : imported.module->inputs) {
      const std::string &name = input.value->name;
      if (input.role == "training") {
        imported.inputs[name] = HostTensor::integer(input.value->type, {1});
      } else if (input.role == "random") {
        imported.inputs[name] = HostTensor::integer(input.value->type, {1, 2, 3});
      } else {
        auto tensor = data.inputs.find(name);
        std::optional<HostTensor> host = tensor == data.inputs.end() ? std::nullopt : hostOf(tensor->second);
        if (!host)
          return Error("no value for input \"" + name + "\"");
        imported.inputs[name] = std::move(*host);
      }
    }
    return imported;
  }
  return *last;
}

static std::string compareAll(const std::vector<HostTensor> &got, const std::vector<HostTensor> &expected,
                              const SuiteData &data, bool typesOnly) {
  if (got.size() != expected.size())
    return std::to_string(got.size()) + " results for " + std::to_string(expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    std::string why = !typesOnly ? difference(got[i], expected[i], data)
                      : got[i].type == expected[i].type
                          ? ""
                          : "got " + print(got[i].type) + ", expected " + print(expected[i].type);
    if (!why.empty())
      return "result " + std::to_string(i) + ", " + why;
  }
  return "";
}

void CaseRunner::runKernelsOf(const Imported &imported, const std::vector<HostTensor> &expected,
                              const SuiteData &data, bool typesOnly, CaseResult &result) {
  std::unique_ptr<Module> module = cloneModule(*imported.module);
  Expected<Bindings> bindings = bindValues(*module, imported.weights.get(), imported.inputs);
  Expected<std::vector<HostTensor>> outputs = bindings ? runKernels(*module, *bindings) : bindings.error();
  if (!outputs) {
    result.kernels = KernelOutcome::refused;
    result.kernelWhy = outputs.error().text();
    return;
  }
  result.kernelWhy = compareAll(*outputs, expected, data, typesOnly);
  result.kernels = result.kernelWhy.empty() ? KernelOutcome::passed : KernelOutcome::wrong;
}

static std::optional<std::vector<HostTensor>> expectedOf(const SuiteData &data) {
  std::vector<HostTensor> expected;
  for (const onnx::TensorProto &tensor : data.outputs) {
    std::optional<HostTensor> host = hostOf(tensor);
    if (!host)
      return std::nullopt;
    expected.push_back(std::move(*host));
  }
  return expected;
}

void CaseRunner::runDataSet(const SuiteData &data, bool typesOnly, CaseResult &result) {
  Expected<Imported> imported = import(data, result);
  if (!imported) {
    result.outcome = Outcome::refused;
    result.why = imported.error().text();
    return;
  }
  result.outcome = Outcome::wrong;
  if (Status ok = checkModule(*imported->module); !ok) {
    result.why = ok.error().text();
    return;
  }
  std::optional<std::vector<HostTensor>> expected = expectedOf(data);
  if (!expected) {
    result.why = "imported, but the expected results cannot be read";
    return;
  }
  auto outputs =
      evaluateModel(*imported->module, imported->weights.get(), imported->inputs, {/*roundToDType=*/true});
  result.why = outputs ? compareAll(*outputs, *expected, data, typesOnly) : outputs.error().text();
  if (!result.why.empty())
    return;
  result.outcome = Outcome::passed;
  runKernelsOf(*imported, *expected, data, typesOnly, result);
  result.gradient = checkGradients(*imported->module, imported->weights.get(), imported->inputs,
                                   notDifferentiable(data.model));
}

static std::string opsOf(const onnx::ModelProto &model) {
  std::set<std::string> ops;
  for (const onnx::NodeProto &node : model.graph().node())
    if (node.op_type() != "Constant")
      ops.insert(node.op_type());
  std::string text;
  for (const std::string &op : ops)
    text += (text.empty() ? "" : ", ") + op;
  return ops.size() <= 3 ? text : std::to_string(ops.size()) + " ops";
}

/// The op whose function body an expanded case is; else the ops of the model.
static std::string subjectOf(const SuiteCase &suiteCase) {
  fs::path folder = suiteCase.folder;
  if (size_t at = suiteCase.name.find("_expanded"); at != std::string::npos) {
    fs::path whole = folder.parent_path() / suiteCase.name.substr(0, at);
    if (fs::exists(whole / "model.onnx"))
      folder = whole;
  }
  onnx::ModelProto model;
  std::ifstream file(folder / "model.onnx", std::ios::binary);
  return model.ParseFromIstream(&file) ? opsOf(model) : "unreadable";
}

CaseResult CaseRunner::run(const SuiteCase &suiteCase, bool typesOnly) {
  CaseResult result;
  result.suiteCase = suiteCase;
  result.op = subjectOf(suiteCase);
  for (int i = 0, n = countDataSets(suiteCase); i < n && (i == 0 || result.outcome == Outcome::passed); ++i) {
    Expected<SuiteData> data = readCase(suiteCase, i);
    if (data) {
      runDataSet(*data, typesOnly, result);
      continue;
    }
    result.outcome = Outcome::wrong;
    result.why = data.error().text();
  }
  return result;
}

/// A verified training plan of stage 3 on two ranks; the output is pulled to a target.
Status CaseRunner::compileLight(const SuiteData &data) {
  const fs::path path = scratch_ / "weights.onnx";
  std::ofstream(path, std::ios::binary) << withWeights(data.model).SerializeAsString();
  ZEROCC_ASSIGN(std::unique_ptr<Module> module, importOnnx(path, {}));
  Decisions decisions;
  decisions.shard = 2;
  decisions.stage = 3;
  decisions.loss = "mse:" + data.model.graph().output(0).name();
  ZEROCC_ASSIGN(LadderResult compiled, compileModule(*module, decisions, /*stageAuto=*/false, {}));
  EmitOptions emit;
  emit.groups = {"decay", "no-decay"};
  emit.stage = decisions.stage;
  emit.loss = decisions.loss;
  for (int i = 0; i < 2; ++i) {
    emit.defaults.add_group_weight_decay(0);
    emit.defaults.add_group_lr_factor(1);
  }
  std::vector<Diagnostic> findings = verifyPlan(emitPlan(*compiled.module, emit));
  return findings.empty() ? success() : Status(Error(std::move(findings)));
}

CaseResult CaseRunner::runLight(const SuiteCase &suiteCase) {
  CaseResult result;
  result.suiteCase = suiteCase;
  result.op = suiteCase.name.substr(6);
  Expected<SuiteData> data = readLightModel(suiteCase);
  if (!data) {
    result.outcome = Outcome::wrong;
    result.why = data.error().text();
    return result;
  }
  if (Status compiled = compileLight(*data); !compiled)
    result.noPlan = compiled.error().text();
  Expected<Imported> imported = import(*data, result);
  std::optional<std::vector<HostTensor>> expected = expectedOf(*data);
  if (imported && expected)
    runKernelsOf(*imported, *expected, *data, false, result);
  result.why = imported ? result.kernelWhy : imported.error().text();
  if (result.kernels == KernelOutcome::passed)
    result.outcome = Outcome::passed;
  else if (result.kernels == KernelOutcome::wrong || !expected)
    result.outcome = Outcome::wrong;
  return result;
}

} // namespace zerocc
