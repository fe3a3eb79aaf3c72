#pragma once

#include "tests/e2e/cli.h"

#include <sstream>

namespace zerocc::e2e {

/// `mpirun -n RANKS zero-run ARGUMENTS`, in the words that the build found: ZEROCC_MPIRUN.
inline CliResult mpirun(int ranks, const std::vector<std::string> &arguments) {
  std::istringstream words(ZEROCC_MPIRUN);
  std::vector<std::string> line;
  for (std::string word; words >> word;)
    line.push_back(word);
  const std::string program = line.front();
  line.erase(line.begin());
  line.insert(line.end(), {"-n", std::to_string(ranks), binary("zero-run")});
  line.insert(line.end(), arguments.begin(), arguments.end());
  return cli(program, line);
}

/// Of two programs at once: `mpirun -n 1 zero-run A : -n 1 zero-run B`.
inline CliResult mpirunTwo(std::vector<std::string> first, const std::vector<std::string> &second) {
  first.insert(first.end(), {":", "-n", "1", binary("zero-run")});
  first.insert(first.end(), second.begin(), second.end());
  return mpirun(1, first);
}

} // namespace zerocc::e2e
