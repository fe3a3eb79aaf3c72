#pragma once

#include "runtime/data/pipe_frame.h"

#include <chrono>
#include <memory>
#include <vector>

namespace zerocc {

/// Frames from a file descriptor, in their order, the last few of them kept. Allocates nothing after `keep`, but for errors.
class FrameReader {
public:
  /// `seconds`: how long a frame may take.
  FrameReader(int file, int seconds) : file_(file), seconds_(seconds) {}

  /// The header of the first frame, whose arrays all others must have too. To be called once, at first.
  Expected<PipeFrame> begin();
  /// Makes room for `frames` payloads: a frame stays readable until that many have come behind it.
  void keep(int64_t frames);
  /// Reads until frame `number`, from 0, is there, and gives its payload; `number` is not among those let go.
  Expected<const unsigned char *> frame(int64_t number);
  /// The token of a frame that is kept.
  const std::string &token(int64_t number) const { return slots_[number % slots()].token; }
  int64_t framesRead() const { return read_; }

  /// Why reading failed: the descriptor has ended, in the middle of a frame or before one.
  bool hasEnded() const { return hasEnded_; }

private:
  struct Slot {
    std::unique_ptr<unsigned char[]> payload;
    std::string token; // its capacity is the limit: assigning allocates nothing
  };
  int64_t slots() const { return static_cast<int64_t>(slots_.size()); }
  Status readNext();
  Status readHeader();
  /// Exactly so many bytes, until the deadline.
  Status read(void *target, int64_t bytes);
  Error inFrame(const Error &error) const;

  int file_, seconds_;
  std::chrono::steady_clock::time_point deadline_;
  std::vector<unsigned char> header_;      // of the frame at hand
  std::vector<unsigned char> arrays_;      // of the first frame: its header's part between head and token
  int64_t payloadBytes_ = 0;               // of the first frame
  uint64_t firstNumber_ = 0;               // that it has
  PipeHead head_;
  bool hasHeader_ = false, hasEnded_ = false;
  int64_t read_ = 0; // frames whose payload has come
  std::vector<Slot> slots_;
};

} // namespace zerocc
