#include "tests/fuzz/targets.h"

#include "runtime/data/frame_reader.h"

#include <cstring>
#include <fcntl.h>
#include <unistd.h>

namespace zerocc {

/// A frame's header that is read is written the same again.
static void checkHeader(const uint8_t *data, size_t size) {
  if (size < static_cast<size_t>(PipeHead::kBytes))
    return;
  auto head = parsePipeHead(Bytes(data, PipeHead::kBytes));
  if (!head || static_cast<size_t>(head->headerBytes) > size)
    return;
  const Bytes header(data, static_cast<size_t>(head->headerBytes));
  auto frame = parsePipeFrame(header);
  if (!frame)
    return;
  const std::string again = pipeFrameHeader(*frame);
  require(again.size() == header.size() && std::memcmp(again.data(), header.data(), header.size()) == 0,
          "a header that is written otherwise than it was read");
}

void fuzzPipe(const uint8_t *data, size_t size) {
  checkHeader(data, size);
  const int file = ::open(fileOf(data, size).c_str(), O_RDONLY | O_CLOEXEC);
  require(file >= 0, "the file in memory cannot be opened");
  FrameReader reader(file, 10);
  auto first = reader.begin();
  volatile unsigned sink = 0;
  if (first && first->payloadBytes() <= 1 << 16) { // more is refused by the plan's dims
    reader.keep(2);
    for (int64_t number = 0;; ++number) {
      auto payload = reader.frame(number);
      if (!payload)
        break;
      for (int64_t i = 0; i < first->payloadBytes(); ++i)
        sink = sink + (*payload)[i];
      require(isPipeToken(reader.token(number)), "a token that is none");
    }
    require(reader.framesRead() * (PipeHead::kBytes + first->payloadBytes()) <= static_cast<int64_t>(size),
            "more frames than there are bytes");
  }
  ::close(file);
}

} // namespace zerocc
