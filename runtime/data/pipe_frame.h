#pragma once

#include "runtime/data/array.h"
#include "runtime/data/mapped_file.h"

#include <string>
#include <vector>

namespace zerocc {

/// What a command of `--data pipe:'COMMAND'` writes to its standard output: one frame for each global micro-batch, in their
/// order (DataSet says which rank takes which), nothing between them. Little-endian, without padding:
///
///     char magic[4] = "ZPIP"
///     u32 version = 1
///     u32 headerBytes             of all before the payload
///     u32 arrays                  1 to 256
///     u32 tokenBytes              0 to 4096
///     u32 zero
///     u64 number                  one more than that of the frame before; the first one's is free
///     u64 payloadBytes            the sum of the arrays' bytes
///     arrays times
///       char type[2]              f2 bf f4 f8 i1 i2 i4 i8 u1 u2 u4 u8 b1: kind and bytes of an element; bf: bfloat16
///       u16 nameBytes             1 to 1024
///       u32 rank                  1 to 8
///       i64 dims[rank]            [micro-batch, a sample's dims …]
///       u64 bytes                 of its elements
///       char name[nameBytes]      of an input of the plan, once
///     char token[tokenBytes]      printable ASCII
///     payload                     the arrays' elements, row-major, one array behind the other
///
/// All frames have the same arrays, of the same types and dims. Labels that the plan takes from tokens (`of`, `shift`) need
/// not be given: then the tokens have `shift` more columns. headerBytes is at most 65536.
///
/// The token says where the command is behind this frame. A checkpoint keeps that of the last frame it has trained on, and
/// a run that resumes hands it back. The command finds in its environment
///
///     ZEROCC_PIPE_RESUME          that token; not set when the run begins, or the token was empty
///     ZEROCC_PIPE_SAMPLES         samples that were taken before its first frame
///     ZEROCC_PIPE_MICRO_BATCH     samples of a frame
///     ZEROCC_PIPE_SEED            --seed
///
/// and begins with the frame behind the token. One that gives no tokens is begun from the start again on a resume, and its
/// first frames are skipped. Its processes are a group, which is ended with the run. Where each rank is a process, each runs
/// the command and takes its own frames.
struct PipeArray {
  std::string name;
  ElementType type = ElementType::i64;
  std::vector<int64_t> dims;
  int64_t elements = 0;

  int64_t bytes() const { return elements * byteSize(type); }
};

struct PipeFrame {
  uint64_t number = 0;
  std::vector<PipeArray> arrays;
  std::string token;
  int64_t payloadBytes() const;
};

/// The first bytes of a frame.
struct PipeHead {
  static constexpr int64_t kBytes = 40, kMostHeaderBytes = 65536, kMostTokenBytes = 4096;
  int64_t headerBytes = 0, arrays = 0, tokenBytes = 0;
  uint64_t number = 0;
  int64_t payloadBytes = 0;
};

/// Reads PipeHead::kBytes bytes. Allocates nothing but for an error.
Expected<PipeHead> parsePipeHead(Bytes bytes);
/// Reads all before the payload: `headerBytes` of the head.
Expected<PipeFrame> parsePipeFrame(Bytes header);
/// Printable ASCII within the limit.
bool isPipeToken(std::string_view token);
/// Writes what the above read. The frame is within the limits.
std::string pipeFrameHeader(const PipeFrame &frame);

} // namespace zerocc
