#pragma once

#include "compiler/support/expected.h"
#include "passes/packing.h"

#include <string>
#include <vector>

namespace zerocc {

/// Buffers of a table of comma-separated values, in the form of MiniMalloc's benchmarks.
struct CsvBuffers {
  std::vector<std::string> ids;
  std::vector<PackBuffer> buffers; // lifetimes half open; alignment 1 unless there is a column for it
};

/// Reads columns `id`, `lower`, `upper`, `size` and, if present, `alignment`, in any order; others are ignored.
Expected<CsvBuffers> parseCsvBuffers(const std::string &text, const std::string &name);

/// The table `id,lower,upper,size,offset`.
std::string printCsvPacking(const CsvBuffers &csv, const Packing &packing);

struct CsvPacking {
  int64_t buffers = 0, peak = 0, lowerBound = 0;
  std::string order;
};

/// Packs the buffers of a file and writes them with their offsets to `output` (empty: nowhere).
Expected<CsvPacking> packCsv(const std::string &file, const std::string &output);

} // namespace zerocc
