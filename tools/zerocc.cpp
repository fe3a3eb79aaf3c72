#include "tools/command.h"
#include "tools/command_inspect.h"

int main(int argc, char **argv) {
  using namespace zerocc;
  CLI::App app("zerocc: ahead-of-time ZeRO compiler for ONNX models", "zerocc");
  app.footer("Example:\n  zerocc check model.onnx\n"
             "  zerocc compile model.onnx -o model.zplan --ranks 2 --stage 3 --loss cross-entropy:logits\n"
             "  zerocc inspect model.zplan --schedule\n  zero-run model.zplan --model model.onnx --data text:FILE --steps 100");
  app.set_version_flag("--version", "zerocc 0.1.0");
  app.require_subcommand(0, 1);
  // Flags given beside --args FILE win over those in it.
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  auto arguments = expandArguments(argc, argv);
  if (!arguments) {
    refuse(arguments.error());
    return kWrongCommandLine;
  }
  std::string commandLine = "zerocc";
  for (const std::string &argument : *arguments)
    commandLine += " " + argument;
  Run run;
  addCheckCommand(app, run);
  addCompileCommand(app, run, commandLine);
  InspectCommand::add(app, run);
  addExportCommand(app, run);
  addVerifyCommand(app, run);
  addGenerateCommand(app, run);
  addOptCommand(app, run);
  addOpsCommand(app, run);
  addPackCommand(app, run);
  return runApp(app, *arguments, run);
}
