#pragma once

#include "runtime/data/command_process.h"
#include "runtime/data/frame_reader.h"

#include <memory>
#include <mutex>
#include <optional>

namespace zerocc {

/// Where a stream of frames begins, and how long one may take.
struct PipeStart {
  int64_t samples = 0; // taken before: of a resumed run
  std::string token;   // of the checkpoint; empty: none
  int timeoutSeconds = 30;
};

/// The frames of `--data pipe:'COMMAND'` by global micro-batch (pipe_frame.h has the form and the command's side of it).
class PipeStream {
public:
  /// Starts the command and reads the header of its first frame. `window`: how many micro-batches behind the newest one
  /// asked for may still be asked for.
  static Expected<std::unique_ptr<PipeStream>> open(const std::string &command, const PipeStart &start, int64_t microBatch,
                                                    uint64_t seed, int64_t window);

  /// Of every frame.
  const std::vector<PipeArray> &arrays() const { return arrays_; }
  /// Makes room for the frames, once the arrays are found good, and skips those that a command without tokens repeats.
  Status prepare();
  /// The payload of a micro-batch, counted from the beginning of the run. May be called from several threads.
  Expected<const unsigned char *> frame(int64_t microBatch);
  /// The token of the micro-batch before this one; empty when the command gives none.
  Expected<std::string> tokenBefore(int64_t microBatch);
  /// Starts the command anew, from the first frame on, unless nothing was taken yet.
  Status beginAgain();
  const std::string &command() const { return command_; }

private:
  PipeStream() = default;
  Status begin(const PipeStart &start);
  Error explained(const Error &error);

  std::string command_;
  PipeStart start_;
  int64_t microBatch_ = 1, window_ = 1;
  uint64_t seed_ = 0;
  std::vector<PipeArray> arrays_;
  std::mutex mutex_; // of what follows
  std::optional<CommandProcess> process_;
  std::optional<FrameReader> reader_;
  int64_t first_ = 0;            // micro-batch of the command's frame 0
  std::optional<Error> failure_; // the first one: every rank gets it
};

} // namespace zerocc
