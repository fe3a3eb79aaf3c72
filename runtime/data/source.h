#pragma once

#include "compiler/support/expected.h"
#include "runtime/data/array.h"

#include <string>
#include <vector>

namespace zerocc {

/// What is bound to an input on the command line:
///
///     [NAME=]text:FILE[RANGE]     the bytes of any file, each a token
///     [NAME=]FILE.bin[RANGE]      tokens: 16 bit without a header (nanoGPT), or llm.c's header and 16 or 32
///     bit; with FILE.idx beside it, the documents of Megatron-LM as one stream
///     [NAME=]FILE.npy[RANGE]      one dim: a stream of tokens, or a value a sample; more: the leading
///     one is samples [NAME=]FILE.npz[RANGE]      several of these; without NAME each array goes to the input
///     of its name
///
/// RANGE keeps a part, for an evaluation split: [A:B], counted in tokens, bytes or samples (the leading dim),
/// or in percent: text:book.txt[0%:90%] to train on, text:book.txt[90%:] to evaluate on. Either end may be
/// left out.
struct SourceText {
  enum class Kind : uint8_t { text, bin, npy, npz } kind = Kind::text;
  std::string input; // NAME, or empty
  std::string path;
  std::string range; // with its brackets, or empty
};

/// `inputs`: names that may stand before '='; a path may itself contain one.
Expected<SourceText> parseSource(const std::string &text, const std::vector<std::string> &inputs);

/// The indices that a RANGE keeps of `count`. Percents round down.
struct IndexRange {
  int64_t begin = 0, end = 0;
};
Expected<IndexRange> resolveRange(const std::string &range, int64_t count);

/// A stream of tokens of a text: or .bin source, without regard to its RANGE.
Expected<ArrayView> readTokens(const SourceText &source);

} // namespace zerocc
