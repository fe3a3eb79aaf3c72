#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace zerocc {

/// The calls of the file system that checkpoints are made of, so that tests can lose, shorten and refuse them. Results
/// are those of the system calls; a failure is -errno. Calls may come from several threads.
class Files {
public:
  virtual ~Files() = default;

  virtual int create(const std::string &path) = 0; // for writing, new or emptied; a descriptor
  /// May take less than it was given.
  virtual int64_t write(int file, const void *bytes, int64_t count) = 0;
  virtual int sync(int file) = 0;
  virtual int close(int file) = 0;

  virtual int open(const std::string &path) = 0; // a regular file for reading; a descriptor
  virtual int64_t size(int file) = 0;
  virtual int64_t readAt(int file, void *bytes, int64_t count, int64_t offset) = 0;

  virtual int rename(const std::string &from, const std::string &to) = 0;
  virtual int remove(const std::string &path) = 0; // a file or an empty folder
  virtual int makeFolder(const std::string &path) = 0;
  virtual int syncFolder(const std::string &path) = 0; // its entries
  /// Names in a folder, sorted.
  virtual int list(const std::string &path, std::vector<std::string> &names) = 0;
};

/// Those of this machine.
Files &systemFiles();

} // namespace zerocc
