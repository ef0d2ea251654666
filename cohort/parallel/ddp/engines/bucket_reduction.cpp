#include "cohort/parallel/ddp/engines/bucket_reduction.h"

#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "cohort/base/system/env.h"
#include "cohort/comm/collectives/collectives.h"
#include "cohort/comm/error/throw_error.h"
#include "cohort/comm/group/group_backend.h"
#include "cohort/parallel/ddp/settings/hook_result.h"

namespace cohort::ddp {
namespace {

// Whether there is a core besides the one on which backward runs. Depends on the machine's cores only: all ranks must decide
// alike, since it determines the order of their operations.
bool has_core_to_overlap(const Group& group) {
  const auto wanted = comm::or_throw_value(base::env_bool("COHORT_DDP_OVERLAP"));
  if (wanted) return *wanted;
  const auto local_world_size = base::env_int("LOCAL_WORLD_SIZE");
  const auto num_local = local_world_size.ok() ? local_world_size->value_or(1) : 1;
  return ::sysconf(_SC_NPROCESSORS_ONLN) / std::max<long long>(group->getSize(), num_local) > 1;
}

}  // namespace

comm::CalledFor called_for(Audience audience, const comm::Purpose& of_module, const comm::Purpose& of_reducer) {
  return comm::CalledFor(audience == Audience::kModule ? of_module : of_reducer);
}

BucketReduction::BucketReduction(const EngineInput& input) : input_(input) {
  use_group();
  divisor_ = world_size_;
}

void BucketReduction::use_group() {
  const auto& group = input_.options.process_group;
  world_size_ = group->getSize();
  runs_in_caller_ = comm::capability_of(group, input_.parameters.front().device().type()).runs_in_caller;
  has_core_to_overlap_ = has_core_to_overlap(group);
}

void BucketReduction::prepare() { divisor_ = next_divisor_ > 0 ? std::exchange(next_divisor_, 0) : world_size_; }

Averaging BucketReduction::averaging() const {
  if (hook_) return Averaging::kNone;
  return input_.options.gradient_as_bucket_view ? Averaging::kDivideInPlace : Averaging::kMultiply;
}

BucketReduction::WorkPtr BucketReduction::all_reduce(const at::Tensor& tensor, ReduceMode mode) const {
  std::vector<at::Tensor> tensors{tensor};
  const auto purpose = called_for(input_.audience, kGradientExchange, kReducerGradients);
  c10d::AllreduceOptions options;
  options.asyncOp = mode == ReduceMode::kAsync;
  return input_.options.process_group->getBackend(tensor.device().type())->allreduce(tensors, options);
}

// See [Note: in place] in overlap_engine.h.
BucketReduction::WorkPtr BucketReduction::reduce_parts(std::vector<at::Tensor> parts, ReduceMode mode) const {
  const auto purpose = called_for(input_.audience, kGradientExchange, kReducerGradients);
  const auto backend = input_.options.process_group->getBackend(c10::DeviceType::CPU);
  c10d::AllreduceCoalescedOptions options;
  options.reduceOp = premul_sum(1.0 / divisor_);
  options.asyncOp = mode == ReduceMode::kAsync;
  return parts.size() == 1 ? backend->allreduce(parts, options) : backend->allreduce_coalesced(parts, options);
}

BucketReduction::WorkPtr BucketReduction::reduce(const Bucket& bucket, ReduceMode mode) const {
  return bucket.has_in_place() ? reduce_parts(bucket.parts(), mode) : all_reduce(bucket.contents(), mode);
}

CommHookFuture BucketReduction::call_hook(BucketSet& buckets, size_t index, const at::Tensor& buffer) const {
  std::vector<at::Tensor> parameters;
  for (const size_t each : buckets[index].indices()) parameters.push_back(input_.parameters[each]);
  GradBucket seen(index, buckets.size(), buffer, std::move(parameters));
  const auto purpose = called_for(input_.audience, kGradientExchange, kReducerGradients);
  return run_comm_hook(hook_, seen);
}

}  // namespace cohort::ddp
