#include "passes/packing_csv.h"

#include "compiler/support/write_file.h"

#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"

#include <algorithm>
#include <fstream>
#include <sstream>

namespace zerocc {
namespace {

constexpr int64_t kMaxValue = int64_t(1) << 50; // sums of sizes stay far from overflow
constexpr int64_t kMaxAlignment = int64_t(1) << 30;

Expected<int64_t> parseNumber(llvm::StringRef text, const std::string &where, int64_t low, int64_t high) {
  int64_t value = 0;
  if (text.trim().getAsInteger(10, value) || value < low || value > high)
    return Error(where + ": \"" + text.str() + "\" is not a whole number from " + std::to_string(low) +
                 " to " + std::to_string(high));
  return value;
}

/// Which column holds what; -1: none.
struct Columns {
  int id = -1, lower = -1, upper = -1, size = -1, alignment = -1;
};

Expected<Columns> parseHeader(llvm::StringRef line, const std::string &name) {
  Columns columns;
  llvm::SmallVector<llvm::StringRef, 8> fields;
  line.split(fields, ',');
  for (int i = 0; i < static_cast<int>(fields.size()); ++i) {
    llvm::StringRef field = fields[i].trim();
    int *column = field == "id"          ? &columns.id
                  : field == "lower"     ? &columns.lower
                  : field == "upper"     ? &columns.upper
                  : field == "size"      ? &columns.size
                  : field == "alignment" ? &columns.alignment
                                         : nullptr;
    if (column)
      *column = i;
  }
  if (columns.id < 0 || columns.lower < 0 || columns.upper < 0 || columns.size < 0)
    return Error(name + ": first line is \"" + line.str() + "\", expected columns id, lower, upper, size");
  return columns;
}

} // namespace

Expected<CsvBuffers> parseCsvBuffers(const std::string &text, const std::string &name) {
  std::istringstream lines(text);
  std::string line;
  std::getline(lines, line);
  ZEROCC_ASSIGN(Columns columns, parseHeader(llvm::StringRef(line).trim(), name));
  CsvBuffers csv;
  for (int number = 2; std::getline(lines, line); ++number) {
    llvm::StringRef trimmed = llvm::StringRef(line).trim();
    if (trimmed.empty())
      continue;
    std::string where = name + ", line " + std::to_string(number);
    llvm::SmallVector<llvm::StringRef, 8> fields;
    trimmed.split(fields, ',');
    int last = std::max({columns.id, columns.lower, columns.upper, columns.size, columns.alignment});
    if (last >= static_cast<int>(fields.size()))
      return Error(where + ": has " + std::to_string(fields.size()) + " columns, expected at least " +
                   std::to_string(last + 1));
    PackBuffer buffer;
    ZEROCC_ASSIGN(buffer.lower, parseNumber(fields[columns.lower], where + ", lower", -kMaxValue, kMaxValue));
    ZEROCC_ASSIGN(buffer.upper, parseNumber(fields[columns.upper], where + ", upper", -kMaxValue, kMaxValue));
    ZEROCC_ASSIGN(buffer.size, parseNumber(fields[columns.size], where + ", size", 0, kMaxValue));
    buffer.alignment = 1;
    if (columns.alignment >= 0) {
      ZEROCC_ASSIGN(buffer.alignment,
                    parseNumber(fields[columns.alignment], where + ", alignment", 1, kMaxAlignment));
    }
    csv.ids.push_back(fields[columns.id].trim().str());
    csv.buffers.push_back(buffer);
  }
  int64_t total = 0;
  for (const PackBuffer &buffer : csv.buffers)
    if (__builtin_add_overflow(total, buffer.size + buffer.alignment, &total))
      return Error(name + ": sizes add up to more than 2^63 bytes");
  return csv;
}

std::string printCsvPacking(const CsvBuffers &csv, const Packing &packing) {
  std::ostringstream out;
  out << "id,lower,upper,size,offset\n";
  for (size_t i = 0; i < csv.buffers.size(); ++i) {
    const PackBuffer &buffer = csv.buffers[i];
    out << csv.ids[i] << "," << buffer.lower << "," << buffer.upper << "," << buffer.size << ","
        << packing.offsets[i] << "\n";
  }
  return out.str();
}

Expected<CsvPacking> packCsv(const std::string &file, const std::string &output) {
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  if (!in)
    return Error(file + ": cannot be read");
  ZEROCC_ASSIGN(CsvBuffers csv, parseCsvBuffers(text.str(), file));
  Packing packing = pack(csv.buffers);
  if (!output.empty())
    ZEROCC_TRY(writeWholeFile(output, printCsvPacking(csv, packing)));
  return CsvPacking{static_cast<int64_t>(csv.buffers.size()), packing.peak, packing.lowerBound,
                    packing.order};
}

} // namespace zerocc
