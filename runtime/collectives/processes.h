#pragma once

#include "compiler/support/expected.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace zerocc {

/// The processes of a run, as their host threads talk between the segments of a plan: small things, such as "has somebody
/// been asked to stop". All processes make the same calls in the same order. One object serves one thread; threads that
/// talk at the same time have one each (`another`). Calls fail when a process has failed or does not answer; a process
/// that is alive is waited for, however long it takes.
class Processes {
public:
  virtual ~Processes() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  bool isFirst() const { return rank() == 0; }
  /// all[r * bytes …] = process r's mine[0 … bytes). Allocates nothing.
  virtual Status allGather(const void *mine, int64_t bytes, void *all) = 0;
  /// bytes[0 … count) of process `from` for all of them.
  virtual Status broadcast(int from, void *bytes, int64_t count) = 0;
  /// A line of their own for another thread; called by all processes, by the thread that has this one.
  virtual Expected<std::unique_ptr<Processes>> another() = 0;
};

/// A run of one process.
std::unique_ptr<Processes> oneProcess();

/// Texts of any length: of process r at r.
Expected<std::vector<std::string>> gatherTexts(Processes &processes, const std::string &mine);
/// Whether anybody says yes.
Expected<bool> anyOf(Processes &processes, bool mine);
/// What went wrong anywhere, on all processes alike: success only when all succeeded. An error that all have in common is
/// returned as it is; others say which rank they are of.
Status agree(Processes &processes, const Status &mine);

} // namespace zerocc
