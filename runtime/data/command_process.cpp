#include "runtime/data/command_process.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>

extern char **environ;

namespace zerocc {
namespace {

constexpr int kPipeBytes = 1 << 20;
constexpr useconds_t kPollMicros = 2000;

std::vector<std::string> environmentWith(const std::vector<std::pair<std::string, std::string>> &changes) {
  std::vector<std::string> all;
  for (char **entry = environ; *entry; ++entry) {
    const std::string text = *entry;
    bool isChanged = false;
    for (const auto &[name, value] : changes)
      isChanged |= text.compare(0, name.size() + 1, name + "=") == 0;
    if (!isChanged)
      all.push_back(text);
  }
  for (const auto &[name, value] : changes)
    if (!value.empty())
      all.push_back(name + "=" + value);
  return all;
}

/// In the child, where only system calls are safe: this program has threads.
[[noreturn]] void become(char **arguments, char **environment, int output, pid_t parent) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL); // of this program killed outright; what the shell has started gets SIGPIPE
  if (::getppid() != parent)
    ::_exit(127);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::signal(SIGPIPE, SIG_DFL);
  const int input = ::open("/dev/null", O_RDONLY);
  if (input < 0 || ::dup2(input, 0) < 0 || ::dup2(output, 1) < 0)
    ::_exit(127);
  ::execve(arguments[0], arguments, environment);
  ::_exit(127);
}

} // namespace

Expected<CommandProcess> CommandProcess::start(const std::string &command,
                                               const std::vector<std::pair<std::string, std::string>> &environment) {
  std::vector<std::string> variables = environmentWith(environment);
  std::vector<char *> pointers;
  for (std::string &variable : variables)
    pointers.push_back(variable.data());
  pointers.push_back(nullptr);
  std::string shell = "/bin/sh", flag = "-c", text = command;
  char *arguments[] = {shell.data(), flag.data(), text.data(), nullptr};
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    return Error("no pipe can be made: " + std::generic_category().message(errno));
  ::fcntl(ends[0], F_SETPIPE_SZ, kPipeBytes); // a wish: fewer system calls
  const pid_t parent = ::getpid(), child = ::fork();
  if (child == 0)
    become(arguments, pointers.data(), ends[1], parent);
  const int failure = errno;
  ::close(ends[1]);
  if (child < 0) {
    ::close(ends[0]);
    return Error("no process can be started: " + std::generic_category().message(failure));
  }
  ::setpgid(child, child); // here too: the group is to be there before it is ended
  return CommandProcess(child, ends[0]);
}

CommandProcess::CommandProcess(CommandProcess &&other) noexcept
    : process_(std::exchange(other.process_, -1)), output_(std::exchange(other.output_, -1)) {}

/// Leaves the leader a zombie until the end: while it is one, no other group can have its number.
bool CommandProcess::hasEnded() {
  siginfo_t info = {};
  return ::waitid(P_PID, static_cast<id_t>(process_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == process_;
}

std::string CommandProcess::ending() {
  for (int waited = 0; !hasEnded(); waited += kPollMicros) {
    if (waited > 1000000)
      return "";
    ::usleep(kPollMicros);
  }
  siginfo_t info = {};
  ::waitid(P_PID, static_cast<id_t>(process_), &info, WEXITED | WNOHANG | WNOWAIT);
  if (info.si_code == CLD_EXITED)
    return "exited with status " + std::to_string(info.si_status);
  return "was killed by signal " + std::to_string(info.si_status) + " (" + ::strsignal(info.si_status) + ")";
}

CommandProcess::~CommandProcess() {
  if (process_ < 0)
    return;
  ::close(output_);
  ::kill(-process_, SIGTERM);
  for (int waited = 0; waited < 2000000 && !hasEnded(); waited += kPollMicros)
    ::usleep(kPollMicros);
  ::kill(-process_, SIGKILL);
  ::waitpid(process_, nullptr, 0);
}

} // namespace zerocc
