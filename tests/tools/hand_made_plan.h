#pragma once

#include "compiler/ops/op_kind.h"
#include "compiler/support/dtype.h"
#include "runtime/plan/plan.h"

#include <string>
#include <vector>

namespace zerocc {

/// Writes small plans by hand, for tests of what reads plans. Only what a report looks at is filled in.
class HandMadePlan {
public:
  enum Region : uint32_t { kPersistent, kCarried, kArena, kInputs };
  enum Stream : uint32_t { kCompute, kGather, kReduce };

  HandMadePlan(uint64_t shard, uint64_t replicate = 1, uint32_t microSteps = 1) {
    plan.set_version(kPlanVersion);
    plan.mutable_mesh()->set_shard(shard);
    plan.mutable_mesh()->set_replicate(replicate);
    plan.set_micro_steps(microSteps);
    plan.set_micro_batch(1);
    for (const char *name : {"persistent", "carried", "arena", "inputs"})
      plan.add_regions()->set_name(name);
    plan.add_groups("decay");
  }

  plan::Plan plan;

  /// A bucket with the given parameters (name, dims), one behind the other at multiples of 32.
  int bucket(const std::vector<std::pair<std::string, std::vector<int64_t>>> &parameters,
             const std::string &parameterField, const std::string &gradientField,
             const std::string &stateField, bool trainable = true, DType dtype = DType::f32) {
    int number = plan.buckets_size();
    plan::Bucket *bucket = plan.add_buckets();
    bucket->set_name("b" + std::to_string(number));
    bucket->set_fetch_dtype(static_cast<uint32_t>(dtype));
    bucket->set_gradient_dtype(static_cast<uint32_t>(dtype));
    bucket->set_trainable(trainable);
    bucket->set_parameters(parameterField);
    bucket->set_gradients(gradientField);
    bucket->set_states(stateField);
    uint64_t end = 0, elements = 0;
    for (const auto &[name, dims] : parameters) {
      plan::Parameter *parameter = plan.add_parameters();
      uint64_t begin = roundUp(end, 32), count = 1;
      for (int64_t dim : dims) {
        parameter->add_dims(dim);
        count *= static_cast<uint64_t>(dim);
      }
      end = begin + count;
      elements += count;
      parameter->set_name(name);
      parameter->set_initializer(name);
      parameter->set_dtype(static_cast<uint32_t>(dtype));
      parameter->set_trainable(trainable);
      parameter->set_bucket(static_cast<uint32_t>(number));
      parameter->set_bucket_offset(begin);
      plan::Range *range = bucket->add_ranges();
      range->set_parameter(static_cast<uint32_t>(plan.parameters_size() - 1));
      range->set_begin(begin);
      range->set_end(end);
    }
    bucket->set_elements(elements);
    bucket->set_padded_elements(roundUp(end, 32 * plan.mesh().shard() * plan.mesh().replicate()));
    return number;
  }
  int64_t padded(int bucket) const { return static_cast<int64_t>(plan.buckets(bucket).padded_elements()); }
  int64_t part(int bucket) const { return padded(bucket) / static_cast<int64_t>(plan.mesh().shard()); }

  plan::Storage *storage(const std::string &name, plan::Storage::Kind kind, int bucket, bool sharded,
                         Region region, uint64_t offset) {
    plan::Storage *storage = plan.add_storages();
    storage->set_name(name);
    storage->set_kind(kind);
    storage->set_bucket(bucket);
    storage->set_sharded(sharded);
    storage->set_region(region);
    storage->set_offset(offset);
    if (bucket >= 0)
      storage->set_elements(static_cast<uint64_t>(sharded ? part(bucket) : padded(bucket)));
    return storage;
  }

  plan::Segment *segment(const std::string &name) {
    plan::Segment *segment = plan.add_segments();
    segment->set_name(name);
    return segment;
  }

  static plan::Operand operand(Region region, uint64_t offset, std::vector<int64_t> dims,
                               DType dtype = DType::f32) {
    plan::Operand operand;
    operand.set_region(region);
    operand.set_offset(offset);
    operand.set_dtype(static_cast<uint32_t>(dtype));
    operand.mutable_dims()->Add(dims.begin(), dims.end());
    return operand;
  }

  static plan::Instruction *add(plan::Segment *segment, OpKind op, const std::vector<plan::Operand> &inputs,
                                const std::vector<plan::Operand> &results, const std::string &location = "",
                                int bucket = -1, Stream stream = kCompute) {
    plan::Instruction *instruction = segment->add_instructions();
    instruction->set_op(static_cast<uint32_t>(op));
    for (const plan::Operand &input : inputs)
      *instruction->add_inputs() = input;
    for (const plan::Operand &result : results)
      *instruction->add_results() = result;
    instruction->set_location(location);
    instruction->set_bucket(bucket);
    instruction->set_stream(stream);
    return instruction;
  }

  /// `waiter` begins after `awaited`.
  static void after(plan::Segment *segment, plan::Instruction *waiter, plan::Instruction *awaited) {
    if (awaited->record() == 0) {
      segment->set_events(segment->events() + 1);
      awaited->set_record(segment->events());
    }
    waiter->add_wait(awaited->record());
  }

private:
  static uint64_t roundUp(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }
};

} // namespace zerocc
