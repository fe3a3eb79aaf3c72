#include "runtime/data/metrics.h"

#include "runtime/data/atomic_file.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <unistd.h>

namespace zerocc {

constexpr int kLineBytes = 512;

namespace {

/// Appends to a buffer that does not grow; what does not fit is dropped.
class Line {
public:
  Line(char *begin, int capacity) : begin_(begin), at_(begin), end_(begin + capacity) {}

  void text(std::string_view text) {
    size_t count = std::min<size_t>(text.size(), end_ - at_);
    std::memcpy(at_, text.data(), count);
    at_ += count;
  }
  void integer(int64_t value) { at_ = std::to_chars(at_, end_, value).ptr; }
  void real(double value) { at_ = std::to_chars(at_, end_, value).ptr; } // shortest that reads back
  void fixed(double value, int decimals) {
    at_ = std::to_chars(at_, end_, value, std::chars_format::fixed, decimals).ptr;
  }
  void significant(double value, int digits) {
    if (std::isnan(value)) // without a sign
      return text("nan");
    at_ = std::to_chars(at_, end_, value, std::chars_format::general, digits).ptr;
  }
  int size() const { return static_cast<int>(at_ - begin_); }
  std::string_view view() const { return {begin_, static_cast<size_t>(at_ - begin_)}; }

private:
  char *begin_, *at_, *end_;
};

} // namespace

static bool isKnown(double value) { return value != StepMetrics::kUnknown; }

static void member(Line &line, std::string_view key, double value) {
  if (!isKnown(value))
    return;
  line.text(",\"");
  line.text(key);
  line.text("\":");
  if (std::isfinite(value))
    line.real(value);
  else
    line.text("null"); // JSON has no NaN
}

static void member(Line &line, std::string_view key, int64_t value) {
  if (value < 0)
    return;
  line.text(",\"");
  line.text(key);
  line.text("\":");
  line.integer(value);
}

int formatMetrics(const StepMetrics &metrics, char *buffer, int capacity) {
  Line line(buffer, capacity);
  line.text("{\"step\":");
  line.integer(metrics.step);
  member(line, "loss", metrics.loss);
  member(line, "lr", metrics.lr);
  member(line, "grad_norm", metrics.gradNorm);
  member(line, "step_ms", metrics.stepMillis);
  member(line, "tokens_per_s", metrics.tokensPerSecond);
  member(line, "skipped", metrics.skipped);
  member(line, "loss_scale", metrics.lossScale);
  member(line, "memory_peak", metrics.memoryPeak);
  member(line, "wire_bytes", metrics.wireBytes);
  member(line, "eval_loss", metrics.evalLoss);
  line.text("}\n");
  return line.size();
}

Expected<MetricsFile> MetricsFile::open(const std::string &path, bool append) {
  std::FILE *file = std::fopen(path.c_str(), append ? "a" : "w");
  if (!file)
    return Error(path + ": cannot be written: " + std::generic_category().message(errno));
  return MetricsFile(path, file);
}

Status MetricsFile::write(const StepMetrics &metrics) {
  char line[kLineBytes];
  size_t bytes = formatMetrics(metrics, line, kLineBytes);
  if (std::fwrite(line, 1, bytes, file_.get()) != bytes || std::fflush(file_.get()) != 0)
    return Error(path_ + ": cannot be written: " + std::generic_category().message(errno));
  return success();
}

Expected<int64_t> dropRowsBehind(const std::string &path, int64_t step) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored))
    return 0;
  ZEROCC_ASSIGN(std::shared_ptr<const MappedFile> file, MappedFile::open(path));
  const std::string_view all(reinterpret_cast<const char *>(file->bytes().data()), file->bytes().size());
  constexpr std::string_view kStart = "{\"step\":";
  std::string kept;
  int64_t dropped = 0;
  for (size_t at = 0; at < all.size();) {
    const size_t end = all.find('\n', at);
    const std::string_view row = all.substr(at, end == std::string_view::npos ? end : end + 1 - at);
    int64_t number = 0;
    if (row.starts_with(kStart))
      std::from_chars(row.data() + kStart.size(), row.data() + row.size(), number);
    if (number > step || !row.ends_with('\n'))
      ++dropped;
    else
      kept += row;
    at += row.size();
  }
  if (dropped == 0)
    return 0;
  ZEROCC_ASSIGN(AtomicFile out, AtomicFile::create(path));
  ZEROCC_TRY(out.write(kept));
  ZEROCC_TRY(out.commit());
  return dropped;
}

// --- progress
// ----------------------------------------------------------------------------------------------------------

constexpr double kTerminalSeconds = 0.1, kLogSeconds = 5;

Progress::Progress(std::FILE *out, bool isTerminal, int64_t firstStep, int64_t lastStep, double now)
    : out_(out), isTerminal_(isTerminal), firstStep_(firstStep), lastStep_(lastStep), started_(now),
      shown_(-HUGE_VAL) {}

Progress::Progress(int64_t firstStep, int64_t lastStep, double now)
    : Progress(stderr, ::isatty(STDERR_FILENO) == 1, firstStep, lastStep, now) {}

/// 3 s, 2 min 05 s, 1 h 05 min
static void duration(Line &line, double seconds) {
  int64_t whole = static_cast<int64_t>(std::min(seconds + 0.5, 1e12));
  auto two = [&](int64_t value) {
    line.text(value < 10 ? "0" : "");
    line.integer(value);
  };
  if (whole >= 3600) {
    line.integer(whole / 3600);
    line.text(" h ");
    two(whole / 60 % 60);
    line.text(" min");
  } else if (whole >= 60) {
    line.integer(whole / 60);
    line.text(" min ");
    two(whole % 60);
    line.text(" s");
  } else {
    line.integer(whole);
    line.text(" s");
  }
}

void Progress::step(const StepMetrics &metrics, double now) {
  bool isLast = metrics.step >= lastStep_;
  if (!isLast && now - shown_ < (isTerminal_ ? kTerminalSeconds : kLogSeconds))
    return;
  shown_ = now;
  char buffer[kLineBytes];
  Line line(buffer, kLineBytes - 8); // room for the ends of line
  line.text("step ");
  line.integer(metrics.step);
  line.text("/");
  line.integer(lastStep_);
  if (isKnown(metrics.loss)) {
    line.text("  loss ");
    line.fixed(metrics.loss, 4);
  }
  if (isKnown(metrics.gradNorm)) {
    line.text("  norm ");
    line.significant(metrics.gradNorm, 3);
  }
  if (isKnown(metrics.lr)) {
    line.text("  lr ");
    line.significant(metrics.lr, 3);
  }
  if (isKnown(metrics.tokensPerSecond)) {
    line.text("  ");
    line.fixed(metrics.tokensPerSecond, 0);
    line.text(" tokens/s");
  } else if (isKnown(metrics.stepMillis)) {
    line.text("  ");
    line.significant(metrics.stepMillis, 3);
    line.text(" ms");
  }
  int64_t done = metrics.step - firstStep_, all = std::max<int64_t>(lastStep_ - firstStep_, 1);
  line.text("  ");
  line.integer(std::clamp<int64_t>(done * 100 / all, 0, 100));
  line.text("%");
  if (!isLast && done > 0) {
    line.text("  ");
    duration(line, (now - started_) / double(done) * double(all - done));
    line.text(" left");
  }
  if (metrics.skipped > 0) {
    line.text("  skipped ");
    line.integer(metrics.skipped);
  }
  std::string_view text = line.view();
  if (isTerminal_) // over the line before, and clear what is left of it
    std::fprintf(out_, "\r%.*s\x1b[K", int(text.size()), text.data());
  else
    std::fprintf(out_, "%.*s\n", int(text.size()), text.data());
  std::fflush(out_);
  lineIsOpen_ = isTerminal_;
  if (isLast)
    finish();
}

void Progress::finish() {
  if (!lineIsOpen_)
    return;
  std::fputc('\n', out_);
  std::fflush(out_);
  lineIsOpen_ = false;
}

} // namespace zerocc
