#pragma once

#include "runtime/checkpoint/checkpoint.h"
#include "runtime/executor/rank_group.h"

#include <condition_variable>
#include <mutex>
#include <thread>

namespace zerocc {

struct CheckpointOptions {
  std::string folder;
  int64_t keep = 3; // the last ones; the best one besides
};

/// Saves checkpoints of a run into a folder while it goes on. `save` copies what the ranks own into memory that was
/// taken at the start, and returns; a thread of its own writes it: every rank's file, then the index, each synced, in a
/// folder NAME.partial that is renamed last. Where ranks are processes each writes its own file, and the first one the index. Before the rename nothing of an earlier checkpoint is touched; after it
/// the oldest are removed.
class CheckpointWriter {
public:
  /// Makes the folder. Called by all processes of the group. `head` is what stays the same in all indexes: fingerprints, seed, shuffle. The plan and the group
  /// outlive the writer.
  static Expected<std::unique_ptr<CheckpointWriter>> create(Files &files, const plan::Plan &plan, RankGroup &group,
                                                            const CheckpointOptions &options, CheckpointIndex head);
  /// Waits for the save in progress.
  ~CheckpointWriter();

  struct Saved {
    std::string path; // of the checkpoint
    Status status = success();
    Status cleanup = success(); // the checkpoint is there, but what is to go from the folder stays
  };
  /// Between steps. Waits for the save in progress first, whose outcome is lost when it was not asked for. `samples`:
  /// taken so far. `isBest`: this one is kept, the best before it no longer for being so.
  Status save(int64_t step, int64_t samples, bool isBest = false, const EvalRecord &eval = {},
              const std::string &pipeToken = "");
  /// Of a save that has come to its end and was not yet told; with `wait`, once the one in progress has.
  std::optional<Saved> outcome(bool wait);

  int64_t stagingBytes() const; // of all ranks
  std::string folder() const { return options_.folder; }

private:
  CheckpointWriter(Files &files, const plan::Plan &plan, RankGroup &group, CheckpointOptions options)
      : files_(files), plan_(plan), group_(group), options_(std::move(options)) {}
  struct Copy {
    uint32_t region;
    uint64_t offset;
    int64_t bytes, at; // in the image
  };
  /// A rank's file as it will be written; its head never changes.
  struct Image {
    std::unique_ptr<unsigned char[]> bytes;
    int64_t size = 0;
    std::vector<Copy> copies;
  };
  Status findEarlier();
  void layOut(int rank, CheckpointIndex &index);
  void work();
  Status write();
  Status makeBeside(const std::string &beside);
  Status writeFiles(const std::string &beside);
  Status collectChecksums();
  Status putIntoPlace(const std::string &beside, const std::string &path);
  Status writeFile(const std::string &path, const void *bytes, int64_t count, std::vector<uint64_t> *checksums);
  Status prune();
  Status removeFolder(const std::string &path);

  Files &files_;
  const plan::Plan &plan_;
  RankGroup &group_;
  CheckpointOptions options_;
  CheckpointIndex index_; // of the save in progress
  std::vector<Image> images_;
  std::string name_, best_;
  int64_t number_ = 0; // of the last save
  bool isBest_ = false;

  std::mutex mutex_; // guards what follows
  std::condition_variable changed_;
  bool busy_ = false, stop_ = false;
  std::optional<Saved> outcome_;
  std::thread thread_;
  std::unique_ptr<Processes> processes_; // of the writing thread
};

} // namespace zerocc
