#include "passes/pipeline.h"
#include "tools/command.h"

#include <fstream>
#include <iostream>
#include <sstream>

namespace zerocc {
namespace {

Expected<std::string> readText(const std::string &path) {
  std::ostringstream text;
  if (path == "-") {
    text << std::cin.rdbuf();
    return text.str();
  }
  std::ifstream file(path);
  if (!file)
    return Error("cannot read \"" + path + "\"", "give a file of the text form, or - for standard input");
  text << file.rdbuf();
  return text.str();
}

Status optimize(const std::string &path, const std::vector<std::string> &passes,
                const std::vector<std::string> &settings) {
  Decisions decisions;
  for (const std::string &setting : settings) {
    auto [name, value] = llvm::StringRef(setting).split('=');
    ZEROCC_TRY(setDecision(decisions, name, value));
  }
  ZEROCC_ASSIGN(std::string text, readText(path));
  ZEROCC_ASSIGN(auto module, parseModule(text, path));
  for (const std::string &name : passes) {
    const LadderRow *row = findPass(name);
    if (!row)
      return Error("there is no pass \"" + name + "\"", "zerocc opt --help lists them");
    ZEROCC_ASSIGN(PassReport report, row->run(*module, decisions));
    for (const std::string &note : report.notes)
      std::cerr << "note: " << escapeForTerminal(note) << "\n";
    if (Status ok = checkModule(*module); !ok)
      return ok.error().in("after " + name);
  }
  std::cout << print(*module);
  return success();
}

} // namespace

void addOptCommand(CLI::App &app, Run &run) {
  struct Flags {
    std::string file;
    std::vector<std::string> passes, settings;
  };
  auto flags = std::make_shared<Flags>();
  CLI::App *command = app.add_subcommand("opt", "run passes on the text form of a module");
  std::string names;
  for (const LadderRow &row : ladder())
    names += std::string(names.empty() ? "" : ", ") + row.name;
  command->footer("Passes: " + names + "\nExample:\n  zerocc opt module.ir --passes partition,build-step --set shard=2 --set bucket-bytes=1KiB");
  command->add_option("FILE", flags->file, "module in text form; - for standard input")->required();
  command->add_option("--passes", flags->passes, "passes to run, in order")->delimiter(',');
  command->add_option("--set", flags->settings, "a decision, by its compile flag's name: NAME=VALUE (repeatable)");
  command->callback([flags, &run] {
    run = [flags] {
      Status done = optimize(flags->file, flags->passes, flags->settings);
      return done ? kDone : refuse(done.error());
    };
  });
}

} // namespace zerocc
