#include "cohort/data/samplers/distributed_sampler.h"

#include <ATen/ops/randperm.h>
#include <c10/util/Exception.h>

#include <numeric>

#include "cohort/base/numbers/count.h"
#include "cohort/comm/group/process_group.h"

namespace cohort::data {
namespace {

int64_t samples_per_replica(int64_t dataset_size, int64_t num_replicas, bool drop_last) {
  return drop_last ? dataset_size / num_replicas : base::divide_up(dataset_size, num_replicas);
}

}  // namespace

DistributedSampler::DistributedSampler(int64_t dataset_size, DistributedSamplerOptions options)
    : dataset_size_(dataset_size),
      num_replicas_(options.num_replicas.has_value() ? *options.num_replicas : get_world_size()),
      rank_(options.rank.has_value() ? *options.rank : get_rank()),
      shuffle_(options.shuffle),
      seed_(options.seed),
      drop_last_(options.drop_last) {
  TORCH_CHECK_VALUE(dataset_size >= 0, "[cohort] DistributedSampler needs a dataset size >= 0, but got ", dataset_size);
  TORCH_CHECK_VALUE(rank_ >= 0 && rank_ < num_replicas_, "Invalid rank ", rank_,
                    ", rank should be in the interval [0, ", num_replicas_ - 1, "]");
  num_samples_ = samples_per_replica(dataset_size_, num_replicas_, drop_last_);
}

void DistributedSampler::set_epoch(int64_t epoch) {
  epoch_ = epoch;
  is_epoch_set_ = true;
}

std::vector<int64_t> DistributedSampler::order() const {
  std::vector<int64_t> order(dataset_size_);
  if (!shuffle_) {
    std::iota(order.begin(), order.end(), int64_t{0});
    return order;
  }
  const auto seed = static_cast<int64_t>(static_cast<uint64_t>(seed_) + static_cast<uint64_t>(epoch_));
  const at::Tensor permutation =
      at::randperm(dataset_size_, make_generator(seed), at::TensorOptions().dtype(at::kLong));
  const int64_t* data = permutation.const_data_ptr<int64_t>();
  order.assign(data, data + dataset_size_);
  return order;
}

std::vector<int64_t> DistributedSampler::indices() {
  warn_if_epoch_repeats();
  const std::vector<int64_t> all = order();
  std::vector<int64_t> mine(num_samples_);
  for (int64_t i = 0; i < num_samples_; ++i) {
    // Past the end, the list repeats from its start, several times for a tiny dataset.
    mine[i] = all[(rank_ + i * num_replicas_) % dataset_size_];
  }
  return mine;
}

void DistributedSampler::warn_if_epoch_repeats() {
  const bool repeats = was_iterated_ && shuffle_ && !is_epoch_set_;
  was_iterated_ = true;
  if (!repeats || has_warned_ || rank_ != 0) return;
  has_warned_ = true;
  TORCH_WARN(
      "[cohort] DistributedSampler begins a second epoch, but set_epoch was never called: every epoch has the same "
      "order.\n  hint: call sampler->set_epoch(epoch) before each epoch, or set shuffle to false.");
}

}  // namespace cohort::data
