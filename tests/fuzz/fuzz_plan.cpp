#include "tests/fuzz/mutate_message.h"
#include "tests/fuzz/targets.h"

#include "runtime/plan/plan.h"
#include "runtime/plan/report.h"
#include "runtime/plan/verify.h"

#include <cstring>

namespace zerocc {

void fuzzPlan(const uint8_t *data, size_t size) {
  const std::string bytes(reinterpret_cast<const char *>(data), size);
  (void)decodePlan(bytes, "fuzz"); // without a right head
  plan::Plan plan;
  if (!plan.ParseFromString(bytes))
    return;
  plan.set_version(kPlanVersion); // else plans of the corpus would end at this rule once the version has moved
  auto decoded = decodePlan(encodePlan(plan), "fuzz");
  if (decoded && verifyPlan(*decoded).empty())
    for (const plan::Segment &segment : decoded->segments()) // sound: its figures can be taken
      for (const plan::Instruction &instruction : segment.instructions())
        (void)receivedBytes(*decoded, instruction);
}

size_t mutatePlan(uint8_t *data, size_t size, size_t capacity, unsigned seed) {
  plan::Plan plan;
  if (seed % 16 == 0 || !plan.ParseFromArray(data, static_cast<int>(size)))
    return mutateBytes(data, size, capacity, seed);
  mutateMessage(plan, seed);
  const std::string bytes = plan.SerializeAsString();
  if (bytes.size() > capacity)
    return mutateBytes(data, size, capacity, seed);
  std::memcpy(data, bytes.data(), bytes.size());
  return bytes.size();
}

} // namespace zerocc
