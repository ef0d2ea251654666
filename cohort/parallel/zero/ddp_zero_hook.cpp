#include "cohort/parallel/zero/ddp_zero_hook.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <map>

#include "cohort/parallel/ddp/settings/hook_result.h"
#include "cohort/parallel/zero/optimizer_parts.h"
#include "cohort/parallel/zero/purpose.h"
#include "cohort/parallel/zero/zero_redundancy_optimizer.h"

namespace cohort::zero {
namespace {

constexpr auto kMissingBucket =
    "[cohort] a hook with ZeRO's step must see every bucket of a step, but one was left out. It cannot be used with "
    "skip_all_reduce_unused_params, or after a failed step.";

bool are_same(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const at::Tensor& left, const at::Tensor& right) { return left.is_same(right); });
}

// For a complex parameter hooks see the real view.
at::Tensor in_dtype_of(const at::Tensor& parameter, const at::Tensor& gradient) {
  const auto dtype = parameter.scalar_type();
  if (!parameter.is_complex() || gradient.is_complex()) return gradient.to(dtype);
  return at::view_as_complex(gradient.to(c10::toRealValueType(dtype)));
}

}  // namespace

OverlappedStep::OverlappedStep(ZeroRedundancyOptimizer& zero, When when) : zero_(zero), when_(when) {
  TORCH_CHECK_VALUE(
      zero.overlap_with_ddp_,
      "ZeroRedundancyOptimizer must be constructed with `overlap_with_ddp=True` to use this hook properly");
}

void OverlappedStep::on_bucket(const ddp::GradBucket& bucket, const ddp::CommHookFuture& reduced) {
  const at::NoGradGuard no_grad;
  const comm::CalledFor purpose(kParameterExchange);
  if (bucket.index() == 0) begin();
  TORCH_CHECK(bucket.index() == pending_.size(), kMissingBucket);
  pending_.push_back({bucket, reduced});
  if (!bucket.is_last() && when_ == When::kAfterTheLastBucket) return;
  const size_t end = bucket.is_last() ? pending_.size() : pending_.size() - 1;
  while (num_completed_ < end) complete(pending_[num_completed_++]);
  if (!bucket.is_last()) return;
  for (const auto& work : broadcasts_) work->wait();
  broadcasts_.clear();
  pending_.clear();
}

void OverlappedStep::begin() {
  const bool was_finished = pending_.empty();
  pending_.clear();
  broadcasts_.clear();
  num_completed_ = 0;
  TORCH_CHECK(was_finished, kMissingBucket);
  zero_.adopt_groups();
  zero_.rebuild_after_trainability_changed();
}

void OverlappedStep::complete(const Pending& pending) {
  for (const auto& part : parts_of(pending.bucket).of_owners) {
    if (part.owner == zero_.rank_) update(part, pending);
    if (zero_.world_size_ == 1) continue;
    broadcasts_.push_back(broadcast(part.flat, group_rank(part.owner), {.group = zero_.group_, .async_op = true}));
  }
}

void OverlappedStep::update(const Part& part, const Pending& pending) {
  auto bucket = pending.bucket;
  const auto reduced = ddp::result_of(pending.reduced);
  TORCH_CHECK(!reduced.is_sparse(), "[cohort] a hook with ZeRO's step does not support sparse gradients");
  bucket.set_buffer(reduced.view(-1));
  const auto gradients = bucket.gradients();
  std::vector<at::Tensor> own;
  for (const size_t slot : part.slots) own.push_back(in_dtype_of(bucket.parameters()[slot], gradients[slot]));
  zero_.step_part(part.params, std::move(own));
}

const OverlappedStep::Parts& OverlappedStep::parts_of(const ddp::GradBucket& bucket) {
  if (bucket.index() >= parts_.size()) parts_.resize(bucket.index() + 1);
  auto& known = parts_[bucket.index()];
  if (!are_same(known.params, bucket.parameters())) known = {bucket.parameters(), divided(bucket.parameters())};
  return known;
}

std::vector<OverlappedStep::Part> OverlappedStep::divided(const std::vector<at::Tensor>& params) const {
  std::map<int, Part> by_owner;
  for (size_t slot = 0; slot < params.size(); ++slot) {
    const auto place = zero_.places_.find(params[slot].unsafeGetTensorImpl());
    if (place == zero_.places_.end()) continue;
    auto& part = by_owner[place->second.owner];
    part.owner = place->second.owner;
    part.slots.push_back(slot);
    part.params.push_back(params[slot]);
  }
  std::vector<Part> parts;
  for (auto& [owner, part] : by_owner) {
    part.flat = flatten_params(part.params, zero_.group_);
    parts.push_back(std::move(part));
  }
  return parts;
}

}  // namespace cohort::zero
