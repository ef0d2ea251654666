/// ElasticDistributedSampler: shards an epoch among ranks, and can resume in the middle of it with another number of ranks, so
/// that every example is seen exactly once:
///
///     auto sampler = std::make_shared<ElasticDistributedSampler>(dataset.size());
///     DataLoader loader(dataset, {.batch_size = 32, .sampler = sampler});
///     if (has_checkpoint) loader.load_state_dict(state);        // any rank's state, saved under any world size
///     for (int64_t epoch = sampler->epoch(); epoch < epochs; ++epoch) {
///       sampler->set_epoch(epoch);                              // continues a loaded epoch
///       for (auto& batch : loader) ...                          // save loader.state_dict() at any batch
///     }
///
/// The order of an epoch is DistributedSampler's (seed + epoch). Of the samples that are left, rank r takes r, r + R, r + 2R, ...
/// A state is valid if all ranks have taken equally many batches of one size, as they have between steps.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "cohort/data/samplers/sampler.h"
#include "cohort/export.h"

namespace cohort::data {

/// The treatment of examples that do not divide evenly among ranks.
enum class Remainder {
  kKeep,  ///< the first ranks have one more, and every example comes once; numbers of batches may differ, see Join
  kPad,   ///< repeats some examples, so that every rank has equally many
  kDrop,  ///< leaves them out
};

struct ElasticDistributedSamplerOptions {
  /// Default: the values of the default group.
  std::optional<int64_t> num_replicas = {};
  std::optional<int64_t> rank = {};
  bool shuffle = true;
  /// Must be the same on every rank, and after each restart.
  int64_t seed = 0;
  Remainder remainder = Remainder::kKeep;
};

class COHORT_API ElasticDistributedSampler : public Sampler {
 public:
  /// Throws c10::ValueError if the rank is not in [0, num_replicas - 1].
  explicit ElasticDistributedSampler(int64_t dataset_size, const ElasticDistributedSamplerOptions& options = {});

  /// Returns this rank's indices among those that are left in the epoch.
  std::vector<int64_t> indices() override;
  /// The number of indices that indices() will return.
  int64_t size() const override;

  /// Begins a new epoch. The current number instead continues the epoch of a loaded state.
  void set_epoch(int64_t epoch);
  int64_t epoch() const { return epoch_; }
  /// Whether set_epoch() or a loaded state has set the epoch.
  bool is_epoch_set() const { return is_epoch_set_; }
  bool shuffles() const { return shuffle_; }

  StateDict state_dict(std::optional<int64_t> num_given) const override;
  /// Returns 0, as indices() leaves out samples that have been read. Throws c10::ValueError for the state of a dataset of another
  /// size.
  int64_t load_state_dict(const StateDict& state) override;

 private:
  int64_t share_of(int64_t num_left) const;

  int64_t dataset_size_;
  int64_t num_replicas_;
  int64_t rank_;
  bool shuffle_;
  int64_t seed_;
  Remainder remainder_;
  int64_t epoch_ = 0;
  bool is_epoch_set_ = false;
  int64_t num_before_ = 0;  ///< samples that all ranks had read when this epoch began here
  int64_t num_next_ = 0;    ///< samples of all ranks that the next indices() leaves out
};

}  // namespace cohort::data
