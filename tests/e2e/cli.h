#pragma once

#include <string>
#include <vector>

namespace zerocc::e2e {

struct CliResult {
  int exitCode = -1;
  std::string out, error;
};

/// Runs build/…/bin/PROGRAM, or a program by its path, with arguments, without a shell; standard input is empty.
CliResult cli(const std::string &program, const std::vector<std::string> &arguments);

/// The same, and sends it a signal after that long, unless it has ended by then. Killed by signal S: exit code 128 + S.
CliResult cliWithSignal(const std::string &program, const std::vector<std::string> &arguments, int millis, int signal);

/// build/…/bin/PROGRAM
std::string binary(const std::string &program);
std::string modelPath(const std::string &name); // models/NAME.onnx
std::string source(const std::string &relative);
/// A folder of its own under the system's temporary folder, removed at the end of the process.
std::string scratch(const std::string &name);
std::string readFile(const std::string &path);
void writeFile(const std::string &path, const std::string &bytes);

/// Compile flags of models/NAME.args, then `more`; asserts success.
CliResult compile(const std::string &model, const std::string &plan, const std::vector<std::string> &more);
/// zero-run on models/NAME.data.npz.
CliResult train(const std::string &model, const std::string &plan, const std::vector<std::string> &more);

/// The number behind `"key":` in a JSON text, first occurrence behind `after` (empty: from the start).
double jsonNumber(const std::string &json, const std::string &key, const std::string &after = "");
/// All numbers behind `"key":` in a JSONL text, as written (same text, same bits).
std::vector<std::string> jsonTexts(const std::string &jsonl, const std::string &key);

} // namespace zerocc::e2e
