#include "tests/fuzz/targets.h"

#include "tools/ds_config.h"

#include <cstring>
#include <random>
#include <set>
#include <string>

namespace zerocc {

/// What is accepted is told: each row says something, no flag is given twice or beside one of the command line. What is
/// refused says where.
void fuzzDsConfig(const uint8_t *data, size_t size) {
  const std::string text(reinterpret_cast<const char *>(data), size);
  DsContext contexts[3];
  contexts[1] = {4, {{"--mesh", "shard=2,replicate=2"}, {"--micro-batch", "3"}, {"--lr", "0.1"}}};
  contexts[2] = {2, {{"--optimizer", "sgd"}, {"--grad-accumulation", "2"}, {"--lr-schedule", "cosine"}}};
  for (const DsContext &context : contexts) {
    auto config = readDsConfig(text, "fuzz", context);
    if (!config) {
      for (const Diagnostic &finding : config.error().findings()) {
        require(finding.message.rfind("fuzz:", 0) == 0, "a finding without a place");
        const std::string unread = " is known, but not read"; // a key may be called so, too
        const size_t at = finding.message.rfind(unread);
        require(at == std::string::npos || at + unread.size() < finding.message.size(), "a key that is not read");
      }
      continue;
    }
    std::set<std::string> flags;
    for (const DsFlag &flag : config->flags)
      require(flags.insert(flag.flag).second && !context.given.count(flag.flag), "a flag given twice");
    for (const DsReportRow &row : config->rows)
      require(!row.key.empty() && !row.value.empty() && !row.became.empty(), "a row that says nothing");
    (void)dsReport(*config, "fuzz");
  }
}

/// Keys become other known keys, and values other values, so that the JSON stays whole most of the time.
size_t mutateDsConfig(uint8_t *data, size_t size, size_t capacity, unsigned seed) {
  std::minstd_rand random(seed + 3);
  std::string text(reinterpret_cast<const char *>(data), size);
  static const std::vector<DsKey> keys = dsKeys();
  if (seed % 4 == 0 || text.find('"') == std::string::npos)
    return mutateBytes(data, size, capacity, seed);
  for (unsigned i = 0, changes = 1 + random() % 3; i < changes; ++i) {
    const size_t begin = text.find(seed % 2 ? '"' : ':', random() % text.size());
    if (begin == std::string::npos)
      continue;
    if (seed % 2) {
      const size_t end = text.find('"', begin + 1);
      if (end == std::string::npos)
        continue;
      const std::string &path = keys[random() % keys.size()].path;
      text.replace(begin + 1, end - begin - 1, path.substr(path.rfind('.') + 1));
    } else {
      const size_t end = text.find_first_of(",}", begin);
      const char *values[] = {"0", "1", "-1", "2.5", "1e9", "9223372036854775807", "true", "false", "null", "\"auto\"", "{}",
                              "[]", "[0.9, 0.99]", "\"cpu\"", "\"AdamW\"", "\"OneCycle\"", "{\"enabled\": true}", "1e999"};
      if (end != std::string::npos)
        text.replace(begin + 1, end - begin - 1, values[random() % std::size(values)]);
    }
  }
  if (text.size() > capacity)
    return mutateBytes(data, size, capacity, seed);
  std::memcpy(data, text.data(), text.size());
  return text.size();
}

} // namespace zerocc
