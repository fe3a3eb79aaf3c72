#include "tools/table.h"

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/ConvertUTF.h"
#include "llvm/Support/Unicode.h"

#include <algorithm>
#include <cstdio>

namespace zerocc {
namespace {

constexpr const char *kEllipsis = "…";

/// Length of the UTF-8 character at `at`; 0 when there is none.
size_t characterLength(const std::string &text, size_t at) {
  auto *begin = reinterpret_cast<const llvm::UTF8 *>(text.data()) + at;
  auto *end = reinterpret_cast<const llvm::UTF8 *>(text.data()) + text.size();
  return llvm::isLegalUTF8Sequence(begin, end) ? llvm::getNumBytesForUTF8(*begin) : 0;
}

void appendEscaped(std::string &out, unsigned char byte) {
  static const char *digits = "0123456789abcdef";
  out += "\\x";
  out += digits[byte >> 4];
  out += digits[byte & 15];
}

std::string withUnit(double value, const char *unit) {
  char buffer[64];
  int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  std::snprintf(buffer, sizeof buffer, "%.*f %s", decimals, value, unit);
  return buffer;
}

/// `value` in the largest unit that leaves at least 1; the last unit takes all that is above.
std::string scaled(double value, double step, const std::vector<const char *> &units) {
  size_t unit = 0;
  while (unit + 1 < units.size() && value >= step * 0.9995) {
    value /= step;
    ++unit;
  }
  return withUnit(value, units[unit]);
}

std::string csvCell(const std::string &cell) {
  std::string text = printable(cell);
  if (text.find_first_of(",\"") == text.npos)
    return text;
  std::string out = "\"";
  for (char c : text) {
    if (c == '"')
      out += '"';
    out += c;
  }
  return out + "\"";
}

} // namespace

std::string printable(const std::string &text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    size_t length = characterLength(text, at);
    bool shown =
        length > 0 && llvm::sys::unicode::columnWidthUTF8(llvm::StringRef(text).substr(at, length)) >= 0;
    if (shown)
      out.append(text, at, length);
    for (size_t i = 0; !shown && i < std::max<size_t>(length, 1); ++i)
      appendEscaped(out, static_cast<unsigned char>(text[at + i]));
    at += std::max<size_t>(length, 1);
  }
  return out;
}

int textWidth(const std::string &text) { return std::max(0, llvm::sys::unicode::columnWidthUTF8(text)); }

std::string shorten(const std::string &text, int width) {
  std::string shown = printable(text);
  int rest = textWidth(shown);
  if (rest <= width)
    return shown;
  size_t at = 0;
  while (at < shown.size() && rest > width - 1) {
    size_t length = std::max<size_t>(characterLength(shown, at), 1);
    rest -= textWidth(shown.substr(at, length));
    at += length;
  }
  return kEllipsis + shown.substr(at);
}

std::string fit(const std::string &text, int width, Align align) {
  std::string shown = shorten(text, width);
  std::string fill(std::max(0, width - textWidth(shown)), ' ');
  return align == Align::left ? shown + fill : fill + shown;
}

std::string Table::text(int indent) const {
  std::vector<int> widths;
  bool hasTitles = false;
  for (size_t c = 0; c < columns_.size(); ++c) {
    int width = textWidth(printable(columns_[c].title));
    hasTitles |= width > 0;
    for (const std::vector<std::string> &row : rows_)
      if (c < row.size())
        width = std::max(width, textWidth(printable(row[c])));
    widths.push_back(columns_[c].maxWidth > 0 ? std::min(width, columns_[c].maxWidth) : width);
  }
  auto line = [&](auto cellOf) {
    std::string out(indent, ' ');
    for (size_t c = 0; c < columns_.size(); ++c)
      out += (c ? "  " : "") + fit(cellOf(c), widths[c], columns_[c].align);
    out.erase(out.find_last_not_of(' ') + 1);
    return out + "\n";
  };
  std::string rule = line([&](size_t c) { return std::string(widths[c], '-'); });
  std::string out;
  if (hasTitles)
    out = line([&](size_t c) { return columns_[c].title; }) + rule;
  for (const std::vector<std::string> &row : rows_)
    out += row.empty() ? rule : line([&](size_t c) { return c < row.size() ? row[c] : std::string(); });
  return out;
}

std::string Table::csv() const {
  std::string out;
  for (size_t c = 0; c < columns_.size(); ++c)
    out += (c ? "," : "") + csvCell(columns_[c].title);
  out += "\n";
  for (const std::vector<std::string> &row : rows_) {
    if (row.empty())
      continue;
    for (size_t c = 0; c < columns_.size(); ++c)
      out += (c ? "," : "") + (c < row.size() ? csvCell(row[c]) : std::string());
    out += "\n";
  }
  return out;
}

std::string formatCount(int64_t count) {
  std::string digits = std::to_string(count);
  size_t first = count < 0 ? 1 : 0;
  for (size_t at = digits.size(); at > first + 3;) {
    at -= 3;
    digits.insert(at, ",");
  }
  return digits;
}

std::string formatBytes(int64_t bytes) {
  if (bytes < 0)
    return "-" + formatBytes(bytes == INT64_MIN ? INT64_MAX : -bytes);
  if (bytes < 1024)
    return std::to_string(bytes) + " B";
  return scaled(static_cast<double>(bytes) / 1024, 1024, {"KiB", "MiB", "GiB", "TiB", "PiB"});
}

std::string formatBytesExactly(int64_t bytes) {
  if (bytes > -1024 && bytes < 1024)
    return formatBytes(bytes);
  return formatBytes(bytes) + " (" + formatCount(bytes) + " B)";
}

std::string formatRate(double bytesPerSecond) {
  return scaled(bytesPerSecond, 1000, {"B/s", "kB/s", "MB/s", "GB/s", "TB/s"});
}

std::string formatFlops(int64_t flops) {
  if (flops < 1000)
    return std::to_string(flops) + " FLOP";
  return scaled(static_cast<double>(flops) / 1000, 1000, {"kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP"});
}

std::string formatDuration(int64_t nanos) {
  if (nanos < 1000)
    return std::to_string(nanos) + " ns";
  return scaled(static_cast<double>(nanos) / 1000, 1000, {"us", "ms", "s"});
}

std::string formatShare(int64_t part, int64_t whole) {
  if (whole == 0)
    return "-";
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, "%.1f %%",
                100 * static_cast<double>(part) / static_cast<double>(whole));
  return buffer;
}

} // namespace zerocc
