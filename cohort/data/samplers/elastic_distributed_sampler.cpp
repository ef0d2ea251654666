#include "cohort/data/samplers/elastic_distributed_sampler.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

#include "cohort/base/numbers/count.h"
#include "cohort/comm/group/process_group.h"
#include "cohort/data/samplers/distributed_sampler.h"

namespace cohort::data {
namespace {

constexpr auto kEpoch = "epoch";
constexpr auto kNumSeen = "num_samples_seen_by_all_ranks";
constexpr auto kDatasetSize = "dataset_size";

}  // namespace

ElasticDistributedSampler::ElasticDistributedSampler(int64_t dataset_size,
                                                     const ElasticDistributedSamplerOptions& options)
    : dataset_size_(dataset_size),
      num_replicas_(options.num_replicas ? *options.num_replicas : get_world_size()),
      rank_(options.rank ? *options.rank : get_rank()),
      shuffle_(options.shuffle),
      seed_(options.seed),
      remainder_(options.remainder) {
  TORCH_CHECK_VALUE(dataset_size >= 0, "[cohort] ElasticDistributedSampler needs a dataset size >= 0, but got ",
                    dataset_size);
  TORCH_CHECK_VALUE(rank_ >= 0 && rank_ < num_replicas_, "Invalid rank ", rank_,
                    ", rank should be in the interval [0, ", num_replicas_ - 1, "]");
}

int64_t ElasticDistributedSampler::share_of(int64_t num_left) const {
  switch (remainder_) {
    case Remainder::kKeep:
      return base::divide_up(std::max<int64_t>(num_left - rank_, 0), num_replicas_);
    case Remainder::kPad:
      return base::divide_up(num_left, num_replicas_);
    case Remainder::kDrop:
      return num_left / num_replicas_;
  }
  return 0;
}

int64_t ElasticDistributedSampler::size() const { return share_of(dataset_size_ - num_next_); }

std::vector<int64_t> ElasticDistributedSampler::indices() {
  num_before_ = std::exchange(num_next_, 0);
  DistributedSampler whole(dataset_size_, {.num_replicas = 1, .rank = 0, .shuffle = shuffle_, .seed = seed_});
  whole.set_epoch(epoch_);
  const auto order = whole.indices();
  const int64_t num_left = dataset_size_ - num_before_;
  std::vector<int64_t> mine(static_cast<size_t>(share_of(num_left)));
  for (size_t i = 0; i < mine.size(); ++i) {
    const int64_t place = rank_ + static_cast<int64_t>(i) * num_replicas_;
    mine[i] = order[static_cast<size_t>(num_before_ + place % num_left)];
  }
  return mine;
}

void ElasticDistributedSampler::set_epoch(int64_t epoch) {
  is_epoch_set_ = true;
  if (std::exchange(epoch_, epoch) != epoch) num_next_ = 0;
}

StateDict ElasticDistributedSampler::state_dict(std::optional<int64_t> num_given) const {
  StateDict state;
  const int64_t num_seen =
      num_given ? base::add_capped(num_before_, base::multiply_capped(*num_given, num_replicas_)) : 0;
  set_number(state, kEpoch, epoch_ + (num_given ? 0 : 1));
  set_number(state, kNumSeen, std::min(num_seen, dataset_size_));
  set_number(state, kDatasetSize, dataset_size_);
  return state;
}

int64_t ElasticDistributedSampler::load_state_dict(const StateDict& state) {
  const int64_t num_seen = number_in(state, kNumSeen);
  const int64_t dataset_size = number_in(state, kDatasetSize);
  TORCH_CHECK_VALUE(dataset_size == dataset_size_ && num_seen <= dataset_size_,
                    "[cohort] the state dict of an ElasticDistributedSampler has seen ", num_seen, " of ", dataset_size,
                    " samples, but this dataset has ", dataset_size_);
  epoch_ = number_in(state, kEpoch);
  is_epoch_set_ = true;
  num_next_ = num_seen;
  return 0;
}

}  // namespace cohort::data
