#include "runtime/collectives/mpi/mpi_library.h"

#include <dlfcn.h>
#include <filesystem>

namespace zerocc {

static constexpr const char *kInstall =
    "install an MPI and build again (Debian: apt-get install libopenmpi-dev openmpi-bin, then cmake --preset release and "
    "ninja -C build/release), or use --comm threads";

Expected<MpiLibrary *> MpiLibrary::load(const std::string &folder) {
  static MpiLibrary library;
  if (library.table_)
    return &library;
  std::error_code error;
  const std::filesystem::path own = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  const std::filesystem::path path = (folder.empty() ? own : std::filesystem::path(folder)) / kZeroccMpiFile;
  if (!std::filesystem::exists(path, error))
    return Error("--comm mpi: there is no " + path.string() + ": zerocc was built without an MPI", kInstall);
  // Global: an MPI's plug-ins look for its symbols among those of the process.
  void *handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (!handle)
    return Error("--comm mpi: " + path.string() + " cannot be loaded: " + ::dlerror(), kInstall);
  auto entry = reinterpret_cast<const ZeroccMpi *(*)()>(::dlsym(handle, kZeroccMpiEntry));
  if (!entry || entry()->version != kZeroccMpiVersion)
    return Error("--comm mpi: " + path.string() + " belongs to another version of zerocc", "build again");
  const ZeroccMpi *table = entry();
  const int code = table->init();
  library.table_ = table;
  if (code == 1)
    return Error("--comm mpi: " + library.version() + " gives no MPI_THREAD_SERIALIZED",
                 "use an MPI that was built with threads");
  if (code != 0)
    return Error("--comm mpi: MPI does not begin: " + library.errorText(code), "start with mpirun -n RANKS zero-run …");
  table->place(0, &library.rank_, &library.size_);
  return &library;
}

std::string MpiLibrary::errorText(int code) const {
  char text[512];
  table_->errorText(code, text, sizeof text);
  return text;
}

std::string MpiLibrary::version() const {
  char text[512];
  table_->libraryVersion(text, sizeof text);
  const std::string all = text;
  return all.substr(0, all.find_first_of(",\n"));
}

void MpiLibrary::finalize() {
  std::lock_guard lock(mutex_);
  table_->finalize();
}

} // namespace zerocc
