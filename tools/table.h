#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace zerocc {

/// Text for a terminal: control and other unprintable characters and bytes that are not UTF-8 become \xNN.
/// Names come from files and may hold anything.
std::string printable(const std::string &text);

/// Columns that printable text takes on a terminal.
int textWidth(const std::string &text);

enum class Align : uint8_t { left, right };
/// Printable text in exactly `width` columns: filled with spaces, or cut with "…". Names are cut at the
/// front, where they are alike.
std::string fit(const std::string &text, int width, Align align = Align::left);
/// The same without filling.
std::string shorten(const std::string &text, int width);

/// Rows of cells in aligned columns. Cells may hold anything; they are made printable.
class Table {
public:
  struct Column {
    std::string title;
    Align align = Align::left;
    int maxWidth = 0; // cells are cut; 0: as wide as the widest
  };
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  /// Cells from the left; those left out are empty.
  void add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  /// A line between the rows before and those behind.
  void addRule() { rows_.push_back({}); }
  bool empty() const { return rows_.empty(); }

  /// Titles (when any column has one), a rule, the rows. Each line is indented and ends without spaces.
  std::string text(int indent = 2) const;
  /// RFC 4180, titles first, without rules.
  std::string csv() const;

private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_; // an empty one is a rule
};

/// 1234567 -> "1,234,567".
std::string formatCount(int64_t count);
/// Binary units, three digits: "512 B", "1.17 MiB".
std::string formatBytes(int64_t bytes);
/// "1.17 MiB (1,226,834 B)"; below 1 KiB just "512 B".
std::string formatBytesExactly(int64_t bytes);
/// Decimal units, as links are sold: "12.3 GB/s".
std::string formatRate(double bytesPerSecond);
/// "27.1 MFLOP".
std::string formatFlops(int64_t flops);
/// "850 ns", "12.3 us", "1.50 ms", "2.00 s".
std::string formatDuration(int64_t nanos);
/// "12.3 %"; of nothing: "-".
std::string formatShare(int64_t part, int64_t whole);

} // namespace zerocc
