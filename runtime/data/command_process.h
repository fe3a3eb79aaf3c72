#pragma once

#include "compiler/support/expected.h"

#include <string>
#include <sys/types.h>
#include <utility>
#include <vector>

namespace zerocc {

/// A shell command whose standard output is read. It leads a process group of its own, which is ended, and waited for, with
/// this object: SIGTERM first, SIGKILL to what is left once its leader is gone, or after two seconds. Standard input is empty.
class CommandProcess {
public:
  /// `environment`: over this program's own; an empty value takes a variable out.
  static Expected<CommandProcess> start(const std::string &command,
                                        const std::vector<std::pair<std::string, std::string>> &environment);
  CommandProcess(CommandProcess &&other) noexcept;
  CommandProcess &operator=(CommandProcess &&) = delete;
  ~CommandProcess();

  int output() const { return output_; }
  /// How it has ended, as "exited with status 3": waits up to a second for it. Empty while it runs.
  std::string ending();

private:
  CommandProcess(pid_t process, int output) : process_(process), output_(output) {}
  bool hasEnded();

  pid_t process_ = -1; // its group has the same number; -1: moved from
  int output_ = -1;
};

} // namespace zerocc
