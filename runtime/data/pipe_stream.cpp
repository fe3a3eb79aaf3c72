#include "runtime/data/pipe_stream.h"

namespace zerocc {

Expected<std::unique_ptr<PipeStream>> PipeStream::open(const std::string &command, const PipeStart &start, int64_t microBatch,
                                                       uint64_t seed, int64_t window) {
  std::unique_ptr<PipeStream> stream(new PipeStream);
  stream->command_ = command;
  stream->start_ = start;
  stream->microBatch_ = microBatch;
  stream->seed_ = seed;
  stream->window_ = window;
  if (start.samples % microBatch != 0)
    return Error("pipe:" + command + ": the run has taken " + std::to_string(start.samples) +
                     " samples, which is no whole number of frames of " + std::to_string(microBatch),
                 "go on with the --micro-batch it had");
  ZEROCC_TRY(stream->begin(start));
  return stream;
}

Status PipeStream::begin(const PipeStart &start) {
  reader_.reset();
  process_.reset();
  failure_.reset();
  Expected<CommandProcess> process =
      CommandProcess::start(command_, {{"ZEROCC_PIPE_RESUME", start.token},
                                       {"ZEROCC_PIPE_SAMPLES", std::to_string(start.token.empty() ? 0 : start.samples)},
                                       {"ZEROCC_PIPE_MICRO_BATCH", std::to_string(microBatch_)},
                                       {"ZEROCC_PIPE_SEED", std::to_string(seed_)}});
  if (!process)
    return process.error().in("pipe:" + command_);
  process_.emplace(std::move(*process));
  reader_.emplace(process_->output(), start.timeoutSeconds);
  first_ = start.token.empty() ? 0 : start.samples / microBatch_;
  Expected<PipeFrame> frame = reader_->begin();
  if (!frame)
    return explained(frame.error());
  arrays_ = std::move(frame->arrays);
  return success();
}

/// Puts the command before what went wrong, and how it has ended behind it.
Error PipeStream::explained(const Error &error) {
  std::vector<Diagnostic> findings = error.findings();
  Diagnostic &last = findings.back();
  if (reader_->hasEnded()) {
    const std::string ending = process_->ending();
    last.message += ending.empty() ? "; the command has closed its output and goes on" : "; the command " + ending;
    last.hint = "the run needs a frame for every micro-batch; a command without end may go through its data again and again";
  }
  failure_.emplace(Error(std::move(findings)).in("pipe:" + command_));
  return *failure_;
}

Status PipeStream::prepare() {
  reader_->keep(window_);
  const int64_t taken = start_.samples / microBatch_;
  if (taken > first_) {
    Expected<const unsigned char *> last = frame(taken - 1);
    if (!last)
      return last.error();
  }
  return success();
}

Expected<const unsigned char *> PipeStream::frame(int64_t microBatch) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (failure_)
    return *failure_;
  Expected<const unsigned char *> payload = reader_->frame(microBatch - first_);
  return payload ? payload : explained(payload.error());
}

Expected<std::string> PipeStream::tokenBefore(int64_t microBatch) {
  if (microBatch <= first_)
    return start_.token;
  Expected<const unsigned char *> payload = frame(microBatch - 1); // another process may have read fewer
  if (!payload)
    return payload.error();
  return reader_->token(microBatch - 1 - first_);
}

Status PipeStream::beginAgain() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (reader_->framesRead() == 0 && !failure_)
    return success();
  const std::vector<PipeArray> before = arrays_;
  ZEROCC_TRY(begin({0, "", start_.timeoutSeconds}));
  for (size_t i = 0; i < std::max(before.size(), arrays_.size()); ++i)
    if (i >= before.size() || i >= arrays_.size() || before[i].name != arrays_[i].name || before[i].type != arrays_[i].type ||
        before[i].dims != arrays_[i].dims)
      return Error("pipe:" + command_ + ": begun again, it gives other arrays than before");
  reader_->keep(window_);
  return success();
}

} // namespace zerocc
