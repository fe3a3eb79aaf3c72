// The baseline of tools/demo: a model that knows only the byte before.
//
//     bigram 'text:book.txt[0%:95%]' 'text:book.txt[95%:]'
//
// counts pairs of neighbouring bytes in the first source and prints the mean over the second of
// -ln P(next | byte), natural logarithm, with add-one smoothing over all 256 bytes. The sources are read by
// zero-run's own code, so both models see the same split.

#include "runtime/data/source.h"
#include "tools/command.h"

#include <array>
#include <cmath>
#include <cstdio>

namespace zerocc {
namespace {

constexpr size_t kBytes = 256;

/// Row: the byte before; column: the byte after.
using Counts = std::array<std::array<int64_t, kBytes>, kBytes>;

struct ByteRange {
  ArrayView file; // keeps the bytes alive
  const unsigned char *begin = nullptr, *end = nullptr;
};

Expected<ByteRange> openBytes(const std::string &text) {
  ZEROCC_ASSIGN(SourceText source, parseSource(text, {}));
  if (source.kind != SourceText::Kind::text)
    return Error(text + ": the bigram model reads bytes only", "write text:" + text);
  ZEROCC_ASSIGN(ArrayView file, readTokens(source));
  ZEROCC_ASSIGN(IndexRange range, resolveRange(source.range, file.elements));
  if (range.end - range.begin < 2)
    return Error(text + ": holds " + std::to_string(range.end - range.begin) + " bytes, a pair needs 2");
  return ByteRange{file, file.data + range.begin, file.data + range.end};
}

Counts countPairs(const ByteRange &bytes) {
  Counts counts{};
  for (const unsigned char *b = bytes.begin; b + 1 < bytes.end; ++b)
    ++counts[b[0]][b[1]];
  return counts;
}

// P(next | byte) = (count(byte, next) + 1) / (count(byte, any) + 256)
double meanLoss(const Counts &trained, const ByteRange &bytes) {
  Counts evaluated = countPairs(bytes);
  double sum = 0;
  for (size_t byte = 0; byte < kBytes; ++byte) {
    int64_t total = kBytes;
    for (int64_t count : trained[byte])
      total += count;
    for (size_t next = 0; next < kBytes; ++next)
      sum -= static_cast<double>(evaluated[byte][next]) *
             std::log(static_cast<double>(trained[byte][next] + 1) / static_cast<double>(total));
  }
  return sum / static_cast<double>(bytes.end - bytes.begin - 1);
}

Status evaluateBigram(const std::string &train, const std::string &evaluation) {
  ZEROCC_ASSIGN(ByteRange trainBytes, openBytes(train));
  ZEROCC_ASSIGN(ByteRange evaluationBytes, openBytes(evaluation));
  std::printf("bigram: validation loss %.4f\n", meanLoss(countPairs(trainBytes), evaluationBytes));
  return success();
}

} // namespace
} // namespace zerocc

int main(int argc, char **argv) {
  using namespace zerocc;
  CLI::App app("bigram: validation loss of a bigram model over bytes, beside which tools/demo puts its own",
               "bigram");
  std::string train, evaluation;
  app.add_option("TRAIN", train, "text:FILE[RANGE] to count pairs in")->required();
  app.add_option("EVALUATE", evaluation, "text:FILE[RANGE] to evaluate on")->required();
  app.footer("Example:\n  bigram 'text:book.txt[0%:95%]' 'text:book.txt[95%:]'");
  auto arguments = expandArguments(argc, argv);
  if (!arguments) {
    refuse(arguments.error());
    return kWrongCommandLine;
  }
  Run run = [&] {
    Status done = evaluateBigram(train, evaluation);
    return done ? static_cast<int>(kDone) : refuse(done.error());
  };
  return runApp(app, *arguments, run);
}
