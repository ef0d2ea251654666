/// DistributedSampler gives each rank its own share of a dataset, the same indices as PyTorch's
/// torch.utils.data.distributed.DistributedSampler for every length, number of replicas, rank, seed and epoch.
///
///     auto sampler = std::make_shared<DistributedSampler>(dataset.size());
///     for (int epoch = 0; epoch < epochs; ++epoch) {
///       sampler->set_epoch(epoch);      // another order each epoch, the same on every rank
///       for (auto& batch : loader) ...
///     }
///
/// The order of all examples is padded from its start (or cut) until it divides evenly; rank r takes r, r+R, r+2R, ...
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "cohort/data/loader/sampler.h"
#include "cohort/export.h"

namespace cohort::data {

struct DistributedSamplerOptions {
  /// Default: those of the default group (then cohort::init_process_group must have been called).
  std::optional<int64_t> num_replicas = {};
  std::optional<int64_t> rank = {};
  bool shuffle = true;
  /// Must be the same on every rank.
  int64_t seed = 0;
  /// Cut the tail instead of repeating examples from the start.
  bool drop_last = false;
};

class COHORT_API DistributedSampler : public Sampler {
 public:
  /// Throws c10::ValueError when the rank is not in [0, num_replicas - 1].
  explicit DistributedSampler(int64_t dataset_size, DistributedSamplerOptions options = {});

  /// Warns once, on rank 0, when a shuffling sampler begins a second epoch and set_epoch was never called: both are in one order.
  std::vector<int64_t> indices() override;
  /// Indices of one rank in one epoch; the same on every rank.
  int64_t size() const override { return num_samples_; }

  /// Must be called before each epoch, with the same number on every rank.
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
