#pragma once

#include "compiler/support/expected.h"

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

namespace zerocc {

/// What one step tells. Fields that are not known stay NaN or -1 and are left out.
struct StepMetrics {
  int64_t step = 0; // steps done, from 1
  double loss = kUnknown;
  double lr = kUnknown;
  double gradNorm = kUnknown;
  double stepMillis = kUnknown;
  double tokensPerSecond = kUnknown;
  int64_t skipped = -1;    // steps skipped so far
  double lossScale = kUnknown; // of the next step, where losses are scaled
  int64_t memoryPeak = -1; // bytes per rank
  int64_t wireBytes = -1;  // bytes received per rank in this step
  double evalLoss = kUnknown;
  /// A value that was computed and is not finite is written as null; this one is not written.
  static constexpr double kUnknown = -1.7976931348623157e308;
};

/// `--metrics FILE`: one JSON object a line, one line a step, flushed, so that it can be followed and read
/// after a crash. Numbers are the shortest that read back as the same double.
class MetricsFile {
public:
  /// `append`: a resumed run goes on behind what is there.
  static Expected<MetricsFile> open(const std::string &path, bool append);
  Status write(const StepMetrics &metrics);

private:
  struct Close {
    void operator()(std::FILE *file) const { std::fclose(file); }
  };
  MetricsFile(std::string path, std::FILE *file) : path_(std::move(path)), file_(file) {}
  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
};

/// Takes the rows behind a step out of a metrics file, and a last row that was cut off: a run that is resumed there writes
/// them again. Returns how many went. A file that is not there has none.
Expected<int64_t> dropRowsBehind(const std::string &path, int64_t step);

/// One line of JSON with its newline into `line`; returns its length.
int formatMetrics(const StepMetrics &metrics, char *line, int capacity);

/// Progress for people: on a terminal one line that is written over, at most ten times a second; elsewhere (a
/// log) a line at most every five seconds. The last step is always shown. Time is handed in, in seconds from
/// any start.
class Progress {
public:
  Progress(std::FILE *out, bool isTerminal, int64_t firstStep, int64_t lastStep, double now);
  /// To standard error, as a terminal or not.
  Progress(int64_t firstStep, int64_t lastStep, double now);

  void step(const StepMetrics &metrics, double now);
  /// Ends the line, before other text is printed.
  void finish();

private:
  std::FILE *out_;
  bool isTerminal_;
  int64_t firstStep_, lastStep_; // steps done at the start, and at the end
  double started_, shown_;
  bool lineIsOpen_ = false;
};

} // namespace zerocc
