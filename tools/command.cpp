#include "tools/command.h"

#include <cstdio>
#include <fstream>
#include <iostream>

namespace zerocc {

int refuse(const Error &error) {
  std::fputs(error.text().c_str(), stderr);
  return kRefused;
}

Expected<std::vector<std::string>> expandArguments(int argc, char **argv) {
  std::vector<std::string> arguments;
  for (int i = 1; i < argc; ++i) {
    std::string argument = argv[i];
    if (argument != "--args") {
      arguments.push_back(argument);
      continue;
    }
    if (i + 1 == argc)
      return Error("--args needs a file of flags");
    std::ifstream file(argv[++i]);
    if (!file)
      return Error(std::string("cannot read \"") + argv[i] + "\"", "--args FILE names a file of command-line flags");
    std::string line;
    while (std::getline(file, line)) {
      line = line.substr(0, line.find('#'));
      std::istringstream words(line);
      for (std::string word; words >> word;)
        arguments.push_back(word);
    }
  }
  return arguments;
}

int runApp(CLI::App &app, const std::vector<std::string> &arguments, Run &run) {
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
  try {
    app.parse(reversed);
  } catch (const CLI::ParseError &error) {
    if (error.get_exit_code() == 0) { // --help, --version
      app.exit(error);
      return kDone;
    }
    std::cerr << "error: " << escapeForTerminal(error.what()) << "\n  hint: " << app.get_name() << " --help\n";
    return kWrongCommandLine;
  }
  if (!run) {
    std::cout << app.help();
    return kWrongCommandLine;
  }
  return run();
}

} // namespace zerocc
