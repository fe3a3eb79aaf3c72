#include "passes/attach_loss.h"
#include "tools/compile_flags.h"
#include "tools/table.h"

#include <cstdio>
#include <iostream>

namespace zerocc {
namespace {

void printReport(const ImportReport &report) {
  if (!report.dims.empty()) {
    std::cout << "dims:\n";
    for (const auto &[name, places] : report.dims) {
      std::cout << "  " << printable(name);
      auto bound = report.boundDims.find(name);
      if (bound != report.boundDims.end())
        std::cout << " = " << bound->second;
      else
        std::cout << "  (bind with --dim " << printable(name) << "=VALUE)";
      std::cout << "\n";
    }
  }
  std::cout << "inputs:\n";
  for (const ImportedInput &input : report.inputs)
    std::cout << "  " << printable(input.name) << "  " << printable(input.dims) << "  "
              << (input.role.empty() ? "not read" : "role " + input.role) << "\n";
  int64_t elements = 0, trainable = 0;
  for (const ImportedParameter &parameter : report.parameters) {
    elements += parameter.type.elements();
    trainable += parameter.trainable ? parameter.type.elements() : 0;
  }
  std::cout << "parameters: " << report.parameters.size() << " (" << elements << " elements, " << trainable
            << " trainable)\n";
  for (const ImportedParameter &parameter : report.parameters) {
    std::cout << "  " << printable(parameter.name) << "  " << print(parameter.type) << (parameter.trainable ? "" : "  frozen")
              << (parameter.reason.empty() ? "" : "  (" + printable(parameter.reason) + ")");
    for (const std::string &copy : parameter.transposedCopies)
      std::cout << "  = transpose of " << printable(copy);
    for (const std::string &copy : parameter.copies)
      std::cout << "  = " << printable(copy);
    std::cout << "\n";
  }
  for (const std::string &repair : report.repairs)
    std::cout << "repair: " << printable(repair) << "\n";
  for (const std::string &note : report.notes)
    std::cout << "note: " << printable(note) << "\n";
  std::cout << "nodes: " << report.nodes << " ONNX, " << report.nodesAfterFolding << " core after folding\n";
}

// A loss flag that would do for this model, by the shapes of its outputs.
std::string suggestLoss(const Module &module) {
  const Graph *graph = module.graph("forward");
  for (const auto &[name, value] : graph->results)
    if (isFloat(value->type.dtype) && value->type.elements() == 1)
      return "";
  for (const auto &[name, value] : graph->results)
    if (isFloat(value->type.dtype) && value->type.rank() >= 2)
      return module.inputs.empty() || module.inputs[0].role != "tokens" ? " --loss mse:" + name
                                                                        : " --loss cross-entropy:" + name;
  return "";
}

int check(const ModelFlags &flags) {
  auto options = flags.importOptions();
  if (!options)
    return refuse(options.error());
  ImportReport report;
  auto module = importOnnx(flags.model, *options, &report);
  std::cout << "model: " << escapeForTerminal(flags.model) << "\n";
  printReport(report);
  if (!module) {
    std::cout << std::flush;
    return refuse(module.error());
  }
  std::cout << "outputs:\n";
  for (const auto &[name, value] : (*module)->graph("forward")->results)
    std::cout << "  " << escapeForTerminal(name) << "  " << print(value->type) << "\n";
  std::string line = "zerocc compile " + flags.model + " -o model.zplan --ranks 2 --stage 3 --micro-batch " +
                     std::to_string(flags.microBatch);
  for (const std::string &dim : flags.dims)
    line += " --dim " + dim;
  line += suggestLoss(**module);
  std::cout << "can be trained:\n  " << escapeForTerminal(line) << "\n";
  return kDone;
}

} // namespace

void addCheckCommand(CLI::App &app, Run &run) {
  auto flags = std::make_shared<ModelFlags>();
  CLI::App *command = app.add_subcommand("check", "can this model be trained: dims, inputs, parameters, repairs");
  command->footer("Example:\n  zerocc check model.onnx --micro-batch 2 --dim sequence=128");
  flags->add(*command);
  command->callback([flags, &run] { run = [flags] { return check(*flags); }; });
}

} // namespace zerocc
