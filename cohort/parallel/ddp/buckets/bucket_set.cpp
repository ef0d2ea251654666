#include "cohort/parallel/ddp/buckets/bucket_set.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <algorithm>
#include <iterator>
#include <utility>

#include "cohort/parallel/ddp/buckets/bucket_memory.h"
#include "cohort/parallel/ddp/buckets/device_streams.h"
#include "cohort/parallel/ddp/buckets/in_place.h"

namespace cohort::ddp {

BucketSet::BucketSet(const EngineInput& input)
    : input_(input), places_(input.parameters.size()), is_ready_(input.parameters.size()) {}

void BucketSet::install(const BucketPlan& plan, bool has_hook) {
  const auto& parameters = input_.parameters;
  std::vector<Bucket> old = std::move(buckets_);  // gradients may still live there
  for (const auto& bucket : old) {
    used_in_current_stream(bucket.contents());
    used_in_current_stream(bucket.gradients());
  }
  buckets_.clear();
  const auto in_place =
      has_hook ? std::vector<char>(parameters.size()) : find_in_place(parameters, input_.infos, input_.options);
  for (const auto& indices : plan) {
    auto& bucket = buckets_.emplace_back(make_bucket(indices, in_place, has_hook));
    bucket.num_pending = indices.size();
    for (size_t slot = 0; slot < indices.size(); ++slot) {
      places_[indices[slot]] = {buckets_.size() - 1, slot};
      bucket.adopt(slot, parameters[indices[slot]]);
    }
  }
}

Bucket BucketSet::make_bucket(const std::vector<size_t>& indices, const std::vector<char>& in_place,
                              bool has_hook) const {
  const auto& parameters = input_.parameters;
  const auto& group = input_.options.process_group;
  const auto& first = input_.infos[indices.front()];
  TORCH_CHECK(!first.is_sparse || indices.size() == 1,
              "Buckets with more than one variable cannot include variables that expect a sparse gradient.");
  // A single rank has nothing to reduce: gradients stay where autograd puts them. But hooks see the buckets of a single rank,
  // too.
  if (first.is_sparse || (group->getSize() == 1 && !has_hook)) return {indices, parameters, at::Tensor()};
  std::vector<size_t> packed;
  std::copy_if(indices.begin(), indices.end(), std::back_inserter(packed), [&](size_t i) { return !in_place[i]; });
  if (packed.size() < indices.size()) {
    auto contents = packed.empty() ? at::empty({0}, parameters[indices.front()].options().requires_grad(false))
                                   : make_bucket_memory(parameters, packed, group, input_.gradient_dtype);
    return {indices, parameters, std::move(contents), {}, in_place};
  }
  auto contents = make_bucket_memory(parameters, indices, group, input_.gradient_dtype);
  if (contents.scalar_type() == first.dtype) return {indices, parameters, std::move(contents)};
  return {indices, parameters, contents, at::empty(contents.sizes(), contents.options().dtype(first.dtype))};
}

BucketPlan BucketSet::plan() const {
  BucketPlan plan;
  for (const auto& bucket : buckets_) plan.push_back(bucket.indices());
  return plan;
}

bool BucketSet::has_in_place() const {
  return std::any_of(buckets_.begin(), buckets_.end(), [](const Bucket& bucket) { return bucket.has_in_place(); });
}

void BucketSet::prepare() {
  next_ = 0;
  std::fill(is_ready_.begin(), is_ready_.end(), 0);
  for (auto& bucket : buckets_) bucket.num_pending = bucket.indices().size();
}

void BucketSet::forget_reductions() {
  for (auto& bucket : buckets_) {
    bucket.work.reset();
    bucket.future.reset();
  }
}

void BucketSet::abandon_gradients() {
  for (auto& bucket : buckets_) {
    const auto& indices = bucket.indices();
    for (size_t slot = 0; slot < indices.size(); ++slot) bucket.abandon(slot, input_.parameters[indices[slot]]);
  }
}

}  // namespace cohort::ddp
