#include "tests/e2e/cli.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <spawn.h>
#include <sstream>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

namespace zerocc::e2e {
namespace fs = std::filesystem;

namespace {
struct Scratch {
  fs::path root = fs::temp_directory_path() / ("zerocc-e2e-" + std::to_string(getpid()));
  Scratch() { fs::create_directories(root); }
  ~Scratch() {
    std::error_code ignored;
    fs::remove_all(root, ignored);
  }
};
const fs::path &scratchRoot() {
  static Scratch scratch;
  return scratch.root;
}
} // namespace

std::string scratch(const std::string &name) {
  fs::path path = scratchRoot() / name;
  fs::create_directories(path);
  return path.string();
}

std::string source(const std::string &relative) { return std::string(ZEROCC_SOURCE_DIR) + "/" + relative; }
std::string modelPath(const std::string &name) { return source("models/" + name + ".onnx"); }

std::string readFile(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void writeFile(const std::string &path, const std::string &bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

std::string binary(const std::string &program) { return std::string(ZEROCC_BIN_DIR) + "/" + program; }

static CliResult runProgram(const std::string &program, const std::vector<std::string> &arguments, int millis,
                            int signal) {
  static int serial = 0;
  std::string stem = scratch("output") + "/" + std::to_string(serial++);
  std::string path = program.find('/') == std::string::npos ? binary(program) : program;
  std::vector<char *> argv;
  argv.push_back(path.data());
  for (const std::string &argument : arguments)
    argv.push_back(const_cast<char *>(argument.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, (stem + ".out").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_addopen(&actions, 2, (stem + ".err").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  pid_t child = 0;
  CliResult result;
  if (posix_spawn(&child, path.c_str(), &actions, nullptr, argv.data(), environ) != 0) {
    ADD_FAILURE() << "cannot start " << path;
    return result;
  }
  posix_spawn_file_actions_destroy(&actions);
  int status = 0;
  bool isOver = false;
  for (int waited = 0; signal != 0 && waited < millis && !isOver; ++waited) {
    usleep(1000);
    isOver = waitpid(child, &status, WNOHANG) == child;
  }
  if (signal != 0 && !isOver)
    kill(child, signal);
  if (!isOver)
    waitpid(child, &status, 0);
  result.exitCode = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  result.out = readFile(stem + ".out");
  result.error = readFile(stem + ".err");
  return result;
}

CliResult cli(const std::string &program, const std::vector<std::string> &arguments) {
  return runProgram(program, arguments, 0, 0);
}

CliResult cliWithSignal(const std::string &program, const std::vector<std::string> &arguments, int millis,
                        int signal) {
  return runProgram(program, arguments, millis, signal);
}

CliResult compile(const std::string &model, const std::string &plan, const std::vector<std::string> &more) {
  std::vector<std::string> arguments = {"compile", modelPath(model), "--args", source("models/" + model + ".args"), "-o",
                                        plan};
  arguments.insert(arguments.end(), more.begin(), more.end());
  CliResult result = cli("zerocc", arguments);
  EXPECT_EQ(result.exitCode, 0) << model << "\n" << result.error;
  return result;
}

CliResult train(const std::string &model, const std::string &plan, const std::vector<std::string> &more) {
  std::vector<std::string> arguments = {plan, "--model", modelPath(model), "--data",
                                        source("models/" + model + ".data.npz")};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return cli("zero-run", arguments);
}

double jsonNumber(const std::string &json, const std::string &key, const std::string &after) {
  size_t from = after.empty() ? 0 : json.find("\"" + after + "\"");
  size_t at = from == std::string::npos ? from : json.find("\"" + key + "\"", from);
  if (at == std::string::npos) {
    ADD_FAILURE() << "no \"" << key << "\" in " << json.substr(0, 400);
    return -1;
  }
  return std::strtod(json.c_str() + json.find(':', at) + 1, nullptr);
}

std::vector<std::string> jsonTexts(const std::string &jsonl, const std::string &key) {
  std::vector<std::string> texts;
  std::string quoted = "\"" + key + "\":";
  for (size_t at = jsonl.find(quoted); at != std::string::npos; at = jsonl.find(quoted, at + 1)) {
    size_t begin = at + quoted.size();
    texts.push_back(jsonl.substr(begin, jsonl.find_first_of(",}", begin) - begin));
  }
  return texts;
}

} // namespace zerocc::e2e
