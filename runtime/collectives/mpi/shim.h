#pragma once

#include <cstdint>

/// What zerocc asks of an MPI, as plain functions: the only thing that libzerocc_mpi.so gives out. The shim is compiled
/// against the MPI of the machine and loaded at run time, so that zero-run itself depends on no MPI, and on no MPI's
/// sizes of handles.
///
/// All functions but `init` return 0 or an MPI error code, whose text `errorText` gives. They are called by one thread at
/// a time (MPI_THREAD_SERIALIZED). Communicator 0 is the world.
struct ZeroccMpi {
  int version; // kZeroccMpiVersion
  /// Begins MPI. 0; 1: the library gives less than MPI_THREAD_SERIALIZED; else an MPI error code.
  int (*init)();
  int (*finalize)();
  int (*place)(int communicator, int *rank, int *size);
  /// MPI_Comm_split of the world, by all of its processes. `made` is the new communicator, -1 where colour is negative.
  int (*split)(int colour, int key, int *made);
  int (*freeCommunicator)(int communicator);
  /// At most 2^31 - 1 bytes. `from` -1: whoever sends.
  int (*isend)(const void *bytes, int count, int to, int tag, int communicator, uint64_t *request);
  int (*irecv)(void *bytes, int count, int from, int tag, int communicator, uint64_t *request);
  int (*test)(uint64_t *request, int *done);
  /// Gives up a receive that nothing has matched yet.
  int (*cancel)(uint64_t *request);
  void (*errorText)(int code, char *text, int capacity);
  void (*libraryVersion)(char *text, int capacity);
};

constexpr int kZeroccMpiVersion = 1;
constexpr const char *kZeroccMpiEntry = "zeroccMpi"; // extern "C" const ZeroccMpi *zeroccMpi();
constexpr const char *kZeroccMpiFile = "libzerocc_mpi.so";
