#include "tests/fuzz/mutate_message.h"
#include "tests/fuzz/targets.h"

#include "compiler/onnx/importer.h"

#include "onnx/onnx_pb.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace zerocc {

void fuzzImport(const uint8_t *data, size_t size) {
  const std::string path = fileOf(data, size);
  ImportOptions options;
  options.microBatch = 2;
  ImportReport report;
  auto module = importOnnx(path, options, &report);
  if (!module)
    return;
  if (Status ok = checkModule(**module); !ok) { // what is imported must be well-formed
    std::fprintf(stderr, "%s\n", ok.error().text().c_str());
    std::abort();
  }
}

size_t mutateImport(uint8_t *data, size_t size, size_t capacity, unsigned seed) {
  onnx::ModelProto model;
  if (seed % 16 == 0 || !model.ParseFromArray(data, static_cast<int>(size)))
    return mutateBytes(data, size, capacity, seed);
  mutateMessage(model, seed);
  const std::string bytes = model.SerializePartialAsString();
  if (bytes.size() > capacity)
    return mutateBytes(data, size, capacity, seed);
  std::memcpy(data, bytes.data(), bytes.size());
  return bytes.size();
}

} // namespace zerocc
