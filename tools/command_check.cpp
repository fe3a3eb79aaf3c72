#include "compiler/support/escape_json.h"
#include "passes/attach_loss.h"
#include "tools/compile_flags.h"
#include "tools/table.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"

#include <cctype>
#include <cstring>
#include <iostream>
#include <set>

namespace zerocc {
namespace {

struct CheckFlags {
  ModelFlags model;
  bool json = false, all = false;
};

/// What is said of a model, in text or JSON: what importing found, and whether it went through.
struct Findings {
  ImportReport report;
  std::vector<Diagnostic> refusals;
  std::vector<std::pair<std::string, TensorType>> outputs;
  std::string compileLine; // empty when refused
};

/// A loss flag that would do for this model, by the shapes of its outputs; "" when it has its own.
std::string suggestLoss(const Module &module) {
  const Graph *graph = module.graph("forward");
  for (const auto &[name, value] : graph->results)
    if (isFloat(value->type.dtype) && value->type.elements() == 1 && !isBufferResult(name))
      return "";
  const bool hasTokens =
      llvm::any_of(module.inputs, [](const Input &input) { return input.role == "tokens"; });
  for (const auto &[name, value] : graph->results)
    if (isFloat(value->type.dtype) && value->type.rank() >= 2 && !isBufferResult(name))
      return (hasTokens ? " --loss cross-entropy:" : " --loss mse:") + name;
  return "";
}

/// A word of a shell's command line.
std::string shellWord(const std::string &text) {
  const bool isPlain = llvm::all_of(text, [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || std::strchr("_-./=,:+@%", c) != nullptr;
  });
  if (isPlain && !text.empty())
    return text;
  std::string out = "'";
  for (char c : text)
    out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string compileLine(const ModelFlags &flags, const Module &module) {
  std::string line = "zerocc compile " + shellWord(flags.model) +
                     " -o model.zplan --ranks 2 --stage 3 --micro-batch " + std::to_string(flags.microBatch);
  auto repeat = [&](const char *flag, const std::vector<std::string> &values) {
    for (const std::string &value : values)
      line += std::string(" ") + flag + " " + shellWord(value);
  };
  repeat("--dim", flags.dims);
  repeat("--input", flags.inputs);
  repeat("--trainable", flags.trainable);
  repeat("--freeze", flags.freeze);
  repeat("--tie", flags.tie);
  repeat("--untie", flags.untie);
  line += flags.followLinks ? " --follow-symlinks" : "";
  line += flags.trainBatchNorm ? " --train-batchnorm" : "";
  line += flags.syncBatchNorm ? " --sync-batchnorm" : "";
  line += flags.dropout == "file" ? "" : " --dropout " + flags.dropout;
  return line + suggestLoss(module);
}

std::set<std::string> supportedOps() {
  std::set<std::string> names;
  for (const ImportOp &op : importedOps())
    names.insert(op.domain.empty() ? op.name : op.domain + "." + op.name);
  return names;
}

int64_t elementsOf(const ImportReport &report, bool trainableOnly) {
  int64_t elements = 0;
  for (const ImportedParameter &parameter : report.parameters)
    elements += !trainableOnly || parameter.trainable ? parameter.type.elements() : 0;
  return elements;
}

// --- text

constexpr size_t kShownParameters = 40;

void printDims(const ImportReport &report) {
  if (report.dims.empty())
    return;
  Table table({{"dimension"}, {"value", Align::right}, {"stands in", Align::left, 70}});
  for (const auto &[name, places] : report.dims) {
    auto bound = report.boundDims.find(name);
    std::string where =
        places.front() + (places.size() > 1 ? " and " + std::to_string(places.size() - 1) + " more" : "");
    table.add({name, bound == report.boundDims.end() ? "--dim " + name + "=N" : std::to_string(bound->second),
               where});
  }
  std::cout << "\ndimensions\n" << table.text();
}

void printInputs(const ImportReport &report) {
  Table table({{"input"}, {"dims"}, {"dtype"}, {"role"}});
  for (const ImportedInput &input : report.inputs)
    table.add({input.name, input.dims, std::string(dtypeName(input.type.dtype)),
               input.role.empty() ? "not read" : input.role});
  std::cout << "\ninputs\n" << table.text();
}

void printParameters(const ImportReport &report, bool all) {
  const int64_t elements = elementsOf(report, false), trainable = elementsOf(report, true);
  std::cout << "\nparameters: " << report.parameters.size() << " tensors, " << formatCount(elements)
            << " elements (" << formatBytes(4 * elements) << " in f32), " << formatCount(trainable)
            << " trainable\n";
  Table table({{"name", Align::left, 48},
               {"shape"},
               {"elements", Align::right},
               {"", Align::left},
               {"why", Align::left, 60}});
  size_t shown = 0;
  for (const ImportedParameter &parameter : report.parameters) {
    if (!all && shown++ == kShownParameters)
      break;
    std::string also;
    for (const std::string &copy : parameter.transposedCopies)
      also += "; transposed in " + copy;
    for (const std::string &copy : parameter.copies)
      also += "; also in " + copy;
    table.add({parameter.name, print(parameter.type), formatCount(parameter.type.elements()),
               parameter.trainable ? "" : "frozen", parameter.reason + also});
  }
  if (!table.empty())
    std::cout << table.text();
  if (!all && report.parameters.size() > kShownParameters)
    std::cout << "  and " << report.parameters.size() - kShownParameters << " more (--all shows them)\n";
}

void printOps(const ImportReport &report) {
  const std::set<std::string> supported = supportedOps();
  Table table({{"operator"}, {"nodes", Align::right}, {"", Align::left, 110}});
  for (const auto &[op, count] : report.ops)
    table.add({op, std::to_string(count), supported.count(op) ? "" : "not supported: " + importRemedy(op)});
  std::cout << "\noperators: " << report.nodes << " nodes after inlining, " << report.nodesAfterFolding
            << " core ops after folding\n"
            << table.text();
}

void printLines(const char *title, const std::vector<std::string> &lines) {
  if (lines.empty())
    return;
  std::cout << "\n" << title << "\n";
  for (const std::string &line : lines)
    std::cout << "  - " << printable(line) << "\n";
}

void printText(const CheckFlags &flags, const Findings &findings) {
  std::cout << "model: " << printable(flags.model.model) << "\n";
  printDims(findings.report);
  printInputs(findings.report);
  printParameters(findings.report, flags.all);
  printOps(findings.report);
  if (!findings.outputs.empty()) {
    Table table({{"output"}, {"type"}});
    for (const auto &[name, type] : findings.outputs)
      table.add({name, print(type)});
    std::cout << "\noutputs\n" << table.text();
  }
  printLines("repaired", findings.report.repairs);
  printLines("notes", findings.report.notes);
  printLines("what cannot be seen or mended here", findings.report.advice);
  if (!findings.compileLine.empty())
    std::cout << "\ncan be trained:\n  " << printable(findings.compileLine) << "\n";
  std::cout << std::flush;
}

// --- JSON

std::string utf8(const std::string &text) { return llvm::json::fixUTF8(text); }

void writeStrings(llvm::json::OStream &json, const char *key, const std::vector<std::string> &texts) {
  json.attributeArray(key, [&] {
    for (const std::string &text : texts)
      json.value(utf8(text));
  });
}

void writeType(llvm::json::OStream &json, const TensorType &type) {
  json.attribute("dtype", dtypeName(type.dtype).data());
  json.attributeArray("dims", [&] {
    for (int64_t dim : type.dims)
      json.value(dim);
  });
}

void writeParameter(llvm::json::OStream &json, const ImportedParameter &parameter) {
  json.object([&] {
    json.attribute("name", utf8(parameter.name));
    json.attribute("initializer", utf8(parameter.initializer));
    writeType(json, parameter.type);
    json.attribute("trainable", parameter.trainable);
    json.attribute("split", parameter.split);
    json.attribute("reason", utf8(parameter.reason));
    writeStrings(json, "readers", parameter.slots);
    writeStrings(json, "copies", parameter.copies);
    writeStrings(json, "transposed_copies", parameter.transposedCopies);
  });
}

void printJson(const CheckFlags &flags, const Findings &findings) {
  const ImportReport &report = findings.report;
  const std::set<std::string> supported = supportedOps();
  std::string text;
  llvm::raw_string_ostream stream(text);
  llvm::json::OStream json(stream, 2);
  json.object([&] {
    json.attribute("schema", 1);
    json.attribute("model", utf8(flags.model.model));
    json.attribute("trainable", findings.refusals.empty());
    json.attribute("compile_line", utf8(findings.compileLine));
    json.attributeObject("nodes", [&] {
      json.attribute("onnx", report.nodes);
      json.attribute("core", report.nodesAfterFolding);
      json.attribute("inlined_calls", report.inlinedCalls);
    });
    json.attributeArray("dims", [&] {
      for (const auto &[name, places] : report.dims)
        json.object([&, &name = name, &places = places] {
          json.attribute("name", utf8(name));
          auto bound = report.boundDims.find(name);
          json.attribute("value", bound == report.boundDims.end() ? llvm::json::Value(nullptr)
                                                                  : llvm::json::Value(bound->second));
          writeStrings(json, "places", places);
        });
    });
    json.attributeArray("inputs", [&] {
      for (const ImportedInput &input : report.inputs)
        json.object([&] {
          json.attribute("name", utf8(input.name));
          json.attribute("declared", utf8(input.dims));
          writeType(json, input.type);
          json.attribute("role", utf8(input.role));
        });
    });
    json.attributeArray("outputs", [&] {
      for (const auto &[name, type] : findings.outputs)
        json.object([&, &name = name, &type = type] {
          json.attribute("name", utf8(name));
          writeType(json, type);
        });
    });
    json.attributeObject("elements", [&] {
      json.attribute("all", elementsOf(report, false));
      json.attribute("trainable", elementsOf(report, true));
    });
    json.attributeArray("parameters", [&] {
      for (const ImportedParameter &parameter : report.parameters)
        writeParameter(json, parameter);
    });
    json.attributeArray("operators", [&] {
      for (const auto &[op, count] : report.ops)
        json.object([&, &op = op, &count = count] {
          json.attribute("name", utf8(op));
          json.attribute("nodes", count);
          json.attribute("supported", supported.count(op) != 0);
          json.attribute("remedy", supported.count(op) ? "" : utf8(importRemedy(op)));
        });
    });
    writeStrings(json, "repairs", report.repairs);
    writeStrings(json, "notes", report.notes);
    writeStrings(json, "advice", report.advice);
    json.attributeArray("refusals", [&] {
      for (const Diagnostic &finding : findings.refusals)
        json.object([&] {
          json.attribute("message", utf8(finding.message));
          json.attribute("hint", utf8(finding.hint));
        });
    });
  });
  std::cout << escapeInJson(stream.str()) << "\n";
}

int check(const CheckFlags &flags) {
  auto options = flags.model.importOptions();
  if (!options)
    return refuse(options.error());
  Findings findings;
  auto module = importOnnx(flags.model.model, *options, &findings.report);
  if (module) {
    for (const auto &[name, value] : (*module)->graph("forward")->results)
      if (!isBufferResult(name))
        findings.outputs.push_back({name, value->type});
    findings.compileLine = compileLine(flags.model, **module);
  } else {
    findings.refusals = module.error().findings();
  }
  flags.json ? printJson(flags, findings) : printText(flags, findings);
  return module ? kDone : refuse(module.error());
}

} // namespace

void addCheckCommand(CLI::App &app, Run &run) {
  auto flags = std::make_shared<CheckFlags>();
  CLI::App *command = app.add_subcommand(
      "check",
      "can this model be trained: dims, inputs, parameters, what the exporter broke, the line to compile it");
  command->footer(
      "Examples:\n  zerocc check model.onnx --micro-batch 2 --dim sequence=128\n"
      "  zerocc check model.onnx --json > model.json    one object with `schema`, exit 1 when refused");
  flags->model.add(*command);
  command->add_flag("--json", flags->json, "everything found, as one JSON object");
  command->add_flag("--all", flags->all, "all parameters, however many");
  command->callback([flags, &run] { run = [flags] { return check(*flags); }; });
}

} // namespace zerocc
