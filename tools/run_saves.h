#pragma once

#include "runtime/checkpoint/writer.h"
#include "runtime/training/trainer.h"

#include <atomic>
#include <csignal>

namespace zerocc {

struct SaveFlags {
  std::string folder, resume; // --save, --resume
  int64_t every = 0, keep = 3;
  bool keepBest = false;
};

/// Opens what --resume names: a checkpoint, or the last one of a folder. What is cut short, damaged or incomplete is
/// refused, and the last whole one offered.
Expected<std::shared_ptr<const Checkpoint>> openCheckpoint(const std::string &path);
/// `error` came up while `checkpoint` was used: when that is damaged, offers the last whole one.
Error offeringLastWhole(const Error &error, const Checkpoint &checkpoint);

/// What zero-run tells beside its checkpoints (run.json), to find out later what a run was.
struct RunRecord {
  std::vector<std::string> commandLine;
  std::string planFile;
  std::string resumedFrom;
  const DataSet *data = nullptr, *evalData = nullptr; // of --data and --eval-data (or null); they outlive the saves
};

/// The checkpoints of a run: every K steps, at the end, and when SIGTERM or SIGUSR1 asks it to stop. While it lives,
/// these signals only set a mark, and no other run can save into the folder. A save that fails in the middle of a run
/// is reported, and the run goes on; at its end it is an error.
class RunSaves {
public:
  /// Nothing is done, and null returned, without a folder. Called by all processes; the first one has the lock and run.json.
  static Expected<std::unique_ptr<RunSaves>> create(const plan::Plan &plan, Trainer &trainer, const SaveFlags &flags,
                                                    const DataPosition &data, const RunRecord &record);
  ~RunSaves();

  /// After each step and its evaluation. `isBest`: no evaluation was better, so that --keep-best saves.
  Status afterStep(bool isBest, const EvalRecord &eval);
  /// Saves when this step was not saved yet, and waits until it is on disk.
  Status finish();
  /// Somebody asked this process to stop: the signal, or 0.
  static const std::atomic<int> &stopSignal();
  /// SIGTERM and SIGUSR1 only set a mark from here on, also without a folder to save to.
  static void catchSignals();
  const std::string &lastSaved() const { return lastSaved_; }
  int64_t stagingBytes() const { return writer_->stagingBytes(); }

private:
  RunSaves(Trainer &trainer, const SaveFlags &flags, const DataSet &data) : trainer_(trainer), data_(data), flags_(flags) {}
  Status save(bool isBest);
  /// Tells of a save that has come to its end.
  void report(bool wait);

  Trainer &trainer_;
  const DataSet &data_;
  SaveFlags flags_;
  std::unique_ptr<CheckpointWriter> writer_;
  EvalRecord eval_;
  int64_t savedStep_ = -1; // of the last save begun or told to have succeeded
  std::optional<Error> failure_;
  std::string lastSaved_;
  Status takeFolder(const std::string &runText);
  int lock_ = -1;
  bool isCaught_ = false;
  struct sigaction before_[2] = {};
};

} // namespace zerocc
