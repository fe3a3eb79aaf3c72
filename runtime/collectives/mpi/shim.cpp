// The one file that sees MPI. It becomes libzerocc_mpi.so and holds nothing but calls.

#include "runtime/collectives/mpi/shim.h"

#include <mpi.h>

#include <algorithm>
#include <cstring>
#include <vector>

namespace {

static_assert(sizeof(MPI_Request) <= sizeof(uint64_t), "a request fits where callers keep it");

std::vector<MPI_Comm> &communicators() {
  static std::vector<MPI_Comm> list;
  return list;
}

void put(uint64_t *slot, MPI_Request request) {
  *slot = 0;
  std::memcpy(slot, &request, sizeof request);
}

int init() {
  int isUp = 0, provided = MPI_THREAD_SINGLE;
  MPI_Initialized(&isUp);
  if (isUp)
    MPI_Query_thread(&provided);
  else if (int code = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided); code != MPI_SUCCESS)
    return code;
  if (provided < MPI_THREAD_SERIALIZED)
    return 1;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  communicators() = {MPI_COMM_WORLD};
  return 0;
}

int place(int communicator, int *rank, int *size) {
  const MPI_Comm comm = communicators()[communicator];
  if (int code = MPI_Comm_rank(comm, rank); code != MPI_SUCCESS)
    return code;
  return MPI_Comm_size(comm, size);
}

int split(int colour, int key, int *made) {
  MPI_Comm comm = MPI_COMM_NULL;
  *made = -1;
  if (int code = MPI_Comm_split(MPI_COMM_WORLD, colour < 0 ? MPI_UNDEFINED : colour, key, &comm); code != MPI_SUCCESS)
    return code;
  if (comm == MPI_COMM_NULL)
    return MPI_SUCCESS;
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  *made = static_cast<int>(communicators().size());
  communicators().push_back(comm);
  return MPI_SUCCESS;
}

int freeCommunicator(int communicator) { return MPI_Comm_free(&communicators()[communicator]); }

int isend(const void *bytes, int count, int to, int tag, int communicator, uint64_t *request) {
  MPI_Request made = MPI_REQUEST_NULL;
  const int code = MPI_Isend(bytes, count, MPI_BYTE, to, tag, communicators()[communicator], &made);
  put(request, made);
  return code;
}

int irecv(void *bytes, int count, int from, int tag, int communicator, uint64_t *request) {
  MPI_Request made = MPI_REQUEST_NULL;
  const int code = MPI_Irecv(bytes, count, MPI_BYTE, from < 0 ? MPI_ANY_SOURCE : from, tag,
                             communicators()[communicator], &made);
  put(request, made);
  return code;
}

int test(uint64_t *slot, int *done) {
  MPI_Request request;
  std::memcpy(&request, slot, sizeof request);
  const int code = MPI_Test(&request, done, MPI_STATUS_IGNORE);
  put(slot, request);
  return code;
}

int cancel(uint64_t *slot) {
  MPI_Request request;
  std::memcpy(&request, slot, sizeof request);
  int code = MPI_Cancel(&request);
  if (code == MPI_SUCCESS)
    code = MPI_Wait(&request, MPI_STATUS_IGNORE);
  put(slot, request);
  return code;
}

void copyText(const char *from, int length, char *to, int capacity) {
  const int count = std::min(length, capacity - 1);
  std::memcpy(to, from, count);
  to[count] = 0;
}

void errorText(int code, char *text, int capacity) {
  char own[MPI_MAX_ERROR_STRING + 1] = {};
  int length = 0;
  MPI_Error_string(code, own, &length);
  copyText(own, length, text, capacity);
}

void libraryVersion(char *text, int capacity) {
  char own[MPI_MAX_LIBRARY_VERSION_STRING + 1] = {};
  int length = 0;
  MPI_Get_library_version(own, &length);
  copyText(own, length, text, capacity);
}

constexpr ZeroccMpi kTable = {kZeroccMpiVersion, init,  MPI_Finalize, place,  split,     freeCommunicator,
                              isend,             irecv, test,         cancel, errorText, libraryVersion};

} // namespace

extern "C" __attribute__((visibility("default"))) const ZeroccMpi *zeroccMpi() { return &kTable; }
