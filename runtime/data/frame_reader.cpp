#include "runtime/data/frame_reader.h"

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <poll.h>
#include <system_error>
#include <unistd.h>

namespace zerocc {

Error FrameReader::inFrame(const Error &error) const { return error.in("frame " + std::to_string(read_)); }

Status FrameReader::read(void *target, int64_t bytes) {
  auto *out = static_cast<unsigned char *>(target);
  for (int64_t done = 0; done < bytes;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - std::chrono::steady_clock::now());
    pollfd wait = {file_, POLLIN, 0};
    const int ready = ::poll(&wait, 1, static_cast<int>(std::max<int64_t>(left.count(), 0)));
    if (ready == 0)
      return Error("did not come within " + std::to_string(seconds_) + " seconds: the command stalls",
                   "half of --timeout is what a frame may take");
    if (ready < 0 && errno == EINTR)
      continue;
    const ssize_t count = ready < 0 ? -1 : ::read(file_, out + done, static_cast<size_t>(bytes - done));
    if (count < 0 && errno == EINTR)
      continue;
    if (count < 0)
      return Error("cannot be read: " + std::generic_category().message(errno));
    if (count == 0) {
      hasEnded_ = true;
      return Error("ends after " + std::to_string(done) + " of " + std::to_string(bytes) + " bytes");
    }
    done += count;
  }
  return success();
}

Status FrameReader::readHeader() {
  deadline_ = std::chrono::steady_clock::now() + std::chrono::seconds(seconds_);
  header_.resize(PipeHead::kBytes); // within its capacity
  ZEROCC_TRY(read(header_.data(), PipeHead::kBytes));
  ZEROCC_ASSIGN(head_, parsePipeHead(header_));
  if (read_ > 0 && head_.number != firstNumber_ + static_cast<uint64_t>(read_))
    return Error("has number " + std::to_string(head_.number) + ", behind " +
                     std::to_string(firstNumber_ + static_cast<uint64_t>(read_ - 1)),
                 "a frame has one number more than that before it");
  header_.resize(static_cast<size_t>(head_.headerBytes));
  ZEROCC_TRY(read(header_.data() + PipeHead::kBytes, head_.headerBytes - PipeHead::kBytes));
  hasHeader_ = true;
  return success();
}

Expected<PipeFrame> FrameReader::begin() {
  assert(read_ == 0 && !hasHeader_ && "to be called once, at first");
  header_.reserve(PipeHead::kMostHeaderBytes);
  if (Status status = readHeader(); !status)
    return inFrame(status.error());
  Expected<PipeFrame> frame = parsePipeFrame(header_);
  if (!frame)
    return inFrame(frame.error());
  payloadBytes_ = head_.payloadBytes;
  firstNumber_ = head_.number;
  arrays_.assign(header_.begin() + PipeHead::kBytes, header_.end() - head_.tokenBytes);
  return frame;
}

void FrameReader::keep(int64_t frames) {
  slots_.resize(static_cast<size_t>(frames));
  for (Slot &slot : slots_) {
    slot.payload.reset(new unsigned char[static_cast<size_t>(payloadBytes_)]);
    slot.token.reserve(PipeHead::kMostTokenBytes);
  }
}

/// The header that `begin` or this has read, then the payload.
Status FrameReader::readNext() {
  if (hasHeader_)
    deadline_ = std::chrono::steady_clock::now() + std::chrono::seconds(seconds_); // read long ago, by `begin`
  else
    ZEROCC_TRY(readHeader());
  const int64_t arraysEnd = head_.headerBytes - head_.tokenBytes;
  const bool sameArrays = arraysEnd - PipeHead::kBytes == static_cast<int64_t>(arrays_.size()) &&
                          std::equal(arrays_.begin(), arrays_.end(), header_.begin() + PipeHead::kBytes);
  const std::string_view token(reinterpret_cast<const char *>(header_.data()) + std::max<int64_t>(arraysEnd, 0),
                               static_cast<size_t>(arraysEnd < 0 ? 0 : head_.tokenBytes));
  if (!sameArrays || !isPipeToken(token) || head_.payloadBytes != payloadBytes_) {
    ZEROCC_ASSIGN(PipeFrame frame, parsePipeFrame(header_)); // what is wrong by itself comes first
    return Error("its arrays are not those of the first frame",
                 "all frames have the same arrays, of the same types and dims, in the same order");
  }
  Slot &slot = slots_[read_ % slots()];
  ZEROCC_TRY(read(slot.payload.get(), head_.payloadBytes));
  slot.token.assign(token);
  hasHeader_ = false;
  ++read_;
  return success();
}

Expected<const unsigned char *> FrameReader::frame(int64_t number) {
  assert(slots() > 0 && number >= 0 && number >= read_ - slots() && "a frame that was let go");
  while (read_ <= number)
    if (Status status = readNext(); !status)
      return inFrame(status.error());
  return slots_[number % slots()].payload.get();
}

} // namespace zerocc
