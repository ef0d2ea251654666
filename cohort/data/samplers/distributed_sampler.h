/// DistributedSampler: shards a dataset among ranks, with the same indices as torch.utils.data.distributed.DistributedSampler for
/// every length, number of replicas, rank, seed and epoch.
///
///     auto sampler = std::make_shared<DistributedSampler>(dataset.size());
///     for (int epoch = 0; epoch < epochs; ++epoch) {
///       sampler->set_epoch(epoch);      // another order each epoch, the same on every rank
///       for (auto& batch : loader) ...
///     }
///
/// Pads the order of all examples from its start (or drops its tail) until it divides evenly; rank r takes r, r+R, r+2R, ...
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "cohort/data/samplers/sampler.h"
#include "cohort/export.h"

namespace cohort::data {

struct DistributedSamplerOptions {
  /// Default: the values of the default group, which must then exist.
  std::optional<int64_t> num_replicas = {};
  std::optional<int64_t> rank = {};
  bool shuffle = true;
  /// Must be the same on every rank.
  int64_t seed = 0;
  /// Drops the tail instead of repeating examples from the start.
  bool drop_last = false;
};

class COHORT_API DistributedSampler : public Sampler {
 public:
  /// Throws c10::ValueError if the rank is not in [0, num_replicas - 1].
  explicit DistributedSampler(int64_t dataset_size, DistributedSamplerOptions options = {});

  /// Warns once, on rank 0, if a shuffling sampler begins a second epoch without a call of set_epoch: both epochs have the same
  /// order.
  std::vector<int64_t> indices() override;
  /// The number of indices of one rank in one epoch, the same on every rank.
  int64_t size() const override { return num_samples_; }

  /// Call it before each epoch, with the same number on every rank.
  void set_epoch(int64_t epoch);
  int64_t epoch() const { return epoch_; }
  bool is_epoch_set() const { return is_epoch_set_; }
  bool shuffles() const { return shuffle_; }

 private:
  std::vector<int64_t> order() const;
  void warn_if_epoch_repeats();

  int64_t dataset_size_;
  int64_t num_replicas_;
  int64_t rank_;
  bool shuffle_;
  int64_t seed_;
  bool drop_last_;
  int64_t num_samples_;
  int64_t epoch_ = 0;
  bool is_epoch_set_ = false;
  bool was_iterated_ = false;
  bool has_warned_ = false;
};

}  // namespace cohort::data
