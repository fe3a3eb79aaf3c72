#pragma once

#include "compiler/support/expected.h"

#include <CLI/CLI.hpp>

#include <functional>
#include <string>

namespace zerocc {

/// What `main` runs once the command line is parsed; returns the exit code.
using Run = std::function<int()>;

/// Exit codes of all commands (INTERFACE.md).
enum ExitCode { kDone = 0, kRefused = 1, kWrongCommandLine = 2, kRankFailed = 3, kDiverged = 4, kStopped = 75 };

/// Prints the error to stderr and gives its exit code.
int refuse(const Error &error);

// Each adds its subcommand to `app`; when that is the one given, `run` is set.
void addCheckCommand(CLI::App &app, Run &run);
void addCompileCommand(CLI::App &app, Run &run, const std::string &commandLine);
void addGenerateCommand(CLI::App &app, Run &run);
void addExportCommand(CLI::App &app, Run &run);
void addVerifyCommand(CLI::App &app, Run &run);
void addOptCommand(CLI::App &app, Run &run);
void addOpsCommand(CLI::App &app, Run &run);
void addPackCommand(CLI::App &app, Run &run);

/// The command line with `--args FILE` replaced by the flags in FILE (white-space separated, # begins a comment).
Expected<std::vector<std::string>> expandArguments(int argc, char **argv);

/// Parses and runs: the whole of a main(). Wrong command lines print the error and exit 2.
int runApp(CLI::App &app, const std::vector<std::string> &arguments, Run &run);

} // namespace zerocc
