#include "passes/packing_csv.h"
#include "tools/command.h"

#include <iostream>

namespace zerocc {

void addPackCommand(CLI::App &app, Run &run) {
  struct Flags {
    std::string file, output;
    int64_t capacity = 0;
  };
  auto flags = std::make_shared<Flags>();
  CLI::App *command = app.add_subcommand("pack", "offset packing alone: buffers with lifetimes into one arena");
  command->footer("FILE: CSV with the columns id,lower,upper,size (half-open lifetimes).\n"
                  "Example:\n  zerocc pack buffers.csv --capacity 1048576 -o packed.csv");
  command->add_option("FILE", flags->file, "buffers as CSV")->required();
  command->add_option("--capacity", flags->capacity, "bytes that must do");
  command->add_option("-o,--output", flags->output, "CSV with an offset column");
  command->callback([flags, &run] {
    run = [flags] {
      auto packed = packCsv(flags->file, flags->output);
      if (!packed)
        return refuse(packed.error());
      std::cout << "buffers " << packed->buffers << ", peak " << packed->peak << ", lower bound " << packed->lowerBound
                << ", ratio " << (packed->lowerBound > 0 ? static_cast<double>(packed->peak) / static_cast<double>(packed->lowerBound) : 1.0)
                << ", order " << packed->order << "\n";
      if (flags->capacity > 0 && packed->peak > flags->capacity)
        return refuse(Error("needs " + std::to_string(packed->peak) + " bytes, capacity is " +
                            std::to_string(flags->capacity)));
      return static_cast<int>(kDone);
    };
  });
}

} // namespace zerocc
