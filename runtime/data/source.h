#pragma once

#include "compiler/support/expected.h"
#include "runtime/data/array.h"

#include <string>
#include <vector>

namespace zerocc {

/// What is bound to an input on the command line:
///
///     [NAME=]text:FILE[RANGE]     the bytes of any file, each a token
///     [NAME=]FILE.bin[RANGE]      tokens: 16 bit without a header (nanoGPT), or llm.c's header and 16 or 32 bit; with
///                                 FILE.idx beside it, the documents of Megatron-LM as one stream
///     [NAME=]FILE.npy[RANGE]      one dim: a stream of tokens, or a value a sample; more: the leading one is samples
///     [NAME=]FILE.npz[RANGE]      several of these; without NAME each array goes to the input of its name
///     [NAME=]mix:W*SOURCE,W*SOURCE,…   samples of several of the above in exact proportion (mixture.h)
///     pipe:COMMAND                frames that a command writes, one a micro-batch (pipe_frame.h)
///
/// FILE may be a pattern (shards/*.bin): the files, sorted by name, are one stream, or one array of samples.
///
/// RANGE keeps a part, for an evaluation split: [A:B], counted in tokens, bytes or samples (the leading dim),
/// or in percent: text:book.txt[0%:90%] to train on, text:book.txt[90%:] to evaluate on. Either end may be
/// left out.
///
/// W is a decimal number above 0; only the weights' proportions count. A comma that is not followed by W* belongs to the
/// name before it.
struct SourceText {
  enum class Kind : uint8_t { text, bin, npy, npz, mixture, pipe } kind = Kind::text;
  std::string input; // NAME, or empty
  std::string path;  // file, pattern, or COMMAND; of a mixture empty
  std::string range; // with its brackets, or empty
  std::string text = {};  // as given, without NAME=
  std::vector<SourceText> parts = {}; // of a mixture
  int64_t weight = 1;    // of a part: in whole numbers without a common divisor
};

/// `inputs`: names that may stand before '='; a path may itself contain one.
Expected<SourceText> parseSource(const std::string &text, const std::vector<std::string> &inputs);

/// The indices that a RANGE keeps of `count`. Percents round down.
struct IndexRange {
  int64_t begin = 0, end = 0;
};
Expected<IndexRange> resolveRange(const std::string &range, int64_t count);

/// A stream of tokens of one file of a text: or .bin source, without regard to its RANGE.
Expected<ArrayView> readTokens(const SourceText &source);

} // namespace zerocc
