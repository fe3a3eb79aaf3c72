#pragma once

#include "compiler/support/expected.h"
#include "runtime/collectives/mpi/shim.h"

#include <mutex>
#include <string>

namespace zerocc {

/// The MPI of this machine, loaded and begun: one for the process, until finalize(). It may be called by one thread at a
/// time; `mutex` says whose turn it is.
class MpiLibrary {
public:
  /// Loads libzerocc_mpi.so from `folder` (default: the folder of this program) and begins MPI, the first time. Fails
  /// with the remedy when there is no shim, no MPI, or one without threads.
  static Expected<MpiLibrary *> load(const std::string &folder = "");

  const ZeroccMpi &call() const { return *table_; }
  std::mutex &mutex() { return mutex_; }
  int rank() const { return rank_; }
  int size() const { return size_; }
  std::string errorText(int code) const;
  /// "Open MPI v4.1.4"
  std::string version() const;
  /// Ends MPI; all processes call it, with nothing under way. Nothing may be called afterwards.
  void finalize();

private:
  const ZeroccMpi *table_ = nullptr;
  std::mutex mutex_;
  int rank_ = 0, size_ = 1;
};

} // namespace zerocc
