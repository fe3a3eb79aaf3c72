#include "compiler/onnx/importer.h"

#include "compiler/onnx/compute_f32.h"
#include "compiler/onnx/damage.h"
#include "compiler/onnx/inliner.h"
#include "compiler/onnx/inputs.h"
#include "compiler/onnx/loader.h"
#include "compiler/onnx/lowering.h"
#include "compiler/onnx/model_fingerprint.h"
#include "compiler/onnx/parameters.h"
#include "compiler/onnx/structure.h"
#include "compiler/onnx/training_form.h"

#include "llvm/ADT/STLExtras.h"

namespace zerocc {

static Expected<std::unique_ptr<Module>> importLoaded(LoadedModel &model, const ImportOptions &options,
                                                      ImportReport &report) {
  report.fingerprint = modelFingerprint(model.proto);
  MergedTraining training;
  if (!options.inference) {
    ZEROCC_ASSIGN(training, mergeTraining(model));
  }
  if (std::vector<Diagnostic> findings = checkStructure(model); !findings.empty())
    return Error(std::move(findings));
  for (std::string &note : model.sharedBytes())
    report.notes.push_back(std::move(note));
  if (std::string unknown = model.unknownFields(); !unknown.empty())
    report.notes.push_back(std::move(unknown));
  if (training.isThere) {
    ZEROCC_ASSIGN(report.training, readTraining(model, training, report));
    model.trained = report.training->parameters;
  }
  if (model.proto.ir_version() > kNewestIrVersion)
    report.notes.push_back("IR version " + std::to_string(model.proto.ir_version()) +
                           " is newer than the newest known one, " + std::to_string(kNewestIrVersion));
  if (model.proto.training_info_size() > 0 && !training.isThere)
    report.notes.push_back("the model's own training graph (training_info) is ignored");
  if (model.weightless)
    report.notes.push_back("the model is weightless: nothing was compared to find ties; train it with zero-run --init");
  ZEROCC_ASSIGN(std::unique_ptr<FlatModel> flat, inlineFunctions(model));
  report.nodes = flat->nodes;
  report.inlinedCalls = flat->inlinedCalls;

  auto module = std::make_unique<Module>();
  module->name = model.proto.graph().name().empty() ? "model" : model.proto.graph().name();
  std::vector<Diagnostic> findings = makeInputs(model, *flat, options, *module, report);
  Expected<ParameterTable> parameters = findParameters(model, *flat, options, report);
  if (!parameters)
    findings.insert(findings.end(), parameters.error().findings().begin(), parameters.error().findings().end());
  if (model.trained && parameters)
    for (const std::string &name : *model.trained)
      if (llvm::none_of(parameters->entries, [&](const auto &entry) { return entry.report.initializer == name; }))
        findings.push_back({"training_info updates \"" + name + "\", which no node of the model reads", ""});
  if (!findings.empty())
    return Error(std::move(findings));

  reportDamage(*flat, options, report);
  findings = lowerModel(model, *flat, *parameters, options, *module, report);
  for (const ParameterTable::Entry &entry : parameters->entries)
    report.parameters.push_back(entry.report);
  if (!findings.empty())
    return Error(std::move(findings));
  if (options.computeF32)
    ZEROCC_TRY(computeInF32(*module, report));
  reportDropouts(*module, report);
  findings = assignRoles(options, *module, report);
  if (!findings.empty())
    return Error(std::move(findings));
  report.nodesAfterFolding = static_cast<int64_t>(module->graph("forward")->nodes.size());
  module->facts.set("model.nodes", report.nodes);
  return module;
}

/// Names from a file may hold line breaks; a finding is one line. More findings than anybody reads are counted.
static Error oneLineEach(const Error &error) {
  constexpr size_t kMaxFindings = 200;
  std::vector<Diagnostic> findings = error.findings();
  if (size_t all = findings.size(); all > kMaxFindings) {
    findings.resize(kMaxFindings);
    findings.push_back({"and " + std::to_string(all - kMaxFindings) + " more findings", ""});
  }
  for (Diagnostic &finding : findings)
    for (std::string *text : {&finding.message, &finding.hint})
      for (size_t at = 0; (at = text->find('\n', at)) != std::string::npos;)
        text->replace(at, 1, "\\x0a");
  return Error(std::move(findings));
}

Expected<std::unique_ptr<Module>> importOnnx(const std::string &path, const ImportOptions &options,
                                             ImportReport *report) {
  ImportReport own;
  Expected<std::unique_ptr<LoadedModel>> model =
      loadModel(path, linksOf(options.followLinks));
  if (!model)
    return model.error().in(path);
  Expected<std::unique_ptr<Module>> module = importLoaded(**model, options, report ? *report : own);
  if (!module)
    return oneLineEach(module.error()).in(path);
  return module;
}

Expected<std::unique_ptr<Module>> importOnnxText(llvm::StringRef text, const ImportOptions &options,
                                                 ImportReport *report) {
  ImportReport own;
  ZEROCC_ASSIGN(std::unique_ptr<LoadedModel> model, loadModelText(text));
  Expected<std::unique_ptr<Module>> module = importLoaded(*model, options, report ? *report : own);
  if (!module)
    return oneLineEach(module.error());
  return module;
}

struct StoredWeights::Implementation {
  std::unique_ptr<LoadedModel> model;
  std::map<std::string, const onnx::TensorProto *> tensors;
};

StoredWeights::StoredWeights(std::unique_ptr<Implementation> implementation)
    : implementation_(std::move(implementation)) {}
StoredWeights::~StoredWeights() = default;

Expected<std::unique_ptr<StoredWeights>> StoredWeights::open(const std::string &path, bool followLinks) {
  Expected<std::unique_ptr<LoadedModel>> model =
      loadModel(path, linksOf(followLinks));
  if (!model)
    return model.error().in(path);
  auto implementation = std::make_unique<Implementation>();
  for (const onnx::TensorProto &tensor : (*model)->proto.graph().initializer()) {
    if (Status status = (*model)->checkPayload(tensor); !status)
      return status.error().in(path + ": initializer \"" + tensor.name() + "\"");
    implementation->tensors[tensor.name()] = &tensor;
  }
  for (const onnx::NodeProto &node : (*model)->proto.graph().node())
    for (const onnx::AttributeProto &attribute : node.attribute())
      if (node.op_type() == "Constant" && attribute.name() == "value" && attribute.has_t() && node.output_size() == 1)
        implementation->tensors[node.output(0)] = &attribute.t();
  implementation->model = std::move(*model);
  return std::unique_ptr<StoredWeights>(new StoredWeights(std::move(implementation)));
}

Expected<StoredTensor> StoredWeights::read(const std::string &initializer) const {
  auto found = implementation_->tensors.find(initializer);
  if (found == implementation_->tensors.end())
    return Error("the model has no initializer \"" + initializer + "\"");
  StoredTensor tensor;
  ZEROCC_ASSIGN(tensor.type, LoadedModel::typeOf(*found->second));
  ZEROCC_ASSIGN(tensor.bytes, implementation_->model->bytesOf(*found->second));
  return tensor;
}

} // namespace zerocc
